"""Whole stages under torchrun, as a user starts them: two ranks on the CPU do what one process does."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
import yaml
from safetensors.torch import load_file

from pipelines import distributed
from pipelines.corpora.synthetic.scenes import scenes
from pipelines.runtime import store
from pipelines.runtime.device import resolve
from pipelines.study import SyntheticCorpus, params

ROOT = Path(__file__).parents[1]
WHO, DOES = ("the heart", "a river", "the king", "my dog"), ("moves", "was late", "sees a fish")
TEXTS = [f"{who} {does} {where}" for who in WHO for does in DOES for where in ("in winter", "near the old bridge", "today")]
SHAPE = {"layers": 2, "width": 16, "heads": 2, "vocabulary": 150, "positions": 16}
# Without dropout, whose masks belong to a rank; word deletion gives the views something to tell apart.
FINETUNE = {"corpus": "nq", "dev": "sts", "start": "scratch.py", "network": SHAPE, "batch": 8, "steps": 4, "every": 2}
FINETUNE |= {"lr": 1e-4, "max_tokens": 12, "dropout": 0.0, "augment": "delete", "augment_share": 0.3}
TOWER = {"width": 16, "depth": 1, "heads": 2}
IMAGES = {"corpus": "scenes", "image": TOWER, "text": TOWER | {"context": 12}, "head": {"dim": 4, "features": 16}}
IMAGES |= {"batch": 8, "steps": 4, "warmup": 2, "seeds": [0, 1], "checkpoint": 2, "lr": 1e-4}


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A folder with params.yaml, a corpus of texts, one of sentence pairs and one of images."""
    monkeypatch.chdir(tmp_path)
    base = {"id": [str(i) for i in range(len(TEXTS))], "text": TEXTS, "split": "train", "labels": [[] for _ in TEXTS]}
    schema = {"labels": pl.List(pl.String)}
    store.write_corpus("nq", pl.DataFrame(base, schema_overrides=schema))
    partners = [TEXTS[(i + i % 6 * 5) % len(TEXTS)] for i in range(len(TEXTS))]
    dev = base | {"split": "dev", "pair": partners, "score": [5.0 - i % 6 for i in range(len(TEXTS))]}
    store.write_corpus("sts", pl.DataFrame(dev, schema_overrides=schema))
    images = scenes(SyntheticCorpus(source="synthetic", path="x", rows=40, seed=0))
    store.write_corpus("scenes", images.with_columns(split=pl.Series(["train"] * 24 + ["test"] * 16)))
    synthetic = {"source": "synthetic", "path": "x"}
    study = {"study": "t", "corpora": dict.fromkeys(("nq", "sts", "scenes"), synthetic)}
    study |= {"finetune": {"row": FINETUNE}, "train_image_text": {"row": IMAGES}}
    Path("study.yaml").write_text(yaml.safe_dump(study))
    (tmp_path / "x").touch()  # what DVC would watch
    (tmp_path / "scratch.py").touch()
    params.activate("study.yaml")
    return tmp_path


def run(verb: str, ranks: int) -> None:
    """`python -m pipelines.<verb> row`, under torchrun where there is more than one rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", port] if ranks > 1 else []
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": "", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *launcher, "-m", f"pipelines.{verb}", "row"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (store.WORK / verb / "row").exists()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the stage's output, by file and name, but the biases of attention's keys.

    These change no attention, so that their gradient is a rounding error, of which Adam makes a whole step.
    """
    files = {file.stem: load_file(file) for file in sorted(folder.rglob("*.safetensors"))}
    keys = ("key.bias", "in_proj_bias")
    return {f"{stem}/{k}": v for stem, tensors in files.items() for k, v in tensors.items() if not k.endswith(keys)}


def assert_near(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-5, rtol=0, msg=lambda message, name=name: f"{name}: {message}")


def test_simcse_on_two_ranks_is_simcse_on_one(house):
    curve = store.plots_path("finetune", "row") / "curve.csv"
    run("finetune", 1)
    one, losses = weights(store.trained_path("row")), pl.read_csv(curve)["loss"]
    run("finetune", 2)
    assert_near(one, weights(store.trained_path("row")))
    assert pl.read_csv(curve)["loss"].to_list()[1:] == pytest.approx(losses.to_list()[1:], abs=1e-5)


def test_image_and_text_encoders_on_two_ranks_are_those_of_one(house):
    curve = store.plots_path("train_image_text", "row") / "curve.csv"
    run("train_image_text", 1)
    one, losses = weights(store.image_text_path("row")), pl.read_csv(curve)["loss"].to_list()
    vectors = store.read_embeddings("row-image").vectors.clone()
    run("train_image_text", 2)
    assert_near(one, weights(store.image_text_path("row")))
    torch.testing.assert_close(store.read_embeddings("row-image").vectors, vectors, atol=1e-5, rtol=0)
    assert pl.read_csv(curve)["loss"].to_list() == pytest.approx(losses, abs=1e-5)


def test_each_rank_takes_its_accelerator_before_it_joins_the_group(monkeypatch):
    order = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: order.append(("device", device.index)))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend: order.append(("group", backend)))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with distributed.started(resolve("auto")):
        pass
    assert order == [("device", 3), ("group", "nccl")]
