"""Rows of train_image_text and evaluate_image_text: images beside their captions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.contrastive.shape import HEADS, PATCH
from pipelines.runtime.settings import Bounds, Count, Natural, NonNegative, Positive
from pipelines.study.row import Computed, CorpusName, Ref, Row, Seeds, Several, Shared

Width = Annotated[int, Bounds(ge=8), Field(multiple_of=HEADS)]


class ImageTower(Row):
    """A vision transformer over all patches, trained from scratch."""

    # Pixels of a side; images are resized and cut to it
    size: Annotated[int, Bounds(ge=8), Field(multiple_of=PATCH)] = 32
    width: Width = 64  # channels
    depth: Count = 3  # layers


class TextTower(Row):
    """A transformer over all positions of a caption, from scratch."""

    vocabulary: Annotated[int, Bounds(ge=64)] = 4096  # words, by frequency; others are spelt
    width: Width = 64  # dimensions of a token
    depth: Count = 2  # layers


class Head(Row):
    """What a tower's tokens become: a weighted point set (Uesaka et al. 2025), or one vector as in CLIP.

    Both have equally many parameters.
    """

    kind: Literal["points", "vector"] = "points"  # weighted point sets, or one vector as in CLIP
    dim: Count = 16  # dimensions of a point or vector
    weight: Literal["tanh", "sigmoid", "scaled-sigmoid"] = "tanh"  # of tokens; the sigmoids are positive
    points: Count | None = None  # tokens are averaged to this many; None: one point per token
    kernel: Literal["gaussian", "imq"] = "gaussian"  # the non-linear kernel between points
    scale: Positive = 0.5  # the Gaussian's sigma, the inverse multiquadric's c
    linear: NonNegative = 2 / 3  # weight of the linear kernel
    nonlinear: NonNegative = 1 / 3  # weight of the non-linear kernel
    # Random Fourier features in training, redrawn at each step; None: the kernel itself
    features: Count | None = 256
    log: bool = False  # the logarithm of the similarity, as in KME-CLIP; its terms must be positive

    def check_alone(self) -> None:
        if self.log and (self.kind == "vector" or self.weight == "tanh" or self.linear or self.features):
            raise ValueError("log: needs points, a sigmoid weight, `linear: 0` and `features: null`")
        if self.kind == "points" and not (self.linear or self.nonlinear):
            raise ValueError("linear, nonlinear: one of them must be more than 0")


class TrainImageText(Shared):
    """Train an image and a text encoder on a corpus of images with captions. One pair per seed."""

    corpus: CorpusName  # images with captions
    seeds: Seeds = (0,)  # one training for each
    image: ImageTower = ImageTower()  # see `image` below
    text: TextTower = TextTower()  # see `text` below
    head: Head = Head()  # see `head` below
    steps: Count = 500  # of training
    batch: Several = 256  # over all ranks
    lr: Positive = 1e-3  # learning rate
    warmup: Natural = 30  # steps


class EvaluateImageText(Computed):
    """Measure trained encoders on images: zero-shot, linear, retrieval, PMI if known."""

    encoders: Annotated[str, Ref("train_image_text")]  # the trained pair of encoders
    # Images with captions and labels. Make sure that the encoders were trained on none of its test images
    corpus: CorpusName
    # Captions of a label in zero-shot classification; {} is its name
    templates: tuple[str, ...] = Field(("a {}",), min_length=1)
    limit: Several = 1000  # most test images in retrieval and PMI
    probe: Several = 2000  # most train images of the linear classifiers
    features: Count = 512  # random Fourier features of the linear classifiers

    def check_alone(self) -> None:
        for template in self.templates:
            if template.count("{}") != 1:
                raise ValueError(f"templates: {template!r} needs one {{}} for the class")
