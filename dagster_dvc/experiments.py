"""A job that runs a DVC experiment with changed parameters in a copy of the project."""

import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import yaml

from dagster_dvc.facts import flat
from dagster_dvc.graph import Loader, identifier
from dagster_dvc.repro import dvc, failure

# train.rate=0.1: a new value of a parameter. No option of DVC, no added (+) or deleted (~) key, and no
# mapping, which could add a row whose name is a shell command.
OVERRIDE = re.compile(r"\w[\w.-]*=[^{}$]*", re.ASCII)
NAMED = re.compile(r"Ran experiment\(s\): (\S+)")


def example(params: Path) -> Iterator[str]:
    """Yield the first number of a file of parameters, as `train.rate=0.1`; nothing without one."""
    numbers = flat(yaml.load(params.read_bytes(), Loader) if params.is_file() else {})
    changes = (f"{name.replace('/', '.')}={value}" for name, value in numbers)
    yield from [change for change in changes if OVERRIDE.fullmatch(change)][:1]


def experiment(root: Path, prefix: str) -> dg.JobDefinition:
    """Return a job whose step `dvc_exp_run` takes `{"set": ["train.rate=0.1"]}`.

    Its launchpad shows an example: a number of params.yaml, as it is now.
    """
    step = identifier(prefix, "dvc_exp_run")

    @dg.op(config_schema={"set": [str]}, name=step, out=dg.Out(dg.Nothing))
    def op(context: dg.OpExecutionContext) -> None:
        changes = context.op_config["set"]
        bad = [change for change in changes if not OVERRIDE.fullmatch(change)]
        if bad or not changes:
            said = f"{bad[0]!r} is not parameter=value" if bad else "no parameter is changed"
            raise dg.Failure(f"set: {said}; an example: train.rate=0.1", allow_retries=False)
        words = ["exp", "run", "--temp", *(word for change in changes for word in ("-S", change))]
        outcome = dvc(root, words, context.run.run_id)
        if outcome.code:
            raise failure("experiment", " ".join(["dvc", *words]), outcome)
        name = next((m[1] for line in outcome.output if (m := NAMED.search(line))), "")
        differs = dvc(root, ["exp", "diff", "HEAD", name, "--md"], context.run.run_id, keep=None)
        metadata = {
            "experiment": name,
            "seconds": round(outcome.seconds, 2),
            "apply": f"dvc exp apply {name}",
        }
        context.add_output_metadata(metadata | {"changed": dg.MetadataValue.md("\n".join(differs.output))})

    @dg.job(
        name=identifier(prefix, "experiment"),
        config={"ops": {step: {"config": {"set": list(example(root / "params.yaml"))}}}},
        description="`dvc exp run --temp -S ...`: params.yaml stays as it is",
    )
    def job() -> None:
        op()

    return job
