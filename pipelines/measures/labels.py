"""Match the labels of two spaces without a pair: by the cosines between their centroids."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures import Measure
from pipelines.measures.vectors import centred_unit, shuffled

LEAST = 4  # labels; fewer are matched by chance too often
RANDOM = 999  # assignments of the permutation test
MEASURES = [Measure("labels_matched", "labels matched"), Measure("labels_p", "p", better="lower")]


def compare(
    x: Tensor,
    y: Tensor,
    labels: Sequence[Sequence[str]],
    documents: Sequence[str],
    match: Callable[[Tensor, Tensor, torch.Generator], Tensor],
) -> dict[str, float]:
    """Return every measure of MEASURES for two spaces of the same texts, or nothing for fewer than four
    labels.

    x (n, d), y (n, e): vectors. labels, documents: those of each row. A centroid is the mean of a label's
    rows of half of the documents in x, and of the others in y, drawn with one seed. `match` solves the
    quadratic assignment of the two matrices of cosines between centroids. (k, k), (k, k) -> (k,)

    labels_matched is the share of labels that it matches; chance is 1 / k. labels_p is the p-value of a
    permutation test: of the true assignment and 999 random ones, the share whose objective is at least that
    of the true one. It is at least 1 / 1000; with few labels about 1 / k!, because random draws repeat the
    true assignment. It can be small although `match` did not find the true assignment.

    Source: Schnaus, Araslanov and Cremers, "It's a (Blind) Match!", CVPR 2025.
    """
    names = sorted({name for of_row in labels for name in of_row})
    member = torch.tensor([[name in of_row for name in names] for of_row in labels], dtype=x.dtype)
    distinct = list(dict.fromkeys(documents))
    # Drawn, as labels may alternate from document to document
    number = dict(zip(distinct, shuffled(len(distinct), 0).tolist(), strict=True))
    first = torch.tensor([number[document] % 2 == 0 for document in documents])
    even, odd = member[first], member[~first]
    kept = (even.sum(0) > 0) & (odd.sum(0) > 0)
    if kept.sum() < LEAST:
        return {}
    a, b = _cosines(x[first], even[:, kept]), _cosines(y[~first], odd[:, kept])
    generator, true = torch.Generator().manual_seed(0), torch.arange(len(a))
    matched = (match(a, b, generator) == true).float().mean().item()
    tried = torch.cat([true[None], torch.rand(RANDOM, len(a), generator=generator).argsort(1)])
    values = torch.tensor([(a * b[order][:, order]).sum().item() for order in tried])
    return {"labels_matched": matched, "labels_p": (values >= values[0]).float().mean().item()}


def _cosines(vectors: Tensor, member: Tensor) -> Tensor:
    """Return the cosines between the centred centroids of k labels. (n, d), 0 or 1 (n, k) -> (k, k)"""
    member = member.to(vectors.device)
    centroids = member.T @ normalize(vectors, dim=1) / member.sum(0)[:, None]
    unit = centred_unit(centroids).cpu()
    return unit @ unit.T
