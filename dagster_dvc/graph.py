"""Read the stage graph from dvc.yaml and params.yaml as DVC does, and the state of each stage from dvc.lock.

Nothing in this module runs a stage.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dvc.exceptions import DvcException
from dvc.lock import LockError
from dvc.repo import Repo
from dvc.stage import PipelineStage
from dvc.utils.serialize import load_path
from dvc.utils.strictyaml import YAMLValidationError
from dvc_data.hashfile.build import build
from dvc_data.hashfile.db import HashFileDB
from dvc_data.hashfile.state import StateNoop
from dvc_objects.fs.local import localfs

JOBS = ("everything", "experiment")  # all other jobs have the name of a group
PARSED = re.compile(r"failed to parse '([^']+)'")  # in DVC's messages about templates
SHELL = re.compile(r"[\s;&|<>()$`\\\"'*?\[\]{}#~!]|^-")  # special to a shell, or the start of an option
FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(FAST):
    """Read YAML 1.2, which DVC writes: PyYAML alone reads 1e-05 as a string and `no` as false.

    It is ten times as fast as DVC's own reader.
    """

    yaml_implicit_resolvers = {}


SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9]\d*)",
    "float": r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
for kind, pattern in SCALARS.items():
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"(?:{pattern})$"), None)


class GraphError(Exception):
    """One line, mostly from DVC, that says why dvc.yaml, params.yaml or dvc.lock cannot be read."""


@dataclass(frozen=True)
class Stage:
    """One stage of dvc.yaml. `train@large` is row `large` of `train`, a foreach or a matrix. Paths start at
    the root.
    """

    name: str
    cmd: str
    desc: str
    pool: str | None  # `meta: {pool: gpu}`
    upstream: tuple[str, ...]  # names of the stages whose outputs this one reads
    outs: tuple[str, ...]  # every output, metrics and plots among them
    metrics: tuple[str, ...]  # metrics of DVC, and outputs of `type: metrics`
    plots: tuple[str, ...]  # plots of DVC, and outputs of `type: table` or `picture`
    read: tuple[str, ...]  # the outputs that another stage reads
    sources: tuple[str, ...]  # dependencies that no stage makes: code, files of the user
    code_version: str  # digest of the command, the params of the stage and its sources
    prefix: str = ""  # begins the asset key, the group and the step
    op: str = ""  # the name of the step in Dagster: unique, of letters, digits and _ only

    @property
    def base(self) -> str:
        """Return the name in dvc.yaml."""
        return self.name.partition("@")[0]

    @property
    def group(self) -> str:
        return identifier(self.prefix, self.base)

    @property
    def row(self) -> str | None:
        return self.name.partition("@")[2] or None

    @property
    def key(self) -> tuple[str, ...]:
        """Return Dagster's asset key: ("train", "large"). It may hold `.` and `-`, but is no keyword."""
        parts = [
            re.sub(r"[^\w.-]", "_", part, flags=re.ASCII)
            for part in (self.prefix, self.base, self.row)
            if part
        ]
        return tuple(parts) if is_valid_name(identifier(*parts)) else (f"{parts[0]}_",)


@dataclass(frozen=True)
class Entry:
    """Hold the entry of one stage in dvc.lock."""

    raw: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """Return a digest of the whole entry: command, deps, params and outs."""
        return digest(self.raw)

    @property
    def outs(self) -> list[dict[str, Any]]:
        """Return the outputs, each with path, md5, size (bytes) and, for a folder, nfiles."""
        return self.raw.get("outs", [])

    @property
    def md5s(self) -> dict[str, str | None]:
        """Return {path: md5} of the outputs."""
        return {out["path"]: out.get("md5") for out in self.outs}

    @property
    def deps(self) -> dict[str, str | None]:
        """Return {path: md5} of what the stage read."""
        return {dep["path"]: dep.get("md5") for dep in self.raw.get("deps", ())}

    def code_version(self, stage: Stage) -> str:
        """Return `stage.code_version` at the time of this entry. If code changed since, the two differ."""
        params = {
            f"{file}:{name}": value
            for file, of in self.raw.get("params", {}).items()
            for name, value in of.items()
        }
        deps = self.deps
        return _code_version(
            self.raw.get("cmd", ""), params, {path: deps.get(path) for path in stage.sources}
        )

    def version(self, stage: Stage) -> str:
        """Return the md5 of the outputs that other stages read, or of all outputs if none is read. Dagster
        compares it.

        A metric that no stage reads, for example seconds, must not make downstream stages look stale.
        """
        outs = {path: md5 for path, md5 in self.md5s.items() if not stage.read or path in stage.read}
        md5s = list(outs.values())
        return str(md5s[0]) if len(md5s) == 1 else digest(outs)  # a stage may have no output


