"""Draw the texts that a fit may see: disjoint sets for source and target, and known pairs if the row grants
them. Oracles see only true pairs.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipelines.runtime import store
from pipelines.runtime.errors import BadInput
from pipelines.study import Align, AlignJointly

Side = tuple[store.Embeddings, Tensor]  # a space, and the rows (n,) of it that a fit sees


@dataclass(frozen=True)
class Halves:
    """What an attacker has: vectors of two sets of texts, which have only the known pairs in common."""

    source: Tensor  # (n, d)
    target: Tensor  # (m, e)
    pairs: Tensor | None  # (k, 2) rows of source and target of the same texts, if the row grants known pairs


def halves(source: store.Embeddings, target: store.Embeddings, row: Align, seed: int) -> Halves:
    """Return the vectors of both `sides`. With `pairs: k`, both also get k texts, of any documents."""
    (_, rows_x), (_, rows_y) = sides(source, target, row, seed)
    # The rows that `sides` leaves out: the first of the same shuffle. A row with splits has no `pairs`.
    known = shuffled(source, generator_of("source", seed))[: row.pairs]
    x, y = source.vectors, target.vectors
    return with_pairs(x[rows_x], y[rows_y], x[known], y[known])


def with_pairs(x: Tensor, y: Tensor, known_x: Tensor, known_y: Tensor) -> Halves:
    """Append known pairs (k, d), (k, e) to vectors of other texts (n, d), (m, e)."""
    if not len(known_x):
        return Halves(x, y, None)
    k = torch.arange(len(known_x))
    pairs = torch.stack([len(x) + k, len(y) + k], 1)
    return Halves(torch.cat([x, known_x]), torch.cat([y, known_y]), pairs)


def sides(source: store.Embeddings, target: store.Embeddings, row: Align, seed: int) -> tuple[Side, Side]:
    """Draw two disjoint halves of the train texts, or take the two splits that the row names.

    Known pairs are left out of both (`halves` adds them). No document is on both sides, unless the row says
    `halves: rows`. If the corpora differ, each side gets half of its own corpus, so its size does not depend
    on the other corpus. Raises BadInput for fewer than two vectors per side, and for more known pairs than
    the spaces share texts.
    """
    same = one_corpus(source, target)
    if same:
        store.check_same_texts(source, target)
    common = len(source.rows("train")) if same else 0
    if row.pairs > common:
        raise BadInput(
            f"align: {row.pairs} known pairs asked for, but {source.name} and {target.name} share {common}"
        )
    rows_x = rows_of_part(source, "source", seed, row, 0, 2)[: row.limits[0]]
    # Parts of one corpus are disjoint only if both sides have the same shuffle.
    salt = "source" if same or row.splits else "target"
    rows_y = rows_of_part(target, salt, seed, row, 1, 2)[: row.limits[1]]
    return (source, rows_x), (target, rows_y)


def paired_vectors(
    source: store.Embeddings, target: store.Embeddings, row: Align, seed: int
) -> tuple[Tensor, Tensor]:
    """Return true pairs, for oracles only: the texts of the source's part, up to the smaller limit."""
    store.check_same_texts(source, target)
    rows = rows_of_part(source, "source", seed, row, 0, 2)
    rows = rows[: min((most for most in row.limits if most is not None), default=None)]
    return source.vectors[rows], target.vectors[rows]


def vectors_of_parts(
    spaces: Mapping[str, store.Embeddings], row: AlignJointly, seed: int
) -> dict[str, Tensor]:
    """Divide the train texts among the spaces, and return the vectors of each (`rows_of_parts`)."""
    rows_of = rows_of_parts(spaces, row, seed)
    return {name: space.vectors[rows_of[name]] for name, space in spaces.items()}


def rows_of_parts(spaces: Mapping[str, store.Embeddings], row: AlignJointly, seed: int) -> dict[str, Tensor]:
    """Return the rows that each space gets.

    Paired spaces count as one: they share all their texts. If a row extends another one, the older spaces get
    the same parts in both. A space of a different corpus gets one part, too, so that its size does not depend
    on which corpora the others have. If the row names splits, each part is one of them. Raises BadInput for
    fewer than two vectors.
    """
    groups = [[name] for name in spaces if name not in row.paired]
    if row.paired:
        groups.append([*row.paired])
    rows_of = {}
    first = spaces[groups[0][0]]
    for number, group in enumerate(groups):
        space, *others = (spaces[name] for name in group)
        same = one_corpus(first, space)
        for other in [first, *others] if same else others:  # of one corpus, or paired
            store.check_same_texts(other, space)
        salt = "source" if same else f"corpus {space.metadata.get('corpus')}"
        limit = row.limits[1 if group[0] in row.paired else 0]  # the second is of the paired spaces
        rows = rows_of_part(space, salt, seed, row, number, row.parts or len(groups))[:limit]
        rows_of |= dict.fromkeys(group, rows)
    return rows_of


