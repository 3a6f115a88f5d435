"""Findings about encoders: what two share, what training changed, point sets beside single vectors."""

import math
from typing import Any

from pipelines.measures.geometry import NEIGHBOURS
from pipelines.measures.intervals import Z
from pipelines.pages.drawing import picture_path
from pipelines.pages.findings.finding import Finding, finding, of_corpus, seeds_of
from pipelines.pages.tables import measured, percent
from pipelines.pages.tables.encoders import geometry_title, start
from pipelines.pages.tables.images import head_of, image_text_title
from pipelines.study.params import Study
from pipelines.study.row import maker

KINDS = {"points": "weighted point sets", "vector": "single vectors, as in CLIP"}


def geometry(study: Study) -> Finding | None:
    """Name the pair of encoders that shares most neighbours above chance, and the one that shares least.

    Rows whose texts mostly repeat, as names of classes do, are left out: their neighbours are ties.
    """
    every = measured(study, "geometry")
    every = {n: (row, m) for n, (row, m) in every.items() if 2 * m["repeated"] <= m["texts"]}
    pairs = [
        (numbers["overlap"] - metrics["chance"], numbers["overlap"], pair.replace(":", " and "), name)
        for name, (_, metrics) in every.items()
        for pair, numbers in metrics.items()
        if isinstance(numbers, dict)
    ]
    if not pairs:
        return None
    (_, most, pair, name), (_, least, least_pair, least_name) = max(pairs), min(pairs)
    row, metrics = every[name]
    sentences = [
        f"{pair} share {percent(most)} of a text's {NEIGHBOURS} nearest texts.",
        f"This is the mean over {metrics['texts']:,} texts of {of_corpus(study, row.corpus)}; chance is "
        f"{percent(metrics['chance'])}.",
    ]
    if len(pairs) > 1:
        where = of_corpus(study, every[least_name][0].corpus)
        sentences.append(
            f"It is the most above chance of {len(pairs)} comparisons; the least is {percent(least)}, "
            f"{least_pair} on {where}."
        )
    heading = geometry_title(study, name, row, metrics["texts"])
    return finding(sentences, picture_path("geometry", name, "neighbours"), heading)


def training(study: Study) -> Finding | None:
    """Compare an encoder before and after training here: the best on the dev pairs of the first one."""
    every = measured(study, "finetune").items()
    trained = {n: (row, m) for n, (row, m) in every if row.steps and finite(m["before"], m["dev"])}
    if not trained:
        return None
    dev = next(row.dev for row, _ in trained.values())
    scores = {n: m["dev"]["spearman"] for n, (row, m) in trained.items() if row.dev == dev}
    name = max(scores, key=lambda n: scores[n])
    row, metrics = trained[name]
    best = f", and this encoder as the best of {len(scores)}" if len(scores) > 1 else ""
    sentences = [
        f"SimCSE on {of_corpus(study, row.corpus)} takes the Spearman correlation of {name} from "
        f"{metrics['before']['spearman']:.1f} ({start(row)}) to {scores[name]:.1f}.",
        f"This is times 100, on the dev pairs of {of_corpus(study, dev)}, which also chose the step{best} "
        "(1 seed).",
    ]
    if test := test_metrics(study, name):
        sentences.append(f"On {test['pairs']:,} other pairs it is {test['spearman']:.1f}.")
    return finding(sentences, picture_path("finetune", name, "curve"), "Trained here")


def test_metrics(study: Study, name: str) -> dict[str, Any] | None:
    """Return the metrics of an encoder trained here on pairs of its dev corpus that are not the dev split."""
    for row, metrics in measured(study, "similarity").values():
        encoder = study.encoders[row.encoder]
        own_pooling = row.pooling is None and encoder.pooling is None and not encoder.layers
        of_dev_corpus = row.corpus == study.finetune[name].dev and row.split not in (None, "dev")
        if maker(encoder.path) == ("finetune", name) and own_pooling and of_dev_corpus:
            return metrics if finite(metrics) else None
    return None


def finite(*metrics: dict[str, Any]) -> bool:
    """Return whether the correlations are finite: those of constant scores are not."""
    return all(math.isfinite(m["spearman"]) for m in metrics)


def image_text(study: Study) -> Finding | None:
    """Compare point sets and single vectors.

    Compare both kinds at the largest dimension that both have; without one, compare the first row of each
    kind.
    """
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
            name = by_dim[dim]
            metrics = every[name][1]
            score = f"{percent(metrics['zero_shot'])} ± {100 * Z * metrics['zero_shot_error']:.0f}"
            scores.append(f"{score} with {KINDS[kind]} ({name}, {dim}-d, {seeds_of(metrics['seeds'])})")
    sentences = [
        f"Zero-shot accuracy on the {first_metrics['classified']:,.0f} images of "
        f"{of_corpus(study, first_row.corpus)} with exactly one label is {' and '.join(scores)}.",
        "The encoders of images and captions were trained here from scratch; ± is half a 95 % interval over "
        "images.",
    ]
    heading = image_text_title(study, first_row.corpus, first_metrics["test"])
    return finding(sentences, picture_path("evaluate_image_text", first, "zero-shot"), heading)


FINDINGS = (geometry, training, image_text)
