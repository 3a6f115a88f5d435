"""Measure time and peak memory of an alignment at 10^4 to 10^6 vectors a side, on GENERATED spaces.

    python -m benchmarks.growth [--sizes 10000 100000 1000000] [--dims 768 768] [--pairs 65536] [--write]

The source is a mixture of 200 Gaussians. The target has such points rotated, with noise. No point is on both
sides; the pairs to be ranked are further points. fit: wasserstein_procrustes, and once more on half of the
vectors, for the verdict. evaluate: ranks within batches of 8,192. Each step runs in its own process, which
may allocate 6 GB. Peak memory includes pages of memory-mapped files, which the system can reclaim. --write:
update docs/benchmarks.md and its picture.
"""

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipelines.aligners import wasserstein_procrustes
from pipelines.aligners.core.translator import load, save
from pipelines.aligners.core.verdict import REPLICATE_SEED, judge
from pipelines.measures.translation import translated_scores
from pipelines.runtime import store

CLUSTERS, NOISE, BLOCK = 200, 0.3, 10_000
LIMIT = 6 * 10**9  # bytes that a step may allocate, besides memory-mapped files
STEPS = ("fit", "verdict", "evaluate")
DOCS = Path(__file__).parents[1] / "docs"


class Row(NamedTuple):
    """One measurement."""

    vectors: int
    step: str
    seconds: float
    cpu: float
    peak: float  # GiB
    said: str


def space(n: int, dims: tuple[int, int], seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield n points in both spaces, in blocks (b, d), (b, e)."""
    shape, draws = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    most = max(dims)
    centres = torch.randn(CLUSTERS, most, generator=shape)
    share, spread = torch.arange(1, CLUSTERS + 1).pow(-0.7), torch.arange(1, most + 1).pow(-0.6)
    turn = torch.linalg.qr(torch.randn(most, most, generator=shape)).Q
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        points = centres[torch.multinomial(share, size, True, generator=draws)] + torch.randn(
            size, most, generator=draws
        )
        other = points + NOISE * torch.randn(size, most, generator=draws)
        yield (points * spread)[:, : dims[0]], (other * spread @ turn)[:, : dims[1]]


def write(folder: Path, n: int, pairs: int, dims: tuple[int, int]) -> None:
    """Write source.npy and target.npy of different points, pairs-0.npy and pairs-1.npy of the same points."""
    for name, side, size, seed in (
        ("source", 0, n, 1),
        ("target", 1, n, 2),
        ("pairs-0", 0, pairs, 3),
        ("pairs-1", 1, pairs, 3),
    ):
        file = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (size, dims[side]))
        at = 0
        for block in space(size, dims, seed):
            file[at : at + len(block[side])] = block[side]
            at += len(block[side])


def read(folder: Path, name: str) -> Tensor:
    return store.read_only(np.load(folder / f"{name}.npy", mmap_mode="r"))


def step(name: str, folder: Path) -> str:
    """Run one step. Return its result for the table."""
    seeds = (0, REPLICATE_SEED)
    if name == "fit":
        source, target = read(folder, "source"), read(folder, "target")
        for seed, part in zip(seeds, (slice(None), slice(0, None, 2)), strict=True):
            fit = wasserstein_procrustes.fit(
                source[part], target[part], wasserstein_procrustes.Settings(), seed
            )
            save(fit, folder / f"seed-{seed}")
        return ""
    first, second = (load(folder / f"seed-{seed}") for seed in seeds)
    if name == "verdict":
        verdict = judge(read(folder, "source"), first, read(folder, "target"), [second])
        return f"{verdict.label} {verdict.score:.2f}, agreement {verdict.agreement:.3f}"
    x, y = read(folder, "pairs-0"), read(folder, "pairs-1")
    return f"top-1 {translated_scores(first, x, y, torch.arange(len(x)), 8192)['top1'].mean():.3f}"


def timed(name: str, folder: Path, queue) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    start, cpu = time.perf_counter(), time.process_time()
    said = step(name, folder)
    queue.put((time.perf_counter() - start, time.process_time() - cpu, peak(), said))


def peak() -> float:
    """Return the peak memory of this process in GiB."""
    # on Linux `ru_maxrss` starts at the parent's memory
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30


def exponent(rows: Sequence[Row], what: str) -> float:
    """Return b of the power law a n^b fitted to one step."""
    sizes, values = [row.vectors for row in rows], [getattr(row, what) for row in rows]
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def table(rows: list[Row], dims: Sequence[int]) -> str:
    version, threads = torch.__version__.split("+")[0], torch.get_num_threads()
    lines = [
        "# Growth",
        "",
        f"`make bench` writes this page. GENERATED spaces of {dims[0]} and {dims[1]} dimensions,",
        f"torch {version}, {threads} threads. Each step runs once, in its own process, "
        f"which may allocate {LIMIT / 1e9:.0f} GB;",
        "peak memory includes pages of memory-mapped files. `fit` is both fits that a verdict needs.",
        "Verdicts are *doubtful* because these spaces have fewer than 20 effective dimensions.",
        "",
        "![Seconds and memory of each step at growing sizes](images/growth.png)",
        "",
        "| vectors a side | step | seconds | CPU seconds | peak GiB | |",
        "|---|---|---|---|---|---|",
        *(
            f"| {r.vectors:,} | {r.step} | {r.seconds:.0f} | {r.cpu:.0f} | {r.peak:.2f} | {r.said} |"
            for r in rows
        ),
        "",
        "| step | exponent of CPU time | exponent of memory |",
        "|---|---|---|",
    ]
    for name in STEPS:
        of_step = [r for r in rows if r.step == name]
        lines.append(f"| {name} | {exponent(of_step, 'cpu'):.2f} | {exponent(of_step, 'peak'):.2f} |")
    return "\n".join(lines) + "\n"


def picture(rows: list[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for ax, what, label in zip(axes, ("cpu", "peak"), ("CPU seconds", "peak GiB"), strict=True):
        for name in STEPS:
            of_step = [r for r in rows if r.step == name]
            ax.loglog([r.vectors for r in of_step], [getattr(r, what) for r in of_step], "o-", label=name)
        ax.set(xlabel="vectors a side", ylabel=label)
    axes[1].legend(loc="upper left")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dims", type=int, nargs=2, default=(768, 768))
    parser.add_argument("--pairs", type=int, default=65_536)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    spawn, rows = multiprocessing.get_context("spawn"), []
    for n in given.sizes:
        with TemporaryDirectory() as folder:
            write(Path(folder), n, given.pairs, tuple(given.dims))
            for name in STEPS:
                queue = spawn.SimpleQueue()
                child = spawn.Process(target=timed, args=(name, Path(folder), queue))
                child.start()
                child.join()
                if child.exitcode:
                    sys.exit(f"{name} of {n} vectors failed")
                rows.append(Row(n, name, *queue.get()))
                print(rows[-1], flush=True)
    page = table(rows, given.dims)
    print(page)
    if given.write:
        (DOCS / "benchmarks.md").write_text(page, encoding="utf-8")
        picture(rows, DOCS / "images/growth.png")


if __name__ == "__main__":
    main()
