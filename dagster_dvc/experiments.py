"""A job that runs a DVC experiment with changed parameters in a copy of the project."""

import re
from pathlib import Path

import dagster as dg

from dagster_dvc.graph import word
from dagster_dvc.repro import dvc, failure

# train.rate=0.1. Neither an option of DVC, nor a new key (+), a deleted one (~) or a mapping: a row that
# params.yaml does not have could carry a shell command in its name.
OVERRIDE = re.compile(r"\w[\w.-]*=[^{}$]*", re.ASCII)
NAMED = re.compile(r"Ran experiment\(s\): (\S+)")


def experiment(root: Path, prefix: str) -> dg.JobDefinition:
    """Return a job whose step `dvc_exp_run` takes `{"set": ["train.rate=0.1"]}`."""
    step = word(prefix, "dvc_exp_run")

    @dg.op(config_schema={"set": [str]}, name=step, out=dg.Out(dg.Nothing))
    def op(context: dg.OpExecutionContext) -> None:
        changes = context.op_config["set"]
        if not changes or not all(map(OVERRIDE.fullmatch, changes)):
            raise dg.Failure(f"set: {changes} is no list of parameter=value", allow_retries=False)
        words = ["exp", "run", "--temp", *(word for change in changes for word in ("-S", change))]
        outcome = dvc(root, words, context.run.run_id)
        if outcome.code:
            raise failure("experiment", " ".join(["dvc", *words]), outcome) from None
        name = next((m[1] for line in outcome.output if (m := NAMED.search(line))), "")
        differs = dvc(root, ["exp", "diff", "HEAD", name, "--md"], context.run.run_id)
        context.add_output_metadata({
            "experiment": name,
            "seconds": round(outcome.seconds, 2),
            "apply": f"dvc exp apply {name}",
            "changed": dg.MetadataValue.md("\n".join(differs.output)),
        })  # fmt: skip

    @dg.job(
        name=word(prefix, "experiment"),
        config={"ops": {step: {"config": {"set": ["train.rate=0.1"]}}}},
        description="`dvc exp run --temp -S ...`: params.yaml stays as it is",
    )
    def job() -> None:
        op()

    return job
