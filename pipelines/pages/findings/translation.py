"""Findings about translation: how many texts are found without pairs, and what the verdict says."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from pipelines.pages.drawing import encoders, picture_path
from pipelines.pages.findings.finding import Finding, counted, finding, of_corpus, seeds_of, verdicts
from pipelines.pages.tables import ENOUGH, measured, percent
from pipelines.pages.tables.translation import title, unmeasured
from pipelines.runtime import store
from pipelines.study import Align, Evaluate
from pipelines.study.params import Study

WIDE = 240  # `repeats` with which more fits are right: docs/experiments/documents-apart.md
NOT_ALIGNED = "No unpaired translator is judged aligned."
FOUND = "{source} -> {target} on {corpus}: {share} of {pairs:,} {seen} are found at rank 1 without a pair."
RANKED = "Each translated vector ranks {among} target vectors ({translator}, {seeds})."
ORACLE = "With pairs, {oracle} reaches {oracle_share} (ORACLE)."
NAIVE = "Untranslated vectors reach {naive_share}."
VERDICT = "The verdict, which needs no pairs, says: {counted}."
VERDICT_ELSEWHERE = "The verdict on {fitted_on}, the corpus of the fit, says: {counted}."

JUDGED = "Vectors of {corpus} were translated to {target} without a pair ({translator})."
ONLY_VERDICT = "No true pairs measure this. The verdict, which needs none, says: {counted}."
READABLE = "Anyone with these vectors and similar texts can read them; an audit measures how much."
NEXT = (
    "To try, in this order: more texts ({rows}; a fit sees half of them, and mostly works with {enough:,} on "
    "either side), {settings}."
)


class Measured(NamedTuple):
    """A row of `evaluate`, its metrics, and how its translator was judged."""

    name: str
    row: Evaluate
    metrics: dict[str, Any]
    supervision: str
    labels: Counter[str]  # verdicts of the translator's seeds
    home: bool  # measured on the corpus of the fit, which the verdict is about
    real: bool

    @property
    def aligned(self) -> bool:
        return self.labels["aligned"] * 2 > self.labels.total()


def translation(study: Study) -> Finding | None:
    """The unpaired translator to trust, beside an oracle and the untranslated vectors of the same pairs."""
    every = translations(study)
    unpaired = [m for m in every if m.supervision == "unpaired"]
    if not unpaired:
        return None
    best = max(unpaired, key=lambda m: (m.home, m.aligned, m.real, m.metrics["top1"]))
    row, metrics, fit, spaces = (
        best.row,
        best.metrics,
        study.translators()[best.row.translator],
        study.spaces(),
    )
    source, target = encoders(study, row)
    seen = best.home and (row.split is None or row.split in (fit.splits or ("train",)))
    slots = {
        "source": source,
        "target": target,
        "corpus": of_corpus(study, spaces[row.source].corpus),
        "share": percent(metrics["top1"]),
        "pairs": metrics["pairs"],
        "seen": "texts of the fit" if seen else "held-out texts",
        "among": "all" if metrics["pairs"] <= row.batch else f"{row.batch:,}",
        "translator": row.translator,
        "seeds": seeds_of(metrics["seeds"]),
        "fitted_on": spaces[fit.source].corpus,
        "counted": counted(best.labels),
        **what_to_try(study, fit),
    }
    templates = [FOUND, RANKED] if best.aligned else [NOT_ALIGNED, FOUND, RANKED]
    for supervision, template in (("oracle", ORACLE), ("naive", NAIVE)):
        if rival := best_rival(every, best, supervision):
            slots |= {
                supervision: rival.row.translator,
                f"{supervision}_share": percent(rival.metrics["top1"]),
            }
            templates.append(template)
    if best.labels:
        templates.append(VERDICT if best.home else VERDICT_ELSEWHERE)
    if not best.aligned:
        templates.append(NEXT)
    picture = picture_path("evaluate", best.name, "spaces")
    return finding(templates, slots, picture, title(study, row.source, row.target))


def translations(study: Study) -> list[Measured]:
    """Return every row of `evaluate` that has results."""
    judged, spaces, fits, out = store.verdicts(), study.spaces(), study.translators(), []
    for name, (row, metrics) in measured(study, "evaluate").items():
        fit, corpus = fits[row.translator], spaces[row.source].corpus
        labels = verdicts(judged.get(row.translator, {}))
        home = {spaces[fit.source].corpus, spaces[fit.target].corpus} == {corpus}
        real = study.corpora[corpus].source != "synthetic"
        out.append(Measured(name, row, metrics, fit.supervision, labels, home, real))
    return out


def best_rival(every: list[Measured], best: Measured, supervision: str) -> Measured | None:
    """Return the best translator of another supervision on the same pairs."""

    def pairs(m: Measured) -> tuple:
        return m.row.source, m.row.target, m.row.split

    rivals = [m for m in every if pairs(m) == pairs(best) and m.supervision == supervision]
    return max(rivals, key=lambda m: m.metrics["top1"], default=None)


def judgement(study: Study) -> Finding | None:
    """The best verdict on unpaired translators of vectors that no true pairs measure."""
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
    templates = [JUDGED, ONLY_VERDICT]
    if labels["aligned"] or labels["partial"]:
        templates.append(READABLE)
    else:
        templates.append(NEXT)
    slots = {
        "corpus": of_corpus(study, source.corpus),
        "target": target.encoder,
        "translator": best,
        "counted": counted(labels),
        **what_to_try(study, fits[best]),
    }
    return finding(templates, slots, None, "Verdicts")


def what_to_try(study: Study, fit: Align) -> dict[str, Any]:
    """Return the slots of NEXT for a row of align."""
    collected, spaces = store.read_metrics("collect"), study.spaces()
    corpora = dict.fromkeys(spaces[side].corpus for side in (fit.source, fit.target))
    settings = ["more `restarts`", "known `pairs`"]
    if getattr(fit.settings, "match_in", None) == "target":
        settings.insert(1, "`match_in: smaller`")
    if fit.aligner == "wasserstein_procrustes" and fit.settings.repeats < WIDE:
        settings.insert(0, f"`repeats: {WIDE}`")
    return {
        "rows": " and ".join(f"{collected.get(c, {}).get('rows', 0):,} of {c}" for c in corpora),
        "enough": ENOUGH,
        "settings": ", ".join(settings),
    }
