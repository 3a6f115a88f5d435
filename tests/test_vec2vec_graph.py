"""A step of vec2vec as one graph: the same losses as the plain step, nothing left to Python, nothing trained twice or lost.

Graphs are pretended here (tests/pretend_graph.py) and real with `pytest -m cuda`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import pretend_device
import pretend_graph
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners import vec2vec
from pipelines.aligners.core.translator import load
from pipelines.aligners.vec2vec import Batches, Settings, graph
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.recipes import PAPER
from pipelines.aligners.vec2vec.step import Training, tf32
from pipelines.runtime.errors import BadInput

DIMS = {"source": 12, "target": 16}
SETTINGS = Settings(
    width=24, disc_width=20, disc_depth=3, dropout=0.1, noise=0.1, ema=0.9, batch=32, steps=64, warmup=10, lr=1e-3, disc_lr=1e-3,
    log_every=16, checkpoint_every=24, min_steps=0, held_out=20,
)  # fmt: skip
LINEAR = replace(
    SETTINGS, adapter_depth=0, backbone_depth=0, optimiser="sgd", lr=0.3, damping=0.1, straight=0.5, gan="vanilla",
    max_grad_norm=1.0, gan_weight=0.01, latent_gan_weight=0.0, rec_weight=0.0, vsp_weight=0.0, cycle_weight=0.0,
    cycle_vsp_weight=0.0, transport_weight=1.0,
)  # fmt: skip
STEPS = 56


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def captures(monkeypatch) -> list[torch.device]:
    """Graphs are pretended; one element for each capture."""
    devices = []

    def capture(step, device):
        devices.append(device)
        return pretend_graph.capture(step, device)

    monkeypatch.setattr(graph, "capture", capture)
    return devices


def clouds(n: int = 150) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(2)
    return {name: normalize(torch.randn(n, d, generator=g), dim=1) for name, d in DIMS.items()}


def started(settings: Settings, device: str = "cpu") -> tuple[Training, dict[str, Batches]]:
    torch.manual_seed(0)
    training = Training(Vec2Vec(DIMS, **settings.shape).to(device), DIMS, settings)
    batches = {name: Batches(rows.to(device), 32, seed) for seed, (name, rows) in enumerate(clouds().items())}
    torch.manual_seed(1)  # dropout and noise
    return training, batches


def curve(
    settings: Settings, steps: int = STEPS, device: str = "cpu"
) -> tuple[list[dict[str, float]], Training]:
    """Each step's metrics, read now and then."""
    training, batches = started(settings, device)
    advance, seen = graph.stepper(training, batches, settings.log_every), []
    check = training._check
    training._check = lambda step, values: seen.append(values) or check(step, values)  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(steps):
        advance()
    training.check()
    return seen, training


def assert_same(got: list[dict[str, float]], want: list[dict[str, float]], tolerance: float) -> None:
    assert len(got) == len(want)
    for step, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a == pytest.approx(b, rel=tolerance, abs=tolerance), step


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        (SETTINGS, 1e-6),
        (replace(SETTINGS, spectral=True, gradient_penalty=0.1, gan="relativistic", norm="layer"), 1e-6),
        (replace(SETTINGS, **PAPER), 1e-6),
        (LINEAR, 1e-5),  # a fused SGD rounds otherwise than torch's plain one
    ],
)
def test_a_replayed_step_is_the_plain_one(settings, tolerance, captures):
    want, plain = curve(replace(settings, step="plain"))
    got, replayed = curve(replace(settings, step="graph"))
    assert len(captures) == 1
    assert_same(got, want, tolerance)
    for name in ("model", "average", "discriminators"):
        torch.testing.assert_close(
            getattr(replayed, name).state_dict(),
            getattr(plain, name).state_dict(),
            rtol=10 * tolerance,
            atol=10 * tolerance,
        )


def test_a_step_never_waits_for_the_device_and_reads_no_number_of_pythons(monkeypatch):
    settings = replace(SETTINGS, dropout=0.0, noise=0.0, step="graph")
    want, _ = curve(replace(settings, step="plain"), 8)
    with pretend_device.started() as record:
        torch.manual_seed(0)
        model = Vec2Vec(DIMS, **settings.shape)
        training = Training(model.to(pretend_device.DEVICE), DIMS, settings)
        training.discriminators.load_state_dict(started(settings)[0].discriminators.state_dict())
        batches = {
            n: Batches(c.to(pretend_device.DEVICE), 32, i) for i, (n, c) in enumerate(clouds().items())
        }
        stretches = graph.Stretches(training, batches, 32)
        stretches._fill()
        before = record.waits
        for _ in range(8):
            graph.step_on(training, stretches.buffers)  # the host counts nothing
        assert record.waits == before
        assert stretches.buffers.metrics is not None
        got = stretches.buffers.metrics[:8].tolist()
    assert_same([dict(zip(training.names, row, strict=True)) for row in got], want, 2e-4)


