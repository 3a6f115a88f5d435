"""Headline numbers, one or two for each row that measured something, in report/metrics/<verb>/<row>.json: DVC's own tables.

Those have a column for each name, and name a column's file where two files have the name: names are few and short, and mean the
same in every row; four decimals, so that a difference is one. Larger is better, of a leak for the attacker.

top1               of evaluate, aligners without pairs or with few: held-out texts found again at rank 1
floor, ceiling     of evaluate, the same of the naive and of ORACLES
verdict            of evaluate: the mean score of the translator's seeds, which no pair goes into
label_leak         of attributes: texts with a right label among the first k, above the share of the commonest labels
fact_leak          of invert: private facts in corrected texts, above the share that comes back from others' vectors
spearman           x 100, of similarity; of finetune on dev
overlap            of geometry: nearest texts that two encoders share, mean over pairs of encoders
zero_shot          of evaluate_image_text: pictures named right
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pipelines.pages.tables.leakage import facts_above_floor, labels_above_floor
from pipelines.runtime import store
from pipelines.study import Attributes, Evaluate, params

FOLDER = store.REPORT / "metrics"
Numbers = dict[str, float]


def write(study: params.Study) -> None:
    """A file for each row of the study that has such a number."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for verb, pick in HEADLINES.items():
        results = store.read_metrics(verb)
        for name, row in getattr(study, verb).items():
            if name in results and (numbers := pick(results[name], row, study)):
                with store.atomic(FOLDER / verb / f"{name}.json") as draft:
                    draft.write_text(
                        json.dumps({k: round(v, 4) for k, v in numbers.items()}, indent=2) + "\n"
                    )


def _evaluate(metrics: dict[str, Any], row: Evaluate, study: params.Study) -> Numbers:
    """The verdict where it is about the corpus measured on."""
    spaces, fit = study.spaces(), study.translators()[row.translator]
    corpora = {spaces[space].corpus for space in (fit.source, fit.target, row.source)}
    judged = store.verdicts().get(row.translator, {}) if len(corpora) == 1 else {}
    top1 = {"naive": "floor", "oracle": "ceiling"}.get(fit.supervision, "top1")
    return {top1: metrics["top1"]} | ({"verdict": judged["verdict"]} if "verdict" in judged else {})


def _attributes(metrics: dict[str, Any], row: Attributes, study: params.Study) -> Numbers:
    return {"label_leak": labels_above_floor(metrics, row.wordings[0], row.k[0]).value}


def _invert(metrics: dict[str, Any], row: Any, study: params.Study) -> Numbers:
    leak = facts_above_floor(metrics, "corrected")
    return {"fact_leak": leak.value} if leak else {}


def _geometry(metrics: dict[str, Any], row: Any, study: params.Study) -> Numbers:
    shared = [numbers["overlap"] for numbers in metrics.values() if isinstance(numbers, dict)]
    return {"overlap": sum(shared) / len(shared)} if shared else {}


HEADLINES: dict[str, Callable[[dict[str, Any], Any, params.Study], Numbers]] = {
    "evaluate": _evaluate,
    "attributes": _attributes,
    "invert": _invert,
    "finetune": lambda metrics, row, study: {"spearman": metrics["dev"]["spearman"]},
    "similarity": lambda metrics, row, study: {"spearman": metrics["spearman"]},
    "geometry": _geometry,
    "evaluate_image_text": lambda metrics, row, study: (
        {"zero_shot": metrics["zero_shot"]} if "zero_shot" in metrics else {}
    ),
}
