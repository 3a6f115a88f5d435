"""Zero-shot attribute inference: the labels whose texts lie nearest to a vector are its attributes (vec2vec, section 5.1).

Nothing is learnt: label texts are embedded in the space that the vectors are in (or were translated into). Per-example scores:
top-k accuracy (is one of the k nearest labels right?), precision@k (share of the k that are right), recall@k (share of the
right ones among the k), the rank of the best right label (1 = best; the mean over examples is the mean rank), and the mean
rank of all right labels, which never reaches 1 for an example with several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures.vectors import finite
from pipelines.runtime.errors import BadInput


def label_set(labels: Sequence[Sequence[str]], least: int = 1) -> list[str]:
    """Every label that at least `least` examples have, in order of the alphabet. Raises BadInput for fewer than two."""
    counts: dict[str, int] = {}
    for example in labels:
        for label in set(example):
            counts[label] = counts.get(label, 0) + 1
    kept = sorted(label for label, n in counts.items() if n >= least)
    if len(kept) < 2:
        found = f"only {kept[0]!r}" if kept else "no label"
        raise BadInput(
            f"attributes: {found} has {least} or more of {len(labels)} examples; two labels are needed"
        )
    return kept


def readable(label: str) -> str:
    """A label as a phrase: `fitness_&_health` -> `fitness & health`."""
    return " ".join(label.replace("_", " ").split())


def wording(label: str, how: str, descriptions: Mapping[str, str], template: str) -> str:
    """What is embedded for a label. name: the label itself; description: what `descriptions` says; template: `template` filled.

    Raises BadInput for a label without a description.
    """
    if how == "description":
        if label not in descriptions:
            raise BadInput(f"attributes: there is no description of label {label!r}")
        return descriptions[label]
    return template.format(label=readable(label)) if how == "template" else readable(label)


def truth(labels: Sequence[Sequence[str]], names: Sequence[str]) -> Tensor:
    """Multi-hot (n, labels) bool. Labels that are not in `names` count for nothing."""
    index = {name: j for j, name in enumerate(names)}
    out = torch.zeros(len(labels), len(names), dtype=torch.bool)
    for i, example in enumerate(labels):
        out[i, [index[label] for label in example if label in index]] = True
    return out


def order(
    vectors: Tensor, label_vectors: Tensor, centre: bool = False, crowd: Tensor | None = None
) -> Tensor:
    """Labels of each vector, nearest by cosine first. (n, d), (labels, d) -> (n, labels) int

    `centre` subtracts from each side its own mean: vectors of one corpus share a direction that is no attribute.
    `crowd` (n, k): rows whose mean cosine counts in the place of a vector's own. Raises BadInput for a row that is not finite.
    """
    vectors, label_vectors = finite("vectors", vectors), finite("label vectors", label_vectors)
    if centre:
        vectors, label_vectors = vectors - vectors.mean(0), label_vectors - label_vectors.mean(0)
    scores = normalize(vectors.float(), dim=1) @ normalize(label_vectors.float(), dim=1).T
    if crowd is not None:
        scores = scores[crowd].mean(1)
    return scores.argsort(dim=1, descending=True, stable=True)


def scores(ranked: Tensor, true: Tensor, ks: Sequence[int]) -> dict[str, Tensor]:
    """Per-example scores of a ranking (n, labels) against multi-hot truth (n, labels), every row with a true label. -> each (n,)

    k is cut to the number of labels. Raises BadInput for a row without a label.
    """
    if not bool(true.any(1).all()):
        raise BadInput(f"attributes: {int((~true.any(1)).sum())} examples have no label")
    hit = true.gather(1, ranked)  # (n, labels): is the label at this place right?
    out = {}
    for k in ks:
        right = hit[:, :k].sum(1).double()
        out[f"top{k}"] = (right > 0).double()
        out[f"precision{k}"] = right / min(k, true.shape[1])
        out[f"recall{k}"] = right / true.sum(1)
    out["mean_rank"] = hit.int().argmax(1).double() + 1
    places = torch.arange(1, hit.shape[1] + 1, dtype=torch.float64)
    out["mean_rank_all"] = (hit * places).sum(1) / hit.sum(1)
    return out


def chance(true: Tensor, ks: Sequence[int]) -> dict[str, Tensor]:
    """What a random order scores in expectation, per example: with m of L labels right, P(a hit among k) = 1 - C(L-m, k)/C(L, k),
    precision m/L, recall k/L, the best right label at rank (L+1)/(m+1), and all right labels at mean rank (L+1)/2."""
    total, right = true.shape[1], true.sum(1)
    out = {}
    for k in ks:
        cut = min(k, total)
        miss = [comb(total - int(m), cut) / comb(total, cut) for m in right]
        out[f"top{k}"] = 1 - torch.tensor(miss, dtype=torch.float64)
        out[f"precision{k}"] = right.double() / total
        out[f"recall{k}"] = torch.full((len(true),), cut / total, dtype=torch.float64)
    middle = torch.full((len(true),), (total + 1) / 2, dtype=torch.float64)
    return out | {"mean_rank": (total + 1) / (right.double() + 1), "mean_rank_all": middle}


def majority(true: Tensor) -> Tensor:
    """The order that names the commonest labels first for everybody, (n, labels): what knowing only the shares would score."""
    return true.sum(0).argsort(descending=True, stable=True).expand(len(true), -1)


def per_label(ranked: Tensor, true: Tensor, k: int) -> list[dict[str, float]]:
    """For each label: examples that have it, recall@k (of those, how many have it among their k), precision@k (of the examples
    where it is among the k, how many have it; 0 where it never is), and its mean rank where it is right."""
    place = ranked.argsort(1) + 1  # (n, labels): rank of each label
    rows = []
    for j in range(true.shape[1]):
        has, said = true[:, j], place[:, j] <= k
        both = int((has & said).sum())
        rows.append(
            {
                "examples": int(has.sum()),
                f"recall{k}": both / max(int(has.sum()), 1),
                f"precision{k}": both / max(int(said.sum()), 1),
                "mean_rank": place[has, j].double().mean().item() if has.any() else float("nan"),
            }
        )
    return rows
