"""Judged retrieval: does a query find the documents that people judged relevant? (BEIR, Thakur et al. 2021)

The numbers are trec_eval's `ndcg_cut_10` and `recall_100`: gains are grades, the discount of rank r is
log2(r + 1), and of documents with equal cosines the one with the greater id ranks first. A document with the
id of its query is ranked like any other, while BEIR's own code leaves it out, as ArguAna needs.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from pipelines.measures import Measure
from pipelines.measures.vectors import finite, products

DEPTH = 100  # documents that are looked at for each query
BLOCK = 2**25  # cosines held at once
MEASURES = [Measure("ndcg10", "nDCG@10", headline=True), Measure("recall100", "recall@100")]


def judged_scores(
    queries: Tensor, documents: Tensor, ids: Sequence[str], judgements: Sequence[Mapping[str, float]]
) -> dict[str, Tensor]:
    """Return every measure's score per query: (q, d), (n, d), n ids, q judgements -> {name: (q,)}, on the CPU

    Documents are ranked by cosine. A judgement maps ids of documents to grades; above 0 is relevant. A query
    without a relevant document scores 0, and a judged document that is not there counts as not found. Raises
    BadInput for a row that is not finite.
    """
    # Of equal cosines the greater id ranks first: the sort below is stable
    order = sorted(range(len(ids)), key=ids.__getitem__, reverse=True)
    keys = normalize(finite("documents", documents)[order], dim=1)
    unit = normalize(finite("queries", queries), dim=1)
    names = [ids[row] for row in order]
    found, block = [], max(1, BLOCK // len(keys))
    for start, cosines in products(unit, keys, block):
        best = cosines.sort(dim=1, descending=True, stable=True).indices[:, :DEPTH].tolist()
        for query, rows in enumerate(best, start):
            found.append([max(0.0, judgements[query].get(names[row], 0.0)) for row in rows])
    ideal = [sorted((max(0.0, grade) for grade in of.values()), reverse=True) for of in judgements]
    # Grades of each query: of the nearest documents, nearest first, (q, DEPTH); and of all judged ones,
    # highest first, then zeros, (q, largest number of judged documents)
    nearest = torch.tensor(found).reshape(len(unit), -1)
    judged = pad_sequence([torch.tensor(grades, dtype=torch.float32) for grades in ideal], batch_first=True)
    return {
        "ndcg10": _discounted(nearest) / _discounted(judged).clamp(min=1e-12),
        "recall100": (nearest > 0).sum(1) / (judged > 0).sum(1).clamp(min=1),
    }


def _discounted(grades: Tensor) -> Tensor:
    first = grades[:, :10]
    return (first / torch.arange(2, 2 + first.shape[1]).log2()).sum(1)
