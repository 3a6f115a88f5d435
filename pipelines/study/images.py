"""Rows of train_image_text and evaluate_image_text: images beside their captions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from pipelines.runtime.settings import NonNegative, Positive
from pipelines.study.row import Computed, Ref, Row, Seeds, Shared

if TYPE_CHECKING:
    from pipelines.study.params import Study


class ImageTower(Row):
    """A vision transformer over all patches, trained from scratch."""

    size: int = Field(32, ge=8)  # pixels of a side; images are resized and cut to it
    patch: int = Field(8, ge=2)
    width: int = Field(64, ge=8)
    depth: int = Field(3, ge=1)
    heads: int = Field(4, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> ImageTower:
        if self.size % self.patch or self.width % self.heads:
            raise ValueError("`patch` must divide `size`, and `heads` must divide `width`")
        return self


class TextTower(Row):
    """A transformer over all positions of a caption, from scratch."""

    context: int = Field(16, ge=2)  # tokens; longer captions are cut, and counted
    vocabulary: int = Field(4096, ge=64)  # words, by frequency; others are spelt
    width: int = Field(64, ge=8)
    depth: int = Field(2, ge=1)
    heads: int = Field(4, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> TextTower:
        if self.width % self.heads:
            raise ValueError("`heads` must divide `width`")
        return self


class Head(Row):
    """What a tower's tokens become: a weighted point set (Uesaka et al. 2025), or one vector as in CLIP.

    Both have equally many parameters.
    """

    kind: Literal["points", "vector"] = "points"
    dim: int = Field(16, ge=1)
    weight: Literal["tanh", "sigmoid", "scaled-sigmoid"] = "tanh"  # of tokens; the sigmoids are positive
    points: int | None = Field(None, ge=1)  # tokens are averaged to this many; None: one point per token
    kernel: Literal["gaussian", "imq"] = "gaussian"
    scale: Positive = 0.5  # the Gaussian's sigma, the inverse multiquadric's c
    linear: NonNegative = 2 / 3
    nonlinear: NonNegative = 1 / 3
    # Random Fourier features in training, redrawn at each step; None: the kernel itself
    features: int | None = Field(256, ge=1)


class TrainImageText(Shared):
    """Train an image and a text encoder on a corpus of images with captions. One pair per seed."""

    corpus: Annotated[str, Ref("corpora")]
    seeds: Seeds = (0,)
    image: ImageTower = ImageTower.model_validate({})
    text: TextTower = TextTower.model_validate({})
    head: Head = Head.model_validate({})
    steps: int = Field(500, ge=1)
    batch: int = Field(256, ge=2)  # over all ranks
    lr: Positive = 1e-3
    warmup: int = Field(30, ge=0)  # steps

    def check(self, where: str, study: Study) -> None:
        """Raise ValueError if its embeddings would have the name of a row of embed."""
        name = where.partition(".")[2]
        for side in ("image", "text"):
            if f"{name}-{side}" in study.embed:
                raise ValueError(f"{where}: its embeddings and a row of embed are both called {name}-{side}")


class EvaluateImageText(Computed):
    """Measure trained encoders on images: zero-shot, linear, retrieval, PMI if known."""

    encoders: Annotated[str, Ref("train_image_text")]
    corpus: Annotated[str, Ref("corpora")]
    templates: tuple[str, ...] = Field(("a {}",), min_length=1)
    limit: int = Field(1000, ge=2)  # most test images in retrieval and PMI
    probe: int = Field(2000, ge=2)  # most train images of the linear classifiers
    features: int = Field(512, ge=1)  # random Fourier features of the linear classifiers

    @model_validator(mode="after")
    def _slots(self) -> EvaluateImageText:
        for template in self.templates:
            if template.count("{}") != 1:
                raise ValueError(f"templates: {template!r} needs one {{}} for the class")
        return self
