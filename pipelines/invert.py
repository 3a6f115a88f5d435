"""invert: write texts from translated vectors, and measure what they give away of the true texts.

translated    the attack
ceiling       the same attack on the true target vectors
mismatched    a floor: each text is compared with the guess that `translated` made for another text
prior         a floor: a decoder writes without a vector
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from pipelines.aligners.core.translator import load_aligned, load_best
from pipelines.encoders import query
from pipelines.inverters import Queries
from pipelines.inverters.attacker import Attacker, load
from pipelines.inverters.consensus import consensus, peculiar_facts, stating
from pipelines.inverters.decoder import Decoder
from pipelines.inverters.judge import judge
from pipelines.inverters.search import search
from pipelines.inverters.vec2text import Vec2Text
from pipelines.measures import facts, numbered, summary
from pipelines.measures.facts import Found
from pipelines.measures.inversion import text_scores
from pipelines.measures.vectors import shuffled
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress
from pipelines.study import Invert, params

JUDGED = Path(".cache/judge")  # answers of the optional judge
EXAMPLES = 40  # guesses that are written for readers


@dataclass(frozen=True)
class Victim:
    """The attacked texts. The attack sees `translated` only; the rest is for measuring."""

    ids: list[str]
    documents: list[str]  # the document of each text, such as a mail: texts of one are not independent
    texts: list[str]
    facts: list[dict[str, list[str]]]  # by kind
    translated: Tensor  # (n, e)
    target: Tensor  # (n, e), the ceiling


@dataclass(frozen=True)
class Guesses:
    """The texts that one method wrote in one attack.

    generated     the inverter's first guess
    corrected     the guess after corrections that query the encoder, with facts added
    retrieved     the nearest of the attacker's texts
    consensus     of the attacker's nearest texts the one most like the others, with facts added
    """

    attack: str  # translated | ceiling | mismatched | prior
    method: str
    texts: list[str]
    queries: float = 0.0  # per text


def invert(name: str, row: Invert, study: params.Study, run: track.Run) -> None:
    """Attack, measure, write metrics and examples. A killed run starts over."""
    attacker = load(intact.checked(store.inverters_path(row.inverter)), resolve(row.device))
    folder = intact.checked(store.encoder_path(row.encoder))
    encode = query.as_function(folder, study.encoders[row.encoder], attacker.known.device)
    generated = study.corpora[row.corpus].source == "synthetic"
    victim = draw_victim(name, row, attacker, run, generated)
    guesses = attack(attacker, victim, encode, row)
    metrics, table = measured(guesses, victim, attacker.texts, Queries(encode, attacker.space), row)
    store.write_metrics("invert", name, metrics)
    run.log({"inversion": metrics})
    store.write_csv(store.examples_path(name), table)


# ---------------------------------------------------------------- what is attacked


def draw_victim(name: str, row: Invert, attacker: Attacker, run: track.Run, planted: bool) -> Victim:
    """Draw the attacked texts with the row's seed, and translate their vectors.

    Texts that the attacker knows are left out. A translator fitted on other texts shifts the mean. So add one
    vector to all translations, so that their mean over the split equals the mean of the attacker's vectors.
    With `seeds: aligned`, each vector is the mean of its translations by all aligned translators. planted:
    whether the texts have planted facts. Raises BadInput for fewer than two texts.
    """
    device = attacker.known.device
    source, target = run.partners(row.source, row.target, device=device)
    corpus = store.read_texts(source, row.corpus)
    known = corpus["text"].is_in(attacker.texts).to_torch()
    split = source.rows(row.split)
    rows = split[~known[split]]
    if len(rows) < 2:
        raise BadInput(
            f"invert.{name}: split {row.split!r} has {len(rows)} texts that the attacker does not know; "
            "two are needed"
        )
    rows = rows[shuffled(len(rows), row.seed)[: row.texts]]
    folder = intact.checked(store.translators_path(row.translator))
    fits = load_aligned(folder) if row.seeds == "aligned" else [load_best(folder)]

    def translated(rows: Tensor) -> Tensor:
        return torch.stack([fit.to(device)(source.vectors[rows]) for fit in fits]).mean(0)

    drawn = corpus[rows.tolist()]
    with torch.inference_mode():
        vectors = translated(rows) - translated(split).mean(0) + attacker.space.mean
    return Victim(
        ids=drawn["id"].to_list(),
        documents=source.documents[rows.numpy()].tolist(),
        texts=drawn["text"].to_list(),
        facts=facts_of(drawn, planted),
        translated=vectors,
        target=target.vectors[rows],
    )


def facts_of(corpus: pl.DataFrame, planted: bool) -> list[dict[str, list[str]]]:
    """Return the facts of each text by kind: those planted in generated texts, or else by pattern."""
    columns = [c for c, t in corpus.schema.items() if planted and t == pl.List(pl.String) and c != "labels"]
    if not columns:
        return [facts.annotate(text) for text in corpus["text"]]
    rows = corpus.select(columns).to_dicts()
    return [{kind: [fact for fact in of_kind or [] if fact] for kind, of_kind in row.items()} for row in rows]


# ---------------------------------------------------------------- attack


def attack(attacker: Attacker, victim: Victim, encode: query.Encode, row: Invert) -> list[Guesses]:
    """Return the guesses of every attack by every method. Each attack counts its own queries."""
    vectors = {"translated": victim.translated, "ceiling": victim.target}
    out: list[Guesses] = []
    stated = [facts.stated(text) for text in attacker.texts]
    count = row.consensus.facts  # of facts added to a guess
    for name, raw in progress(vectors.items(), what="invert", unit="attacks"):
        given = attacker.space(raw)
        near = attacker.nearest(given, row.search.texts_needed)
        first, corrected, queries = written(attacker, raw, given, near, encode, row)
        peculiar = peculiar_facts(given, attacker.known, stated)
        agreed = consensus(given, attacker.known, attacker.texts)
        out += [
            Guesses(name, "generated", first),
            Guesses(name, "corrected", stating(corrected, peculiar, count), queries / len(given)),
            Guesses(name, "retrieved", [texts[0] for texts in near]),
            Guesses(name, "consensus", stating(agreed, peculiar, count)),
        ]
    for g in [g for g in out if g.attack == "translated"]:  # row i: the guess from the vector of text i - 1
        out.append(replace(g, attack="mismatched", texts=[g.texts[-1], *g.texts[:-1]]))
    if isinstance(attacker.inverter, Decoder):
        blind = attacker.inverter.blind.detach().expand(len(victim.texts), -1)
        drafts = attacker.inverter.propose(blind, torch.Generator().manual_seed(row.seed), 1.0)
        out.append(Guesses("prior", "generated", [attacker.inverter.text(draft) for draft in drafts]))
    return out


def written(
    attacker: Attacker, raw: Tensor, given: Tensor, near: list[list[str]], encode: query.Encode, row: Invert
) -> tuple[list[str], list[str], int]:
    """Return first guesses for raw vectors (n, e), corrected guesses, and the number of queries.

    First guesses need no query. vec2text's released weights read raw vectors. Inverters trained here read
    `given` (n, e), which are centred and of unit length.
    """
    inverter, s = attacker.inverter, row.search
    if isinstance(inverter, Vec2Text):
        queries = Queries(encode, lambda vectors: vectors.to(raw.device))
        first = inverter.invert(raw, queries, 0, 1)
        return first, inverter.invert(raw, queries, s.corrections, s.width), queries.count
    queries = Queries(encode, attacker.space)
    drafts, found = search(inverter, given, queries, s, row.seed, attacker.corrector, near)
    first = [inverter.text(draft) for draft in drafts]
    return first, [inverter.text(guess.draft) for guess in found], queries.count


# ---------------------------------------------------------------- measures


def measured(
    guesses: list[Guesses], victim: Victim, known: list[str], embed: Queries, row: Invert
) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return the metrics and the examples.

    {attack: {method: ...}} has means and errors of the scores, queries and facts. `texts`, `documents` and
    `known` are counts. Recovered facts are counted by kind. known: the attacker's texts. `embed` serves to
    compute cosines: its queries are not counted.
    """
    true, documents = embed.space(victim.target), numbered(victim.documents)
    unknown, by_kind, table = facts.unknown_to(known, victim.facts), {}, pl.DataFrame()
    out: dict[str, Any] = {"texts": len(victim.texts), "documents": len(set(victim.documents))}
    for g in progress(guesses, what="measure", unit="methods"):
        found = facts.check(g.texts, victim.facts)
        by_kind[g.attack, g.method] = facts.by_kind(found, unknown)
        scores = text_scores(g.texts, victim.texts) | {
            "cosine": (embed(g.texts) * true).sum(1).double().cpu()
        }
        if row.judge is not None:
            scores["judged"] = torch.tensor(judge(victim.texts, g.texts, row.judge, JUDGED))
        if (g.attack, g.method) == ("translated", "corrected"):
            table = examples(g, scores, found, victim)
        numbers = summary({name: score.float() for name, score in scores.items()}, documents)
        out.setdefault(g.attack, {})[g.method] = numbers | {
            "queries": g.queries,
            "stated": sum(len(facts.stated(text)) for text in g.texts) / len(g.texts),  # right or wrong
            "facts": facts.counts(by_kind[g.attack, g.method]),
        }
    for name, method in by_kind:
        if name in ("translated", "ceiling"):
            counts, floor = out[name][method]["facts"], by_kind["mismatched", method]
            add_above_floor(counts, by_kind[name, method], floor, victim)
    return out | {"known": len(known)}, table


