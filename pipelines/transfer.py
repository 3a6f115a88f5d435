"""transfer: measure what linear classifiers read from the frozen vectors of one encoder, task by task."""

import math

import numpy as np
import polars as pl
import torch
from torch import Tensor

from pipelines.encoders.encode import encode_each, indexed
from pipelines.encoders.loading import load
from pipelines.measures.intervals import share
from pipelines.measures.linear import linear_correct
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Transfer, params

FOLDS = 10
STRENGTHS = tuple(10.0**k for k in range(-3, 1))  # C of the logistic regression


def transfer(name: str, row: Transfer, study: params.Study, run: track.Run) -> None:
    """Write the accuracy of each task and their mean, for the encoder's own pooling and each of `poolings`.

    Conneau and Kiela 2018, "SentEval" (arXiv:1803.05449), with three changes. Features are standardised. C is
    chosen on "dev", or else on a fifth of "train", not by ten inner folds; the classifier is then fitted on
    both. C is one of STRENGTHS; SentEval's code tries 2^-2 to 2^3. Accuracies are x 100.
    """
    corpus, encoder = store.read_corpus(row.corpus), study.encoders[row.encoder]
    folder = intact.checked(store.encoder_path(row.encoder))
    float64 = any(pooled.pooling == "sbert-wk" for pooled in row.poolings.values())
    loaded = load(folder, encoder, resolve(row.device, float64))
    run.input(store.corpus_path(row.corpus), "sentences")
    metrics, tasks = {}, {}
    inputs = folder, store.corpus_path(row.corpus)
    made_from = (store.code_digest("encoders"), row, encoder, str(loaded.device), *inputs)
    with store.work("transfer", name, *made_from) as parts:
        for number, ((task,), sentences) in enumerate(corpus.group_by("task", maintain_order=True)):
            texts, index = indexed(sentences["text"])
            found = encode_each(loaded, texts, encoder, row.poolings, parts / f"task-{number}")
            where = f"corpus {row.corpus}, task {task}"
            for pooling, vectors in found.items():
                right = correct(where, vectors[index].numpy(), sentences, row.seed)
                accuracy, low, high = (100 * value for value in share(right.sum().item(), len(right)))
                interval = {"accuracy": accuracy, "low": low, "high": high}
                metrics.setdefault(pooling, {})[str(task)] = interval
            tasks[str(task)] = {"texts": len(sentences)}
    for of_tasks in metrics.values():
        of_tasks["average"] = average(list(of_tasks.values()))
    metrics["tasks"] = tasks
    store.write_metrics("transfer", name, metrics)
    run.log({"transfer": metrics})


def correct(where: str, vectors: np.ndarray, sentences: pl.DataFrame, seed: int) -> Tensor:
    """Return whether each test sentence is classified correctly, (n,) 0 or 1.

    Without a split "test" each sentence is in the test part of one of ten stratified folds. Raises BadInput
    for a single class, or for fewer sentences of a class than folds.
    """
    from sklearn.model_selection import StratifiedKFold

    labels, split = sentences["labels"].list.first().to_numpy(), sentences["split"].to_numpy()
    test = np.flatnonzero(split == "test")
    if len(test):
        train = np.flatnonzero((split == "train") | (split == "dev"))
        if "train" not in split:
            raise BadInput(f"{where}: split test, but no split train: {', '.join(sorted({*split}))}")
        held = np.flatnonzero(split[train] == "dev")
        parts = [(train, test, held if len(held) else None)]
    else:
        if min(np.unique(labels, return_counts=True)[1]) < FOLDS:
            raise BadInput(f"{where}: a class has fewer than {FOLDS} sentences, one for each fold")
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        parts = [(*fold, None) for fold in folds.split(vectors, labels)]
    right = []
    for train, test, held in parts:
        sides = vectors[train], labels[train], vectors[test], labels[test]
        right.append(linear_correct(where, *sides, held, STRENGTHS))
    return torch.cat(right)


def average(tasks: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean over tasks and its interval, which stays within 0 and 100.

    Tasks are independent, so distances to the lower ends add in quadrature. So do those to the upper ends.
    """
    mean = sum(task["accuracy"] for task in tasks) / len(tasks)
    below = math.hypot(*(task["accuracy"] - task["low"] for task in tasks)) / len(tasks)
    above = math.hypot(*(task["high"] - task["accuracy"] for task in tasks)) / len(tasks)
    return {"accuracy": mean, "low": mean - below, "high": mean + above}


if __name__ == "__main__":
    stage.main(transfer)
