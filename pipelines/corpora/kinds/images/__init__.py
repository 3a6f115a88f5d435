"""images: a parquet file of images, as bytes or as names of files beside it, with captions.

Images that are missing, damaged or without a caption are skipped and counted in one line.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.corpora.core import parquet
from pipelines.corpora.core.files import located
from pipelines.runtime.errors import BadInput, listed
from pipelines.study import PathCorpus

SOURCES = ("path",)
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # of pixels alone: PostScript, for one, is a program
LARGEST, PIXELS = 2**28, 2**27  # bytes of a file, and pixels of an image that are read
USUAL = {  # what columns are called; in this order
    "image": ("image", "jpg", "png", "jpeg", "webp", "img"),
    "labels": ("labels", "label"),
    "text": ("text", "caption", "txt", "captions"),
    "id": ("id", "__key__"),
    "split": ("split",),
}

Record = dict[str, Any]


def rows(p: PathCorpus, source: Any) -> pl.DataFrame:
    """Return id, text, image (bytes as in the source), captions, and split and labels if there are any.

    `p.columns` may map image, text (one caption or a list of them), id, split and labels. Raises BadInput if
    no row is left.
    """
    return _frame(_records(located(p.path), p.columns), p.path)


def _frame(records: Iterable[Record], where: str) -> pl.DataFrame:
    """Keep the usable records; say in one line how many others there were, and why."""
    kept: list[Record] = []
    seen: set[tuple[bytes, str]] = set()
    skipped: Counter[str] = Counter()
    for number, record in enumerate(records):
        image, captions = record["image"], [c.strip() for c in _list(record.get("text")) if c.strip()]
        fault = _fault(image) or ("" if captions else "caption empty")
        if not fault and (image, captions[0]) in seen:
            fault = "repeated"
        if fault:
            skipped[fault] += 1
            continue
        seen.add((image, captions[0]))
        name = str(record.get("id") or f"image-{number}")
        more = {key: record[key] for key in ("split", "labels") if record.get(key) is not None}
        kept.append({"id": name, "text": captions[0], "image": image, "captions": captions, **more})
    if skipped:
        print(f"{where}: skipped: " + ", ".join(f"{n} {fault}" for fault, n in sorted(skipped.items())))
    if not kept:
        raise BadInput(f"{where}: no usable image with a caption")
    return pl.DataFrame(kept, schema_overrides={"image": pl.Binary}, infer_schema_length=None)


def _fault(image: Any) -> str:
    """Return what is wrong with an image, or "". Its size is checked before its pixels are read."""
    from PIL import Image

    if not isinstance(image, bytes) or not image:
        return "image missing"
    try:
        with Image.open(io.BytesIO(image), formats=FORMATS) as opened:
            if opened.width * opened.height > PIXELS:
                return "image too large"
            opened.load()
    except Exception:
        return "image corrupt"
    return ""


def _list(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        value = [value]
    return [str(v) for v in value if v is not None]


def _records(file: Path, columns: dict[str, str]) -> Iterator[Record]:
    """Yield the rows: images as bytes, as {bytes, path} of `datasets`, or as paths below the folder."""
    if file.suffix.lower() not in (".parquet", ".pq"):
        raise BadInput(f"{file}: not a parquet file of images")
    frame = parquet.table(file)
    chosen = _chosen(frame.columns, columns, str(file))
    for record in frame.select(set(chosen.values())).iter_rows(named=True):
        ours = {name: record[theirs] for name, theirs in chosen.items()}
        labels = _list(ours["labels"]) if ours.get("labels") is not None else None
        yield ours | {"image": _bytes(ours["image"], file.parent), "labels": labels}


def _chosen(available: list[str], columns: dict[str, str], where: str) -> dict[str, str]:
    """Return ours -> theirs: as mapped, else by usual names. The label may stand in for the caption."""
    out: dict[str, str] = {}
    for ours, names in USUAL.items():
        theirs = columns.get(ours) or next((name for name in names if name in available), None)
        if theirs is None and ours == "text":
            theirs = out.get("labels")
        if theirs is None and ours in ("image", "text"):
            hint = f"say which with `columns: {{{ours}: ...}}`"
            raise BadInput(f"{where}: no column for {ours}; there are: {listed(available)}; {hint}")
        if theirs is not None and theirs not in available:
            raise BadInput(f"{where}: there is no column {theirs!r}; there are: {listed(available)}")
        if theirs is not None:
            out[ours] = theirs
    return out


def _bytes(value: Any, folder: Path) -> Any:
    """Return an image's bytes. A path must lead to a regular file in `folder`; anything else is no image."""
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    return _inside(folder, value) if isinstance(value, str) else value


def _inside(folder: Path, name: str) -> bytes | None:
    try:
        file = (folder / name).resolve()
        inside = file.is_relative_to(folder.resolve()) and file.is_file()
        return file.read_bytes() if inside and file.stat().st_size <= LARGEST else None
    except (OSError, ValueError, RuntimeError):  # no path, or links in a circle
        return None
