"""A moved index as a model of the package mteb, which runs BEIR and other benchmarks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sentence_transformers.util import cos_sim, pairwise_cos_sim
from torch import Tensor

from pipelines.aligners.core.translator import Translator
from pipelines.encoders.query import Encode


@dataclass(eq=False)
class Moved:
    """Embed documents by the old encoder and translate them; embed queries, and all else, by the new one.

    An `EncoderProtocol` of mteb 2: `mteb.evaluate(Moved("mine", old, new, translator), tasks)`.
    """

    name: str
    old: Encode
    new: Encode
    translator: Translator

    similarity = staticmethod(cos_sim)
    similarity_pairwise = staticmethod(pairwise_cos_sim)

    def encode(
        self, inputs: Iterable[dict[str, Any]], *, prompt_type: str | None = None, **kwargs: Any
    ) -> Tensor:
        """Return vectors (n, e) of batches of texts. Other arguments are mteb's own, and not used."""
        texts = [text for batch in inputs for text in batch["text"]]
        return self.translator(self.old(texts)) if prompt_type == "document" else self.new(texts)

    @property
    def mteb_model_meta(self) -> Any:
        """Return what mteb writes beside results."""
        from mteb.models import ModelMeta  # pyright: ignore[reportMissingImports]

        return ModelMeta.create_empty({"name": f"universal-geometry/{self.name}", "revision": "1"})
