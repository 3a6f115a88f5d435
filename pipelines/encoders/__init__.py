"""Encoders: `fetch` turns any source into one sentence-transformers folder, `load` opens it, `encode` runs it.

A folder is whatever `SentenceTransformer(folder)` opens, or a bare CLIP checkpoint, of which the text side is taken; of a row
of several models, a folder of such folders.
Code that a checkpoint brings along is never run.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import nn

from pipelines.encoders.sources import fetch, part_folder, weights
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading
from pipelines.study import Encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["Loaded", "fetch", "load", "weights"]
log = logging.getLogger(__name__)
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Loaded:
    """An encoder, ready to run."""

    model: SentenceTransformer  # of several parts the first one's
    name: str
    pooling: str  # mean, cls, lasttoken, ...; several are joined by `+`; `none` where there is no such module
    dimension: int
    max_tokens: int | None  # None: texts of any length
    prompt: str  # put before every text
    precision: str  # what is really used: float32 where the machine has no bf16
    device: torch.device
    weights: str  # sha256
    parts: tuple[Loaded, ...] = ()  # of a row of several models


def load(folder: Path, row: Encoder, device: torch.device | None = None) -> Loaded:
    """Open a sentence-transformers folder, on a device; None: what `auto` stands for (runtime.device).

    With `precision: bf16` (or fp16, on a GPU) the matrix products are done in 16 bits, while embeddings, norms, the
    residual stream, pooling and all later modules stay in float32. A CPU without bf16 instructions would emulate them
    slowly: there, a warning is given and float32 is used; and T5, whose activations
    overflow in fp16, gets bf16, with a warning. Raises BadInput for what is no model or needs its own code.
    """
    from pipelines.encoders.pooling import compose

    device = device or resolve()
    if len(row.parts) > 1:
        return _side_by_side(tuple(load(part_folder(folder, part), part, device) for part in row.parts))
    with reading(folder):
        precision = _precision(row, device, folder)
        digest = weights(folder)
    model = compose(_open(folder, precision), row).to(device).eval()
    _cast(model, DTYPES[precision])
    limit = _limit(model, row)
    return Loaded(
        model=model,
        name=str(row.model),
        pooling=row.pooling or _pooling(model),
        dimension=int(model.get_embedding_dimension() or 0),
        max_tokens=limit,
        prompt=row.prompt or model.prompts.get(model.default_prompt_name or "") or "",
        precision=precision,
        device=device,
        weights=digest,
    )


def _side_by_side(parts: tuple[Loaded, ...]) -> Loaded:
    about = {key: "+".join(getattr(part, key) for part in parts) for key in ("name", "pooling", "weights")}
    return replace(parts[0], **about, dimension=sum(part.dimension for part in parts), parts=parts)


def _precision(row: Encoder, device: torch.device, folder: Path) -> str:
    if row.precision == "fp16" and device.type == "cpu":
        raise BadInput(f"encoder {row.model}: precision fp16 needs a GPU; on a CPU take bf16 or float32")
    precision = row.precision
    if precision == "fp16" and _is_t5(folder):
        log.warning("encoder %s: T5 overflows in fp16; bf16 takes its place", row.model)
        precision = "bf16"
    if precision == "bf16" and not _has_bf16(device):
        log.warning("encoder %s: no bf16 instructions here; computing in float32", row.model)
        return "float32"
    return precision


def _is_t5(folder: Path) -> bool:
    """Whether the transformer is a T5: its feed-forward activations exceed 65504, the largest number of fp16."""
    configs = (folder / "config.json", folder / "0_Transformer" / "config.json")
    return any(
        json.loads(c.read_text()).get("model_type") in ("t5", "mt5", "umt5") for c in configs if c.is_file()
    )


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    here = torch.cpu.get_capabilities()
    return any(here.get(k) for k in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))


def _open(folder: Path, precision: str) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    from pipelines.encoders.clip import TextSide, is_clip
    from pipelines.encoders.pooling import opened

    logging.disable_progress_bar()  # of weights that are loaded, once for each encoder and stage
    # "auto": the checkpoint's own dtype, so that a 16-bit model of billions of weights is never held in 32 bits
    dtype = torch.float32 if precision == "float32" else "auto"
    try:
        if is_clip(folder):
            return SentenceTransformer(modules=[TextSide(folder)], device="cpu")
        options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True, "device": "cpu"}
        return opened(folder, model_kwargs={"dtype": dtype}, **options)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ImportError,
        RuntimeError,
        SafetensorError,
    ) as error:
        if "trust_remote_code" in str(error):
            raise BadInput(f"encoder {folder}: it needs code of its own, which is not run here") from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(f"encoder {folder}: no sentence-transformers model: {reason}") from error


def _cast(model: SentenceTransformer, low: torch.dtype) -> None:
    """Linear weights of the transformer in `low`; everything else in float32."""
    linear = {id(m) for m in model[0].modules() if isinstance(m, nn.Linear)}
    for module in model.modules():
        dtype = low if id(module) in linear else torch.float32
        for tensor in chain(module.parameters(recurse=False), module.buffers(recurse=False)):
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(dtype)


def _limit(model: SentenceTransformer, row: Encoder) -> int | None:
    """Set and return the longest input in tokens."""
    own = model.max_seq_length
    own = int(own) if own and own < 1_000_000 else None  # tokenizers say 1e30 for "any"
    if row.max_tokens is None:
        return own
    positions = getattr(getattr(model[0], "config", None), "max_position_embeddings", None)
    if positions and row.max_tokens > positions:
        raise BadInput(
            f"encoder {row.model}: max_tokens is {row.max_tokens}, but the model has {positions} positions"
        )
    if hasattr(model[0], "processor"):
        model.max_seq_length = row.max_tokens
    return row.max_tokens


def _pooling(model: SentenceTransformer) -> str:
    if hasattr(model[0], "pooling"):
        return str(model[0].pooling)
    if type(model[0]).__name__ == "StaticEmbedding":
        return "mean"
    modes: list[Any] = [m.pooling_mode for m in model if hasattr(m, "pooling_mode")]
    return "+".join(m if isinstance(m, str) else "+".join(m) for m in modes) or "none"
