"""Findings about leakage: attributes and texts read from translated vectors, above their floors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.measures.intervals import Interval
from pipelines.pages.drawing import encoders, picture_path
from pipelines.pages.findings.finding import Finding, above_floor, counted, finding, of_corpus, verdicts
from pipelines.pages.tables import measured, percent
from pipelines.pages.tables.leakage import attack_title, facts_above_floor, labels_above_floor
from pipelines.runtime import store
from pipelines.study import Attributes, Invert
from pipelines.study.params import Study

LABELS = (
    "{source} -> {target} on {corpus}: {translated} of {examples:,} texts get a right label.",
    "The label is {place} of {labels} to the translated vector ({by}).",
    "The commonest labels are right for {majority} (the floor); the difference is {leak}.",
    "True {target} vectors reach {ideal} (ORACLE).",
)
FACTS = (
    "{source} -> {target} on {corpus}: {translated} of {facts:,} private facts in {texts} texts come back.",
    "The facts are in texts written from translated vectors ({by}).",
    "Vectors of other texts recover {mismatched} (the floor); the difference is {leak}.",
    "True {target} vectors recover {ceiling} (ORACLE).",
    "Token F1 with the true text is {translated_f1:.2f}; floor {mismatched_f1:.2f}, ORACLE {ceiling_f1:.2f}.",
)
STRONGEST = "This is the strongest of {count} such attacks; {at_floor} at floor level by this measure."
Leaks = Mapping[str, tuple[Any, Interval]]  # name -> (row, above the floor)


def attribute_inference(study: Study) -> Finding | None:
    """Labels nearest to translated vectors, above the commonest labels."""
    every = measured(study, "attributes")
    leaks = {n: (row, labels_above_floor(m, row.wordings[0], row.k[0])) for n, (row, m) in every.items()}
    if not leaks:
        return None
    name = strongest(study, leaks)
    row, metrics = every[name]
    k, scores = row.k[0], metrics[row.wordings[0]]
    slots = {
        "examples": metrics["examples"],
        "labels": metrics["labels"],
        "place": "the nearest" if k == 1 else f"one of the {k} nearest",
        "translated": percent(scores["translated"][f"top{k}"]),
        "majority": percent(scores["majority"][f"top{k}"]),
        "ideal": percent(scores["ideal target"][f"top{k}"]),
    }
    return attack(study, "attributes", name, leaks, LABELS, slots)


def inversion(study: Study) -> Finding | None:
    """Private facts in texts written from translated vectors, above those from vectors of other texts."""
    every = measured(study, "invert")
    leaks = {n: (row, leak) for n, (row, m) in every.items() if (leak := facts_above_floor(m))}
    if not leaks:
        return None
    name = strongest(study, leaks)
    metrics = every[name][1]
    slots = {"texts": metrics["texts"]}
    for method in ("translated", "mismatched", "ceiling"):
        scores = metrics[method]["corrected"]
        slots |= {method: scores["facts"]["all"]["recovered"], f"{method}_f1": scores["token_f1"]}
    slots["facts"] = metrics["translated"]["corrected"]["facts"]["all"]["recoverable"]
    return attack(study, "invert", name, leaks, FACTS, slots)


def attack(
    study: Study, verb: str, name: str, leaks: Leaks, templates: tuple[str, ...], slots: dict[str, Any]
) -> Finding:
    """Fill the templates of an attack with its slots and those that every attack has."""
    row, leak = leaks[name]
    slots |= dict(zip(("source", "target"), encoders(study, row), strict=True))
    slots |= {"corpus": of_corpus(study, row.corpus), "by": by(study, row), "leak": above_floor(leak)}
    slots |= {"count": len(leaks), "at_floor": sum(not leak.above_zero for _, leak in leaks.values())}
    if len(leaks) > 1:
        templates = (*templates, STRONGEST)
    return finding(templates, slots, picture_path(verb, name, "floor"), attack_title(study, name, row))


def strongest(study: Study, leaks: Leaks) -> str:
    """Return the attack that is highest above its floor; one by an oracle only if there is no other."""
    fits = study.translators()
    return max(leaks, key=lambda n: (fits[leaks[n][0].translator].supervision != "oracle", leaks[n][1].low))


def by(study: Study, row: Attributes | Invert) -> str:
    """`wasserstein, unpaired`, and: ORACLE, the corpus of the fit if another, the verdict if most seeds are
    not aligned.
    """
    fit = study.translators()[row.translator]
    fitted_on = study.spaces()[fit.source].corpus
    labels = verdicts(store.verdicts().get(row.translator, {}))
    phrases = [row.translator, "ORACLE" if fit.supervision == "oracle" else fit.supervision]
    if fitted_on != row.corpus:
        phrases.append(f"fitted on {fitted_on}")
    if labels and labels["aligned"] * 2 <= labels.total():
        phrases.append(f"judged {counted(labels)}")
    return ", ".join(phrases)
