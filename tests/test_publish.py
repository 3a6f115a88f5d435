"""A published model is registered with its signature, digest and metrics, and served unchanged."""

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from mlflow.pyfunc import load_model, scoring_server
from mlflow.tracking import MlflowClient
from numpy.testing import assert_allclose, assert_array_equal
from starlette.testclient import TestClient

from pipelines import load, publish
from pipelines.aligners.core.hubness import InvertedSoftmax
from pipelines.aligners.core.translator import Linear
from pipelines.encoders import pooling
from pipelines.runtime import files, intact, store
from pipelines.study import params
from tests.small import TEXTS, normal, put, tables_of, write_network, write_translator, write_yaml

D, E = 24, 16
MANY = np.random.default_rng(7).normal(size=(2_500, D)).astype(np.float32)
VECTORS = MANY[:50]
TRAINING = {"corpus": "mails", "dev": "sts", "start": "x", "steps": 1}
FIT = {"source": "mails-a", "target": "mails-b", "aligner": "identity"}
BEST = {"translator": "best"}
STUDY = tables_of(
    "",
    "a b",
    corpora={"mails": {"source": "path", "path": "mails.csv"}, "sts": {"source": "synthetic"}},
    align=dict.fromkeys(("best", "unfitted", "changed", "behind", "older", "simcse-2"), FIT),
    align_jointly={"both": {"spaces": ["sts-a", "sts-b", "mails-a"], "aligner": "vec2vec"}},
    evaluate=dict.fromkeys(("best", "stale", "edited"), BEST) | {"bent": BEST | {"hub_correction": 1.5}},
    finetune=dict.fromkeys(("simcse", "simcse-2", "untrained"), TRAINING),
)


@pytest.fixture(scope="module")
def root(module_patch):
    """Write the files that `dvc repro` would leave in a repository, and return its folder."""
    write_yaml("params.yaml", STUDY)
    verdicts = {0: {"score": 0.2, "label": "failed"}, 1: {"score": 0.9, "label": "aligned"}}
    for row in ("best", "both/sts-a/sts-b"):
        for seed in verdicts:
            write_translator(row, translator(seed), seed)
        put(store.translators_path(row) / "verdicts.json", json.dumps(verdicts))
    write_network("data/trained/simcse", TEXTS)
    store.write_metrics("finetune", "simcse", {"dev": {"spearman": 61.5}})
    trained = ["data/trained/simcse", "results/finetune/simcse.json"]
    stages = {"finetune@simcse": locked(["data/corpora/sts.parquet"], trained)}
    for row in STUDY["evaluate"]:
        seeds = store.seeds_path(row)
        put(seeds, "seed,top1,top1_error\n0,0.25,0.03\n1,0.75,0.02\n")
        read = ["data/embeddings/mails-a.arrow", "data/embeddings/mails-b.arrow", "data/translators/best"]
        stages[f"evaluate@{row}"] = locked(read, [seeds])
    stages["evaluate@stale"]["deps"][2]["md5"] = "of other translators"
    stages["evaluate@edited"]["outs"][0]["md5"] = "of other numbers"
    stages["align@best"] = {"params": {"params.yaml": {"align.best": FIT}}}
    stages["align@changed"] = {"params": {"params.yaml": {"align.changed": FIT | {"aligner": "vec2vec"}}}}
    later, before = "data/embeddings/later.arrow", "data/embeddings/before.arrow"
    stages["embed@sts-a"] = locked([], [later]) | {"params": {"params.yaml": {"embed.sts-a": {}}}}
    stages["align@behind"] = locked([later], [])
    stages["embed@sts-b"] = locked([], [before])
    stages["align@older"] = {"deps": [{"path": before, "md5": "of other vectors"}]}
    write_yaml("dvc.lock", {"stages": stages})
    return Path.cwd()


def locked(deps, outs):
    """Return an entry of dvc.lock. The digest of a missing file is its name."""

    def named(paths):
        return [{"path": str(p), "md5": intact.md5_of(p) if p.exists() else p.stem} for p in map(Path, paths)]

    return {"deps": named(deps), "outs": named(outs)}


def translator(seed):
    x = normal(300, D, seed=seed)
    linear = Linear.of(torch.eye(D, E), x, x[:, :E])
    return InvertedSoftmax.around(linear, x[:100], 1.1)


@pytest.fixture
def client(root, monkeypatch):
    uri = f"sqlite:///{root}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return MlflowClient(uri)


def published(capsys, *arguments):
    """Publish, and return the address at the end of the one line that is printed."""
    assert publish.main(arguments) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    return out.split()[-1]


def refused(capsys, *arguments):
    """Try to publish, and return the one line of the error."""
    assert publish.main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def registered(client, address):
    """Return a version and its LoggedModel."""
    version = client.get_model_version(*address.removeprefix("models:/").split("/"))
    return version, client.get_logged_model(version.source.removeprefix("models:/"))


def test_a_translator_is_registered_with_its_metrics(client, capsys):
    address = published(capsys, "best")
    model = load_model(address)
    folder = Path("data/translators/best")
    assert_array_equal(model.predict(VECTORS), load(folder)(VECTORS))
    [given], [returned] = model.metadata.signature.inputs.inputs, model.metadata.signature.outputs.inputs
    assert (given.shape, returned.shape) == ((-1, D), (-1, E))
    version, logged = registered(client, address)
    digest = files.digest(folder / "seed-1.safetensors")
    expected = {"seed": "1", "verdict": "aligned", "private": "True", "sha256": digest}
    assert expected.items() <= version.tags.items()
    assert logged.params["aligner"] == "identity"
    assert client.get_experiment(logged.experiment_id).name == "align"
    measured = {(m.key, m.value, m.dataset_name) for m in logged.metrics}
    assert measured == {("translation/top1", 0.75, "mails-a"), ("translation/top1_error", 0.02, "mails-a")}


