"""Texts to vectors: tokenised once, sorted by length, batched by tokens, part by part, so a killed run continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pipelines.encoders import DTYPES, Loaded
from pipelines.runtime import files
from pipelines.runtime.progress import progress
from pipelines.study import Encoder

PART = 4096  # texts per part file, at least: what a kill can cost
TOKENISE = 256  # texts per call of the tokenizer, which pads them to the longest


@dataclass(frozen=True)
class Tokens:
    """What the tokenizer made of the texts."""

    ids: list[Tensor]  # per text (length,), truncated, special tokens included
    truncated: float  # share of the texts that were longer than the encoder takes
    extra: dict[str, Any]  # what else the model wants to be told about each batch

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(i) for i in self.ids])


@dataclass(frozen=True)
class Encoded:
    """Raw vectors (n, dimension) in the order of the texts, in the row's `store` dtype."""

    vectors: np.ndarray
    truncated: float | None  # share of the texts; None: not encoded here


@torch.inference_mode()
def encode(
    loaded: Loaded,
    texts: Sequence[str],
    row: Encoder,
    folder: Path,
    ranks: tuple[int, int] = (0, 1),
    wait: Callable[[], None] = lambda: None,
) -> Encoded:
    """Encode `texts`, writing part files into `folder`, which is made, and passing over those already there.

    Batches depend on the texts alone and not on where a former run stopped, so a continued run gives the same bytes.
    The folder must belong to these texts, these weights and this row. `ranks`: of several processes with one folder the number
    of this one and how many they are; each writes its share of the parts, and reads all when `wait` says that all are there.
    """
    if loaded.parts:
        return _side_by_side(
            [encode(part, texts, row, folder / part.name, ranks, wait) for part in loaded.parts]
        )
    folder.mkdir(parents=True, exist_ok=True)
    tokens = tokenise(loaded, texts)
    dtype = np.dtype(row.store)
    vectors = np.empty((len(texts), loaded.dimension), dtype)
    work = [
        (folder / f"part-{number:05}.npy", batches)
        for number, batches in enumerate(parts(list(plan(tokens.lengths, row.batch_tokens))))
    ]
    with progress(what=f"encode {loaded.name}", unit="texts", total=len(texts)) as bar:
        for file, batches in work[ranks[0] :: ranks[1]]:
            rows = np.concatenate(batches)
            part = _read(file, (len(rows), loaded.dimension), dtype)
            if part is None:
                part = np.concatenate([_batch(loaded, tokens, b, bar.update) for b in batches]).astype(dtype)
                _write(file, part)
            else:
                bar.update(len(rows))
            vectors[rows] = part
    wait()
    for file, batches in (other for number, other in enumerate(work) if number % ranks[1] != ranks[0]):
        vectors[np.concatenate(batches)] = np.load(file, allow_pickle=False)
    return Encoded(vectors, tokens.truncated)


def _side_by_side(parts: list[Encoded]) -> Encoded:
    """Each part of length 1, so that a cosine is the mean of theirs."""
    lengths = [np.linalg.norm(part.vectors, axis=1, keepdims=True) for part in parts]
    unit = [part.vectors / np.maximum(length, 1e-30) for part, length in zip(parts, lengths, strict=True)]
    return Encoded(
        np.hstack(unit).astype(parts[0].vectors.dtype), max(part.truncated or 0.0 for part in parts)
    )


def tokenise(loaded: Loaded, texts: Sequence[str]) -> Tokens:
    """Every text through the model's own preprocessing, then without the padding."""
    ids, extra = [], {}
    starts = range(0, len(texts), TOKENISE)
    for start in progress(starts, what="tokenise", unit=f"x {TOKENISE} texts"):
        features = loaded.model.preprocess(
            list(texts[start : start + TOKENISE]), prompt=loaded.prompt or None
        )
        if "offsets" in features:  # a static table: all texts in one row
            ids += [
                i[: loaded.max_tokens] for i in features["input_ids"].tensor_split(features["offsets"][1:])
            ]
        else:
            ids += [
                i[m] for i, m in zip(features["input_ids"], features["attention_mask"].bool(), strict=True)
            ]
            extra = {k: v for k, v in features.items() if not isinstance(v, Tensor)}
    return Tokens(ids, _truncated(loaded, texts, ids), extra)


