"""notes: clinical notes with the conditions that they mention; attribute inference is measured on these.

MIMIC-III is credentialed and has no hub source. `path` is the folder of NOTEEVENTS.csv(.gz) from PhysioNet,
or the file itself. `annotations` is a file of MedCAT concepts in that folder.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.corpora.core import texts
from pipelines.corpora.core.files import located, quiet
from pipelines.runtime.errors import BadInput, listed
from pipelines.study import PathCorpus

SOURCES = ("synthetic", "path")
CHUNKED = True  # rows may have `chunk` and `document`
PACKED = 50  # largest ratio of the sizes of unpacked and packed text


def rows(p: PathCorpus, source: Any) -> pl.DataFrame:
    """Return the notes of NOTEEVENTS, or of any other file that a path can be."""
    try:
        place = located(p.path)
    except BadInput as error:
        hint = "MIMIC-III is credentialed: physionet.org gives out NOTEEVENTS.csv.gz"
        raise BadInput(f"notes: {error} ({hint})") from None
    if place.is_dir():
        place = min(place.glob("NOTEEVENTS.csv*"), default=place / "NOTEEVENTS.csv")
        if not place.is_file():
            raise BadInput(f"{place}: there is no such file, nor NOTEEVENTS.csv.gz")
    if place.name.startswith("NOTEEVENTS") or place.name.lower().endswith(".csv.gz"):
        return noteevents(place, p)
    return texts.rows(p, source.table(p))


def noteevents(file: Path, p: PathCorpus) -> pl.DataFrame:
    """Return id (ROW_ID), text, and labels if there are annotations.

    Only the notes that are kept are held: all 2 million would take 4 GB. Notes marked as errors are left out.
    With annotations, so are notes that these do not cover.
    """
    if p.columns:
        raise BadInput(f"{file}: NOTEEVENTS has columns of its own: no `columns`")
    labels = concepts(file.parent / p.annotations) if p.annotations else None
    columns = {"id": "ROW_ID", "text": "TEXT"} | ({"document": p.document} if p.document else {})
    with quiet(file, "cannot be read as csv"):
        _check_packed(file)
        scanned = pl.scan_csv(file, infer_schema=False, glob=False)
        names = scanned.collect_schema().names()
        for needed in columns.values():
            if needed not in names:
                raise BadInput(f"{file}: there is no column {needed!r}; there are: {listed(names)}")
        if "ISERROR" in names:
            scanned = scanned.filter(pl.col("ISERROR").fill_null("") != "1")
        drawn = _drawn(scanned.select("ROW_ID").collect()["ROW_ID"], p, labels)
        if drawn.is_empty():
            raise BadInput(f"{file}: no notes" + (" that the annotations cover" if p.annotations else ""))
        kept = scanned.filter(pl.col("ROW_ID").is_in(drawn.implode())).collect()
    frame = kept.sort(pl.col("ROW_ID").cast(pl.Int64, strict=False), "ROW_ID").select(**columns)
    if labels is not None:
        of_each = [labels[note] for note in frame["id"]]
        frame = frame.with_columns(labels=pl.Series(of_each, dtype=pl.List(pl.String)))
    return texts.cleaned(frame, str(file), p.chunk)


def _drawn(ids: pl.Series, p: PathCorpus, labels: dict[str, list[str]] | None) -> pl.Series:
    """Return ids of notes with labels; with `p.rows`, twice as many: repeated notes are dropped later."""
    frame = pl.DataFrame({"id": ids, "key": np.random.default_rng(p.seed).random(len(ids))})
    if labels is not None:
        frame = frame.filter(pl.col("id").is_in(list(labels)))
    return frame["id"] if p.rows is None else frame.bottom_k(2 * p.rows, by="key")["id"]


def _check_packed(file: Path) -> None:
    """Raise BadInput for a gzip file that unpacks to far more than text does; read it piece by piece."""
    if file.suffix.lower() != ".gz":
        return
    most = PACKED * file.stat().st_size + 2**20
    with gzip.open(file) as unpacked:
        while unpacked.read(2**20):
            if unpacked.tell() > most:
                raise BadInput(f"{file}: unpacks to more than {PACKED} times its size: not a file of notes")


def concepts(file: Path) -> dict[str, list[str]]:
    """Return note id -> its different concepts, in order, from MedCAT's json."""
    if not file.is_file():
        raise BadInput(f"{file}: there is no such file; `annotations` names MedCAT's json beside the notes")
    shape = "{note id: {entities: {..: {pretty_name: ..}}}}"
    with quiet(file, f"not MedCAT annotations, {shape}"):
        return {
            str(note): list(dict.fromkeys(e["pretty_name"] for e in document["entities"].values()))
            for note, document in json.loads(file.read_text("utf-8")).items()
        }
