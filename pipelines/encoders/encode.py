"""Texts to vectors: tokenize once, sort by length, batch by tokens, store parts that a killed run reuses."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pipelines.encoders.loading import DTYPES, Loaded, is_static
from pipelines.encoders.pooling import SeveralPoolings, compose, width
from pipelines.runtime import files
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress
from pipelines.study import Encoder, Pooled

PART = 4096  # texts per part file, at least
TOKENIZE = 256  # texts per call of the tokenizer, which pads them to the longest


@dataclass(frozen=True)
class Tokens:
    """The tokenizer's output."""

    ids: list[Tensor]  # per text (length,), truncated, with special tokens
    truncated: float  # fraction of the texts that were truncated
    extra: dict[str, Any]  # other features that the model needs with each batch


@dataclass(frozen=True)
class Encoded:
    """Raw vectors (n, dimension) in the order of the texts, in the row's `store` dtype."""

    vectors: np.ndarray
    truncated: float | None  # fraction of the texts; None: the vectors came without texts


@torch.inference_mode()
def encode(
    loaded: Loaded,
    texts: Sequence[str],
    row: Encoder,
    folder: Path,
    ranks: tuple[int, int] = (0, 1),
    barrier: Callable[[], None] = lambda: None,
) -> Encoded:
    """Encode `texts`. Write part files into `folder`, which is made, and reuse those already there.

    Batches do not depend on what is there, so a continued run gives the same bytes. The folder must belong to
    these texts, weights and row. ranks: this process's rank, and the number of processes that share the
    folder. Each encodes its parts round-robin, and reads the others' after `barrier()`.
    """
    if loaded.parts:
        return _concatenated(
            [encode(one, texts, row, folder / one.name, ranks, barrier) for one in loaded.parts]
        )
    folder.mkdir(parents=True, exist_ok=True)
    rank, size = ranks

    # 1. Plan the parts, each of whole batches.
    tokens = tokenize(loaded, texts)
    lengths = np.array([len(ids) for ids in tokens.ids])
    parts = list(group(plan(lengths, row.batch_tokens)))
    paths = [folder / f"part-{number:05}.npy" for number in range(len(parts))]

    # 2. Write the parts of this rank that are not there yet.
    with progress(what=f"encode {loaded.name}", unit="texts", total=len(texts)) as bar:
        for path, batches in list(zip(paths, parts, strict=True))[rank::size]:
            if path.exists():
                bar.update(sum(map(len, batches)))
                continue
            encoded = []
            for batch in batches:
                encoded.append(_encode_batch(loaded, tokens, batch))
                bar.update(len(batch))
            # A vector that float16 cannot hold is refused by `embed`
            with files.atomic(path) as draft, open(draft, "wb") as opened, np.errstate(over="ignore"):
                np.save(opened, np.concatenate(encoded).astype(row.store), allow_pickle=False)

    # 3. Read all parts.
    barrier()
    vectors = np.empty((len(texts), loaded.dimension), row.store)
    for path, batches in zip(paths, parts, strict=True):
        vectors[np.concatenate(batches)] = np.load(path, allow_pickle=False)
    return Encoded(vectors, tokens.truncated)


def indexed(texts: Iterable[str]) -> tuple[list[str], list[int]]:
    """Return every text once, in the order of its first occurrence, and the place of each of `texts`."""
    texts = list(texts)
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return list(places), [places[text] for text in texts]


def encode_each(
    loaded: Loaded, texts: Sequence[str], row: Encoder, poolings: Mapping[str, Pooled], folder: Path
) -> dict[str, Tensor]:
    """Encode `texts` once, and pool them in several ways. `own`: the encoder's pooling. -> {name: (n, d)}

    Raises BadInput if there is no transformer to pool, if it has too few layers, or for a vector that is not
    finite.
    """
    ways = [loaded.model]
    ways += [compose(loaded.model, row.model_copy(update=dict(pooled))) for pooled in poolings.values()]
    widths = [loaded.dimension, *map(width, ways[1:])]
    if poolings:  # one transformer, then the later modules of each way
        together = SentenceTransformer(
            modules=[loaded.model[0], SeveralPoolings(ways)], device=str(loaded.device)
        )
        loaded = replace(loaded, model=together, dimension=sum(widths))
    vectors = finite(loaded, encode(loaded, texts, row, folder))
    return dict(zip(["own", *poolings], vectors.split(widths, 1), strict=True))


