"""Hostile files, and a child process with little memory that reads them: `python -m tests.hostile FOLDER`.

A name says who reads it: `<reader>-<what is wrong>.<suffix>`.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import sqlite3
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

VECTORS = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
TEXTS = [f"The text number {i} of a few." for i in range(40)]
DEEP = 100_000
QUOTE = '"'
Write = Callable[[Path], Any]


def npz(path: Path, header: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vectors.npy", header)


def npy(shape: tuple[int, ...], data: bytes = b"") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue() + data


def bomb(path: Path, shape: tuple[int, int]) -> None:
    """A member of ones, written piece by piece: 800 MB come to 4 MB."""
    packing = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with packing as archive, archive.open("vectors.npy", "w", force_zip64=True) as file:
        file.write(npy(shape))
        piece, left = np.ones(2**20, "<f4").tobytes(), shape[0] * shape[1] * 4
        while left > 0:
            file.write(piece[:left])
            left -= len(piece)


def altered(change: Callable[[bytearray], None]) -> Write:
    """A compressed archive with some bytes changed."""

    def write(path: Path) -> None:
        np.savez_compressed(path, vectors=VECTORS)
        change(whole := bytearray(path.read_bytes()))
        path.write_bytes(whole)

    return write


def encrypt(archive: bytearray) -> None:
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the flag of encryption, in both headers
        archive[archive.index(mark) + at] |= 1


def break_deflate(archive: bytearray) -> None:
    archive[80:120] = b"\xff" * 40


def rename_member(archive: bytearray) -> None:
    at = archive.rindex(b"vectors.npy")
    archive[at : at + 11] = b"nothing.npy"


def table(**columns: Any) -> Write:
    return lambda path: pq.write_table(pa.table(columns), path)


def arrow(**columns: Any) -> Write:
    return lambda path: pa.feather.write_feather(pa.table(columns), str(path), "uncompressed")


def offsets(path: Path) -> None:
    """A list column whose offsets point outside of its values."""
    points = pa.py_buffer(np.array([0, 8, 10**8, 24, 32], np.int32).tobytes())
    children = [pa.array(VECTORS[:4].reshape(-1))]
    column = pa.Array.from_buffers(pa.list_(pa.float32()), 4, [None, points], children=children)
    arrow(vector=column)(path)


def chroma(
    path: Path,
    header: bytes | None = None,
    rows: list[tuple[Any, Any]] | None = None,
    more: str = "",
    data: bytes = bytes(4096),
) -> None:
    path.mkdir()
    base = sqlite3.connect(path / "chroma.sqlite3")
    base.executescript(
        "create table collections (id text, name text); insert into collections values ('c', 'mail');"
        "create table segments (id text, scope text, collection text);"
        "insert into segments values ('s', 'VECTOR', 'c');"
        "create table max_seq_id (segment_id text, seq_id); insert into max_seq_id values ('s', 0);"
        "create table embeddings_queue (seq_id integer primary key, vector blob, encoding text,"
        "topic text default 'persistent://a/c');"
    )
    usual = [(v.tobytes(), "FLOAT32") for v in VECTORS]
    queued = enumerate(usual if rows is None else rows, 1)
    base.executemany(
        "insert into embeddings_queue (seq_id, vector, encoding) values (?, ?, ?)",
        [(i, *row) for i, row in queued],
    )
    base.executescript(more)
    base.commit()
    base.close()
    if header is not None:
        (path / "s").mkdir()
        (path / "s" / "header.bin").write_bytes(header)
        (path / "s" / "data_level0.bin").write_bytes(data)


def vec0(
    path: Path,
    vectors: np.ndarray = VECTORS,
    name: str = "items",
    columns: str = "(embedding float[8])",
    there: bytes = b"",
    more: str = "",
) -> None:
    """A database of sqlite-vec, made without it: the virtual table is only named. Chunks hold 64 rows."""
    base = sqlite3.connect(path)
    table, chunks, held = (
        f'"{name.replace(QUOTE, 2 * QUOTE)}{end}"' for end in ("", "_chunks", "_vector_chunks00")
    )
    base.executescript(
        f"create table {table} (x); create table {chunks} (chunk_id integer primary key, validity);"
        f"create table {held} (rowid primary key, vectors); pragma writable_schema = on;"
    )
    made = f"CREATE VIRTUAL TABLE {table} using vec0{columns}"
    base.execute("update sqlite_master set rootpage = 0, sql = ? where name = ?", (made, name))
    for chunk in range(0, len(vectors), 64):
        rows = np.zeros((64, vectors.shape[1]), np.float32)
        rows[: len(vectors) - chunk] = vectors[chunk : chunk + 64]
        bits = np.packbits(np.arange(64) < len(vectors) - chunk, bitorder="little").tobytes()
        base.execute(f"insert into {chunks} values (?, ?)", (chunk, there or bits))
        base.execute(f"insert into {held} values (?, ?)", (chunk, rows.tobytes()))
    base.executescript(more)
    base.commit()
    base.close()


def nested_mail(depth: int) -> bytes:
    head = [f'Content-Type: multipart/mixed; boundary="b{i}"\n\n--b{i}\n' for i in range(depth)]
    return ("From: a@b\nSubject: deep\nMIME-Version: 1.0\n" + "".join(head) + "\ntext\n").encode()


def tree(*messages: bytes) -> Write:
    def write(path: Path) -> None:
        path.mkdir()
        for i, message in enumerate(messages):
            (path / f"{i}.").write_bytes(message)

    return write


def png(width: int, height: int, data: bytes = b"") -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = zlib.compress(data or bytes(height * (3 * width + 1)))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def lines(*rows: str) -> Write:
    return lambda path: path.write_text("\n".join(rows) + "\n")


def content(of: bytes) -> Write:
    return lambda path: path.write_bytes(of)


HEAD = struct.pack("<i6Q", 1, 0, 512, 3, 52, 44, 12)
FAISS = b"IxF2" + struct.pack("<iqqq?i", 8, 40, 1 << 20, 1 << 20, True, 1)
ELEMENT = np.zeros((40, 52), np.uint8)
ELEMENT[:, 12:44] = VECTORS.view(np.uint8)
HNSWLIB = struct.pack("<6Q", 0, 64, 40, 52, 44, 12) + bytes(48) + ELEMENT.tobytes()
LISTS = [json.dumps(vector.tolist()) for vector in VECTORS]
ROW = '{"id": "%s", "text": "text %s"}'
PICKLES = [("dump", suffix) for suffix in ("npy", "npz", "jsonl", "parquet", "arrow", "faiss")]
PICKLES += [("texts", "parquet"), ("texts", "csv"), ("mail", "mbox"), ("images", "parquet")]
NULLS = pa.array([None] * 9, pa.list_(pa.float32()))


class Code:
    """What a pickle of it does when it is read: it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.folder = str(path.with_name("code-was-run"))

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.folder,)


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Code(path)))


