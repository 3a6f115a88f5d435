"""Start a stage: `python -m pipelines.<verb> <name>` reads its row of params.yaml and opens an MLflow run.

With `processes: n` in the row, the command starts itself n times (`launch`).
"""

import ctypes
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from inspect import getdoc
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import yaml

from pipelines import freeze_gc
from pipelines.runtime import intact, launch, store, track
from pipelines.runtime.errors import BadInput, cut
from pipelines.runtime.files import say, stamp, unwritable
from pipelines.study import params
from pipelines.study.keys import usage
from pipelines.study.reading import Loader
from pipelines.study.row import maker

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def main(function: Callable[..., None]) -> None:
    """Run a verb's `function(name, row, study, run)` for the row on the command line.

    It names the row as `<row>`, or as DVC does, `<verb>@<row>`. Bad input ends with one line on stderr and
    exit code 2.
    """
    sys.stderr = sys.stderr or StringIO()  # None if it was closed
    _end_with_dvc()
    try:
        _run(function)
        say("", end="")  # flush what was printed: a full disk raises here
    except BadInput as error:
        _refuse(function.__name__, cut(error, 2000))  # a name of a study may hold a newline
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if reason := unwritable(error):
            _refuse(function.__name__, f"{getattr(error, 'filename', None) or 'a file'}: {reason}")
        if launch.report(traceback.format_exc()):
            sys.exit(1)
        raise


def _run(function: Callable[..., None]) -> None:
    verb = function.__name__
    table = params.Study.table_by_verb().get(verb)
    if {"-h", "--help"} & set(sys.argv):
        return _help(function, table)
    study, params_before = params.load(), intact.PARAMS.read_bytes()
    name, row = _row(verb, table, study)
    if os.environ.get("RANK", "0") == "0":
        store.sweep_drafts(verb, name)
    processes = getattr(row, "processes", 1)
    if processes > 1 and "WORLD_SIZE" not in os.environ:  # which `launch` and torchrun set
        launch.launch(processes)
        return
    freeze_gc()
    before = _inputs(verb, row)
    with track.run(verb, name, row, study.study, study.named(row) if row else {}) as run:
        function(name, row, study, run)
        now = _inputs(verb, row)
        changed = [path for path in {**before, **now} if now.get(path) != before.get(path)]
        if "DVC_STAGE" in os.environ and _edited(params_before, table, name, study):
            changed.append(str(intact.PARAMS))
        # DVC records the inputs that it finds when a stage ends: changed ones, which this run did not read
        if changed:
            kept = f"`dvc commit -f {os.environ['DVC_STAGE']}` keeps what it wrote"
            raise BadInput(f"{', '.join(changed)} changed while this ran: `dvc repro` runs it again, {kept}")


def _row(verb: str, table: str | None, study: params.Study) -> tuple[str, Any]:
    """Return name and row of the command line; the verb and None if it reads the whole study."""
    if not table:
        if len(sys.argv) > 1:
            raise BadInput(f"usage: python -m pipelines.{verb}, without arguments; or --help")
        return verb, None
    if len(sys.argv) != 2:
        raise BadInput(f"usage: python -m pipelines.{verb} <row of {table} in params.yaml>; or --help")
    name = re.sub(rf"^(.*:)?{verb}@", "", sys.argv[1])  # dvc in another folder says ../dvc.yaml:...
    return name, params.find(f"params.yaml: {table}", name, getattr(study, table))


def _help(function: Callable[..., None], table: str | None) -> None:
    """Print what a stage does, its rows, and their keys; if params.yaml is not valid, why, and no rows."""
    try:
        study, fault = params.load(), ""
    except BadInput as error:
        study, fault = params.Study(study="none"), str(error)
    say(f"{getdoc(sys.modules[function.__module__])}\n\n{usage(function.__name__, table, study, fault)}")


def _inputs(verb: str, row: Any) -> dict[str, Any]:
    """Return the inputs of a stage that no other stage writes: digests of its code, and stamps of the user's
    files. Nothing unless DVC started the stage.
    """
    if "DVC_STAGE" not in os.environ:
        return {}
    found: dict[str, Any] = {}
    # 1. Code, such as pipelines/aligners/${item.aligner}
    entry = yaml.load(Path("dvc.yaml").read_bytes(), Loader)["stages"][verb]
    for dep in entry.get("do", entry)["deps"]:
        if dep.startswith("pipelines/"):
            path = re.sub(r"\$\{item\.(\w+)}", lambda key: getattr(row, key[1]), dep)
            if Path(path).exists():
                found[path] = store.code_digest(path.removeprefix("pipelines/"))
    # 2. Files and folders of the user
    for watched in row.watched().values() if row else ():
        if not watched.startswith("pipelines/") and not maker(watched).table:
            path = Path(watched)
            files = sorted(file for file in [path, *path.rglob("*")] if file.is_file())
            found[str(path)] = [(file, stamp(file)) for file in files]
    return found


def _edited(before: bytes, table: str | None, name: str, study: params.Study) -> bool:
    """Return whether params.yaml has other settings now than a stage read, or is not valid."""
    if intact.PARAMS.read_bytes() == before:
        return False
    try:
        return _settings(table, name, params.load()) != _settings(table, name, study)
    except BadInput:
        return True


def _settings(table: str | None, name: str, study: params.Study) -> Any:
    """Return all settings that affect a stage: its row, the rows that the row names, and the rows whose
    outputs it reads. Without a table: the whole study.
    """
    if not table:
        return study
    if row := getattr(study, table).get(name):
        makers = map(maker, row.watched().values())
        return row, study.named(row), [study.table(made.table).get(made.row) for made in makers if made.table]
    return None


def _refuse(verb: str, reason: str) -> NoReturn:
    if not launch.report(reason):
        names = (argument.rpartition("@")[2] for argument in sys.argv[1:])
        shown = (name if name.isprintable() else repr(name) for name in names)
        print(f"{' '.join([verb, *shown])}: {reason}", file=sys.stderr)
    sys.exit(launch.BAD_INPUT)


def _end_with_dvc() -> None:
    """If DVC started this process, let Linux interrupt it when that DVC dies.

    A stage that was started by hand may outlive its shell.
    """
    if sys.platform == "linux" and "DVC_STAGE" in os.environ:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
