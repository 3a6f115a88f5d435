"""Damaged artefacts: readers refuse them in one line, and read what dvc.lock names only as it was written."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
import torch
from dvc.repo import Repo

from dagster_dvc.graph import md5
from pipelines import evaluate
from pipelines.aligners.core.translator import Linear, load_best, load_seeds
from pipelines.contrastive import point_sets
from pipelines.contrastive.towers import Words
from pipelines.inverters import Space, attacker, decoder
from pipelines.runtime import files, intact, launch, stage, store
from pipelines.runtime.errors import BadInput
from pipelines.study import TrainImageText
from tests.small import (
    IMAGE_TEXT,
    normal,
    put,
    run_command,
    tables_of,
    write_corpus,
    write_embeddings,
    write_translator,
    write_yaml,
)

KNOWN = [f"Ann owes {n} dollars to Bo and to Cy." for n in range(30)]
STUDY = tables_of(
    "c",
    "a b",
    embed={name: {"corpus": "c", "encoder": name} for name in "ab"},
    align={"t": {"source": "a", "target": "b", "aligner": "identity"}},
    evaluate={"t": {}},
)


@pytest.fixture(scope="module")
def made(module_patch):
    """Write one small artefact of every kind, as stages write it, and return their folder."""
    ids = [str(i) for i in range(40)]
    cloud = normal(40, 8)
    write_corpus("c", [f"text {i}" for i in ids], "test")
    for name in "ab":
        write_embeddings(name, cloud, "test", corpus="c")
    write_translator("t", Linear.of(torch.eye(8), cloud, cloud))
    put(store.translators_path("t") / "verdicts.json", json.dumps({"0": {"score": 1.0}}))
    settings = decoder.Settings(vocabulary=300, tokens=12, width=16, layers=1, heads=1, epochs=1)
    space, vectors = Space.of(cloud), cloud[:30]
    model = decoder.train(space(vectors), KNOWN, settings, 0)
    for folder in (store.inverters_path("i"), store.image_text_path("p")):
        folder.mkdir(parents=True)
    attacker.save(attacker.Attacker(space, vectors, KNOWN, model), store.inverters_path("i"))
    dual = point_sets.DualEncoder(TrainImageText.model_validate(IMAGE_TEXT), 20)
    point_sets.save(dual, Words(ids[:20]), store.image_text_path("p") / "seed-0")
    store.write_metrics("align", "t", {"verdict": 1.0, "seeds": 1})
    store.write_csv(store.seeds_path("t"), pl.DataFrame({"seed": range(9), "top1": [0.125] * 9}))
    return Path.cwd()


def translators():
    return load_seeds(intact.checked(store.translators_path("t")))


def images():
    return point_sets.load(intact.checked(store.image_text_path("p")) / "seed-0")


READERS = [  # an output that dvc.lock names, a file in it, and what reads it
    ("data/corpora/c.parquet", "", lambda: store.read_corpus("c")),
    ("data/embeddings/a.arrow", "", lambda: store.read_embeddings("a")),
    ("data/translators/t", "seed-0.safetensors", translators),
    ("data/translators/t", "seed-0.json", translators),
    ("data/translators/t", "verdicts.json", lambda: load_best(intact.checked(store.translators_path("t")))),
    ("data/inverters/i", "attacker.pt", lambda: attacker.load(intact.checked(store.inverters_path("i")))),
    ("data/image_text/p", "seed-0.safetensors", images),
    ("data/image_text/p", "seed-0.json", images),
    ("results/align/t.json", "", lambda: store.read_metrics("align", ["t"])),
    ("results/evaluate/t/seeds.csv", "", lambda: store.read_csv(store.seeds_path("t"))),
]
DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "emptied": lambda path: path.write_bytes(b""),
    "a flipped bit": lambda path: flip(path, path.stat().st_size * 2 // 3),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "of another kind": lambda path: path.write_text("[1, 2, 3]\n"),
    "deeply nested": lambda path: path.write_text("[" * 100_000),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}
NOTICED = {"emptied", "deeply nested", "a folder"}  # by every parser


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


@pytest.fixture(autouse=True)
def artefacts(made, own_folder):
    shutil.copytree(made, ".", dirs_exist_ok=True)


def locked():
    outs = [{"path": out, "md5": intact.md5_of(Path(out))} for out in {out for out, *_ in READERS}]
    write_yaml("dvc.lock", {"schema": "2.0", "stages": {"align@t": {"cmd": "x", "outs": outs}}})


def line_of(read):
    """What BadInput says; "" where nothing is wrong. Every other exception goes on."""
    said = ""
    try:
        read()
    except BadInput as error:
        said = str(error)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("lock", [True, False])
@pytest.mark.parametrize(("out", "inside", "read"), READERS)
def test_a_damaged_file_is_refused_in_one_line(out, inside, read, lock):
    """With dvc.lock every damage is refused; without it, damages that no parser can miss."""
    path = Path(out, inside)
    if lock:
        locked()
    for name, damage in DAMAGES.items():
        shutil.copy2(path, "kept")
        damage(path)
        said = line_of(read)
        if lock:
            assert said.startswith(out), name
        else:
            assert said or name not in NOTICED or path.suffix == ".csv", name  # a csv of any text is a csv
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.move("kept", path)
    read()


def test_a_stage_on_a_damaged_file_is_one_line_and_exit_code_2(monkeypatch, capsys):
    write_yaml("params.yaml", STUDY)
    locked()
    run_command(evaluate.evaluate, monkeypatch, "t")
    flip(Path("data/translators/t/seed-0.safetensors"), 300)
    with pytest.raises(SystemExit, match=r"^2$"):
        run_command(evaluate.evaluate, monkeypatch, "t")
    said = capsys.readouterr().err
    assert said == (
        "evaluate t: data/translators/t: not the bytes that dvc.lock names (damaged, or changed by hand): "
        "`dvc repro align@t` makes it again\n"
    )


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (OSError(errno.ENOSPC, ""), 2)])
def test_a_stage_that_cannot_go_on_has_its_exit_code(monkeypatch, error, code):
    monkeypatch.setattr(stage, "_run", Mock(side_effect=error))
    with pytest.raises(SystemExit, match=f"^{code}$"):
        stage.main(evaluate.evaluate)


def test_an_error_is_not_printed_on_standard_output_if_stderr_is_closed(monkeypatch, capsys):
    monkeypatch.setattr(stage, "_run", Mock(side_effect=BadInput("a fault")))
    monkeypatch.setattr("sys.stderr", None)
    with pytest.raises(SystemExit, match=r"^2$"):
        stage.main(evaluate.evaluate)
    assert capsys.readouterr().out == ""


def test_the_process_that_is_the_cause_is_blamed():
    ends = [(-15, 1), (1, 2), (-9, 3), (2, 4)]  # stopped by the agent, failed, killed, refused
    assert sorted(ends, key=lambda end: launch._blame(*end)) == [(2, 4), (-9, 3), (1, 2), (-15, 1)]


def noted(began, ended):
    """Write the note of a stage's last run."""
    put(".cache/runs/align@t.json", json.dumps({"began": began, "ended": ended}))


