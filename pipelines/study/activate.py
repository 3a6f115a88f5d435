"""Make a study the active one: write its full rows into params.yaml, in the form that DVC keeps.

`dvc exp run -S` reads params.yaml with ruamel.yaml and writes all of it again. The form here is that of
ruamel.yaml, so that such an edit changes one line.
"""

import hashlib
import io
import shutil
from itertools import count
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from pipelines.runtime import files
from pipelines.study import params
from pipelines.study.expand import expand
from pipelines.study.reading import read

HEADER = (
    "# Written by `make study`. Edit a file of studies/ and run it again. Or edit the rows here:\n"
    "# `make study STUDY=params.yaml` fills in what a new row leaves out.\n# digest: "
)


def activate(path: str | Path) -> Path | None:
    """Validate the study at `path` and write its full rows to params.yaml, in one atomic step.

    Return where the old file is kept if somebody had edited it: params.yaml.bak, .bak2, ... Raises BadInput.
    """
    params.check_files(params.load(path), path)
    to, kept = Path("params.yaml"), None
    if edited(to):
        backups = (to.with_name(f"{to.name}.bak{number if number > 1 else ''}") for number in count(1))
        kept = next(file for file in backups if not file.exists())
        with files.writing(kept):
            shutil.copyfile(to, kept)
    files.write_text(to, full_text(Path(path)))
    return kept


def full_text(path: Path) -> str:
    """Return a study with full rows as YAML. Every table is there: DVC refuses a missing one."""
    tables = {table: {} for table in params.Study.model_fields}
    body = _dumped(tables | {"about": path.stem} | expand(read(path)))
    return f"{HEADER}{_digest(body)}\n{body}"


def edited(path: Path) -> bool:
    """Return whether a file is there and is not as `activate` wrote it."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    digest, _, body = text.removeprefix(HEADER).partition("\n")
    return bool(text) and digest != _digest(body)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def _dumped(study: dict[str, Any]) -> str:
    """Return YAML as DVC writes it."""
    tables = {}
    for table, rows in study.items():
        if isinstance(rows, dict):
            rows = {name: {key: _one_line(value) for key, value in row.items()} for name, row in rows.items()}
        tables[table] = rows
    text = io.StringIO()
    YAML().dump(tables, text)
    return text.getvalue()


def _one_line(value: Any) -> Any:
    """Mark a mapping to be written as {...}. Lists keep a line for each value: DVC writes them so."""
    if not isinstance(value, dict):
        return value
    flow = CommentedMap(value)
    flow.fa.set_flow_style()
    return flow
