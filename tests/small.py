"""Small texts, corpora, encoders and rows that tests of several files share."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
import torch
import yaml
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipelines.aligners.core.aligner import OracleAligner
from pipelines.aligners.core.translator import save
from pipelines.contrastive import scratch
from pipelines.corpora.kinds.scenes import synthetic
from pipelines.encoders import pooling
from pipelines.runtime import sender, stage, store, track
from pipelines.runtime.errors import BadInput
from pipelines.runtime.track import Run
from pipelines.study import Network, SyntheticCorpus
from pipelines.study.params import Study

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
os.environ["PATH"] = (
    f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # first the programs of this Python
)
WITHOUT_GIT = "[core]\n    analytics = false\n    no_scm = true\n"  # of DVC
WHO, DOES = ("the heart", "a river", "the king", "my dog"), ("moves", "was late", "sees a fish")
TEXTS = [" ".join(words) for words in product(WHO, DOES, ("in winter", "near the old bridge", "today"))]
NETWORK = {"layers": 2, "width": 16, "heads": 2, "vocabulary": 150, "positions": 16}
FINETUNE = {"corpus": "nq", "dev": "sts", "start": "scratch.py", "network": NETWORK, "batch": 8}
FINETUNE |= {"every": 2, "max_tokens": 12}
TOWER = {"width": 16, "depth": 1}
IMAGE_TEXT = {"corpus": "scenes", "image": TOWER, "text": TOWER}
IMAGE_TEXT |= {"head": {"dim": 4, "features": 16}, "batch": 8}
QUICK = {  # settings of every aligner that fit in a moment; a new aligner needs an entry
    "identity": {},
    "procrustes": {},
    "network": {"width": 8, "steps": 2},
    "transport": {"method": "emd", "points": 40},
    "mini_vec2vec": {"clusters": 5, "repeats": 2, "assignment_restarts": 2, "refine_steps": 2},
    "rosetta": {"clusters": 5, "repeats": 2, "refine_steps": 2},
    "wasserstein_procrustes": {
        "clusters": 8,
        "repeats": [2],
        "rounds": [100],
        "refinements": 1,
        "passes": 1,
        "rotations": 0,
    },
    "vec2vec": {"width": 16, "disc_width": 16, "steps": 2, "batch": 16, "log_every": 1},
}


def copied(root, names):
    """Copy files and folders of this project into `root`, as an archive has them: without git."""
    for name in names.split():
        (root / name).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    return root


def write_yaml(path, tree):
    Path(path).write_text(yaml.safe_dump(tree))


def read_yaml(path):
    return yaml.safe_load(Path(path).read_text("utf-8"))


def blocks(page, language):
    """Return the code of this language on a page of this project, block by block."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


def stages_of_dvc():
    """Return what dvc.yaml says of each stage, or of each row of a stage that has rows."""
    stages = read_yaml(ROOT / "dvc.yaml")["stages"]
    return {name: body.get("do", body) for name, body in stages.items()}


def upstream_of(repo):
    """Return the stages upstream of each stage, as DVC reads them."""
    graph = repo.index.graph
    return {stage.addressing: {up.addressing for up in graph.successors(stage)} for stage in graph}


def completed(*command, code=0, env=None, **more):
    """Run a command that ends with this exit code; return what it said. `env` is added to the environment."""
    env = os.environ | (env or {})
    done = subprocess.run(command, capture_output=True, text=True, env=env, **more)
    assert done.returncode == code, done.stdout + done.stderr
    return done


class SenderThread:
    """A sender as a stage starts one, but with the MLflow that is imported here already."""

    def __init__(self, log=None):
        self.stop = threading.Event()
        self.thread = threading.Thread(target=sender.serve, args=(self.stop, log), daemon=True)
        self.thread.start()

    def communicate(self, timeout=None):
        self.stop.set()
        self.thread.join(timeout)
        if self.thread.is_alive():
            raise subprocess.TimeoutExpired("sender", timeout)


class Largest(TorchDispatchMode):
    """Watch every operation; `numel` is the size of the largest tensor that one returned."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.numel = max([self.numel, *sizes])
        return out


@contextmanager
def refusal(match):
    """Expect BadInput, whose message matches `match` and is one line."""
    with pytest.raises(BadInput, match=match) as error:
        yield error
    assert len(str(error.value).splitlines()) == 1


def rotation(d, rank, generator):
    """Return a random matrix (d, rank) with orthonormal columns."""
    return torch.linalg.qr(torch.randn(d, rank, generator=generator))[0]


def sinkhorn(cosines, concentration, rounds=3):
    """Return the plan of optimal transport in float64, after rounds of scaling rows, then columns, to 1."""
    kernel = torch.exp(concentration * (cosines.double() - 1))
    v = torch.ones(kernel.shape[1], dtype=torch.float64)
    for _ in range(rounds):
        u = 1 / (kernel @ v)
        v = 1 / (kernel.T @ u)
    return u[:, None] * kernel * v


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0, **more):
    """Return normal draws of a generator with this seed."""
    return torch.randn(shape, generator=seeded(seed), **more)


def tables_of(corpora, encoders, /, **tables):
    """Return a study's tables: generated corpora and packaged encoders of these names, and `tables`."""
    usual = {"study": "t", "corpora": {name: {"source": "synthetic"} for name in corpora.split()}}
    usual["encoders"] = {name: {"source": "wheel", "model": "minilm"} for name in encoders.split()}
    return usual | tables


