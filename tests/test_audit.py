"""The audit: dumps of every format, bad ones in one line, defences, and no leak claimed where nothing was
aligned.
"""

import json
import logging
import os
import re
import shlex
import shutil
import struct
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch.nn.functional import normalize
from yaml import safe_load as load_yaml

from pipelines.aligners import identity
from pipelines.aligners.core.translator import Identity
from pipelines.aligners.core.verdict import Verdict, judge
from pipelines.corpora.core import collect
from pipelines.corpora.sources.vectors import formats, limits
from pipelines.fitting import arrays, fits
from pipelines.inverters import decoder, search
from pipelines.measures.defences import Defence, Keys, defend, known_pair_attacks, recall_kept
from pipelines.measures.vectors import neighbours, overlap
from pipelines.pages.audit import Findings, Tried, advice, write
from pipelines.runtime.errors import BadInput
from pipelines.study import VectorsCorpus
from pipelines.tool import audit as audits
from pipelines.tool import dumps, encoders, identify
from pipelines.tool.__main__ import main
from tests.hostile import chroma, content, elements, flat, hnswlib, lines, table, vec0
from tests.small import blocks, normal, put, quick_fit, refusal, rotation, seeded
from tests.test_tool import refused

pytestmark = pytest.mark.usefixtures("own_folder")
VECTORS = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
CLOUD = torch.from_numpy(VECTORS)


# ---------------------------------------------------------------- readers


FLAT = flat(8, 300, VECTORS.size, VECTORS.tobytes())
NOTES = "insert into collections values ('d', 'notes');"  # a second one


def write_chroma(folder, queued=50, more=""):
    """Write vectors to hnsw, one of them marked deleted, and leave the rest in the queue of sqlite."""
    rows = [(v.tobytes(), "FLOAT32") for v in VECTORS]
    seen = 300 - queued  # one before these is in both
    more += f"update max_seq_id set seq_id = {seen}; delete from embeddings_queue where seq_id < {seen};"
    index = elements(VECTORS[:seen])
    index[7:8, 2] = 1  # row 7, if there is one
    index[:, 44:] = np.arange(1, seen + 1, dtype="<u8").view(np.uint8).reshape(seen, 8)
    header = struct.pack("<i6Q", 1, 0, 512, seen, 52, 44, 12) + bytes(48)
    chroma(folder, header if seen else None, rows, more, index.tobytes() + bytes(4096))


def write_stream(path):
    made = pa.table({"vector": pa.array([None, *LISTS], FIXED.type)})
    with pa.ipc.new_stream(path, made.schema) as file:
        file.write_table(made[:1])  # a batch without any vector
        file.write_table(made[1:], max_chunksize=90)


LISTS = VECTORS.tolist()
IN_JSON = [json.dumps(v) for v in LISTS]
WIDE = pl.DataFrame(
    {"id": [f"{i} 1" for i in range(300)], "label_1": 7, "label_2": 8}
    | {f"dim_{i}": VECTORS[:, i] for i in (*range(2, 8), 1, 0)}
)
FIXED = pa.array(LISTS, pa.list_(pa.float32(), 8))
WRITERS = {
    "fixed.parquet": lambda p: pq.write_table(pa.table({"embedding": FIXED}), p, row_group_size=70),
    "missing.parquet": table(vector=pa.array([None, *LISTS], FIXED.type)),
    "pgvector.parquet": table(embedding=IN_JSON),
    "qdrant.parquet": table(vector=[{"default": v} for v in LISTS]),
    "qdrant.jsonl": lines(*(json.dumps({"vector": {"text": v}}) for v in LISTS)),
    "bare.jsonl": lines(*IN_JSON),
    "flat.faiss": content(FLAT),
    "wrapped.index": content(b"IxMp" + FLAT[4:37] + FLAT + struct.pack("<Q", 300) + np.arange(300).tobytes()),
    "missing.arrow": write_stream,
    "missing.jsonl": lines('{"dense": null}', *(f'{{"dense": {v}}}' for v in IN_JSON)),
    "scroll.json": lines(json.dumps({"result": {"points": [{"vector": v} for v in LISTS]}})),
    "elastic.json": lines(*(json.dumps({"_source": {"embedding": v}}) for v in LISTS)),
    "pgvector.csv": pl.DataFrame({"embedding": IN_JSON}).write_csv,
    "pgvector.copy": lines(*(f"1\t{v}" for v in IN_JSON)),
    "missing.copy": lines("a\t\\N", *(f'"\\t\t{v}' for v in IN_JSON)),  # a quote is no quote there
    "wide.parquet": WIDE.write_parquet,
    "wide.csv": lambda p: WIDE.write_csv(p, include_bom=True),  # as Excel does
    "matrix.csv": lambda p: np.savetxt(p, VECTORS, delimiter=","),
    "unusual.csv": pl.DataFrame({"id": range(300), "v": IN_JSON}).write_csv,
    "sqlite-vec.db": lambda p: vec0(p, VECTORS),
    "hnswlib.bin": content(hnswlib(VECTORS)),
    "a.safetensors": lambda p: save_file({"ids": torch.arange(300), "vectors": CLOUD}, p),
}


def sampled(name, limit=1000, **which):
    return dumps.sample(Path(name), limit, **which)


def test_long_vectors_of_hnswlib_are_read():
    vectors = normal(3, 16384).numpy()
    Path("a.bin").write_bytes(hnswlib(vectors))
    assert np.array_equal(sampled("a.bin").vectors, vectors)


def test_a_json_value_is_read_whole_up_to_a_size(monkeypatch):
    monkeypatch.setattr(formats, "WHOLE", 2**20)
    lines(*IN_JSON * 50)(Path("lines.json"))
    assert len(sampled("lines.json", limit=9).vectors) == 9
    lines(json.dumps(LISTS * 50, indent=1))(Path("array.json"))
    with refusal("a JSON value of more than 1 MiB is not read: save it as JSON lines"):
        sampled("array.json")


