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
from pipelines.study import Align, Evaluate, aligner_module
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

    @property
    def aligned(self) -> bool:
        return mostly_aligned(self.labels)

    @property
    def apart(self) -> bool:
        """Say whether the fit has no document on both sides."""
        return self.fit.halves == "documents"

    @property
    def share(self) -> str:
        return percent(self.metrics["top1"])


def translation(study: Study) -> Finding | None:
    """Describe the best unpaired translator, beside an oracle and the untranslated vectors of the same pairs.

    Better is, in this order: measured on the corpus of the fit, aligned, of real texts, without a document on
    both sides, of higher top-1.
    """
    every = translations(study)
    unpaired = [m for m in every if m.fit.supervision == "unpaired"]
    if not unpaired:
        return None
    best = max(unpaired, key=lambda m: (m.on_fit_corpus, m.aligned, m.real, m.apart, m.metrics["top1"]))
    row, fit, pairs, spaces = best.row, best.fit, best.metrics["pairs"], study.spaces()
    source, target = encoders(study, row)
    fitted = fit.splits or ("train",)  # the splits that the fit saw texts of
    of_fit = spaces[row.source].corpus in study.corpora_of(fit)
    seen = of_fit and row.split in (None, *fitted)
    among = "all" if pairs <= row.batch else f"at most {row.batch:,}"
    sentences = [] if best.aligned else ["No unpaired translator is judged aligned."]
    sentences += [
        f"{source} -> {target} on {of_corpus(study, spaces[row.source].corpus)}: {best.share} of {pairs:,} "
        f"{'texts of the fit' if seen else 'held-out texts'} are found at rank 1 without a pair.",
        f"Each translated vector ranks {among} target vectors "
        f"({row.translator}, {seeds_of(best.metrics['seeds'])}).",
    ]
    if not best.apart:
        sentences.append("The fit is of random halves: both sides have texts of the same documents.")
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
        sentences.append(what_to_try(study, fit))
    return finding(
        sentences, picture_path("evaluate", best.name, "spaces"), title(study, row.source, row.target)
    )


def translations(study: Study) -> list[Translation]:
    """Return every row of `evaluate` that has results."""
    judged, spaces, fits, out = store.alignments(study), study.spaces(), study.translators(), []
    for name, (row, metrics) in measured(study, "evaluate").items():
        fit, corpus = fits[row.translator], spaces[row.source].corpus
        labels = verdicts(judged.get(row.translator, {}))
        on_fit_corpus = study.corpora_of(fit) == [corpus]
        real = study.corpora[corpus].source != "synthetic"
        out.append(Translation(name, row, metrics, fit, labels, on_fit_corpus, real))
    return out


def best_rival(every: list[Translation], best: Translation, supervision: str) -> Translation | None:
    """Return the best translator of another supervision on the same pairs, ranked in batches of one size."""

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
        if fits[name].supervision == "unpaired" and fits[name].source not in evaluated
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
        readable if labels["aligned"] or labels["partial"] else what_to_try(study, fits[best]),
    ]
    return finding(sentences, None, "Verdicts")


def what_to_try(study: Study, fit: Align) -> str:
    """Say what to change in a row of align whose fits are not aligned."""
    collected = store.read_metrics("collect", study.corpora)
    counts = {corpus: Counter(collected.get(corpus)) for corpus in study.corpora_of(fit)}
    rows = " and ".join(  # a row with splits may see every text, others see none that is held out
        f"{n['rows'] - (0 if fit.splits else n['test']):,} of {corpus}" for corpus, n in counts.items()
    )
    most = "" if fit.splits else "a side sees half at most, and "
    settings = ["more `restarts`"]
    if getattr(fit.settings, "match_in", None) == "target":
        settings.append("`match_in: smaller`")
    if aligner_module(fit.aligner).USES_PAIRS and not fit.splits:
        settings.append("known `pairs`")
    return (
        f"To try, in this order: more texts ({rows}; {most}a fit mostly works "
        f"with {ENOUGH:,} on either), {', '.join(settings)}."
    )