def objects(path: Path) -> np.ndarray:
    return np.array([Code(path)], dtype=object)


FILES: dict[str, Write] = {
    # programs
    **{f"{name}-pickle.{suffix}": pickled for name, suffix in PICKLES},
    "dump-objects.npy": lambda path: np.save(path, objects(path), allow_pickle=True),
    "dump-objects.npz": lambda path: np.savez(path, vectors=objects(path)),
    # dumps of vectors
    "dump-encrypted.npz": altered(encrypt),
    "dump-broken deflate.npz": altered(break_deflate),
    "dump-missing member.npz": altered(rename_member),
    "dump-bomb.npz": lambda path: bomb(path, (200, 1_000_000)),
    "dump-declared too large.npz": lambda path: npz(path, npy((10**9, 64), b"1234")),
    "dump-no header.npz": lambda path: npz(path, b"nothing"),
    "dump-empty archive.npz": lambda path: zipfile.ZipFile(path, "w").close(),
    "dump-deep header.npz": lambda path: npz(path, b"\x93NUMPY\1\0" + struct.pack("<H", 9000) + b"(" * 9000),
    "dump-complex numbers.npz": lambda path: np.savez(path, vectors=VECTORS.astype(complex)),
    "dump-a name \udcff.npy": lambda path: np.save(path, VECTORS),
    "dump-truncated.npz": lambda path: (np.savez(path, v=VECTORS), os.truncate(path, 300)),
    "dump-huge shape.npy": content(npy((10**12, 10**6))),
    "dump-negative shape.npy": content(npy((-4, 8), bytes(999))),
    "dump-no columns.npy": lambda path: np.save(path, np.zeros((9, 0))),
    "dump-beyond float32.npy": lambda path: np.save(path, VECTORS.astype(np.float64) * 1e100),
    "dump-text.npy": lambda path: np.save(path, np.array([["a", "b"]])),
    "dump-huge integer.jsonl": lines(f"[1, {'9' * 400}]", "[1, 2]"),
    "dump-longer integer.jsonl": lines(f"[1, {'9' * 5000}]"),
    "dump-deep.jsonl": lines("[" * DEEP),
    "dump-deep string.jsonl": lines(json.dumps({"vector": "[" * DEEP})),
    "dump-no newline.jsonl": content(b"[" + b"1," * 2**24),
    "dump-truths.jsonl": lines("[true, {}]", "[[1], 2]"),
    "dump-a number.jsonl": lines("7", "8"),
    "dump-null.jsonl": lines('{"vector": null}'),
    "dump-empty lists.jsonl": lines("[]", "[]"),
    "dump-not UTF-8.jsonl": content(b'{"vector": [1, 2], "\xff": 1}\n[2, 1]\n[1, 1]\n'),
    "dump-all null.parquet": table(vector=NULLS),
    "dump-timestamps.parquet": table(vector=[datetime(2026, 1, 1)] * 9),
    "dump-lists of timestamps.parquet": table(vector=[[datetime(2026, 1, 1)]] * 9),
    "dump-binary.parquet": table(vector=[b"\xff\x00"] * 9),
    "dump-nested lists.parquet": table(vector=[[[1.0]]] * 9),
    "dump-json of nothing.parquet": table(vector=["{}"] * 9),
    "dump-not json.parquet": table(vector=["[1,"] * 9),
    "dump-deep json.parquet": table(vector=["[" * DEEP] * 2),
    "dump-wide.parquet": table(vector=[np.zeros(2**17, np.float32)] * 3),
    "dump-footer.parquet": content(b"PAR1" + b"\xff" * 64 + struct.pack("<I", 64) + b"PAR1"),
    "dump-offsets.arrow": offsets,
    "dump-cut.arrow": lambda path: (arrow(vector=VECTORS.tolist())(path), os.truncate(path, 700)),
    "dump-no schema.arrow": content(b"ARROW1\0\0" + b"\xff" * 99),
    "dump-negative.faiss": content(
        b"IxF2" + struct.pack("<iqqq?iQ", -8, -40, 0, 0, True, 1, 320) + bytes(1280)
    ),
    "dump-nothing in it.faiss": content(b"IxF2" + struct.pack("<iqqq?iQ", 0, 0, 0, 0, True, 1, 0)),
    "dump-cut head.faiss": content(b"IxF2\1"),
    "dump-far too many.faiss": content(FAISS + struct.pack("<Q", 2**62)),
    "dump-a # in its name?": chroma,
    "dump-a % 41 in its name": chroma,
    "dump-queue of text": lambda path: chroma(path, rows=[("text", "FLOAT32"), (7, "FLOAT32")]),
    "dump-queue of odd bytes": lambda path: chroma(path, rows=[(b"abc", "FLOAT32")] * 3),
    "dump-queue of two widths": lambda path: chroma(
        path, rows=[(bytes(8), "FLOAT32"), (bytes(12), "FLOAT32")]
    ),
    "dump-endless view": lambda path: chroma(
        path,
        more="drop table segments; create view segments as with recursive r(id, scope) as "
        "(select 1, 'x' union all select id + 1, 'x' from r) select * from r;",
    ),
    "dump-huge blob": lambda path: chroma(
        path,
        rows=[],
        more="drop table embeddings_queue; create table embeddings_queue (seq_id integer primary key, "
        "encoding text, topic text, vector blob as (zeroblob(900000000)));"
        "insert into embeddings_queue values (1, 'FLOAT32', 'a/c');",
    ),
    "dump-no tables": lambda path: (path.mkdir(), sqlite3.connect(path / "chroma.sqlite3").close()),
    "dump-no database": lambda path: (path.mkdir(), (path / "chroma.sqlite3").write_bytes(b"\xff" * 9999)),
    "dump-cut header": lambda path: chroma(path, header=HEAD[:9]),
    "dump-header of many": lambda path: chroma(path, header=struct.pack("<i6Q", 1, 0, 1, 2**60, 52, 44, 12)),
    "dump-header of links": lambda path: chroma(path, header=struct.pack("<i6Q", 1, 2**50, 1, 3, 52, 44, 12)),
    "dump-odd vectors": lambda path: chroma(path, header=struct.pack("<i6Q", 1, 0, 1, 3, 52, 43, 12)),
    "dump-header of many.bin": content(struct.pack("<6Q", 0, 9, 2**60, 52, 44, 12) + bytes(99)),
    "dump-header of links.bin": content(struct.pack("<6Q", 0, 9, 3, 52, 44, 2**50) + bytes(999)),
    "dump-cut header.hnsw": content(bytes(40)),
    "dump-no rows.bin": content(struct.pack("<6Q", 0, 9, 3, 52, 44, 12) + bytes(48)),
    "dump-other width.db": lambda path: vec0(path, columns="(embedding float[7])"),
    "dump-far too wide.db": lambda path: vec0(path, columns="(embedding float[999999999])"),
    "dump-no width.db": lambda path: vec0(path, columns="(embedding float[0])"),
    "dump-no columns.db": lambda path: vec0(path, columns="(x)"),
    "dump-few bits.db": lambda path: vec0(path, there=b"\1"),
    "dump-text for bits.db": lambda path: vec0(path, more="update items_chunks set validity = 'text';"),
    "dump-a quote.db": lambda path: vec0(path, name='a " b'),
    "dump-endless view.db": lambda path: vec0(
        path,
        more="drop table items_chunks; create view items_chunks as with recursive r(chunk_id, validity) as "
        "(select 1, x'ff' union all select chunk_id + 1, x'ff' from r) select * from r;",
    ),
    "dump-huge blob.db": lambda path: vec0(
        path,
        more="drop table items_chunks; create table items_chunks "
        "(chunk_id integer primary key, validity as (zeroblob(900000000)));"
        "insert into items_chunks values (0);",
    ),
    "dump-no database.db": content(b"\xff" * 9999),
    "dump-not numbers.csv": lines("dim_0,dim_1", "a private text,1"),
    "dump-columns without end.csv": lines(",".join(f"d{i}" for i in range(2**17)), "1"),
    "dump-fields without end.csv": content(b"1," * 2**24),
    "dump-two widths.copy": lines("[1,2]", "[1,2,3]"),
    "dump-other brackets.copy": lines("[1,,]", "[1,2]"),
    "dump-no table.lance": lambda path: path.mkdir(),
    # vectors as a corpus: what the readers above do not see
    "vectors-null ids.parquet": table(id=[*"ab", None], vector=VECTORS[:3].tolist()),
    "vectors-null splits.parquet": table(
        id=[*"abc"], split=["train", None, "test"], vector=VECTORS[:3].tolist()
    ),
    "vectors-bomb.npz": lambda path: os.link(path.with_name("dump-bomb.npz"), path),
    "vectors-beyond float32.npy": lambda path: np.save(path, VECTORS.astype(np.float64) * 1e100),
    "vectors-one number.npy": lambda path: np.save(path, np.float32(1)),
    # texts
    "texts-binary.parquet": table(text=[b"\xff\xfe", b"\x00"]),
    "texts-struct.parquet": table(text=[{"a": 1}, {"a": 2}]),
    "texts-lists.parquet": table(text=[["a"], ["b"]]),
    "texts-null ids.parquet": table(id=[None, "b"], text=["one", "two"]),
    "texts-all null.parquet": table(text=pa.nulls(3)),
    "texts-labels of structs.parquet": table(text=["a", "b"], labels=[[{"x": 1}], []]),
    "texts-labels of bytes.parquet": table(text=["a", "b"], labels=[b"\xff", b"\xfe"]),
    "texts-footer.parquet": content(b"PAR1" + b"\xff" * 64 + struct.pack("<I", 64) + b"PAR1"),
    "texts-empty.parquet": content(b""),
    "texts-not UTF-8.csv": content(b"text\n\xff\xfe\n"),
    "texts-nothing.csv": content(b""),
    "texts-one quote.csv": content(b'text\n"a\nb\n'),
    "texts-ragged.csv": content(b"text,id\na\nb,c,d,e\n"),
    "texts-zeros.csv": content(bytes(999)),
    "texts-names twice.csv": content(b"text,text\na,b\n"),
    "texts-deep.jsonl": lines('{"text": ' + "[" * 5000),
    "texts-deep labels.csv": content(b'text,labels\na,"' + b"[" * DEEP + b'"\n'),
    "texts-mixed.jsonl": lines('{"text": 1}', '{"text": [1]}', "7"),
    "texts-cut.jsonl": lines(ROW % (1, 1), '{"text": "two'),
    "texts-null ids.jsonl": lines('{"id": null, "text": "a b"}', ROW % (2, 2)),
    "texts-huge integer.jsonl": lines(f'{{"text": {"9" * 400}}}'),
    "texts-not UTF-8.txt": content(b"one\n\xff\n"),
    "texts-nested strings.jsonl": lines('{"text": "' + '\\"[' * 500_000),
    "texts-names": lambda path: (
        path.mkdir(),
        (path / "a\udcfe.txt").write_text("one"),
        (path / "b.txt").write_text("two"),
    ),
    # e-mail
    "mail-deep": tree(nested_mail(20_000)),
    "mail-less deep": tree(nested_mail(300)),
    "mail-deep.mbox": content(b"From a@b Thu Jan  1 00:00:00 2026\n" + nested_mail(5000)),
    "mail-comments": tree(b"From: " + b"(" * 10_000 + b"\n\nbody\n"),
    "mail-tags": tree(b"Content-Type: text/html\n\n" + b"<" * 500_000 + b"\n"),
    "mail-addresses": tree(b"To: " + b"a@b, " * 100_000 + b"\n\nbody\n"),
    "mail-zeros.mbox": content(bytes(999)),
    "mail-headers": tree(
        b"From: =?utf-8?b?//8=?=\nTo: \xff\xfe <\n>>@\nSubject: =?x?q?=FF?=\nDate: 99\n\n\xff\n"
    ),
    "mail-charset": tree(
        b"From: a@b\nContent-Type: text/plain; charset=nonsense\nContent-Transfer-Encoding: base64\n\n!!!!\n"
    ),
    "mail-names": lambda path: (path.mkdir(), (path / "a\udcfe").write_bytes(b"From: a@b\n\nbody\n")),
    # images
    "images-bomb.parquet": table(image=[png(60_000, 60_000, b"x")], text=["a"]),
    "images-many pixels.parquet": table(image=[png(13_000, 13_000, b"x")], text=["a"]),
    "images-postscript.parquet": table(
        image=[b"%!PS-Adobe-3.0 EPSF-3.0\n%%EndComments\n{} loop\n"], text=["a"]
    ),
    "images-zeros.parquet": content(bytes(4000)),
    "images-lists.parquet": table(image=[[1, 2]] * 3, text=["a", "b", "c"]),
    "images-numbers.parquet": table(image=[1, 2], text=["a", "b"]),
    "images-paths.parquet": table(image=["\0", "/"], text=["a", "b"]),
}


