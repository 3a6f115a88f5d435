"""Tables of image and text encoders trained here: weighted point sets, and CLIP's single vectors."""

from __future__ import annotations

from typing import Any

from pipelines.measures import Measure, shown
from pipelines.measures.image_text import MEASURES
from pipelines.pages.drawing import FOLDER
from pipelines.pages.pictures import by_dimension
from pipelines.pages.tables import lower_is_better, measured, number, origin, pictures, section, table
from pipelines.study import EvaluateImageText, Head
from pipelines.study.params import Study

KINDS = {"points": "weighted points", "vector": "one vector (CLIP)"}
BY_DIMENSION = ("pmi_correlation", "zero_shot")
LEGEND = f"""These encoders were trained here from scratch. *PMI correlation* is that of the learnt similarity
with the true pointwise mutual information, if the generator knows it. *Unexplained* is the share of its
variance that the similarity does not explain; *rank limit* is the share that no inner product of this
dimension explains (oracle). Mean ± standard deviation over seeds. {lower_is_better(MEASURES)}"""
Measured = dict[str, tuple[EvaluateImageText, dict[str, Any]]]


def image_text_table(study: Study) -> list[str]:
    """One block per corpus: every pair of encoders measured on it."""
    every, blocks = measured(study, "evaluate_image_text"), []
    for corpus in dict.fromkeys(row.corpus for row, _ in every.values()):
        of_corpus = {n: (row, m) for n, (row, m) in every.items() if row.corpus == corpus}
        metrics = [m for _, m in of_corpus.values()]
        columns = [m for m in shown(MEASURES) if any(m.name in found for found in metrics)]
        rows = [
            [n, described(head_of(study, row)), f"{m['seeds']:.0f}", *(number(c, m, "std") for c in columns)]
            for n, (row, m) in of_corpus.items()
        ]
        first, *more = of_corpus
        blocks += ["", f"### {image_text_title(study, corpus, metrics[0]['test'])}", ""]
        blocks += table(["row", "head", "seeds", *(c.title for c in columns)], rows)
        blocks += pictures("evaluate_image_text", first, "zero-shot")
        for name in [first, *more[:1]]:
            blocks += pictures("evaluate_image_text", name, "pmi")
        for measure in (c for name in BY_DIMENSION for c in columns if c.name == name):
            blocks += dimensions(study, of_corpus, measure)
    return section("Images and captions", LEGEND, blocks)


def image_text_title(study: Study, corpus: str, images: float) -> str:
    return f"{corpus} ({origin(study.corpora[corpus])}; {images:.0f} images)"


def head_of(study: Study, row: EvaluateImageText) -> Head:
    return study.train_image_text[row.encoders].head


def described(head: Head) -> str:
    """Say what distinguishes a head from others: `all points, 16-d, gaussian 0.5, ...`."""
    if head.kind == "vector":
        return f"one vector, {head.dim}-d"
    kernel = f"{head.kernel} {head.scale:g}, linear {head.linear:.2f}, kernel {head.nonlinear:.2f}"
    return f"{head.points or 'all'} points, {head.dim}-d, {kernel}, {head.weight}"


def dimensions(study: Study, rows: Measured, measure: Measure) -> list[str]:
    """Draw a measure against the dimension, for heads that differ from the default in kind and dimension
    alone.
    """
    lines: dict[str, dict[int, tuple[float, float]]] = {kind: {} for kind in KINDS}
    for row, metrics in rows.values():
        head = head_of(study, row)
        if head == Head.model_validate({"kind": head.kind, "dim": head.dim}):
            lines[head.kind][head.dim] = metrics[measure.name], metrics.get(f"{measure.name}_std", 0.0)
    if min(map(len, lines.values())) < 2:
        return []
    corpus = next(iter(rows.values()))[0].corpus
    path = FOLDER / f"{corpus}-{measure.name}.png"
    by_dimension(
        path, {KINDS[kind]: dict(sorted(line.items())) for kind, line in lines.items()}, measure.title
    )
    return ["", f"![{measure.title} by dimension](pictures/{path.name})"]
