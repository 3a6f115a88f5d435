"""Measure the cost of a training step with point sets relative to CLIP, and the error of gridded frequencies.

    python -m benchmarks.point_sets [--batch 256] [--steps 10] [--threads 2] [--seeds 20]

Both models have the same encoders. Their steps alternate, so that other load on the machine affects both
alike. The ratio is that of the medians.
"""

import argparse
import statistics
import time

import numpy as np
import torch
from scipy import special

from pipelines import train_image_text
from pipelines.contrastive.kernels import Fourier, Kernel, PointSets, exact, features, fourier
from pipelines.contrastive.point_sets import DualEncoder
from pipelines.contrastive.towers import CONTEXT
from pipelines.study import TrainImageText

WORDS = 500


class Noise:
    """Images and captions of noise, for `train_image_text.step`."""

    def __init__(self, row: TrainImageText) -> None:
        g = torch.Generator().manual_seed(0)
        self.images = torch.randint(
            0, 256, (row.batch, 3, row.image.size, row.image.size), generator=g, dtype=torch.uint8
        )
        self.ids = torch.randint(1, WORDS, (row.batch, CONTEXT), generator=g)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[rows], self.ids[rows]


def step_cost(batch: int, steps: int) -> dict[str, float]:
    """Return the median CPU seconds of a step of each model, after a warm-up step."""
    runs = {}
    for kind in ("points", "vector"):
        row = TrainImageText.model_validate({"corpus": "noise", "batch": batch, "head": {"kind": kind}})
        model = DualEncoder(row, WORDS)
        runs[kind] = (model, train_image_text.optimiser_of(model, row), row, Noise(row))
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    for at in range(steps + 1):
        for kind, (model, optimizer, row, data) in runs.items():
            start = time.process_time()
            train_image_text.step(model, optimizer, row, data, 0, at)
            times[kind].append(time.process_time() - start)
    return {kind: statistics.median(t[1:]) for kind, t in times.items()}


def grid_frequencies(
    dim: int, D: int, c: float, seed: int, top: float = 100.0, points: int = 10_000
) -> torch.Tensor:
    """Draw multiquadric frequencies with radii on a grid up to `top`, as the paper's released code does."""
    rng, grid, order = np.random.default_rng(seed), np.linspace(top / points, top, points), (dim - 1) / 2
    x = c * grid
    bessel = special.kve(order, x)
    near_zero = (
        special.gammaln(order) + order * np.log(2 / x) - np.log(2) + x
    )  # the limit, where kve overflows
    log_bessel = np.where(np.isfinite(bessel), np.log(bessel), near_zero)
    log_density = order * np.log(grid) + log_bessel - x
    p = np.exp(log_density - log_density.max())
    radii = rng.choice(grid, D, p=p / p.sum())
    directions = torch.from_numpy(rng.standard_normal((dim, D)))
    return torch.from_numpy(radii) * directions / directions.norm(dim=0)


def frequency_laws(dim: int, seeds: int, D: int = 1024, c: float = 0.5) -> dict[str, float]:
    """Return the bias of similarities with exact and with gridded radii.

    It is the root mean square over pairs of the mean over seeds minus the exact similarity.
    """
    g, kernel = torch.Generator().manual_seed(0), Kernel("imq", c, 0.0, 1.0)

    def one_point_sets(n: int) -> PointSets:
        v = torch.nn.functional.normalize(torch.randn(n, 1, dim, generator=g, dtype=torch.float64), dim=2)
        return PointSets(v, torch.ones(n, 1, dtype=torch.float64))

    x = one_point_sets(40)
    y = PointSets(
        torch.nn.functional.normalize(x.points + 0.05 * torch.randn(x.points.shape, generator=g), dim=2),
        x.weights,
    )
    sums = {"exact": torch.zeros(40, 40), "grid": torch.zeros(40, 40)}
    for seed in range(seeds):
        draws = {"exact": fourier(kernel, dim, D, g, torch.float64)}
        draws["grid"] = Fourier(grid_frequencies(dim, D, c, seed), draws["exact"].phases)
        for law, draw in draws.items():
            sums[law] = sums[law] + features(x, kernel, draw) @ features(y, kernel, draw).T / seeds
    truth = exact(x, y, kernel)
    return {law: (value - truth).square().mean().sqrt().item() for law, value in sums.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("batch", 256), ("steps", 10), ("threads", 2), ("seeds", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cost = step_cost(options.batch, options.steps)
    points, vector = cost["points"], cost["vector"]
    print(f"step, CPU seconds: points {points:.3f}, vector {vector:.3f}, ratio {points / vector:.2f}")
    for dim in (16, 512):
        laws = frequency_laws(dim, options.seeds)
        errors = f"exact law {laws['exact']:.4f}, grid {laws['grid']:.4f}"
        print(f"multiquadric in {dim} dimensions, error of the mean: {errors}")


if __name__ == "__main__":
    main()