def _truncated(loaded: Loaded, texts: Sequence[str], ids: list[Tensor]) -> float:
    """Share of the texts that did not fit: only those that fill the limit need another look."""
    full = [loaded.prompt + t for t, i in zip(texts, ids, strict=True) if len(i) == loaded.max_tokens]
    if not full or loaded.max_tokens is None:
        return 0.0
    tokenizer: Any = loaded.model.tokenizer
    if hasattr(tokenizer, "encode_batch"):
        lengths = [len(e.ids) for e in tokenizer.encode_batch(full, add_special_tokens=False)]
    else:
        lengths = [len(i) for i in tokenizer(full, truncation=False, verbose=False)["input_ids"]]
    return sum(n > loaded.max_tokens for n in lengths) / len(texts)


def plan(lengths: np.ndarray, batch_tokens: int) -> Iterator[np.ndarray]:
    """Row indices of each batch, longest texts first, at most `batch_tokens` padded tokens (but at least one text).

    A batch that is at least half full ends where the length changes: without padding, attention needs no mask.
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = -lengths[order]
    start = 0
    while start < len(order):
        size = max(1, batch_tokens // max(1, -int(ordered[start])))
        end = min(start + size, len(order))
        same = int(np.searchsorted(ordered, ordered[start], side="right"))
        if start + size / 2 <= same < end:
            end = same
        yield order[start:end]
        start = end


def parts(batches: list[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Whole batches, gathered to at least PART texts."""
    part: list[np.ndarray] = []
    for batch in batches:
        part.append(batch)
        if sum(map(len, part)) >= PART:
            yield part
            part = []
    if part:
        yield part


def _batch(loaded: Loaded, tokens: Tokens, rows: np.ndarray, done: Callable[[int], object]) -> np.ndarray:
    """One batch (b,) of row indices -> (b, dimension) float32."""
    collated = _collate(loaded, [tokens.ids[r] for r in rows])
    features = {k: v.to(loaded.device) for k, v in collated.items()} | tokens.extra
    first, *later = loaded.model
    low = DTYPES[loaded.precision]
    with torch.autocast(loaded.device.type, dtype=low, enabled=low != torch.float32):
        features = first(features)
    features = {
        k: v.float() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in features.items()
    }
    for module in later:
        features = module(features)
    done(len(rows))
    return features["sentence_embedding"].float().cpu().numpy()


def _collate(loaded: Loaded, ids: list[Tensor]) -> dict[str, Tensor]:
    lengths = torch.tensor([len(i) for i in ids])
    if not hasattr(loaded.model[0], "processor"):  # a static table
        return {"input_ids": torch.cat(ids), "offsets": lengths.cumsum(0) - lengths}
    tokenizer: Any = loaded.model.tokenizer
    padded = pad_sequence(ids, True, tokenizer.pad_token_id or 0, padding_side=tokenizer.padding_side)
    mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long()  # (batch, longest)
    return {
        "input_ids": padded,
        "attention_mask": mask if tokenizer.padding_side == "right" else mask.flip(1),
    }


def _read(file: Path, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray | None:
    if not file.exists():
        return None
    part = np.load(file, allow_pickle=False)
    return part if part.shape == shape and part.dtype == dtype else None


def _write(file: Path, part: np.ndarray) -> None:
    """Whole or not at all: a kill must not leave half a part that looks like one."""
    with files.atomic(file) as draft, open(draft, "wb") as opened:
        np.save(opened, part, allow_pickle=False)
