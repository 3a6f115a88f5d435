"""doctor: what is installed, and what mends what is missing."""

from __future__ import annotations

import platform
import re
from argparse import Namespace
from importlib import metadata

from pipelines.runtime.device import resolve
from pipelines.tool import Answer

PACKAGE = "universal-geometry"


def run(args: Namespace) -> Answer:
    """Return versions and the device, and for what is missing the command that installs it."""
    extras = requirements()
    versions = {name: _version(name) for name in (PACKAGE, *extras.pop(""))}
    mends = [f"{name} is missing: pip install {name}" for name, found in versions.items() if not found]
    absent = {}
    for extra, names in extras.items():
        if lacking := [name for name in names if not _version(name)]:
            absent[extra] = f"{', '.join(lacking)} (not installed: pip install '{PACKAGE}[{extra}]')"
    about = {"python": platform.python_version(), "device": str(resolve())}
    lines = [f"{name}: {value}" for name, value in (about | versions).items() if value]
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
