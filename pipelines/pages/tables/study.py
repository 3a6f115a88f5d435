"""Published numbers beside measured ones, and how to run a row again."""

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
    """Return a published number, ours, the centred one if ours is raw, and its cell; or why there is none."""
    here, centred = "not measured", ""
    if row.of:
        verb, name, measure = row.of.split(".", 2)
        metrics = store.flat(store.read_metrics(verb, [name]).get(name, {}), ".")
        found = {key: f"{value:.4g}" for key, value in metrics.items() if isinstance(value, (int, float))}
        if metrics:
            here = found.get(measure) or f"no measure {measure!r}{nearest(measure, found)}"
        if "raw_" in measure:
            centred = found.get(measure.replace("raw_", ""), "")
    return [*quoted(row), here, centred, row.of or ""]


def quoted(row: Published) -> list[str]:
    return [escaped(row.what), f"{row.value:g}", escaped(row.by)]


def reproduce(study: Study) -> list[str]:
    """Say how to run the study, or one row, again."""
    return ["## How to reproduce this", "", AGAIN, "", "```sh", again(study.study), "```"]


TABLES = (published_table, reproduce)
