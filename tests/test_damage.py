"""Damaged artefacts: every reader prints one line, and a file is never read if dvc.lock names other bytes."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import yaml

from pipelines import evaluate
from pipelines.aligners.core.translator import Linear, load_best, load_seeds, save
from pipelines.contrastive import point_sets
from pipelines.contrastive.towers import Words
from pipelines.inverters import Space, attacker, decoder
from pipelines.runtime import stage, store, track
from pipelines.runtime.errors import BadInput
from pipelines.runtime.intact import intact, md5_of
from pipelines.study import TrainImageText

pytestmark = pytest.mark.xdist_group("damage")  # one worker: what the tests share is made once

KNOWN = [f"Ann owes {n} dollars to Bo and to Cy." for n in range(30)]
TINY = {"width": 16, "depth": 1, "heads": 2}
STUDY = {
    "study": "damage",
    "corpora": {"c": {"source": "synthetic", "kind": "passages", "path": "x"}},
    "encoders": {"a": {"source": "path", "path": "x"}, "b": {"source": "path", "path": "x"}},
    "embed": {"a": {"corpus": "c", "encoder": "a"}, "b": {"corpus": "c", "encoder": "b"}},
    "align": {"t": {"source": "a", "target": "b", "aligner": "identity"}},
    "evaluate": {"t": {"translator": "t", "source": "a", "target": "b"}},
}


def make() -> None:
    """One small artefact of every kind, by what writes it in a stage."""
    ids, vectors = (
        [f"t{i}" for i in range(40)],
        np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32),
    )
    columns = {"id": ids, "text": [f"text {i}" for i in ids], "split": ["test"] * 40, "labels": [["x"]] * 40}
    store.write_corpus("c", pl.DataFrame(columns, schema_overrides=store.CORPUS_COLUMNS))
    for name in "ab":
        store.write_embeddings(name, ids, ["test"] * 40, vectors, {"corpus": "c"})
    cloud, draft = torch.from_numpy(vectors), Path("draft")
    draft.mkdir()
    save(Linear.of(torch.eye(8), cloud, cloud), draft / "seed-0")
    (draft / "verdicts.json").write_text(json.dumps({"0": {"score": 1.0}}))
    store.move_into(draft, store.translators_path("t"))
    settings = decoder.Settings(vocabulary=300, tokens=12, width=16, layers=1, heads=1, epochs=1)
    space = Space.of(torch.randn(30, 8))
    model = decoder.train(space(torch.randn(30, 8)), KNOWN, settings, 0)
    (learnt := Path("learnt")).mkdir()
    attacker.save(attacker.Attacker(space, torch.randn(30, 8), KNOWN, model), learnt)
    store.move_into(learnt, store.inverters_path("i"))
    row = TrainImageText.model_validate(
        {
            "corpus": "s",
            "image": TINY,
            "text": TINY | {"context": 12},
            "head": {"dim": 4, "features": 16},
            "batch": 8,
        }
    )
    (trained := Path("trained")).mkdir()
    point_sets.save(
        point_sets.DualEncoder(row, 20), Words([str(i) for i in range(20)], 12), trained / "seed-0"
    )
    store.move_into(trained, store.image_text_path("p"))
    store.write_metrics("align", "t", {"verdict": 1.0, "seeds": 1})
    store.write_csv(store.seeds_path("t"), pl.DataFrame({"seed": range(9), "top1": [0.125] * 9}))
    store.write_csv(store.examples_path("i"), pl.DataFrame({"id": ids, "text": ids}))


READERS = {  # of a file or folder that dvc.lock names: a file of it, and what reads it
    "data/corpora/c.parquet": ("", lambda: store.read_corpus("c")),
    "data/embeddings/a.arrow": ("", lambda: store.read_embeddings("a")),
    "data/translators/t": (
        "seed-0.safetensors",
        lambda: load_seeds(store.intact(store.translators_path("t"))),
    ),
    "data/translators/t/": ("seed-0.json", lambda: load_seeds(store.intact(store.translators_path("t")))),
    "data/translators/t//": ("verdicts.json", lambda: load_best(store.intact(store.translators_path("t")))),
    "data/inverters/i": (
        "attacker.pt",
        lambda: attacker.load(store.intact(store.inverters_path("i"))),
    ),
    "data/image_text/p": (
        "seed-0.safetensors",
        lambda: point_sets.load(store.intact(store.image_text_path("p")) / "seed-0"),
    ),
    "data/image_text/p/": (
        "seed-0.json",
        lambda: point_sets.load(store.intact(store.image_text_path("p")) / "seed-0"),
    ),
    "results/align/t.json": ("", lambda: store.read_metrics("align")),
    "results/evaluate/t/seeds.csv": ("", lambda: store.read_csv(store.seeds_path("t"))),
    "results/invert/i/examples.csv": ("", lambda: store.read_examples("i")),
}
DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path: path.write_bytes(b""),
    "a flipped bit": lambda path: flip(path, path.stat().st_size * 2 // 3),
    "a flipped bit at the start": lambda path: flip(path, 1),
    "other bytes": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "of another kind": lambda path: path.write_text("[1, 2, 3]\n"),
    "deeply nested": lambda path: path.write_text("[" * 100_000),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}
SILENT = set(DAMAGES) - {"emptied", "deeply nested", "a folder"}  # of some formats


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make()
    return root


@pytest.fixture
def artefacts(made, tmp_path, monkeypatch):
    root = Path(shutil.copytree(made, tmp_path / "root"))
    monkeypatch.chdir(root)
    return root


def locked() -> None:
    outs = [{"path": out, "md5": md5_of(Path(out))} for out in {path.rstrip("/") for path in READERS}]
    Path("dvc.lock").write_text(
        yaml.safe_dump({"schema": "2.0", "stages": {"align@t": {"cmd": "x", "outs": outs}}})
    )


def refused(read) -> str:
    with pytest.raises(BadInput) as error:
        read()
    assert "\n" not in str(error.value)
    return str(error.value)


def line_of(read) -> str:
    """What BadInput says; "" where nothing is wrong. Every other exception goes on."""
    try:
        read()
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize("out", READERS)
def test_what_dvc_lock_names_is_read_as_it_was_written_or_not_at_all(artefacts, out):
    locked()
    inside, read = READERS[out]
    path = Path(out.rstrip("/")) / inside if inside else Path(out)
    read()
    for damage in DAMAGES.values():
        shutil.copy2(path, "kept")
        damage(path)
        assert refused(read).startswith(out.rstrip("/"))
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.move("kept", path)
    read()


@pytest.mark.parametrize("out", READERS)
def test_without_dvc_lock_what_cannot_be_parsed_is_one_line(artefacts, out):
    inside, read = READERS[out]
    path = Path(out.rstrip("/")) / inside if inside else Path(out)
    for name, damage in DAMAGES.items():
        shutil.copy2(path, "kept")
        damage(path)
        said = line_of(read)
        assert "\n" not in said, name
        assert said or name in SILENT or path.suffix == ".csv", name  # a csv of any text is a csv
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.move("kept", path)


@pytest.fixture
def quiet(monkeypatch):
    class Quiet:
        def log(self, *_, **__): ...

        input = artifact = table = log

    @contextmanager
    def run(*_):
        yield Quiet()

    monkeypatch.setattr(track, "run", run)
    monkeypatch.setattr(sys, "argv", ["evaluate", "t"])
    Path("params.yaml").write_text(yaml.safe_dump(STUDY))


def test_a_stage_run_by_hand_on_a_damaged_file_is_one_line_and_exit_code_2(artefacts, quiet, capsys):
    locked()
    stage.main(evaluate.evaluate)
    flip(Path("data/translators/t/seed-0.safetensors"), 300)
    with pytest.raises(SystemExit) as end:
        stage.main(evaluate.evaluate)
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said == (
        "evaluate t: data/translators/t: not the bytes that dvc.lock names (damaged, or changed by hand): "
        "`dvc repro align@t` makes it again\n"
    )


def noted(began: float, ended: float) -> None:
    Path(".cache/runs").mkdir(parents=True, exist_ok=True)
    Path(".cache/runs/align@t.json").write_text(json.dumps({"began": began, "ended": ended}))


def test_what_a_stage_run_by_hand_wrote_is_read_until_it_is_damaged(artefacts):
    locked()
    began = time.time()
    store.write_metrics("align", "t", {"verdict": 0.5})
    noted(began, time.time())
    path = store.metrics_path("align", "t")
    assert intact(path) == path
    os.utime(path, (began + 60, began + 60))
    refused(lambda: intact(path))


def test_what_dvc_wrote_is_refused_though_a_failing_disk_keeps_its_time(artefacts):
    path = store.metrics_path("align", "t")
    at = path.stat().st_mtime_ns
    noted(at / 1e9 - 0.5, at / 1e9 + 0.5)
    locked()
    flip(path, 20)
    os.utime(path, ns=(at, at))
    refused(lambda: intact(path))


def test_the_md5_of_a_folder_is_dvc_s(artefacts):
    (Path("data/translators/t/deep er")).mkdir()
    Path("data/translators/t/deep er/é").write_text("x")
    Path("data/translators/t-z").write_text("beside")
    code = (
        "import sys; from dvc.repo import Repo; from dagster_dvc.graph import md5\n"
        "print(md5(Repo.init(no_scm=True), 'data/translators'))"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    ).stdout
    assert said.split()[-1] == md5_of(Path("data/translators"))


def test_a_broken_dvc_lock_is_one_line(artefacts):
    Path("dvc.lock").write_text("stages:\n  a: {cmd: 'x")
    assert refused(lambda: store.read_corpus("c")).startswith("dvc.lock: cannot be read: ")


def test_drafts_of_the_dead_are_swept_and_those_of_the_living_stay(artefacts):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [
        Path(f"data/embeddings/.a.arrow.{dead.pid}.part"),
        Path(f"results/evaluate/t/.seeds.csv.{dead.pid}.part"),
    ]
    folder = Path(f"data/translators/.t.{dead.pid}.part")
    alive = Path(f"data/embeddings/.b.arrow.{os.getppid()}.part")
    folder.mkdir()
    for path in (*left, folder / "x", alive):
        path.touch()
    store.sweep_drafts("evaluate", "t")
    assert not any(path.exists() for path in (*left, folder))
    assert alive.exists()


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "json", "folder"])
def test_a_full_disk_is_one_line_and_leaves_no_draft(artefacts, kind):
    """A limit on file sizes stands in for a full disk: the same calls fail."""
    writes = {
        "csv": "store.write_csv(store.seeds_path('t'), frame)",
        "parquet": "store.write_scores('evaluate', 't', frame)",
        "arrow": "store.write_embeddings('a', list('ab'), list('ab'), np.ones((2, 99_999), np.float32), {})",
        "json": "store.write_metrics('align', 't', {'x': [0.1] * 99_999})",
        "folder": "store.move_into(Path('big'), store.translators_path('t'))",
    }
    code = f"""
