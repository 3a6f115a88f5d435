"""notes: clinical notes with the conditions that they mention; attribute inference is measured on these.

MIMIC-III is credentialed and has no hub source. `path` is the folder of NOTEEVENTS.csv(.gz) from PhysioNet,
or the file itself. `annotations` is a file of MedCAT concepts in that folder.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.corpora.core import texts
from pipelines.corpora.core.chunk import chunked
from pipelines.corpora.core.files import located, quiet
from pipelines.runtime.errors import BadInput, listed
from pipelines.runtime.progress import progress
from pipelines.study import PathCorpus

SOURCES = ("synthetic", "path")
PACKED = 50  # times: text does not unpack to more than that


def rows(p: PathCorpus, source: Any) -> pl.DataFrame:
    """Return the notes of NOTEEVENTS, or of any other file that a path can be."""
    try:
        place = located(p.path)
    except BadInput as error:
        hint = "MIMIC-III is credentialed: physionet.org gives out NOTEEVENTS.csv.gz"
        raise BadInput(f"notes: {error} ({hint})") from None
    if place.is_dir():
        files = sorted(f for f in place.glob("*.csv*") if f.name.upper().startswith("NOTEEVENTS"))
        if not files:
            raise BadInput(f"{place}: there is no NOTEEVENTS.csv or NOTEEVENTS.csv.gz in it")
        place = files[0]
    if place.name.lower().endswith(".csv.gz") or place.name.upper().startswith("NOTEEVENTS"):
        return noteevents(place, p)
    return texts.rows(p, source.table(p))


def noteevents(file: Path, p: PathCorpus) -> pl.DataFrame:
    """Return id (ROW_ID), text, and labels if there are annotations.

    The file is read batch by batch (2 million notes, 4 GB). Notes marked as errors are left out. With
    annotations, so are notes that these do not cover.
    """
    labels = concepts(_beside(file, p.annotations)) if p.annotations else None
    with quiet(file, "cannot be read as csv"):
        _check_packed(file)
        scanned = pl.scan_csv(file, infer_schema=False)
        names = scanned.collect_schema().names()
        for needed in ("ROW_ID", "TEXT", *([p.document] if p.document else [])):
            if needed not in names:
                raise BadInput(f"{file}: there is no column {needed!r}; there are: {listed(names)}")
        if "ISERROR" in names:
            scanned = scanned.filter(pl.col("ISERROR").fill_null("") != "1")
        document = [pl.col(p.document).alias("document")] if p.document else []
        scanned = scanned.select("ROW_ID", "TEXT", *document)
        frame = _drawn(scanned, file, p, None if labels is None else list(labels))
    frame = texts.cleaned(frame.rename({"ROW_ID": "id", "TEXT": "text"}), str(file))
    if labels is not None:
        of_each = [labels[note] for note in frame["id"].to_list()]
        frame = frame.with_columns(labels=pl.Series(of_each, dtype=pl.List(pl.String)))
    return texts.cleaned(chunked(frame, p.chunk), f"{file}, chunked") if p.chunk else frame


def _check_packed(file: Path) -> None:
    """Raise BadInput for a gzip file that unpacks to far more than text does; read it piece by piece."""
    if file.suffix.lower() != ".gz":
        return
    most = PACKED * file.stat().st_size + 2**20
    size = 0
    with gzip.open(file) as unpacked:
        while piece := unpacked.read(2**20):
            size += len(piece)
            if size > most:
                raise BadInput(f"{file}: unpacks to more than {PACKED} times its size: not a file of notes")


def _drawn(scanned: pl.LazyFrame, file: Path, p: PathCorpus, covered: list[str] | None) -> pl.DataFrame:
    """Return the notes with the smallest random keys: all, or twice `p.rows`, as some are repeated.

    At most twice as many notes are held at once.
    """
    generator = np.random.default_rng(p.seed)
    held: list[pl.DataFrame] = []
    limit = None if p.rows is None else 2 * p.rows
    for batch in progress(scanned.collect_batches(maintain_order=True), what=file.name, unit="batches"):
        batch = batch.with_columns(_key=generator.random(len(batch)))
        held.append(batch if covered is None else batch.filter(pl.col("ROW_ID").is_in(covered)))
        if limit is not None and sum(map(len, held)) > 2 * limit:
            held = [pl.concat(held).bottom_k(limit, by="_key")]
    frame = pl.concat(held) if held else pl.DataFrame()
    if frame.is_empty():
        raise BadInput(f"{file}: no notes" + (" that the annotations cover" if covered is not None else ""))
    if limit is not None:
        frame = frame.bottom_k(limit, by="_key")
    return frame.drop("_key").sort(pl.col("ROW_ID").cast(pl.Int64, strict=False), "ROW_ID")


def _beside(file: Path, name: str) -> Path:
    place = file.parent / name
    if not place.is_file():
        hint = f"`annotations` names MedCAT's json beside {file.name}"
        raise BadInput(f"{place}: there is no such file; {hint}")
    return place


def concepts(file: Path) -> dict[str, list[str]]:
    """Return note id -> its different concepts, in order, from MedCAT's json."""
    shape = "{note id: {entities: {..: {pretty_name: ..}}}}"
    with quiet(file, f"not MedCAT annotations, {shape}"):
        return {
            str(note): list(dict.fromkeys(e["pretty_name"] for e in document["entities"].values()))
            for note, document in json.loads(file.read_text("utf-8")).items()
        }