def test_bfloat16_is_read():
    save_file({"vectors": torch.eye(3, dtype=torch.bfloat16)}, "a.safetensors")
    assert np.array_equal(sampled("a.safetensors").vectors, np.eye(3))


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_back_the_vectors(name, monkeypatch):
    monkeypatch.setattr(limits, "BLOCK", 64)
    WRITERS[name](Path(name))
    found = sampled(name)
    assert found.rows == 300 + ("missing" in name)
    assert np.array_equal(found.vectors, VECTORS)
    assert np.array_equal(found.places, np.arange(300) + ("missing" in name))


@pytest.mark.parametrize(("queued", "deleted"), [(50, [7]), (300, [])])
def test_chroma_hnsw_and_queue(queued, deleted):
    write_chroma(
        Path("dump"),
        queued,
        "insert into embeddings_queue (operation, id, vector, encoding) "
        "select 2, 290, vector, encoding from embeddings_queue where id = 300;"
        "insert into embeddings_queue (operation, id) values (3, 300), (1, 299);",
    )
    found = sampled("dump")
    left = np.delete(VECTORS, [*deleted, 289, 299], axis=0)
    assert np.array_equal(found.vectors, [*left, VECTORS[299]])


@pytest.mark.parametrize(
    ("name", "wrong", "line", "right"),
    [  # a dump, what it has more than one of, and one choice or more that name the vectors
        ("chroma", {}, "2 collections", {"collection": "mail"}),
        ("chroma", {"collection": "no"}, "none is called 'no'", {"collection": "mail"}),
        ("two.db", {"collection": "items"}, "2 columns", {"collection": "items", "column": "embedding"}),
        ("weaviate.jsonl", {}, r"2 named.*choose one \(`--column`, or `columns: \{v", {"column": "title"}),
    ],
)
def test_one_of_several_sets_of_vectors_must_be_chosen(name, wrong, line, right):
    write_chroma(Path("chroma"), more=NOTES)
    vec0("two.db", VECTORS, "items", "(embedding float[8], small int8[8], coarse bit[8])")
    vec0("two.db", VECTORS, "others")
    named = [json.dumps({"vector": {"title": v, "body": v[:2]}}) for v in LISTS]
    lines(*named)(Path("weaviate.jsonl"))
    with refusal(line):
        sampled(name, **wrong)
    assert len(sampled(name, **right).vectors) >= 299
    named = {"columns": {"vector": right["column"]}} if "column" in right else {}
    row = VectorsCorpus(source="vectors", path=name, collection=right.get("collection"), **named)
    assert len(collect(row)) >= 299


@pytest.mark.parametrize(
    ("first", "rows"),
    [("0.01,0.02,-0.05,0.03", 3), ("0,1,1,0", 3), ("0,1,2,3", 2), ("dim_1,dim_2,dim_3,dim_4", 2)],
)
def test_only_names_of_dimensions_are_a_header(first, rows):
    lines(first, "1,2,3,4", "0.5,6,7,8")(Path("a.csv"))
    assert sampled("a.csv").vectors.shape == (rows, 4)


def test_commands_choose_a_collection(capsys):
    write_chroma(Path("dump"), more=NOTES)
    for command in (["translate", "fit"], ["migrate"]):
        more = "dump", "dump", "--out", f"{command[0]}.npy", "--collection", "no"
        assert "none is called 'no'" in refused(capsys, *command, *more)


def test_a_sample_is_uniform_and_seeded(monkeypatch):
    monkeypatch.setattr(limits, "BLOCK", 16)
    np.save("a.npy", VECTORS)
    first, *others = (sampled("a.npy", 20, seed=seed) for seed in (0, *range(150)))
    assert first.vectors.shape == (20, 8)
    assert np.array_equal(first.vectors, others[0].vectors)
    places = np.array([other.places for other in others])
    assert len(np.unique(places, axis=0)) == 150
    assert abs((places < 150).sum() - 1500) < 5 * (3000 * 0.25) ** 0.5


def sample_of(vectors):
    np.save("a.npy", vectors)
    return sampled("a.npy")


def test_nan_zero_and_repeated_rows_are_left_out_and_counted():
    zero, nan = np.zeros((1, 8), np.float32), np.full((3, 8), np.nan, np.float32)
    found = sample_of(np.concatenate([VECTORS, VECTORS[:2], zero, nan]))
    assert (found.rows, found.left_out, found.repeated, len(found.vectors)) == (306, 4, 2, 300)


@pytest.mark.parametrize("factor", [1e4, 3e37])
def test_a_row_far_off_is_left_out_and_counted(factor):
    far = VECTORS.copy()
    far[5] *= factor
    found = sample_of(far)
    assert (found.rows, found.left_out, found.far_off) == (300, 0, 1)
    assert np.array_equal(found.vectors, np.delete(VECTORS, 5, axis=0))
    assert np.array_equal(found.places, np.delete(np.arange(300), 5))


def test_lengths_that_vary_and_copies_are_not_far_off():
    lengths = np.random.default_rng(2).lognormal(0, 0.6, size=(300, 1)).astype(np.float32)
    assert sample_of(VECTORS * lengths).far_off == 0
    found = sample_of(np.concatenate([VECTORS[:20], np.repeat(VECTORS[:1], 200, axis=0)]))
    assert (len(found.vectors), found.repeated, found.far_off) == (20, 200, 0)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    scale=st.floats(-30, 30),
    shift=st.floats(0, 20),
    powers=st.lists(st.floats(0.5, 38), max_size=4),
    empty=st.integers(0, 20),
)
@example(seed=0, scale=-11.0, shift=0.0, powers=[], empty=0)
def test_no_scale_no_shift_and_no_bad_row_changes_a_verdict(seed, scale, shift, powers, empty):
    """Times 10^scale: 400 vectors moved by `shift`, copies of rows times 10^power, and rows of NaN.

    True pairs stand in for a fit, so that only the centre and the lengths decide.
    """
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(400, 40))
    known = torch.from_numpy(clean @ np.linalg.qr(rng.normal(size=(40, 40)))[0]).float()
    poison = (clean[: len(powers)] + shift) * 10 ** np.array(powers).reshape(-1, 1)
    dump = np.concatenate([clean + shift, poison, np.full((empty, 40), np.nan)]) * 10**scale
    taken = sample_of(np.clip(dump, -3e38, 3e38).astype(np.float32))
    vectors = torch.from_numpy(taken.vectors)
    assert taken.left_out == empty
    assert len(vectors) + taken.far_off + taken.repeated == 400 + len(powers)
    good = vectors[:400]
    fits = [quick_fit("procrustes", good[i::2], known[i::2]) for i in (0, 1)]
    assert judge(vectors, fits[0], known, fits[1:]).label == "aligned"
    partners = torch.cat([known, known[: len(vectors) - 400]])
    # One map for all that is taken, as an attack fits it
    together = quick_fit("procrustes", vectors, partners)
    assert torch.cosine_similarity(together(good), known).mean() > 0.95