def test_narrowing_and_restoring_are_captured_anew(captures):
    training, batches = started(replace(LINEAR, step="graph"))
    advance = graph.stepper(training, batches, 16)

    def steps(count):
        for _ in range(count):
            advance()
        training.check()
        return dict(training.seen)

    steps(10)
    state = copy.deepcopy(training.state())
    whole = steps(10)
    assert len(captures) == 1
    training.restore(state)
    assert steps(10) == pytest.approx(whole, rel=1e-6)
    assert len(captures) == 2
    training.narrow(6, 9.0)
    narrow = steps(8)
    assert len(captures) == 3
    assert abs(narrow["loss/transport"] - whole["loss/transport"]) > 1e-3


class Killed(Exception):
    pass


def test_a_killed_run_resumes_bit_for_bit(tmp_path, captures):
    source, target = clouds(200).values()
    settings = replace(SETTINGS, step="graph", steps=40)
    scores, again = {}, {}
    want = vec2vec.fit(
        source, target, settings, 5, log=lambda m, step: scores.update({step: m["unpaired/score"]})
    )

    def die(metrics, step):
        if step == 32:  # the checkpoint is of step 24, within a stretch
            raise Killed

    with pytest.raises(Killed):
        vec2vec.fit(source, target, settings, 5, log=die, folder=tmp_path)
    got = vec2vec.fit(
        source, target, settings, 5, log=lambda m, s: again.update({s: m["unpaired/score"]}), folder=tmp_path
    )
    assert again == {step: score for step, score in scores.items() if step > 24}
    assert all(torch.equal(v, got.state_dict()[k]) for k, v in want.state_dict().items())
    plain = vec2vec.fit(source, target, replace(settings, step="plain"), 5)
    torch.testing.assert_close(got.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "graph"])
def test_a_run_that_ends_in_nan_names_the_first_bad_step_and_keeps_its_best_state(
    kind, tmp_path, captures, monkeypatch
):
    source, target = clouds(200).values()
    scheduled = Training.scheduled

    def with_a_bad_rate(training, step):
        now = scheduled(training, step)
        return replace(now, lr=float("nan")) if step == 6 else now

    monkeypatch.setattr(Training, "scheduled", with_a_bad_rate)
    settings = replace(SETTINGS, log_every=4)
    with pytest.raises(
        BadInput, match=r"^vec2vec: step 7: loss/\w+ is nan.*; its best state, of step \d with [^\n]*$"
    ) as error:
        vec2vec.fit(source, target, replace(settings, step=kind), 0, folder=tmp_path)
    assert str(tmp_path / "vec2vec-0-best") in str(error.value)
    assert load(tmp_path / "vec2vec-0-best")(source).isfinite().all()
    with pytest.raises(BadInput, match=r"no state of it is kept, as no folder was named$"):
        vec2vec.fit(source, target, replace(settings, step=kind), 0)


def test_a_collapsed_discriminator_is_named_with_its_step(captures):
    training, batches = started(replace(SETTINGS, disc_lr=0.0, noise=0.0, collapse_steps=9, step="graph"))
    with torch.no_grad():
        list(training.discriminators["target"].parameters())[-2].zero_()  # the last layer's matrix
    advance = graph.stepper(training, batches, 12)
    for _ in range(12):
        advance()
    with pytest.raises(BadInput, match=r"step 8: discriminator target has collapsed: for 9 steps"):
        advance()  # the next stretch reads this one first


def test_products_are_in_tf32_within_the_block_only():
    before = torch.get_float32_matmul_precision()
    with tf32(True):
        assert torch.get_float32_matmul_precision() == "high"
    with pytest.raises(KeyError), tf32(True):
        raise KeyError
    with tf32(False):
        assert torch.get_float32_matmul_precision() == before
    assert torch.get_float32_matmul_precision() == before


def test_a_derivative_of_a_derivative_cannot_be_compiled():
    with pytest.raises(ValueError, match="gradient_penalty"):
        replace(SETTINGS, step="compiled", gradient_penalty=1.0)


@pytest.mark.slow
def test_compiled_losses_are_the_plain_ones():
    settings = replace(SETTINGS, adapter_depth=2, backbone_depth=2, disc_depth=2)
    want, _ = curve(replace(settings, step="plain"), 8)
    got, _ = curve(replace(settings, step="compiled"), 8)
    assert_same(got, want, 1e-4)


cuda = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]


@pytest.mark.parametrize(
    "kind", [pytest.param("graph", marks=cuda), pytest.param("compiled", marks=[*cuda, pytest.mark.slow])]
)
def test_a_cuda_graph_gives_the_plain_losses_with_one_graph_launch_a_step(kind):
    settings = replace(SETTINGS, tf32=False)
    want, _ = curve(replace(settings, step="plain"), 50, "cuda")
    got, training = curve(replace(settings, step=kind), 50, "cuda")
    assert_same(got, want, 2e-2)
    batches = {name: Batches(rows.to("cuda"), 32, seed) for seed, (name, rows) in enumerate(clouds().items())}
    advance = graph.stepper(training, batches, 100)
    for _ in range(graph.WARM_UP + 1):
        advance()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(10):
            advance()
        torch.cuda.synchronize()
    launches = {e.key: e.count for e in profile.key_averages() if "Launch" in e.key}
    assert launches.pop("cudaGraphLaunch") == 10
    assert (
        sum(launches.values()) <= 20
    )  # torch tells each replay the seed and the offset of its random numbers
