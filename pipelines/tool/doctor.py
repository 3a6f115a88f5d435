"""doctor and ls: what is installed, and what there is to choose from."""

import ast
import os
import platform
import re
import shutil
from argparse import Namespace
from importlib import metadata
from pathlib import Path

import torch

import pipelines
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import params
from pipelines.study.reading import read
from pipelines.study.translation import aligner_names
from pipelines.tool import Answer
from pipelines.tool.encoders import cache, installed

PACKAGE = "universal-geometry"
ROOM = 2e9  # bytes of disk that encoders and drafts need


def run(args: Namespace) -> Answer:
    """Return versions, device, threads and free disk, and how to get what is missing."""
    extras = requirements()
    versions = {name: _version(name) for name in (PACKAGE, *extras.pop(""))}
    mends = [f"{name} is missing: pip install {name}" for name, found in versions.items() if not found]
    kept = next(folder for folder in cache("").parents if folder.is_dir())
    free = shutil.disk_usage(kept).free
    if free < ROOM:
        mends.append(f"less than {ROOM / 1e9:.0f} GB of disk are free below {kept}: remove some files")
    if not os.access(kept, os.W_OK):
        mends.append(f"{kept} cannot be written: name another folder in XDG_CACHE_HOME")
    absent = {}
    for extra, names in extras.items():
        if lacking := [name for name in names if not _version(name)]:
            absent[extra] = f"{', '.join(lacking)} (not installed: pip install '{PACKAGE}[{extra}]')"
    about = {
        "python": platform.python_version(),
        "device": str(resolve()),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads of torch": torch.get_num_threads(),
        "free disk, GB": round(free / 1e9, 1),
    }
    lines = [f"{name}: {value}" for name, value in (about | versions).items() if value is not None]
    lines += [f"optional: {line}" for line in absent.values()]
    lines += mends or ["all that the commands need is here"]
    data = about | {"versions": versions, "optional": absent, "missing": mends}
    return Answer(lines, data, code=1 if mends else 0)


def requirements() -> dict[str, list[str]]:
    """Return the packages that each extra needs, as the installed metadata lists them; "": always needed."""
    found: dict[str, list[str]] = {"": []}
    for line in metadata.requires(PACKAGE) or []:
        extra = re.search(r"extra == [\"'](.+?)[\"']", line)
        name = re.match(r"[\w.-]+", line)
        if name and name[0] != PACKAGE:
            found.setdefault(extra[1] if extra else "", []).append(name[0])
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def ls(args: Namespace) -> Answer:
    """List encoders, aligners and the studies of this folder, each with one line."""
    tables = {"encoders": installed, "aligners": aligners, "studies": studies}
    data = {name: table() for name, table in tables.items() if args.what in (None, name)}
    lines = []
    for name, rows in data.items():
        lines += [f"{name}:", *(f"  {row}: {about}" for row, about in rows.items())]
        lines += [] if rows else ["  none in this folder"]
    return Answer(lines, data)


def aligners() -> dict[str, str]:
    """Return each aligner with the first paragraph of its docstring. None of them is imported."""
    found = {}
    for name in aligner_names():
        text = Path(pipelines.__path__[0], "aligners", name, "__init__.py").read_text(encoding="utf-8")
        said = ast.get_docstring(ast.parse(text)) or ""
        found[name] = " ".join(said.split("\n\n")[0].split())
    return found


def studies() -> dict[str, str]:
    """Return the studies of the folder `studies` here, each with what it says about itself."""
    found = {}
    for name, path in params.studies().items():
        try:
            found[name] = str(read(path).get("about", ""))
        except BadInput as error:
            found[name] = str(error)
    return found
