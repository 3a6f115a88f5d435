"""Attributes and texts read from translated vectors."""

from __future__ import annotations

from pipelines.pages.tables import escaped, origin, table, with_error
from pipelines.runtime import store
from pipelines.study import Attributes, Invert, params

VECTORS = {"ideal source": "ideal source (oracle)", "ideal target": "ideal target (oracle)", "ceiling": "ceiling (oracle)"}
VECTORS |= {"mismatched": "mismatched (floor)", "prior": "no vector (floor)"}
SHOWN = 5
TEXT = {"token_f1": "token F1", "set_f1": "set F1", "bleu": "BLEU", "rouge_l": "ROUGE-L", "cosine": "cosine"}


def attack_title(study: params.Study, name: str, row: Attributes | Invert) -> str:
    by = f"{row.translator} ({study.translators()[row.translator].supervision})"
    return f"### {name}: {row.source} -> {row.target} by {by} ({origin(study.corpora[row.corpus])})"


def attributes_table(study: params.Study) -> list[str]:
    """One block per row: what the nearest labels say, for each wording of the labels."""
    results, lines = store.read_metrics("attributes"), []
    for name, row in study.attributes.items():
        if not (metrics := results.get(name)):
            continue
        k = row.k[-1]
        measures = {f"top{n}": f"top-{n}" for n in row.k} | {f"precision{k}": f"precision@{k}", f"recall{k}": f"recall@{k}"}
        measures |= {"mean_rank": "mean rank", "mean_rank_all": "mean rank, all labels"}
        rows = [
            [wording, VECTORS.get(method, method), *(with_error(scores, m) for m in measures)]
            for wording in row.wordings
            for method, scores in metrics[wording].items()
        ]
        lines += ["", attack_title(study, name, row), "", f"{metrics['examples']} texts, {metrics['labels']} labels.", ""]
        lines += table(["labels as", "vectors", *measures.values()], rows)
    legend = [
        "Zero-shot: the labels whose own vectors lie nearest. *Ideal* reads vectors that no attacker has; *naive* reads the",
        "untranslated ones; *majority* knows only which labels are common. Mean ± standard error over texts, of translated",
        "vectors averaged over seeds.",
    ]
    return ["## Attributes", "", *legend, *lines] if lines else []


def inversion_table(study: params.Study) -> list[str]:
    """One block per row: every attack by every method, then the facts that correction leaks, by kind."""
    results, lines = store.read_metrics("invert"), []
    for name, row in study.invert.items():
        if not (metrics := results.get(name)):
            continue
        attacks = {a: metrics[a] for a in ("translated", "ceiling", "mismatched", "prior") if a in metrics}
        rows = [
            [
                VECTORS.get(a, a),
                method,
                *(with_error(scores, m) for m in TEXT),
                leaked(scores["facts"]["all"]),
                f"{scores['stated']:.1f}",
                f"{scores['queries']:.0f}",
            ]
            for a, methods in attacks.items()
            for method, scores in methods.items()
        ]
        about = f"{metrics['texts']} texts; the inverter was learnt from {metrics['known']} others."
        shares = "; ".join(
            f"{method}: " + ", ".join(f"{k.replace('_', ' ')} {v:.0%}" for k, v in scores.items())
            for method, scores in metrics["of_ceiling"].items()
        )
        lines += ["", attack_title(study, name, row), "", f"{about} Translated, of the ceiling: {shares}.", ""]
        lines += table(["vectors", "method", *TEXT.values(), "facts leaked", "facts stated a text", "queries a text"], rows)
        corrected = {VECTORS.get(a, a): scores["corrected"]["facts"] for a, scores in attacks.items() if "corrected" in scores}
        kinds = sorted(next(iter(corrected.values())), key=lambda kind: (kind == "all", kind))
        lines += ["", *table(["facts leaked", *corrected], [[k, *(leaked(f[k]) for f in corrected.values())] for k in kinds])]
        if not study.private(row.corpus, study.inverters[row.inverter].corpus):
            lines += ["", f"The {SHOWN} texts of which most came back:", "", *examples(name)]
    legend = [
        "Texts written from vectors alone. The *ceiling* inverts true target vectors; what the *floors* leak too (the vector of",
        "another text, no vector at all) is no leak. *Retrieved*: the nearest of the attacker's own texts; *corrected* begins",
        "with it and with what was generated; *consensus*: what the nearest texts agree on, without a query.",
        "Mean ± standard error over texts; facts: recovered/recoverable, and how many a guess states, right or wrong.",
    ]
    return ["## Inversion", "", *legend, *lines] if lines else []


def examples(name: str) -> list[str]:
    """Inverted texts beside the true ones, the worst leaks first: not a fair sample, and the report says so."""
    best = store.read_examples(name).head(SHOWN)
    columns = ["text", "guess", "facts"]
    return table(
        ["text", "written from its vector", "facts leaked"], [[escaped(v or "") for v in r] for r in best[columns].iter_rows()]
    )


def leaked(count: dict[str, int]) -> str:
    return f"{count['recovered']}/{count['recoverable']}"
