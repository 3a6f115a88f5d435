"""invert: texts from translated vectors, beside the ceiling (true target vectors) and the floors (mismatched vectors,
no vector)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from pipelines import params, querying, stage, store, track
from pipelines.errors import BadInput
from pipelines.inverters import Space, decoder, hub, retrieval, search
from pipelines.inverters.judge import judge
from pipelines.measures import facts, mean_and_error
from pipelines.measures.inversion import text_scores

JUDGED = Path(".cache/judge")


@dataclass(frozen=True)
class Attacker:
    """All that the attacker has: own texts with their target vectors, what was learnt from them, and the encoder to query."""

    space: Space
    known: Tensor  # (m, e) unit
    texts: list[str]
    inverter: Any
    corrector: decoder.Decoder | None
    queries: search.Queries


@dataclass(frozen=True)
class Victim:
    """What is attacked, and what only the measuring may see."""

    ids: list[str]
    texts: list[str]
    facts: list[dict[str, list[str]]]
    translated: Tensor  # (n, e)
    target: Tensor  # (n, e), the ceiling


def invert(name: str, row: params.Invert, study: params.Study, run: track.Run) -> None:
    """Learn on the attacker's texts, invert, correct, measure."""
    victim = attacked(name, row)
    for path in (store.embeddings_path(row.source), store.embeddings_path(row.attacker)):
        run.input(path, "vectors")
    with store.work("invert", name, row, store.digest(store.embeddings_path(row.attacker))) as folder:
        attacker = prepare(name, row, victim.texts, querying.encoder(study, row.encoder), folder, run)
        frames = attack(attacker, victim, row)
        table = measured(frames, victim, attacker, row)
        store.write_scores(f"invert-{name}", table)
        metrics = summary(table, victim, attacker)
        store.write_metrics("invert", name, metrics)
    run.log(metrics)
    shown = table.filter((pl.col("attack") != "prior") & (pl.col("method") != "generated"))
    run.table(shown.sort("id").head(120).to_dicts(), "examples.json")


def attacked(name: str, row: params.Invert) -> Victim:
    """The attacked texts, drawn with the row's seed, their facts, and their vectors by the first seed's translator."""
    source, target = store.read_embeddings(row.source), store.read_embeddings(row.target)
    store.same_texts(source, target)
    corpus = store.read_corpus(row.corpus)
    if list(source.ids) != corpus["id"].to_list():
        raise BadInput(f"invert.{name}: the ids of {row.source} are not those of corpus {row.corpus}")
    rows = source.rows(row.split)
    if len(rows) < 2:
        raise BadInput(f"invert.{name}: {row.source} has {len(rows)} rows of split {row.split!r}; two are needed")
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(row.seed))[: row.texts]]
    translator = next(iter(store.read_translators(row.translator).values()))
    with torch.inference_mode():
        translated = translator(source.vectors[rows])
    some = corpus[rows.tolist()]
    return Victim(some["id"].to_list(), some["text"].to_list(), known_facts(name, row, some), translated, target.vectors[rows])


def known_facts(name: str, row: params.Invert, corpus: pl.DataFrame) -> list[dict[str, list[str]]]:
    """Of each text: the planted facts (columns of lists), or what patterns find where nothing was planted."""
    columns = list(row.facts) or [c for c, t in corpus.schema.items() if t == pl.List(pl.String) and c != "labels"]
    if missing := [c for c in columns if c not in corpus.columns]:
        raise BadInput(f"invert.{name}: corpus {row.corpus} has no column {missing[0]!r} of facts")
    if not columns:
        return [facts.annotate(text) for text in corpus["text"]]
    return [{c: own[c] or [] for c in columns} for own in corpus.select(columns).to_dicts()]


def prepare(name: str, row: params.Invert, secret: list[str], encode: querying.Encode, folder: Path, run: track.Run) -> Attacker:
    """Train on the attacker's texts, without any that is attacked. Raises BadInput when none are left."""
    embeddings, corpus = store.read_embeddings(row.attacker), store.read_corpus(row.attacker_corpus, ["id", "text"])
    if list(embeddings.ids) != corpus["id"].to_list():
        raise BadInput(f"invert.{name}: the ids of {row.attacker} are not those of corpus {row.attacker_corpus}")
    hidden, every = set(secret), corpus["text"].to_list()
    rows = [i for i in embeddings.rows(row.attacker_split).tolist() if every[i] not in hidden]
    if len(rows) < 2:
        raise BadInput(f"invert.{name}: {row.attacker} has {len(rows)} texts of split {row.attacker_split!r} to learn from")
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(row.seed + 1))[: row.known]
    rows = [rows[i] for i in order]
    texts, vectors = [every[i] for i in rows], embeddings.vectors[rows]
    space = Space.of(vectors)
    known, queries = space(vectors), search.Queries(encode, space)
    inverter = learnt(row, known, texts, folder, run)
    corrector = None
    if row.search.corrections and isinstance(inverter, decoder.Decoder):
        corrector = search.train_corrector(inverter, known, texts, queries, row.inverter, row.seed)
    return Attacker(space, known, texts, inverter, corrector, queries)