def add_above_floor(
    counts: dict[str, Any], found: dict[str, list[Found]], floor: dict[str, list[Found]], victim: Victim
) -> None:
    """Add to the counts of each kind of fact the share that is recovered above the floor."""
    for kind, of_kind in found.items():
        if of_kind:
            above = facts.above_floor(of_kind, floor[kind], victim.documents)
            counts[kind] |= {"above_floor": above.value, "low": above.low, "high": above.high}


def examples(g: Guesses, scores: dict[str, Tensor], found: list[Found], victim: Victim) -> pl.DataFrame:
    """Return the EXAMPLES texts with most recovered facts, and what was written for them."""
    recovered: list[list[str]] = [[] for _ in g.texts]
    for fact in found:
        if fact.recovered:
            recovered[fact.example].append(f"{fact.kind}: {fact.fact}")
    columns = {"id": victim.ids, "attack": g.attack, "method": g.method, "text": victim.texts}
    columns |= {"guess": g.texts, "facts": recovered, "queries": g.queries}
    columns |= {name: score.numpy() for name, score in scores.items()}
    # Without the type, polars finds none in a column of empty lists.
    table = pl.DataFrame(columns, schema_overrides={"facts": pl.List(pl.String)})
    worst = table.sort(pl.col("facts").list.len(), "token_f1", descending=True).head(EXAMPLES)
    return worst.with_columns(pl.col("facts").list.join("; "))


if __name__ == "__main__":
    stage.main(invert)
