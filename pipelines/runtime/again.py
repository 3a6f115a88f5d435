"""The line of shell that makes a result again."""

import subprocess
from pathlib import Path
from shlex import quote

from pipelines.runtime.errors import BadInput


def again(study: str, stage: str = "") -> str:
    """Return the command that makes a stage's results again, or those of all stages.

    A comment at its end says so if tracked files differ from the commit, or pipelines/ has untracked files.
    dvc.lock and report/ do not count: they are results.
    """
    steps = [f"dvc repro {stage}".strip()]
    if git("cat-file", "-t", f"HEAD:studies/{study}.yaml") == "blob" and made_from(study):
        steps.insert(0, f"make study STUDY={quote(study)}")
    changed = set(git("diff", "--name-only", "HEAD", "--", ".", ":!dvc.lock", ":!report").splitlines())
    changed |= set(git("ls-files", "--others", "--exclude-standard", "--", "pipelines").splitlines())
    if len(steps) == 2:
        changed.discard("params.yaml")  # `make study` writes it
    if commit := git("rev-parse", "--verify", "HEAD"):
        steps.insert(0, f"git checkout {commit}")
    said = "" if commit else "not a git checkout"
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        said = f"with uncommitted changes: {min(changed)}{more}"
    return " && ".join(steps) + (f"  # {said}" if said else "")


def made_from(study: str) -> bool:
    """Return whether params.yaml is what `make study` writes for this study now."""
    from pipelines.study.activate import full_text  # its libraries are of [pipeline]: the command has none

    try:
        return full_text(Path(f"studies/{study}.yaml")) == Path("params.yaml").read_text(encoding="utf-8")
    except (BadInput, OSError, ValueError):
        return False


def git(*arguments: str) -> str:
    """Return what `git` prints; nothing if it fails, or is not there."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, encoding="utf-8", check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