def shards(*tables):
    def write(folder):
        folder.mkdir()
        for number, shard in enumerate(tables):
            table(**shard)(folder / f"part-{number:05}.parquet")

    return write


BAD = {
    "mixed.jsonl": (lines("[1, 2]", "[1, 2, 3]"), "different dimensions: 2, and 3 in line 2"),
    "one.npy": (lambda p: np.save(p, VECTORS[:1]), "1 vector: nothing to align"),
    "same.npy": (lambda p: np.save(p, np.ones((50, 4))), "all 50 vectors are the same"),
    "flat.npy": (lambda p: np.save(p, np.ones(9)), "not one vector of numbers per row"),
    "none.faiss": (Path.touch, "none.faiss: an empty file"),
    "ivf.faiss": (content(b"IwPQ" + bytes(60)), "no FAISS index of whole vectors"),
    "centroids.faiss": (content(b"IwFl" + FLAT[4:37] + bytes(16) + b"IxPQ"), "export the vectors"),
    "bits.db": (lambda p: vec0(p, VECTORS, columns="(embedding bit[256])"), "are bits, which are not read"),
    "record.json": (lines('{"id": 1, "vector": [1, 2]}'), "1 vector: nothing to align"),
    "words.jsonl": (lines('{"text": "a"}'), "line 1 has no 'vector'"),
    "words.json": (lines('[{"text": "a"}]'), "item 0 has no 'vector'"),
    "texts.parquet": (table(vector=["two words"]), "row 0 has text in place of a vector"),
    "broken.jsonl": (lines("[1, 2"), "line 1 is not JSON"),
    "dump.xyz": (content(b"insert"), "vectors are read from"),
    "dump.sql": (content(b"insert"), "SQL is not run"),
    "model.pkl": (content(b"x"), "a pickle runs the program in it"),
    "none.db": (Path.touch, "no table of sqlite-vec"),
    "log.db": (lambda p: (p.touch(), p.with_name("log.db-wal").write_bytes(b"x")), "wal_checkpoint"),
    "none.copy": (lines("1\t\\N"), "which column holds the vectors"),
    "two.csv": (lines("a,b", '"[1, 2]","[3, 4]"'), "which column holds the vectors"),
    "two.npz": (lambda p: np.savez(p, a=VECTORS, b=VECTORS), "which array holds the vectors"),
    "big.jsonl": (lines("[1, 2]", f"[1{'0' * 400}, 2]"), "line 2: a number that no float holds$"),
    "long.csv": (lines("0.5,2", "3,4,5"), "row 1 has 3 fields"),
    "chroma": (
        lambda p: (write_chroma(p), shutil.rmtree(p / "s")),
        "most vectors are in folder s, which is missing: copy it, too",
    ),
    "empty": (Path.mkdir, r"a folder with no \*\.parquet, no \*\.lance and no chroma\.sqlite3"),
    "dimensions": (
        shards(*[{"vector": [[1.0, 2.0]]}] * 2, *[{"vector": [[1.0]]}] * 2),
        "part-00002.parquet: vectors of 1 dimensions; in part-00000",
    ),
    "columns": (
        shards({"vector": [[1.0]]}, {"other": [[1.0]]}),
        "part-00001.parquet: column 'other' is list<.*>; in .* it is not there",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_dump_is_one_line(name):
    write, message = BAD[name]
    write(Path(name))
    with refusal(message):
        sampled(name)


# ---------------------------------------------------------------- defences


def test_what_defences_cost_in_retrieval():
    names = ("none", "rotate", "int8", "binary", "noise 0.1", "noise 1", "drop 0.5", "round 2")
    stored = {str(defence): defend(CLOUD, defence) for defence in map(Defence.of, names)}
    kept = {name: recall_kept(CLOUD, after).mean() for name, after in stored.items()}
    clean = {
        name: recall_kept(CLOUD, stored[name], undefended_queries=True).mean() for name in ("none", "noise 1")
    }
    assert clean["none"] == 1
    assert kept["noise 1"] < clean["noise 1"] < 1  # noise is on the stored side alone
    assert kept["none"] == 1
    assert kept["rotate"] > 0.99
    assert min(kept["int8"], kept["round 2"]) > 0.9
    assert kept["int8"] > kept["binary"] > 0.1
    assert 1 > kept["noise 0.1"] > kept["noise 1"] > 0.05
    assert kept["drop 0.5"] < 0.8


def in_cells(vectors, cells, seed=0):
    """Return the keys of a rotation for each cell, the cell of each vector, and what is stored."""
    keys = Keys.drawn(vectors, cells, seed)
    return keys, keys.cells(vectors), defend(vectors, Defence("cells", cells), seed)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(2, 20), st.integers(1, 8))
def test_a_rotation_for_each_cell_keeps_what_is_within(seed, dimension, cells):
    vectors = normal(60, dimension, seed=seed, dtype=torch.float64)
    _, cell, stored = in_cells(vectors, cells, seed)
    within = cell[:, None] == cell
    products, bare = stored @ stored.T, vectors @ vectors.T
    assert torch.allclose(products[within], bare[within], atol=1e-10)
    if not within.all():
        assert (products - bare)[~within].abs().mean() > 0.1 * bare[~within].abs().mean()
    assert torch.allclose(
        defend(vectors, Defence("cells", 1), seed), defend(vectors, Defence("rotate"), seed), atol=1e-12
    )
    assert not torch.allclose(defend(vectors, Defence("cells", cells), seed + 1), stored)


def test_the_owner_finds_what_others_do_not():
    keys, cells, stored = in_cells(CLOUD, 9)
    unit, locked = normalize(CLOUD), normalize(stored)
    exact = neighbours(unit[:40], unit, 10, others=True)
    one, three, all_cells = (
        overlap(exact, keys.search(unit[:40], locked, cells, probes=p)).mean() for p in (1, 3, 9)
    )
    assert recall_kept(CLOUD, stored).mean() < one < three < 0.99 < all_cells
    assert recall_kept(CLOUD, stored, 40, keys=keys).mean() == pytest.approx(three.item())
    few = keys.search(unit[:40], locked, cells, k=len(unit), probes=1)
    assert (few >= 0).sum(1).tolist() == [(cells == cell).sum() - 1 for cell in cells[:40]]


def test_known_pairs_undo_one_rotation_not_many():
    vectors = normalize(normal(1200, 32) + 2 * normal(32, seed=1))

    def error(cells, pairs):
        """Least mean squared error of any attacker, a share of that of guessing the mean."""
        _, at, stored = in_cells(vectors, cells, 5)
        rest = vectors[pairs:]
        errors = [(x - rest).square().sum(1).mean() for x in known_pair_attacks(stored, vectors[:pairs], at)]
        return min(errors) / (rest - rest.mean(0)).square().sum(1).mean()

    assert error(1, 32) < 1e-9  # as many pairs as dimensions
    assert 0.1 < error(1, 16) < error(1, 8)
    assert error(24, 100) > 0.5
    assert error(4, 600) < 1e-9  # with as many pairs in each cell as dimensions it falls, cell by cell


def test_noise_is_as_long_as_it_says():
    vectors = normalize(normal(500, 64)) * 3
    assert not defend(torch.zeros(3, 4), Defence("int8")).any()
    moved = defend(vectors, Defence("noise", 0.5)) - vectors
    assert moved.norm(dim=1).mean().item() == pytest.approx(1.5, rel=0.02)
    assert defend(vectors, Defence("drop", 0.25)).shape == (500, 16)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("magic", "no 'magic'"),
        ("cells 2.5", "whole number of cells"),
        ("cells 301", "301 cells are more than the 300 vectors"),
        ("noise much", "a kind and a number are needed"),
        ("round 39", "at most 15"),
        ("noise", "noise 0: a number above 0"),
        ("binary 1", "binary 1: it takes no number"),
    ],
)
def test_an_impossible_defence_is_one_line(name, message):
    with refusal(message):
        defend(CLOUD, Defence.of(name))


