"""vec2vec: losses against numpy, steps against a straightforward reference, the loop, and what it refuses."""

import copy
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize
from torch.testing import assert_close

from pipelines.aligners.core.cloud import dimensions
from pipelines.aligners.core.translator import load, save
from pipelines.aligners.vec2vec import Settings, fit, graph, losses
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.selection import Best
from pipelines.aligners.vec2vec.settings import MULTISTART, PAPER
from pipelines.aligners.vec2vec.training import Training
from pipelines.measures.translation import paired_scores
from pipelines.study import Align, settings_of
from tests.reference_vec2vec import Reference
from tests.small import normal, refusal, rotation, seeded, sinkhorn

D, E = 12, 16
DIMS = {"source": D, "target": E}
SIZES = {"width": 24, "disc_width": 20, "disc_depth": 3, "batch": 32, "steps": 8, "warmup": 3}
SIZES |= {"log_every": 2, "checkpoint_every": 3, "min_steps": 0, "warmup_from": 1}
SMALL = Settings(**SIZES, dropout=0.0, lr=1e-3, disc_lr=1e-3, max_grad_norm=10.0)
STARTS = {"starts": (4, 2), "start_axes": (4, 6), "start_steps": 3, "lr": 3.0, "precision": "float32"}
LINEAR = Settings(**MULTISTART | SIZES | STARTS)
ONE_START = replace(LINEAR, starts=(), start_axes=())
TRANSPORT_ONLY = replace(ONE_START, gan_weight=0.0)


def training(settings=SMALL):
    torch.manual_seed(0)
    return Training(Vec2Vec(DIMS, **settings.shape), DIMS, settings)


def batch(seed=1, dtype=torch.float32):
    g = seeded(seed)
    return {name: normalize(torch.randn(32, d, generator=g)).to(dtype) for name, d in DIMS.items()}


def clouds():
    g = seeded(2)
    return torch.randn(200, D, generator=g) + 0.5, 3 * torch.randn(200, E, generator=g)


def fitted(settings, **more):
    """Fit both clouds with seed 5."""
    return fit(*clouds(), settings, 5, **more)


def topics():
    """Return points (6500, 256) of a clustered cloud, and the same points rotated."""
    g = seeded(3)
    spectrum = torch.arange(1, 257) ** -0.35
    centres = torch.randn(150, 256, generator=g) * spectrum
    sizes = torch.arange(1, 151) ** -0.3
    noise = 0.7 * torch.randn(6500, 256, generator=g) * spectrum
    points = centres[torch.multinomial(sizes, 6500, replacement=True, generator=g)] + noise
    return points, points @ rotation(256, 256, g)


class Killed(Exception):
    pass


def scores_of(seen, last=None):
    """Return a log that appends steps and unpaired scores to `seen`, and kills the fit at step `last`."""

    def log(metrics, step):
        if "unpaired/score" in metrics:
            seen.append((step, metrics["unpaired/score"]))
            if step == last:
                raise Killed

    return log


def killed(settings, folder):
    """Kill a fit at step 4; its checkpoint is of step 3. Return the steps and scores that were logged."""
    seen = []
    with pytest.raises(Killed):
        fitted(settings, log=scores_of(seen, 4), folder=folder)
    return seen


# ---------------------------------------------------------------- losses, against numpy in float64

# The tests of the released steps and of the paper's objective check the other losses

L, M = np.random.default_rng(0).normal(size=(2, 9, 1))


def entropy(logits, label):
    p = 1 / (1 + np.exp(-logits))
    return -(label * np.log(p) + (1 - label) * np.log(1 - p)).mean()


GAN = {  # of the discriminator and of the generator, by form and whether labels are swapped
    ("least_squares", False): (((L - 1) ** 2).mean() / 2 + (M**2).mean() / 2, ((M - 1) ** 2).mean() / 2),
    ("vanilla", False): ((entropy(L, 0.9) + entropy(M, 0.1)) / 2, entropy(M, 1)),
    ("vanilla", True): ((entropy(L, 0.1) + entropy(M, 0.9)) / 2, entropy(M, 0)),
}