import errno, os, resource, signal
from pathlib import Path
import numpy as np, polars as pl
from pipelines.runtime import files, store
from pipelines.runtime.errors import BadInput
Path("big").mkdir(); Path("big/x").write_bytes(bytes(400_000))
frame = pl.DataFrame({{"x": np.random.default_rng(0).random(99_999)}})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
real = files.unwritable
def unwritable(error):
    large = error.args == () or "File too large" in str(error)
    return "no space left on the disk" if large else real(error)
files.unwritable = unwritable
try:
    {writes[kind]}
except BadInput as error:
    print(error)
"""
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    before = {path for path in Path().rglob("*") if path.name != "big"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.endswith("no space left on the disk\n"), done.stderr
    shutil.rmtree("big")
    assert not list(Path().rglob(".*.part"))
    assert before <= set(Path().rglob("*"))


STAGE = """
import time
from pipelines.runtime import stage
stage._end_with_dvc()
print(1, flush=True)
time.sleep(600)
"""
DVC = f"import subprocess, sys, os; subprocess.run([sys.executable, '-c', {STAGE!r}])"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child that its parent died")
def test_a_stage_ends_with_the_dvc_that_started_it():
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "DVC_STAGE": "align@t"}
    dvc = subprocess.Popen(
        [sys.executable, "-c", DVC], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    assert dvc.stdout.readline() == b"1\n"
    dvc.kill()
    assert dvc.stdout.read() == b""  # the stage held the pipe too: it has ended
    dvc.wait()