# ---------------------------------------------------------------- the whole, in a world of twenty subjects

RNG = np.random.default_rng(1)
SUBJECTS = [f"subject{i}" for i in range(8)]
TABLE = {
    w: normalize(torch.from_numpy(RNG.normal(size=16) * (np.arange(16) < 12 - i)).float(), dim=0)
    for i, w in enumerate(SUBJECTS)
}


def secret_encoder(texts):
    """Texts -> (n, 16): what both sides' encoders share."""
    subjects = [[TABLE[w] for w in t.strip(".").split() if w in TABLE] for t in texts]
    return torch.stack([sum(of, torch.full((16,), 0.01)) for of in subjects])


def wider(texts):
    return torch.nn.functional.pad(secret_encoder(texts), (0, 4), value=1.0)


def some_texts(count, seed):
    rng = np.random.default_rng(seed)
    chances = np.arange(8, 0, -1) / 36
    return [
        " ".join(rng.choice(SUBJECTS, size=rng.integers(1, 6), p=chances)) + f" {i}" for i in range(count)
    ]


@pytest.fixture
def world(monkeypatch):
    """In a folder with a dump and texts, return a function that audits it under a verdict of its own."""
    put("own.txt", "\n\n".join(some_texts(300, 0)))
    np.save("dump.npy", (secret_encoder(some_texts(400, 1)) @ rotation(16, 16, seeded(2))).numpy())
    monkeypatch.setattr(encoders, "opened", lambda name, device: secret_encoder)
    sizes = {"INVERTED": 3, "DEFENDED": 200, "PAIRS": (50, 1000)}
    monkeypatch.setattr(arrays, "ALIGNER", "identity")
    none = arrays.settings_of("identity", {})
    monkeypatch.setattr(arrays, "settings_of", lambda *_: none)
    sizes["INVERTER"] = decoder.Settings(vocabulary=300, tokens=8, width=16, layers=1, heads=1, epochs=1)
    sizes["SEARCH"] = search.Settings(samples=2, rounds=1, swaps=2)
    for name, value in sizes.items():
        monkeypatch.setattr(audits, name, value)
    options = audits.Options(
        "own.txt", ("minilm",), limit=300, known=250, labels=tuple(SUBJECTS),
        defences=("noise 1", "drop 0.5", "rotate", "cells 4"),
    )  # fmt: skip

    def run(*verdicts, dump="dump.npy", **more):
        one_by_one = cycle(verdicts)
        monkeypatch.setattr(fits, "judge", lambda *_: next(one_by_one))
        return audits.audit(Path(dump), replace(options, **more))

    return run


ALIGNED = Verdict(0.9, "aligned", 0.0, 100)
BEST = Tried("one", 100, 0.9, "aligned", 1.0, own_encoder=True)


def written(found):
    """Write the page, and return its HTML and its Markdown."""
    page = write(found, Path("out"), "dump")
    return page.read_text(), page.with_suffix(".md").read_text()


