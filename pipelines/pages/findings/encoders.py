"""Findings about encoders: what two share, what training changed, point sets beside single vectors."""

from __future__ import annotations

from typing import Any

from pipelines.measures.geometry import NEIGHBOURS
from pipelines.pages.drawing import picture_path
from pipelines.pages.findings.finding import Finding, finding, of_corpus, seeds_of
from pipelines.pages.tables import measured, percent
from pipelines.pages.tables.encoders import geometry_title, start, trained_as
from pipelines.pages.tables.images import head_of, image_text_title
from pipelines.study.params import Study

SHARED = f"{{pair}} share {{share}} of a text's {NEIGHBOURS} nearest texts."
SHARED_HOW = "This is the mean over {texts:,} texts of {corpus}; chance is {chance}."
SHARED_LEAST = (
    "It is the most of {count} pairs of encoders; the least is {least_share}, {least_pair} on {least_corpus}."
)

TRAINED = (
    "SimCSE on {corpus} takes the Spearman correlation of {name} from {before:.1f} ({start}) to {dev:.1f}."
)
TRAINED_HOW = "This is times 100, on the dev pairs of {pairs_of}, which also chose the step (1 seed)."
TESTED = "On {pairs:,} other pairs it is {test:.1f}."

CLASSIFIED = "Zero-shot accuracy on images of {corpus} is {scores}."
CLASSIFIED_BY = "{share} ± {error:.0f} with {kind} ({name}, {dim}-d, {seeds})"
CLASSIFIED_HOW = (
    "The encoders of images and captions were trained here from scratch; ± is the standard error over images."
)
KINDS = {"points": "weighted point sets", "vector": "single vectors, as in CLIP"}


def geometry(study: Study) -> Finding | None:
    """The pair of encoders that shares most neighbours, and the pair that shares least."""
    every = measured(study, "geometry")
    pairs = [
        (numbers["overlap"], pair.replace(":", " and "), name)
        for name, (_, metrics) in every.items()
        for pair, numbers in metrics.items()
        if isinstance(numbers, dict)
    ]
    if not pairs:
        return None
    (most, pair, name), (least, least_pair, least_name) = max(pairs), min(pairs)
    row, metrics = every[name]
    slots = {
        "pair": pair,
        "share": percent(most),
        "texts": metrics["texts"],
        "corpus": of_corpus(study, row.corpus),
        "chance": percent(metrics["chance"]),
        "count": len(pairs),
        "least_pair": least_pair,
        "least_share": percent(least),
        "least_corpus": of_corpus(study, every[least_name][0].corpus),
    }
    templates = [SHARED, SHARED_HOW, SHARED_LEAST] if len(pairs) > 1 else [SHARED, SHARED_HOW]
    heading = geometry_title(study, row, metrics["texts"])
    return finding(templates, slots, picture_path("geometry", name, "neighbours"), heading)


def training(study: Study) -> Finding | None:
    """An encoder before and after training here: the best on test pairs, else on dev pairs."""
    trained = {n: (row, metrics) for n, (row, metrics) in measured(study, "finetune").items() if row.steps}
    if not trained:
        return None
    tests = {name: metrics for name in trained if (metrics := test_metrics(study, name))}
    if tests:
        name = max(tests, key=lambda n: tests[n]["spearman"])
    else:
        name = max(trained, key=lambda n: trained[n][1]["dev"]["spearman"])
    row, point = trained[name]
    templates = [TRAINED, TRAINED_HOW, *([TESTED] if tests else [])]
    slots = {
        "name": name,
        "start": start(row),
        "corpus": of_corpus(study, row.corpus),
        "pairs_of": of_corpus(study, row.dev),
        "before": point["before"]["spearman"],
        "dev": point["dev"]["spearman"],
    }
    if tests:
        slots |= {"pairs": tests[name]["pairs"], "test": tests[name]["spearman"]}
    return finding(templates, slots, picture_path("finetune", name, "curve"), "Trained here")


def test_metrics(study: Study, name: str) -> dict[str, Any] | None:
    """Return the metrics of an encoder trained here on pairs of its dev corpus that are not the dev split."""
    for row, metrics in measured(study, "similarity").values():
        encoder = study.encoders[row.encoder]
        own_pooling = row.pooling is None and encoder.pooling is None and encoder.layer is None
        of_dev_corpus = row.corpus == study.finetune[name].dev and row.split != "dev"
        if trained_as(study, row.encoder) == name and own_pooling and of_dev_corpus:
            return metrics
    return None


def image_text(study: Study) -> Finding | None:
    """Point sets beside single vectors, at the largest dimension that both have, else the first of each."""
    every = {n: row for n, row in measured(study, "evaluate_image_text").items() if "zero_shot" in row[1]}
    if not every:
        return None
    first, (first_row, first_metrics) = next(iter(every.items()))
    names: dict[str, dict[int, str]] = {kind: {} for kind in KINDS}
    for name, (row, _) in every.items():
        if row.corpus == first_row.corpus:
            head = head_of(study, row)
            names[head.kind].setdefault(head.dim, name)
    both = names["points"].keys() & names["vector"].keys()
    scores = []
    for kind, by_dim in names.items():
        if by_dim:
            dim = max(both) if both else next(iter(by_dim))
            metrics = every[by_dim[dim]][1]
            slots = {"share": percent(metrics["zero_shot"]), "error": 100 * metrics["zero_shot_error"]}
            slots |= {
                "kind": KINDS[kind],
                "name": by_dim[dim],
                "dim": dim,
                "seeds": seeds_of(int(metrics["seeds"])),
            }
            scores.append(CLASSIFIED_BY.format(**slots))
    slots = {"corpus": of_corpus(study, first_row.corpus), "scores": " and ".join(scores)}
    heading = image_text_title(study, first_row.corpus, first_metrics["test"])
    picture = picture_path("evaluate_image_text", first, "zero-shot")
    return finding([CLASSIFIED, CLASSIFIED_HOW], slots, picture, heading)
