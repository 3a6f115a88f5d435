"""Draw the texts that a fit may see: disjoint sets for source and target, true pairs for oracles only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

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
    corpus. Raises BadInput for fewer than two vectors per side.
    """
    same = one_corpus(source, target)
    if same:
        store.same_texts(source, target)
    common = len(source.rows("train")) if same else 0
    if row.pairs > common:
        raise BadInput(
            f"align: {row.pairs} known pairs asked for, but {source.name} and {target.name} share {common}"
        )
    split_x, split_y = row.splits or (None, None)
    salt = "source" if same or row.splits else "target"
    rows_x = rows_of_part(source, "source", seed, Part(0, 2, split_x, replicate, row.pairs))[: row.limits[0]]
    rows_y = rows_of_part(target, salt, seed, Part(1, 2, split_y, replicate, row.pairs))[: row.limits[1]]
    known = shuffled(source, "source", seed)[: row.pairs]
    k = torch.arange(row.pairs)
    return Halves(
        source.vectors[torch.cat([rows_x, known])],
        target.vectors[torch.cat([rows_y, known])],
        torch.stack([len(rows_x) + k, len(rows_y) + k], 1) if row.pairs else None,
        len(set(source.ids[rows_x.numpy()]) & set(target.ids[rows_y.numpy()])) if same else 0,
    )


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
    the row names splits, each part is one of them. Raises BadInput for fewer than two vectors.
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
        part = Part(number, len(groups), row.splits[number] if row.splits else None, replicate)
        rows = rows_of_part(space, salt, seed, part)[: row.limits[group[0] in row.paired]]
        vectors |= {name: spaces[name].vectors[rows] for name in group}
    return vectors


class Part(NamedTuple):
    """One of `count` disjoint parts of the train texts after the first `known`, or a split of its own."""

    number: int
    count: int
    split: str | None
    replicate: bool  # of a split, which all seeds see whole, a replicate gets half: it needs other texts
    known: int = 0


def rows_of_part(space: store.Embeddings, salt: str, seed: int, part: Part) -> Tensor:
    """Return the rows of a part in random order. Raises BadInput for fewer than two."""
    rows = shuffled(space, salt, seed, part.split or "train")
    if part.split is None:
        free = len(rows) - part.known
        cuts = [part.known + number * free // part.count for number in (part.number, part.number + 1)]
        start, end = (boundary(space, rows, cut) for cut in cuts)
        rows = rows[start:end]
    elif part.replicate:
        rows = rows[: len(rows) // 2]
    if len(rows) < 2:
        raise BadInput(
            f"{space.name}: too few rows of split {part.split or 'train'!r} for this fit: {len(rows)}"
        )
    return rows


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