def test_an_aligned_dump_is_read_and_the_page_shows_it(world, capsys, monkeypatch):
    fits = Mock(side_effect=audits.identify_or_fit)
    monkeypatch.setattr(audits, "identify_or_fit", fits)
    found = world(ALIGNED)
    assert [call.kwargs.get("quick") for call in fits.call_args_list] == [None] + 5 * [True]
    assert sum(r["vectors"] for r in found.attributes) == found.about["used"] == 300 - found.about["repeated"]
    assert len(found.inversions) == 3
    assert all(row["guess"] for row in found.inversions)
    undone = {d["defence"]: d["50 pairs"] for d in found.defences}
    assert list(undone) == ["none", "noise 1", "drop 0.5", "rotate", "cells 4"]
    assert min(undone["none"], undone["rotate"]) > 0.99
    assert all("1000 pairs" not in d for d in found.defences)  # more than there are vectors
    text, twin = written(found)
    assert "data:image/png;base64," in text
    assert "http" not in text.replace("http-equiv", "")
    shown = ["What to do", "The dump", "Encoders tried", "Inferred topics", "Inverted texts", "Defences"]
    assert re.findall("## (.+)", twin) == [*shown, "This audit"]
    # What it said while it ran: which step of how many, and what is left once a time is known
    first, *others = re.findall("audit: step (.*)", capsys.readouterr().err)
    assert first == "1 of 8: encoder minilm"
    assert [line for line in others if "left, or less" not in line] == []
    assert others[-1].startswith("8 of 8: defence cells 4;")


def test_of_a_partly_aligned_dump_only_that_part_is_read(world, monkeypatch):
    half = SimpleNamespace(rows=lambda source: torch.arange(len(source)) % 2 == 0)
    monkeypatch.setattr(audits, "judge_parts", lambda *_: half)
    found = world(Verdict(1.0, "partial", 0.5, 100, 0.5))
    assert sum(r["vectors"] for r in found.attributes) == (found.about["used"] + 1) // 2
    in_dump = sampled("dump.npy", 300).places[::2]
    assert {r["row"] for r in found.inversions} <= {*in_dump.tolist()}
    _, twin = written(found)
    assert "Verdict: partial with minilm (score 1.00), for 50% of the vectors" in twin
    assert "Severity: high" in twin


@pytest.mark.parametrize(("label", "severity"), [("failed", "none shown"), ("doubtful", "unknown")])
def test_without_alignment_nothing_is_claimed(world, label, severity):
    found = world(Verdict(0.1, label, 0.0, 100))
    assert (found.attributes, found.inversions, found.defences) == ([], [], [])
    _, twin = written(found)
    assert f"Verdict: {label}" in twin
    assert f"Severity: {severity} (" in twin
    assert "not tried: no attack works" in twin
    assert "Inverted" not in twin
    assert "Inferred" not in twin
    assert f"The attack saw {found.about['used']} vectors. With 10,000 it reads more" in twin
    assert ("no evidence of leakage by this attack" in twin) == (label == "failed")


def test_ctrl_c_after_a_fit_ends_with_what_is_done(world, monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(audits, "topics", stopped)
    _, twin = written(world(ALIGNED))
    assert "The audit has not finished: it was in the step topics." in twin
    assert "--truth" not in twin.partition("## This audit")[0]
    assert "No label was known.\n\nnot reached\n" in twin
    arguments = ["audit", "dump.npy", "--texts", "own.txt", "--limit", "300"]
    assert main(arguments) == 130
    out = capsys.readouterr().out
    assert "The audit has not finished: it was in the step topics." in out
    assert "the page: " in out  # no text was read
    assert all(page.stem.endswith("-unfinished") for page in Path("report/audit").glob("*.html"))
    put("targets.yaml", "verdict: aligned")
    assert main([*arguments, "--gate", "targets.yaml"]) == 3
    assert "target missed: The audit has not finished: it was in the step topics" in capsys.readouterr().out
    monkeypatch.setattr(audits, "identify_or_fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        world(ALIGNED)


def test_the_page_is_there_before_defences_are_tried(world, monkeypatch):
    page, try_one, seen = Path("report/audit"), audits.recall_kept, []

    def tried(*args, **more):
        [twin] = page.glob("*-unfinished.md")
        seen.append(twin.read_text())
        return try_one(*args, **more)

    world(ALIGNED)
    monkeypatch.setattr(audits, "recall_kept", tried)
    assert main(["audit", "dump.npy", "--texts", "own.txt", "--limit", "300", "--defences", "noise 1"]) == 0
    assert ["it was in the step defence none." in twin for twin in seen] == [True, False]
    assert "## Inverted texts" in seen[0]
    assert "| noise 1 |" not in seen[1].partition("## Defences")[2]
    left = sorted(path.suffix for path in page.iterdir())
    assert left == [".html", ".json", ".md", ".png"]  # of the finished audit


def test_fits_warn_of_the_dump_and_not_of_its_defended_copies(world, monkeypatch, caplog):
    def warns(*given, fit=identity.fit, **more):
        logging.getLogger(identity.__name__).warning("source: several encoders")
        return fit(*given, **more)

    monkeypatch.setattr(identity, "fit", warns)
    world(ALIGNED, defences=())
    of_the_dump = caplog.messages.copy()
    assert of_the_dump
    world(ALIGNED)
    assert caplog.messages == 2 * of_the_dump


def test_an_impossible_defence_is_named_and_others_are_tried(world):
    np.save("dump.npy", np.abs(np.load("dump.npy")) + 0.01)  # sign bits of these are all the same
    found = world(ALIGNED, defences=("binary", "cells 900", "rotate"))
    assert [row["defence"] for row in found.defences] == ["none", "rotate"]
    assert {"defence binary", "defence cells 900"} <= set(found.about)
    assert "cannot be tried: " in written(found)[1]


def test_a_dump_that_is_this_folder_has_a_name(world, monkeypatch):
    Path("leak").mkdir()
    pl.DataFrame({"vector": np.load("dump.npy")}).write_parquet("leak/part.parquet")
    monkeypatch.chdir("leak")
    assert world(Verdict(0.0, "failed", 1.0, 100), dump=".", texts="../own.txt").dump == "leak"
    assert audits.page_name(Path("."), audits.Options()).startswith("leak-")


def test_audits_with_other_settings_have_other_pages():
    options = [audits.Options(), audits.Options(collection="a"), audits.Options(texts="b")]
    assert len({audits.page_name(Path("dump"), one) for one in options}) == 3
    made = audits.provenance(Path("dump"), audits.Options(defences=()))
    assert (made["seed"], made["truth"], made["defences"]) == ("0", "none", "none")
    assert made["encoders"] == ", ".join(["minilm+use", *encoders.installed()])
    twice = audits.Options(defences=("none", "rotate", "rotate")).defences_to_try()
    assert [*map(str, twice)] == ["none", "rotate"]


def findings(**defences):
    """Return Findings. Each value is (recall, leakage, leakage given 50 pairs) of that defence."""
    names = ("recall", "leakage", "50 pairs")
    tried = {"none": (1.0, 0.8, 0.8)} | defences
    rows = [{"defence": name} | dict(zip(names, row, strict=True)) for name, row in tried.items()]
    leaks = [{"what": w, "found": 3, "of": 10, "floor": 1} for w in ("texts", "labels", "facts")]
    return Findings("dump", {"used": 300}, [BEST], defences=rows, leaks=leaks)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"noise 1": (0.4, 0.0, 0.0), "cells 4": (0.82, 0.0, 0.4016), "rotate": (1.0, 0.0, 0.41)},
            "The nearest miss: `cells 4` keeps 82.0% of retrieval, and leaves 50.2%",
        ),
        (
            {"cells 4": (0.95, 0.1, 0.2), "drop": (0.95, 0.3, 0.3)},
            "Worth its cost: `cells 4` keeps 95.0% of retrieval, and leaves 25.0%",
        ),
        (
            {"rotate": (1.0, 0.0, 0.6)},
            "(`rotate`) is no defence: it leaves 75.0% of the leakage to an attacker who knows some "
            "undefended vectors (*pairs*).",
        ),
        ({"rotate": (1.0, 0.6, 0.6)}, "(`rotate`) is no defence: it leaves 75.0% of the leakage."),
        (
            {},
            "matches 30% (10%) of the texts to their vectors, and reads 30% (10%) of the labels and "
            "30% (10%) of the facts right. In brackets: what is right without a vector.",
        ),
    ],
)
def test_advice_is_for_the_attacker_who_knows_most(more, said):
    assert said in "\n".join(advice(findings(**more)))


