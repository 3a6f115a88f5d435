"""Compare translated vectors with their true partners (vec2vec, section 4; FOSCTTM: Liu et al. 2019).

The raw cosine contains the mean vector: a random matching can score 0.8. So the cosine is also taken after
centring each side, and ranks use centred cosines. `raw_top1` and `raw_mean_rank` are the measures that
vec2vec publishes: each real vector ranks all translated vectors by raw cosine.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures import Measure
from pipelines.measures.vectors import centred_unit, finite, products

ROWS, KEYS = 1024, 8192  # of a block of the similarity matrix; fewer rows if there are more keys
MEASURES = [
    Measure("centred_cosine", "centred cosine"),
    Measure("cosine"),
    Measure("top1", "top-1", headline=True),
    Measure("top10"),
    Measure("mean_rank", "mean rank", digits=1, better="lower"),
    Measure("raw_top1"),
    Measure("raw_mean_rank", better="lower"),
    Measure("foscttm", "FOSCTTM", digits=4, better="lower"),
]


@torch.inference_mode()
def translated_scores(
    translate: Callable[[Tensor], Tensor], source: Tensor, target: Tensor, rows: Tensor, batch: int
) -> dict[str, Tensor]:
    """Translate these `rows` of source (n, d), and return their `paired_scores` with target (n, e).

    Translate one batch at a time (see `batches`); vectors are centred and ranked within it. The scores are on
    the CPU.
    """
    parts = [rows[part] for part in batches(len(rows), batch)]
    scores = [paired_scores(translate(source[part]), target[part]) for part in parts]
    return {measure: torch.cat([of_part[measure] for of_part in scores]).cpu() for measure in scores[0]}


def paired_scores(translated: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Return every measure's score per example of one batch. (n, d), (n, d) -> {name: (n,)}

    Row i of `translated` belongs to row i of `target`. Vectors are centred by the means of the raw vectors,
    so a single very long one moves all scores. Vectors of 16 bits are compared in float32. Raises BadInput
    for a row that is not finite.

    foscttm: the fraction of samples closer than the true match, (rank - 1) / (n - 1). 0 is perfect, 0.5 is
    random. Translated vectors search target vectors, by centred cosine. The original averages both
    directions.
    """
    wide = torch.promote_types(torch.promote_types(translated.dtype, target.dtype), torch.float32)
    translated, target = finite("translated", translated).to(wide), finite("target", target).to(wide)
    centred, centred_target = centred_unit(translated), centred_unit(target)
    unit, unit_target = normalize(translated, dim=1), normalize(target, dim=1)
    rank = ranks(centred, centred_target)  # of the true partner of each translated vector
    raw_rank = ranks(unit_target, unit)  # of the true translation of each target vector
    return {
        "centred_cosine": (centred * centred_target).sum(1),
        "cosine": (unit * unit_target).sum(1),
        "top1": (rank <= 1).float(),
        "top10": (rank <= 10).float(),
        "mean_rank": rank,
        "raw_top1": (raw_rank <= 1).float(),
        "raw_mean_rank": raw_rank,
        "foscttm": (rank - 1) / max(len(rank) - 1, 1),
    }


def batches(n: int, batch: int) -> list[slice]:
    """Split n pairs into as few batches of at most `batch` as possible, of equal size up to one pair.

    In a smaller batch top-1 would be easier. A batch has at least two pairs: with `batch` 2 one may have
    three.
    """
    count = max(1, min(math.ceil(n / batch), n // 2))
    return [slice(n * i // count, n * (i + 1) // count) for i in range(count)]


def ranks(queries: Tensor, keys: Tensor) -> Tensor:
    """Return the rank (1 = best) of key i among all keys by cosine to query i; ties count half.

    So of two equal keys neither has rank 1. Takes unit rows (n, d), (m, d) with m >= n, returns (n,). Raises
    BadInput for a row that is not finite.
    """
    queries, keys = finite("queries", queries), finite("keys", keys)
    out, block = [], max(1, min(ROWS, ROWS * KEYS // len(keys)))
    for i, scores in products(queries, keys, block):
        rows = torch.arange(len(scores), device=scores.device)
        true = scores[rows, i + rows].unsqueeze(1)
        out.append(1 + (scores > true).sum(1) + ((scores == true).sum(1) - 1) / 2)
    return torch.cat(out)