def test_publishing_again_makes_the_next_version(client, capsys):
    first, bad, last = (published(capsys, "best", seed) for seed in "101")
    numbers = [int(address.rsplit("/", 1)[1]) for address in (first, bad, last)]
    named = [int(client.get_model_version_by_alias("best", word).version) for word in ("failed", "aligned")]
    assert numbers == [named[0] - 1, *named]
    served = load_model("models:/best@failed").predict(VECTORS)
    assert_array_equal(served, load("data/translators/best", seed=0)(VECTORS))
    assert {m.value for m in registered(client, bad)[1].metrics} == {0.25, 0.03}


def test_a_pair_of_several_spaces(client, capsys):
    address = published(capsys, "both/sts-a/sts-b")
    assert address == "models:/both+sts-a+sts-b/1"
    served = load_model(address).predict(VECTORS)
    assert_array_equal(served, load("data/translators/both/sts-a/sts-b")(VECTORS))
    version, logged = registered(client, address)
    assert version.tags["private"] == "True"  # for mails-a, which the fit saw, too
    assert logged.metrics is None


def test_an_encoder_is_registered_with_its_metrics(client, capsys):
    address = published(capsys, "simcse")
    model = load_model(address)
    folder = Path("data/trained/simcse")
    assert_array_equal(model.predict(TEXTS), pooling.open_model(folder).encode(TEXTS))
    assert model.metadata.signature.outputs.inputs[0].shape == (-1, 16)
    version, logged = registered(client, address)
    assert version.tags["sha256"] == files.digest(folder / "model.safetensors")
    assert version.tags["private"] == "True"
    [metric] = logged.metrics
    assert (metric.key, metric.value, metric.dataset_name) == ("similarity/dev/spearman", 61.5, "sts")


def test_an_encoder_was_trained_on_the_corpora_of_all_that_it_starts_from():
    first = {"corpus": "mails", "dev": "sts", "network": {}, "steps": 1}
    later = first | {"corpus": "news", "start": "data/encoders/renamed"}
    paths = {"copied": "data/trained/first", "renamed": "data/encoders/copied"}
    encoders = {name: {"source": "path", "path": path} for name, path in paths.items()}
    rows = tables_of("mails news sts", "", finetune={"first": first, "later": later})
    study = params.Study.model_validate(rows | {"encoders": encoders})
    assert [*publish._corpora(study.finetune["later"], study)] == ["news", "mails"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["bst"], "there is no row 'bst'; did you mean 'best'?"),
        (["unfitted"], "data/translators/unfitted: no translators there; `dvc repro` or `translate fit`"),
        (["untrained"], "data/trained/untrained: no encoder there; `dvc repro` makes it"),
        *(
            ([row], f"align@{row} ran with other settings or inputs: `dvc repro align@{row}` first")
            for row in ("changed", "behind", "older")
        ),
        (["best", "7"], "there is no seed 7; there are: 0, 1"),
        (["simcse", "0"], "a row of finetune has one model: no seed"),
        (["simcse-2"], "a row of finetune and one of align have this name"),
        ([], "publish: usage: python -m pipelines.publish"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_registered(client, capsys, arguments, line):
    before = client.search_model_versions()
    assert line in refused(capsys, *arguments)
    assert client.search_model_versions() == before


def test_help_is_printed(capsys):
    assert publish.main(["--help"]) == 0
    assert "python -m pipelines.publish ROW [SEED]" in capsys.readouterr().out


def test_a_model_whose_metrics_are_refused_has_no_version(client, capsys, monkeypatch):
    before = client.search_model_versions()
    monkeypatch.setattr("mlflow.log_metrics", Mock(side_effect=OSError("full")))
    assert "MLflow did not take it (OSError: full)" in refused(capsys, "best")
    assert client.search_model_versions() == before


def test_a_server_that_is_away_is_one_line_without_its_password(client, capsys, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://someone:secret@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    line = refused(capsys, "best")
    assert "MLflow did not take it" in line
    assert "secret" not in line


def test_a_translator_that_is_not_what_dvc_lock_names_is_refused(client, capsys, monkeypatch):
    monkeypatch.setattr(intact, "locked", lambda _: [("align@best", "data/translators/best", "other bytes")])
    assert "not the bytes that dvc.lock names" in refused(capsys, "best")


def test_a_number_in_another_notation_is_no_change(own_folder):
    put("params.yaml", "finetune: {a: {lr: 3e-5}}\n")
    put("dvc.lock", "stages: {f: {params: {params.yaml: {finetune.a: {lr: 3e-05}}}}}\n")
    assert intact.changed_rows("f") == []


# ---------------------------------------------------------------- over HTTP


def test_a_server_answers_as_the_model_does(client, capsys):
    """By the application that `mlflow models serve` runs."""
    for row, inputs, sent in (("best", MANY, MANY.tolist()), ("simcse", TEXTS, TEXTS)):
        model = load_model(published(capsys, row))
        answer = TestClient(scoring_server.init(model)).post("/invocations", json={"inputs": sent})
        assert_allclose(answer.json()["predictions"], model.predict(inputs), rtol=0, atol=1e-6)