def study_of(*names, **tables):
    return Study.model_validate(tables_of(*names, **tables))


def put(path, content):
    """Write a text or bytes to a file, and make the folders above it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_translator(row, translator, seed=0):
    """Write a translator of a row, as its stage does."""
    save(translator, store.translators_path(row) / f"seed-{seed}")


def write_corpus(name, texts, split="train", **more):
    """Write a corpus with ids "0", "1", ..., no labels, a document for each text, and `more` columns."""
    ids = [str(i) for i in range(len(texts))]
    columns = {"id": ids, "text": texts, "split": split, "labels": [[]] * len(texts), "document": ids} | more
    store.write_corpus(name, pl.DataFrame(columns, schema_overrides=store.CORPUS_COLUMNS))


def write_embeddings(name, vectors, split="train", **metadata):
    """Write embeddings with ids "0", "1", ...; `split` may be one for each vector."""
    splits = [split] * len(vectors) if isinstance(split, str) else split
    ids = [str(i) for i in range(len(vectors))]
    store.write_embeddings(name, ids, splits, vectors.numpy(), metadata)


def scenes():
    """Return a corpus of 24 generated images to train on and 16 to test."""
    made = synthetic.rows(SyntheticCorpus(source="synthetic", path="x", rows=40))
    return made.with_columns(split=pl.Series(["train"] * 24 + ["test"] * 16), document="id")


def write_pairs():
    """Write the corpus `sts` of sentence pairs with scores."""
    partners = [TEXTS[(i + i % 6 * 5) % len(TEXTS)] for i in range(len(TEXTS))]
    write_corpus("sts", TEXTS, "dev", pair=partners, score=[5.0 - i % 6 for i in range(len(TEXTS))])


def write_model(folder, *modules):
    """Write these modules as a model of sentence-transformers."""
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)


def static_encoder(name, words, table):
    """Write an encoder that averages rows of `table`: one for each word, the last for unknown words."""
    tokens = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=words[-1]))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    write_model(store.encoder_path(name), StaticEmbedding(tokens, torch.as_tensor(table)))


def write_network(folder, texts):
    """Write an encoder: an untrained network with one of our own poolers."""
    with TemporaryDirectory() as new:
        transformer = scratch.network(texts, Network(**NETWORK), 0, Path(new))
        write_model(folder, transformer, pooling.pooler("first-last", NETWORK["width"]))


def quick_fit(name, source, target, *pairs, seed=0, **more):
    """Fit an aligner with settings of QUICK and `more`; an oracle takes row i of both sides for a pair."""
    module = importlib.import_module(f"pipelines.aligners.{name}")
    fit = module.fit_oracle if isinstance(module, OracleAligner) else module.fit
    return fit(source, target, module.Settings(**QUICK[name] | more), seed, *pairs)


def write_report(study):
    """Run the stage `report` in this process, without MLflow."""
    importlib.import_module("pipelines.report").report("report", None, study, Run())


def run_command(verb, monkeypatch, *arguments):
    """Run `python -m pipelines.<verb>` in this process without MLflow."""
    monkeypatch.setattr(track, "run", lambda *_: nullcontext(Run()))
    monkeypatch.setattr("sys.argv", [verb.__name__, *arguments])
    stage.main(verb)


def run_stage(verb, study, name="row"):
    """Run a row's stage in this process without MLflow, and return its metrics, if it has any."""
    run = getattr(importlib.import_module(f"pipelines.{verb}"), verb)
    run(name, getattr(study, Study.table_by_verb()[verb])[name], study, Run())
    return store.read_metrics(verb, [name]).get(name, {})


def two_encoders():
    """Return vectors (3000, 64) of one encoder and, row by row, of another that turns them."""
    random = np.random.default_rng(0)
    topics, shares = random.normal(size=(40, 64)), np.linspace(1, 4, 40)
    of = random.choice(40, 3000, p=shares / shares.sum())
    texts = (topics[of] + 0.5 * random.normal(size=(3000, 64))) * np.linspace(2, 0.5, 64)
    return texts, texts @ np.linalg.qr(random.normal(size=(64, 64)))[0]