@pytest.mark.parametrize(("gan", "swapped"), GAN)
def test_gan_losses(gan, swapped):
    real, fake = torch.tensor(L), torch.tensor(M)
    got = losses.discriminator_loss(real, fake, gan, swapped), losses.generator_loss(fake, gan, swapped)
    assert [loss.item() for loss in got] == pytest.approx(GAN[gan, swapped], rel=1e-12)


def test_transport_is_sinkhorns_with_a_constant_plan():
    g = np.random.default_rng(0)
    x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in g.normal(size=(2, 30, 6)))
    plan = sinkhorn(torch.tensor(x @ y.T), 10).numpy()
    moved = torch.tensor(x, requires_grad=True)
    loss = losses.transport_loss(moved, torch.tensor(y), 10.0)
    loss.backward()
    # the plan is in bf16 where the CPU supports it
    assert loss.item() == pytest.approx(1 - (plan * (x @ y.T)).sum() / 30, abs=0.01)
    np.testing.assert_allclose(moved.grad, -plan @ y / 30, atol=1e-3)


# ---------------------------------------------------------------- one step


@pytest.mark.parametrize(("depth", "norm"), [(3, "batch"), (5, "batch"), (3, "layer")])
def test_five_released_steps_equal_the_reference(depth, norm):
    released = {"warmup_from": 0, "max_grad_norm": 1000.0}
    mine = training(replace(SMALL, **released, adapter_depth=depth, norm=norm, lr=0.05))
    mine.model.double(), mine.discriminators.double()
    reference, model = Reference(mine, D, E), mine.model
    for seed in range(5):
        x = batch(seed, torch.float64)
        want, before = reference.step(x["source"], x["target"]), copy.deepcopy(model.state_dict())
        got = mine.step(x)
        assert {k: float(got[k]) for k in want} == pytest.approx(want, rel=1e-11)
        # the first rate is 0
        assert any(not torch.equal(p, before[k]) for k, p in model.named_parameters()) == (seed > 0)
    assert float(got["gradient/translator"]) < 1000
    parts = torch.nn.ModuleList([*model.inputs.values(), *model.outputs.values(), model.backbone])
    weights = [*reference.translator.parameters()]
    assert_close([*parts.parameters()], weights, rtol=1e-9, atol=1e-10)
    statistics = [v for k, v in model.named_buffers() if "running" in k or "batches" in k]
    assert_close(statistics, [*reference.translator.buffers()], rtol=1e-9, atol=1e-9)


def test_the_papers_objective_is_that_of_its_equations():
    mine = training(replace(SMALL, **PAPER))
    model, x = mine.model, batch()
    got = {name: loss.item() for name, (loss, _) in mine.geometry_losses(mine.forward(x)).items()}
    want = dict.fromkeys(("reconstruction", "cycle", "vsp"), 0.0)
    for here, there in (("source", "target"), ("target", "source")):
        a, moved = x[here], model.translate(x[here], here, there)
        want["reconstruction"] += (a - model.translate(a, here, here)).square().sum(1).mean()
        want["cycle"] += (a - model.translate(moved, there, here)).square().sum(1).mean()
        want["vsp"] += (a @ a.T - moved @ moved.T).square().mean()
    assert got == pytest.approx({k: v.item() for k, v in want.items()}, rel=1e-4)
    assert set(mine.discriminators) == {"source", "target", "latent", "latent_back"}
    assert isinstance(model.backbone.layers[1][2], torch.nn.LayerNorm)
    adversarial = mine.translator_losses(mine.forward(x))["generator_target"][0].item()
    logits = mine.discriminators["target"](model.translate(x["source"], "source", "target"))
    assert adversarial == pytest.approx(entropy(logits.detach().numpy(), 1), rel=1e-4)


