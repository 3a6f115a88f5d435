"""Weighted point sets (Uesaka et al., "Weighted Point Set Embedding for Multimodal Contrastive Learning",
ICLR 2025), beside CLIP's single vector (Radford et al. 2021) on the same towers.

Every token h gives a point v = A h / |A h| and a weight w = f(b.h + c). CLIP's head has the same parameters:
b scores the tokens for attention pooling, and A projects the pooled token. The loss is CLIP's
symmetric InfoNCE: with s_ij the scaled similarity of image i and caption j, over a batch of n,

    loss = -1/2n sum_i [ log(exp(s_ii) / sum_j exp(s_ij)) + log(exp(s_ii) / sum_j exp(s_ji)) ]

Differences from the released code: towers are small, attention goes in both directions, each position has its
own learnt padding vector, weights have a bias c, and CLIP pools by attention, not by class and end tokens.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool1d, cross_entropy, normalize

from pipelines.contrastive.kernels import Kernel, PointSets
from pipelines.contrastive.towers import TextTransformer, VisionTransformer, Words, in_float32
from pipelines.runtime.device import to_device
from pipelines.runtime.files import atomic, reading, write_text
from pipelines.study import Head, TrainImageText

START_SCALE, SCALES = 1 / 0.07, (1.0, 100.0)
BOUND = 100.0  # largest weight
START_BIAS = {"tanh": 2.0, "sigmoid": -3.892, "scaled-sigmoid": -389.182}  # where f(bias) = 2


class DualEncoder(nn.Module):
    """An image and a text tower, a head on each, and the scale of the logits."""

    def __init__(self, row: TrainImageText, words: int) -> None:
        super().__init__()
        self.row = row
        self.image, self.text = VisionTransformer(row.image), TextTransformer(row.text, words)
        self.image_head = SetHead(row.image.width, row.head)
        self.text_head = SetHead(row.text.width, row.head)
        start = torch.tensor(START_SCALE)
        self.raw_scale = nn.Parameter(start if row.head.kind == "points" else start.log())
        self.kernel = kernel_of(row.head)

    @property
    def scale(self) -> Tensor:
        """The scale of the logits: the parameter itself for point sets, its exponential for CLIP. It has no
        effect with `log`.
        """
        return self.raw_scale if self.row.head.kind == "points" else self.raw_scale.exp()

    @torch.no_grad()
    def clamp_scale(self) -> None:
        """Clamp the scale to SCALES."""
        low, high = SCALES if self.row.head.kind == "points" else torch.tensor(SCALES).log().tolist()
        self.raw_scale.clamp_(low, high)

    @in_float32
    def image_sets(self, images: Tensor) -> PointSets:
        """uint8 (n, 3, size, size) -> sets"""
        return self.image_head(self.image(to_device(images, self.raw_scale.device).float() / 127.5 - 1))

    def text_sets(self, ids: Tensor) -> PointSets:
        """Token ids (n, context) -> sets"""
        return self.text_head(self.text(to_device(ids, self.raw_scale.device)))


class SetHead(nn.Module):
    """Tokens (n, M, width) -> PointSets of dimension `dim`.

    A single vector is a set of one point of weight 1.
    """

    def __init__(self, width: int, row: Head) -> None:
        super().__init__()
        self.row = row
        self.point, self.weight = nn.Linear(width, row.dim, bias=False), nn.Linear(width, 1)
        nn.init.normal_(self.point.weight, std=width**-0.5)
        # A set starts as twice the mean of its points. Weights of random sign, or nearer to 0, can shrink it
        # to nothing in the first steps; all gradients are then 0 (docs/experiments/point-sets.md).
        points = row.kind == "points"
        nn.init.normal_(self.weight.weight, std=(0.3 if points else 1) * width**-0.5)
        nn.init.constant_(self.weight.bias, START_BIAS[row.weight] if points else 0.0)

    def forward(self, tokens: Tensor) -> PointSets:
        raw = self.weight(tokens).squeeze(2)  # (n, M)
        if self.row.kind == "vector":
            pooled = torch.einsum("nm,nmw->nw", raw.softmax(1), tokens).unsqueeze(1)
            return PointSets(normalize(self.point(pooled), dim=2), torch.ones_like(raw[:, :1]))
        weights, points = activate(raw, self.row.weight), self.point(tokens)
        if self.row.points is not None and self.row.points < points.shape[1]:
            points = adaptive_avg_pool1d(points.transpose(1, 2), self.row.points).transpose(1, 2)
            weights = adaptive_avg_pool1d(weights, self.row.points)
        return PointSets(normalize(points, dim=2), weights)


def activate(raw: Tensor, kind: str) -> Tensor:
    """Return f(raw): tanh within +-BOUND and of slope 1 at 0, sigmoid and scaled-sigmoid in (0, BOUND).

    tanh and scaled-sigmoid are in the released code. sigmoid saturates within ten units of 0.
    """
    if kind == "tanh":
        return BOUND * torch.tanh(raw / BOUND)
    return BOUND * torch.sigmoid(raw if kind == "sigmoid" else raw / BOUND)


def symmetric_info_nce(similarity: Tensor) -> Tensor:
    """Return CLIP's loss, where image i belongs to caption i. (n, n) -> scalar"""
    right = torch.arange(len(similarity), device=similarity.device)
    return (cross_entropy(similarity, right) + cross_entropy(similarity.T, right)) / 2


def kernel_of(row: Head) -> Kernel:
    """Return the kernel of a head. Single vectors are compared by their inner product."""
    if row.kind == "vector":
        return Kernel(linear=1.0, nonlinear=0.0)
    return Kernel(row.kernel, row.scale, row.linear, row.nonlinear, row.log)


def save(model: DualEncoder, words: Words, path: Path) -> None:
    """Write `path`.safetensors, then `path`.json with the row and the words."""
    weights = {k: v.cpu().contiguous() for k, v in model.state_dict().items()}
    with atomic(path.with_suffix(".safetensors")) as draft:
        save_file(weights, draft)
    saved = {"row": model.row.model_dump(exclude={"device"}), "words": words.words}
    write_text(path.with_suffix(".json"), json.dumps(saved) + "\n")


def load(path: Path) -> tuple[DualEncoder, Words]:
    """Read what `save` wrote. Raises BadInput for missing or broken files."""
    with reading(path, "no image and text encoder there"):
        saved = json.loads(path.with_suffix(".json").read_bytes())
        model = DualEncoder(TrainImageText.model_validate(saved["row"]), len(saved["words"]))
        model.load_state_dict(load_file(path.with_suffix(".safetensors")))
        return model.eval(), Words(saved["words"])
