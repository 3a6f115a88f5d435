"""SBERT-WK pooling (Wang and Kuo, IEEE/ACM TASLP 2020, arXiv:2002.06652): sentence vectors by dissecting a transformer's layers.

A token has one vector per layer. Layers that say what their neighbours do not get more weight in the token's unified vector,
and tokens whose vectors change much from layer to layer get more weight in the sentence. No training.

For token t and layer k let N(k) be the layers within `window` of k, without k itself:

    inverse alignment  a_k = 1 / mean of cos(x_k, x_j) over j in N(k)
    novelty            n_k = |x_k - its projection on span{x_j : j in N(k)}| / |x_k|
    layer weight       omega * a_k / sum(a) + (1 - omega) * n_k / sum(n)
    token weight       variance of cos(x_k, x_k+1) over k, divided by its sum over the tokens

All of it is read off the matrix of cosines between a token's layers, the novelty as the last pivot of the Cholesky
factorisation of its window's cosines, whose factor is the R of the window's QR factorisation. Every token of the batch is
factorised at once, and layers are few, so that it costs a small part of the transformer's own forward pass.

    >>> from sentence_transformers import SentenceTransformer
    >>> transformer = SentenceTransformer("folder/of/a/model")[0]
    >>> model = SentenceTransformer(modules=[transformer, SbertWk(384)])
    >>> model.encode(["A sentence."]).shape
    (1, 384)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, Self, get_args

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from pipelines.runtime.errors import BadInput

Factorisation = Literal["cholesky", "qr", "svd"]
Edges = Literal["paper", "released"]
BLOCK = 128  # tokens
TINY = 1e-12  # squared sine below which a layer's vector counts as lying in the span of its neighbours


def windows(layers: int, window: int, edges: Edges) -> Tensor:
    """Which layers are neighbours of which, (layers, layers) bool.

    paper: all within `window`, as many as there are at the edges. released: the authors' code slices [k - window : k],
    which is empty as soon as k < window, so that the first layers have right neighbours only.
    """
    k = torch.arange(layers)
    near = ((k[:, None] - k).abs() <= window) & (k[:, None] != k)
    if edges == "released":
        near &= ~((k[:, None] < window) & (k < k[:, None]))
    return near


def novelty_cholesky(cosines: Tensor, near: Tensor) -> Tensor:
    """Sine of the angle between each layer's vector and the span of its neighbours'. (n, L, L) float64, (L, L) -> (n, L)

    With the layer itself put last, what is left of its window's cosines when the neighbours are eliminated one by one is that
    sine squared: the last pivot of a Cholesky factorisation without square roots, of all windows of all tokens at once.
    """
    layers = len(near)
    order = torch.argsort(~near, dim=1, stable=True)[
        :, : int(near.sum(1).max())
    ]  # (L, w) neighbours, then fillers
    there = near.gather(1, order)  # (L, w)
    order = torch.cat([order, torch.arange(layers)[:, None]], 1)  # (L, w + 1), the layer itself last
    there = torch.cat([there, torch.ones(layers, 1, dtype=torch.bool)], 1)
    # A filler is a vector orthogonal to all others, which changes nothing: its cosines are in two rows after the others.
    filler = layers**2 + torch.eye(order.shape[1], dtype=torch.long)[:, :, None]
    order, there = order.T, there.T  # (w + 1, L)
    where = torch.where(
        there[:, None] & there[None], order[:, None] * layers + order[None], filler
    )  # (w + 1, w + 1, L)
    known = torch.tensor([[0.0], [1.0]], dtype=cosines.dtype, device=cosines.device).expand(2, len(cosines))
    table = torch.cat(
        [cosines.flatten(1).T, known]
    )  # (L * L + 2, n): tokens last, so that each step is one long stretch
    gram = table.index_select(0, where.flatten().to(table.device)).unflatten(
        0, where.shape
    )  # (w + 1, w + 1, L, n)
    left, least = gram, torch.ones_like(gram[0, 0])
    while len(left) > 1:
        least = torch.minimum(least, left[0, 0])
        left = left[1:, 1:] - left[1:, :1] * (left[:1, 1:] / left[0, 0].clamp(min=TINY))
    square, failed = left[0, 0], least <= TINY  # (L, n)
    if failed.any():  # neighbours that are linearly dependent, or nearly
        square = square.masked_scatter(failed, 1 - _explained(gram[:, :, failed].permute(2, 0, 1)))
    return square.clamp(min=torch.finfo(square.dtype).tiny).sqrt().T


def _explained(gram: Tensor) -> Tensor:
    """Squared cosine between the last vector and the span of the others, of any rank, from their cosines. (m, w, w) -> (m,)"""
    values, vectors = torch.linalg.eigh(gram[:, :-1, :-1])
    inner = (vectors.mT @ gram[:, :-1, -1:]).squeeze(-1)  # (m, w - 1)
    return torch.where(values > TINY * values[:, -1:], inner.square() / values.clamp(min=TINY), 0.0).sum(-1)


def novelty_qr(vectors: Tensor, near: Tensor) -> Tensor:
    """The same by Householder QR, the paper's fast variant: O(d (2m + 1)^2) per layer. (n, L, d) -> (n, L)"""
    triangle = torch.linalg.qr(vectors.mT, mode="r").R  # (n, r, L): each token's layers in r <= L coordinates
    out = []
    for k, mask in enumerate(near):
        window = torch.cat(
            [triangle[:, :, mask.to(triangle.device)], triangle[:, :, k : k + 1]], 2
        )  # (n, r, w + 1)
        factor = torch.linalg.qr(window, mode="r").R
        full = factor.shape[-2] == factor.shape[-1]
        out.append(factor[:, -1, -1].abs() if full else torch.zeros_like(factor[:, 0, 0]))
    return torch.stack(out, 1)


