"""Does our tabu search match clusters as well as MPOpt, the solver of "Shared Geometry as a Rosetta Stone"?

    pip install pylibmgm==1.1.2        # GPL
    python -m benchmarks.assignment [--repeats 5]

On the embeddings of study `rivals`: centres of k-means of both sides, as `rosetta` has them, by article and
at random halves. Prints for each repeat both objectives, the share of equal partners, and MPOpt's seconds.
"""

import argparse
import time

import pylibmgm  # pyright: ignore[reportMissingImports]
import torch
from torch import Tensor

from pipelines.aligners import rosetta
from pipelines.aligners.core.matching import draw, objective, quadratic_assignment
from pipelines.fitting.splitting import halves
from pipelines.measures.vectors import centred_unit
from pipelines.runtime import store
from pipelines.study import Align

SPACES = ("wikipedia-wordllama", "wikipedia-minilm")
SETTINGS, SEARCH = rosetta.Settings(), (rosetta.TABU_STARTS, rosetta.TABU_STEPS)


def kernels_of(how: str, repeats: int) -> tuple[Tensor, Tensor]:
    """Return the centred Gram matrices of the centres of both sides: (repeats, C, C) twice."""
    source, target = map(store.read_embeddings, SPACES)
    given = {"source": SPACES[0], "target": SPACES[1], "aligner": "rosetta", "limit": 13_000, "halves": how}
    drawn = halves(source, target, Align.model_validate(given), 10)
    generator = torch.Generator().manual_seed(10)
    out = []
    for side in map(centred_unit, (drawn.source, drawn.target)):
        batches = [draw(side, SETTINGS.batch, generator) for _ in range(repeats)]
        centres = torch.stack([rosetta.centres(x, SETTINGS.clusters, generator) for x in batches])
        out.append(rosetta.kernels(centres, side[:0])[0])
    return out[0], out[1]


def mpopt(A: Tensor, B: Tensor, seed: int) -> Tensor:
    """Return MPOpt's partners (C,) with the paper's settings. It minimises costs, which must be negative."""
    C = len(A)
    cost = -torch.einsum("ik,jl->ijkl", A.double(), B.double())
    cost = cost - cost.max() - 1
    pairs = (cost + cost.permute(2, 3, 0, 1)).tolist()
    model = pylibmgm.GmModel(pylibmgm.Graph(0, C), pylibmgm.Graph(1, C), C**2, C**4 - C**2)
    for i in range(C):
        for j in range(C):
            model.add_assignment(i, j, float(cost[i, j, i, j]))
    for i in range(C):
        for j in range(C):
            for k in range(i + 1, C):
                for h in range(C):
                    if j != h:
                        model.add_edge(i, j, k, h, pairs[i][j][k][h])
    pylibmgm.QAPSolver.libmpopt_seed = seed  # read when a solver is made
    solver = pylibmgm.QAPSolver(model)
    solver.run_settings.batch_size, solver.run_settings.greedy_generations = 100, 10
    solver.stopping_criteria.p, solver.stopping_criteria.k = 0.1, 100
    solver.stopping_criteria.max_batches = 1000
    return torch.tensor(solver.run().labeling())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    for how in ("documents", "rows"):
        A, B = kernels_of(how, repeats)
        began = time.monotonic()
        ours, values = quadratic_assignment(A, B, torch.Generator().manual_seed(0), None, *SEARCH)
        print(f"{how}: tabu search, {repeats} repeats: {time.monotonic() - began:.1f} s")
        for number, (a, b, p, value) in enumerate(zip(A, B, ours, values, strict=True)):
            began = time.monotonic()
            other = mpopt(a, b, number)
            theirs = objective(a[None], b[None], other[None])
            equal = float((p == other).double().mean())
            seconds = time.monotonic() - began
            print(f"{number}: {value:.5f} {float(theirs):.5f} {equal:.2f} {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
