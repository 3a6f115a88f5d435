"""How many vectors a translator needs: rows of one aligner, one setting and one pair of encoders that differ in `limit` alone."""

from __future__ import annotations

from os.path import commonprefix

import polars as pl

from pipelines.pages.drawing import FOLDER, encoders
from pipelines.pages.pictures import success
from pipelines.pages.tables import table
from pipelines.runtime import store
from pipelines.study import params

LEAST, RIGHT = 3, 0.5  # sizes that make a curve; top-1 from which a fit counts as right


def sizes(study: params.Study) -> dict[str, dict[int, list[float]]]:
    """`what the rows' names begin with, aligner, source -> target` -> vectors a side -> top-1 of every seed; of curves with
    enough sizes."""
    curves: dict[tuple[str, ...], dict[int, list[float]]] = {}
    names: dict[tuple[str, ...], list[str]] = {}
    fits = study.translators()
    for name, row in study.evaluate.items():
        fit = fits[row.translator]
        if isinstance(fit.limit, int) and store.seeds_path(name).exists():
            same = (fit.aligner, " -> ".join(encoders(study, row)), row.source, fit.source,
                    *map(str, (row.split, fit.settings, fit.pairs)))  # fmt: skip
            names.setdefault(same, []).append(name)
            curves.setdefault(same, {}).setdefault(fit.limit, []).extend(store.read_csv(store.seeds_path(name))["top1"])
    enough = {same: dict(sorted(curve.items())) for same, curve in curves.items() if len(curve) >= LEAST}
    return {f"{commonprefix(names[same]).rstrip('-')}: {same[0]}, {same[1]}": curve for same, curve in enough.items()}  # noqa: RUF071


def sizes_table(study: params.Study) -> list[str]:
    """A table and a picture of texts against success, where a study has such rows."""
    curves = sizes(study)
    if not curves:
        return []
    columns = sorted({n for curve in curves.values() for n in curve})
    rows = [[label, *(told(curve[n]) if n in curve else "" for n in columns)] for label, curve in curves.items()]
    success(FOLDER / "sizes.png", curves)
    legend = f"Of how many seeds the top-1 is at least {RIGHT}, and the median top-1, by unpaired vectors a side."
    lines = ["", "### Vectors against success", "", legend, "", *table(["", *(f"{n:,}" for n in columns)], rows)]
    return [*lines, "", "![top-1 of every seed against vectors a side](pictures/sizes.png)"]


def told(top1: list[float]) -> str:
    """`2/3, .785`"""
    return f"{sum(score >= RIGHT for score in top1)}/{len(top1)}, {pl.Series(top1).median():.3f}"
