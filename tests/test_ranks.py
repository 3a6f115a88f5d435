"""Whole stages in two processes on the CPU, as a user starts them: they do what one process does."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
import yaml
from mlflow.tracking import MlflowClient
from pydantic import ValidationError
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from pipelines import distributed
from pipelines.corpora.kinds.scenes import synthetic as scenes
from pipelines.runtime import store
from pipelines.runtime.device import resolve
from pipelines.runtime.track import Silent
from pipelines.study import Finetune, SyntheticCorpus, activate, params

ROOT = Path(__file__).parents[1]
WHO, DOES = ("the heart", "a river", "the king", "my dog"), ("moves", "was late", "sees a fish")
TEXTS = [
    f"{who} {does} {where}"
    for who in WHO
    for does in DOES
    for where in ("in winter", "near the old bridge", "today")
]
SHAPE = {"layers": 2, "width": 16, "heads": 2, "vocabulary": 150, "positions": 16}
# Without dropout, whose masks belong to a rank; word deletion gives the views something to tell apart.
FINETUNE = {
    "corpus": "nq",
    "dev": "sts",
    "start": "scratch.py",
    "network": SHAPE,
    "batch": 8,
    "steps": 4,
    "every": 2,
}
FINETUNE |= {"lr": 1e-4, "max_tokens": 12, "dropout": 0.0, "augment": "delete", "augment_share": 0.3}
TOWER = {"width": 16, "depth": 1, "heads": 2}
IMAGES = {
    "corpus": "scenes",
    "image": TOWER,
    "text": TOWER | {"context": 12},
    "head": {"dim": 4, "features": 16},
}
IMAGES |= {"batch": 8, "steps": 4, "warmup": 2, "seeds": [0, 1], "lr": 1e-4}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with a corpus of texts, one of sentence pairs, one of images and one of many texts, a study,
    and a sender.
    """
    root, before = tmp_path_factory.mktemp("ranks"), Path.cwd()
    uri = f"sqlite:///{root}/mlflow.db"
    os.chdir(root)
    base = {
        "id": [str(i) for i in range(len(TEXTS))],
        "text": TEXTS,
        "split": "train",
        "labels": [[] for _ in TEXTS],
    }
    schema = {"labels": pl.List(pl.String)}
    store.write_corpus("nq", pl.DataFrame(base, schema_overrides=schema))
    partners = [TEXTS[(i + i % 6 * 5) % len(TEXTS)] for i in range(len(TEXTS))]
    dev = base | {"split": "dev", "pair": partners, "score": [5.0 - i % 6 for i in range(len(TEXTS))]}
    store.write_corpus("sts", pl.DataFrame(dev, schema_overrides=schema))
    images = scenes.rows(SyntheticCorpus(source="synthetic", path="x", rows=40, seed=0))
    store.write_corpus("scenes", images.with_columns(split=pl.Series(["train"] * 24 + ["test"] * 16)))
    synthetic = {"source": "synthetic", "path": "x"}
    study = {"study": "t", "corpora": dict.fromkeys(("nq", "sts", "scenes", "many"), synthetic)}
    many = [f"{a} {b}" for a in TEXTS for b in map(str, range(120))]  # more than a part of them
    base = {
        "id": [str(i) for i in range(len(many))],
        "text": many,
        "split": "train",
        "labels": [[] for _ in many],
    }
    store.write_corpus("many", pl.DataFrame(base, schema_overrides=schema))
    words = Tokenizer(
        models.WordLevel(
            {w: i for i, w in enumerate(["?", *sorted({w for t in many for w in t.split()})])}, "?"
        )
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    table = torch.randn(words.get_vocab_size(), 8, generator=torch.Generator().manual_seed(0))
    model = SentenceTransformer(modules=[StaticEmbedding(words, table)], device="cpu")
    store.encoder_path("static").mkdir(parents=True)
    model.save(str(store.encoder_path("static")), create_model_card=False)
    study["encoders"] = {"static": {"source": "path", "path": "x"}}
    study["embed"] = {"row": {"corpus": "many", "encoder": "static"}}
    study |= {"finetune": {"row": FINETUNE}, "train_image_text": {"row": IMAGES}}
    Path("pipelines/aligners/vec2vec").mkdir(parents=True)  # what DVC would watch, and two files
    Path("x").touch()
    Path("scratch.py").touch()
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": uri,
    }  # each stage would start one for itself
    sender = subprocess.Popen(
        [sys.executable, "-m", "pipelines.runtime.sender", "--serve"], stdin=subprocess.PIPE, env=env
    )
    os.chdir(before)
    yield root, study, uri
    sender.communicate()


