"""Findings about translation: how many texts are found without pairs, and what the verdict says."""

from collections import Counter
from typing import Any, NamedTuple

from pipelines.pages.drawing import encoders, picture_path
from pipelines.pages.findings.finding import (
    Finding,
    counted,
    finding,
    mostly_aligned,
    of_corpus,
    seeds_of,
    verdicts,
)
from pipelines.pages.tables import ENOUGH, measured, percent
from pipelines.pages.tables.translation import title, unmeasured
from pipelines.runtime import store
from pipelines.study import Align, AlignJointly, Evaluate, aligner_module
from pipelines.study.params import Study


class Translation(NamedTuple):
    """Hold a row of `evaluate`, its metrics, and how its translator was judged."""

    name: str
    row: Evaluate
    metrics: dict[str, Any]
    fit: Align
    labels: Counter[str]  # verdicts of the translator's seeds
    on_fit_corpus: bool  # measured on the corpus that the verdict is about
    real: bool  # the corpus is not generated
    apart: bool  # no document has texts on both sides of the fit

    @property
    def aligned(self) -> bool:
        return mostly_aligned(self.labels)

    @property
    def share(self) -> str:
        return percent(self.metrics["top1"])


def translation(study: Study) -> Finding | None:
    """Describe the best unpaired translator, beside an oracle and the untranslated vectors of the same pairs.

    Better is, in this order: aligned, measured on the corpus of the fit, of real texts, without a document on
    both sides, of higher top-1.
    """
    every = translations(study)
    unpaired = [m for m in every if m.fit.supervision == "unpaired"]
    if not unpaired:
        return None
    best = max(unpaired, key=lambda m: (m.aligned, m.on_fit_corpus, m.real, m.apart, m.metrics["top1"]))
    row, fit, pairs, spaces = best.row, best.fit, best.metrics["pairs"], study.spaces()
    source, target = encoders(study, row)
    among = "all" if pairs <= row.batch else f"at most {row.batch:,}"
    sentences = [] if best.aligned else [none_aligned(study)]
    sentences += [
        f"{source} -> {target} on {of_corpus(study, spaces[row.source].corpus)}: {best.share} of {pairs:,} "
        f"{kind_of_texts(study, best)} are found at rank 1 without a pair.",
        f"Each translated vector ranks {among} target vectors "
        f"({row.translator}, {seeds_of(best.metrics['seeds'])}).",
    ]
    if not best.apart:
        both = "The fit is of random halves: both" if fit.halves == "rows" else "Both"
        sentences.append(f"{both} sides have texts of the same documents.")
        if apart := best_rival([m for m in every if m.apart], best, "unpaired"):
            sentences.append(f"With no document on both sides, {apart.row.translator} reaches {apart.share}.")
    if oracle := best_rival(every, best, "oracle"):
        sentences.append(f"With pairs, {oracle.row.translator} reaches {oracle.share} (ORACLE).")
    if naive := best_rival(every, best, "naive"):
        sentences.append(f"Untranslated vectors reach {naive.share}.")
    if best.labels:
        where = (
            ", which needs no pairs,"
            if best.on_fit_corpus
            else f" on {' and '.join(study.corpora_of(fit))}, the corpus of the fit,"
        )
        sentences.append(f"The verdict{where} says: {counted(best.labels)}.")
    if not best.aligned:
        sentences.append(what_to_try(study, row.translator))
    return finding(
        sentences, picture_path("evaluate", best.name, "spaces"), title(study, row.source, row.target)
    )


def translations(study: Study) -> list[Translation]:
    """Return every row of `evaluate` that has results."""
    judged, spaces, fits, out = store.alignments(study), study.spaces(), study.translators(), []
    for name, (row, metrics) in measured(study, "evaluate").items():
        fit, corpus = fits[row.translator], spaces[row.source].corpus
        verdict = judged.get(row.translator, {})
        apart = fit.halves == "documents" and not verdict.get("shared_documents")
        on_fit_corpus = study.corpora_of(fit) == [corpus]
        real = study.corpora[corpus].source != "synthetic"
        out.append(Translation(name, row, metrics, fit, verdicts(verdict), on_fit_corpus, real, apart))
    return out


