"""The stage graph as DVC reads it from dvc.yaml and params.yaml, and what dvc.lock says of it. Nothing here runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.stage import PipelineStage
from dvc.utils.serialize import load_path
from dvc_data.hashfile.build import build
from dvc_data.hashfile.db import HashFileDB
from dvc_data.hashfile.state import StateNoop
from dvc_objects.fs.local import localfs

ROW = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # DVC puts a row's name into a command that a shell reads


FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(FAST):
    """YAML 1.2, as DVC writes it: to PyYAML alone 1e-05 is a string and `no` is false. Ten times as fast as DVC's reader."""

    yaml_implicit_resolvers = {}


for kind, pattern, first in (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?\d+", "-+0123456789"),
    ("float", r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+.0123456789"),
):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"(?:{pattern})$"), list(first))


class GraphError(Exception):
    """dvc.yaml, params.yaml or dvc.lock cannot be read; the message is DVC's own, on one line."""


@dataclass(frozen=True)
class Stage:
    """One stage of dvc.yaml: `align@wasserstein` is row `wasserstein` of group `align`. Paths: from the root."""

    name: str
    cmd: str
    desc: str
    pool: str | None  # `meta: {pool: gpu}`
    upstream: tuple[str, ...]  # names of the stages whose outputs this one reads
    outs: tuple[str, ...]  # every output, metrics and plots among them
    metrics: tuple[str, ...]  # DVC's own, and outputs of `type: metrics`, which its screens leave out
    plots: tuple[str, ...]  # DVC's own, and outputs of `type: table` or `picture`
    read: tuple[str, ...]  # the outputs that another stage reads
    sources: tuple[str, ...]  # the dependencies that no stage makes: code, files of the user's
    code_version: str  # of the command, the stage's own params and its sources
    op: str = ""  # unique in a graph, letters, digits and _ only: Dagster's steps allow no more

    @property
    def group(self) -> str:
        return self.name.partition("@")[0]

    @property
    def row(self) -> str | None:
        return self.name.partition("@")[2] or None

    @property
    def key(self) -> tuple[str, ...]:
        """Dagster's asset key: ("align", "wasserstein"). Keys, unlike steps, may hold any character."""
        return (self.group, self.row) if self.row else (self.group,)


@dataclass(frozen=True)
class Entry:
    """What dvc.lock holds for one stage."""

    raw: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """Of the whole entry: command, deps, params and outs."""
        return digest(self.raw)

    @property
    def outs(self) -> list[dict[str, Any]]:
        """Each with path, md5, size (bytes) and, for a folder, nfiles."""
        return [dict(out) for out in self.raw.get("outs", ())]

    @property
    def deps(self) -> dict[str, str | None]:
        """{path: md5} of what the stage read."""
        return {dep["path"]: dep.get("md5") for dep in self.raw.get("deps", ())}

    def code_version(self, stage: Stage) -> str:
        """What `stage.code_version` was when this entry was written: the two differ where `dvc status` names one of these."""
        params = {f"{file}:{name}": value for file, of in self.raw.get("params", {}).items() for name, value in of.items()}
        return _code_version(self.raw.get("cmd", ""), params, {path: self.deps.get(path) for path in stage.sources})

    def version(self, stage: Stage) -> str:
        """What Dagster compares: the md5 of the outputs that another stage reads, or of all where none does.

        A metric that nobody reads (seconds, say) must not make what lies downstream look stale.
        """
        outs = {out["path"]: out.get("md5") for out in self.outs if not stage.read or out["path"] in stage.read}
        md5s = list(outs.values())
        return str(md5s[0]) if len(md5s) == 1 else digest(outs)


def read(root: Path) -> dict[str, Stage]:
    """Every stage of root/dvc.yaml by name, upstream first. GraphError where DVC cannot read it.

    Tracked files (`dvc add`) and pipelines in other folders are data to this graph, not stages.
    """
    try:
        repo = Repo(str(root))
        graph = repo.index.graph
        path = os.path.join(repo.root_dir, "dvc.yaml")
        selected = [s for s in graph if isinstance(s, PipelineStage) and s.path == path and s.cmd]
        needed = [d.def_path for s in selected for d in s.deps if d not in s.params]
        made = [o.def_path for s in selected for o in s.outs]
        sources = {path: md5(repo, path) for path in dict.fromkeys(needed) if not any(overlap(path, o) for o in made)}
        _check_rows(str(s.name) for s in selected)
        files: dict[str, Any] = {}
        # By name, not by `addressing`: that is relative to the folder in which this process happens to be.
        among = set(selected)
        upstream = {s.name: sorted(str(d.name) for d in graph.successors(s) if d in among) for s in selected}
        stages = {str(s.name): _stage(s, tuple(upstream[s.name]), needed, sources, files) for s in selected}
    except (DvcException, OSError) as error:
        raise GraphError(_one_line(error)) from None
    return _with_ops(_sorted(stages))


