"""validate: say whether a study is valid."""

from argparse import Namespace
from pathlib import Path

from pipelines.runtime.errors import BadInput
from pipelines.study import params
from pipelines.study.expand import expand
from pipelines.study.reading import read
from pipelines.tool import Answer


def run(args: Namespace) -> Answer:
    """Check a study, and count the rows of its tables."""
    path = params.studies().get(str(args.study)) or args.study
    study = params.load(path)
    if Path("dvc.yaml").is_file():  # paths in a study are of its checkout
        params.check_files(study, path)
    if path.name == "params.yaml":
        check_full(path)
    rows = {table: len(rows) for table, rows in study if isinstance(rows, dict)}
    said = ", ".join(f"{count} {table}" for table, count in rows.items() if count)
    return Answer([f"{study.study}: valid: {said}"], {"study": study.study, "rows": rows})


def check_full(path: Path) -> None:
    """Raise BadInput if params.yaml lacks a table or a key that a file of studies/ may: DVC needs all."""
    written = read(path)
    for table, rows in expand(written).items():
        if table not in written:
            raise BadInput(f"{path}: lacks table {table}: `make study STUDY={path}` fills it in")
        for name, row in rows.items() if isinstance(rows, dict) else ():
            if lacking := row.keys() - written.get(table, {}).get(name, {}).keys():
                keys = ", ".join(sorted(lacking))
                raise BadInput(
                    f"{path}: {table}.{name} lacks {keys}: `make study STUDY={path}` fills them in"
                )
