"""The finding about translation: how many texts are found again without pairs, and what the verdict said."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from pipelines.pages import drawing
from pipelines.pages.findings.finding import Finding, counted, of_corpus, picture, several, verdicts
from pipelines.pages.page import slug
from pipelines.pages.tables import ENOUGH, percent
from pipelines.pages.tables.translation import title, unmeasured
from pipelines.runtime import store
from pipelines.study import Evaluate, params


class Measured(NamedTuple):
    """A row of evaluate: what it measured, and how its translator was judged."""

    name: str
    row: Evaluate
    metrics: dict[str, Any]
    words: Counter[str]  # verdicts of the translator's seeds
    home: bool  # measured on the corpus that it was fitted on, which its verdict is about
    real: bool

    @property
    def aligned(self) -> bool:
        return self.words["aligned"] * 2 > self.words.total()


def translations(study: params.Study) -> list[Measured]:
    """Every row of evaluate that has been run."""
    measured, judged, spaces, fits = (
        store.read_metrics("evaluate"),
        store.verdicts(),
        study.spaces(),
        study.translators(),
    )
    out = []
    for name, row in study.evaluate.items():
        if name in measured:
            fit, corpus = fits[row.translator], spaces[row.source].corpus
            home = {spaces[fit.source].corpus, spaces[fit.target].corpus} == {corpus}
            real = study.corpora[corpus].source != "synthetic"
            out.append(
                Measured(name, row, measured[name], verdicts(judged.get(row.translator, {})), home, real)
            )
    return out


def translation(study: params.Study) -> Finding | None:
    """The unpaired translator to trust, beside an oracle and the untranslated vectors of the same pair and corpus."""
    every, fits = translations(study), study.translators()
    unpaired = [m for m in every if fits[m.row.translator].supervision == "unpaired"]
    if not unpaired:
        return None
    best = max(unpaired, key=lambda m: (m.home, m.aligned, m.real, m.metrics["top1"]))
    row, fit, (source, target) = best.row, fits[best.row.translator], drawing.encoders(study, best.row)
    pairs, seeds = best.metrics["pairs"], best.metrics["seeds"]
    seen = best.home and (row.split is None or row.split in (fit.splits or ("train",)))
    sentences = [] if best.aligned else ["No unpaired translator is judged aligned."]
    corpus = of_corpus(study, study.spaces()[row.source].corpus)
    sentences.append(
        f"Of {pairs:,} texts of {corpus}{'' if seen else ', never seen by the aligner'}, {percent(best.metrics['top1'])} are "
        f"found again at rank 1 among {'all' if pairs <= row.batch else f'{row.batch:,}'} when their {source} vectors are "
        f"translated to {target} without a single pair ({row.translator}, {several(seeds, 'seed', 'mean of ')})."
    )
    if rivals := beside(study, every, best):
        sentences.append(rivals)
    if best.words:
        where = "" if best.home else f" on {study.spaces()[fit.source].corpus}, where it was fitted"
        sentences.append(
            f"The verdict, which sees no pair, says{where}: {counted(best.words)}.{others(unpaired)}"
        )
    return Finding(
        " ".join(sentences),
        picture("evaluate", best.name, "spaces"),
        slug(title(study, row.source, row.target)),
    )


def judgement(study: params.Study) -> Finding | None:
    """Of unpaired translators of vectors that no true pairs measure, the one judged best: all that is known of vectors without
    texts."""
    fits, spaces, measured = (
        study.translators(),
        study.spaces(),
        {row.source for row in study.evaluate.values()},
    )
    judged = {
        name: metrics
        for name, metrics in unmeasured(study).items()
        if fits[name].supervision == "unpaired" and fits[name].source not in measured
    }
    if not judged:
        return None
    best = max(judged, key=lambda name: (judged[name]["aligned"], judged[name]["verdict"]))
    words = verdicts(judged[best])
    corpora = [spaces[side].corpus for side in (fits[best].source, fits[best].target)]
    sentences = [
        f"Vectors of {of_corpus(study, corpora[0])} were translated to {spaces[fits[best].target].encoder} without a single pair "
        f"({best}). No true pairs are there to measure it; the verdict, which needs none, says: {counted(words)}."
    ]
    rows = [store.read_metrics("collect").get(corpus, {}).get("rows", 0) for corpus in corpora]
    if words["aligned"]:
        sentences.append(
            "Whoever has these vectors, and texts of that kind, can read them: an audit says how much."
        )
    elif min(rows) < 2 * ENOUGH:
        there = " and ".join(f"{n:,} of {corpus}" for n, corpus in zip(rows, corpora, strict=True))
        sentences.append(
            f"There are {there}; a fit that sees {ENOUGH:,} on either side, half of what is there, mostly works."
        )
    return Finding(" ".join(sentences), None, "verdicts")


def beside(study: params.Study, every: list[Measured], best: Measured) -> str:
    """`With pairs, oracle-orthogonal reaches 97 % (ORACLE); untranslated vectors reach 0.0 %.`"""
    place = (best.row.source, best.row.target, best.row.split)
    said, fits = [], study.translators()
    for supervision, words in (
        ("oracle", "with pairs, {} reaches {} (ORACLE)"),
        ("naive", "untranslated vectors reach {1}"),
    ):
        rivals = [
            m
            for m in every
            if (m.row.source, m.row.target, m.row.split) == place
            and fits[m.row.translator].supervision == supervision
        ]
        if rivals:
            rival = max(rivals, key=lambda m: m.metrics["top1"])
            said.append(words.format(rival.row.translator, percent(rival.metrics["top1"])))
    sentence = "; ".join(said)
    return f"{sentence[0].upper()}{sentence[1:]}." if said else ""


def others(unpaired: list[Measured]) -> str:
    """Of all translators that were judged on the corpus measured on, where there are several: does the verdict agree with true
    pairs?"""
    by_translator = {
        m.row.translator: m for m in reversed(unpaired) if m.home and m.words
    }  # of several rows the first
    if len(by_translator) < 2:
        return ""
    words = sum((m.words for m in by_translator.values()), Counter())
    shares: dict[str, list[float]] = {"aligned": [], "not aligned": []}
    verdicts_of = store.verdicts()
    for m in by_translator.values():
        judged = verdicts_of[m.row.translator]["by seed"]
        for seed, top1 in store.read_csv(store.seeds_path(m.name)).select("seed", "top1").iter_rows():
            shares["aligned" if judged[str(seed)]["label"] == "aligned" else "not aligned"].append(top1)
    ranges = [f"those {kind} find {percent(min(v))} to {percent(max(v))}" for kind, v in shares.items() if v]
    return f" All {len(by_translator)} unpaired translators of the study: {counted(words)}; {', '.join(ranges)} at rank 1."