def none_aligned(study: Study) -> str:
    """Say that no measured translator is aligned, or that none at all is."""
    fits, judged = study.translators(), store.alignments(study)
    if any(verdicts(m)["aligned"] for name, m in judged.items() if fits[name].supervision == "unpaired"):
        return "No measured unpaired translator is judged aligned for most of its seeds."
    return "No unpaired translator is judged aligned."


def kind_of_texts(study: Study, m: Translation) -> str:
    """Say whether the fit saw the measured texts: none, all or some of them."""
    fitted = m.fit.splits or ("train",)  # the splits that the fit saw texts of
    saw_corpus = study.spaces()[m.row.source].corpus in study.corpora_of(m.fit)
    if not saw_corpus or m.row.split not in (None, *fitted):
        return "held-out texts"
    unlimited = all(limit is None or limit >= m.metrics["pairs"] for limit in m.fit.limits)
    every = m.row.split and m.on_fit_corpus and unlimited
    return "texts of the fit" if every else "texts, some of them of the fit,"


def best_rival(every: list[Translation], best: Translation, supervision: str) -> Translation | None:
    """Return the best translator of this supervision on the same pairs, ranked in batches of one size."""

    def pairs(m: Translation) -> tuple:
        return m.row.source, m.row.target, m.row.split, m.row.batch

    rivals = [m for m in every if pairs(m) == pairs(best) and m.fit.supervision == supervision]
    return max(rivals, key=lambda m: m.metrics["top1"], default=None)


def judgement(study: Study) -> Finding | None:
    """Describe the best verdict on an unpaired translator that no true pairs measure."""
    fits, spaces = study.translators(), study.spaces()
    evaluated = {row.source for row in study.evaluate.values()}
    judged = {
        name: metrics
        for name, metrics in unmeasured(study).items()
        if fits[name].supervision == "unpaired"
        and fits[name].source not in evaluated
        and to_attacker(study, name)
    }
    if not judged:
        return None
    best = max(judged, key=lambda name: (judged[name]["aligned"], judged[name]["verdict"]))
    source, target, labels = spaces[fits[best].source], spaces[fits[best].target], verdicts(judged[best])
    readable = "Anyone with these vectors and similar texts can read them; an audit measures how much."
    sentences = [
        f"Vectors of {of_corpus(study, source.corpus)} were translated to {target.encoder} without a pair "
        f"({best}).",
        f"No true pairs measure this. The verdict, which needs none, says: {counted(labels)}.",
        readable if labels["aligned"] or labels["partial"] else what_to_try(study, best),
    ]
    return finding(sentences, None, "Verdicts")


def to_attacker(study: Study, name: str) -> bool:
    """Return whether a translator's target may be an attacker's space.

    It is not if the target has given vectors, or if the row's `paired` spaces, an attacker's own, lack it.
    """
    target, joint = study.translators()[name].target, joint_row(study, name)
    given = study.corpora[study.spaces()[target].corpus].source == "vectors"
    return not given and (joint is None or not joint.paired or target in joint.paired)


def joint_row(study: Study, name: str) -> AlignJointly | None:
    """Return the row of align_jointly that has made a translator."""
    return study.align_jointly.get(name.partition("/")[0])


def what_to_try(study: Study, name: str) -> str:
    """Say what to change in a row whose fits are not aligned."""
    fit = study.translators()[name]
    collected = store.read_metrics("collect", study.corpora)
    texts = []
    for corpus in study.corpora_of(fit):
        counts = Counter(collected.get(corpus))
        held_out = 0 if fit.splits else counts["test"]  # a row with splits may see every text
        texts.append(f"{counts['rows'] - held_out:,} of {corpus}")
    most = "" if fit.splits else "a side sees half at most, and "
    enough = f"{most}a fit mostly works with {ENOUGH:,} on either"
    advice = [f"more texts ({' and '.join(texts)}; {enough})", "more `restarts`"]
    if getattr(fit.settings, "match_in", None) == "target":
        advice.append("`match_in: smaller`")
    shared = len(texts) == 1 and not fit.splits and not joint_row(study, name)  # else `pairs` are refused
    if shared and aligner_module(fit.aligner).USES_PAIRS:
        advice.append("known `pairs`")
    return f"To try, in this order: {', '.join(advice)}."


FINDINGS = (translation, judgement)