def read(root: Path, prefix: str = "") -> dict[str, Stage]:
    """Return every stage of root/dvc.yaml by name, upstream first.

    Tracked files (`dvc add`), remote dependencies and pipelines of other folders are left out. Raises
    GraphError if DVC cannot read the file, and for a row whose name a shell would interpret.
    """
    try:
        with Repo(str(root)) as repo:  # the root itself, or a folder above it
            stages, listed = _stages(repo, root, prefix)
    except (DvcException, OSError) as error:
        raise GraphError(_explained(root, error)) from None
    if not stages:
        raise GraphError(f"{root / 'dvc.yaml'}: there is no such file, or no stage in it")
    keys: dict[tuple[str, ...], str] = {}
    for stage in stages:
        if ":" in stage.base:
            raise GraphError(f"dvc.yaml: {stage.base!r}: `dvc repro` cannot run a stage with `:` in its name")
        if stage.row and SHELL.search(stage.row):  # a name is part of a command
            raise GraphError(f"dvc.yaml: {stage.base}: {stage.row!r} is no row name: a shell would read it")
        if (other := keys.setdefault(stage.key, stage.name)) != stage.name:
            raise GraphError(
                f"dvc.yaml: {other!r} and {stage.name!r} are the same name to Dagster: {'/'.join(stage.key)}"
            )
    return {
        stage.name: replace(stage, op=op, metrics=stage.metrics + _outside(stage, listed))
        for stage, op in zip(stages, _ops(stages), strict=True)
    }


def _stages(repo: Repo, root: Path, prefix: str) -> tuple[list[Stage], list[str]]:
    """Return the stages, upstream first, and the paths of the metrics that dvc.yaml lists for itself."""
    graph = _graph(repo)
    selected = {
        str(s.name): s
        for s in graph
        if isinstance(s, PipelineStage) and s.cmd and _same(s.path, root / "dvc.yaml")
    }
    if elsewhere := [name for name, s in selected.items() if not _same(s.wdir, root)]:
        raise GraphError(f"dvc.yaml: stage {elsewhere[0]!r} has a wdir: write paths from the root instead")
    needed = [path for s in selected.values() for path in _paths(d for d in s.deps if d not in s.params)]
    made = [path for s in selected.values() for path in _paths(s.outs)]
    sources = {
        path: md5(repo, root / path)
        for path in dict.fromkeys(needed)
        if not any(overlap(path, out) for out in made)
    }
    listed = [path for file in {s.dvcfile for s in selected.values()} for path in file.metrics]
    # By name, not by `addressing`: that is relative to the folder in which this process happens to be.
    names = {s: name for name, s in selected.items()}
    upstream = {
        name: tuple(sorted(names[d] for d in graph.successors(s) if d in names)) for s, name in names.items()
    }
    files: dict[str, Any] = {}
    stages = [
        _stage(selected[name], prefix, upstream[name], needed, sources, files)
        for name in TopologicalSorter(upstream).static_order()
    ]
    return stages, listed


def _graph(repo: Repo) -> Any:
    """Return DVC's graph. If dvc.lock is half written, read it again; wait for DVC's lock for 3 s at most."""
    try:
        return repo.index.graph
    except DvcException:
        with suppress(LockError), repo.lock:
            return repo.index.graph
        return repo.index.graph


def _same(one: str, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _paths(of: Iterable[Any]) -> list[str]:
    """Return the paths of dependencies or outputs that are local."""
    return [item.def_path for item in of if "://" not in item.def_path]


def lock(root: Path) -> dict[str, Entry]:
    """Return the entries of dvc.lock by stage name, none if there is no file. Raises GraphError if it is
    damaged.

    DVC writes dvc.lock in place, and half of it can be valid: hold `Repo.lock` while others may run DVC.
    """
    try:
        content = yaml.load((root / "dvc.lock").read_bytes(), Loader) or {}
        return {name: Entry(entry) for name, entry in content.get("stages", {}).items()}
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, AttributeError) as error:
        raise GraphError(f"dvc.lock: {one_line(error)}") from None


def md5(repo: Repo, path: str | Path, anew: bool = False) -> str | None:
    """Return the md5 that DVC would write for a file or folder now, None if it is missing.

    DVC remembers the md5 of an untouched file and trusts restored files. `anew` reads every byte.
    """
    full = os.path.abspath(path)
    if not os.path.exists(full):
        return None
    known = HashFileDB(localfs, repo.cache.local.path, state=StateNoop()) if anew else repo.cache.local
    ignored: Any = repo.dvcignore
    _, _, built = build(known, full, localfs, "md5", ignore=ignored, dry_run=True)
    return built.hash_info.value


