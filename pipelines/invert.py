"""invert: texts from translated vectors, beside the ceiling (true target vectors) and the floors (mismatched vectors,
no vector)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from pipelines.aligners.core.translator import load_aligned, load_best
from pipelines.encoders import query
from pipelines.inverters import retrieval, search
from pipelines.inverters.attacker import Attacker, load
from pipelines.inverters.consensus import Voters, consensus, stating
from pipelines.inverters.judge import judge
from pipelines.inverters.vec2text import Vec2Text
from pipelines.measures import facts, mean_and_error
from pipelines.measures.intervals import difference
from pipelines.measures.inversion import text_scores
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Invert, params

JUDGED = Path(".cache/judge")


@dataclass(frozen=True)
class Victim:
    """What is attacked, and what only the measuring may see."""

    ids: list[str]
    texts: list[str]
    facts: list[dict[str, list[str]]]
    translated: Tensor  # (n, e)
    target: Tensor  # (n, e), the ceiling


def invert(name: str, row: Invert, study: params.Study, run: track.Run) -> None:
    """Invert, correct, measure."""
    device = resolve(row.device)
    attacker = load(store.intact(store.inverters_path(row.inverter)), device)
    encode = query.as_function(
        store.intact(store.encoder_path(row.encoder)), study.encoders[row.encoder], device
    )
    victim = attacked(name, row, set(attacker.texts))
    for path in (store.embeddings_path(row.source), store.embeddings_path(row.target)):
        run.input(path, "vectors")
    table = measured(
        attack(attacker, victim, encode, row), victim, search.Queries(encode, attacker.space), row
    )
    store.write_scores("invert", name, table)
    metrics = summary(table, victim) | {"known": len(attacker.texts)}
    store.write_metrics("invert", name, metrics)
    run.log({"inversion": metrics})
    shown = examples(table, 40)
    store.write_csv(store.examples_path(name), shown)
    if not study.private(
        row.corpus, study.inverters[row.inverter].corpus
    ):  # guesses are written from the attacker's texts
        run.table(shown.to_dicts(), "examples.json")


def attacked(name: str, row: Invert, known: set[str]) -> Victim:
    """The attacked texts, none of which the attacker knows, drawn with the row's seed, their facts, and their vectors by the
    chosen translator, or the mean of theirs by all that are aligned."""
    device = resolve(row.device)
    source, target = store.read_embeddings(row.source, device), store.read_embeddings(row.target, device)
    store.same_texts(source, target)
    corpus = store.read_corpus(row.corpus)
    if list(source.ids) != corpus["id"].to_list():
        raise BadInput(f"invert.{name}: the ids of {row.source} are not those of corpus {row.corpus}")
    texts = corpus["text"].to_list()
    rows = torch.tensor([i for i in source.rows(row.split).tolist() if texts[i] not in known])
    if len(rows) < 2:
        raise BadInput(
            f"invert.{name}: {len(rows)} rows of split {row.split!r} that the attacker does not know; two are needed"
        )
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(row.seed))[: row.texts]]
    folder = store.intact(store.translators_path(row.translator))
    best = row.seeds == "best"
    translators = (
        [load_best(folder, row.hub_correction)] if best else load_aligned(folder, row.hub_correction)
    )
    with torch.inference_mode():
        translated = torch.stack(
            [translator.to(device)(source.vectors[rows]) for translator in translators]
        ).mean(0)
    drawn = corpus[rows.tolist()]
    facts_of = known_facts(name, row, drawn)
    return Victim(drawn["id"].to_list(), drawn["text"].to_list(), facts_of, translated, target.vectors[rows])


def known_facts(name: str, row: Invert, corpus: pl.DataFrame) -> list[dict[str, list[str]]]:
    """Of each text: the planted facts (columns of lists), or what patterns find where nothing was planted."""
    columns = list(row.facts) or [
        c for c, t in corpus.schema.items() if t == pl.List(pl.String) and c != "labels"
    ]
    if missing := [c for c in columns if c not in corpus.columns]:
        raise BadInput(f"invert.{name}: corpus {row.corpus} has no column {missing[0]!r} of facts")
    if not columns:
        return [facts.annotate(text) for text in corpus["text"]]
    return [{c: text[c] or [] for c in columns} for text in corpus.select(columns).to_dicts()]


def attack(
    a: Attacker, victim: Victim, encode: query.Encode, row: Invert
) -> list[tuple[str, str, list[str], float]]:
    """(attack, method, guesses, queries per text) of every attack by every method; every attack pays for its own queries."""
    vectors = {
        "translated": victim.translated,
        "ceiling": victim.target,
        "mismatched": victim.translated.roll(1, 0),
    }
    out: list[tuple[str, str, list[str], float]] = []
    generator = torch.Generator().manual_seed(row.seed)
    voters = Voters(a.known, a.texts)
    for kind, raw in vectors.items():
        given = a.space(raw)
        near = retrieval.nearest(given, a.known, a.texts, row.search.near)
        first, corrected, queries = written(a, raw, near, encode, row, generator)
        out.append((kind, "generated", first, 0.0))
        peculiar = voters.peculiar(given, row.consensus)
        out.append((kind, "corrected", stating(corrected, peculiar, row.consensus), queries / len(given)))
        out.append((kind, "retrieved", [texts[0] for texts in near], 0.0))
        agreed = consensus(given, a.known, a.texts, row.consensus)
        out.append((kind, "consensus", stating(agreed, peculiar, row.consensus), 0.0))
    if not isinstance(a.inverter, Vec2Text) and (blind := getattr(a.inverter, "blind", None)) is not None:
        given = blind.detach().expand(len(victim.texts), -1)
        drafts = a.inverter.propose(given, [search.EMPTY] * len(given), a.inverter.tokens, 1.0, generator)
        out.append(("prior", "generated", [a.inverter.text(d) for d in drafts], 0.0))
    return out


def written(
    a: Attacker,
    raw: Tensor,
    near: list[list[str]],
    encode: query.Encode,
    row: Invert,
    generator: torch.Generator,
) -> tuple[list[str], list[str], int]:
    """First guesses and corrected ones for raw vectors (n, e), and the queries of the latter.

    vec2text's released weights read them raw, inverters learnt here centred and of unit length.
    """
    if isinstance(a.inverter, Vec2Text):
        queries = search.Queries(encode, lambda vectors: vectors.to(raw.device))
        first = a.inverter.invert(raw, queries, 0, 1)
        return first, a.inverter.invert(raw, queries, row.search.corrections, row.search.width), queries.count
    given, queries = a.space(raw), search.Queries(encode, a.space)
    first = [a.inverter.text(d) for d in search.first_guesses(a.inverter, given, generator)]
    found = search.search(a.inverter, given, queries, row.search, row.seed, a.corrector, near)
    return first, [a.inverter.text(g.draft) for g in found], queries.count


def measured(
    guesses: list[tuple[str, str, list[str], float]], victim: Victim, cosine: search.Queries, row: Invert
) -> pl.DataFrame:
    """One row per attack, method and text: the guess, its scores, its facts. Queries made here are measuring, not attack."""
    true, frames = cosine.space(victim.target), []
    for kind, method, texts, queries in guesses:
        scores = text_scores(texts, victim.texts) | {"cosine": (cosine(texts) * true).sum(1).cpu()}
        recovered: list[list[str]] = [[] for _ in texts]
        for fact in facts.check(texts, victim.facts):
            if fact.recovered:
                recovered[fact.example].append(f"{fact.kind}: {fact.fact}")
        columns: dict[str, Any] = {
            "id": victim.ids, "attack": kind, "method": method, "text": victim.texts, "guess": texts, "facts": recovered,
            "recoverable": [sum(map(len, planted.values())) for planted in victim.facts], "queries": queries,
        }  # fmt: skip
        if row.judge is not None:
            columns["judged"] = judge(victim.texts, texts, row.judge, JUDGED)
        columns |= {k: v.double().numpy() for k, v in scores.items()}
        frames.append(
            pl.DataFrame(columns, schema_overrides={"facts": pl.List(pl.String)})
        )  # polars: no type if none came back
    return pl.concat(frames)


def summary(table: pl.DataFrame, victim: Victim) -> dict[str, Any]:
    """Per attack and method: means and standard errors, queries per text, facts recovered of recoverable per kind."""
    out: dict[str, Any] = {"texts": len(victim.texts)}
    measures = [
        "token_f1",
        "set_f1",
        "bleu",
        "rouge_l",
        "exact",
        "cosine",
        *(["judged"] if "judged" in table.columns else []),
    ]
    for (kind, method), part in table.group_by(["attack", "method"], maintain_order=True):
        means: dict[str, Any] = {"queries": part["queries"][0]}
        for m in measures:
            means[m], means[f"{m}_error"] = mean_and_error(torch.tensor(part[m].cast(pl.Float64).to_list()))
        means["stated"] = sum(len(facts.stated(guess)) for guess in part["guess"]) / len(
            part
        )  # by pattern, right or wrong
        means["facts"] = facts.counts(facts.check(part["guess"].to_list(), victim.facts))
        out.setdefault(str(kind), {})[str(method)] = means
    for method in ("corrected", "consensus"):
        out.setdefault("of_ceiling", {})[method] = share(out["translated"][method], out["ceiling"][method])
        out.setdefault("above_floor", {})[method] = above_floor(
            out["translated"][method], out["mismatched"][method]
        )
    return out


def share(attack: dict[str, Any], best: dict[str, Any]) -> dict[str, float]:
    """Of what the ceiling reaches: token F1, and facts where it has any."""
    recovered, could = (side["facts"]["all"]["recovered"] for side in (attack, best))
    return {"token_f1": attack["token_f1"] / max(best["token_f1"], 1e-9)} | (
        {"facts": recovered / could} if could else {}
    )


def above_floor(attack: dict[str, Any], floor: dict[str, Any]) -> dict[str, float]:
    """Share of the facts that come back, less that from vectors of other texts, with its 95 % interval: what leaked."""
    ours, theirs = (side["facts"]["all"] for side in (attack, floor))
    if not ours["recoverable"]:
        return {}
    leak = difference(ours["recovered"], ours["recoverable"], theirs["recovered"], theirs["recoverable"])
    return {"facts": leak.value, "facts_low": leak.low, "facts_high": leak.high}


def examples(table: pl.DataFrame, count: int) -> pl.DataFrame:
    """The texts of which most facts came back, with the guess: what a reader should see first."""
    corrected = table.filter((pl.col("attack") == "translated") & (pl.col("method") == "corrected"))
    worst = corrected.sort(pl.col("facts").list.len(), pl.col("token_f1"), descending=True).head(count)
    return worst.with_columns(pl.col("facts").list.join("; "))


if __name__ == "__main__":
    stage.main(invert)
