"""images: image files or bytes with captions: parquet, webdataset tars, folders, or a streamed data set of the hub.

folder: files with a caption beside them (`cat.png`, `cat.txt`), else `<class>/<file>`, where the class is label and caption.
Images that cannot be decoded, that are missing, or that have no caption are skipped and counted in one line.
"""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.corpora import hub, path
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import of_a_file, reading
from pipelines.study import AnyCorpus, HubCorpus, PathCorpus

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
LARGEST, PIXELS = 2**28, 2**27  # bytes of a tar's member, and pixels of an image; beyond, it is no picture
IMAGE, TEXT = (
    ("image", "jpg", "png", "jpeg", "webp", "img"),
    ("text", "caption", "txt", "captions"),
)  # usual names


def rows(p: AnyCorpus) -> pl.DataFrame:
    """id, text, image (bytes as they are in the source), captions, and split and labels where the source has them.

    `p.columns` may map image, text (one caption or a list of them), id, split and labels. Raises BadInput when no row is left.
    """
    match p:
        case PathCorpus():
            records, where = _records(path.located(p.path), p.columns), p.path
        case HubCorpus():
            records, where = _streamed(p), f"hub {p.id}"
        case _:
            raise BadInput(
                f"corpora: images has no source {p.source}: use path or hub (generated images are of kind scenes)"
            )
    return _frame(records, where)


def _frame(records: Iterable[dict[str, Any]], where: str) -> pl.DataFrame:
    """The usable records, checked one by one; says in one line how many others there were and why."""
    kept, seen, skipped = (
        [],
        set(),
        {"image missing": 0, "image corrupt": 0, "caption empty": 0, "repeated": 0},
    )
    for number, record in enumerate(records):
        captions = [c.strip() for c in _listed(record.get("text")) if c and c.strip()]
        image = record.get("image")
        reason = _fault(image, captions)
        key = None if reason else (image, captions[0])
        reason = reason or ("repeated" if key in seen else None)
        if reason:
            skipped[reason] += 1
            continue
        seen.add(key)
        usable = {
            "id": str(record.get("id") or f"image-{number}"),
            "text": captions[0],
            "image": image,
            "captions": captions,
        }
        kept.append(usable | {k: record[k] for k in ("split", "labels") if record.get(k) is not None})
    if sum(skipped.values()):
        print(f"{where}: skipped: " + ", ".join(f"{n} {reason}" for reason, n in skipped.items() if n))
    if not kept:
        raise BadInput(f"{where}: no usable image with a caption")
    return pl.DataFrame(kept, schema_overrides={"image": pl.Binary}, infer_schema_length=None)


def _fault(image: Any, captions: list[str]) -> str | None:
    from PIL import Image

    if not isinstance(image, bytes) or not image:
        return "image missing"
    try:
        with Image.open(io.BytesIO(image)) as opened:
            if opened.width * opened.height > PIXELS:
                return "image corrupt"
            opened.load()
    except Exception as error:
        if not of_a_file(error) and not isinstance(error, Image.DecompressionBombError):
            raise
        return "image corrupt"
    return None if captions else "caption empty"


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(v) for v in value if v is not None] if isinstance(value, (list, tuple)) else [str(value)]


def _records(source: Path, columns: dict[str, str]) -> Iterator[dict[str, Any]]:
    if source.suffix == ".tar":
        return _tar(source)
    if source.is_dir():
        if tars := sorted(source.glob("*.tar")):
            return itertools.chain.from_iterable(map(_tar, tars))
        return _folder(source)
    if source.suffix.lower() in (".parquet", ".pq"):
        return _table(path.read(source), columns, source)
    raise BadInput(f"{source}: none of a parquet file, a webdataset tar, a folder of these or of images")


def _table(frame: pl.DataFrame, columns: dict[str, str], source: Path) -> Iterator[dict[str, Any]]:
    """Images as bytes, as {bytes, path} like `datasets` writes them, or as paths beside the file."""
    chosen = _chosen(frame.columns, columns, str(source))
    for record in frame.select(set(chosen.values())).iter_rows(named=True):
        mapped = {ours: record[theirs] for ours, theirs in chosen.items()}
        yield mapped | {"image": _bytes(mapped["image"], source.parent), "labels": _labels(mapped)}


def _labels(record: dict[str, Any]) -> list[str] | None:
    return _listed(record["labels"]) if record.get("labels") is not None else None