@pytest.mark.parametrize(("objective", "detach"), [("code", True), ("paper", False)])
def test_a_detached_cycle_trains_no_first_translation(objective, detach):
    mine, x = training(replace(SMALL, objective=objective)), batch()
    x["source"].requires_grad_()
    cycle = mine.forward(x).cycles["source", "target"].sum()
    (gradient,) = torch.autograd.grad(cycle, x["source"], allow_unused=True)
    assert (gradient is None) == detach


@pytest.mark.parametrize("gan", ["least_squares", "vanilla"])
def test_bf16_has_close_losses_and_float32_weights(gan):
    settings = replace(SMALL, gan=gan)
    half = training(replace(settings, precision="bf16"))
    want, got = training(settings).step(batch()), half.step(batch())
    for name in want:
        if name.startswith("loss/gen"):
            assert float(got[name]) == pytest.approx(float(want[name]), abs=0.03)
    assert float(got["loss/translator"]) == pytest.approx(float(want["loss/translator"]), rel=0.01)
    assert {p.dtype for p in half.model.parameters()} == {torch.float32}


def test_a_replayed_step_is_the_plain_one(monkeypatch):
    def record(update, device):  # a pretended CUDA graph: it carries nothing out before it is replayed
        out = torch.zeros(len(fast.names))
        return lambda: out.copy_(update()), out

    monkeypatch.setattr(graph, "record", record)
    monkeypatch.setattr(graph, "side_stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", bool)
    plain, fast = training(), training()
    fast.as_graph = True
    fast.limit_axes(None, 30.0)
    for seed in range(8):
        assert_close(fast.step(batch(seed)), plain.step(batch(seed)))
    assert_close(fast.unread, plain.unread)


def test_gradients_are_clipped_and_norms_logged_before_it():
    mine = training(replace(SMALL, max_grad_norm=1e-3))
    metrics = mine.step(batch())
    norm = torch.stack([p.grad.norm() for p in mine.model.parameters() if p.grad is not None]).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)
    assert float(metrics["gradient/translator"]) > 0.1


def test_check_names_the_first_step_and_loss_that_is_nan():
    mine = training()
    mine.step(batch())
    with torch.no_grad():
        next(mine.model.outputs.parameters())[0, 0] = float("nan")
    mine.step(batch())
    mine.step(batch())
    with refusal(r"^vec2vec: step 1: loss/\w+ is nan"):
        mine.check()


def test_losses_of_weight_zero_are_not_computed():
    metrics = training(TRANSPORT_ONLY).step(batch())
    assert set(metrics) == {"loss/transport", "loss/translator", "gradient/translator"}
    assert metrics["loss/translator"] == metrics["loss/transport"]


# ---------------------------------------------------------------- networks and translators


SUBSPACE = replace(SMALL, steps=2, centre=True, subspace=5)


@pytest.mark.parametrize("settings", [SMALL, SUBSPACE, ONE_START])
def test_a_saved_translator_of_either_direction_translates_alike(settings, tmp_path):
    x, y = clouds()
    translator = fit(x, y, replace(settings, steps=2), 0)
    back = translator.between("target", "source")
    for one, vectors, other in ((translator, x, y), (back, y, x)):
        save(one, tmp_path / "saved")
        assert torch.equal(load(tmp_path / "saved")(vectors), one(vectors))
        assert one(vectors).shape == other.shape


def test_translations_have_the_targets_centre():
    x, y = clouds()
    translator = fit(x, y, replace(SMALL, steps=0, centre=True), 0)
    with torch.no_grad():
        radius = (translator(x) - y.mean(0)).norm(dim=1)
    assert torch.allclose(radius, (y - y.mean(0)).norm(dim=1).mean(), rtol=1e-4)


