"""The text tower of a CLIP checkpoint as a module of sentence-transformers, without the image tower."""

import json
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import InputModule
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, CLIPTextModelWithProjection


def is_clip(folder: Path) -> bool:
    """Tell whether `folder` is a CLIP checkpoint as published, not a folder of sentence-transformers."""
    if not (folder / "config.json").is_file() or (folder / "modules.json").exists():
        return False
    config = json.loads((folder / "config.json").read_bytes())
    return config.get("model_type") in ("clip", "clip_text_model")


class ClipText(InputModule):
    """Texts -> the space shared with images: the state at the end-of-text token, projected.

    Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision", section 2.4.
    """

    pooling = "eos"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        whole = AutoConfig.from_pretrained(folder, local_files_only=True)
        config = getattr(whole, "text_config", whole)
        config.projection_dim = whole.projection_dim  # the text tower's own copy may be a default
        options = {"config": config, "local_files_only": True, "dtype": torch.float32}
        self.model: Any = _TextTower.from_pretrained(folder, attn_implementation=None, **options)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.config = self.model.config
        self.max_seq_length = self.config.max_position_embeddings

    def get_embedding_dimension(self) -> int:
        return self.config.projection_dim

    def preprocess(self, inputs: list[str], prompt: str | None = None, **kwargs: Any) -> dict[str, Tensor]:
        texts = [(prompt or "") + text for text in inputs]
        options = {"padding": True, "truncation": True, "return_tensors": "pt"}
        return dict(self.tokenizer(texts, max_length=self.max_seq_length, **options))

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        output = self.model(input_ids=features["input_ids"], attention_mask=features["attention_mask"])
        return {**features, "sentence_embedding": output.text_embeds}  # (batch, projection_dim)

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        self.model.save_pretrained(output_path)
        self.tokenizer.save_pretrained(output_path)


class _TextTower(CLIPTextModelWithProjection):
    """Ignores the weights of the image tower without a report of each."""

    _keys_to_ignore_on_load_unexpected = ["vision_model", "visual_projection", "logit_scale", "position_ids"]