TARGETS = [
    ("{texts: 0.3, labels: 0.3, facts: 0.3, encoder: 1}", []),
    (
        "{texts: 0.2, labels: 0.2, facts: 0.2, encoder: 0.5}",
        [
            "encoder: 1.000 of the vectors name one; at most 0.5",
            "texts: 3 of 10; at most 0.2",
            "labels:",
            "facts:",
        ],
    ),
    ("verdict: partial", ["verdict: aligned with one; at most partial"]),
    ("verdict: aligned", []),
    ("leakage: 0.5", ["leakage of none: 0.800; at most 0.5"]),
    ("{defence: cells 4, leakage: 0.5, recall: 0.9}", []),
    (
        "{defence: cells 4, leakage: 0.1, recall: 0.99}",
        ["leakage of cells 4: 0.200;", "recall of cells 4: 0.950;"],
    ),
    (
        "{defence: drop 0.50, leakage: 1, recall: 0}",
        ["leakage of drop 0.5: not measured", "recall of drop 0.5: not measured"],
    ),
]


@pytest.fixture
def gated(monkeypatch, capsys):
    """Return a function that runs the command with targets, for its exit code and the lines it prints."""
    np.save("dump.npy", VECTORS)
    found = findings(**{"cells 4": (0.95, 0.1, 0.2), "cells 64": (0.9, 0.1, 0.1)})
    monkeypatch.setattr(audits, "audit", lambda *given: found)

    def run(yaml, *arguments):
        put("targets.yaml", yaml)
        code = main([*arguments, "--gate", "targets.yaml"])
        out, err = capsys.readouterr()
        assert err.count("\n") == (code == 2)
        assert ("\ntargets met\n" in out) == (code == 0)
        return code, re.findall("target missed: (.*)", out)

    return run


@pytest.mark.parametrize(("yaml", "lines"), TARGETS)
def test_a_gate_names_each_target_that_is_missed(gated, yaml, lines):
    given = ["audit", "dump.npy", "--truth", "dump.npy", "--defences", "cells 4,drop 0.5"]
    code, missed = gated(yaml, *given)
    assert code == (3 if lines else 0)
    for line, start in zip(missed, lines, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("yaml", "more"),
    [
        ("leakage: 2", ()),
        ("defence: drop 0.1", ()),
        ("leakage: true", ()),
        ("leakage: '0.5'", ()),
        ("facts: 0.1", ()),
        ("- a", ()),
        ("leakage: 0.5", ("--defences", "")),
        ("facts: 1", ("--truth", "no.txt")),
        ("leakage: 1", ("--texts", "no.txt")),
    ],
)
def test_bad_targets_are_one_line_before_any_work(gated, monkeypatch, yaml, more):
    monkeypatch.setattr(audits, "audit", None)
    assert gated(yaml, "audit", "dump.npy", *more) == (2, [])


def test_all_mistyped_targets_are_named():
    message = "leakge: unknown key; did you mean 'leakage'.*; recal: unknown key; did you mean 'recall'"
    for yaml, said in (("{leakge: 1, recal: 1}", message), ("defence: magic", "^targets.yaml: .*no 'magic'")):
        put("targets.yaml", yaml)
        with refusal(said):
            audits.gate.targets_of(Path("targets.yaml"), [], False)


def test_the_job_of_the_docs_runs(gated):
    targets, job = blocks("docs/audit.md", "yaml")
    steps = load_yaml(job)["audit"]["steps"]
    command = next(step["run"] for step in steps if "audit" in step.get("run", ""))
    Path("texts").mkdir()
    name, *words = shlex.split(command.replace("dump.parquet", "dump.npy"))
    assert name == "universal-geometry"
    assert gated(targets, *words) == (0, [])
    every = re.sub("^# (?=[a-z])", "", targets, flags=re.M)
    code, missed = gated(every, *words, "--truth", "texts")
    assert code == 3
    assert len(missed) == 3  # verdict, encoder and facts
    assert any(line.startswith("facts: 3 of 10") for line in missed)
    pages = [json.loads(page.read_text())["missed"] for page in Path("report/audit").glob("*.json")]
    assert sorted(pages) == [[], missed]


