"""Tables of attributes and texts that were read from translated vectors."""

from typing import Any

from pipelines.measures import inversion, shown
from pipelines.measures.attributes import measures
from pipelines.measures.facts import UNKNOWN
from pipelines.measures.intervals import Interval, difference
from pipelines.pages.drawing import drawn
from pipelines.pages.tables import block, escaped, measured, numbers, origin, points, section, table
from pipelines.runtime import store
from pipelines.study import Attributes, Invert
from pipelines.study.params import Study

VECTORS = {
    "ideal source": "ideal source (oracle)",
    "ideal target": "ideal target (oracle)",
    "ceiling": "ceiling (oracle)",
    "mismatched": "mismatched (floor)",
    "prior": "no vector (floor)",
    "majority": "majority (floor)",
}
ATTACKS = ("translated", "ceiling", "mismatched", "prior")
SHOWN = 5  # examples
INTERVAL = """*Above the floor* is the difference in points with its 95 % interval: the wider one of
Newcombe's (1998, method 10), which takes texts or facts as independent, and of one that takes documents as
independent. If the interval is not wholly above 0, no leak is claimed."""
ATTRIBUTES_LEGEND = f"""Zero-shot: the labels whose own vectors are nearest. *Ideal* uses vectors that no
attacker has; *naive* uses the untranslated ones. *Majority*, the floor, knows only which labels are common.
Mean ± standard error over documents; translated vectors are averaged over seeds. Lower is better for ranks.
{INTERVAL}"""
INVERSION_LEGEND = f"""Texts written from vectors alone. The *ceiling* inverts true target vectors. What a
*floor* recovers, too (the vector of another text, or no vector), is no leak. *Generated* is the inverter's
first guess. *Corrected* is the best text of a search that starts from it, often from others, too, and queries
the encoder. *Retrieved* is the nearest of the attacker's own texts; *consensus* is the one that the nearest
agree on. A row may add facts to the *corrected* text and to the *consensus*. Mean ± standard error over
documents. Facts are recovered/recoverable. Facts beyond the tokens that the encoder reads count as
recoverable, too. *Facts stated* counts those in a guess, right or wrong. Facts *{UNKNOWN}* cannot be copied
from there.
{INTERVAL}"""


def attack_title(study: Study, verb: str, name: str, row: Attributes | Invert) -> str:
    supervision = study.translators()[row.translator].supervision
    by = f"{row.translator} ({supervision})"
    return f"{verb} {name}: {row.source} -> {row.target} by {by} ({origin(study, row.corpus)})"


def attributes_table(study: Study) -> list[str]:
    """Return one block per row: the scores of every wording of the labels, for every kind of vectors."""
    blocks = []
    for name, (row, metrics) in measured(study, "attributes").items():
        columns, rows = shown(measures(row.k)), []
        for wording in row.wordings:
            for method, scores in metrics[wording].items():
                leaks = [""] * len(row.k)
                if method == "translated":
                    leaks = [points(labels_above_floor(metrics, wording, k)) for k in row.k]
                rows.append([wording, VECTORS.get(method, method), *leaks, *numbers(columns, scores)])
        above = [f"top-{k} above the floor" for k in row.k]
        header = ["labels as", "vectors", *above, *(m.title for m in columns)]
        size = f"{metrics['examples']} texts, {metrics['labels']} labels (column `{row.labels}`)."
        blocks += block(attack_title(study, "attributes", name, row), header, rows, size, "")
        blocks += drawn("attributes", name, "floor")
    return section("Attributes", ATTRIBUTES_LEGEND, blocks)


def labels_above_floor(metrics: dict[str, Any], wording: str, k: int) -> Interval:
    """Return top-k of translated vectors less that of the commonest labels."""
    n, top = metrics["examples"], f"top{k}"
    attack, floor = (metrics[wording][method] for method in ("translated", "majority"))
    by_text = difference(attack[top] * n, n, floor[top] * n, n)
    by_document = by_text.widened(attack[f"{top}_above_floor_error"], metrics["documents"])
    return by_document.within(-1, 1)


