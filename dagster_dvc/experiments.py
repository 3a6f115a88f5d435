"""A job that runs a DVC experiment with changed parameters in a copy of the project."""

import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import yaml

from dagster_dvc.facts import flat
from dagster_dvc.graph import Loader, word
from dagster_dvc.repro import dvc, failure

# train.rate=0.1. Neither an option of DVC, nor a new key (+), a deleted one (~) or a mapping: a row that
# params.yaml does not have could carry a shell command in its name.
OVERRIDE = re.compile(r"\w[\w.-]*=[^{}$]*", re.ASCII)
NAMED = re.compile(r"Ran experiment\(s\): (\S+)")


def example(params: Path) -> Iterator[str]:
    """Yield the first number of a file of parameters, as `train.rate=0.1`; nothing without one."""
    numbers = flat(yaml.load(params.read_bytes(), Loader) if params.is_file() else {})
    changes = (f"{name.replace('/', '.')}={value}" for name, value in numbers)
    yield from [change for change in changes if OVERRIDE.fullmatch(change) and ".0=" not in change][:1]


def experiment(root: Path, prefix: str) -> dg.JobDefinition:
    """Return a job whose step `dvc_exp_run` takes `{"set": ["train.rate=0.1"]}`.

    Its launchpad shows an example: a number of params.yaml, as it is now.
    """
    step = word(prefix, "dvc_exp_run")

    @dg.op(config_schema={"set": [str]}, name=step, out=dg.Out(dg.Nothing))
    def op(context: dg.OpExecutionContext) -> None:
        changes = context.op_config["set"]
        if bad := next(
            (change for change in changes if not OVERRIDE.fullmatch(change)), None if changes else ""
        ):
            raise dg.Failure(f"set: {bad!r} is no parameter=value", allow_retries=False)
        if not changes:
            raise dg.Failure("set: no parameter is changed; an example: train.rate=0.1", allow_retries=False)
        words = ["exp", "run", "--temp", *(word for change in changes for word in ("-S", change))]
        outcome = dvc(root, words, context.run.run_id)
        if outcome.code:
            raise failure("experiment", " ".join(["dvc", *words]), outcome) from None
        name = next((m[1] for line in outcome.output if (m := NAMED.search(line))), "")
        differs = dvc(root, ["exp", "diff", "HEAD", name, "--md"], context.run.run_id)
        metadata = {
            "experiment": name,
            "seconds": round(outcome.seconds, 2),
            "apply": f"dvc exp apply {name}",
        }
        context.add_output_metadata(metadata | {"changed": dg.MetadataValue.md("\n".join(differs.output))})

    @dg.job(
        name=word(prefix, "experiment"),
        config={"ops": {step: {"config": {"set": list(example(root / "params.yaml"))}}}},
        description="`dvc exp run --temp -S ...`: params.yaml stays as it is",
    )
    def job() -> None:
        op()

    return job