def test_an_encoder_against_itself_is_aligned_without_a_fit(monkeypatch):
    draw = seeded()
    basis = torch.linspace(2, 0.2, 64) * rotation(64, 64, draw)
    dump, known = (torch.randn(n, 64, generator=draw) @ basis.T + 0.1 for n in (300, 1000))
    monkeypatch.setattr(arrays, "fit_and_judge", None)
    prints = audits.Fingerprint.of(known)
    fitted = audits.identify_or_fit(dump, known, prints, True, 0)
    assert (fitted.verdict.label, fitted.by_fingerprint) == ("aligned", True)
    assert audits.fingerprint_share(dump, prints) > 0.9
    assert audits.fingerprint_share(dump[:, :32], prints) == 0
    moved = fitted.translator(dump)
    assert torch.cosine_similarity(moved - moved.mean(0), dump - dump.mean(0)).mean() > 0.95


def test_what_was_read_is_compared_with_the_truth(world):
    texts = some_texts(400, 1)
    put("truth.txt", "\n\n".join(texts))
    found = world(ALIGNED, truth="truth.txt")
    counted = {row["what"]: row for row in found.leaks}
    assert set(counted) == {"texts", "labels", "facts"}
    assert counted["labels"]["of"] == counted["texts"]["of"] == found.about["used"]
    assert "## What is right" in written(found)[1]
    taken = sampled("dump.npy", 300)
    assert audits.true_texts("truth.txt", taken) == [texts[i] for i in taken.places]
    parts = [text if i % 2 else "" for i, text in enumerate(texts)]
    pl.DataFrame({"text": parts}).write_csv("half.csv")
    of = {row["what"]: row["of"] for row in world(ALIGNED, truth="half.csv").leaks}
    assert of["texts"] == of["labels"] == sum(i % 2 for i in taken.places)
    pl.DataFrame({"text": [" "] * 400}).write_csv("blank.csv")
    blank = world(ALIGNED, truth="blank.csv")
    assert blank.leaks == []
    blank.made["truth"] = "blank.csv"
    assert "`--truth` has no text of the vectors that were read" in written(blank)[1]
    put("truth.txt", "one text")
    with refusal("1 texts; the dump has 400 vectors"):
        world(ALIGNED, truth="truth.txt")
    with refusal(r"no\.txt: there is no such file or folder"):
        world(ALIGNED, truth="no.txt")


def test_a_vector_is_compared_with_the_text_of_its_own_row():
    truth = some_texts(300, 1)
    best = audits.Attempt(BEST, truth, secret_encoder(truth), secret_encoder, Identity(16, 16))
    right, wrong = (
        audits.leaks(best.known, of, best, SUBJECTS, [])[1]["found"] for of in (truth, truth[1:] + truth[:1])
    )
    assert right == 300 > wrong


def test_beside_each_count_is_its_floor():
    truth = ["subject0 May 1", "subject1 May 2", "subject1 subject1 subject3 May 3", "subject2 May 4"]
    best = audits.Attempt(BEST, truth, secret_encoder(truth), secret_encoder, Identity(16, 16))
    guesses = ["May 1", "May 1 or May 2", "none", "May 4"]
    rows = audits.leaks(best.known[[0, 1, 1, 0]], truth, best, SUBJECTS, guesses)
    counted = [(row["what"], row["found"], row["of"], row["floor"]) for row in rows]
    assert counted == [("texts", 2, 4, 1), ("labels", 3, 4, 2), ("facts", 3, 4, 1)]


FAILED = Findings("dump", {"used": 300}, [Tried("one", 100, 0.1, "failed", 1.0, fingerprint_share=0.4)])


def test_a_gate_says_what_a_failed_attack_does_not_compare(monkeypatch, capsys):
    np.save("dump.npy", VECTORS)
    put("targets.yaml", "recall: 1")
    monkeypatch.setattr(audits, "audit", lambda *given: FAILED)
    assert main(["audit", "dump.npy", "--gate", "targets.yaml"]) == 0
    assert "recall: not compared, since no attack works\ntargets met\n" in capsys.readouterr().out


def leaking(what, found, of):
    return replace(findings(), leaks=[{"what": what, "found": found, "of": of, "floor": 0}])


def test_true_texts_without_facts_do_not_hide_other_leaks():
    found = findings()
    found.leaks.append({"what": "dates", "found": 0, "of": 0, "floor": 0})
    assert "![what leaks, and its floor]" in written(found)[1]


@pytest.mark.parametrize(
    ("targets", "of", "lines"),
    [
        ({"verdict": "failed", "leakage": 0, "recall": 1, "texts": 0}, FAILED, []),
        ({"encoder": 0.3}, FAILED, ["encoder: 0.400 of the vectors name one; at most 0.3"]),
        ({"texts": 0.29}, leaking("texts", 29, 100), []),  # .29 * 100 is below 29 in floating point
        ({"facts": 0.1}, leaking("facts", 0, 0), ["facts: not measured"]),
    ],
)
def test_targets_of_a_failed_attack_and_at_their_limit(targets, of, lines):
    assert audits.gate.missed(audits.gate.Targets(**targets), of) == lines


def test_the_best_verdict_wins_over_the_best_score(world):
    verdicts = Verdict(0.9, "failed", 0.0, 100), Verdict(0.2, "doubtful", 0.0, 100)
    assert world(*verdicts, encoders=("minilm", "use"), quick=True).best.encoder == "use"


@pytest.mark.parametrize(
    ("score", "verdict"), [(1, ALIGNED), (0.9, ALIGNED), (0.9, replace(ALIGNED, label="partial", share=0.7))]
)
def test_a_named_or_aligned_encoder_is_tried_first_and_alone(world, monkeypatch, capsys, score, verdict):
    monkeypatch.setattr(encoders, "opened", lambda name, device: secret_encoder if name == "use" else wider)
    monkeypatch.setattr(audits.Fingerprint, "recognises", lambda _, v: score == 1 and v.shape[1] == 16)
    found = world(verdict, encoders=("minilm", "use", "wordllama"))
    assert [(one.encoder, one.score, one.fitted) for one in found.tried] == [("use", score, score < 1)]
    steps = re.findall(r": step (\d+ of \d+)", capsys.readouterr().err)
    assert steps == ["1 of 10", *(f"{n} of 8" for n in range(2, 9))]


