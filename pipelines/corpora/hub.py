"""Data sets on the Hugging Face hub, read with `datasets`; streamed where only some rows are wanted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import polars as pl

from pipelines.corpora import chunk
from pipelines.corpora.path import cleaned, mapped
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress
from pipelines.study import HubCorpus

PATIENCE = 5.0  # seconds to wait for the hub's first answer
BUFFER = 10_000  # rows that a streamed set is shuffled in
USUAL = ("text", "body", "email_body", "content", "passage")  # what the text is called in the usual sets


def rows(p: HubCorpus) -> pl.DataFrame:
    """id (made from the row number where there is none), text, and split, labels and others as `p.columns` maps them.

    `hub_split: "train+test"` reads several splits and keeps their names as the split. With `p.rows` the set is
    streamed, and that many texts are drawn from it through a buffer shuffled with `p.seed`. Raises BadInput without
    network, and for an unknown id, configuration, split or column.
    """
    where, frame = f"hub {p.id}", raw(p)
    columns = {k: v for k, v in p.columns.items() if k != "labels" or v in frame.columns}
    frame = cleaned(mapped(frame, columns, where, text=USUAL), where)
    return frame if p.chunk is None else cleaned(chunk.chunked(frame, p.chunk), f"{where}, chunked")


def raw(p: HubCorpus) -> pl.DataFrame:
    """The set's own columns, and `split` where several splits are read."""
    where = f"hub {p.id}"
    _reachable(p, where)
    frames = []
    for split in p.hub_split.split("+"):
        frame = pl.DataFrame(list(_records(p, split.strip(), where)), infer_schema_length=None)
        if "split" not in p.columns and "+" in p.hub_split:
            frame = frame.with_columns(split=pl.lit(split.strip()))
        elif "split" not in p.columns and "split" in frame.columns:
            frame = frame.drop("split")
        frames.append(frame)
    return pl.concat(frames, how="diagonal_relaxed")


def _reachable(p: HubCorpus, where: str) -> None:
    """Ask the hub once, with a short patience: `datasets` itself would try for minutes. A set in the local cache needs
    no hub."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    try:
        HfApi().dataset_info(p.id, revision=p.revision, timeout=PATIENCE)
    except RepositoryNotFoundError:
        raise BadInput(f"{where}: there is no such data set (or it needs a login)") from None
    except HfHubHTTPError as error:
        raise BadInput(f"{where}: the hub says no: {' '.join(str(error).split())[:200]}") from None
    except Exception as error:  # no network is told by whatever HTTP library the hub's client is built on
        if not _cached(p):
            reason = type(error).__name__
            raise BadInput(
                f"{where}: the hub cannot be reached ({reason}); use source: library, synthetic or path"
            ) from None


def _cached(p: HubCorpus) -> bool:
    """Whether `datasets` has prepared this set here before."""
    from datasets import config

    return any(config.HF_DATASETS_CACHE.glob(p.id.replace("/", "___").lower() + "*"))


def _records(p: HubCorpus, split: str, where: str) -> Iterator[dict[str, Any]]:
    """The rows of one split, as many as `p` needs."""
    dataset = _open(p, split, where)
    if p.rows is not None and (p.chunk is None or p.chunk.whole or p.chunk.first):
        dataset = itertools.islice(
            dataset, p.rows + p.rows // 4
        )  # a quarter more, as some will be empty or repeated
    elif p.rows is not None:
        dataset = itertools.islice(dataset, p.rows)  # every text gives a chunk or more, hardly ever none
    for record in progress(dataset, what=where, unit="rows"):
        yield {k: v for k, v in record.items() if not isinstance(v, bytes)}


def _open(p: HubCorpus, split: str, where: str) -> Any:
    from datasets import DownloadConfig, load_dataset

    streaming = p.rows is not None
    words: Any = (
        {"keep_default_na": False} if (p.data_files or "").endswith(".csv") else {}
    )  # "n/a" and "None" are texts
    try:
        dataset: Any = load_dataset(
            p.id,
            p.config,
            split=split,
            revision=p.revision,
            data_files=p.data_files,
            streaming=streaming,
            download_config=DownloadConfig(max_retries=2),
            **words,
        )
    except Exception as error:  # an unknown configuration or split, or whatever the HTTP library raises
        raise BadInput(f"{where}: {' '.join(str(error).split())[:300]}") from None
    return dataset.shuffle(seed=p.seed, buffer_size=BUFFER) if streaming else dataset
