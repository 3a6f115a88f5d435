"""Images and captions: what is measured of a similarity matrix (images, captions).

A symmetric InfoNCE loss is least where similarity = pointwise mutual information + constant, so that agreement with a known
PMI is the measure that the theory is about; an inner product of d-dimensional vectors reaches it only up to rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipelines.measures.similarity import pearson, spearman
from pipelines.measures.vectors import finite

BLOCK = 1024  # rows of a similarity matrix ranked at once


def paired_ranks(similarity: Tensor, right: Tensor) -> Tensor:
    """Rank (1 = best) of each row's best right column; ties count half. (n, m), bool (n, m) -> (n,)

    Raises BadInput for a row that is not finite.
    """
    out = []
    for s, r in zip(finite("similarity", similarity).split(BLOCK), right.split(BLOCK), strict=True):
        best = s.masked_fill(~r, -torch.inf).amax(1, keepdim=True)
        out.append(1 + (s > best).sum(1) + ((s == best) & ~r).sum(1) / 2)
    return torch.cat(out)


def retrieval(similarity: Tensor, right: Tensor, ks: tuple[int, ...] = (1, 5, 10)) -> dict[str, Tensor]:
    """R@k per query, both ways: is one of its right partners among the k best? `right` is True where (image, text) belong
    together; an image may have many texts. (n, m), bool (n, m) -> image_to_text_r<k> (n,), text_to_image_r<k> (m,)"""
    ways = {
        "image_to_text": paired_ranks(similarity, right),
        "text_to_image": paired_ranks(similarity.T, right.T),
    }
    return {f"{way}_r{k}": (ranks <= k).float() for way, ranks in ways.items() for k in ks}


def top1(similarity: Tensor, labels: Tensor) -> Tensor:
    """Whether the best class is the right one. (n, classes), (n,) -> (n,). Raises BadInput for a row that is not finite."""
    return (finite("similarity", similarity).argmax(1) == labels).float()


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's, over all entries of two matrices; NaN if either is constant."""
    return pearson(a.flatten(), b.flatten())


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's, over all entries of two matrices."""
    return spearman(a.flatten(), b.flatten())


def unexplained(similarity: Tensor, pmi: Tensor) -> float:
    """|PMI - (a S + b)|^2 / |PMI - mean|^2 with the best a, b: what of the PMI's variance a similarity does not reach."""
    return 1 - correlation(similarity, pmi) ** 2


def rank_limit(pmi: Tensor, dim: int) -> float:
    """The same ratio for the best matrix of rank `dim` + 1 (Eckart & Young, 1936): no inner product of `dim` dimensions with
    a constant added does better. (n, m) -> share of variance"""
    pmi = pmi.double()
    values = torch.linalg.svdvals(pmi)
    return (values[dim + 1 :].square().sum() / (pmi - pmi.mean()).square().sum()).item()