def novelty_svd(vectors: Tensor, near: Tensor) -> Tensor:
    """The same by singular value decompositions: O(8 d m^2) per layer in the paper's count. (n, L, d) -> (n, L)"""
    out = []
    for k, mask in enumerate(near):
        basis, values, _ = torch.linalg.svd(
            vectors[:, mask.to(vectors.device)].mT, full_matrices=False
        )  # (n, d, w)
        inner = (basis.mT @ vectors[:, k, :, None]).squeeze(-1)
        inner = torch.where(values > TINY**0.5 * values[:, :1], inner, 0.0)
        residual = vectors[:, k] - (basis @ inner[..., None]).squeeze(-1)
        out.append(residual.norm(dim=-1))
    return torch.stack(out, 1)


class SbertWk(Module):
    """SBERT-WK as a pooling module of sentence-transformers: all layers' token vectors -> one sentence vector.

    embedding_dimension: width of the layers. window: neighbours on each side (m of the paper). omega: 1 weighs layers by
    inverse alignment alone, 0 by novelty alone. start: first layer used, 0 being the static embeddings; None: a third of the
    layers, which is the paper's 4 of 12. edges: see `windows`; `released` also takes over the two other things in which the
    authors' code differs from the formulas above: its cosine is to the projection on the neighbours' span, and it divides a_k
    by the size of the window, which matters at the edges only. drop_last: leave out each text's last token, the separator.
    """

    pooling_mode = "sbert-wk"  # what embeddings say of their maker
    config_keys: list[str] = [
        "embedding_dimension", "window", "omega", "start", "factorisation", "edges", "drop_last",
    ]  # fmt: skip

    def __init__(
        self,
        embedding_dimension: int,
        window: int = 2,
        omega: float = 0.5,
        start: int | None = None,
        factorisation: Factorisation = "cholesky",
        edges: Edges = "paper",
        drop_last: bool = True,
    ) -> None:
        super().__init__()
        if window < 1 or not 0 <= omega <= 1 or (start is not None and start < 0):
            raise BadInput(
                f"sbert-wk: window {window} (1 or more), omega {omega} (0 to 1), start {start} (0 or more)"
            )
        if factorisation not in get_args(Factorisation) or edges not in get_args(Edges):
            raise BadInput(f"sbert-wk: factorisation {factorisation!r} or edges {edges!r} is unknown")
        self.embedding_dimension = embedding_dimension
        self.window, self.omega, self.start = window, omega, start
        self.factorisation: Factorisation = factorisation
        self.edges: Edges = edges
        self.drop_last = drop_last

    def on_model_ready(self, model: Any) -> None:
        """Ask the transformer for all of its layers; sentence-transformers calls this once the modules are together."""
        model[0].model.config.output_hidden_states = True

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds `sentence_embedding` (batch, dim). Reads `all_layer_embeddings`, a tuple of (batch, tokens, dim), and the mask."""
        layers = features.get("all_layer_embeddings")
        if layers is None:
            raise BadInput("sbert-wk: the transformer gives its last layer only; set output_hidden_states")
        mask = used_tokens(features["attention_mask"], self.drop_last)  # (batch, tokens)
        features["sentence_embedding"] = self.pool(self.chosen(layers), mask)
        return features

    def chosen(self, layers: Sequence[Tensor]) -> Sequence[Tensor]:
        """The layers from `start` on. Raises BadInput if fewer than three are left: a variance needs two differences."""
        start = (len(layers) - 1) // 3 if self.start is None else self.start
        if len(layers) - start < 3:
            raise BadInput(
                f"sbert-wk: {len(layers) - 1} layers from layer {start} on are too few: three are needed"
            )
        return layers[start:]

    def pool(self, layers: Sequence[Tensor], mask: Tensor) -> Tensor:
        """L x (batch, tokens, dim), (batch, tokens) bool -> (batch, dim)"""
        index = mask.flatten().nonzero().squeeze(1)  # (n,): the tokens that count, and no padding
        flat = [layer.flatten(0, 1) for layer in layers]  # L x (batch * tokens, dim)
        alpha, importance = self.weights(flat, index)  # (n, L), (n,)
        weight = torch.zeros(mask.shape, dtype=importance.dtype, device=mask.device)
        weight[mask] = importance
        total, count = weight.sum(1, keepdim=True), mask.sum(1)
        share = torch.where(
            total > 0, weight / total.clamp(min=torch.finfo(weight.dtype).tiny), 1 / count[:, None]
        )[mask]
        weights = (share[:, None] * alpha).to(flat[0].dtype).T.contiguous()  # (L, n)
        offsets = count.cumsum(0) - count  # where each text's tokens begin: a bag per text
        bags = [
            embedding_bag(index, x, offsets, mode="sum", per_sample_weights=w)
            for x, w in zip(flat, weights, strict=True)
        ]
        return torch.stack(bags).sum(0)

    def weights(self, flat: Sequence[Tensor], index: Tensor) -> tuple[Tensor, Tensor]:
        """Layer weights (n, L), each row of sum 1, and importances (n,), float64, of the tokens at `index` of L x (all, d)."""
        near = windows(len(flat), self.window, self.edges)
        cosines, novelties = [], []
        # On a CPU in blocks that stay in its cache, so that the layers are read from memory once.
        for rows in index.split(BLOCK if index.device.type == "cpu" else max(1, len(index))):
            block = [x.index_select(0, rows) for x in flat]  # L x (block, d)
            cosines.append(layer_cosines(block))
            if self.factorisation != "cholesky":
                novelty = novelty_qr if self.factorisation == "qr" else novelty_svd
                novelties.append(novelty(normalize(torch.stack(block, 1).float(), dim=-1), near).double())
        cosine = torch.cat(cosines)
        novelty = torch.cat(novelties) if novelties else novelty_cholesky(cosine, near)
        return self.combined(cosine, novelty, near), adjacent(cosine).var(1)

    def combined(self, cosines: Tensor, novelty: Tensor, near: Tensor) -> Tensor:
        """Layer weights of inverse alignment and novelty. (n, L, L), (n, L), (L, L) -> (n, L)"""
        near = near.to(cosines)
        size = near.sum(1)  # (L,)
        alignment = (cosines * near).sum(2) / size
        if self.edges == "released":
            # r of the released code has the window's size, one more than its neighbours
            alignment = alignment / (1 - novelty.square()).clamp(min=TINY).sqrt() * (size + 1)
        return self.omega * _shares(1 / alignment) + (1 - self.omega) * _shares(novelty)

    def get_embedding_dimension(self) -> int:
        return self.embedding_dimension

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        self.save_config(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        return cls(**cls.load_config(model_name_or_path, subfolder=subfolder))


def used_tokens(mask: Tensor, drop_last: bool) -> Tensor:
    """The attention mask without each row's last token, wherever the padding is; a text's only token stays. (b, t) -> bool"""
    mask = mask.bool()
    count = mask.sum(1, keepdim=True)
    return mask & ((mask.cumsum(1) < count) | (count == 1)) if drop_last else mask


def layer_cosines(layers: Sequence[Tensor]) -> Tensor:
    """Cosines between the layers of each token. L x (n, d) -> (n, L, L) float64

    Importance is a variance of cosines near 1, and novelty a small remainder: products of the layers themselves would have to
    be taken in float64. Products of the differences between neighbouring layers need not: x_k = y_0 + ... + y_k, so that
    summing their products up in float64 gives the layers' own, with an error that is small beside the differences.
    """
    steps = torch.stack([layers[0], *(b - a for a, b in pairwise(layers))], 1)  # (n, L, d)
    steps = steps if steps.dtype == torch.float64 else steps.float()
    gram = (steps @ steps.mT).double().cumsum(1).cumsum(2)  # (n, L, L)
    norm = gram.diagonal(dim1=1, dim2=2).clamp(min=torch.finfo(gram.dtype).tiny).sqrt()
    return gram / (norm[:, :, None] * norm[:, None, :])


def adjacent(cosines: Tensor) -> Tensor:
    """Cosines of neighbouring layers. (n, L, L) -> (n, L - 1)"""
    return cosines.diagonal(offset=1, dim1=1, dim2=2)


def _shares(weights: Tensor) -> Tensor:
    total = weights.sum(1, keepdim=True)
    return torch.where(total == 0, 1 / weights.shape[1], weights / torch.where(total == 0, 1.0, total))
