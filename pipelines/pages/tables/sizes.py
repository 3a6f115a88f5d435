"""How success depends on the number of vectors, and on the number of known pairs.

A curve joins rows that have one aligner, one setting and one pair of encoders, and differ in that number
alone.
"""

import re
from os.path import commonprefix
from statistics import median

from pipelines.pages.drawing import FOLDER, encoders
from pipelines.pages.pictures import success
from pipelines.pages.tables import block, section
from pipelines.runtime import store
from pipelines.study import Align, Evaluate
from pipelines.study.params import Study

LEAST, RIGHT = 3, 0.5  # numbers that make a curve; top-1 from which a fit counts as right
VECTORS, PAIRS = "unpaired vectors of the source", "known pairs"
LEGEND = f"""Seeds with a top-1 of at least {RIGHT} of all seeds, and the median top-1. Numbers are limits: a
side with fewer texts uses all of them."""
SECTIONS = ((VECTORS, "Vectors against success", "sizes"), (PAIRS, "What known pairs are worth", "pairs"))
Curve = dict[int, list[float]]  # number -> top-1 of every seed


def sizes_table(study: Study) -> list[str]:
    """Return a table and a picture of success against vectors, and against known pairs."""
    blocks = []
    for of, title, file in SECTIONS:
        if curves := sizes(study, of):
            columns = sorted({n for curve in curves.values() for n in curve})
            rows = [[label, *(cell(curve.get(n)) for n in columns)] for label, curve in curves.items()]
            panels: dict[str, dict[str, Curve]] = {}
            for label, curve in curves.items():
                line, _, encoders_of = label.rpartition(", ")
                panels.setdefault(encoders_of, {})[line] = curve
            success(FOLDER / f"{file}.png", panels, of)
            blocks += block(title, ["", *(f"{n:,}" for n in columns)], rows, f"By {of}.", "")
            blocks += ["", f"![top-1 of every seed against {of}](pictures/{file}.png)"]
    return section("Sizes", LEGEND, blocks)


def cell(top1: list[float] | None) -> str:
    """Return `2/3, 0.785`: seeds that are right, and the median."""
    if not top1:
        return ""
    return f"{sum(score >= RIGHT for score in top1)}/{len(top1)}, {median(top1):.3f}"


def sizes(study: Study, of: str) -> dict[str, Curve]:
    """Return each curve with at least LEAST numbers, by `<common beginning of the rows' names>: <aligner>,
    <encoders>`.
    """
    curves: dict[tuple, Curve] = {}
    names: dict[tuple, list[str]] = {}
    fits = study.translators()
    for name, row in study.evaluate.items():
        fit, scores = fits[row.translator], store.seeds_path(name)
        n = number(fit, of)
        if n is not None and scores.exists():  # a measured row that has the number
            key = shared(study, row, fit, of)
            names.setdefault(key, []).append(name)
            curves.setdefault(key, {}).setdefault(n, []).extend(store.read_csv(scores)["top1"])
    found: dict[str, Curve] = {}
    for key, curve in curves.items():
        begins = re.sub(r"-\d*$", "", commonprefix(names[key]))  # noqa: RUF071 - n-10 and n-100: n
        label = f"{begins}: {key[0]}, {key[1]}"
        if label in found:  # rows of other settings may begin alike
            label = f"{names[key][0]}: {key[0]}, {key[1]}"
        if len(curve) >= LEAST:
            found[label] = dict(sorted(curve.items()))
    return found


def number(fit: Align, of: str) -> int | None:
    """Return how many source vectors or known pairs a fit uses at most.

    An oracle uses every vector as half of a pair.
    """
    oracle = fit.supervision == "oracle"
    if of == PAIRS:
        return fit.limits[0] if oracle else fit.pairs
    return None if oracle else fit.limits[0]


def shared(study: Study, row: Evaluate, fit: Align, of: str) -> tuple:
    """Return all that the rows of one curve have in common: the aligner and the encoders first."""
    oracle = fit.supervision == "oracle"
    joint, _, pair = row.translator.partition("/")
    return (
        f"{fit.aligner} (oracle)" if oracle else fit.aligner,
        " -> ".join(encoders(study, row)),
        row.model_dump_json(exclude={"translator", "pictures"}),
        (fit.source, fit.target, fit.halves, fit.splits, fit.restarts),
        str(fit.settings),
        None if oracle else str(fit.limit if of == PAIRS else fit.pairs),
        fit.limit[1] if isinstance(fit.limit, tuple) else None,
        str(study.align_jointly[joint].spaces) if pair else None,  # a joint fit of other spaces differs
    )


TABLES = (sizes_table,)
