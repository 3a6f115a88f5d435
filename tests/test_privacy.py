"""Private texts stay in git-ignored files: none reaches MLflow, standard output, or a commit, unless the row
says so.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from pipelines import attributes, collect, invert
from pipelines import report as page
from pipelines.aligners.core.translator import Linear
from pipelines.encoders import query
from pipelines.inverters import Space
from pipelines.pages.audit import Findings, Tried
from pipelines.runtime import store, track
from pipelines.tool import audit
from pipelines.tool.__main__ import main as command
from tests import small

SECRET, LABEL = "quixotrine", "zanthoma"  # words of the texts and of the labels, and of nothing else
TEXTS = [f"{'law' if i % 2 else 'oil'} {SECRET} costs {i} dollars" for i in range(40)]


def study_of(corpora):
    return small.study_of(
        "",
        "a b",
        corpora=corpora,
        align={"t": {"source": "c-a", "target": "c-b", "aligner": "identity"}},
        inverters={"i": {"space": "c-b"}},
        invert={"r": {"translator": "t", "inverter": "i", "texts": 4}},
        attributes={"r": {"translator": "t"}},
    )


def encode(texts):
    return torch.tensor([[1.0 + ("law" in t), 1.0 + ("oil" in t), 0.1 + len(t) / 90] for t in texts])


def guesses(attacker, victim, encode, row):
    kinds = ("translated", "ceiling", "mismatched")
    return [invert.Guesses(kind, how, victim.texts) for kind in kinds for how in ("corrected", "consensus")]


def run_stages(study):
    """Run collect, attributes, invert with right guesses, and report; write embeddings and a translator."""
    pl.DataFrame({"text": TEXTS, "labels": [f"{LABEL} {t[:3]}" for t in TEXTS]}).write_csv("texts.csv")

    def stage(verb, name, row):
        with track.run(verb.__name__, name, row, study.study) as run:
            verb(name, row, study, run)

    stage(collect.collect, "c", study.corpora["c"])
    corpus = store.read_corpus("c").to_dict(as_series=False)
    vectors = encode(corpus["text"])
    for name in "ab":
        store.write_embeddings(f"c-{name}", corpus["id"], corpus["split"], vectors.numpy(), {"corpus": "c"})
    small.write_translator("t", Linear.of(torch.eye(3), vectors, vectors))
    stage(attributes.attributes, "r", study.attributes["r"])
    stage(invert.invert, "r", study.invert["r"])
    stage(page.report, "report", None)


def run_audit(patch):
    """Run the command on a dump from which it read a text."""
    tried = Tried("minilm", 100, 0.9, "aligned", 1.0)
    row = {"row": 0, "guess": SECRET, "cosine": 0.5, "nearest known text": SECRET}
    about = {"vectors": 1, "used": 1, "dimension": 3}
    found = Findings("dump.npy", about, [tried], inversions=[row])
    patch.setattr(audit, "audit", lambda *arguments: found)
    Path("dump.npy").touch()
    assert command(["audit", "dump.npy"]) == command(["audit", "dump.npy", "--json"]) == 0


def carries(word, *folders):
    files = [f for folder in folders for f in (folder, *folder.rglob("*")) if f.is_file()]
    return any(word.encode() in f.read_bytes() for f in files)


def committed(root):
    """Return the files that `git add .` takes, except those of this test."""
    small.completed("git", "init", "-q", cwd=root)
    said = small.completed("git", "ls-files", "--others", "--exclude-standard", cwd=root).stdout
    return [root / name for name in said.splitlines() if name not in ("texts.csv", "stdout")]


@pytest.fixture(scope="module", params=[{}, {"private": False}], ids=["private", "public"])
def channels(request, empty_store, tmp_path_factory):
    """Which words each channel carries, of a path corpus as it is by default and with `private: false`."""
    corpus = {"source": "path", "kind": "emails", "path": "texts.csv", "columns": {"labels": "labels"}}
    root = tmp_path_factory.mktemp("privacy")
    with pytest.MonkeyPatch.context() as patch, (root / "stdout").open("w") as stdout:
        patch.chdir(root)
        shutil.copy(empty_store, root)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root}/mlflow.db")
        patch.setattr(query, "as_function", lambda folder, row, device=None: encode)
        attacker = SimpleNamespace(texts=[], known=torch.empty(0, 3), space=Space(torch.zeros(3)))
        patch.setattr(invert, "load", lambda folder, device: attacker)
        patch.setattr(invert, "attack", guesses)
        patch.setattr(track, "start_sender", small.SenderThread)
        patch.setattr("sys.stdout", stdout)
        run_stages(study_of({"c": corpus | {"test": 10} | request.param}))
        run_audit(patch)
    shutil.copy(small.ROOT / ".gitignore", root)
    places = {
        "stdout": [root / "stdout"],
        "mlflow": [*root.glob("mlruns"), *root.glob("mlflow.db*")],
        "git": committed(root),
    }
    words = {name: {w for w in (SECRET, LABEL) if carries(w, *paths)} for name, paths in places.items()}
    return SimpleNamespace(private=not request.param, root=root, words=words)


def test_only_mlflow_carries_texts_and_only_public_ones(channels):
    said = set() if channels.private else {SECRET}
    assert channels.words == {"stdout": set(), "mlflow": said, "git": set()}
    assert "| translated" in (channels.root / "report/report.md").read_text()
    assert "private facts in 4 texts" in (channels.root / "report/findings.md").read_text()


def test_read_texts_are_on_the_audit_page_and_in_results(channels):
    [page] = channels.root.glob("report/audit/dump-*.html")
    said = (channels.root / "stdout").read_text()
    assert "aligned with minilm" in said
    assert str(page.relative_to(channels.root)) in said
    for file in (page, channels.root / "results/invert/r/examples.csv"):
        assert SECRET in file.read_text()
        assert file not in committed(channels.root)


def test_files_of_the_user_are_private():
    corpora = {
        "c": {"source": "synthetic"},
        "library": {"source": "library"},
        "hub": {"source": "hub", "id": "some/set"},
        "notes": {"source": "path", "path": "notes"},
        "dump": {"source": "vectors", "path": "dump.npy"},
    }
    study = study_of(corpora)
    assert {name for name in corpora if study.private(name)} == {"notes", "dump"}
    assert study.private("hub", "notes")
    assert not study.private("hub", "library")
