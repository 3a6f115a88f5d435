"""Every stage's computation on a pretend accelerator: it happens there, mixes no devices, and gives the CPU's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pretend_device
import pytest
import torch
from torch import Tensor

from pipelines.aligners import identity, mini_vec2vec, procrustes, transport, vec2vec, wasserstein_procrustes
from pipelines.aligners.core import matching
from pipelines.aligners.core.translator import Translator, load, save
from pipelines.aligners.core.verdict import judge


@pytest.fixture
def device(monkeypatch) -> Iterator[pretend_device.Record]:
    monkeypatch.setattr(matching, "_has_bf16", lambda vectors: False)  # a CPU's alone: with it the numbers are others
    with pretend_device.started() as record:
        yield record


def clouds(n: int = 300, d: int = 24, e: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(n, d) and (n, e): two views of one clustered cloud, row i of both one text."""
    g = torch.Generator().manual_seed(seed)
    points = torch.randn(8, e, generator=g)[torch.randint(8, (n,), generator=g)] * 2 + torch.randn(n, e, generator=g)
    return points @ torch.randn(e, d, generator=g) / e**0.5, points + 0.05 * torch.randn(n, e, generator=g)


NETWORK = vec2vec.Settings(
    width=24, disc_width=20, disc_depth=3, dropout=0.0, batch=32, steps=8, warmup=3, lr=1e-3, disc_lr=1e-3, log_every=4
)
WASSERSTEIN = wasserstein_procrustes.Settings(
    clusters=6, repeats=4, restarts=3, rounds=(100,), round_steps=2, refinements=4, passes=2, anchors=100
)
MINI = mini_vec2vec.Settings(clusters=5, repeats=3, restarts=3, neighbours=5, refine_steps=5, refine_batch=64, refine_clusters=10)
FITS: dict[str, Callable[[Tensor, Tensor], Translator]] = {
    "wasserstein_procrustes": lambda x, y: wasserstein_procrustes.fit(x, y, WASSERSTEIN, 0),
    "known_pairs": lambda x, y: wasserstein_procrustes.fit(x, y, WASSERSTEIN, 0, torch.tensor([[0, 0], [3, 3]])),
    "mini_vec2vec": lambda x, y: mini_vec2vec.fit(x, y, MINI, 0),
    "vec2vec": lambda x, y: vec2vec.fit(x, y, NETWORK, 0),
    "identity": lambda x, y: identity.fit(x, y, identity.Settings(), 0),
    "orthogonal": lambda x, y: procrustes.fit_oracle(x, y, procrustes.Settings(), 0),
    "least_squares": lambda x, y: procrustes.fit_oracle(x, y, procrustes.Settings(map="least_squares"), 0),
    "sinkhorn": lambda x, y: transport.fit_oracle(x, y, transport.Settings(method="sinkhorn", points=60), 0),
    "hungarian": lambda x, y: transport.fit_oracle(x, y, transport.Settings(method="hungarian", points=60), 0),
    "gromov": lambda x, y: transport.fit_oracle(x, y, transport.Settings(points=40, regularisation=0.1), 0),
}


def there(*tensors: Tensor) -> list[Tensor]:
    return [t.to(pretend_device.DEVICE) for t in tensors]


def near(here: Tensor, one: Tensor) -> None:
    assert one.device.type == pretend_device.NAME
    torch.testing.assert_close(one.cpu(), here, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("name", FITS)
def test_an_alignment_happens_where_its_vectors_are(name, device, tmp_path):
    x, y = clouds()
    here = FITS[name](x, y).eval()
    a, b = there(x, y)
    before = device.operations.total()
    translator = FITS[name](a, b).eval()
    assert device.operations.total() > before
    near(here(x), translator(a))
    save(translator, tmp_path / "t")
    torch.testing.assert_close(load(tmp_path / "t")(x), translator(a).cpu())


def test_a_verdict_is_given_where_the_vectors_are(device):
    x, y = clouds()
    fits = [FITS["wasserstein_procrustes"](x, y), FITS["orthogonal"](x, y)]
    here = judge(x, fits[0], fits[1:])
    before = device.operations.total()
    one = judge(there(x)[0], fits[0].to(pretend_device.DEVICE), [fits[1].to(pretend_device.DEVICE)])
    assert device.operations.total() > before
    assert (one.word, one.agreement) == (here.word, pytest.approx(here.agreement, abs=1e-5))
