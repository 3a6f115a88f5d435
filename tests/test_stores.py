"""Files that vector stores wrote themselves. A test is skipped where the package of its store is missing."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.corpora.sources.vectors import formats
from tests.small import put, refusal
from tests.test_audit import VECTORS, sampled

pytestmark = pytest.mark.usefixtures("own_folder")


def found(path, **which):
    """Return the vectors of a dump, sorted."""
    return np.unique(sampled(path, **which).vectors, axis=0)


def same(vectors, *left_out):
    return pytest.approx(np.unique(np.delete(vectors, left_out, axis=0), axis=0), abs=1e-6)


def rows(vectors):
    return [{"id": i, "vector": v.tolist()} for i, v in enumerate(vectors)]


@pytest.mark.parametrize("kind", ["Flat", "IVF4,Flat", "IVF4_HNSW8,Flat", "HNSW8,Flat", "IDMap,Flat"])
def test_indexes_that_faiss_writes(kind):
    faiss = pytest.importorskip("faiss")
    index = faiss.index_factory(8, kind)
    index.train(VECTORS)
    index.add_with_ids(VECTORS, np.arange(300)) if "IDMap" in kind else index.add(VECTORS)
    faiss.write_index(index, "a.faiss")
    assert sampled("a.faiss").vectors == pytest.approx(VECTORS)  # in order


@pytest.mark.parametrize("space", ["l2", "cosine"])
def test_hnswlib(space):
    index = pytest.importorskip("hnswlib").Index(space, 8)
    index.init_index(500)
    index.add_items(VECTORS)
    index.mark_deleted(7)
    index.save_index("a.bin")
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    assert found("a.bin") == same(unit if space == "cosine" else VECTORS, 7)


def test_sqlite_vec():
    sqlite_vec, apsw = pytest.importorskip("sqlite_vec"), pytest.importorskip("apsw")
    base = apsw.Connection("a.db")
    base.enable_load_extension(True)
    base.load_extension(sqlite_vec.loadable_path())
    columns = "id integer primary key, coarse bit[8], embedding float[8], kind text, +body text"
    base.execute(f"create virtual table items using vec0({columns}, chunk_size=64)")
    for row, vector in enumerate(VECTORS):
        base.execute("insert into items values (?, vec_bit(?), ?, 'a', 'b')", (row, b"1", vector.tobytes()))
    base.execute("delete from items where id in (3, 200)")
    base.close()
    assert found("a.db") == same(VECTORS, 3, 200)


def test_lancedb():
    base = pytest.importorskip("lancedb").connect("dump")
    table = base.create_table("mail", rows(VECTORS))
    table.delete("id = 3")
    assert found("dump") == same(VECTORS, 3)
    base.create_table("notes", rows(VECTORS + 1))
    with refusal("2 tables of LanceDB"):
        found("dump")
    for of in ({"path": "dump", "collection": "notes"}, {"path": "dump/notes.lance"}):
        assert found(**of) == same(VECTORS + 1)


def test_a_table_beside_a_store_is_not_read_in_its_place():
    Path("dump/notes.lance").mkdir(parents=True)
    Path("dump/other.parquet").touch()
    assert formats.parquet_files(Path("dump")) == []


def test_lancedb_without_its_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "lancedb", None)
    Path("a.lance").mkdir()
    with refusal(r"pip install 'universal-geometry\[stores\]'"):
        found(".")


def test_chroma():
    client = pytest.importorskip("chromadb").PersistentClient(".")
    ids = [str(i) for i in range(300)]
    for name, vectors in (("mail", VECTORS), ("notes", VECTORS + 1)):
        some = {"hnsw:sync_threshold": 100, "hnsw:batch_size": 50}
        collection = client.create_collection(name, metadata=some)
        collection.add(ids=ids[:290], embeddings=vectors[:290])
        collection.add(ids=ids[290:], embeddings=vectors[290:])  # still in the queue
    assert found(".", collection="mail") == same(VECTORS)
    assert found("chroma.sqlite3", collection="notes") == same(VECTORS + 1)


def test_qdrant():
    qdrant = pytest.importorskip("qdrant_client")
    client = qdrant.QdrantClient(path="folder")
    size = {name: qdrant.models.VectorParams(size=8, distance="Dot") for name in ("title", "body")}
    client.create_collection("mail", vectors_config=size)
    named = [{"title": v.tolist(), "body": (v + 1).tolist()} for v in VECTORS]
    client.upsert("mail", [qdrant.models.PointStruct(id=i, vector=v) for i, v in enumerate(named)])
    answer, _ = client.scroll("mail", limit=300, with_vectors=True)
    client.close()
    scrolled = {"result": {"points": [row.model_dump(mode="json") for row in answer]}}
    put("scroll.json", json.dumps(scrolled))
    assert found("scroll.json", column="body") == same(VECTORS + 1)
    with refusal("a local folder of Qdrant holds pickles"):
        found("folder")


@pytest.mark.parametrize(("form", "how"), [("a.copy", ""), ("a.csv", "csv header")])
def test_pgvector(form, how):
    server = pytest.importorskip("pgserver").get_server("server")
    values = ",".join(f"({i}, E'\"\\t\\n', '{v.tolist()}')" for i, v in enumerate(VECTORS))
    server.psql("create extension vector; create table items (id int, body text, embedding vector(8));")
    server.psql(f"insert into items values {values}, (300, '', null);")
    put(form, server.psql(f"copy items to stdout {how};").strip("\n") + "\n")
    server.cleanup()
    assert found(form) == same(VECTORS)
