"""Attributes and texts read from translated vectors."""

from __future__ import annotations

from typing import Any

from pipelines.measures.intervals import Interval, difference
from pipelines.pages.tables import escaped, origin, pictures, points, table, with_error
from pipelines.runtime import store
from pipelines.study import Attributes, Invert, params

VECTORS = {
    "ideal source": "ideal source (oracle)",
    "ideal target": "ideal target (oracle)",
    "ceiling": "ceiling (oracle)",
}
VECTORS |= {"mismatched": "mismatched (floor)", "prior": "no vector (floor)", "majority": "majority (floor)"}
INTERVAL = (
    "*Above the floor*: the difference in points, with Newcombe's 95 % interval (1998, method 10); where 0 is in it, no leak is\n"
    "claimed by that measure."
)
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
        measures = {f"top{n}": f"top-{n}" for n in row.k} | {
            f"precision{k}": f"precision@{k}",
            f"recall{k}": f"recall@{k}",
        }
        measures |= {"mean_rank": "mean rank", "mean_rank_all": "mean rank, all labels"}
        rows = [
            [
                wording,
                VECTORS.get(method, method),
                *(with_error(scores, m) for m in measures),
                *(
                    points(labels_above_floor(metrics, wording, n)) if method == "translated" else ""
                    for n in row.k
                ),
            ]
            for wording in row.wordings
            for method, scores in metrics[wording].items()
        ]
        lines += [
            "",
            attack_title(study, name, row),
            "",
            f"{metrics['examples']} texts, {metrics['labels']} labels.",
            "",
        ]
        lines += table(
            ["labels as", "vectors", *measures.values(), *(f"top-{n} above the floor" for n in row.k)], rows
        )
        lines += pictures("attributes", name, "floor.png")
    legend = [
        "Zero-shot: the labels whose own vectors lie nearest. *Ideal* reads vectors that no attacker has; *naive* reads the",
        "untranslated ones; *majority*, the floor, knows only which labels are common. Mean ± standard error over texts, of",
        "translated vectors averaged over seeds.",
        INTERVAL,
    ]
    return ["## Attributes", "", *legend, *lines] if lines else []


def labels_above_floor(metrics: dict[str, Any], wording: str, k: int) -> Interval:
    """Top-k of translated vectors less that of the commonest labels."""
    n, measure = metrics["examples"], f"top{k}"
    return difference(
        metrics[wording]["translated"][measure] * n, n, metrics[wording]["majority"][measure] * n, n
    )


def facts_above_floor(
    metrics: dict[str, Any], method: str, attack: str = "translated", kind: str = "all"
) -> Interval | None:
    """Share of the facts that come back from an attack's vectors, less that from vectors of other texts by the same method.

    None where there is no such floor, or no fact.
    """
    counts = [metrics.get(a, {}).get(method, {}).get("facts", {}).get(kind) for a in (attack, "mismatched")]
    if not all(count and count["recoverable"] for count in counts):
        return None
    return difference(*(number for count in counts for number in (count["recovered"], count["recoverable"])))


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
                recovered(scores["facts"]["all"]),
                points(facts_above_floor(metrics, method, a)) if a in ("translated", "ceiling") else "",
                f"{scores['stated']:.1f}",
                f"{scores['queries']:.0f}",
            ]
            for a, methods in attacks.items()
            for method, scores in methods.items()
        ]
        about = f"{metrics['texts']} texts; the inverter was learnt from {metrics['known']} others."
        lines += ["", attack_title(study, name, row), "", about, ""]
        header = ["facts recovered", "above the floor", "facts stated a text", "queries a text"]
        lines += table(["vectors", "method", *TEXT.values(), *header], rows)
        lines += ["", *facts_by_kind(metrics, attacks), *pictures("invert", name, "floor.png")]
        if not study.private(row.corpus, study.inverters[row.inverter].corpus):
            lines += ["", *examples(name, facts_above_floor(metrics, "corrected"))]
    legend = [
        "Texts written from vectors alone. The *ceiling* inverts true target vectors; what the *floors* leak too (the vector of",
        "another text, no vector at all) is no leak. *Retrieved*: the nearest of the attacker's own texts; *corrected* begins",
        "with it and with what was generated; *consensus*: what the nearest texts agree on, without a query.",
        "Mean ± standard error over texts; facts: recovered/recoverable, and how many a guess states, right or wrong.",
        INTERVAL,
    ]
    return ["## Inversion", "", *legend, *lines] if lines else []


def facts_by_kind(metrics: dict[str, Any], attacks: dict[str, Any]) -> list[str]:
    """Facts of each kind that correction brings back, by attack. One kind in forty passes its floor by chance."""
    corrected = {
        VECTORS.get(a, a): scores["corrected"]["facts"]
        for a, scores in attacks.items()
        if "corrected" in scores
    }
    kinds = sorted(next(iter(corrected.values())), key=lambda kind: (kind == "all", kind))
    rows = [
        [
            k,
            *(recovered(f[k]) for f in corrected.values()),
            points(facts_above_floor(metrics, "corrected", kind=k)),
        ]
        for k in kinds
    ]
    return table(["facts recovered, corrected", *corrected, "translated, above the floor"], rows)


def examples(name: str, leak: Interval | None) -> list[str]:
    """Inverted texts beside the true ones, the worst leaks first: not a fair sample, and the report says so.

    Facts are listed only where more of them come back than the floor gives: below that, a fact in a guess is no leak.
    """
    kept = store.read_examples(name)
    if leak and leak.above_zero:
        best, columns = (
            kept.head(SHOWN),
            {"text": "text", "guess": "written from its vector", "facts": "facts that came back"},
        )
        said = f"The {SHOWN} texts of which most came back; of their facts the floor gives a part too:"
    else:
        best = kept.sort("token_f1", descending=True).head(SHOWN)
        columns = {"text": "text", "guess": "written from its vector"}
        said = f"The {SHOWN} guesses with the most words of their texts. No fact is listed: facts are at floor level."
    rows = [[escaped(v or "") for v in r] for r in best[list(columns)].iter_rows()]
    return [said, "", *table(list(columns.values()), rows)]


def recovered(count: dict[str, int]) -> str:
    return f"{count['recovered']}/{count['recoverable']}"
