"""Each stage computes on the accelerator, rarely waits for it, and gives the CPU's numbers.

The accelerator is a pretended one (tests/pretend_device.py), or with `pytest -m cuda` a GPU.
"""

import copy
import re
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pretend_device
import pytest
import torch
from torch.nn.functional import normalize

from pipelines import train_image_text
from pipelines.aligners import network, vec2vec, wasserstein_procrustes
from pipelines.aligners.core import matching
from pipelines.aligners.core.translator import load, save
from pipelines.aligners.core.verdict import judge
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.training import Training
from pipelines.contrastive import scratch
from pipelines.contrastive.point_sets import DualEncoder
from pipelines.contrastive.towers import Words
from pipelines.inverters import Queries, Space, attacker, decoder, search, writer
from pipelines.inverters.consensus import consensus
from pipelines.measures import attributes, geometry, translation
from pipelines.measures.defences import KINDS, Defence, defend, recall_kept
from pipelines.runtime.device import VARIABLE, resolve
from pipelines.runtime.files import save_state
from pipelines.study import Network, TrainImageText
from tests import small
from tests.small import IMAGE_TEXT, QUICK, normal, quick_fit, refusal, seeded
from tests.test_inversion import SMALL, TEXTS, encode


@contextmanager
def _no_waits():
    """Let CUDA raise where the host waits for it."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@dataclass(frozen=True)
class Accelerator:
    """A device under test. Only the pretended one has a `record`."""

    device: torch.device
    record: pretend_device.Record | None

    def move(self, *tensors):
        return [t.to(self.device) for t in tensors]

    @contextmanager
    def works(self, waits=None):
        """Assert that the block computes on the device, and that the host waits at most `waits` times.

        On a GPU, only waits=0 is checked.
        """
        before = copy.deepcopy(self.record)
        with nullcontext() if self.record or waits != 0 else _no_waits():
            yield
        if self.record:
            assert self.record.operations > before.operations
            assert waits is None or self.record.waits - before.waits <= waits, self.record

    def same(self, here, there):
        """Assert that the device has the CPU's numbers, to rounding. A GPU sums in another order."""
        assert there.device.type == self.device.type
        rounding = 2e-4 if self.record else 2e-2
        torch.testing.assert_close(there.cpu(), here, atol=rounding, rtol=rounding)


def test_random_states_of_other_devices_stay_untouched(own_folder, monkeypatch):
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda **_: None)  # then CUDA is asked
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    before, on_device = torch.get_rng_state(), pretend_device.BACKEND.random
    scratch.network(TEXTS, Network(**small.NETWORK), 5, Path("network"))
    decoder.train(normal(len(TEXTS), 8), TEXTS, replace(SMALL, epochs=1), 5)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(pretend_device.BACKEND.random, on_device)


GPU = pytest.param(
    "cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]
)


@pytest.fixture(params=[pretend_device.NAME, GPU])
def there(request, monkeypatch):
    monkeypatch.setattr(matching, "_has_bf16", lambda vectors: False)  # only a CPU has it, with other numbers
    if request.param == "cuda":
        yield Accelerator(torch.device("cuda", 0), None)
        return
    with pretend_device.started() as record:
        yield Accelerator(pretend_device.DEVICE, record)


def clouds(d=24):
    """Return two views (300, d) and (300, 20) of one clustered cloud. Row i of both is one text."""
    g = seeded()
    centres = 2 * torch.randn(8, 20, generator=g)
    points = centres[torch.randint(8, (300,), generator=g)] + torch.randn(300, 20, generator=g)
    return points @ torch.randn(20, d, generator=g) / 20**0.5, points + 0.05 * torch.randn(
        300, 20, generator=g
    )


# ---------------------------------------------------------------- align

VEC2VEC = vec2vec.Settings(**QUICK["vec2vec"] | {"dropout": 0.0})
PAIRS = torch.tensor([[0, 0], [3, 3]])
FITS = {name: partial(quick_fit, name) for name in QUICK} | {
    "wasserstein_procrustes": lambda x, y: quick_fit("wasserstein_procrustes", x, y, PAIRS, rotations=1),
    "vec2vec": partial(quick_fit, "vec2vec", dropout=0.0),
    "least_squares": partial(quick_fit, "procrustes", map="least_squares"),
    "singular": partial(quick_fit, "procrustes", map="least_squares", ridge=0.0),
    "hungarian": partial(quick_fit, "transport", method="hungarian"),
}


@pytest.mark.parametrize("name", FITS)
def test_an_alignment_happens_where_its_vectors_are(name, there, tmp_path, monkeypatch):
    monkeypatch.setattr(network, "DROPOUT", 0.0)
    monkeypatch.setattr(wasserstein_procrustes.rotations, "ROTATED_STEPS", 2)
    x, y = clouds()
    here = FITS[name](x, y).eval()
    a, b = there.move(x, y)
    with there.works():
        translator = FITS[name](a, b).eval()
    there.same(here(x), translator(a))
    save(translator, tmp_path / "t")
    there.same(load(tmp_path / "t")(x), translator(a))


