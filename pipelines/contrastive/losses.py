"""InfoNCE (van den Oord et al. 2018) as SimCSE and CLIP use it.

SimCSE (Gao, Yao and Chen, EMNLP 2021), with unit vectors h, p, n and temperature t. Without negatives n it is
the paper's equations 1 and 4; with one for each text it is equation 5, with a weight w equation 8:

    loss_i = -log exp(h_i . p_i / t) / sum_j [ exp(h_i . p_j / t) + w^(i = j) exp(h_i . n_j / t) ]

CLIP (Radford et al. 2021), over a batch of n, with s_ij the scaled similarity of image i and caption j:

    loss = -1/2n sum_i [ log(exp(s_ii) / sum_j exp(s_ij)) + log(exp(s_ii) / sum_j exp(s_ji)) ]
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from pipelines.runtime.errors import BadInput


def info_nce(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor | None = None,
    *,
    temperature: float,
    negative_weight: float,
) -> Tensor:
    """Return SimCSE's loss, averaged over i. All (n, d), of any norm -> scalar

    With w = 1 this is sentence-transformers' MultipleNegativesRankingLoss(scale=1/t).
    """
    h = normalize(anchor, dim=1)
    scores = h @ normalize(positive, dim=1).T / temperature  # (n, n)
    if negative is not None:
        hard = h @ normalize(negative, dim=1).T / temperature
        weight = math.log(negative_weight) if negative_weight > 0 else -math.inf
        hard = hard + torch.zeros_like(hard).fill_diagonal_(weight)
        scores = torch.cat([scores, hard], 1)  # (n, 2n)
    return cross_entropy(scores, torch.arange(len(h), device=h.device))


def symmetric_info_nce(similarity: Tensor) -> Tensor:
    """Return CLIP's loss, where image i belongs to caption i. (n, n) -> scalar"""
    right = torch.arange(len(similarity), device=similarity.device)
    return (cross_entropy(similarity, right) + cross_entropy(similarity.T, right)) / 2


def finite_losses(losses: list[Tensor], first: int) -> list[float]:
    """Return the losses of consecutive steps. Raises BadInput, naming the step, for one that is not finite.

    All are read in one transfer, because each read makes the host wait for the device.
    """
    values = torch.stack(losses).tolist()
    for step, loss in enumerate(values, first):
        if not math.isfinite(loss):
            raise BadInput(f"step {step}: the loss is {loss}; a lower lr may help")
    return values
