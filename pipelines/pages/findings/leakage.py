"""The findings about leakage: attributes and texts read from translated vectors, above what is read without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.measures.intervals import Interval
from pipelines.pages import drawing
from pipelines.pages.findings.finding import Finding, counted, of_corpus, picture, verdicts
from pipelines.pages.page import slug
from pipelines.pages.tables import above_floor, percent
from pipelines.pages.tables.leakage import attack_title, facts_above_floor, labels_above_floor
from pipelines.runtime import store
from pipelines.study import Attributes, Invert, params


def by(study: params.Study, row: Attributes | Invert) -> str:
    """`wasserstein, unpaired`; says if it was fitted on another corpus, if its verdict is not `aligned`, if it is an oracle."""
    translator, fit = row.translator, study.translators()[row.translator]
    supervision, words = fit.supervision, verdicts(store.verdicts().get(translator, {}))
    fitted = study.spaces()[fit.source].corpus
    doubt = f", judged {counted(words)}" if words and not words["aligned"] * 2 > words.total() else ""
    where = "" if fitted == row.corpus else f", fitted on {fitted}"
    return f"{translator}, {'ORACLE' if supervision == 'oracle' else supervision}{where}{doubt}"


def strongest(study: params.Study, leaks: Mapping[str, tuple[Attributes | Invert, Interval]]) -> str:
    """The attack that stands highest above its floor; one that an oracle helps only where there is no other."""
    fits = study.translators()
    return max(leaks, key=lambda n: (fits[leaks[n][0].translator].supervision != "oracle", leaks[n][1].low))


def of_several(leaks: Mapping[str, tuple[Any, Interval]]) -> str:
    """Of how many attacks the one shown is the strongest."""
    at_floor = sum(not leak.above_zero for _, leak in leaks.values())
    return (
        f" This is the strongest of {len(leaks)} such attacks; {at_floor} at floor level by this measure."
        if len(leaks) > 1
        else ""
    )


def attribute_inference(study: params.Study) -> Finding | None:
    """The labels that are nearest to translated vectors, above those that are common."""
    results = store.read_metrics("attributes")
    leaks = {
        name: (row, labels_above_floor(results[name], row.wordings[0], row.k[0]))
        for name, row in study.attributes.items()
        if name in results
    }
    if not leaks:
        return None
    name = strongest(study, leaks)
    row, leak = leaks[name][0], leaks[name][1]
    metrics, k, (source, target) = results[name], row.k[0], drawing.encoders(study, row)
    scores, place = metrics[row.wordings[0]], "first" if k == 1 else f"among the first {k}"
    read, floor, ideal = (
        percent(scores[method][f"top{k}"]) for method in ("translated", "majority", "ideal target")
    )
    sentence = (
        f"Of {metrics['examples']:,} texts of {of_corpus(study, row.corpus)}, {source} vectors translated to {target} "
        f"({by(study, row)}) name a right one of {metrics['labels']} labels {place} for {read}; naming the commonest labels is "
        f"right for {floor} (the floor): {above_floor(leak)}. True {target} vectors reach {ideal} (ORACLE)."
    )
    anchor = slug(attack_title(study, name, row).removeprefix("### "))
    return Finding(sentence + of_several(leaks), picture("attributes", name, "floor"), anchor)


def inversion(study: params.Study) -> Finding | None:
    """Private facts in texts that are written from translated vectors, above those written from vectors of other texts."""
    results, leaks = store.read_metrics("invert"), {}
    for name, row in study.invert.items():
        if leak := facts_above_floor(results.get(name, {}), "corrected"):
            leaks[name] = row, leak
    if not leaks:
        return None
    name = strongest(study, leaks)
    row, leak = leaks[name]
    metrics, (source, target) = results[name], drawing.encoders(study, row)
    counts = {
        attack: metrics[attack]["corrected"]["facts"]["all"]
        for attack in ("translated", "mismatched", "ceiling")
    }
    back = {attack: count["recovered"] for attack, count in counts.items()}
    facts, (read, floor, ideal) = (
        counts["translated"]["recoverable"],
        (metrics[a]["corrected"]["token_f1"] for a in counts),
    )
    words = f"{read:.2f}, floor {floor:.2f}, ORACLE {ideal:.2f}"
    sentence = (
        f"Of {facts:,} private facts in {metrics['texts']} texts of {of_corpus(study, row.corpus)}, {back['translated']} come "
        f"back in texts written from {source} vectors translated to {target} ({by(study, row)}), "
        f"{back['mismatched']} from the vectors of other texts (the floor): {above_floor(leak)}. "
        f"From true {target} vectors {back['ceiling']} come back (ORACLE). Words shared with the true text (token F1): {words}."
    )
    anchor = slug(attack_title(study, name, row).removeprefix("### "))
    return Finding(sentence + of_several(leaks), picture("invert", name, "floor"), anchor)