def inversion_table(study: Study) -> list[str]:
    """Return one block per row: every attack by every method, and facts that correction recovers, by kind."""
    blocks = []
    for name, (row, metrics) in measured(study, "invert").items():
        attacks = {attack: metrics[attack] for attack in ATTACKS if attack in metrics}
        columns, rows = shown(inversion.MEASURES), []
        for attack, methods in attacks.items():
            for method, scores in methods.items():
                leak = points(facts_above_floor(metrics, method, attack))
                facts = [leak, recovered(scores["facts"]["all"]), f"{scores['stated']:.1f}"]
                cells = [*facts, *numbers(columns, scores), f"{scores['queries']:.0f}"]
                rows.append([VECTORS.get(attack, attack), method, *cells])
        header = ["vectors", "method", "above the floor", "facts recovered", "facts stated a text"]
        header += [*(m.title for m in columns), "queries a text"]
        released = study.inverters[row.inverter].released
        learnt = "released weights" if released else f"trained on {metrics['known']} others"
        size = f"{metrics['texts']} texts; the inverter: {learnt}."
        blocks += block(attack_title(study, "invert", name, row), header, rows, size, "")
        blocks += ["", *facts_by_kind(metrics, attacks), *drawn("invert", name, "floor")]
        if not study.private(row.corpus, study.inverters[row.inverter].corpus):
            blocks += ["", *examples(name, facts_above_floor(metrics))]
    return section("Inversion", INVERSION_LEGEND, blocks)


def facts_above_floor(
    metrics: dict[str, Any], method: str = "corrected", attack: str = "translated", kind: str = "all"
) -> Interval | None:
    """Return the share of facts that an attack recovers, less the share from vectors of other texts.

    None if there is no fact.
    """
    leak = metrics[attack][method]["facts"][kind]
    return Interval(leak["above_floor"], leak["low"], leak["high"]) if "low" in leak else None


def facts_by_kind(metrics: dict[str, Any], attacks: dict[str, Any]) -> list[str]:
    """Count the facts that correction recovers, by kind. By chance, one kind in forty is above its floor."""
    corrected = {a: scores["corrected"]["facts"] for a, scores in attacks.items() if "corrected" in scores}
    kinds = sorted(next(iter(corrected.values())), key=lambda kind: (kind == "all", kind == UNKNOWN, kind))
    rows = []
    for kind in kinds:
        leak = points(facts_above_floor(metrics, kind=kind))
        rows.append([kind, *(recovered(facts[kind]) for facts in corrected.values()), leak])
    header = [VECTORS.get(attack, attack) for attack in corrected]
    return table(["facts recovered, corrected", *header, "translated, above the floor"], rows)


def recovered(count: dict[str, int]) -> str:
    return f"{count['recovered']}/{count['recoverable']}"


def examples(name: str, leak: Interval | None) -> list[str]:
    """Show true texts and their guesses, the worst leaks first: the page says how they were chosen.

    leak: what correction recovers above the floor, None if there is no fact. Facts are listed only if this is
    above 0.
    """
    best = store.read_csv(store.examples_path(name), "text", "guess", "facts")
    columns = {"text": "text", "guess": "written from its vector"}
    if leak and leak.above_zero:
        columns["facts"] = "facts recovered"
        said = f"The {SHOWN} texts with the most recovered facts. The floor recovers part of these, too:"
    else:
        best = best.sort("token_f1", descending=True)
        most = f"the {SHOWN} whose guesses share most words with the true text."
        said = f"The texts have no facts. These are {most}"
        if leak:
            said = f"Of the {len(best)} texts with the most recovered facts, {most}"
            said += " No facts are listed: they are at floor level."
    rows = [[escaped(value or "") for value in row] for row in best.head(SHOWN)[list(columns)].iter_rows()]
    return [said, "", *table(columns.values(), rows)]


TABLES = (attributes_table, inversion_table)