def rows_of_part(
    space: store.Embeddings, salt: str, seed: int, row: Align | AlignJointly, number: int, count: int
) -> Tensor:
    """Return part `number` of `count` disjoint parts of the train texts, or the texts of split `number`.

    Rows are in random order. The first of the shuffled train texts are in no part: they are the known pairs.
    Raises BadInput for fewer than two rows.
    """
    generator, documents = generator_of(salt, seed), row.halves == "documents"
    split = row.splits[number] if row.splits else "train"
    rows = shuffled(space, generator, split)
    if not row.splits:
        rows = rows[row.pairs if isinstance(row, Align) else 0 :]
        rows = rows[assign_parts(space, rows, count, documents, generator) == number]
    if len(rows) < 2:
        whole = documents and not row.splits
        why = "; whole documents go to one side: `halves: rows` divides them" if whole else ""
        raise BadInput(
            f"{space.name}: too few rows of split {split!r} for one side of this fit: {len(rows)}{why}"
        )
    return rows


def assign_parts(
    space: store.Embeddings, rows: Tensor, count: int, documents: bool, generator: torch.Generator
) -> Tensor:
    """Return for shuffled rows (n,) which of `count` parts each is in.

    With `documents`, documents are placed end to end in random order, and the rows are cut into equal parts.
    A document belongs to the part in which it begins. So parts differ in size, by a document at most.
    """
    # Number of each row's document (n,), rows of each document, a random order of documents
    if documents:
        names = space.documents[rows.numpy()]
        _, document, sizes = np.unique(names, return_inverse=True, return_counts=True)
        order = torch.randperm(len(sizes), generator=generator).numpy()
    else:  # each row is a document of its own
        document = order = np.arange(len(rows))
        sizes = np.ones(len(rows), int)
    cuts = [number * len(rows) // count for number in range(1, count)]
    first_row = np.cumsum(sizes[order]) - sizes[order]  # of each document, if laid out in this order
    part_of_document = np.empty(len(sizes), int)
    part_of_document[order] = np.searchsorted(cuts, first_row, side="right")
    return torch.from_numpy(part_of_document[document])


def in_common(one: Side, other: Side) -> dict[str, int]:
    """Count the documents of each side and, for one corpus, what both sides have in common.

    `shared`: texts on both sides. `shared_documents`: documents with texts on both sides. `near_duplicates`:
    texts of either side with a near-duplicate on the other.
    """
    (x, rows_x), (y, rows_y) = ((space, rows.numpy()) for space, rows in (one, other))
    documents_x, documents_y = {*x.documents[rows_x]}, {*y.documents[rows_y]}
    counts = {"source_documents": len(documents_x), "target_documents": len(documents_y)}
    if not one_corpus(x, y):
        return counts
    same_x, same_y = x.same_as[rows_x], y.same_as[rows_y]
    both = {*same_x} & {*same_y}
    return counts | {
        "shared": len({*x.ids[rows_x]} & {*y.ids[rows_y]}),
        "shared_documents": len(documents_x & documents_y),
        "near_duplicates": sum(text in both for text in (*same_x, *same_y)),
    }


def largest(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the largest of each count."""
    every = list(counts)
    return {name: max(one[name] for one in every) for name in every[0]}


def one_corpus(source: store.Embeddings, target: store.Embeddings) -> bool:
    """Return whether both are embeddings of the same corpus."""
    return source.metadata.get("corpus") == target.metadata.get("corpus")


def generator_of(salt: str, seed: int) -> torch.Generator:
    """Return a generator for a salt and a seed. Equal salts give equal shuffles."""
    key = hashlib.sha256(f"{salt}:{seed}".encode()).digest()[:7]
    return torch.Generator().manual_seed(int.from_bytes(key, "big"))


def shuffled(embeddings: store.Embeddings, generator: torch.Generator, split: str = "train") -> Tensor:
    """Return the rows of a split in random order."""
    rows = embeddings.rows(split)
    return rows[torch.randperm(len(rows), generator=generator)]
