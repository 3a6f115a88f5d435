"""Measure a similarity matrix of images and captions.

The symmetric InfoNCE loss is least where similarity = pointwise mutual information (PMI) + constant, so the
theory is tested by agreement with a known PMI. An inner product of d-dimensional vectors reaches it only up
to its rank.
"""

import torch
from torch import Tensor

from pipelines.measures import Measure
from pipelines.measures.similarity import pearson, spearman
from pipelines.measures.vectors import finite

BLOCK = 1024  # rows of a similarity matrix that are ranked at once
MEASURES = [
    Measure("zero_shot", "zero-shot", headline=True),
    Measure("linear", "linear"),
    Measure("linear_width", "linear width", digits=0),
    Measure("image_to_text_r1", "image to text R@1"),
    Measure("text_to_image_r10", "text to image R@10"),
    Measure("pmi_correlation", "PMI correlation"),
    Measure("pmi_unexplained", "PMI unexplained", better="lower"),
    Measure("rank_limit", "rank limit", better="lower"),
]


def top1(similarity: Tensor, labels: Tensor) -> Tensor:
    """Return whether the right class is better than all others. (n, classes), (n,) -> (n,).

    A tie is not right, so a constant similarity scores 0. Raises BadInput for a row that is not finite.
    """
    own = finite("similarity", similarity).gather(1, labels.unsqueeze(1))
    return ((similarity >= own).sum(1) == 1).float()


def retrieval(similarity: Tensor, right: Tensor) -> dict[str, Tensor]:
    """Return R@1, R@5 and R@10 per query, in both directions: is a right partner among the k best?

    similarity (n, m) of different images and different texts; right, bool (n, m), is True where an image and
    a text belong together. An image may have many texts. -> image_to_text_r<k> over images (n,),
    text_to_image_r<k> over texts (m,)
    """
    directions = {
        "image_to_text": paired_ranks(similarity, right),
        "text_to_image": paired_ranks(similarity.T, right.T),
    }
    return {f"{name}_r{k}": (ranks <= k).float() for name, ranks in directions.items() for k in (1, 5, 10)}


def paired_ranks(similarity: Tensor, right: Tensor) -> Tensor:
    """Return the rank (1 = best) of each row's best right column; ties count half. (n, m), bool (n, m) ->
    (n,)

    Raises BadInput for a row that is not finite.
    """
    out = []
    for s, r in zip(finite("similarity", similarity).split(BLOCK), right.split(BLOCK), strict=True):
        best = s.masked_fill(~r, -torch.inf).amax(1, keepdim=True)
        out.append(1 + (s > best).sum(1) + ((s == best) & ~r).sum(1) / 2)
    return torch.cat(out)


def pmi_agreement(similarity: Tensor, pmi: Tensor, dim: int) -> dict[str, float]:
    """Return how well a similarity of `dim` dimensions agrees with the true PMI, over all entries. (n, m),
    (n, m)

    pmi_unexplained is |PMI - (a S + b)|^2 / |PMI - mean|^2 with the best a and b.
    """
    correlation = pearson(similarity.flatten(), pmi.flatten())
    return {
        "pmi_correlation": correlation,
        "pmi_rank_correlation": spearman(similarity.flatten(), pmi.flatten()),
        "pmi_unexplained": 1 - correlation**2,
        "rank_limit": rank_limit(pmi, dim),
    }


def rank_limit(pmi: Tensor, dim: int) -> float:
    """Return a lower bound on the share of the PMI's variance that an inner product of `dim` dimensions plus
    a constant leaves unexplained. (n, m)

    This is the residual of the best matrix of rank `dim` + 1 (Eckart and Young, 1936).
    """
    pmi = pmi.double()
    values = torch.linalg.svdvals(pmi)
    return (values[dim + 1 :].square().sum() / (pmi - pmi.mean()).square().sum()).item()
