"""notes: clinical notes with the conditions that they mention, which attribute inference is measured on.

MIMIC-III is credentialed and has no hub source: `path` is the folder of NOTEEVENTS.csv(.gz) as PhysioNet gives it out
(or the file itself), `annotations` a file of MedCAT concepts in it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.corpora import chunk, path, synthetic
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress
from pipelines.study import AnyCorpus, PathCorpus, SyntheticCorpus

NOTE_ID = ("ROW_ID", "row_id", "note_id", "doc_id", "id")
CONCEPT = ("pretty_name", "concept", "name", "label")
EXTRA = {
    "CATEGORY": "category",
    "DESCRIPTION": "description",
    "SUBJECT_ID": "subject",
    "HADM_ID": "admission",
}


def rows(p: AnyCorpus) -> pl.DataFrame:
    """synthetic: generated notes; path: NOTEEVENTS, or any other file of notes with a column mapping."""
    match p:
        case SyntheticCorpus():
            return synthetic.notes(p)
        case PathCorpus():
            file = _notes_file(p)
            return noteevents(file, p) if file else path.rows(p)
    raise BadInput(
        f"corpora: notes has no source {p.source}: use synthetic, or path to your credentialed copy"
    )


def _notes_file(p: PathCorpus) -> Path | None:
    """NOTEEVENTS.csv or .csv.gz at or in `p.path`; None if that is some other file."""
    try:
        place = path.located(p.path)
    except BadInput as error:
        raise BadInput(
            f"notes: {error} (MIMIC-III is credentialed: physionet.org gives out NOTEEVENTS.csv.gz)"
        ) from None
    if place.is_dir():
        files = sorted(f for f in place.glob("*.csv*") if f.name.upper().startswith("NOTEEVENTS"))
        if not files:
            raise BadInput(f"{place}: there is no NOTEEVENTS.csv or NOTEEVENTS.csv.gz in it")
        return files[0]
    return (
        place
        if place.name.lower().endswith(".csv.gz") or place.name.upper().startswith("NOTEEVENTS")
        else None
    )


def noteevents(file: Path, p: PathCorpus) -> pl.DataFrame:
    """id (ROW_ID), text, labels, category, description, subject, admission.

    Read batch by batch (2 million notes, 4 GB). Notes marked as errors are left out, and with annotations those that
    the annotations do not cover; with `p.rows`, only notes that the draw can reach are ever held.
    """
    labels = concepts(_beside(file, p.annotations)) if p.annotations else None
    scanned = pl.scan_csv(file, infer_schema=False)
    names = scanned.collect_schema().names()
    for needed in ("ROW_ID", "TEXT"):
        if needed not in names:
            raise BadInput(f"{file}: there is no column {needed!r}; there are: {', '.join(names)}")
    if "ISERROR" in names:
        scanned = scanned.filter(pl.col("ISERROR").fill_null("") != "1")
    frame = _drawn(scanned.select("ROW_ID", "TEXT", *(c for c in EXTRA if c in names)), file, p, labels)
    frame = path.cleaned(frame.rename({"ROW_ID": "id", "TEXT": "text", **EXTRA}, strict=False), str(file))
    if labels is not None:
        named = pl.Series([labels[i] for i in frame["id"].to_list()], dtype=pl.List(pl.String))
        frame = frame.with_columns(labels=named)
    return path.cleaned(chunk.chunked(frame, p.chunk), f"{file}, chunked") if p.chunk else frame


def _drawn(
    scanned: pl.LazyFrame, file: Path, p: PathCorpus, labels: dict[str, list[str]] | None
) -> pl.DataFrame:
    """The notes with the smallest random keys, twice as many as `p.rows` since some are repeated; all if that is
    None."""
    generator = np.random.default_rng(p.seed)
    held: list[pl.DataFrame] = []
    limit = None if p.rows is None else 2 * p.rows
    try:
        for batch in progress(scanned.collect_batches(maintain_order=True), what=file.name, unit="batches"):
            batch = batch.with_columns(_key=generator.random(len(batch)))
            held.append(batch if labels is None else batch.filter(pl.col("ROW_ID").is_in(list(labels))))
            if limit is not None and sum(map(len, held)) > 2 * limit:
                held = [pl.concat(held).bottom_k(limit, by="_key")]
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{file}: cannot be read as csv: {' '.join(str(error).split())[:200]}") from None
    frame = pl.concat(held) if held else pl.DataFrame()
    if frame.is_empty():
        raise BadInput(f"{file}: no notes" + (" that the annotations cover" if labels is not None else ""))
    frame = frame if limit is None else frame.bottom_k(limit, by="_key")
    return frame.drop("_key").sort(pl.col("ROW_ID").cast(pl.Int64, strict=False), "ROW_ID")


def _beside(file: Path, name: str) -> Path:
    """The annotations, named relative to the folder of the notes."""
    place = file.parent / name
    if not place.is_file():
        raise BadInput(
            f"{place}: there is no such file; `annotations` names MedCAT's output, json or csv, beside {file.name}"
        )
    return place


def concepts(file: Path) -> dict[str, list[str]]:
    """Note id -> the names of its concepts, each once, in order: from MedCAT's json ({id: {entities: {..}}}) or a csv
    of pairs."""
    if file.suffix.lower() == ".json":
        return _from_json(file)
    frame = path.read(file)
    note, concept = (next((c for c in usual if c in frame.columns), None) for usual in (NOTE_ID, CONCEPT))
    if note is None or concept is None:
        raise BadInput(
            f"{file}: no column of note ids ({NOTE_ID[0]}) beside one of concepts ({CONCEPT[0]}) in {frame.columns}"
        )
    grouped = frame.group_by(note, maintain_order=True).agg(
        pl.col(concept).drop_nulls().unique(maintain_order=True)
    )
    return dict(zip(grouped[note].cast(pl.String), grouped[concept].to_list(), strict=True))


def _from_json(file: Path) -> dict[str, list[str]]:
    try:
        documents = json.loads(file.read_text())
        return {
            str(note): list(dict.fromkeys(e["pretty_name"] for e in document["entities"].values()))
            for note, document in documents.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        shape = "{note id: {entities: {..: {pretty_name: ..}}}}"
        raise BadInput(f"{file}: not MedCAT annotations, {shape}: {type(error).__name__} {error}") from None