@pytest.fixture
def mlflow(built):
    return built[2]


@pytest.fixture
def house(built, monkeypatch):
    """That folder, with that study in it."""
    root, study, uri = built
    monkeypatch.chdir(root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    Path("study.yaml").write_text(yaml.safe_dump(study))
    activate.activate("study.yaml")


def run(
    verb: str, processes: int = 1, module: str = "", torchrun: bool = False
) -> subprocess.CompletedProcess:
    """`python -m pipelines.<verb> row`, whose row says `processes`; torchrun: started so instead."""
    study = yaml.safe_load(Path("study.yaml").read_text())
    study[verb]["row"]["processes"] = 1 if torchrun else processes
    Path("study.yaml").write_text(yaml.safe_dump(study))
    activate.activate("study.yaml")
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        if torchrun
        else []
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *launcher, *([module] if module else ["-m", f"pipelines.{verb}"]), "row"]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def alone(verb: str) -> None:
    """The same stage in this process, on as many threads."""
    threads, study = torch.get_num_threads(), params.load()
    torch.set_num_threads(1)
    stage = getattr(importlib.import_module(f"pipelines.{verb}"), verb)
    stage("row", getattr(study, params.Study.tables()[verb])["row"], study, Silent())
    torch.set_num_threads(threads)


def assert_done(done: subprocess.CompletedProcess) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(store.WORK.glob("*/row"))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the stage's output, by file and name, but the biases of attention's keys.

    These change no attention, so that their gradient is a rounding error, of which Adam makes a whole step.
    """
    files = {file.stem: load_file(file) for file in sorted(folder.rglob("*.safetensors"))}
    keys = ("key.bias", "in_proj_bias")
    return {
        f"{stem}/{k}": v
        for stem, tensors in files.items()
        for k, v in tensors.items()
        if not k.endswith(keys)
    }


def assert_near(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(
            two[name], tensor, atol=1e-5, rtol=0, msg=lambda message, name=name: f"{name}: {message}"
        )


SLOW = pytest.param(True, marks=pytest.mark.slow)


def test_an_embedding_is_the_same_file_whoever_encodes_it(house):
    alone("embed")
    one = store.embeddings_path("row").read_bytes()
    store.embeddings_path("row").unlink()
    assert_done(run("embed", 2))
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


@pytest.mark.parametrize("one_dies", [False, SLOW])
def test_simcse_of_two_processes_is_simcse_of_one(house, one_dies):
    curve = store.plots_path("finetune", "row") / "curve.csv"
    alone("finetune")
    one, losses = weights(store.trained_path("row")), pl.read_csv(curve)["loss"]
    if one_dies:
        Path("dying.py").write_text(DYING)
        died = run("finetune", 2, "dying.py")
        assert died.returncode == 2
        assert (
            died.stderr.strip()
            .splitlines()[-1]
            .startswith("finetune row: process 1 of 2 was killed (signal 9)")
        )
        assert "Traceback" not in died.stderr
        assert len(list(store.WORK.glob("finetune/row/*/state.pt"))) == 1  # of step 2
    assert_done(run("finetune", 2))
    assert_near(one, weights(store.trained_path("row")))
    assert pl.read_csv(curve)["loss"].to_list()[1:] == pytest.approx(losses.to_list()[1:], abs=1e-5)


@pytest.mark.parametrize("torchrun", [False, SLOW])
def test_image_and_text_encoders_of_two_processes_are_those_of_one(house, torchrun):
    curve = store.plots_path("train_image_text", "row") / "curve.csv"
    alone("train_image_text")
    one, losses = weights(store.image_text_path("row")), pl.read_csv(curve)["loss"].to_list()
    vectors = store.read_embeddings("row-image").vectors.clone()
    assert_done(run("train_image_text", 2, torchrun=torchrun))
    assert_near(one, weights(store.image_text_path("row")))
    torch.testing.assert_close(store.read_embeddings("row-image").vectors, vectors, atol=1e-5, rtol=0)
    assert pl.read_csv(curve)["loss"].to_list() == pytest.approx(losses, abs=1e-5)


VEC2VEC = {
    "aligner": "vec2vec",
    "width": 16,
    "disc_width": 16,
    "adapter_depth": 1,
    "backbone_depth": 2,
    "disc_depth": 2,
}
VEC2VEC |= {"batch": 16, "steps": 6, "log_every": 3, "warmup": 2}


def outputs(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["align", "align_jointly"])
@pytest.mark.parametrize("seeds", [[0, 1, 2], [0]])
def test_fits_of_two_processes_are_those_of_one(house, mlflow, verb, seeds):
    generator, ids = torch.Generator().manual_seed(0), [str(i) for i in range(200)]
    study = yaml.safe_load(Path("study.yaml").read_text())
    for name, dim in (("a", 6), ("b", 8)):
        study["embed"][name] = {"corpus": "many", "encoder": "static"}
        vectors = torch.randn(200, dim, generator=generator).numpy()
        store.write_embeddings(
            name, ids, ["train"] * 200, iter([vectors]), {"encoder": name, "corpus": "many"}
        )
    between = (
        {"source": "a", "target": "b"}
        if verb == "align"
        else {"spaces": ["a", "b"], "start": "pipelines/aligners/vec2vec"}
    )
    study[verb] = {"row": {**between, **VEC2VEC, "seeds": seeds}}
    Path("study.yaml").write_text(yaml.safe_dump(study))
    assert_done(run(verb))
    one, result = outputs(store.translators_path("row")), store.metrics_path(verb, "row").read_text()
    assert_done(run(verb, 2))
    assert outputs(store.translators_path("row")) == one
    assert store.metrics_path(verb, "row").read_text() == result
    client = MlflowClient(mlflow)
    runs = client.search_runs(
        [client.get_experiment_by_name(verb).experiment_id], max_results=2
    )  # the last ones
    curves = ["loss/translator" if len(seeds) == 1 else f"seed-{seed}/loss/translator" for seed in seeds]
    told = [
        [[(m.step, m.value) for m in client.get_metric_history(r.info.run_id, curve)] for curve in curves]
        for r in runs
    ]
    assert told[0] == told[1]
    assert all(len(curve) == 2 for curve in told[0])


def test_what_every_process_refuses_is_said_once(house):
    aside = store.corpus_path("many").rename("many")
    refused = run("embed", 2)
    aside.rename(store.corpus_path("many"))
    assert refused.returncode == 2
    *_, last = refused.stderr.splitlines()
    assert last == f"embed row: {store.corpus_path('many')}: there is no such file; `dvc repro` makes it"
    assert refused.stderr.count("no such file") == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [({"device": "cuda:1"}, "`cuda` gives each its own"), ({"batch": 9}, "cannot share batches of 9")],
)
def test_what_processes_cannot_share_is_refused(more, message):
    with pytest.raises(ValidationError, match=message):
        Finetune.model_validate(FINETUNE | {"steps": 1, "processes": 2} | more)


def test_each_rank_takes_its_accelerator_before_it_joins_the_group(monkeypatch):
    order = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: order.append(("device", device.index)))
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda backend, timeout: order.append(("group", backend))
    )
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with distributed.process_group(resolve("auto")):
        pass
    assert order == [("device", 3), ("group", "nccl")]