def test_principal_axes_are_uncorrelated_and_fall_in_variance():
    x, y = clouds()
    translator = fit(x @ normal(D, D), y, replace(LINEAR, steps=2), 0)
    seen = translator.prepared(y, "target")
    spread = seen.T @ seen
    assert torch.allclose(spread, torch.diag(spread.diagonal()), atol=1e-3)
    assert (spread.diagonal().diff() <= 1e-4).all()
    raw = seen @ translator.get_buffer("target_axes").T
    assert torch.allclose(raw, normalize(y - y.mean(0)), atol=1e-5)


@pytest.mark.parametrize("axes", ["raw", "principal"])
def test_a_subspace_holds_the_largest_variances(axes):
    x, y = clouds()
    settings = replace(SUBSPACE, axes=axes)
    turned = x @ rotation(D, D, seeded(3))
    plain, other = (fit(z, y, settings, 0) for z in (x, turned))
    rows, turned_rows = plain.prepared(x, "source"), other.prepared(turned, "source")
    assert rows.shape == (len(x), 5)
    assert torch.allclose(rows @ rows.T, turned_rows @ turned_rows.T, atol=1e-4)
    centred = normalize(x - x.mean(0))
    kept = (centred @ plain.get_buffer("source_axes")).square().sum()
    assert kept == pytest.approx(float(torch.linalg.svdvals(centred)[:5].square().sum()), rel=1e-4)
    assert torch.linalg.matrix_rank(plain(x) - y.mean(0), rtol=1e-4) <= 5


# ---------------------------------------------------------------- the loop


@pytest.mark.parametrize("settings", [replace(SMALL, dropout=0.2), LINEAR, TRANSPORT_ONLY])
def test_a_killed_run_resumes_bit_for_bit(tmp_path, settings):
    whole, after = [], []
    want = fitted(settings, log=scores_of(whole))
    before = killed(settings, tmp_path)
    torch.manual_seed(99)  # the caller's random state does not matter
    got = fitted(settings, log=scores_of(after), folder=tmp_path)
    assert_close(got.state_dict(), want.state_dict(), rtol=0, atol=0)
    assert (before, after) == (whole[:3], whole[2:])  # steps 0 2 4, then 4 6 8
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "change"),
    [(replace(SMALL, lr=1e-4), torch.clone), (SMALL, lambda x: x.flip(0))],  # rows in another order
)
def test_a_checkpoint_of_other_settings_or_vectors_is_not_continued(tmp_path, caplog, settings, change):
    whole = [cloud.round() for cloud in clouds()]  # their sums are exact in any order
    with pytest.raises(Killed):
        fit(*whole, SMALL, 5, log=scores_of([], 4), folder=tmp_path)
    changed = [change(cloud) for cloud in whole]
    got, want = [], []
    for folder, seen in ((tmp_path, got), (None, want)):
        fit(*changed, settings, 5, log=scores_of(seen), folder=folder)
    assert got == want  # from step 0 on
    said = "of other settings or vectors; the fit starts over"
    assert caplog.messages == [f"{tmp_path / 'vec2vec-5.pt'}: {said}"]


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        # of 150 rows 135 are trained on, in 4 batches of 32; patience does not stop before the last step
        ({"steps": None, "epochs": 3, "min_steps": None, "patience": 1}, range(0, 13, 2)),
        ({"steps": 4, "epochs": 3}, range(0, 5, 2)),
        # nothing changes, so nothing improves
        ({"lr": 0.0, "norm": "layer", "steps": 1000, "patience": 3}, range(0, 7, 2)),
    ],
)
def test_when_training_stops(keys, want):
    (x, y), seen = clouds(), []
    fit(x, y[:150], replace(SMALL, **keys), 0, log=lambda m, step: seen.append(step))
    assert seen == [*want]


def test_live_curves_have_gradients_accuracies_and_the_score():
    seen = {}
    fitted(SMALL, log=lambda m, step: seen.update(m))
    want = {"loss/generator_latent", "gradient/discriminator_source", "gradient/translator"}
    want |= {f"unpaired/{n}" for n in ("share", "cosine", "cycle", "score", "best_step")}
    assert want <= set(seen)
    assert all(0 <= seen[f"accuracy/{space}"] <= 1 for space in ("source", "target", "latent"))


