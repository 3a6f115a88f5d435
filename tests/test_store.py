"""Artefacts are read back as written and never appear half-written; bad files are refused by name and row."""

import errno
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipelines.aligners.core.hubness import InvertedSoftmax
from pipelines.aligners.core.translator import Linear, load_seeds, save
from pipelines.runtime import store
from pipelines.runtime.files import draft_of
from tests.small import normal, put, refusal, write_corpus, write_embeddings

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("pieces", [[], [1, 64]], ids=["whole", "blocks"])
def test_embeddings_come_back_without_a_copy(dtype, pieces):
    vectors = np.random.default_rng(0).standard_normal((70, 3)).astype(dtype)
    blocks = iter(np.split(vectors, pieces)) if pieces else vectors
    ids, documents = [f"text {i}" for i in range(70)], ["ä"] * 70
    store.write_embeddings("e", ids, ["train"] * 70, blocks, {"encoder": "x"}, {"document": documents})
    read, path = store.read_embeddings("e"), store.embeddings_path("e")
    assert torch.equal(read.vectors, torch.from_numpy(vectors).float())
    assert (list(read.ids), list(read.documents)) == (ids, documents)
    assert read.metadata == {"encoder": "x", "dimension": "3"}
    assert pa.ipc.open_file(path).num_record_batches == 1  # else reading would copy


@pytest.mark.parametrize(("value", "word"), [(np.nan, "not finite"), (0.0, "zero")])
def test_bad_vectors_are_named(value, word):
    vectors = torch.ones(3, 2)
    vectors[1] = value
    write_embeddings("e", vectors)
    with refusal(rf"1 vectors are {word}, the first with id '1'"):
        store.read_embeddings("e")


def test_embeddings_have_the_ids_in_their_order():
    write_embeddings("a", torch.ones(3, 2))
    store.write_embeddings("b", ["0", "2", "1"], ["train"] * 3, np.ones((3, 4), np.float32), {})
    with refusal("row 1 is '1' in a, '2' in b"):
        store.check_same_texts(store.read_embeddings("a"), store.read_embeddings("b"))
    with refusal("`dvc repro` makes it"):
        store.read_embeddings("nowhere")


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"texts": ["one", "  "]}, "1 texts are empty, the first with id '1'"),
        ({"texts": ["one", "one"]}, "2 texts are repeated"),
        ({"id": ["a", "a"]}, "id 'a' occurs twice"),
        ({"split": ["train", None]}, "1 rows have no split"),
        ({"judgements": ["{}", None]}, "1 texts are documents that follow a query, the first with id '1'"),
    ],
)
def test_a_bad_corpus_is_refused_and_nothing_is_written(columns, line):
    with refusal(line):
        write_corpus("c", **{"texts": ["one", "two"]} | columns)
    assert not store.corpus_path("c").exists()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on the disk"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found"), "no space left on the disk"),
        (PermissionError(errno.EACCES, "Permission denied"), "permission denied"),
        (ValueError("I/O error: File too large (os error 27)"), "larger than a file may be .*"),
    ],
)
def test_a_failed_write_is_one_line_and_keeps_the_old_file(error, line):
    path = Path("d/x")
    with store.atomic(path) as draft:
        draft.write_text("old")
    with refusal(f"^{path}: {line}$"), store.atomic(path) as draft:
        draft.write_text("new, but only half")
        raise error
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["x"]


def work():
    return store.work("embed", "a", "settings")


def test_a_stage_started_twice_is_refused():
    with work() as folder:
        put(folder / "part", "done")
        with refusal(r"^embed a: the same stage is already running$"):
            work().__enter__()
        assert (folder / "part").read_text() == "done"
    put(folder.parent / ".DS_Store", "of no stage")
    with work():
        pass  # the lock is gone with the block


def test_drafts_that_a_killed_process_left_are_no_output():
    put("work/pair/seed-0.json", "{}")
    put(draft_of(Path("work/pair/seed-0.json")), "{")
    store.publish_folder(Path("work"), Path("out"))
    assert [path for path in Path("out").rglob("*") if path.is_file()] == [Path("out/pair/seed-0.json")]


def test_work_is_named_after_the_bytes_of_its_inputs(tmp_path):
    file, folder = tmp_path / "corpus", tmp_path / "encoder"

    def name():
        with store.work("embed", "a", "settings", file, folder) as work:
            return work.name

    put(file, "a")
    put(folder / "config.json", "a")
    names = [name(), name()]
    for path in (file, folder / "config.json", folder / "more.json"):
        put(path, "b")
        names.append(name())
    assert names[0] == names[1]
    assert len({*names}) == 4


def test_the_digest_of_code_is_of_the_packages_that_are_named(monkeypatch):
    monkeypatch.setattr(store, "__file__", "runtime/store.py")
    mine, other, data = Path("aligners/own/__init__.py"), Path("fitting/fits.py"), Path("pages/style.css")
    for file in (mine, other, data):
        put(file, "old")
    own, fitting, module, style = map(
        store.code_digest, ("aligners/own", "fitting", "fitting/fits", "pages/style.css")
    )
    data.write_text("new")
    assert store.code_digest("pages/style.css") != style
    mine.write_text("new")
    assert store.code_digest("aligners/own") != own
    assert store.code_digest("fitting") == fitting
    other.write_text("new")
    assert store.code_digest("fitting/fits") != module


def test_a_full_disk_leaves_no_half_of_a_translator(monkeypatch):
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(errno.ENOSPC, "")))
    with refusal("no space left"):
        save(Linear(2, 2), Path("t"))
    assert not [*Path().iterdir()]


def test_a_hub_correction_can_be_changed_when_read():
    source = normal(30, 3)
    linear = Linear.of(torch.eye(3), source, source)
    bent = InvertedSoftmax.around(linear, source, 1.5)
    save(bent, Path("bent/seed-0"))
    save(linear, Path("straight/seed-0"))
    torch.testing.assert_close(load_seeds(Path("bent"), 0.0)[0](source), linear(source))
    assert torch.equal(load_seeds(Path("bent"))[0](source), bent(source))
    assert not torch.allclose(bent(source), linear(source))
    assert torch.equal(load_seeds(Path("straight"), 0.0)[0](source), linear(source))
    with refusal("has no hub correction"):
        load_seeds(Path("straight"), 1.0)


def test_metrics_round_trip_rounded():
    store.write_metrics("evaluate", "a", {"x": 1 / 3, "n": {"k": 2}})
    put("results/evaluate/of-another-study.json", "damaged")
    assert store.read_metrics("evaluate", ["a", "b"]) == {"a": {"x": 0.333333, "n": {"k": 2}}}