def test_output_made_by_hand_is_read_until_damaged():
    """Without DVC, dvc.lock describes an earlier run."""
    locked()
    began = time.time()
    store.write_metrics("align", "t", {"verdict": 0.5})
    noted(began, time.time())
    path = store.metrics_path("align", "t")
    assert intact.checked(path) == path
    os.utime(path, (began + 60, began + 60))
    assert line_of(lambda: intact.checked(path))


def test_changed_bytes_of_unchanged_time_are_refused(monkeypatch):
    """A failing disk changes bytes without changing times."""
    path = store.metrics_path("align", "t")
    at = path.stat().st_mtime
    noted(at - 0.5, at + 0.5)
    locked()
    flip(path, 20)
    os.utime(path, (at, at))
    assert line_of(lambda: intact.checked(path))
    assert line_of(lambda: intact.checked(Path("data/..", path)))
    with monkeypatch.context() as patch:
        patch.setattr("hashlib.file_digest", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        assert "Input/output error" in line_of(lambda: intact.checked(path))


@pytest.mark.filterwarnings("ignore:_NoneStep")  # what DVC does with pygtrie
def test_the_md5_of_a_folder_is_dvc_s():
    put("data/translators/t/deep er/é", "x")
    put("data/translators/t-z", "beside")
    assert md5(Repo.init(no_scm=True), "data/translators") == intact.md5_of(Path("data/translators"))


def test_a_broken_dvc_lock_is_one_line():
    put("dvc.lock", "stages:\n  a: {cmd: 'x")
    assert line_of(lambda: store.read_corpus("c")).startswith("dvc.lock: cannot be read: ")


def test_only_drafts_of_dead_processes_are_removed(monkeypatch):
    dead = subprocess.Popen(["python", "-c", ""])
    dead.wait()
    monkeypatch.setattr(os, "getpid", lambda: dead.pid)
    folder = files.draft_of(Path("data/translators/t"))
    left = [files.draft_of(Path(p)) for p in ("data/embeddings/a.arrow", "results/evaluate/t/seeds.csv")]
    other_machine = Path(f"data/embeddings/.b.arrow.node-7.{dead.pid}.part")
    monkeypatch.setattr(os, "getpid", os.getppid)
    alive = files.draft_of(Path("data/embeddings/b.arrow"))
    no_number = alive.with_name(alive.name.replace(f".{os.getpid()}.", ".²."))
    folder.mkdir()
    for path in (*left, folder / "x", alive, other_machine, no_number):
        path.touch()
    store.sweep_drafts("evaluate", "t")
    assert not any(path.exists() for path in (*left, folder))
    assert alive.exists()
    assert other_machine.exists()


STAGE = """
import time
from pipelines.runtime import stage
stage._end_with_dvc()
print(1, flush=True)
time.sleep(600)
"""
DVC = f"import subprocess; subprocess.run(['python', '-c', {STAGE!r}])"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child that its parent died")
def test_a_stage_ends_with_the_dvc_that_started_it():
    env = os.environ | {"DVC_STAGE": "align@t"}
    dvc = subprocess.Popen(["python", "-c", DVC], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    assert dvc.stdout.readline() == b"1\n"
    dvc.kill()
    assert dvc.stdout.read() == b""  # the stage held the pipe too: it has ended
    dvc.wait()
