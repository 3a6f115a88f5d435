"""Data sets on the Hugging Face hub, read with `datasets`; streamed if only some rows are wanted."""

import itertools
from typing import Any

import polars as pl

from pipelines.runtime.errors import BadInput, message
from pipelines.runtime.progress import progress
from pipelines.study import HubCorpus

BUFFER = 10_000  # rows that a streamed set is shuffled in


def table(p: HubCorpus) -> pl.DataFrame:
    """Return the set's own columns but for bytes, and `split` if several splits are read.

    `hub_split: "train+test"` reads several splits and keeps their names. A column `split` of the set itself
    is left out unless `columns` names it. With `p.rows` the set is streamed,
    and only as many rows are drawn from it with `p.seed` as are needed. Raises BadInput without network, and
    for an unknown id, configuration or split.
    """
    frames = []
    for split in map(str.strip, p.hub_split.split("+")):
        try:  # a streamed set needs the network until its last row
            records = ({k: v for k, v in row.items() if not isinstance(v, bytes)} for row in _some(p, split))
            rows = list(progress(records, what=f"hub {p.id}", unit="rows"))
        except Exception as error:  # no network, or an unknown id, configuration or split
            raise BadInput(f"hub {p.id}: {message(error, 300)}") from None
        frame = pl.DataFrame(rows, infer_schema_length=None)
        if "split" not in {*p.columns, *p.columns.values()}:
            frame = frame.drop("split", strict=False)
            if "+" in p.hub_split:
                frame = frame.with_columns(split=pl.lit(split))
        frames.append(frame)
    return pl.concat(frames, how="diagonal_relaxed")


def _some(p: HubCorpus, split: str) -> Any:
    """Return a split.

    With `p.rows`, return that many shuffled rows, plus a quarter if each text gives at most one row: some are
    empty or repeated.
    """
    from datasets import DownloadConfig, load_dataset

    csv = (p.data_files or "").endswith(".csv")
    words: dict[str, Any] = {"keep_default_na": False} if csv else {}  # "n/a" and "None" are texts
    dataset: Any = load_dataset(
        p.id,
        p.config,
        split=split,
        revision=p.revision,
        data_files=p.data_files,
        streaming=p.rows is not None,
        download_config=DownloadConfig(max_retries=2),
        **words,
    )
    if p.rows is None:
        return dataset
    several = p.chunk and not p.chunk.first
    shuffled = dataset.shuffle(seed=p.seed, buffer_size=BUFFER)
    return itertools.islice(shuffled, p.rows if several else p.rows + p.rows // 4)