@pytest.mark.parametrize(("stretch", "own"), [(1, True), (4, False)])
def test_a_right_map_names_an_encoder_only_if_spectra_are_alike(world, monkeypatch, stretch, own):
    other = torch.linspace(1, stretch, 16)
    monkeypatch.setattr(encoders, "opened", lambda *_: lambda texts: secret_encoder(texts) * other)
    found = world(ALIGNED, defences=(), encoders=("minilm", "use"))
    assert [one.own_encoder for one in found.tried] == ([True] if own else [False, False])
    assert (found.named[1] == 1) == own


@pytest.mark.parametrize(("label", "tried"), [("partial", 1), ("doubtful", 2)])
def test_encoders_side_by_side_are_enough_if_they_fit(world, monkeypatch, label, tried):
    monkeypatch.setattr(encoders, "opened", lambda *_: wider)
    found = world(
        replace(ALIGNED, label=label, share=0.7 * (label == "partial")), encoders=("minilm+use", "use")
    )
    assert len(found.tried) == tried


def test_encoders_are_opened_before_texts_are_read(world, monkeypatch):
    monkeypatch.setattr(encoders, "opened", Mock(side_effect=BadInput("no model")))
    monkeypatch.setattr(audits, "known_texts", None)
    with refusal("no model"):
        world(ALIGNED)
    with refusal("no model"):
        identify.fits(Path("dump.npy"), audits.Options())


def test_few_vectors_are_not_compared_with_encoders_of_another_width(world, monkeypatch):
    np.save("dump.npy", np.load("dump.npy")[:50])
    encode = Mock(return_value=torch.ones(1, 20))
    monkeypatch.setattr(encoders, "opened", lambda *_: encode)
    with refusal(r"dump.npy: \d\d vectors, but a fit needs at least 100"):
        world(ALIGNED)
    encode.assert_called_once_with(["width"])


def test_messages_about_vectors_name_the_file_or_the_encoder(world, monkeypatch):
    np.save("line.npy", np.arange(1.0, 301)[:, None])
    options = audits.Options("own.txt", ("minilm",))
    for attack in (audits.audit, identify.fits):
        with refusal("^line.npy: vectors of dimension 1 have no geometry"):
            attack(Path("line.npy"), options)
    monkeypatch.setattr(encoders, "opened", lambda *_: lambda texts: torch.ones(len(texts), 20))
    with refusal(r"^encoder minilm: all \d+ vectors are the same"):
        world(ALIGNED)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("few.txt", "2 distinct texts"),
        ("no.txt", "no such file"),
        ("", "a path is empty"),
        ("prose.csv", "there are: prose, title; rename one to 'text'"),
        ("empty.csv", "empty.csv: no table in it$"),
        ("mails", "mails/a.mbox: mbox files in a folder are not read: name the file$"),
    ],
)
def test_texts_too_few_or_absent_are_one_line(world, name, message):
    put("few.txt", "a\n\nb")
    put("prose.csv", "prose,title\nx,y\n")
    put("empty.csv", "")
    put("mails/a.mbox", "")
    with refusal(message):
        world(ALIGNED, texts=name)


# ---------------------------------------------------------------- the command

NAMES = [
    "données.npy", "donne\u0301es.npy", "DUMP.npy", "tab\there.npy",
    "](x) ![y](dump.npy).npy", "<img src=x>.npy", "# **bold** | `code`.npy", f"{'x' * 240}.npy",
    f"{'𐎀' * 60}.npy",
    "-$(touch x)%41&amp;.npy", "other/DUMP.npy",
]  # fmt: skip


COMMAND = ["audit", "--texts", "own.txt", "--"]


def test_dumps_of_any_name_have_their_own_pages(world, monkeypatch):
    found = world(ALIGNED)

    def again(dump, options, keep):
        assert len(sampled(dump).vectors)
        return replace(found, dump=dump.name)

    monkeypatch.setattr(audits, "audit", again)
    Path("other").mkdir()
    for name in NAMES:
        os.link("dump.npy", name)
        assert main([*COMMAND, name]) == 0, name
    assert main([*COMMAND, NAMES[0]]) == 0  # again: the same page
    pages = list(Path("report/audit").glob("*.html"))
    assert len({page.name.casefold() for page in pages}) == len(pages) == len(NAMES)
    for page in pages:
        assert page.read_text().count("data:image/png;base64,") == 1
        assert "<img src=x>" not in page.read_text()
        assert page.with_suffix(".md").read_text().count("\n> Verdict:") == 1


def test_a_page_escapes_names_and_texts():
    guess = {"row": 0, "guess": "<script>alert(1)</script> a|b", "cosine": 0.5}
    name = "x\n\n> Verdict: failed: no evidence of leakage\n\n# y"
    best = replace(BEST, encoder="*e*")
    text, twin = written(Findings(name, {"used": 300}, [best], inversions=[guess]))
    assert "\n> Verdict: failed" not in twin
    assert "*e*" not in twin
    assert text.count("<blockquote>") == text.count("<h1") == 1
    assert "<script>" not in text
    assert "a\\|b" in twin


def test_a_name_with_control_characters_is_refused_in_one_line(capsys):
    assert "\x1b" not in refused(capsys, *COMMAND, "gone\n\x1b[31m.npy")


def test_an_unwritable_folder_is_one_line_before_any_work(capsys, monkeypatch):
    monkeypatch.setattr(audits, "audit", None)
    np.save("dump.npy", VECTORS)
    put("own.txt", "a text of one's own")
    put("report/audit", "")
    line = refused(capsys, *COMMAND, "dump.npy")
    assert "report/audit/" in line
    assert "-unfinished.html: cannot be written: " in line
