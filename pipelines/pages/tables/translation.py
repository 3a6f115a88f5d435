"""Corpora, and translators measured on true pairs."""

from __future__ import annotations

from typing import Any

from pipelines.pages.tables import DIGITS, origin, pictures, table
from pipelines.runtime import store
from pipelines.study import params

MEASURES = {
    "centred_cosine": "centred cosine",
    "top1": "top-1",
    "mean_rank": "mean rank",
    "foscttm": "FOSCTTM",
}


def corpora_table(study: params.Study) -> list[str]:
    """One line per corpus."""
    metrics = store.read_metrics("collect")
    rows = [
        [name, origin(row), m["rows"], m["test"], f"{m['words']:.0f}", m["labels"]]
        for name, row in study.corpora.items()
        if (m := metrics.get(name))
    ]
    return [
        "## Corpora",
        "",
        *table(["corpus", "texts", "rows", "held out", "words per text", "labels"], rows),
    ]


def translation_table(study: params.Study) -> list[str]:
    """One block per pair of embeddings measured on: every translator, unpaired first, then identity and the oracles."""
    lines = [
        "## Translation",
        "",
        "Mean over seeds ± spread (standard deviation) over seeds, or ± standard error of one seed. The verdict comes from",
        "unpaired vectors of the fit alone: how many seeds are `aligned`, and the mean score; of translators fit on another",
        "corpus it says nothing of the corpus measured on. All else comes from true pairs, afterwards.",
    ]
    judged, spaces, fits = store.verdicts(), study.spaces(), study.translators()
    pairs = dict.fromkeys((r.source, r.target) for r in study.evaluate.values())
    for source, target in pairs:
        corpus = spaces[source].corpus
        names = [
            n
            for n, r in study.evaluate.items()
            if (r.source, r.target) == (source, target) and store.seeds_path(n).exists()
        ]
        if not names:
            continue
        names.sort(key=lambda n: KINDS.index(fits[study.evaluate[n].translator].supervision))
        lines += ["", f"### {title(study, source, target)}", ""]
        rows = []
        for name in names:
            translator = study.evaluate[name].translator
            fit = fits[translator]
            fitted_on = spaces[fit.source].corpus
            cell = verdict(judged[translator], None if fitted_on == corpus else fitted_on)
            rows.append([f"{translator} ({fit.supervision})", fitted_on, cell, *measured(name)])
        lines += table(["aligner", "trained on", "verdict", "seeds", *MEASURES.values()], rows)
        lines += pictures("evaluate", names[0], "spaces.png")
    return lines if pairs else []


def judged_table(study: params.Study) -> list[str]:
    """Translators of which the verdict is all that is known: no row of `evaluate` measures them on true pairs."""
    verdicts, collected = unmeasured(study), store.read_metrics("collect")
    if not verdicts:
        return []
    fits, spaces, rows = study.translators(), study.spaces(), []
    for name, metrics in verdicts.items():
        words = [seed["label"] for seed in metrics["by seed"].values()]
        agreement = sum(seed["agreement"] for seed in metrics["by seed"].values()) / len(words)
        sizes = [
            collected.get(spaces[side].corpus, {}).get("rows", "")
            for side in (fits[name].source, fits[name].target)
        ]
        rows.append([f"{name} ({fits[name].supervision})", fits[name].source, fits[name].target, *sizes])
        rows[-1] += [verdict(metrics), f"{agreement:.3f}"]
    lines = [
        "## Verdicts",
        "",
        "Translators that no true pairs measure: a fit sees half of the vectors of each side, or the splits that its row names,",
        "and its agreement with fits to other halves is all that is known.",
        "",
    ]
    return lines + table(
        ["aligner", "from", "to", "vectors there", "and there", "verdict", "agreement"], rows
    )


def unmeasured(study: params.Study) -> dict[str, dict[str, Any]]:
    """What the verdict says of each translator without a row of `evaluate`, by name."""
    measured, verdicts = {row.translator for row in study.evaluate.values()}, store.verdicts()
    return {
        name: m
        for name in study.translators()
        if name not in measured and "verdict" in (m := verdicts.get(name, {}))
    }


def title(study: params.Study, source: str, target: str) -> str:
    """The heading of a pair of embeddings."""
    return f"{source} -> {target} ({origin(study.corpora[study.spaces()[source].corpus])})"


KINDS = ("unpaired", "few pairs", "naive", "oracle")


def verdict(metrics: dict[str, Any], elsewhere: str | None = None) -> str:
    """`4/5 aligned, 0.97`: of the seeds of a translator, from its metrics; `fit on <corpus>: 4/5 aligned` where it was judged
    `elsewhere`, on another corpus than the table's."""
    if "verdict" not in metrics:
        return ""
    aligned = f"{metrics['aligned'] * metrics['seeds']:.0f}/{metrics['seeds']} aligned"
    return f"fit on {elsewhere}: {aligned}" if elsewhere else f"{aligned}, {metrics['verdict']:.2f}"


def measured(name: str) -> list[str]:
    """Number of seeds, then `mean ± spread` for each measure."""
    seeds = store.read_csv(store.seeds_path(name))
    cells = [str(len(seeds))]
    for measure in MEASURES:
        digits = DIGITS.get(measure, 3)
        spread = seeds[measure].std() if len(seeds) > 1 else seeds[f"{measure}_error"][0]
        cells.append(f"{seeds[measure].mean():.{digits}f} ± {spread:.{digits}f}")
    return cells
