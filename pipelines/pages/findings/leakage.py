"""Findings about leakage: attributes and texts read from translated vectors, above their floors."""

from collections.abc import Mapping
from typing import Any

from pipelines.measures.intervals import Interval
from pipelines.pages.drawing import encoders, picture_path
from pipelines.pages.findings.finding import (
    Finding,
    above_floor,
    counted,
    finding,
    mostly_aligned,
    of_corpus,
    verdicts,
)
from pipelines.pages.tables import measured
from pipelines.pages.tables.leakage import attack_title, facts_above_floor, labels_above_floor
from pipelines.runtime import store
from pipelines.study import Attributes, Invert
from pipelines.study.params import Study

Leaks = Mapping[str, tuple[Any, Interval]]  # name -> (row, above the floor)


def attribute_inference(study: Study) -> Finding | None:
    """Say how many texts get a right label, above the commonest labels."""
    every = measured(study, "attributes")
    leaks = {n: (row, labels_above_floor(m, row.wordings[0], row.k[0])) for n, (row, m) in every.items()}
    if not leaks:
        return None
    name = strongest(study, leaks)
    row, metrics = every[name]
    source, target = encoders(study, row)
    k, scores = row.k[0], metrics[row.wordings[0]]
    methods = ("translated", "majority", "ideal target")
    right = {method: f"{100 * scores[method][f'top{k}']:.1f} %" for method in methods}
    place = "the nearest" if k == 1 else f"one of the {k} nearest"
    above = "" if leaks[name][1].above_zero else ", no clear gain over the commonest labels"
    sentences = [
        f"{source} -> {target} on {of_corpus(study, row.corpus)}: {right['translated']} of "
        f"{metrics['examples']:,} texts get a right label{above}.",
        f"The label is {place} of {metrics['labels']} to the translated vector ({by(study, row)}).",
        f"The commonest labels are right for {right['majority']} (the floor); the difference is "
        f"{above_floor(leaks[name][1])}.",
        f"True {target} vectors reach {right['ideal target']} (ORACLE).",
    ]
    return attack(study, "attributes", name, leaks, sentences)


def inversion(study: Study) -> Finding | None:
    """Count private facts in texts written from translated vectors, above those from other texts' vectors."""
    every = measured(study, "invert")
    leaks = {n: (row, leak) for n, (row, m) in every.items() if (leak := facts_above_floor(m))}
    if not leaks:
        return None
    name = strongest(study, leaks)
    row, metrics = every[name]
    source, target = encoders(study, row)
    attacks = {method: metrics[method]["corrected"] for method in ("translated", "mismatched", "ceiling")}
    facts = {method: scores["facts"]["all"] for method, scores in attacks.items()}
    f1 = {method: f"{scores['token_f1']:.2f}" for method, scores in attacks.items()}
    above = "" if leaks[name][1].above_zero else ", no clear gain over vectors of other texts"
    sentences = [
        f"{source} -> {target} on {of_corpus(study, row.corpus)}: {facts['translated']['recovered']} of "
        f"{facts['translated']['recoverable']:,} private facts in {metrics['texts']:,} texts come back"
        f"{above}.",
        f"The facts are in texts written from translated vectors ({by(study, row)}).",
        f"Vectors of other texts recover {facts['mismatched']['recovered']} (the floor); the difference is "
        f"{above_floor(leaks[name][1])}.",
        f"True {target} vectors recover {facts['ceiling']['recovered']} (ORACLE).",
        f"Token F1 with the true text is {f1['translated']}; floor {f1['mismatched']}, "
        f"ORACLE {f1['ceiling']}.",
    ]
    return attack(study, "invert", name, leaks, sentences)


def attack(study: Study, verb: str, name: str, leaks: Leaks, sentences: list[str]) -> Finding:
    """Return the finding of an attack, which also says how many attacks there are, or how many oracles."""
    row, _ = leaks[name]
    oracle = of_oracle(study, row)
    rivals = [leak for other, leak in leaks.values() if of_oracle(study, other) == oracle]
    if len(rivals) > 1:
        no_leak = sum(not leak.above_zero for leak in rivals)
        most = f"This is the strongest of {len(rivals)} such attacks"
        sentences.append(f"{most}; {no_leak} at or below the floor by this measure.")
    heading = attack_title(study, verb, name, row)
    return finding(sentences, picture_path(verb, name, "floor"), heading)


def strongest(study: Study, leaks: Leaks) -> str:
    """Return the attack highest above its floor, by its lower bound; an oracle's if there is no other."""
    return max(leaks, key=lambda n: (not of_oracle(study, leaks[n][0]), leaks[n][1].low))


def of_oracle(study: Study, row: Attributes | Invert) -> bool:
    """Return whether an oracle translates the attacked vectors."""
    return study.translators()[row.translator].supervision == "oracle"


def by(study: Study, row: Attributes | Invert) -> str:
    """Describe the fit, such as `wasserstein, unpaired`.

    An oracle is marked as ORACLE.
    If the fit's corpora differ from the attacked one, name them.
    Unless most seeds are aligned, give the verdicts.
    """
    fit = study.translators()[row.translator]
    fitted_on = " and ".join(study.corpora_of(fit))
    labels = verdicts(store.alignments(study).get(row.translator, {}))
    phrases = [row.translator, "ORACLE" if fit.supervision == "oracle" else fit.supervision]
    if fitted_on != row.corpus:
        phrases.append(f"fitted on {fitted_on}")
    if labels and not mostly_aligned(labels):
        phrases.append(f"judged {counted(labels)}")
    return ", ".join(phrases)


FINDINGS = (attribute_inference, inversion)
