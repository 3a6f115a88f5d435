"""Hostile files, and a child process with little memory that reads them.

`python -m tests.hostile FOLDER BYTES` reads them.

A name says who reads it: `<reader>-<what is wrong>.<suffix>`.
"""

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
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

VECTORS = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
TEXTS = [f"The text number {i} of a few." for i in range(40)]
DEEP = 100_000
QUEUE = [(vector.tobytes(), "FLOAT32") for vector in VECTORS]  # of Chroma


def npz(path, header):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vectors.npy", header)


def npy(shape, data=b""):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue() + data


def altered(change):
    """A compressed archive with some bytes changed."""

    def write(path):
        np.savez_compressed(path, vectors=VECTORS)
        change(whole := bytearray(path.read_bytes()))
        path.write_bytes(whole)

    return write


def encrypt(archive):
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the flag of encryption, in both headers
        archive[archive.index(mark) + at] |= 1


def break_deflate(archive):
    archive[80:120] = b"\xff" * 40


def table(**columns):
    return lambda path: pq.write_table(pa.table(columns), path)


def arrow(**columns):
    return lambda path: pa.feather.write_feather(pa.table(columns), str(path), "uncompressed")


def chroma(
    path,
    header=None,
    rows=QUEUE,
    more="",
    data=bytes(4096),
):
    path.mkdir()
    base = sqlite3.connect(path / "chroma.sqlite3")
    base.executescript(
        "create table collections (id text, name text); insert into collections values ('c', 'mail');"
        "create table segments (id text, scope text, collection text);"
        "insert into segments values ('s', 'VECTOR', 'c');"
        "create table max_seq_id (segment_id text, seq_id); insert into max_seq_id values ('s', 0);"
        "create table embeddings_queue (seq_id integer primary key, vector blob, encoding text,"
        "topic text default 'persistent://a/c', operation integer default 0, id text);"
    )
    base.executemany("insert into embeddings_queue (vector, encoding) values (?, ?)", rows)
    base.execute("update embeddings_queue set id = seq_id")
    base.executescript(more)  # this commits, too
    base.close()
    if header is not None:
        (path / "s").mkdir()
        (path / "s" / "header.bin").write_bytes(header)
        (path / "s" / "data_level0.bin").write_bytes(data)


def vec0(
    path,
    vectors=VECTORS,
    name="items",
    columns="(embedding float[8])",
    more="",
):
    """A database of sqlite-vec, made without it: the virtual table is only named. Chunks hold 64 rows."""
    base = sqlite3.connect(path)
    quoted = name.replace('"', '""')
    table, chunks, held = (f'"{quoted}{end}"' for end in ("", "_chunks", "_vector_chunks00"))
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
        base.execute(f"insert into {chunks} values (?, ?)", (chunk, bits))
        base.execute(f"insert into {held} values (?, ?)", (chunk, rows.tobytes()))
    base.executescript(more)  # this commits, too
    base.close()


def endless(table, key, other, value):
    """SQL that puts a view whose rows never end in the place of a table."""
    rows = f"select 1, {value} union all select {key} + 1, {value} from r"
    view = f"with recursive r({key}, {other}) as ({rows}) select * from r"
    return f"drop table {table}; create view {table} as {view};"


def nested_mail(depth):
    head = [f'Content-Type: multipart/mixed; boundary="b{i}"\n\n--b{i}\n' for i in range(depth)]
    return ("From: a@b\nSubject: deep\nMIME-Version: 1.0\n" + "".join(head) + "\ntext\n").encode()


def tree(message, name="0."):
    def write(path):
        path.mkdir()
        (path / name).write_bytes(message)

    return write


def png(width, height, data=b""):
    def chunk(kind, content):
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = zlib.compress(data or bytes(height * (3 * width + 1)))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def flat(width, rows, numbers, data=b""):
    """Return a flat index of FAISS; bytes 4 to 37 are its head."""
    return b"IxF2" + struct.pack("<iqqq?iQ", width, rows, 1 << 20, 1 << 20, True, 1, numbers) + data


def elements(vectors):
    """Return elements of hnswlib with vectors (n, d): 12 bytes of links, 4 d of a vector, 8 of a label."""
    return np.pad(vectors.view(np.uint8), ((0, 0), (12, 8)))


def hnswlib(vectors):
    """An index of hnswlib with vectors (n, d)."""
    label = 12 + 4 * vectors.shape[1]
    head = struct.pack("<6Q", 0, 512, len(vectors), label + 8, label, 12)
    return head + bytes(48) + elements(vectors).tobytes()


def lines(*rows):
    return lambda path: path.write_text("\n".join(rows) + "\n")


def content(of):
    return lambda path: path.write_bytes(of)


