"""images: image files or bytes with captions: parquet, webdataset tars, or folders.

A folder has files with a caption beside them (`cat.png`, `cat.txt`), or `<class>/<file>`, where the class is
label and caption. Images that are missing, damaged or without a caption are skipped and counted in one line.
"""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.corpora.core import parquet
from pipelines.corpora.core.files import files_in, located, printable
from pipelines.runtime.errors import BadInput, cut, listed
from pipelines.runtime.files import of_a_file, reading
from pipelines.study import PathCorpus

SOURCES = ("path",)
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # of pixels alone: PostScript, for one, is a program
LARGEST, PIXELS = 2**28, 2**27  # bytes of a tar's member, and pixels of an image that are read
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
    except Exception as error:
        if not of_a_file(error) and not isinstance(error, Image.DecompressionBombError):
            raise
        return "image corrupt"
    return ""


def _list(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        value = [value]
    return [str(v) for v in value if v is not None]


def _records(source: Path, columns: dict[str, str]) -> Iterator[Record]:
    if source.is_dir():
        files = files_in(source)
        tars = [file for file in files if file.suffix == ".tar" and file.parent == source]
        return itertools.chain.from_iterable(map(_tar, tars)) if tars else _folder(source, files)
    if source.suffix == ".tar":
        return _tar(source)
    if source.suffix.lower() in (".parquet", ".pq"):
        return _table(source, columns)
    raise BadInput(f"{source}: none of a parquet file, a webdataset tar, a folder of these or of images")


def _table(file: Path, columns: dict[str, str]) -> Iterator[Record]:
    """Yield the rows: images as bytes, as {bytes, path} of `datasets`, or as paths below the folder."""
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


def _tar(file: Path) -> Iterator[Record]:
    """Yield samples of a webdataset: members with one name up to the first dot of the file name."""
    with reading(file, "not a whole tar file"), tarfile.open(file, "r:") as tar:
        members = ((member.name, _small(file, member)) for member in tar if member.isfile())
        for key, group in itertools.groupby(members, lambda pair: _key(pair[0])):
            parts = {name[len(key) :].lower(): tar.extractfile(member) for name, member in group}
            yield _sample(f"{file.stem}/{key}", {k: part.read() for k, part in parts.items() if part})


def _small(file: Path, member: tarfile.TarInfo) -> tarfile.TarInfo:
    if member.size > LARGEST:  # a sparse member of no bytes may claim any size
        raise BadInput(f"{file}: {cut(member.name)!r} is {member.size:,} bytes; at most {LARGEST:,} are read")
    return member


def _key(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return (folder + "/" if folder else "") + base.split(".")[0]


def _sample(key: str, parts: dict[str, bytes]) -> Record:
    image = next((parts[suffix] for suffix in SUFFIXES if suffix in parts), None)
    about = json.loads(parts.get(".json", b"{}"))
    if not isinstance(about, dict):
        raise ValueError(f"{cut(key)}.json is no mapping")
    text = about.get("caption", about.get("text"))
    if ".txt" in parts:
        text = parts[".txt"].decode("utf-8", "replace")
    label = parts[".cls"].decode("utf-8", "replace").strip() if ".cls" in parts else None
    return {"id": key, "image": image, "text": text or label, "labels": [label] if label else None}


def _folder(root: Path, files: list[Path]) -> Iterator[Record]:
    captions = {file for file in files if file.suffix == ".txt"}
    for file in files:
        if file.suffix.lower() not in SUFFIXES:
            continue
        name = file.relative_to(root)
        label = name.parts[-2] if len(name.parts) > 1 else None
        beside = file.with_suffix(".txt")
        captioned = beside in captions
        yield {
            "id": printable(name),
            "image": file.read_bytes(),
            "text": beside.read_text("utf-8-sig").splitlines() if captioned else label,
            "labels": [label] if label and not captioned else None,
            "split": name.parts[0] if len(name.parts) > 2 and name.parts[0] in ("train", "test") else None,
        }
