"""Match without pairs: quadratic assignment of clusters, optimal transport, CSLS and mutual neighbours."""

import torch
from torch import Tensor

from pipelines.measures.vectors import BLOCK, neighbours


def draw(cloud: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Return at most `size` random rows, the same on every device: the generator is on the CPU."""
    return cloud[torch.randperm(len(cloud), generator=generator)[:size].to(cloud.device)]


def _columns(matrices: Tensor, p: Tensor) -> Tensor:
    """Return the columns of n matrices (n, C, C) in the order of p (n, C): M_{i p(j)}."""
    return matrices.gather(2, p[:, None, :].expand(-1, p.shape[1], -1))


def permuted(B: Tensor, p: Tensor) -> Tensor:
    """Return B_{p(i) p(j)} for each of n matrices: B (n, C, C), p (n, C)."""
    return _columns(B.gather(1, p[:, :, None].expand(-1, -1, B.shape[2])), p)


def objective(A: Tensor, B: Tensor, p: Tensor, linear: Tensor | None = None) -> Tensor:
    """Return sum_ij A_ij B_{p(i) p(j)} + sum_i linear_{i p(i)}. (n, C, C) and p (n, C) -> (n,)"""
    value = (A * permuted(B, p)).sum((-2, -1))
    return value if linear is None else value + linear.gather(2, p[:, :, None]).sum((-2, -1))


def swap_gains(A: Tensor, Bp: Tensor, Lp: Tensor | None = None) -> Tensor:
    """Return what the objective gains if r and s swap partners, for all pairs (r, s) at once.

    A, Bp: (n, C, C) symmetric, Bp_rs = B_{p(r) p(s)}; Lp_rs = linear_{r p(s)}. Returns (n, C, C), symmetric,
    zero diagonal (Taillard 1991, for matrices with a diagonal).

    Off the diagonal, rows r and s gain the sum over k, other than r and s, of (A_rk - A_sk)(Bp_sk - Bp_rk).
    Columns r and s gain the same: hence the factor 2. With M = A Bp, the sum over all k is M_rs + M_sr - M_rr
    - M_ss, and the terms k = r and k = s are subtracted. Entries rs and sr do not change.
    """
    M = A @ Bp
    m, a, b = (x.diagonal(dim1=-2, dim2=-1)[..., None] for x in (M, A, Bp))  # (n, C, 1): m_r = M_rr
    own = (a - A) * (Bp - b)  # the term k = r; its transpose is the term k = s
    half = M - m - own
    diagonal = (a - a.mT) * (b.mT - b)
    gains = 2 * (half + half.mT) + diagonal
    if Lp is not None:
        half = Lp - Lp.diagonal(dim1=-2, dim2=-1)[..., None]
        gains = gains + half + half.mT
    return gains


def _swap(move: Tensor, p: Tensor, Bp: Tensor, Lp: Tensor | None) -> None:
    """Swap the partners of rows move[:, 0] and move[:, 1] of each instance, in place. move: (n, 2)"""
    batch = torch.arange(len(p), device=p.device)
    r, s = move.unbind(1)
    # All are views. p: entries; Bp: rows, then columns; Lp: columns.
    for x in (p.unsqueeze(-1), Bp, Bp.mT, *(() if Lp is None else (Lp.mT,))):
        x[batch, r], x[batch, s] = x[batch, s], x[batch, r]


def ascend(
    A: Tensor, B: Tensor, p: Tensor, linear: Tensor | None = None, steps: int = 100
) -> tuple[Tensor, Tensor]:
    """Improve p (n, C) by 2-opt: make the best swap until none is a gain, at most `steps` times.

    Returns the last p and its objective (n,).
    """
    p, C = p.clone(), p.shape[1]
    Bp, Lp = permuted(B, p), None if linear is None else _columns(linear, p)
    least = 1e-6 * A.flatten(1).norm(dim=1) * B.flatten(1).norm(dim=1)  # below this a gain is rounding
    for _ in range(steps):
        gain, move = swap_gains(A, Bp, Lp).flatten(1).max(1)
        if not (gain > least).any():
            break
        move = torch.where(gain > least, move, 0)  # 0: swap the first with itself
        _swap(torch.stack([move // C, move % C], 1), p, Bp, Lp)
    return p, objective(A, B, p, linear)


def two_opt(A: Tensor, B: Tensor, restarts: int, generator: torch.Generator) -> Tensor:
    """Maximise sum_ij A_ij B_{p(i) p(j)} for n instances: return the best of `restarts` local maxima.

    A local maximum is a permutation that no swap improves. (n, C, C) twice -> (n, C)
    """
    n, C = A.shape[:2]
    start = torch.rand(n * restarts, C, generator=generator).argsort(1).to(A.device)
    p, value = ascend(A.repeat_interleave(restarts, 0), B.repeat_interleave(restarts, 0), start, steps=10 * C)
    return p.view(n, restarts, C)[torch.arange(n, device=A.device), value.view(n, restarts).argmax(1)]


def quadratic_assignment(
    A: Tensor,
    B: Tensor,
    generator: torch.Generator,
    linear: Tensor | None = None,
    restarts: int = 12,
    steps: int = 300,
) -> tuple[Tensor, Tensor]:
    """Maximise sum_ij A_ij B_{p(i) p(j)} + sum_i linear_{i p(i)} over permutations p, for n instances.

    A, B: (n, C, C) symmetric; linear: (n, C, C) or None. Robust tabu search (Taillard 1991) runs `restarts`
    times for each instance, from random starts. All runs form one batch. Each step makes the best allowed
    swap, even if it lowers the objective. Returns p (n, C) int64 and the objective (n,).
    """
    (n, C), runs = A.shape[:2], A.shape[0] * restarts
    p = torch.rand(runs, C, generator=generator).argsort(1).to(A.device)
    # A swap is refused if it returns both of its rows to partners that they had a few steps ago. How many
    # steps is random
    low, high = int(0.9 * C), int(1.1 * C) + 5
    tenures = torch.randint(low, high, (steps, runs, 2), generator=generator).to(A.device)
    A, B = A.repeat_interleave(restarts, 0), B.repeat_interleave(restarts, 0)
    linear = None if linear is None else linear.repeat_interleave(restarts, 0)
    Bp, Lp = permuted(B, p), None if linear is None else _columns(linear, p)
    value = objective(A, B, p, linear)
    best, best_p = value.clone(), p.clone()
    # [run, i, j]: the step from which row i may have partner j again
    until = torch.zeros(runs, C, C, dtype=torch.int64, device=A.device)
    batch, same = torch.arange(runs, device=A.device), torch.eye(C, dtype=torch.bool, device=A.device)
    for step in range(steps if C > 1 else 0):
        gains = swap_gains(A, Bp, Lp)
        # Refuse a swap that returns both rows too early, unless it gives the best value so far
        back = _columns(until, p) > step  # [run, r, s]: r goes back to p(s)
        refused = back & back.mT & (value[:, None, None] + gains <= best[:, None, None])
        gain, move = gains.masked_fill(refused | same, -torch.inf).flatten(1).max(1)
        # If every swap is refused, swap the first row with itself
        move = torch.where(gain.isinf(), 0, move)
        value = value + torch.where(gain.isinf(), 0, gain)
        move = torch.stack([move // C, move % C], 1)
        for side in range(2):
            until[batch, move[:, side], p[batch, move[:, side]]] = step + tenures[step, :, side]
        _swap(move, p, Bp, Lp)
        best_p = torch.where((value > best)[:, None], p, best_p)
        best = torch.maximum(best, value)
    # Of each instance keep the best run, and improve it to a local optimum
    top = objective(A, B, best_p, linear).view(n, restarts).argmax(1) + batch[::restarts]
    return ascend(A[top], B[top], best_p[top], None if linear is None else linear[top])


def csls(a: Tensor, b: Tensor, k: int) -> Tensor:
    """Return cross-domain similarity local scaling, CSLS (Conneau et al. 2018), (n, m).

    It is 2 cos(a_i, b_j) - r(a_i) - r(b_j). a: (n, d), b: (m, d), unit rows. r is the mean cosine to the k
    nearest neighbours on the other side: hubs score lower.
    """
    scores = a @ b.T
    near_a = scores.topk(min(k, len(b)), 1).values.mean(1)
    near_b = scores.topk(min(k, len(a)), 0).values.mean(0)
    return scores.mul_(2).sub_(near_a[:, None]).sub_(near_b[None])


def mutual(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows i and columns j that are each other's best: two index vectors of equal length."""
    best, back = scores.argmax(1), scores.argmax(0)
    rows = torch.arange(len(best), device=scores.device)
    keep = back[best] == rows
    return rows[keep], best[keep]


def nearest_mean(queries: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    """Return the mean of the values of each query's k nearest keys by dot product. (n, r), (m, r), (m, e) ->
    (n, e)
    """
    return torch.cat([values[neighbours(some, keys, k)].mean(1) for some in queries.split(BLOCK)])


def partners(moved: Tensor, y: Tensor, inverse_temperature: float, rounds: int = 3) -> Tensor:
    """Return P y (n, e), where P (n, m) is the plan of `transport`. moved: (n, e), y: (m, e), unit rows."""
    u, kernel, v = transport(moved, y, inverse_temperature, rounds)
    return times(kernel, y * v) * u


def transport(
    queries: Tensor, keys: Tensor, inverse_temperature: float, rounds: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """Return u (n, 1), K (n, m) and v (m, 1) of the entropic optimal transport P = diag(u) K diag(v) of
    queries (n, k) to keys (m, k) (Cuturi 2013).

    K = exp(inverse_temperature (cos - 1)), where cos = queries keys' must be cosines. Each Sinkhorn round
    scales rows, then columns. So the columns of P sum to 1, up to rounding; its rows sum to m / n only in the
    limit of many rounds. A few rounds suffice, because the map is refined again.

    On CPUs that support it, K is bf16, and so are the factors that it is multiplied by; u, v and the products
    are not. This is five times faster. bf16 changes x' P y, to which the map is fitted, by 1e-4 to 3e-2 of
    its norm. Drawing another batch changes it at least 30 times as much. Measured on generated clouds of
    1,500 and 4,000 points, without clusters and in 40 of them, at inverse temperatures from 5 to 50.
    """
    low = torch.bfloat16 if _has_bf16(queries) else queries.dtype
    cosines = queries.to(low) @ keys.to(low).T
    kernel = cosines.mul_(inverse_temperature).sub_(inverse_temperature).exp_()  # (n, m)
    v, least = torch.ones(len(keys), 1, device=keys.device), torch.finfo(torch.float32).tiny
    for _ in range(rounds):
        u = 1 / times(kernel, v).clamp_min(least)
        v = 1 / times(kernel.T, u).clamp_min(least)
    return u, kernel, v


def times(kernel: Tensor, vectors: Tensor) -> Tensor:
    """Return kernel @ vectors, computed in the kernel's dtype, in that of the vectors. (n, m), (m, e)"""
    return (kernel @ vectors.to(kernel.dtype)).to(vectors.dtype)


def _has_bf16(vectors: Tensor) -> bool:
    return (
        vectors.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