ROW = '{"id": "%s", "text": "text %s"}'
PICKLES = "dump.npy dump.npz dump.jsonl dump.parquet dump.arrow dump.faiss"
PICKLES += " texts.parquet texts.csv mail.mbox images.parquet"


class Code:
    """What a pickle of it does when it is read: it makes a folder."""

    def __init__(self, path):
        self.folder = str(path.with_name("code-was-run"))

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def pickled(path):
    path.write_bytes(pickle.dumps(Code(path)))


def objects(path):
    return np.array([Code(path)], dtype=object)


FILES = {
    # programs
    **{name.replace(".", "-pickle."): pickled for name in PICKLES.split()},
    "dump-objects.npy": lambda path: np.save(path, objects(path)),
    "dump-objects.npz": lambda path: np.savez(path, vectors=objects(path)),
    # dumps of vectors
    "dump-encrypted.npz": altered(encrypt),
    "dump-broken deflate.npz": altered(break_deflate),
    # ones that are written piece by piece: 800 MB come to 1 MB
    "dump-bomb.npz": lambda path: np.savez_compressed(
        path, vectors=np.broadcast_to(np.float32(1), (200, 1_000_000))
    ),
    "dump-declared too large.npz": partial(npz, header=npy((10**9, 64), b"1234")),
    "dump-deep header.npz": partial(npz, header=b"\x93NUMPY\1\0" + struct.pack("<H", 9000) + b"(" * 9000),
    "dump-a name \udcff.npy": lambda path: np.save(path, VECTORS),
    "dump-huge shape.npy": content(npy((10**12, 10**6))),
    "dump-longer integer.jsonl": lines(f"[1, {'9' * 5000}]"),
    "dump-deep.jsonl": lines("[" * DEEP),
    "dump-deep string.jsonl": lines(json.dumps({"vector": "[" * DEEP})),
    "dump-no newline.jsonl": content(b"[" + b"1," * 2**24),
    "dump-truths.jsonl": lines("[true, {}]", "[[1], 2]"),
    "dump-empty lists.jsonl": lines("[]", "[]"),
    "dump-not UTF-8.jsonl": content(b'{"vector": [1, 2], "\xff": 1}\n[2, 1]\n[1, 1]\n'),
    "dump-all null.parquet": table(vector=pa.nulls(9, pa.list_(pa.float32()))),
    "dump-binary.parquet": table(vector=[b"\xff\x00"] * 9),
    "dump-wide.parquet": table(vector=[np.zeros(2**17, np.float32)] * 3),
    "dump-footer.parquet": content(b"PAR1" + b"\xff" * 64 + struct.pack("<I", 64) + b"PAR1"),
    # offsets that point outside of the values
    "dump-offsets.arrow": arrow(
        vector=pa.ListArray.from_arrays([0, 8, 10**8, 24, 32], VECTORS[:4].reshape(-1))
    ),
    "dump-cut.arrow": lambda path: (arrow(vector=VECTORS.tolist())(path), os.truncate(path, 700)),
    "dump-negative.faiss": content(flat(-8, -40, 320, bytes(1280))),
    "dump-nothing in it.faiss": content(flat(0, 0, 0)),
    "dump-far too many.faiss": content(flat(8, 40, 2**62)),
    "dump-a # and a %41 in its name?": chroma,
    "dump-queue of text": partial(chroma, rows=[("text", "FLOAT32"), (7, "FLOAT32")]),
    "dump-endless view": partial(chroma, more=endless("segments", "id", "scope", "'x'")),
    "dump-huge blob": partial(
        chroma,
        more="drop table embeddings_queue; create table embeddings_queue (seq_id integer primary key, "
        "encoding text, topic text, operation, id, vector blob as (zeroblob(900000000)));"
        "insert into embeddings_queue values (1, 'FLOAT32', 'a/c', 0, 'a');",
    ),
    "dump-no tables": tree(b"", "chroma.sqlite3"),
    "dump-cut header": partial(chroma, header=bytes(9)),
    "dump-header of links": partial(chroma, header=struct.pack("<i6Q", 1, 2**50, 1, 3, 52, 44, 12)),
    "dump-header of many.bin": content(struct.pack("<6Q", 0, 9, 2**60, 52, 44, 12) + bytes(99)),
    "dump-header of links.bin": content(struct.pack("<6Q", 0, 9, 3, 52, 44, 2**50) + bytes(999)),
    "dump-other width.db": partial(vec0, columns="(embedding float[7])"),
    "dump-far too wide.db": partial(vec0, columns="(embedding float[999999999])"),
    "dump-no columns.db": partial(vec0, columns="(x)"),
    "dump-few bits.db": partial(vec0, more="update items_chunks set validity = x'01';"),
    "dump-a quote.db": partial(vec0, name='a " b'),
    "dump-endless view.db": partial(vec0, more=endless("items_chunks", "chunk_id", "validity", "x'ff'")),
    "dump-huge blob.db": partial(
        vec0,
        more="drop table items_chunks; create table items_chunks "
        "(chunk_id integer primary key, validity as (zeroblob(900000000)));"
        "insert into items_chunks values (0);",
    ),
    "dump-no database.db": content(b"\xff" * 9999),
    "dump-not numbers.csv": lines("dim_0,dim_1", "a private text,1"),
    "dump-columns without end.csv": lines(",".join(f"d{i}" for i in range(2**17)), "1"),
    "dump-no table.lance": Path.mkdir,
    # vectors as a corpus: what the readers above do not see
    "vectors-null ids.parquet": table(id=[*"ab", None], vector=VECTORS[:3].tolist()),
    "vectors-beyond float32.npy": lambda path: np.save(path, VECTORS.astype(np.float64) * 1e100),
    # texts
    "texts-binary.parquet": table(text=[b"\xff\xfe", b"\x00"]),
    "texts-struct.parquet": table(text=[{"a": 1}, {"a": 2}]),
    "texts-null ids.parquet": table(id=[None, "b"], text=["one", "two"]),
    "texts-all null.parquet": table(text=pa.nulls(3)),
    "texts-labels of structs.parquet": table(text=["a", "b"], labels=[[{"x": 1}], []]),
    "texts-labels of bytes.parquet": table(text=["a", "b"], labels=[b"\xff", b"\xfe"]),
    "texts-empty.parquet": content(b""),
    "texts-nothing.csv": content(b""),
    "texts-names twice.csv": content(b"text,text\na,b\n"),
    "texts-deep.jsonl": lines('{"text": ' + "[" * 5000),
    "texts-deep labels.csv": content(b'text,labels\na,"' + b"[" * DEEP + b'"\n'),
    "texts-mixed.jsonl": lines('{"text": 1}', '{"text": [1]}', "7"),
    "texts-huge integer.jsonl": lines(f'{{"text": {"9" * 400}}}'),
    "texts-nested strings.jsonl": lines('{"text": "' + '\\"[' * 500_000),
    "texts-names": lambda path: (
        path.mkdir(),
        (path / "a\udcfe.txt").write_text("one"),
        (path / "b.txt").write_text("two"),
    ),
    # e-mail
    "mail-deep": tree(nested_mail(20_000)),
    "mail-less deep": tree(nested_mail(300)),
    "mail-addresses": tree(b"To: " + b"a@b, " * 100_000 + b"\n\nbody\n"),
    "mail-headers": tree(
        b"From: =?utf-8?b?//8=?=\nTo: \xff\xfe <\n>>@\nSubject: =?x?q?=FF?=\nDate: 99\n\n\xff\n"
    ),
    "mail-charset": tree(
        b"From: a@b\nContent-Type: text/plain; charset=nonsense\nContent-Transfer-Encoding: base64\n\n!!!!\n"
    ),
    "mail-names": tree(b"From: a@b\n\nbody\n", "a\udcfe"),
    # images
    "images-bomb.parquet": table(image=[png(60_000, 60_000, b"x")], text=["a"]),
    "images-paths.parquet": table(image=["\0", "/"], text=["a", "b"]),
}