def finite(loaded: Loaded, encoded: Encoded) -> Tensor:
    """Return the vectors as float32. (n, d) Raises BadInput if one is not finite."""
    vectors = torch.from_numpy(encoded.vectors).float()
    bad = ~vectors.isfinite().all(1)
    if bad.any():
        half = " in float16 (`store: float32` holds more)" if encoded.vectors.dtype == np.float16 else ""
        raise BadInput(f"encoder {loaded.name}: {int(bad.sum())} of {len(bad)} vectors are not finite{half}")
    return vectors


def _concatenated(encoded: list[Encoded]) -> Encoded:
    """Concatenate unit vectors by several encoders: a cosine is then the mean of the encoders' cosines."""
    raw = [one.vectors.astype(np.float32) for one in encoded]  # float16 holds no square above 65,504
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True).clip(1e-30) for x in raw]
    vectors = np.hstack(unit).astype(encoded[0].vectors.dtype)
    return Encoded(vectors, max(one.truncated or 0.0 for one in encoded))


def tokenize(loaded: Loaded, texts: Sequence[str]) -> Tokens:
    """Run the model's own preprocessing on every text and remove the padding."""
    ids, extra = [], {}
    for start in progress(range(0, len(texts), TOKENIZE), what="tokenize", unit=f"x {TOKENIZE} texts"):
        chunk = list(texts[start : start + TOKENIZE])
        features = loaded.model.preprocess(chunk, prompt=loaded.prompt or None)
        if is_static(loaded.model):
            split = features["input_ids"].tensor_split(features["offsets"][1:])
            ids += [text[: loaded.max_tokens] for text in split]
        else:
            masks = features["attention_mask"].bool()
            ids += [text[mask] for text, mask in zip(features["input_ids"], masks, strict=True)]
            extra = {k: v for k, v in features.items() if not isinstance(v, Tensor)}
    return Tokens(ids, _truncated(loaded, texts, ids), extra)


def _truncated(loaded: Loaded, texts: Sequence[str], ids: list[Tensor]) -> float:
    """Return the fraction of truncated texts. Only texts that fill the limit are tokenized again."""
    limit, tokenizer = loaded.max_tokens, loaded.model.tokenizer
    full = [loaded.prompt + text for text, i in zip(texts, ids, strict=True) if len(i) == limit]
    if not full or limit is None:
        return 0.0
    if is_static(loaded.model):
        lengths = [len(e.ids) for e in tokenizer.encode_batch(full, add_special_tokens=False)]
    else:
        lengths = [len(i) for i in tokenizer(full, truncation=False, verbose=False)["input_ids"]]
    return sum(n > limit for n in lengths) / len(texts)


def plan(lengths: np.ndarray, batch_tokens: int) -> Iterator[np.ndarray]:
    """Yield the rows of each batch, longest texts first: at most `batch_tokens` padded tokens, or one text.

    If the longest texts fill at least half a batch, the batch holds only texts of that length. It then has no
    padding, and attention needs no mask.
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = lengths[order]
    start = 0
    while start < len(order):
        longest = int(ordered[start])
        size = max(1, batch_tokens // max(1, longest))
        end = min(start + size, len(order))
        equal = int((ordered[start:end] == longest).sum())
        if equal >= size / 2:
            end = start + equal
        yield order[start:end]
        start = end


def group(batches: Iterator[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Group whole batches to parts of at least PART texts."""
    part: list[np.ndarray] = []
    for batch in batches:
        part.append(batch)
        if sum(map(len, part)) >= PART:
            yield part
            part = []
    if part:
        yield part


def _encode_batch(loaded: Loaded, tokens: Tokens, rows: np.ndarray) -> np.ndarray:
    """Encode the texts of these rows. (b,) -> (b, dimension) float32"""
    features = _collate(loaded, [tokens.ids[row] for row in rows])
    features = {key: value.to(loaded.device) for key, value in features.items()} | tokens.extra
    first, *later = loaded.model
    low = DTYPES[loaded.precision]
    with torch.autocast(loaded.device.type, dtype=low, enabled=low != torch.float32):
        features = first(features)
    for key, value in features.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            features[key] = value.float()
    for module in later:
        features = module(features)
    return features["sentence_embedding"].float().cpu().numpy()


def _collate(loaded: Loaded, ids: list[Tensor]) -> dict[str, Tensor]:
    lengths = torch.tensor([len(i) for i in ids])
    if is_static(loaded.model):
        return {"input_ids": torch.cat(ids), "offsets": lengths.cumsum(0) - lengths}
    tokenizer = loaded.model.tokenizer
    side = tokenizer.padding_side
    padded = pad_sequence(ids, True, tokenizer.pad_token_id or 0, padding_side=side)
    mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long()  # (batch, longest)
    return {"input_ids": padded, "attention_mask": mask if side == "right" else mask.flip(1)}