def learnt(row: params.Invert, known: Tensor, texts: list[str], folder: Path, run: track.Run) -> Any:
    """The trained inverter; a killed run finds it in `folder`."""
    kept = folder / "inverter.pt"
    if isinstance(row.inverter, hub.Settings):
        return hub.train(known, texts, row.inverter, row.seed, run.log)
    if kept.exists():
        return decoder.load(kept)
    model = decoder.train(known, texts, row.inverter, row.seed, run.log)
    decoder.save(model, kept)
    return model


def attack(attacker: Attacker, victim: Victim, row: params.Invert) -> list[tuple[str, str, list[str], float]]:
    """(attack, method, guesses, queries per text) of every attack by every method."""
    a, out = attacker, []
    vectors = {
        "translated": a.space(victim.translated),
        "ceiling": a.space(victim.target),
        "mismatched": a.space(victim.translated).roll(1, 0),
    }
    generator = torch.Generator().manual_seed(row.seed)
    for kind, given in vectors.items():
        drafts = search.first_guesses(a.inverter, given, generator)
        out.append((kind, "generated", [a.inverter.text(d) for d in drafts], 0.0))
        before = a.queries.count
        found = search.search(a.inverter, given, a.queries, row.search, row.seed, a.corrector)
        spent = (a.queries.count - before) / len(given)
        out.append((kind, "corrected", [a.inverter.text(g.draft) for g in found], spent))
        out.append((kind, "retrieved", [t[0] for t in retrieval.nearest(given, a.known, a.texts)], 0.0))
    if (blind := getattr(a.inverter, "blind", None)) is not None:
        given = blind.detach().expand(len(victim.texts), -1)
        drafts = a.inverter.propose(given, [search.EMPTY] * len(given), a.inverter.tokens, 1.0, generator)
        out.append(("prior", "generated", [a.inverter.text(d) for d in drafts], 0.0))
    return out


def measured(
    guesses: list[tuple[str, str, list[str], float]], victim: Victim, attacker: Attacker, row: params.Invert
) -> pl.DataFrame:
    """One row per attack, method and text: the guess, its scores, its facts.

    Queries made here are measuring, not attack.
    """
    true, frames, counted = attacker.space(victim.target), [], search.Queries(attacker.queries.encode, attacker.space)
    for kind, method, texts, queries in guesses:
        scores = text_scores(texts, victim.texts) | {"cosine": (counted(texts) * true).sum(1)}
        found = facts.check(texts, victim.facts)
        got: list[list[str]] = [[] for _ in texts]
        for one in found:
            if one.recovered:
                got[one.example].append(f"{one.kind}: {one.fact}")
        columns: dict[str, Any] = {
            "id": victim.ids, "attack": kind, "method": method, "text": victim.texts, "guess": texts, "facts": got,
            "recoverable": [sum(map(len, own.values())) for own in victim.facts], "queries": queries,
        }  # fmt: skip
        if row.judge is not None:
            columns["judged"] = judge(victim.texts, texts, row.judge, JUDGED)
        frames.append(pl.DataFrame({**columns, **{k: v.double().numpy() for k, v in scores.items()}}))
    return pl.concat(frames)


def summary(table: pl.DataFrame, victim: Victim, attacker: Attacker) -> dict[str, Any]:
    """Per attack and method: means and standard errors, queries per text, facts recovered of recoverable per kind."""
    out: dict[str, Any] = {"texts": len(victim.texts), "known": len(attacker.texts)}
    measures = ["token_f1", "bleu", "rouge_l", "exact", "cosine", *(["judged"] if "judged" in table.columns else [])]
    for (kind, method), part in table.group_by(["attack", "method"], maintain_order=True):
        own: dict[str, Any] = {"queries": part["queries"][0]}
        for m in measures:
            own[m], own[f"{m}_error"] = mean_and_error(torch.tensor(part[m].cast(pl.Float64).to_list()))
        own["facts"] = facts.counts(facts.check(part["guess"].to_list(), victim.facts))
        out.setdefault(str(kind), {})[str(method)] = own
    return out


def of_ceiling(metrics: dict[str, Any], method: str = "corrected") -> dict[str, float]:
    """Share of the ceiling that the translated vectors give: token F1, and facts recovered."""
    mine, best = metrics["translated"][method], metrics["ceiling"][method]
    got, could = mine["facts"]["all"]["recovered"], best["facts"]["all"]["recovered"]
    return {"token_f1": mine["token_f1"] / max(best["token_f1"], 1e-9), "facts": got / could if could else float("nan")}


def examples(table: pl.DataFrame, count: int) -> Sequence[dict[str, Any]]:
    """The texts of which most facts came back, with the guess: what a reader should see first."""
    own = table.filter((pl.col("attack") == "translated") & (pl.col("method") == "corrected"))
    return own.sort(pl.col("facts").list.len(), pl.col("token_f1"), descending=True).head(count).to_dicts()


if __name__ == "__main__":
    stage.main(invert)
