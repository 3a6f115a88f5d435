"""How many vectors a translator needs, and what known pairs are worth: rows of one aligner, one setting and one pair of encoders
that differ in that number alone."""

from __future__ import annotations

from os.path import commonprefix

import polars as pl

from pipelines.pages.drawing import FOLDER, encoders
from pipelines.pages.pictures import success
from pipelines.pages.tables import table
from pipelines.runtime import store
from pipelines.study import Align, params

LEAST, RIGHT = 3, 0.5  # numbers that make a curve; top-1 from which a fit counts as right
VECTORS, PAIRS = "unpaired vectors of the source", "known pairs"


def number(fit: Align, of: str) -> int | None:
    """How many vectors of the source or known pairs a fit has had; of an oracle, every vector is half of a pair."""
    if fit.supervision == "oracle":
        return fit.limits[0] if of == PAIRS else None
    return fit.pairs if of == PAIRS else fit.limits[0]


def sizes(study: params.Study, of: str) -> dict[str, dict[int, list[float]]]:
    """`what the rows' names begin with: aligner, source -> target` -> number -> top-1 of every seed; of curves with enough
    numbers."""
    curves: dict[tuple[str, ...], dict[int, list[float]]] = {}
    names: dict[tuple[str, ...], list[str]] = {}
    fits = study.translators()
    for name, row in study.evaluate.items():
        fit = fits[row.translator]
        n = number(fit, of)
        if n is not None and store.seeds_path(name).exists():
            other = (fit.limit if of == PAIRS else fit.pairs) if fit.supervision != "oracle" else None
            more = (
                fit.limit[1] if isinstance(fit.limit, tuple) else None
            )  # vectors of the target where they are not as many
            joint, _, pair = row.translator.partition("/")
            spaces = (
                study.align_jointly[joint].spaces if pair else None
            )  # one with more encoders is another aligner
            same = (fit.aligner + " (oracle)" * (fit.supervision == "oracle"), " -> ".join(encoders(study, row)), row.source,
                    fit.source, *map(str, (row.split, fit.settings, other, more, spaces)))  # fmt: skip
            names.setdefault(same, []).append(name)
            curves.setdefault(same, {}).setdefault(n, []).extend(
                store.read_csv(store.seeds_path(name))["top1"]
            )
    enough = {same: dict(sorted(curve.items())) for same, curve in curves.items() if len(curve) >= LEAST}
    begin = {same: commonprefix(names[same]).rstrip("-") for same in enough}  # noqa: RUF071
    return {f"{begin[same]}: {same[0]}, {same[1]}": curve for same, curve in enough.items()}


def sizes_table(study: params.Study) -> list[str]:
    """A table and a picture of success against vectors, and one against known pairs, where a study has such rows."""
    lines = []
    for of, title, file in (
        (VECTORS, "Vectors against success", "sizes"),
        (PAIRS, "What known pairs are worth", "pairs"),
    ):
        if curves := sizes(study, of):
            columns = sorted({n for curve in curves.values() for n in curve})
            rows = [
                [label, *(told(curve[n]) if n in curve else "" for n in columns)]
                for label, curve in curves.items()
            ]
            panels: dict[str, dict[str, dict[int, list[float]]]] = {}
            for label, curve in curves.items():
                line, _, encoders_of = label.rpartition(", ")
                panels.setdefault(encoders_of, {})[line] = curve
            success(FOLDER / f"{file}.png", panels, of)
            legend = f"Of how many seeds the top-1 is at least {RIGHT}, and the median top-1, by {of}."
            lines += ["", f"### {title}", "", legend, "", *table(["", *(f"{n:,}" for n in columns)], rows)]
            lines += ["", f"![top-1 of every seed against {of}](pictures/{file}.png)"]
    return lines


def told(top1: list[float]) -> str:
    """`2/3, .785`"""
    return f"{sum(score >= RIGHT for score in top1)}/{len(top1)}, {pl.Series(top1).median():.3f}"
