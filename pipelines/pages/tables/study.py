"""Published numbers beside measured ones, and how to run a row again."""

from typing import Any

from pipelines.pages.tables import block, escaped, table
from pipelines.runtime import store
from pipelines.runtime.again import again
from pipelines.study import Published
from pipelines.study.params import Study
from pipelines.study.row import nearest

PUBLISHED = """Published numbers are the papers' own. vec2vec ranks all translated vectors for each real
vector, by raw cosine. *Centred* ranks all real vectors for each translated one, by centred cosine, as the
tables above do."""
OTHER_DATA = "Do not compare these: each comes from other data or other encoders than the cell of this study."
AGAIN = """Each row above is a row of a table in params.yaml. The stage `verb@row` runs it, for example
`align@wasserstein`. `dvc repro -f -s verb@row` runs this stage alone. This command makes the whole page
again:"""


def published_table(study: Study) -> list[str]:
    """Return the papers' numbers beside ours, and apart from them those of other data or encoders."""
    beside = [published_cells(row) for row in study.published.values() if row.comparable]
    apart = [[*quoted(row), row.of or ""] for row in study.published.values() if not row.comparable]
    lines = []
    if beside:
        header = ["what", "PUBLISHED", "where", "measured here", "centred", "cell"]
        lines += ["", PUBLISHED, "", *table(header, beside)]
    if apart:
        header = ["what", "PUBLISHED", "where", "cell here, on other data"]
        lines += block("For orientation: other data", header, apart, OTHER_DATA, "")
    return ["## Published numbers", *lines] if lines else []


def published_cells(row: Published) -> list[str]:
    ours = cell_value(row.of) if row.of else None
    centred = cell_value(row.of.replace(".raw_", ".")) if row.of and ".raw_" in row.of else None
    here = missing(row.of) if ours is None else f"{ours:.4g}"
    return [*quoted(row), here, "" if centred is None else f"{centred:.4g}", row.of or ""]


def missing(cell: str | None) -> str:
    """Say why there is no number at `verb.row.measure`: the row has no results, or none of this name."""
    if cell is None:
        return "not measured"
    verb, row, measure = cell.split(".", 2)
    found = store.read_metrics(verb, [row]).get(row)
    return f"no measure {measure!r}{nearest(measure, store.flat(found, '.'))}" if found else "not measured"


def quoted(row: Published) -> list[str]:
    return [escaped(row.what), f"{row.value:g}", escaped(row.by)]


def cell_value(cell: str) -> float | None:
    """Return the number at `verb.row.measure`, or None if it was not measured."""
    verb, *keys = cell.split(".")
    value: Any = store.read_metrics(verb, keys[:1])
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, (int, float)) else None


def reproduce(study: Study) -> list[str]:
    """Say how to run the study, or one row, again."""
    return ["## How to reproduce this", "", AGAIN, "", "```sh", again(study.study), "```"]
