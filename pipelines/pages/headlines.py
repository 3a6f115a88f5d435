"""Headline numbers: a few for each row that has results, in report/metrics/<verb>/<row>.json. DVC's tables
show them.

DVC's tables have a column for each name, so names are few and mean the same in every row. Four decimals keep
differences readable. A measure with `headline=True` is shown under its own name; the others are:

floor, ceiling   of evaluate: the first headline measure of a naive aligner, of an oracle
verdict          of evaluate: mean score of the translator's seeds, which needs no pairs
label_leak       of attributes: share of texts with a right label, less the share of the commonest labels
fact_leak        of invert: share of private facts recovered, less the share from vectors of other texts
accuracy         of transfer: mean over tasks, with the encoder's own pooling
overlap          of geometry: shared nearest texts, mean over pairs of encoders
"""

import json
from collections.abc import Callable
from typing import Any

from pipelines.measures import Measure, image_text, retrieval, similarity, translation
from pipelines.pages.tables import measured
from pipelines.pages.tables.leakage import facts_above_floor, labels_above_floor
from pipelines.runtime import store
from pipelines.runtime.files import write_text
from pipelines.study import Evaluate
from pipelines.study.params import Study

FOLDER = store.REPORT / "metrics"
BOUNDS = {"naive": "floor", "oracle": "ceiling"}
Numbers = dict[str, float]


def write(study: Study) -> None:
    """Write a file for each row of the study that has a headline number."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for verb, pick in HEADLINES.items():
        for name, (row, metrics) in measured(study, verb).items():
            if numbers := pick(metrics, row, study):
                rounded = {key: round(value, 4) for key, value in numbers.items()}
                write_text(FOLDER / verb / f"{name}.json", json.dumps(rounded, indent=2) + "\n")


def headlines(measures: list[Measure], metrics: dict[str, Any]) -> Numbers:
    """Return the headline measures that were measured."""
    return {m.name: metrics[m.name] for m in measures if m.headline and m.name in metrics}


def _evaluate(metrics: dict[str, Any], row: Evaluate, study: Study) -> Numbers:
    """Return the floor of a naive translator, or the ceiling of an oracle. Of others, return the headlines,
    and the verdict if it is about the corpus that was measured.
    """
    numbers = headlines([*translation.MEASURES, *retrieval.MEASURES], metrics)
    fit, corpus = study.translators()[row.translator], study.spaces()[row.source].corpus
    if bound := BOUNDS.get(fit.supervision):
        return {bound: next(iter(numbers.values()))}
    judged = store.alignments(study).get(row.translator, {}) if study.corpora_of(fit) == [corpus] else {}
    if "verdict" in judged:
        numbers["verdict"] = judged["verdict"]
    return numbers


def _invert(metrics: dict[str, Any], row: Any, study: Study) -> Numbers:
    leak = facts_above_floor(metrics)
    return {"fact_leak": leak.value} if leak else {}


def _geometry(metrics: dict[str, Any], row: Any, study: Study) -> Numbers:
    shared = [pair["overlap"] for pair in metrics.values() if isinstance(pair, dict)]
    return {"overlap": sum(shared) / len(shared)}


HEADLINES: dict[str, Callable[[dict[str, Any], Any, Study], Numbers]] = {
    "evaluate": _evaluate,
    "attributes": lambda metrics, row, study: {
        "label_leak": labels_above_floor(metrics, row.wordings[0], row.k[0]).value
    },
    "invert": _invert,
    "finetune": lambda metrics, row, study: headlines(similarity.MEASURES, metrics["dev"]),
    "similarity": lambda metrics, row, study: headlines(similarity.MEASURES, metrics),
    "transfer": lambda metrics, row, study: {"accuracy": metrics["own"]["average"]["accuracy"]},
    "geometry": _geometry,
    "evaluate_image_text": lambda metrics, row, study: headlines(image_text.MEASURES, metrics),
}