def _check_rows(names: Iterable[str]) -> None:
    """Raise GraphError for a stage `verb@row` whose row a shell would not read as one plain word."""
    for name in names:
        verb, at, row = name.partition("@")
        if at and not ROW.fullmatch(row):
            raise GraphError(f"{verb}: {row!r} is no row name: letters, digits, '_', '-' and '.' only")


def lock(root: Path) -> dict[str, Entry]:
    """dvc.lock by stage name; empty where there is none yet. GraphError where it is half-written or no YAML."""
    try:
        content = yaml.load((root / "dvc.lock").read_bytes(), Loader) or {}
        return {name: Entry(entry) for name, entry in content.get("stages", {}).items()}
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, AttributeError) as error:
        raise GraphError(f"dvc.lock: {_one_line(error)}") from None


def md5(repo: Repo, path: str, anew: bool = False) -> str | None:
    """What DVC would write of a file or folder as it is now; None: it is not there. DVC remembers those of untouched files, and
    takes those of restored ones on trust: `anew` reads every byte."""
    full = os.path.join(repo.root_dir, path)
    if not os.path.exists(full):
        return None
    known = HashFileDB(localfs, repo.cache.local.path, state=StateNoop()) if anew else repo.cache.local
    ignored: Any = repo.dvcignore
    _, _, built = build(known, full, localfs, "md5", ignore=ignored, dry_run=True)
    return built.hash_info.value


def _stage(
    stage: Any, upstream: tuple[str, ...], needed: Iterable[str], sources: Mapping[str, str | None], files: dict[str, Any]
) -> Stage:
    outs = tuple(out.def_path for out in stage.outs)
    params = {f"{p.def_path}:{n}": _value(p, n, files) for p in stage.params for n in p.params or ()}
    mine = {dep.def_path: sources[dep.def_path] for dep in stage.deps if dep.def_path in sources}
    return Stage(
        name=stage.name,
        cmd=_joined(stage.cmd),
        desc=stage.desc or "",
        pool=(stage.meta or {}).get("pool"),
        upstream=upstream,
        outs=outs,
        metrics=tuple(out.def_path for out in stage.outs if out.metric or out.annot.type == "metrics"),
        plots=tuple(out.def_path for out in stage.outs if out.plot or out.annot.type in ("table", "picture")),
        read=tuple(o for o in outs if any(overlap(o, n) for n in needed)),
        sources=tuple(mine),
        code_version=_code_version(stage.cmd, params, mine),
    )


def _code_version(cmd: str | list[str], params: Mapping[str, Any], sources: Mapping[str, str | None]) -> str:
    return digest([_joined(cmd), params, sources])[:12]


def _joined(cmd: str | list[str]) -> str:
    return cmd if isinstance(cmd, str) else "\n".join(cmd)


def _value(dep: Any, name: str, files: dict[str, Any]) -> Any:
    """The value of a (dotted) parameter. DVC's own reader parses the file anew for each stage: half a second in all."""
    if dep.fs_path not in files:
        files[dep.fs_path] = load_path(dep.fs_path, dep.fs) if dep.exists else {}
    value = files[dep.fs_path]
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _sorted(stages: Mapping[str, Stage]) -> dict[str, Stage]:
    done: dict[str, Stage] = {}

    def visit(name: str) -> None:
        if name not in done:
            for upstream in stages[name].upstream:
                visit(upstream)
            done[name] = stages[name]

    for name in stages:
        visit(name)
    return done


def _with_ops(stages: Mapping[str, Stage]) -> dict[str, Stage]:
    """`a-b` and `a.b` would both be step `a_b`: where two stages collide, both get a digest of their own name.

    A step may not be called as a job is either, and jobs are called as groups are: `report` is step `report_stage`.
    """
    jobs = {"everything", "experiment", "smoke", *(stage.group for stage in stages.values())}
    plain = {name: re.sub(r"\W", "_", name, flags=re.ASCII) for name in stages}
    plain = {name: f"{op}_stage" if op in jobs else op for name, op in plain.items()}
    count = Counter(plain.values())
    return {
        name: replace(stage, op=plain[name] if count[plain[name]] == 1 else f"{plain[name]}_{digest(name)[:8]}")
        for name, stage in stages.items()
    }


def overlap(one: str, other: str) -> bool:
    a, b = Path(one), Path(other)
    return a.is_relative_to(b) or b.is_relative_to(a)


def digest(value: Any) -> str:
    return hashlib.md5(json.dumps(value, sort_keys=True, default=str).encode(), usedforsecurity=False).hexdigest()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
