"""Naming the encoder of a dump: by the numbers, from one vector on, and by a fit."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
import torch

from pipelines.measures.fingerprint import Fingerprint, spectral_distance
from pipelines.pages.audit import Tried
from pipelines.tool import encoders, identify
from pipelines.tool.__main__ import main
from tests.small import refusal
from tests.test_tool import refused, said

FINGERPRINT_OF = identify.fingerprint_of
DRAW = np.random.default_rng(0)
ALIGNED = Tried("use", 10, 0.99, "aligned", 1.0, own_encoder=True)


def vectors(seed, count, subject=0.0):
    """Vectors of one encoder: its own covariance and mean, moved by a subject."""
    own, rng = np.random.default_rng(seed), np.random.default_rng([seed, count])
    basis = np.linalg.qr(own.normal(size=(64, 64)))[0] * np.linspace(2, 0.2, 64)
    return ((rng.normal(size=(count, 64)) + subject) @ basis.T + 0.3 * own.normal(size=64)).astype(np.float32)


@pytest.fixture(autouse=True)
def _two_encoders(own_folder, monkeypatch):
    """Two encoders of one width, minilm and use; wordllama has another."""
    made = {"minilm": vectors(1, 1000), "use": vectors(2, 1000), "wordllama": DRAW.normal(size=(1000, 32))}
    prints = {name: Fingerprint.of(torch.from_numpy(rows)) for name, rows in made.items()}
    monkeypatch.setattr(identify, "fingerprint_of", lambda name: prints[name])


def named(capsys, rows, option=""):
    np.save("dump.npy", rows)
    return said(capsys, f"identify dump.npy --encoders minilm,use,wordllama {option}")[1]


@pytest.mark.parametrize("count", [1, 100])
def test_texts_of_another_kind_are_named(capsys, count):
    found = named(capsys, vectors(1, count, subject=0.5))
    assert (found["encoder"], found["by"]) == ("minilm", "by its fingerprint")
    assert "wordllama" not in found["matches"]
    turn = np.linalg.qr(DRAW.normal(size=(64, 64)))[0].astype(np.float32)
    same = np.tile(vectors(1, count)[:1] @ turn, (900, 1))  # one vector, often
    for other in (vectors(1, count) @ turn, vectors(3, count), DRAW.normal(size=(count, 7)), same):
        assert named(capsys, other, "--no-fit")["encoder"] is None


def test_only_the_first_rows_are_looked_at(capsys, monkeypatch):
    monkeypatch.setattr(identify, "FIRST", 100)
    assert named(capsys, np.append(vectors(2, 100), vectors(1, 900), axis=0))["encoder"] == "use"


def test_what_the_numbers_do_not_name_is_fitted(capsys, monkeypatch):
    tried = [replace(ALIGNED, encoder="minilm", fitted=False, own_encoder=False), ALIGNED]
    monkeypatch.setattr(identify, "fits", lambda *given: tried)
    found = named(capsys, vectors(3, 1000))
    assert (found["encoder"], found["by"]) == ("use", "by a fit")
    assert not named(capsys, vectors(3, 999))["fits"]  # too few
    assert named(capsys, vectors(1, 50), "--fit")["encoder"] == "minilm"
    assert main(["identify", "dump.npy", "--encoders", "minilm", "--fit"]) == 0
    out = capsys.readouterr().out
    assert "minilm: no fit: the fingerprint names it\nuse: fit aligned, score 0.99\n" in out
    monkeypatch.setattr(identify, "fits", lambda *given: tried[:1])
    assert named(capsys, vectors(3, 1000))["encoder"] is None
    by_known_texts = replace(ALIGNED, fitted=False)
    monkeypatch.setattr(identify, "fits", lambda *given: [by_known_texts])
    assert named(capsys, vectors(3, 1000))["by"] == "by its fingerprint"


def test_too_few_vectors_for_a_fit_are_compared_with_fingerprints(capsys):
    for count, why in (
        (50, "dump.npy: 50 vectors; at least 100 are needed"),
        (1, "dump.npy: 1 vector: nothing to align"),
    ):
        found = named(capsys, vectors(3, count), "--fit")
        assert ({*found["matches"]}, found["fits"]) == ({"minilm", "use"}, [])
        assert main(["identify", "dump.npy", "--encoders", "minilm", "--fit"]) == 0
        assert f"no fit: {why}\nencoder: unknown\n" in capsys.readouterr().out


def test_many_small_groups_of_rows_are_read_as_one(capsys, monkeypatch):
    monkeypatch.setattr(identify, "fits", lambda *given: [ALIGNED])
    frame = pl.DataFrame({"vector": vectors(3, 1000).tolist()})  # as many as a fit needs
    frame.write_parquet("dump.parquet", row_group_size=20)
    assert said(capsys, "identify dump.parquet --encoders minilm,use")[1]["by"] == "by a fit"


def test_a_fingerprint_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(identify, "fingerprint_of", FINGERPRINT_OF)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(identify, "fingerprint_texts", list)
    encode = Mock(return_value=torch.from_numpy(vectors(1, 300)))
    monkeypatch.setattr(encoders, "opened", lambda name, device: encode)
    made, again = identify.fingerprint_of("minilm"), identify.fingerprint_of("minilm")
    assert torch.equal(made.covariance, again.covariance)
    encode.assert_called_once()
    encoders.cache("minilm-fingerprint").write_bytes(b"")  # of a full disk
    assert torch.equal(made.covariance, identify.fingerprint_of("minilm").covariance)


UNUSABLE = (np.empty((0, 256)), np.zeros((3, 8)), np.full((3, 8), np.nan), np.full((3, 8), 1e300))


@pytest.mark.parametrize("rows", UNUSABLE)
def test_a_dump_without_a_vector_is_one_line(capsys, rows):
    np.save("dump.npy", rows)
    assert "no vector that is finite and not zero" in refused(capsys, "identify", "dump.npy")


def test_a_spectrum_is_of_the_encoder_and_not_of_its_axes():
    first, later, other = (torch.from_numpy(vectors(seed, n)) for seed, n in ((1, 900), (1, 700), (2, 700)))
    turn = torch.from_numpy(np.linalg.qr(DRAW.normal(size=(64, 64)))[0]).float()
    assert spectral_distance(first, 3 * later @ turn) < 0.1
    flat = other * torch.linspace(0.2, 3, 64)
    assert spectral_distance(first, flat) == spectral_distance(flat, first) > 0.2
    assert spectral_distance(first[:40], flat) > 0.2  # fewer vectors than dimensions
    with refusal("at least two vectors, got 1"):
        Fingerprint.of(first[:1])
