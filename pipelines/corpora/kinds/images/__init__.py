"""images: a parquet file of images, as bytes, with captions.

Images that are missing, damaged, too large, repeated or without a caption are skipped, and counted in
one line.
"""

import hashlib
import io
from collections import Counter
from contextlib import suppress
from typing import Any

import polars as pl

from pipelines.corpora.core import parquet, texts
from pipelines.corpora.core.files import located
from pipelines.runtime.errors import BadInput, listed
from pipelines.study import PathCorpus

SOURCES = ("path",)
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # raster formats only; a PostScript file is a program
PIXELS = 2**27  # of an image that is read, at most
USUAL = {  # what columns are called; in this order
    "image": ("image", "jpg", "png", "jpeg", "webp", "img"),
    "labels": ("labels", "label"),
    "text": ("text", "caption", "txt", "captions"),
    "id": ("id", "__key__"),
    "split": ("split",),
}


def rows(p: PathCorpus, source: Any) -> pl.DataFrame:
    """Return id, text, image (bytes as in the source), document, captions, and split and labels if there are.

    Rows whose images have the same pixels are one document, which has each caption once. `p.columns` may map
    image, text (one caption or a list of them, also as JSON), id, split and labels. Raises BadInput for other
    keys, for captions that cannot be text, and if no row is left.
    """
    if unknown := {*p.columns} - {*USUAL}:
        raise BadInput(f"{p.path}: columns: {listed(USUAL)} can be named, not {min(unknown)!r}")
    file = located(p.path)
    if file.suffix.lower() not in parquet.SUFFIXES:
        raise BadInput(f"{file}: not a parquet file of images")
    table = parquet.table(file)
    chosen = texts.chosen(table.columns, p.columns, str(file), USUAL, ("image", "text"))
    table = table.select(**{name: chosen[name] for name in USUAL if name in chosen})
    table = texts.as_text(table, str(file), lists=("labels", "text"))
    kept: list[dict[str, Any]] = []
    seen: set[tuple[bytes, str]] = set()
    first: dict[bytes, str] = {}  # of each image, the id of its first row
    skipped: Counter[str] = Counter()
    for number, record in enumerate(table.iter_rows(named=True)):
        ours = {name: value for name, value in record.items() if value is not None}
        image = ours.get("image")
        image = image.get("bytes") if isinstance(image, dict) else image
        captions = [*dict.fromkeys(c.strip() for c in record["text"] if c.strip())]
        fault, digest = _read(image)
        fault = fault or ("" if captions else "caption empty")
        new = [caption for caption in captions if (digest, caption) not in seen]
        fault = fault or ("" if new else "repeated")
        if fault:
            skipped[fault] += 1
            continue
        seen.update((digest, caption) for caption in new)
        name = str(ours.get("id", f"image-{number}"))
        ours |= {"id": name, "text": new[0], "image": image, "captions": new}
        kept.append(ours | {"document": first.setdefault(digest, name)})
    if skipped:
        print(f"{p.path}: skipped: " + ", ".join(f"{n} {fault}" for fault, n in sorted(skipped.items())))
    if not kept:
        raise BadInput(f"{p.path}: no usable image with a caption")
    types = {"image": pl.Binary, "labels": pl.List(pl.String)}
    return pl.DataFrame(kept, schema_overrides=types, infer_schema_length=None)


def _read(image: Any) -> tuple[str, bytes]:
    """Return what is wrong with an image, or "", and a digest of its size and pixels, upright.

    Its size is checked before its pixels are read.
    """
    from PIL import Image, ImageOps

    if not isinstance(image, bytes) or not image:
        return "image missing", b""
    try:
        with Image.open(io.BytesIO(image), formats=FORMATS) as opened:
            if opened.width * opened.height > PIXELS:
                return "image too large", b""
            with suppress(Exception):  # of damaged EXIF
                ImageOps.exif_transpose(opened, in_place=True)
            # `convert` would clip 16 bits of grey to 8
            shown = opened.copy() if opened.mode.startswith("I") else opened.convert("RGBA")
    except Image.DecompressionBombError:
        return "image too large", b""
    except Exception:
        return "image corrupt", b""
    return "", hashlib.sha256(repr(shown.size).encode() + shown.tobytes()).digest()