def _stage(
    stage: Any,
    prefix: str,
    upstream: tuple[str, ...],
    needed: Iterable[str],
    sources: Mapping[str, str | None],
    files: dict[str, Any],
) -> Stage:
    outs = tuple(_paths(stage.outs))
    meta = stage.meta if isinstance(stage.meta, dict) else {}
    params = {f"{p.def_path}:{name}": value for p in stage.params for name, value in _values(p, files)}
    mine = {dep.def_path: sources[dep.def_path] for dep in stage.deps if dep.def_path in sources}
    return Stage(
        name=stage.name,
        cmd=_joined(stage.cmd),
        desc=stage.desc or "",
        pool="_".join(str(meta.get("pool") or "").split()) or None,
        upstream=upstream,
        outs=outs,
        metrics=tuple(out.def_path for out in stage.outs if out.metric or out.annot.type == "metrics"),
        plots=tuple(out.def_path for out in stage.outs if out.plot or out.annot.type in ("table", "picture")),
        read=tuple(o for o in outs if any(overlap(o, n) for n in needed)),
        sources=tuple(mine),
        code_version=_code_version(stage.cmd, params, mine),
        prefix=prefix,
    )


def _code_version(cmd: str | list[str], params: Mapping[str, Any], sources: Mapping[str, str | None]) -> str:
    return digest([_joined(cmd), params, sources])[:12]


def _joined(cmd: str | list[str]) -> str:
    return cmd if isinstance(cmd, str) else "\n".join(cmd)


def _values(dep: Any, files: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return (dotted) parameters with their values, or the whole file if the stage names none.

    `files` keeps parsed files: DVC's reader parses a file again for each stage, half a second in all.
    """
    if dep.fs_path not in files:
        files[dep.fs_path] = load_path(dep.fs_path, dep.fs) if dep.exists else {}
    content = files[dep.fs_path]
    return [(name, _value(content, name)) for name in dep.params] if dep.params else content.items()


def _value(content: Any, name: str) -> Any:
    """Return the value at a dotted name, None if it is not there."""
    try:
        for part in name.split("."):
            content = content[int(part) if isinstance(content, list) else part]
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return content


def _outside(stage: Stage, listed: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics of a stage that dvc.yaml lists outside of its stages, as DVCLive does."""
    among = [path for path in listed if path not in stage.metrics]
    return tuple(path for path in among if any(Path(path).is_relative_to(out) for out in stage.outs))


def _ops(stages: Iterable[Stage]) -> list[str]:
    """Return a name for each step. It differs from those of other steps and of jobs, and is no reserved word.

    The step of `report` is `report_stage`, and that of `a-b` beside `a.b` is `a_b_stage`.
    """
    taken = {identifier(s.prefix, job) for s in stages for job in JOBS} | {s.group for s in stages}
    ops = []
    for stage in stages:
        op = identifier(*stage.key)
        while op in taken or not is_valid_name(op):
            op += "_stage"
        taken.add(op)
        ops.append(op)
    return ops


def identifier(*parts: str) -> str:
    """Join the parts that are not empty. Steps, groups and jobs allow letters, digits and _ only."""
    return re.sub(r"\W", "_", "_".join(part for part in parts if part), flags=re.ASCII)


@cache
def is_valid_name(name: str) -> bool:
    """Return whether Dagster accepts a name for a step or a job."""
    try:
        dg.GraphDefinition(name=name)
    except dg.DagsterInvalidDefinitionError:
        return False
    return True


def overlap(one: str, other: str) -> bool:
    a, b = Path(one), Path(other)
    return a.is_relative_to(b) or b.is_relative_to(a)


def digest(value: Any) -> str:
    plain = json.loads(json.dumps(value, default=str))  # keys are texts: 1 and "a" cannot be sorted together
    return hashlib.md5(json.dumps(plain, sort_keys=True).encode(), usedforsecurity=False).hexdigest()


def _explained(root: Path, error: BaseException) -> str:
    """Return DVC's message in one line, with the line of dvc.yaml that is wrong."""
    cause = error.__cause__
    said = one_line(error)
    if isinstance(error, YAMLValidationError):
        said += f": {one_line(cause)}"
    if mark := getattr(cause, "problem_mark", None):
        return f"{said}: line {mark.line + 1}: {one_line(getattr(cause, 'problem', ''))}"
    keys = re.findall(r"\['(.*?)'\]", said) or [k for m in PARSED.findall(said) for k in m.split(".")]
    return f"{said} (line {line})" if keys and (line := _line(root / "dvc.yaml", keys)) else said


def _line(file: Path, keys: Iterable[str]) -> int:
    """Return the line of the last of nested keys that is there, counted from 1; 0 if none is."""
    node, line = yaml.compose(file.read_bytes(), FAST), 0
    for name in keys:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        for key, value in pairs:
            if key.value == name:
                node, line = value, key.start_mark.line + 1
                break
    return line


def one_line(error: object) -> str:
    return " ".join(str(error).split())