def test_a_verdict_is_given_where_the_vectors_are(there):
    x, y = clouds()
    fits = [FITS["least_squares"](x, y), FITS["procrustes"](x, y)]
    here = judge(x, fits[0], y, fits[1:])
    first, second = (fit.to(there.device) for fit in fits)
    a, b = there.move(x, y)
    with there.works(waits=6):
        verdict = judge(a, first, b, [second])
    assert (verdict.label, verdict.share) == (here.label, here.share)
    assert verdict.agreement == pytest.approx(here.agreement, abs=1e-4)


def test_a_step_of_vec2vec_never_waits(there):
    dims = {"source": 24, "target": 20}
    here = Training(Vec2Vec(dims, **VEC2VEC.shape), dims, VEC2VEC)
    moved = Training(copy.deepcopy(here.model).to(there.device), dims, VEC2VEC)
    moved.discriminators.load_state_dict(here.discriminators.state_dict())
    x = {name: normalize(cloud[:32]) for name, cloud in zip(dims, clouds(), strict=True)}
    on_device = {name: rows.to(there.device) for name, rows in x.items()}
    for _ in range(3):
        want = here.step(x)
        with there.works(waits=0):
            got = moved.step(on_device)
    for name, value in want.items():
        there.same(value, got[name])
    with there.works(waits=1):
        moved.check()


# ---------------------------------------------------------------- measures


def test_measures_are_taken_where_the_vectors_are(there):
    x, y = clouds(d=20)
    a, b = there.move(x, y)
    with there.works():
        parts = [translation.paired_scores(a[part], b[part]) for part in translation.batches(len(a), 100)]
    for part, scores in zip(translation.batches(len(x), 100), parts, strict=True):
        for name, value in translation.paired_scores(x[part], y[part]).items():
            there.same(value, scores[name])
    there.same(attributes.order(x, y[:7]), attributes.order(a, b[:7]))
    true = torch.eye(7, dtype=torch.bool).repeat(43, 1)[:300]
    (on_device,) = there.move(true)
    ranked, ks = attributes.order(x, y[:7]), (1, 3)
    for want, got in (
        (attributes.scores(ranked, true, ks), attributes.scores(*there.move(ranked), on_device, ks)),
        (attributes.chance(true, ks), attributes.chance(on_device, ks)),
    ):
        for name, value in want.items():
            there.same(value, got[name])
    orders = geometry.random_orders(len(x), 3, 0)
    (moved,) = there.move(orders)
    *here_ckas, here_null = geometry.linear_cka(x, y, orders)
    *there_ckas, there_null = geometry.linear_cka(a, b, moved)
    assert there_ckas == pytest.approx(here_ckas, abs=1e-6)
    there.same(here_null, there_null)
    near = [geometry.nearest_others(side) for side in (x, y, a, b)]
    there.same(geometry.overlap_null(*near[:2], orders), geometry.overlap_null(*near[2:], moved))


@pytest.mark.parametrize("kind", KINDS)
def test_a_defence_changes_vectors_where_they_are(kind, there):
    x, _ = clouds()
    defence = Defence(kind, {"noise": 0.5, "drop": 0.5, "cells": 3, "round": 1}.get(kind, 0))
    (a,) = there.move(x)
    kept, moved = defend(x, defence, 3), defend(a, defence, 3)
    there.same(kept, moved)
    there.same(recall_kept(x, kept), recall_kept(a, moved))


# ---------------------------------------------------------------- attacks

DECODER = replace(SMALL, width=16, epochs=4)


def test_an_inverter_learns_and_writes_where_its_vectors_are(there, tmp_path, monkeypatch):
    monkeypatch.setattr(decoder, "DROPOUT", 0.0)  # each device draws its own masks
    vectors = encode(TEXTS)
    here = attacker.learn(vectors, TEXTS, DECODER, 0, encode=encode)
    with there.works():
        moved = attacker.learn(*there.move(vectors), TEXTS, DECODER, 0, encode=encode)
    weights = {name: value.cpu() for name, value in moved.inverter.state_dict().items()}
    # Adam divides by small gradients, which amplifies rounding
    torch.testing.assert_close(weights, dict(here.inverter.state_dict()), atol=2e-3, rtol=0)
    attacker.save(moved, tmp_path)
    again = attacker.load(tmp_path, there.device)
    settings = search.Settings(samples=2, rounds=1, swaps=2, corrections=1, splices=1, beams=1)
    written = []
    for a in (attacker.load(tmp_path), again):
        given = a.space(vectors[:4])
        near = a.nearest(given, 5)
        _, guesses = search.search(
            a.inverter, given, Queries(encode, a.space), settings, 0, a.corrector, near
        )
        agreed = consensus(given, a.known, a.texts)
        written.append((near, [a.inverter.text(g.draft) for g in guesses], agreed))
    assert again.known.device.type == there.device.type
    assert there.record is None or written[0] == written[1]


