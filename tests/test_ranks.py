"""Whole stages in two processes on the CPU, started as a user starts them, do what one process does."""

from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from pipelines import distributed
from pipelines.runtime import store
from pipelines.study import activate, params
from tests import small
from tests.test_track import runs

# Dropout masks belong to a rank, so there are none; word deletion gives the views a difference.
FINETUNE = small.FINETUNE | {"steps": 4, "lr": 1e-4, "dropout": 0.0}
FINETUNE |= {"augment": "delete", "augment_share": 0.3}


@pytest.fixture(scope="module")
def built(module_patch):
    """Work in a folder with corpora and an encoder, and return a study."""
    module_patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path.cwd()}/mlflow.db")
    many = [f"{a} {b}" for a in small.TEXTS for b in range(120)]  # more than one part of an embedding
    words = ["?", *sorted({w for t in many for w in t.split()})]
    small.static_encoder("static", words, small.normal(len(words), 8))
    small.write_corpus("many", many)
    small.write_corpus("nq", small.TEXTS)
    small.write_pairs()
    store.write_corpus("scenes", small.scenes())
    Path("pipelines/aligners/vec2vec").mkdir(parents=True)  # files that the study names
    for file in ("pipelines/corpora/sources/synthetic/words.yaml", "constraints.txt", "scratch.py"):
        small.put(file, "")
    image_text = small.IMAGE_TEXT | {"steps": 4, "warmup": 2, "seeds": [0, 1], "lr": 1e-4}
    study = small.tables_of(
        "nq sts scenes many",
        "static",
        embed={"row": {"corpus": "many", "encoder": "static"}},
        finetune={"row": FINETUNE},
        train_image_text={"row": image_text},
    )
    sender = small.SenderThread()  # for all stages: else each would start its own
    yield study
    sender.communicate()


@pytest.fixture
def project(built):
    """Activate that study."""
    activated(built)


def activated(study):
    small.write_yaml("study.yaml", study)
    activate.activate("study.yaml")


def run(verb, *program, processes=2, code=0):
    """Run `python -m pipelines.<verb> row`, or another program, and return its errors."""
    study = small.read_yaml("study.yaml")
    study[verb]["row"]["processes"] = processes
    activated(study)
    env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = ["python", *(program or ["-m", f"pipelines.{verb}"]), "row"]
    said = small.completed(*command, code=code, env=env).stderr
    assert code or not list(store.WORK.glob("*/row"))
    return said


def alone(verb):
    """Run the same stage in this process."""
    small.run_stage(verb, params.load())


FOLDERS = {"finetune": store.trained_path, "train_image_text": store.image_text_path}


def trained(verb):
    """Return losses, and every tensor written by file and name, except the biases of attention's keys.

    These change no attention, so their gradient is a rounding error, which Adam scales to a whole step.
    """
    losses = pl.read_csv(store.tables_path(verb, "row") / "curve.csv")["loss"].to_torch()
    out = {"losses": losses[1:] if verb == "finetune" else losses}  # `finetune` has none of step 0
    for file in sorted(FOLDERS[verb]("row").rglob("*.safetensors")):
        out |= {f"{file.stem}/{k}": v for k, v in load_file(file).items()}
    return {k: v for k, v in out.items() if not k.endswith(("key.bias", "in_proj_bias"))}


@pytest.mark.slow
def test_two_processes_embed_the_same_bytes_as_one(project):
    alone("embed")
    one = store.embeddings_path("row").read_bytes()
    store.embeddings_path("row").unlink()
    run("embed")
    assert store.embeddings_path("row").read_bytes() == one


DYING = """
import os, signal
from pipelines import finetune
from pipelines.runtime import stage
whole = finetune.step
def step(training, row, columns):
    if training.step == 3 and os.environ.get("RANK") == "1" and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(training, row, columns)
finetune.step = step
stage.main(finetune.finetune)
"""


@pytest.mark.parametrize("one_dies", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_simcse_of_two_processes_is_simcse_of_one(project, one_dies):
    alone("finetune")
    one = trained("finetune")
    if one_dies:
        small.put("dying.py", DYING)
        said = run("finetune", "dying.py", code=2)
        assert said.splitlines()[-1].startswith("finetune row: process 1 of 2 was killed (signal 9)")
        assert "Traceback" not in said
        assert len(list(store.WORK.glob("finetune/row/*/state.pt"))) == 1  # of step 2
    run("finetune")
    torch.testing.assert_close(trained("finetune"), one, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("torchrun", [False, True])
def test_two_processes_train_the_same_image_text_encoders(project, torchrun):
    alone("train_image_text")
    one = trained("train_image_text")
    vectors = store.read_embeddings("row-image").vectors.clone()
    if torchrun:
        two = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        run("train_image_text", *two, "-m", "pipelines.train_image_text", processes=1)
    else:
        run("train_image_text")
    torch.testing.assert_close(trained("train_image_text"), one, atol=1e-5, rtol=0)
    torch.testing.assert_close(store.read_embeddings("row-image").vectors, vectors, atol=1e-5, rtol=0)


VEC2VEC = {"aligner": "vec2vec", "width": 16, "disc_width": 16, "adapter_depth": 1, "backbone_depth": 2}
VEC2VEC |= {"disc_depth": 2, "batch": 16, "steps": 6, "log_every": 3, "warmup": 2}


def outputs(verb):
    """Return the bytes of every translator of the row, and of its metrics."""
    files = [path for path in store.translators_path("row").rglob("*") if path.is_file()]
    return {str(file): file.read_bytes() for file in (*files, store.metrics_path(verb, "row"))}


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["align", "align_jointly"])
@pytest.mark.parametrize("seeds", [[0, 1, 2], [0]])
def test_fits_of_two_processes_are_those_of_one(project, verb, seeds):
    generator = small.seeded()
    study = small.read_yaml("study.yaml")
    for name, dim in (("a", 6), ("b", 8)):
        study["embed"][name] = {"corpus": "many", "encoder": "static"}
        small.write_embeddings(name, torch.randn(200, dim, generator=generator), encoder=name, corpus="many")
    spaces = {
        "align": {"source": "a", "target": "b"},
        "align_jointly": {"spaces": ["a", "b"]},
    }
    study[verb] = {"row": {**spaces[verb], **VEC2VEC, "seeds": seeds}}
    activated(study)
    run(verb, processes=1)
    one = outputs(verb)
    run(verb)
    assert outputs(verb) == one
    client, found = runs(verb)
    curves = ["loss/translator" if len(seeds) == 1 else f"seed-{seed}/loss/translator" for seed in seeds]
    logged = []
    for last in found[:2]:
        histories = [client.get_metric_history(last.info.run_id, curve) for curve in curves]
        logged.append([[(m.step, m.value) for m in history] for history in histories])
    assert logged[0] == logged[1]
    assert all(len(curve) == 2 for curve in logged[0])


@pytest.mark.slow
def test_what_every_process_refuses_is_said_once(project):
    aside = store.corpus_path("many").rename("many")
    try:
        said = run("embed", code=2)
    finally:
        aside.rename(store.corpus_path("many"))
    line = f"embed row: {store.corpus_path('many')}: there is no such file; `dvc repro` makes it"
    assert said.splitlines()[-1] == line
    assert said.count("no such file") == 1


def test_a_rank_takes_its_accelerator_first(monkeypatch):
    order = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: order.append(device.index))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda kind, timeout: order.append(kind))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with distributed.process_group(torch.device("cuda", 3)):
        pass
    assert order == [3, "nccl"]