# ---------------------------------------------------------------- selection


def test_the_best_state_is_kept_not_the_last():
    model, best = torch.nn.Linear(2, 2), Best()
    kept = model.weight.clone()
    best.update(0.5, 10, model)
    torch.nn.init.zeros_(model.weight)
    best.update(0.4, 20, model)
    assert torch.equal(best.state["weight"], kept)
    assert (best.step, best.stale) == (10, 1)


@pytest.mark.parametrize("weight", [pytest.param(0.0, marks=pytest.mark.slow), 0.01])
def test_multistart_finds_a_rotation(weight):
    points, moved = topics()
    assert dimensions(points) > 64
    few = {"starts": [8, 2], "start_axes": [32, 64], "start_steps": 20, "steps": 60, "width": 256}
    settings = settings_of("vec2vec", {"recipe": "multistart", "gan_weight": weight, "batch": 512, **few})
    translator = fit(points[:3000], moved[3000:6000], settings, 0)
    back = translator.between("target", "source")
    unseen, true = points[6000:], moved[6000:]
    with torch.no_grad():
        assert paired_scores(translator(unseen), true)["top1"].mean() > 0.95
        assert paired_scores(back(true), unseen)["top1"].mean() > 0.95


def test_the_adversary_alone_finds_a_rotation_by_matrices():
    g = seeded(3)
    points = torch.randn(12, 8, generator=g)[torch.randint(12, (6500,), generator=g)] + 0.3 * normal(6500, 8)
    moved = points @ rotation(8, 8, g)
    none = ("latent_gan_weight", "rec_weight", "vsp_weight", "cycle_weight", "cycle_vsp_weight")
    matrices = {"adapter_depth": 0, "backbone_depth": 0, "width": 64, "damping": 0.01}
    speed = {"optimiser": "sgd", "lr": 0.1, "max_grad_norm": 1, "warmup": 20, "steps": 1000}
    discriminator = {"gan": "vanilla", "disc_width": 128, "disc_depth": 3, "disc_lr": 1e-3}
    settings = settings_of("vec2vec", dict.fromkeys(none, 0) | matrices | speed | discriminator)
    translator = fit(points[:3000], moved[3000:6000], settings, 0)
    with torch.no_grad():
        assert paired_scores(translator(points[6000:]), moved[6000:])["top1"].mean() > 0.8


# ---------------------------------------------------------------- settings and bad input


def test_the_defaults_are_the_released_configuration():
    s = settings_of("vec2vec", {"recipe": "released"})
    assert s == Settings()
    assert (s.width, s.adapter_depth, s.backbone_depth, s.disc_depth, s.batch) == (1024, 3, 4, 5, 256)
    assert (s.rec_weight, s.vsp_weight, s.cycle_weight, s.cycle_vsp_weight) == (1, 1, 10, 10)
    assert (s.lr, s.disc_lr, s.warmup, s.norm, s.gan) == (2e-5, 1e-5, 2000, "batch", "least_squares")
    assert (s.steps, s.epochs, s.min_steps, s.patience, s.max_grad_norm) == (None, 80, None, 20, 1000)


def test_keys_of_a_row_override_its_recipe():
    def settings(**keys):
        return Align(source="a", target="b", aligner="vec2vec", **keys).settings

    paper = settings(recipe="paper")
    assert paper == Settings(recipe="paper", **PAPER)
    assert settings(recipe="paper", objective="code", width=64) == replace(paper, objective="code", width=64)


def test_bad_vectors_and_known_pairs_are_refused():
    with refusal("target: 3 vectors"):
        fit(torch.randn(50, 3), torch.randn(3, 3), SMALL, 0)
    with refusal("known pairs"):
        fitted(SMALL, pairs=torch.tensor([[0, 0]]))
