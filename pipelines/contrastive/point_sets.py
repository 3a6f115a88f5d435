"""Weighted point sets (Uesaka et al., "Weighted Point Set Embedding for Multimodal Contrastive Learning", ICLR 2025), beside
CLIP's single vector (Radford et al. 2021) on the same encoders.

Every token h gives a point v = A h / |A h| and a weight w = f(b.h). CLIP's head has the same parameters: b scores the tokens
for attention pooling, A projects the pooled one.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool1d, normalize

from pipelines.contrastive.kernels import Kernel, PointSets
from pipelines.contrastive.towers import TextTransformer, Words, image_tower
from pipelines.runtime.errors import BadInput
from pipelines.study import Head, TrainImageText

START_SCALE, SCALES = 1 / 0.07, (1.0, 100.0)
BOUND = 100.0  # of weights


def activate(raw: Tensor, kind: str) -> Tensor:
    """Weights from their projections: tanh is bounded by +-BOUND with slope 1 at 0, sigmoid and scaled-sigmoid lie in (0, BOUND).

    tanh and scaled-sigmoid are the released code's; sigmoid, ours, saturates within ten units of 0 and not within a thousand.
    """
    match kind:
        case "tanh":
            return BOUND * torch.tanh(raw / BOUND)
        case "sigmoid":
            return BOUND * torch.sigmoid(raw)
        case "scaled-sigmoid":
            return BOUND * torch.sigmoid(raw / BOUND)
        case _:
            return raw


class SetHead(nn.Module):
    """Tokens (n, M, width) -> PointSets of dimension `dim`; a vector is the set of one point of weight 1."""

    def __init__(self, width: int, row: Head) -> None:
        super().__init__()
        self.row = row
        self.point, self.weight = nn.Linear(width, row.dim, bias=False), nn.Linear(width, 1)
        nn.init.normal_(self.point.weight, std=width**-0.5)
        # A set starts as twice the mean of its points. Weights of random sign, or nearer to 0, let it shrink to nothing in the
        # first steps; there every similarity is 0, and so are the gradients (docs/experiments.md).
        set_of_points = row.kind == "points"
        nn.init.normal_(self.weight.weight, std=(0.3 if set_of_points else 1) * width**-0.5)
        start = {"tanh": 2.0, "identity": 2.0, "sigmoid": -3.892, "scaled-sigmoid": -389.182}[row.weight]
        nn.init.constant_(self.weight.bias, start if set_of_points else 0.0)

    def forward(self, tokens: Tensor, empty: Tensor | None = None) -> PointSets:
        """`empty` (n, M): tokens that have no weight."""
        raw = self.weight(tokens).squeeze(2)
        if self.row.kind == "vector":
            shares = (
                raw.float().masked_fill(empty, -torch.inf).softmax(1)
                if empty is not None
                else raw.float().softmax(1)
            )
            pooled = torch.einsum("nm,nmw->nw", shares, tokens.float()).unsqueeze(1)
            return PointSets(normalize(self.point(pooled).float(), dim=2), torch.ones_like(shares[:, :1]))
        weights, points = activate(raw.float(), self.row.weight), self.point(tokens).float()
        if empty is not None:  # a mean over the tokens that are there
            weights = weights.masked_fill(empty, 0) * empty.shape[1] / (~empty).sum(1, keepdim=True)
        if self.row.points is not None and self.row.points < points.shape[1]:
            points = adaptive_avg_pool1d(points.transpose(1, 2), self.row.points).transpose(1, 2)
            weights = adaptive_avg_pool1d(weights, self.row.points)
        return PointSets(normalize(points, dim=2), weights)


class DualEncoder(nn.Module):
    """An image and a text tower, a head on each, and the scale of the logits."""

    def __init__(self, row: TrainImageText, words: int, weights: bool = True) -> None:
        super().__init__()
        self.row = row
        self.image, self.text = image_tower(row.image, weights), TextTransformer(row.text, words)
        self.image_head, self.text_head = (
            SetHead(self.image.width, row.head),
            SetHead(self.text.width, row.head),
        )
        start = torch.tensor(START_SCALE)
        self.raw_scale = nn.Parameter(start if row.head.kind == "points" else start.log())
        self.kernel = kernel(row.head)

    @property
    def scale(self) -> Tensor:
        """The identity for point sets, the exponential for CLIP; kept in [1, 100] by `clamp_scale`."""
        return self.raw_scale if self.row.head.kind == "points" else self.raw_scale.exp()

    @torch.no_grad()
    def clamp_scale(self) -> None:
        low, high = SCALES if self.row.head.kind == "points" else torch.tensor(SCALES).log().tolist()
        self.raw_scale.clamp_(low, high)

    def image_sets(self, images: Tensor) -> PointSets:
        """uint8 (n, 3, size, size) -> sets"""
        return self.image_head(self.image_tokens(images))

    def image_tokens(self, images: Tensor) -> Tensor:
        return self.image(images.to(self.raw_scale.device).float() / 127.5 - 1)

    def text_sets(self, ids: Tensor) -> PointSets:
        """Token ids (n, context) -> sets"""
        ids = ids.to(self.raw_scale.device)
        return self.text_head(self.text(ids), ids == 0 if self.text.masked else None)


def kernel(row: Head) -> Kernel:
    """The similarity's kernel; two single vectors are compared by their inner product alone."""
    if row.kind == "vector":
        return Kernel(linear=1.0, nonlinear=0.0)
    return Kernel(row.kernel, row.scale, row.linear, row.nonlinear)


def save(model: DualEncoder, words: Words, path: Path) -> None:
    """Write `path`.safetensors and `path`.json (the row and the words); the latter last."""
    save_file(
        {k: v.cpu().contiguous() for k, v in model.state_dict().items()}, path.with_suffix(".safetensors")
    )
    path.with_suffix(".json").write_text(
        json.dumps({"row": model.row.model_dump(exclude={"device"}), "words": words.words}) + "\n"
    )


def load(path: Path) -> tuple[DualEncoder, Words]:
    """Read what `save` wrote. Raises BadInput for missing or broken files."""
    try:
        saved = json.loads(path.with_suffix(".json").read_text())
        row = TrainImageText.model_validate(saved["row"])
        model = DualEncoder(row, len(saved["words"]), weights=False)
        model.load_state_dict(load_file(path.with_suffix(".safetensors")))
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        SafetensorError,
    ) as error:
        raise BadInput(
            f"{path}: no image and text encoder there: {' '.join(str(error).split())[:200]}"
        ) from None
    return model.eval(), Words(saved["words"], row.text.context)
