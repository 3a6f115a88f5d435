"""Compute the versions that an event carries, so that Dagster calls unsynced what `dvc status` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from dvc.repo import Repo

from dagster_dvc.graph import Entry, Stage, md5, overlap

OTHER = "other than "  # prefix of the version of an input that has changed since the stage read it
Now = Callable[[str], str | None]  # the md5 of a file or folder as it is now


def tags(
    stages: Mapping[str, Stage], entries: Mapping[str, Entry], stage: Stage, now: Now | None = None
) -> dict[str, str]:
    """Return Dagster's tags of an event: versions of the data, of the code, and of every input that the stage
    has read.

    All come from dvc.lock, with one exception: if a stage reads a folder into which others write (`results`),
    `now` gives its md5. Without `now` the folder counts as unchanged since the stage read it.
    """
    entry = entries[stage.name]
    out = {
        "dagster/data_version": entry.version(stage),
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": entry.code_version(stage),
    }
    for upstream in (stages[name] for name in stage.upstream):
        key = "/".join(upstream.key)
        made = entries.get(upstream.name, Entry({}))
        out[f"dagster/input_data_version/{key}"] = _read(entry, upstream, made, now)
        # Dagster can compare versions alone; events outside runs have no event ids to point to.
        out[f"dagster/input_event_pointer/{key}"] = "NULL"
    return out


def _read(entry: Entry, upstream: Stage, made: Entry, now: Now | None) -> str:
    """Return the version of `upstream`, with the prefix OTHER if the stage read an older version."""
    for path, digest in entry.deps.items():
        for out, made_digest in made.md5s.items():
            if path == out:
                current = made_digest
            elif overlap(path, out) and now:
                current = now(path)
            else:  # another file, or a folder that counts as unchanged
                current = digest
            if digest != current:
                return OTHER + made.version(upstream)
    return made.version(upstream)


def up_to_date(tags: Mapping[str, str]) -> bool:
    """Return whether every input was read in its current version."""
    return not any(value.startswith(OTHER) for value in tags.values())


def current_md5s(root: Path) -> Now:
    """Return the `now` of a project, a function that computes each md5 once."""

    @cache
    def now(path: str) -> str | None:
        with Repo(str(root)) as repo:
            return md5(repo, root / path)

    return now
