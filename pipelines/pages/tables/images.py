"""Image and text encoders contrasted here: weighted point sets beside CLIP's single vector."""

from __future__ import annotations

from pipelines.pages.pictures import by_dimension
from pipelines.pages.tables import origin, pictures, table, with_error
from pipelines.runtime import store
from pipelines.study import Head, params

MEASURES = {
    "zero_shot": "zero-shot", "linear": "linear",
    "image_to_text_r1": "image to text R@1", "text_to_image_r10": "text to image R@10",
    "pmi_correlation": "PMI correlation", "pmi_unexplained": "PMI unexplained", "rank_limit": "rank limit",
}  # fmt: skip


def image_text_table(study: params.Study) -> list[str]:
    """One block per corpus: every pair of encoders measured on it."""
    results, lines = store.read_metrics("evaluate_image_text"), []
    rows = {name: row for name, row in study.evaluate_image_text.items() if name in results}
    for corpus in dict.fromkeys(row.corpus for row in rows.values()):
        names = [n for n, row in rows.items() if row.corpus == corpus]
        shown = {m: title for m, title in MEASURES.items() if any(m in results[n] for n in names)}
        cells = [
            [n, described(study.train_image_text[rows[n].encoders].head), f"{results[n]['seeds']:.0f}"]
            + [with_error(results[n], m, "std") if m in results[n] else "" for m in shown]
            for n in names
        ]
        lines += ["", f"### {image_text_title(study, corpus, results[names[0]]['test'])}", ""]
        lines += table(["row", "head", "seeds", *shown.values()], cells)
        lines += pictures("evaluate_image_text", names[0], "zero-shot.png")
        lines += [line for n in names[:2] for line in pictures("evaluate_image_text", n, "pmi.png")]
        lines += [
            line
            for m in ("pmi_correlation", "zero_shot")
            if m in shown
            for line in dimensions(study, results, names, m)
        ]
    legend = [
        "Encoders trained here from nothing. *PMI correlation*: of the learnt similarity with the true pointwise mutual",
        "information, where the generator knows it; *unexplained*: what of its variance the similarity does not reach;",
        "*rank limit*: what no inner product of as many dimensions reaches (oracle). Mean ± spread over seeds.",
    ]
    return ["## Images and captions", "", *legend, *lines] if lines else []


def image_text_title(study: params.Study, corpus: str, images: float) -> str:
    return f"{corpus} ({origin(study.corpora[corpus])}; {images:.0f} images)"


def dimensions(study: params.Study, results: dict, names: list[str], measure: str) -> list[str]:
    """A measure against the dimension, of the rows that differ from the default head in kind and dimension alone."""
    plain: dict[str, dict[int, tuple[float, float]]] = {"points": {}, "vector": {}}
    for name in names:
        head = study.train_image_text[study.evaluate_image_text[name].encoders].head
        if head == Head.model_validate({"kind": head.kind, "dim": head.dim}):
            plain[head.kind][head.dim] = (results[name][measure], results[name].get(f"{measure}_std", 0.0))
    if min(map(len, plain.values())) < 2:
        return []
    drawn = {}
    for kind, points in plain.items():
        dims = sorted(points)
        drawn[KINDS[kind]] = (
            [float(d) for d in dims],
            [points[d][0] for d in dims],
            [points[d][1] for d in dims],
        )
    path = store.REPORT / "pictures" / f"{study.evaluate_image_text[names[0]].corpus}-{measure}.png"
    by_dimension(path, drawn, MEASURES[measure])
    return ["", f"![{MEASURES[measure]} by dimension](pictures/{path.name})"]


KINDS = {"points": "weighted points", "vector": "one vector (CLIP)"}


def described(head: Head) -> str:
    """`points, 16-d, gaussian .5`: what tells the rows of an ablation apart."""
    if head.kind == "vector":
        return f"one vector, {head.dim}-d"
    kernel = f"{head.kernel} {head.scale:g}, linear {head.linear:.2f}, kernel {head.nonlinear:.2f}"
    return f"{head.points or 'all'} points, {head.dim}-d, {kernel}, {head.weight}"
