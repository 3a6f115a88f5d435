"""Draw the texts that a fit may see: disjoint sets for source and target, true pairs for oracles only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipelines.runtime import store
from pipelines.runtime.errors import BadInput
from pipelines.study import Align, AlignJointly


@dataclass(frozen=True)
class Halves:
    """What an attacker has: vectors of two disjoint sets of texts."""

    source: Tensor  # (n, d)
    target: Tensor  # (m, e)
    pairs: Tensor | None  # (k, 2) rows of source and target of the same texts, if the row grants known pairs
    shared: int = 0  # number of texts on both sides besides known pairs; must be 0


def halves(
    source: store.Embeddings, target: store.Embeddings, row: Align, seed: int, replicate: bool = False
) -> Halves:
    """Draw two disjoint halves of the train texts, or take the two splits that the row names.

    With `pairs: k`, append k texts to both sides. All rows of a document are on one side, except for these
    pairs. Each of two different corpora is halved, too, so that a row's sizes do not depend on the other
    corpus. All seeds see both splits whole. A replicate gets half of each, because it needs other texts.
    Raises BadInput for fewer than two vectors per side.
    """
    if one_corpus(source, target):
        store.same_texts(source, target)
    known = torch.empty(0, dtype=torch.int64)
    if row.splits:
        rows_x = _rows_of_split(source, row.splits[0], seed, replicate)
        rows_y = _rows_of_split(target, row.splits[1], seed, replicate)
    else:
        rows_x, rows_y, known = _rows_of_halves(source, target, row.pairs, seed)
    most_x, most_y = row.limits
    rows_x, rows_y = rows_x[:most_x], rows_y[:most_y]
    if min(len(rows_x), len(rows_y)) < 2:
        raise BadInput(f"align: {source.name} and {target.name} have too few train rows to halve")
    k = torch.arange(row.pairs)
    return Halves(
        source.vectors[torch.cat([rows_x, known])],
        target.vectors[torch.cat([rows_y, known])],
        torch.stack([len(rows_x) + k, len(rows_y) + k], 1) if row.pairs else None,
        _texts_on_both(source, target, rows_x, rows_y),
    )


def _rows_of_split(embeddings: store.Embeddings, split: str, seed: int, replicate: bool) -> Tensor:
    rows = shuffled(embeddings, "source", seed, split)
    parts = 2 if replicate else 1
    if len(rows) < 2 * parts:
        needed = "four" if replicate else "two"
        raise BadInput(
            f"align: {embeddings.name} has {len(rows)} rows of split {split!r}; {needed} are needed"
        )
    return rows[: len(rows) // parts]


def _rows_of_halves(
    source: store.Embeddings, target: store.Embeddings, pairs: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of the source, rows of the target, and rows of both that are known pairs."""
    same = one_corpus(source, target)
    order_x = shuffled(source, "source", seed)
    order_y = order_x if same else shuffled(target, "target", seed)
    common = len(order_x) if same else 0
    if pairs > common:
        raise BadInput(
            f"align: {pairs} known pairs asked for, but {source.name} and {target.name} share {common}"
        )
    first = boundary(source, order_x, pairs)
    middle_x = boundary(source, order_x, (len(order_x) + pairs) // 2)
    middle_y = middle_x if same else boundary(target, order_y, (len(order_y) + pairs) // 2)
    return order_x[first:middle_x], order_y[middle_y:], order_x[:pairs]


def _texts_on_both(source: store.Embeddings, target: store.Embeddings, rows_x: Tensor, rows_y: Tensor) -> int:
    """Count the texts of one corpus that are on both sides. Ids of two corpora may be equal by chance."""
    if not one_corpus(source, target):
        return 0
    return len(set(source.ids[rows_x.numpy()]) & set(target.ids[rows_y.numpy()]))


def paired_rows(
    source: store.Embeddings, target: store.Embeddings, row: Align, seed: int
) -> tuple[Tensor, Tensor]:
    """Return true pairs, for oracles only: as many as `halves` gives to the smaller side.

    If the row names splits, the pairs are of the first split, that of the dump.
    """
    store.same_texts(source, target)
    rows = shuffled(source, "source", seed, row.splits[0] if row.splits else "train")
    if not row.splits:
        rows = rows[: boundary(source, rows, len(rows) // 2)]
    rows = rows[: min((most for most in row.limits if most is not None), default=None)]
    return source.vectors[rows], target.vectors[rows]


def parts(
    spaces: Mapping[str, store.Embeddings], row: AlignJointly, seed: int, replicate: bool = False
) -> dict[str, Tensor]:
    """Divide the train texts among the spaces. Paired spaces count as one: they share all their texts.

    A space of a different corpus gets one part, too, so that its size does not depend on the other spaces. If
    the row names splits, each part is one split, or half of it for a replicate. Raises BadInput for fewer
    than two vectors.
    """
    groups = [[name] for name in spaces if name not in row.paired]
    if row.paired:
        groups.append([*row.paired])
    vectors, first = {}, spaces[groups[0][0]]
    for number, group in enumerate(groups):
        space, *others = (spaces[name] for name in group)
        same = one_corpus(first, space)
        for other in [*([first] if same else []), *others]:
            store.same_texts(other, space)
        salt = "source" if same else f"corpus {space.metadata.get('corpus')}"
        rows = shuffled(space, salt, seed, row.splits[number] if row.splits else "train")
        if not row.splits:
            start, end = (boundary(space, rows, n * len(rows) // len(groups)) for n in (number, number + 1))
            rows = rows[start:end]
        elif replicate:
            rows = rows[: len(rows) // 2]
        if len(rows) < 2:
            raise BadInput(f"align_jointly: {space.name} has too few rows to share among {len(groups)} parts")
        rows = rows[: row.limits[group[0] in row.paired]]
        vectors |= {name: spaces[name].vectors[rows] for name in group}
    return vectors


def one_corpus(source: store.Embeddings, target: store.Embeddings) -> bool:
    """Whether both are embeddings of the same corpus."""
    return source.metadata.get("corpus") == target.metadata.get("corpus")


def shuffled(embeddings: store.Embeddings, salt: str, seed: int, split: str = "train") -> Tensor:
    """Return the rows of a split in random order. If rows overlap, shuffle documents and keep their rows
    together.
    """
    rows = embeddings.rows(split)
    key = hashlib.sha256(f"{salt}:{seed}".encode()).digest()[:7]  # independent orders for two corpora
    generator = torch.Generator().manual_seed(int.from_bytes(key, "big"))
    if embeddings.documents is None:
        return rows[torch.randperm(len(rows), generator=generator)]
    names, document = np.unique(embeddings.documents[rows.numpy()], return_inverse=True)
    place = torch.randperm(len(names), generator=generator)
    return rows[place[torch.from_numpy(document)].argsort(stable=True)]


def boundary(embeddings: store.Embeddings, rows: Tensor, at: int) -> int:
    """Return where to cut shuffled rows: at `at`, or after the rest of the document that this would cut in
    two.
    """
    if embeddings.documents is None or not 0 < at < len(rows):
        return at
    documents = embeddings.documents[rows.numpy()]
    elsewhere = np.flatnonzero(documents[at:] != documents[at - 1])
    return at + int(elsewhere[0]) if len(elsewhere) else len(rows)
