"""SBERT-WK: sentence vectors from all layers of a transformer.

Wang and Kuo, IEEE/ACM TASLP 2020, arXiv:2002.06652. Let x_k be a token's vector in layer k, and N(k) the
layers within `window` of k, without k itself.

    inverse alignment  a_k = 1 / mean of cos(x_k, x_j) over j in N(k)
    novelty            n_k = |x_k - projection of x_k on span{x_j : j in N(k)}| / |x_k|
    layer weights      alpha_k = omega a_k / sum(a) + (1 - omega) n_k / sum(n)
    token importance   variance of cos(x_k, x_k+1) over k, divided by its sum over the tokens
    sentence vector    sum over tokens of importance * sum over layers of alpha_k x_k

All of it follows from the matrix of cosines between a token's layers. The paper takes the novelty from the
last diagonal entry of R in the QR factorisation of the window. Its square is the last pivot of the Cholesky
factorisation of the window's cosines. The authors' code differs in three ways. At the first layers its
windows lack the layers to their left; here they have those that exist. Its inverse alignment takes cosines to
the projection of x_k on the span, and divides by |N(k)| + 1, so layers with few neighbours weigh more.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

BLOCK = 128  # tokens per block on a CPU, so that a block's layers stay in the cache
TINY = 1e-12  # the smallest pivot


def pool(
    layers: Sequence[Tensor],
    mask: Tensor,
    start: int,
    window: int = 2,
    omega: float = 0.5,
    separator: bool = True,
) -> Tensor:
    """Return sentence vectors. L x (batch, tokens, dim), attention mask (batch, tokens) -> (batch, dim)

    start: the first layer used. window: neighbouring layers on each side (m in the paper). omega: 1 weighs
    layers by inverse alignment alone, 0 by novelty alone. separator: the last token of a text is no word.
    """
    layers, mask = layers[start:], used_tokens(mask) if separator else mask.bool()
    index = mask.flatten().nonzero().squeeze(1)  # (n,)
    flat = [layer.flatten(0, 1) for layer in layers]  # L x (batch * tokens, dim)
    alpha, variance = weights(flat, index, window, omega)  # (n, L), (n,)

    spread = torch.zeros(mask.shape, dtype=variance.dtype, device=mask.device)
    spread[mask] = variance
    total = spread.sum(1, keepdim=True)
    # Where no cosine varies, all tokens are equally important
    importance = torch.where(total > 0, spread / total, 1 / mask.sum(1, keepdim=True))[mask]  # (n,)
    count = mask.sum(1)

    combined = (importance[:, None] * alpha).to(flat[0].dtype).T.contiguous()  # (L, n)
    offsets = count.cumsum(0) - count  # the first token of each text
    sums = [
        embedding_bag(index, layer, offsets, mode="sum", per_sample_weights=weight)
        for layer, weight in zip(flat, combined, strict=True)
    ]
    return torch.stack(sums).sum(0)


def weights(flat: Sequence[Tensor], index: Tensor, window: int, omega: float) -> tuple[Tensor, Tensor]:
    """Return layer weights, in rows of sum 1, and variances of the tokens at `index`.

    L x (all, dim), (n,) -> (n, L), (n,)
    """
    block = BLOCK if index.device.type == "cpu" else max(1, len(index))
    cosines = torch.cat(
        [layer_cosines([layer.index_select(0, rows) for layer in flat]) for rows in index.split(block)]
    )
    near = neighbours(len(flat), window)
    alignment = inverse_alignment(cosines, near)
    alpha = omega * _normalise(alignment) + (1 - omega) * _normalise(novelty(cosines, near))
    return alpha, adjacent(cosines).var(1)


def neighbours(layers: int, window: int) -> Tensor:
    """Return which layers lie within `window` of which, (L, L) bool.

    Layers at the edges have fewer neighbours.
    """
    distance = (torch.arange(layers)[:, None] - torch.arange(layers)).abs()
    return (distance <= window) & (distance > 0)


def layer_cosines(layers: Sequence[Tensor]) -> Tensor:
    """Return cosines between the layers of each token. L x (n, dim) -> (n, L, L) float64

    The cosines are close to 1, and their variance and the novelty need many digits. Instead of float64
    products of the layers, take float32 products of the differences between neighbouring layers. Layers are
    sums of differences, so sums of these products in float64 are the products of the layers, with an error
    that is small beside the differences.
    """
    layers = [layer.to(torch.promote_types(layer.dtype, torch.float32)) for layer in layers]
    steps = torch.stack([layers[0], *(b - a for a, b in pairwise(layers))], 1)  # (n, L, dim)
    gram = (steps @ steps.mT).double().cumsum(1).cumsum(2)  # (n, L, L)
    norm = gram.diagonal(dim1=1, dim2=2).clamp(min=torch.finfo(gram.dtype).tiny).sqrt()
    return gram / (norm[:, :, None] * norm[:, None, :])


def inverse_alignment(cosines: Tensor, near: Tensor) -> Tensor:
    """Return the inverse of each layer's mean cosine with its neighbours. (n, L, L), (L, L) -> (n, L)"""
    near = near.to(cosines)
    return 1 / ((cosines * near).sum(2) / near.sum(1))


def novelty(cosines: Tensor, near: Tensor) -> Tensor:
    """Return the sine of the angle between each layer and the span of its neighbours.

    (n, L, L), (L, L) -> (n, L)
    """
    table = cosines.permute(1, 2, 0).contiguous()  # (L, L, n)
    windows = [[*mask.nonzero().flatten().tolist(), k] for k, mask in enumerate(near)]
    return torch.stack([_sine_to_span(table[window][:, window]) for window in windows], 1)


def adjacent(cosines: Tensor) -> Tensor:
    """Return the cosines of neighbouring layers. (n, L, L) -> (n, L - 1)"""
    return cosines.diagonal(offset=1, dim1=1, dim2=2)


def used_tokens(mask: Tensor) -> Tensor:
    """Return the attention mask without each text's last token, the separator.

    A text of one token keeps it. (b, t) -> bool
    """
    mask = mask.bool()
    count = mask.sum(1, keepdim=True)
    return mask & ((mask.cumsum(1) < count) | (count == 1))


def _sine_to_span(gram: Tensor) -> Tensor:
    """Return the sine of the angle between the last vector and the span of the others.

    (w + 1, w + 1, n) cosines -> (n,)
    """
    while len(gram) > 1:  # Cholesky without square roots: eliminate one neighbour
        gram = gram[1:, 1:] - gram[1:, :1] * (gram[:1, 1:] / gram[0, 0].clamp(min=TINY))
    return gram[0, 0].clamp(min=torch.finfo(gram.dtype).tiny).sqrt()


def _normalise(weights: Tensor) -> Tensor:
    return weights / weights.sum(1, keepdim=True)
