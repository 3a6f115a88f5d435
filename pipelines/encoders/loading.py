"""Open the folder of an encoder, ready to run."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers.utils.logging import disable_progress_bar

from pipelines.encoders.pooling import compose, document_prompt, open_model, positions, width
from pipelines.encoders.sources import digest_of_weights, part_folder
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading
from pipelines.study import Encoder

log = logging.getLogger(__name__)
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Loaded:
    """An encoder, ready to run."""

    model: SentenceTransformer  # with several parts: that of the first
    name: str
    pooling: str  # mean, cls, lasttoken, ...; several are joined by `+`; `none` without a pooling module
    dimension: int
    max_tokens: int | None  # None: no limit
    prompt: str  # prefix of every text
    query_prompt: str  # prefix of every query
    precision: str  # as used: float32 where bf16 is not available
    device: torch.device
    weights: str  # sha256
    parts: tuple[Loaded, ...] = ()  # of a row with several models


def load(folder: Path, row: Encoder, device: torch.device | None = None) -> Loaded:
    """Open the encoder in `folder` on `device`; None: the default device (runtime.device).

    With `precision: bf16` or `fp16`, matrix products run in 16 bits. Embeddings, norms, the residual stream,
    pooling and all later modules stay in float32. A CPU without bf16 instructions computes in float32, with a
    warning. Raises BadInput if the folder is no model, or needs code of its own.
    """
    device = device or resolve()
    if len(row.parts) > 1:
        return _of_several(tuple(load(part_folder(folder, part), part, device) for part in row.parts))
    _check_device(row, device)
    precision = _precision(row, device)
    with reading(folder):
        digest = digest_of_weights(folder)
    disable_progress_bar()
    # "auto" is the checkpoint's own dtype: a 16-bit model of billions of weights is never held in 32 bits.
    own = open_model(folder, torch.float32 if precision == "float32" else "auto")
    prompts, prompt = own.prompts, document_prompt(own)  # `compose` keeps neither
    model = compose(own, row).to(device).eval()
    if row.prompt is not None:
        prompts, prompt = {"query": row.prompt}, row.prompt
    _cast(model, DTYPES[precision])
    return Loaded(
        model=model,
        name=str(row.model),
        pooling=row.pooling or _pooling(model),
        dimension=width(model),
        max_tokens=_limit(model, row),
        prompt=prompt,
        query_prompt=prompts.get("query", prompt) or "",
        precision=precision,
        device=device,
        weights=digest,
    )


def for_queries(loaded: Loaded) -> Loaded:
    """Return the encoder with its prompt of queries in place of that of documents."""
    return replace(loaded, prompt=loaded.query_prompt, parts=tuple(map(for_queries, loaded.parts)))


def _of_several(parts: tuple[Loaded, ...]) -> Loaded:
    about = {key: "+".join(getattr(part, key) for part in parts) for key in ("name", "pooling", "weights")}
    return replace(parts[0], **about, dimension=sum(part.dimension for part in parts), parts=parts)


def is_static(model: SentenceTransformer) -> bool:
    """Return whether the model reads a batch as one row of tokens without padding (static vectors)."""
    return hasattr(model.tokenizer, "encode_batch")


def _check_device(row: Encoder, device: torch.device) -> None:
    if row.precision == "fp16" and device.type == "cpu":
        raise BadInput(f"encoder {row.model}: precision fp16 needs a GPU; on a CPU use bf16 or float32")
    if row.pooling == "sbert-wk" and device.type == "mps":
        raise BadInput(f"encoder {row.model}: mps has no float64, which sbert-wk needs; take cpu or cuda")


def _precision(row: Encoder, device: torch.device) -> str:
    if row.precision == "bf16" and not _has_bf16(device):
        log.warning("encoder %s: this machine has no bf16 instructions; using float32", row.model)
        return "float32"
    return row.precision


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    here = torch.cpu.get_capabilities()
    return any(here.get(k) for k in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))


def _cast(model: SentenceTransformer, low: torch.dtype) -> None:
    """Cast the transformer's linear layers to `low`, everything else to float32."""
    linear = {id(m) for m in model[0].modules() if isinstance(m, nn.Linear)}
    for module in model.modules():
        dtype = low if id(module) in linear else torch.float32
        for tensor in chain(module.parameters(recurse=False), module.buffers(recurse=False)):
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(dtype)


def _limit(model: SentenceTransformer, row: Encoder) -> int | None:
    """Set and return the longest input in tokens. Raises BadInput if the model has fewer positions."""
    if row.max_tokens is None:
        own = model.max_seq_length
        return int(own) if own and own < 1_000_000 else None  # tokenizers say 1e30 for "any"
    most = positions(model[0])
    if most and row.max_tokens > most:
        raise BadInput(
            f"encoder {row.model}: max_tokens is {row.max_tokens}, but the model has {most} positions"
        )
    if not is_static(model):
        model.max_seq_length = row.max_tokens
    return row.max_tokens


def _pooling(model: SentenceTransformer) -> str:
    if hasattr(model[0], "pooling"):
        return str(model[0].pooling)
    if type(model[0]).__name__ == "StaticEmbedding":
        return "mean"
    modes: list[Any] = [m.pooling_mode for m in model if hasattr(m, "pooling_mode")]
    return "+".join(m if isinstance(m, str) else "+".join(m) for m in modes) or "none"