def written(folder, files):
    """Make a folder with these files, but for names that the file system cannot hold."""
    folder.mkdir()
    for name, write in files.items():
        with suppress(UnicodeEncodeError):
            write(folder / name)
    return folder


def read(path):
    """Return "" if a file was read, else the line of BadInput, else any other exception after a `!`."""
    from pipelines.corpora.core import texts
    from pipelines.corpora.core.files import located
    from pipelines.corpora.kinds import images
    from pipelines.corpora.sources import path as source
    from pipelines.corpora.sources import vectors
    from pipelines.runtime.errors import BadInput
    from pipelines.study import PathCorpus, VectorsCorpus
    from pipelines.tool import dumps

    kind = path.name.partition("-")[0]
    columns = {"text": "body"} if kind == "mail" else {}
    try:
        if kind == "dump":
            dumps.sample(located(str(path)), 1000)
        elif kind == "vectors":
            vectors.rows(VectorsCorpus(source="vectors", path=str(path)))
        else:
            corpus = PathCorpus(source="path", path=str(path), columns=columns)
            rows = (
                images.rows(corpus, source) if kind == "images" else texts.rows(corpus, source.table(corpus))
            )
            assert rows.select(pl.col(pl.String)).height
    except BadInput as error:
        return str(error)
    except BaseException as error:
        return f"! {type(error).__name__}: {error}"
    return ""


def main(folder, memory):
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
