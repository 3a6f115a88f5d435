"""Jobs that leave the user's tree alone: a DVC experiment with parameters changed, and the smoke study, both in copies."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import dagster as dg

from assets.repro import dvc, failure

OVERRIDE = re.compile(r"[A-Za-z0-9_+~][^=\s]*=.*")  # align.x.clusters=40; never an option of dvc's
NAMED = re.compile(r"Ran experiment\(s\): (\S+)")


def experiment(root: Path) -> dg.JobDefinition:
    """A job whose whole configuration is `{"set": ["align.x.clusters=40"]}`."""

    @dg.config_mapping(config_schema={"set": [str]})
    def mapped(config: dict[str, Any]) -> dict[str, Any]:
        return {"ops": {"dvc_exp_run": {"config": config}}}

    @dg.op(config_schema={"set": [str]}, name="dvc_exp_run", out=dg.Out(dg.Nothing))
    def op(context: dg.OpExecutionContext) -> None:
        changes = context.op_config["set"]
        if bad := next((change for change in changes if not OVERRIDE.fullmatch(change)), None if changes else ""):
            raise dg.Failure(f"set: {bad!r} is no parameter=value", allow_retries=False)
        if not changes:
            raise dg.Failure("set: no parameter is changed; an example: align.wasserstein.clusters=40", allow_retries=False)
        words = ["exp", "run", "--temp", *(word for change in changes for word in ("-S", change))]
        outcome = dvc(root, words, context.run.run_id)
        if outcome.code:
            raise failure("experiment", " ".join(["dvc", *words]), outcome) from None
        name = next((m[1] for line in outcome.output if (m := NAMED.search(line))), "")
        differs = dvc(root, ["exp", "diff", "HEAD", name, "--md"], context.run.run_id)
        metadata = {"experiment": name, "seconds": round(outcome.seconds, 2), "apply": f"dvc exp apply {name}"}
        context.add_output_metadata(metadata | {"changed": dg.MetadataValue.md("\n".join(differs.output))})

    @dg.job(name="experiment", config=mapped, description="`dvc exp run --temp -S ...`: params.yaml stays as it is")
    def job() -> None:
        op()

    return job


def smoke(root: Path) -> dg.JobDefinition:
    """A job that reproduces studies/smoke.yaml in a copy of the files that git knows."""

    @dg.op(name="reproduce_smoke", out=dg.Out(dg.Nothing))
    def op(context: dg.OpExecutionContext) -> None:
        with tempfile.TemporaryDirectory(prefix="smoke-") as folder:
            copied(root, Path(folder))
            for words in (["init", "--no-scm", "--force", "--quiet"], ["repro"]):
                outcome = dvc(Path(folder), words, context.run.run_id)
                if outcome.code:
                    raise failure("smoke", " ".join(["dvc", *words]), outcome) from None
            context.add_output_metadata({"seconds": round(outcome.seconds, 2)})

    @dg.job(name="smoke", description="does it run: studies/smoke.yaml in a copy of this repository")
    def job() -> None:
        op()

    return job


def copied(root: Path, to: Path) -> None:
    """The files that git knows or would add, with the smoke study as params.yaml. Failure where it is not valid."""
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=root, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (root / name).is_file() and not name.startswith((".dvc/", "results/", "report/", "dvc.lock")):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, to / name)
    command = [sys.executable, "-m", "pipelines.study", "activate", "smoke"]
    done = subprocess.run(command, cwd=to, capture_output=True, text=True, check=False)
    if done.returncode:
        raise dg.Failure(done.stderr.strip() or "the smoke study is not valid", allow_retries=False)
