"""Fit, load and judge translators from Python: `from pipelines import fit, load, verdict`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipelines.aligners import wasserstein_procrustes
from pipelines.aligners.core.cloud import checked
from pipelines.aligners.core.translator import Linear, Translator, load_best, load_seeds
from pipelines.aligners.core.verdict import Verdict, judge, replicate
from pipelines.runtime.errors import BadInput


def load(folder: str | Path, seed: int | None = None) -> Translator:
    """Read a translator of data/translators/<row>: that of `seed`, else the one with the best verdict.

    It takes vectors (n, d) and returns (n, e), both NumPy arrays or both tensors. Raises BadInput if it does
    not exist.
    """
    if seed is None:
        return load_best(Path(folder))
    seeds = load_seeds(Path(folder))
    if seed not in seeds:
        raise BadInput(f"{folder}: there is no seed {seed}; there are: {', '.join(map(str, seeds))}")
    return seeds[seed]


def fit(source: Any, target: Any, seed: int = 0, **settings: Any) -> tuple[Linear, Verdict]:
    """Fit a translator of source (n, d) to the space of target (m, e) without pairs, and judge it.

    The method is Wasserstein Procrustes; settings are those of a row of `align`. The texts of both sides
    should be of one kind and in random order. Raises BadInput for vectors that cannot be aligned.

    >>> from pipelines import fit
    >>> random = np.random.default_rng(0)
    >>> topics, shares = random.normal(size=(40, 64)), np.linspace(1, 4, 40)
    >>> of = random.choice(40, 3000, p=shares / shares.sum())
    >>> texts = (topics[of] + 0.5 * random.normal(size=(3000, 64))) * np.linspace(2, 0.5, 64)
    >>> rotation, _ = np.linalg.qr(random.normal(size=(64, 64)))
    >>> quick = dict(clusters=40, repeats=10, rounds=(500, 500), refinements=20, passes=2)
    >>> translator, verdict = fit(texts[:1500], texts[1500:] @ rotation, **quick)
    >>> translator(texts[:5]).shape
    (5, 64)
    >>> verdict.agreement > 0.5, verdict.dimensions < 20, verdict.label  # right, but few dimensions
    (True, True, 'doubtful')
    """
    chosen = wasserstein_procrustes.Settings(**settings)

    def method(x: Any, y: Any, seed: int) -> Linear:
        return wasserstein_procrustes.fit(x, y, chosen, seed)

    source, target = _tensor("source", source), _tensor("target", target)
    translator = method(source, target, seed)
    return translator, judge(source, translator, [replicate(method, source, target, seed)])


def verdict(
    fit: Callable[[np.ndarray, np.ndarray, int], Callable[[np.ndarray], Any]],
    source: Any,
    target: Any,
    seed: int = 0,
) -> Verdict:
    """Judge any aligner's map of source vectors (n, d) to the space of target vectors (m, e), without pairs.

    `fit(source, target, seed)` takes float32 arrays and returns a function of arrays (n, d) -> (n, e). It is
    called twice, the second time with another seed on half of the vectors: two right maps agree, two wrong
    ones do not. The verdict is meaningless for a function that always returns the same map.

    >>> from pipelines import verdict
    >>> random = np.random.default_rng(0)
    >>> vectors = random.normal(size=(1000, 64))
    >>> def guess(source, target, seed):
    ...     rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(64, 64)))
    ...     return lambda vectors: vectors @ rotation
    >>> verdict(guess, vectors, vectors).label
    'failed'
    """
    source, target = _tensor("source", source), _tensor("target", target)

    def method(x: torch.Tensor, y: torch.Tensor, seed: int) -> Any:
        map = fit(x.numpy(), y.numpy(), seed)
        return lambda vectors: torch.as_tensor(np.asarray(map(vectors.numpy())))

    return judge(source, method(source, target, seed), [replicate(method, source, target, seed)])


def _tensor(name: str, vectors: Any) -> torch.Tensor:
    """Return vectors (n, d) as float32. Raises BadInput for anything else."""
    return checked(name, torch.as_tensor(vectors))
