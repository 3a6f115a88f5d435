"""Tables of corpora, and of translators measured on true pairs."""

from typing import Any, get_args

from pipelines.measures import retrieval, shown
from pipelines.measures.translation import MEASURES
from pipelines.pages.drawing import drawn
from pipelines.pages.tables import (
    block,
    by_keys,
    lower_is_better,
    measured,
    numbers,
    origin,
    percent,
    section,
    table,
)
from pipelines.runtime import store
from pipelines.study.params import Align, Study
from pipelines.study.translation import Supervision

RETRIEVAL = """Judged queries by the target's encoder search documents whose vectors were translated. *Kept*
is nDCG@10 as a share of that in documents embedded again. *Before* is nDCG@10 of queries and documents by the
source's encoder. Numbers of translations are means over seeds; ± is the standard error over queries."""
LEGEND = f"""± is the standard deviation over seeds, each with other halves and another fit. For one seed it
is the standard error over documents. No document is on both sides of an unpaired fit, unless its row says
*random halves*. A text is ranked among the texts of its batch, by default 8,192
held-out texts.
{lower_is_better(shown(MEASURES))} The verdict uses unpaired vectors of the fit alone: how many seeds are
`aligned`, the share of the source's vectors for which a map is right, and the mean score. It is about the
corpus of the fit, not about another corpus that is measured. All other columns use true pairs, after the
fit."""
UNMEASURED = """No true pairs measure these translators. Each fit sees a part of the vectors of either side,
or the splits that its row names. The verdict is its agreement with fits to other parts."""


def corpora_table(study: Study) -> list[str]:
    """Return one row per corpus."""
    rows = []
    for name, m in store.read_metrics("collect", study.corpora).items():
        sizes = [m["rows"], m["documents"], m["test"], f"{m['words']:.0f}", m["labels"] or ""]
        rows.append([name, origin(study, name), *sizes])
    header = ["corpus", "texts", "rows", "documents", "held out", "words per text", "own labels"]
    return ["## Corpora", "", *table(header, rows)]


def translation_table(study: Study) -> list[str]:
    """Return one block per pair of embeddings: unpaired translators first, then naive ones and oracles."""
    judged, spaces, fits, blocks = store.alignments(study), study.spaces(), study.translators(), []
    header = ["aligner", "trained on", "verdict", "test pairs", "seeds", *(m.title for m in shown(MEASURES))]
    order = get_args(Supervision)
    for (source, target), every in by_keys(study, "evaluate", "source", "target").items():
        names = sorted(every, key=lambda n: order.index(fits[every[n][0].translator].supervision))
        cells = []
        for name in names:
            row, metrics = every[name]
            translator = row.translator
            fit = fits[translator]
            fitted_on = " and ".join(study.corpora_of(fit))
            elsewhere = None if fitted_on == spaces[source].corpus else fitted_on
            about = [aligner_cell(translator, fit), fitted_on, verdict(judged.get(translator, {}), elsewhere)]
            cells.append([*about, metrics["pairs"], *seed_cells(name)])
        blocks += block(title(study, source, target), header, cells)
        blocks += drawn("evaluate", names[0], "spaces")
    return section("Translation", LEGEND, blocks)


def retrieval_table(study: Study) -> list[str]:
    """Return one row per translator that judged queries measure."""
    rows, measures = [], shown(retrieval.MEASURES)
    for name, (row, metrics) in measured(study, "evaluate").items():
        if found := metrics.get("retrieval"):
            beside = [numbers(measures, found[kind])[0] for kind in ("untranslated", "re-embedded", "before")]
            kept = percent(metrics["retention"]) if "retention" in metrics else ""
            rows.append([name, row.source, row.target, *numbers(measures, metrics), kept, *beside])
    titles = [m.title for m in measures]
    header = ["row", "from", "to", *titles, "kept", "untranslated", "re-embedded", "before"]
    return section("Retrieval", RETRIEVAL, ["", *table(header, rows)] if rows else [])


def seed_cells(name: str) -> list[str]:
    """Return the number of seeds, and `mean ± spread` of each measure."""
    seeds, measures = store.read_csv(store.seeds_path(name)), shown(MEASURES)
    [found] = seeds.mean().to_dicts()
    if len(seeds) > 1:
        found |= {f"{m.name}_error": seeds[m.name].std() for m in measures}
    return [str(len(seeds)), *numbers(measures, found)]


def verdict(metrics: dict[str, Any], elsewhere: str | None = None) -> str:
    """Format a translator's verdict: `4/5 aligned, share 0.99, 0.97`, or `fit on <elsewhere>: ...`."""
    if "verdict" not in metrics:
        return ""
    aligned = f"{metrics['aligned'] * metrics['seeds']:.0f}/{metrics['seeds']} aligned"
    if metrics.get("share"):
        aligned += f", share {metrics['share']:.2f}"
    return f"fit on {elsewhere}: {aligned}" if elsewhere else f"{aligned}, {metrics['verdict']:.2f}"


def aligner_cell(name: str, fit: Align) -> str:
    """Return a translator's name, how it was supervised, and whether documents are on both sides."""
    halves = ", random halves" if fit.halves == "rows" else ""
    return f"{name} ({fit.supervision}{halves})"


def title(study: Study, source: str, target: str) -> str:
    """Return the heading of a pair of embeddings."""
    return f"{source} -> {target} ({origin(study, study.spaces()[source].corpus)})"


def judged_table(study: Study) -> list[str]:
    """Return one row per translator that only its verdict judges."""
    fits, spaces, rows = study.translators(), study.spaces(), []
    collected = store.read_metrics("collect", study.corpora)
    for name, metrics in unmeasured(study).items():
        fit, seeds = fits[name], metrics["by seed"].values()
        sizes = [collected.get(spaces[side].corpus, {}).get("rows", "") for side in (fit.source, fit.target)]
        agreement = sum(seed["agreement"] for seed in seeds) / len(seeds)
        row = [aligner_cell(name, fit), fit.source, fit.target, *sizes]
        rows.append([*row, verdict(metrics), f"{agreement:.3f}"])
    header = ["aligner", "from", "to", "source vectors", "target vectors", "verdict", "agreement"]
    return section("Verdicts", UNMEASURED, ["", *table(header, rows)] if rows else [])


def unmeasured(study: Study) -> dict[str, dict[str, Any]]:
    """Return the verdicts of translators that no row of `evaluate` measures, by name."""
    evaluated, verdicts = {row.translator for row in study.evaluate.values()}, store.alignments(study)
    names = [name for name in study.translators() if name not in evaluated]
    return {name: verdicts[name] for name in names if "verdict" in verdicts.get(name, {})}


TABLES = (corpora_table, translation_table, retrieval_table, judged_table)
