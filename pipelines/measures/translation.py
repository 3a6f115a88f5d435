"""How near translated vectors come to their true partners (vec2vec, section 4; FOSCTTM: Liu et al. 2019).

Raw cosine is inflated by the mean vector: a random matching can score 0.8. So cosine is given raw and after centring each
side, and ranks are taken among centred cosines. raw_top1 and raw_mean_rank are what vec2vec publishes: the other way round,
each real vector ranks all translated ones, by raw cosine.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures.vectors import centred_unit, finite

BLOCK = 2**23  # numbers of the (batch, batch) similarity matrix held at once: 1,024 rows of the usual batch


def ranks(queries: Tensor, keys: Tensor) -> Tensor:
    """Rank (1 = best) of row i of `keys` among all its rows by cosine to row i of `queries`; ties count half.

    (n, d), (n, d) unit rows -> (n,). Raises BadInput for a row that is not finite.
    """
    queries, keys = finite("queries", queries), finite("keys", keys)
    out, block = [], max(1, BLOCK // max(len(keys), 8192))
    for i in range(0, len(queries), block):
        scores = queries[i : i + block] @ keys.T  # (block, n)
        rows = torch.arange(len(scores), device=scores.device)
        true = scores[rows, i + rows].unsqueeze(1)
        out.append(1 + (scores > true).sum(1) + ((scores == true).sum(1) - 1) / 2)
    return torch.cat(out)


def batches(n: int, batch: int) -> list[slice]:
    """Consecutive batches of n pairs; a last one of a single pair joins the one before it."""
    starts = [s for s in range(0, n, batch) if n - s > 1 or s == 0]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], n], strict=True)]


def paired_scores(translated: Tensor, target: Tensor, batch: int = 8192) -> dict[str, Tensor]:
    """Per-example scores against true partners: row i of `translated` belongs to row i of `target`. (n, d), (n, d) -> each (n,)

    Ranks and FOSCTTM = (rank - 1) / (size - 1) are within the `batches`; 0 is perfect, 0.5 is random. Raises BadInput for a row
    that is not finite.
    """
    translated, target = finite("translated", translated), finite("target", target)
    rank, raw_rank, foscttm, cosine = [], [], [], []
    for part in batches(len(target), batch):
        a, b = centred_unit(translated[part]), centred_unit(target[part])
        r = ranks(a, b)
        rank.append(r)
        raw_rank.append(ranks(normalize(target[part], dim=1), normalize(translated[part], dim=1)))
        foscttm.append((r - 1) / max(len(r) - 1, 1))
        cosine.append((a * b).sum(1))
    rank, raw_rank = torch.cat(rank), torch.cat(raw_rank)
    return {
        "centred_cosine": torch.cat(cosine),
        "cosine": (normalize(translated, dim=1) * normalize(target, dim=1)).sum(1),
        "top1": (rank <= 1).float(),
        "top10": (rank <= 10).float(),
        "mean_rank": rank,
        "raw_top1": (raw_rank <= 1).float(),
        "raw_mean_rank": raw_rank,
        "foscttm": torch.cat(foscttm),
    }
