"""Assign each text to a document, so that halves and splits have no document in common.

Near-duplicates in two documents, such as a mail and the reply that quotes it, make these one document.
"""

import re

import numpy as np
import polars as pl
from scipy import sparse
from scipy.cluster.hierarchy import DisjointSet
from scipy.sparse.csgraph import connected_components

WORDS = 5  # of a shingle, a sequence of consecutive words
SHARE = 0.4  # two texts are near-duplicates if they share this part of the shorter one's shingles
FREQUENT = 200  # shingles in more texts than this are boilerplate: they make no two texts similar
LARGEST = 0.01  # merged documents hold at most this share of all texts
SMALL = 20  # texts that a merged document may hold in any corpus

_WORD = re.compile(r"\w+")


def document_of_each() -> pl.Expr:
    """Return column `document`, with the id of a text that has none."""
    return pl.coalesce(pl.col("^document$").cast(pl.String), pl.col("id"))


def with_documents(frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Return the rows with columns `document` and `same_as`, in the same order.

    `same_as` is the id of the first near-duplicate of a text, or its own id. Documents with near-duplicates
    merge, those with the most similar texts first, unless they would become too large (LARGEST, SMALL). A
    merged document has the name of its first. If near-duplicates stay in different documents, drop the later
    text. Print how many were dropped.
    """
    named = frame["document"]
    i, j = near_duplicates(frame["text"])
    document = merged(np.unique(named, return_inverse=True)[1], i, j)
    repeats = np.unique(j[document[i] != document[j]])
    if len(repeats):
        print(f"{where}: {len(repeats)} texts of {len(frame)} repeat texts of other documents: dropped")
    kept = ~np.isin(np.arange(len(frame)), repeats)
    between = kept[i] & kept[j]
    pairs = sparse.coo_array((np.ones(between.sum()), (i[between], j[between])), (len(frame), len(frame)))
    groups = connected_components(pairs, directed=False)[1]
    frame = frame.with_columns(
        document=named.gather(first_of_each(document)),
        same_as=frame["id"].gather(first_of_each(groups)),
    )
    return frame.filter(kept)


def first_of_each(groups: np.ndarray) -> np.ndarray:
    """Return for each row (n,) of group numbers the first row of its group."""
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    return first[group]


def merged(document: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return document numbers (n,). Documents of each pair i, j are merged if the result is not too large."""
    sizes = np.bincount(document).tolist()
    most = max(SMALL, LARGEST * len(document))
    groups = DisjointSet(range(len(sizes)))
    for a, b in zip(document[i].tolist(), document[j].tolist(), strict=True):
        size = sizes[groups[a]] + sizes[groups[b]]
        if size <= most and groups.merge(a, b):
            sizes[groups[a]] = size
    return np.array([groups[number] for number in range(len(sizes))])[document]


def near_duplicates(texts: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of rows i < j whose texts share SHARE of the shorter one's shingles.

    The most similar come first. Case and punctuation do not count. A text below WORDS words is one shingle.
    Shingles of more than FREQUENT texts are never shared, but still count in the size of a text. Texts that
    have only such shingles are never near-duplicates.
    """
    vocabulary: dict[str, int] = {}
    found = []
    for text in texts:
        found_words = _WORD.findall(text.lower()) or [text]  # emoji alone are one word
        words = [vocabulary.setdefault(word, len(vocabulary)) for word in found_words]
        starts = range(max(1, len(words) - WORDS + 1))
        # Unlike that of strings, the hash of numbers is the same in every process
        shingles = {hash(tuple(words[start : start + WORDS])) for start in starts}
        found.append(np.fromiter(shingles, np.int64, len(shingles)))
    counts = np.array([len(shingles) for shingles in found])
    rows = np.repeat(np.arange(len(found)), counts)
    _, column, frequency = np.unique(np.concatenate(found), return_inverse=True, return_counts=True)
    kept = (frequency[column] > 1) & (frequency[column] <= FREQUENT)
    shape = len(found), len(frequency)
    table = sparse.csr_array((np.ones(kept.sum(), np.int32), (rows[kept], column[kept])), shape)
    common = sparse.triu(table @ table.T, 1).tocoo()
    i, j = common.coords
    share = common.data / np.minimum(counts[i], counts[j])
    order = np.lexsort((j, i, -share))
    order = order[share[order] >= SHARE]
    return i[order], j[order]