def test_a_step_of_the_decoder_never_waits(there, monkeypatch):
    vectors = Space.of(encode(TEXTS))(encode(TEXTS))
    (moved,) = there.move(vectors)
    take = decoder.minimise

    def steps(*arguments, **options):
        with there.works(waits=0):
            take(*arguments, **options)

    monkeypatch.setattr(decoder, "minimise", steps)
    model = decoder.train(moved, TEXTS, DECODER, 0)
    with there.works(waits=3 * DECODER.tokens + 2):
        model.propose(moved[:3], seeded())


def test_a_killed_inverter_continues_with_the_random_state_of_its_device(there, tmp_path, monkeypatch):
    (vectors,) = there.move(Space.of(encode(TEXTS))(encode(TEXTS)))
    whole = decoder.train(vectors, TEXTS, DECODER, 0)

    def kill(path, state):
        save_state(path, state)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "save_state", kill)
    torch.manual_seed(99)  # the caller's random state does not matter
    with pytest.raises(KeyboardInterrupt):
        decoder.train(vectors, TEXTS, DECODER, 0, checkpoint=tmp_path / "state.pt")
    again = decoder.train(vectors, TEXTS, DECODER, 0, checkpoint=tmp_path / "state.pt")
    for name, weight in whole.state_dict().items():
        there.same(weight.cpu(), again.state_dict()[name])


# ---------------------------------------------------------------- contrastive training


class Images:
    """Pixels and captions of noise."""

    def __len__(self):
        return 24

    def batch(self, rows, generator):
        fixed = seeded()
        pixels = torch.randint(256, (24, 3, 16, 16), generator=fixed, dtype=torch.uint8)
        captions = torch.randint(1, 8, (24, 16), generator=fixed)
        return pixels[rows], captions[rows]


def test_a_step_of_image_text_training_never_waits(there):
    row = TrainImageText.model_validate(IMAGE_TEXT | {"image": {"size": 16, "width": 8}})
    here = DualEncoder(row, 20)
    moved = copy.deepcopy(here).to(there.device)
    optimisers = [train_image_text.optimiser_of(model, row) for model in (here, moved)]
    for at in range(2):
        want = train_image_text.step(here, optimisers[0], row, Images(), 0, at)
        with there.works(waits=0):
            got = train_image_text.step(moved, optimisers[1], row, Images(), 0, at)
        there.same(want, got)


def test_a_step_after_a_kill_never_waits(there, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, there.device.type)
    take = train_image_text.step

    def step(*arguments):
        with there.works(waits=0):
            return take(*arguments)

    monkeypatch.setattr(train_image_text, "step", step)
    for steps in (1, 2):  # the second training continues the first one
        keys = {"image": {"size": 16, "width": 8}, "steps": steps, "warmup": 1}
        row = TrainImageText.model_validate(IMAGE_TEXT | keys)
        train_image_text.train(row, Images(), Words([""] * 20), 0, tmp_path, lambda *_: None)


# ---------------------------------------------------------------- which device


def test_auto_obeys_the_environment_and_ranks_have_own_gpus(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve() == torch.device("cpu")
    monkeypatch.setenv(VARIABLE, "")
    assert resolve() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pretend_device.started():
        monkeypatch.setenv(VARIABLE, pretend_device.NAME)
        assert resolve() == pretend_device.DEVICE
        assert resolve("cpu") == torch.device("cpu")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert resolve() == resolve("cuda") == torch.device("cuda", 1)
    assert resolve("cuda:0") == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv(VARIABLE, "cuda:0")
    several = "is a single device, but several processes run: write `cuda`, and each process gets its own$"
    with refusal(f"^{VARIABLE}: cuda:0 {several}"):
        resolve()
    with refusal(f"^device: cuda:1 {several}"):
        resolve("cuda:1")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    few = "`processes` is 2, but this machine has 1 GPU: lower it, or set `device: cpu`"
    with refusal(f"^{re.escape(few)}$"):
        resolve()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    with refusal(r"^device: cuda:2 is not here: this machine has 2 of type cuda$"):
        resolve("cuda:2")
    monkeypatch.setenv(VARIABLE, "gpu")
    with refusal(f"^{VARIABLE}: 'gpu' is none of auto, cpu, "):
        resolve()
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in ("mps", "no such"):
        with refusal(r"^device: .+$"):
            resolve(name)