def _chosen(available: list[str], columns: dict[str, str], where: str) -> dict[str, str]:
    """ours -> theirs: as mapped, else by the usual names; where there is no caption, the label is the caption."""
    usual = {
        "image": IMAGE,
        "labels": ("labels", "label"),
        "text": TEXT,
        "id": ("id", "__key__"),
        "split": ("split",),
    }
    out: dict[str, str] = {}
    for ours, names in usual.items():
        name = columns.get(ours) or next((n for n in names if n in available), None)
        if name is not None and name not in available:
            raise BadInput(f"{where}: there is no column {name!r}; there are: {', '.join(available)}")
        if name is None and ours == "text":
            name = out.get("labels")
        if name is None and ours in ("image", "text"):
            hint = f"say which with `columns: {{{ours}: ...}}`"
            raise BadInput(f"{where}: no column for {ours}; there are: {', '.join(available)}; {hint}")
        if name is not None:
            out[ours] = name
    return out


def _bytes(value: Any, beside: Path) -> bytes | None:
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        file = beside / value
        return file.read_bytes() if file.is_file() else None
    if (
        value is not None and not isinstance(value, bytes) and hasattr(value, "save")
    ):  # a decoded image of `datasets`
        file = io.BytesIO()
        value.save(file, "PNG")
        return file.getvalue()
    return value


def _tar(file: Path) -> Iterator[dict[str, Any]]:
    """webdataset: members that share a name up to the first dot of the file name are one sample."""
    with reading(file, "not a whole tar file"), tarfile.open(file) as tar:
        members = ((m.name, _small(file, m)) for m in tar if m.isfile())
        for key, group in itertools.groupby(members, lambda pair: _key(pair[0])):
            parts = {name[len(key) :].lower(): tar.extractfile(m) for name, m in group}
            yield _sample(f"{file.stem}/{key}", {k: v.read() for k, v in parts.items() if v})


def _small(file: Path, member: tarfile.TarInfo) -> tarfile.TarInfo:
    if member.size > LARGEST:  # a sparse member of no bytes may say that it is any size
        raise BadInput(f"{file}: {member.name!r} is {member.size:,} bytes; at most {LARGEST:,} are read")
    return member


def _key(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return (folder + "/" if folder else "") + base.split(".")[0]


def _sample(key: str, parts: dict[str, bytes]) -> dict[str, Any]:
    image = next((parts[s] for s in SUFFIXES if s in parts), None)
    about = json.loads(parts[".json"]) if ".json" in parts else {}
    if not isinstance(about, dict):
        raise ValueError(f"{key}.json is no mapping")
    text = (
        parts[".txt"].decode("utf-8", "replace")
        if ".txt" in parts
        else about.get("caption", about.get("text"))
    )
    label = parts[".cls"].decode("utf-8", "replace").strip() if ".cls" in parts else None
    return {"id": key, "image": image, "text": text or label, "labels": [label] if label else None}


def _folder(root: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(f for f in root.rglob("*") if f.suffix.lower() in SUFFIXES):
        beside, name = file.with_suffix(".txt"), file.relative_to(root)
        label = name.parts[-2] if len(name.parts) > 1 else None
        text = beside.read_text("utf-8-sig").splitlines() if beside.is_file() else label
        split = name.parts[0] if len(name.parts) > 2 and name.parts[0] in ("train", "test") else None
        labels = None if beside.is_file() or label is None else [label]
        yield {
            "id": path.named(name),
            "image": file.read_bytes(),
            "text": text,
            "labels": labels,
            "split": split,
        }


def _streamed(p: HubCorpus) -> Iterator[dict[str, Any]]:
    """Rows of the hub's set; a class column's numbers become its names."""
    where = f"hub {p.id}"
    hub._reachable(p, where)
    for split in p.hub_split.split("+"):
        dataset = hub._open(p, split.strip(), where)
        features = dataset.features or {}
        rows = iter(dataset) if p.rows is None else itertools.islice(dataset, p.rows + p.rows // 4)
        for record in rows:
            chosen = _chosen(list(record), p.columns, where)
            mapped = {ours: _named(record[theirs], features.get(theirs)) for ours, theirs in chosen.items()}
            named = {"split": split.strip()} if "+" in p.hub_split else {}
            yield mapped | {"image": _bytes(mapped["image"], Path()), "labels": _labels(mapped)} | named


def _named(value: Any, feature: Any) -> Any:
    return feature.int2str(value) if hasattr(feature, "int2str") and isinstance(value, int) else value