def written(folder: Path, files: dict[str, Write]) -> Path:
    """Make a folder with these files, but for names that the file system cannot hold."""
    folder.mkdir()
    for name, write in files.items():
        with suppress(UnicodeEncodeError):
            write(folder / name)
    return folder


def read(path: Path) -> str:
    """Return "" if a file was read, else the line of BadInput, else any other exception after a `!`."""
    from pipelines.corpora.core import texts
    from pipelines.corpora.core.files import located
    from pipelines.corpora.kinds import images
    from pipelines.corpora.sources import path as source
    from pipelines.corpora.sources import vectors
    from pipelines.corpora.sources.vectors import dumps
    from pipelines.runtime.errors import BadInput
    from pipelines.study import PathCorpus, VectorsCorpus

    kind = path.name.partition("-")[0]
    columns = {"text": "body"} if kind == "mail" else {}
    try:
        if kind == "dump":
            dumps.sample(located(str(path)), 1000)
        elif kind == "vectors":
            vectors.rows(VectorsCorpus(source="vectors", path=str(path), kind="passages"))
        else:
            corpus = PathCorpus(source="path", path=str(path), kind="passages", columns=columns)
            frame = (
                images.rows(corpus, source) if kind == "images" else texts.rows(corpus, source.table(corpus))
            )
            assert frame.select(pl.col(pl.String)).height
    except BadInput as error:
        return str(error)
    except BaseException as error:
        return f"! {type(error).__name__}: {error}"
    return ""


def main(folder: Path, memory: int) -> None:
    """Read every file of a folder in `memory` bytes more than the imports take. Print a line of JSON each."""
    warnings.simplefilter("ignore")
    read(folder / "nothing-")
    with suppress(RecursionError):  # grow the stack now: beyond the limit, that is a crash
        json.loads("[" * DEEP)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    for path in sorted(folder.iterdir()):
        print(json.dumps([path.name, read(path)]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
