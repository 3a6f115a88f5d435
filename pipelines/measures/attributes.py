"""Infer attributes zero-shot: a vector's attributes are the labels whose text vectors are nearest.

Nothing is trained. Labels are embedded in the space of the vectors, or of their translations (vec2vec, 5.1).
"""

from collections import Counter
from collections.abc import Sequence
from math import comb

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures import Measure
from pipelines.measures.vectors import finite
from pipelines.runtime.errors import BadInput

TEMPLATE = "This text is about {}."


def measures(ks: Sequence[int]) -> list[Measure]:
    """Return the measures that `scores` computes; the report shows precision and recall for the last k."""
    out = []
    for k in ks:
        last = k == ks[-1]
        out += [
            Measure(f"top{k}", f"top-{k}"),
            Measure(f"precision{k}", f"precision@{k}" if last else ""),
            Measure(f"recall{k}", f"recall@{k}" if last else ""),
        ]
    out.append(Measure("mean_rank", "mean rank", digits=1, better="lower"))
    return [*out, Measure("mean_rank_all", "mean rank, all labels", digits=1, better="lower")]


def scores(ranked: Tensor, true: Tensor, ks: Sequence[int]) -> dict[str, Tensor]:
    """Return scores per example for a ranking (n, labels) and multi-hot truth (n, labels). -> {name: (n,)}

    top k: one of the k nearest labels is right. precision k: share of the k that are right. recall k: share
    of the right labels among the k. mean_rank: rank of the best right label; mean_rank_all: mean rank of all
    right labels. k is capped at the number of labels. Raises BadInput for an example without a label.
    """
    if not bool(true.any(1).all()):
        raise BadInput(f"attributes: {int((~true.any(1)).sum())} examples have no label")
    hit = true.gather(1, ranked)  # (n, labels): is the label at this rank right?
    out = {}
    for k in ks:
        right = hit[:, :k].sum(1).double()
        out[f"top{k}"] = (right > 0).double()
        out[f"precision{k}"] = right / min(k, true.shape[1])
        out[f"recall{k}"] = right / true.sum(1)
    out["mean_rank"] = hit.int().argmax(1).double() + 1
    places = torch.arange(1, hit.shape[1] + 1, dtype=torch.float64, device=hit.device)
    out["mean_rank_all"] = (hit * places).sum(1) / hit.sum(1)
    return out


def chance(true: Tensor, ks: Sequence[int]) -> dict[str, Tensor]:
    """Return the expected scores of a random order. (n, labels) -> {name: (n,)}

    With m of L labels right: P(a hit among k) = 1 - C(L-m, k) / C(L, k), precision m/L, recall k/L, best rank
    (L+1)/(m+1), mean rank of all (L+1)/2.
    """
    total, right = true.shape[1], true.sum(1)
    each = torch.ones_like(right, dtype=torch.float64)
    out = {}
    for k in ks:
        cut = min(k, total)
        miss = [comb(total - m, cut) / comb(total, cut) for m in right.tolist()]
        out[f"top{k}"] = 1 - torch.tensor(miss, dtype=torch.float64).to(true.device)
        out[f"precision{k}"] = right.double() / total
        out[f"recall{k}"] = each * cut / total
    out["mean_rank"] = (total + 1) / (right.double() + 1)
    out["mean_rank_all"] = each * (total + 1) / 2
    return out


def order(vectors: Tensor, label_vectors: Tensor, near: Tensor | None = None) -> Tensor:
    """Return the labels of each vector, nearest by cosine first. (n, d), (labels, d) -> (n, labels) int

    near (n, k): score each vector by the mean cosine of these rows instead of its own. Raises BadInput for a
    row that is not finite.
    """
    vectors, label_vectors = finite("vectors", vectors), finite("label vectors", label_vectors)
    scores = normalize(vectors.float(), dim=1) @ normalize(label_vectors.float(), dim=1).T
    if near is not None:
        scores = scores[near].mean(1)
    return scores.argsort(dim=1, descending=True, stable=True)


def majority(true: Tensor) -> Tensor:
    """Return the order that ranks the commonest labels first for every example, as a floor.

    (n, labels) -> (n, labels)
    """
    return true.sum(0).argsort(descending=True, stable=True).expand(len(true), -1)


def label_set(labels: Sequence[Sequence[str]], least: int = 1) -> list[str]:
    """Return every label of at least `least` examples, sorted. Raises BadInput for fewer than two."""
    counts = Counter(label for example in labels for label in set(example))
    kept = sorted(label for label, n in counts.items() if n >= least)
    if len(kept) < 2:
        raise BadInput(f"attributes: two labels of at least {least} examples are needed; found: {len(kept)}")
    return kept


def truth(labels: Sequence[Sequence[str]], names: Sequence[str]) -> Tensor:
    """Return the multi-hot matrix (n, labels) of bool. Labels that are not in `names` are ignored."""
    index = {name: j for j, name in enumerate(names)}
    out = torch.zeros(len(labels), len(names), dtype=torch.bool)
    for i, example in enumerate(labels):
        out[i, [index[label] for label in example if label in index]] = True
    return out


def wording(label: str, how: str) -> str:
    """Return the text to embed for a label: `fitness & health` for `fitness_&_health`, or TEMPLATE."""
    name = " ".join(label.replace("_", " ").split())
    return TEMPLATE.format(name) if how == "template" else name
