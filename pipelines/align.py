"""align: vectors of one half of the texts and target vectors of the OTHER half -> data/translators/<row>/."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pipelines import params, stage, store, track
from pipelines.aligners.translator import save
from pipelines.errors import BadInput


@dataclass(frozen=True)
class Halves:
    """What an attacker has: vectors of two disjoint sets of texts."""

    source: Tensor  # (n, d)
    target: Tensor  # (m, e)
    pairs: Tensor | None  # (k, 2) indices into source and target of the same texts, where the row grants known pairs


def halves(source: store.Embeddings, target: store.Embeddings, row: params.Align, seed: int) -> Halves:
    """Draw two disjoint halves of the train texts; with `pairs: k`, append k texts to both sides.

    Of two different corpora each side still gets one half, so that a row's sizes do not depend on what it is paired with.
    """
    one_corpus = source.metadata.get("corpus") == target.metadata.get("corpus")
    if one_corpus:
        store.same_texts(source, target)
    rows_x, rows_y = _shuffled(source, "source", seed), _shuffled(target, "source" if one_corpus else "target", seed)
    shared = rows_x[: row.pairs] if one_corpus else rows_x[:0]
    if row.pairs > len(shared):
        raise BadInput(
            f"align: {row.pairs} known pairs asked for, but {source.name} and {target.name} share {len(shared)}"
        )
    middle_x, middle_y = (len(rows_x) + row.pairs) // 2, (len(rows_y) + row.pairs) // 2
    rows_x, rows_y = rows_x[row.pairs : middle_x][: row.limit], rows_y[middle_y:][: row.limit]
    if min(len(rows_x), len(rows_y)) < 2:
        raise BadInput(f"align: {source.name} and {target.name} have too few train rows to halve")
    k = torch.arange(row.pairs)
    pairs = torch.stack([len(rows_x) + k, len(rows_y) + k], 1) if row.pairs else None
    return Halves(source.vectors[torch.cat([rows_x, shared])], target.vectors[torch.cat([rows_y, shared])], pairs)


def paired_rows(
    source: store.Embeddings, target: store.Embeddings, row: params.Align, seed: int
) -> tuple[Tensor, Tensor]:
    """True pairs, for oracles only: as many as `halves` gives to each side."""
    store.same_texts(source, target)
    rows = _shuffled(source, "source", seed)
    rows = rows[: len(rows) // 2][: row.limit]
    return source.vectors[rows], target.vectors[rows]


def _shuffled(embeddings: store.Embeddings, salt: str, seed: int) -> Tensor:
    rows = embeddings.rows("train")
    key = hashlib.sha256(f"{salt}:{seed}".encode()).digest()[:7]  # two corpora: two independent permutations
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(int.from_bytes(key, "big")))]


def align(name: str, row: params.Align, study: params.Study, run: track.Run) -> None:
    """Fit one translator per seed."""
    source, target = store.read_embeddings(row.source), store.read_embeddings(row.target)
    run.input(store.embeddings_path(row.source), "source")
    run.input(store.embeddings_path(row.target), "target")
    fit = _fitter(row, source, target)
    with store.work("align", name, row, source.metadata, target.metadata) as folder:
        for seed in row.seeds:
            done = folder / f"seed-{seed}.json"
            if not done.exists():  # written last: a killed run continues at the seed it was at
                save(fit(seed, run), done.with_suffix(""))
        store.move_into(folder, store.translators_path(name))


def _fitter(row: params.Align, source: store.Embeddings, target: store.Embeddings) -> Callable:
    """(seed, run) -> translator, with oracles and unpaired aligners told apart by the name of their function."""
    module = params.aligner_module(row.aligner)

    def oracle(seed: int, run: track.Run):
        return module.fit_oracle(*paired_rows(source, target, row, seed), row.settings, seed)

    def unpaired(seed: int, run: track.Run):
        data = halves(source, target, row, seed)
        log = partial(_log, run, "" if len(row.seeds) == 1 else f"seed-{seed}/")
        return module.fit(data.source, data.target, row.settings, seed, data.pairs, log)

    return oracle if hasattr(module, "fit_oracle") else unpaired


def _log(run: track.Run, prefix: str, metrics: dict[str, float], step: int) -> None:
    run.log({prefix + k: v for k, v in metrics.items()}, step)


if __name__ == "__main__":
    stage.main(align)
