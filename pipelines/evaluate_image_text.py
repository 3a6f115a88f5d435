"""evaluate_image_text: trained image and text encoders on a corpus -> zero-shot and linear classification, retrieval,
and, on generated scenes, agreement with the true pointwise mutual information."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import torch
from torch import Tensor

from pipelines.contrastive.kernels import PointSets, exact, features, fourier
from pipelines.contrastive.pairs import captions_of, check_images, generator
from pipelines.contrastive.pixels import Pixels
from pipelines.contrastive.point_sets import DualEncoder, load
from pipelines.contrastive.towers import Words
from pipelines.corpora.kinds.scenes.synthetic import pmi as pmi_of
from pipelines.measures import image_text, summary
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import EvaluateImageText, params

BATCH = 512
EXACT = 4e9  # kernel values up to which similarities are exact; beyond, MANY random Fourier features
MANY = 4096
STRENGTHS = tuple(10.0**k for k in range(-3, 4))  # C of the logistic regression


def similarity(model: DualEncoder, x: PointSets, y: PointSets) -> Tensor:
    """S of every pair, exact where that is affordable, where the sets are. -> (n, m), on the CPU, where the labels are"""
    values = x.weights.numel() * y.weights.numel()
    if model.kernel.nonlinear == 0 or values <= EXACT:
        return exact(x, y, model.kernel).cpu()
    draw = fourier(model.kernel, x.points.shape[2], MANY, generator(0, 3)).to(x.points.device)
    return (features(x, model.kernel, draw) @ features(y, model.kernel, draw).T).cpu()


@torch.inference_mode()
def image_sets(model: DualEncoder, images: Pixels) -> PointSets:
    return _join([model.image_sets(images[r]) for r in torch.arange(len(images)).split(BATCH)])


@torch.inference_mode()
def text_sets(model: DualEncoder, words: Words, texts: list[str]) -> PointSets:
    return _join([model.text_sets(part) for part in words(texts)[0].split(BATCH)])


def _join(parts: list[PointSets]) -> PointSets:
    return PointSets(torch.cat([p.points for p in parts]), torch.cat([p.weights for p in parts]))


def single(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The rows with exactly one label, and the classes. Raises BadInput for fewer than two of these."""
    frame = frame.filter(pl.col("labels").list.len() == 1).with_columns(label=pl.col("labels").list.first())
    classes = frame["label"].unique().sort().to_list()
    if len(classes) < 2:
        raise BadInput(
            f"{len(classes)} class among the images with one label ({', '.join(classes)}); two at least are needed"
        )
    return frame, classes


def zero_shot(
    model, words: Words, sets: PointSets, labels: Tensor, classes: list[str], templates: tuple[str, ...]
) -> dict:
    """Top-1 of each template, and of the ensemble: the union of a class's sets, whose similarity is the mean. -> each (n,)"""
    total, singles = torch.zeros(len(labels), len(classes)), []
    for template in templates:
        prompts = [template.format(name.replace("_", " ")) for name in classes]
        scores = similarity(model, sets, text_sets(model, words, prompts))
        total += scores
        singles.append(image_text.top1(scores, labels))
    return {
        "zero_shot": image_text.top1(total, labels),
        "zero_shot_one_template": torch.stack(singles).mean(0),
    }


@torch.inference_mode()
def probe_features(model: DualEncoder, images: Pixels, count: int) -> dict[str, np.ndarray]:
    """What a linear classifier sees: both projections (the mean weighted point, and `count` random Fourier features), or
    the mean of the tokens before them. -> each (n, k)"""
    two, before = [], []
    draw = (
        fourier(model.kernel, model.row.head.dim, count, generator(0, 4)) if model.kernel.nonlinear else None
    )
    draw = draw and draw.to(model.raw_scale.device)
    for rows in torch.arange(len(images)).split(BATCH):
        tokens = model.image_tokens(images[rows])
        sets = model.image_head(tokens)
        two.append(features(sets, model.kernel, draw).cpu())
        before.append(tokens.float().mean(1).cpu())
    return {"linear": torch.cat(two).numpy(), "linear_before_projection": torch.cat(before).numpy()}


def linear_accuracy(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, truth: np.ndarray
) -> tuple[Tensor, float]:
    """Logistic regression on standardised features, C chosen on a fifth of the training rows. -> right (n,), C"""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    train, test = (np.asarray(scaler.transform(part)) for part in (train, test))
    held = np.random.default_rng(0).permutation(len(train))[: max(1, len(train) // 5)]
    kept = np.setdiff1d(np.arange(len(train)), held)
    if len(set(labels[kept])) < 2:
        raise BadInput(f"a linear classifier on {len(kept)} images has a single class to learn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scores = {}
        for c in STRENGTHS:
            model = LogisticRegression(C=c, max_iter=200).fit(train[kept], labels[kept])
            scores[c] = (model.predict(train[held]) == labels[held]).mean()
        best = max(scores, key=lambda c: (scores[c], -c))
        model = LogisticRegression(C=best, max_iter=200).fit(train, labels)
    return torch.from_numpy(model.predict(test) == truth).float(), best


def retrieval_and_pmi(
    model: DualEncoder, words: Words, frame: pl.DataFrame
) -> tuple[dict, dict, tuple | None]:
    """R@k over images and their captions; with the column `scene`, agreement with the true PMI of all their pairs.

    -> per-query scores, numbers, and (similarity, PMI) where there is one
    """
    captions = captions_of(frame)
    texts = sorted({text for texts in captions for text in texts})
    column = {text: j for j, text in enumerate(texts)}
    right = torch.zeros(len(frame), len(texts), dtype=torch.bool)
    for i, texts_of_image in enumerate(captions):
        right[i, [column[text] for text in texts_of_image]] = True
    sets = image_sets(model, Pixels(frame["image"].to_list(), frame["id"].to_list(), model.row.image.size))
    scores = similarity(model, sets, text_sets(model, words, texts))
    per_query = image_text.retrieval(scores, right)
    if "scene" not in frame.columns:
        return per_query, {}, None
    pmi = torch.from_numpy(pmi_of(frame["scene"].to_list(), texts))
    return per_query, image_text.agreement(scores, pmi, model.row.head.dim), (scores, pmi)


def classification(
    model: DualEncoder, words: Words, row: EvaluateImageText, train: pl.DataFrame, test: pl.DataFrame
):
    """-> per-image scores of zero-shot and linear classification, and the chosen C of the latter."""
    test, classes = single(test)
    size, numbers = model.row.image.size, {}
    images = Pixels(test["image"].to_list(), test["id"].to_list(), size)
    truth = torch.tensor([classes.index(label) for label in test["label"].to_list()])
    scores = zero_shot(model, words, image_sets(model, images), truth, classes, row.templates)
    if len(train := train.filter(pl.col("labels").list.len() == 1).head(row.probe)) >= 10:
        seen = probe_features(
            model, Pixels(train["image"].to_list(), train["id"].to_list(), size), row.features
        )
        labels = train["labels"].list.first().to_numpy()
        for kind, new in probe_features(model, images, row.features).items():
            scores[kind], numbers[f"{kind}_C"] = linear_accuracy(
                seen[kind], labels, new, test["label"].to_numpy()
            )
    return scores, numbers


def measure(
    model: DualEncoder, words: Words, row: EvaluateImageText, train: pl.DataFrame, test: pl.DataFrame
):
    """Every measure that the corpus allows. -> numbers, and (similarity, PMI) where there is one"""
    scores, numbers, known = {}, {}, None
    if test["labels"].list.len().sum():
        scores, numbers = classification(model, words, row, train, test)
    if (
        "captions" in test.columns or test["text"].n_unique() > test.height // 2
    ):  # else the texts are class names
        per_query, more, known = retrieval_and_pmi(model, words, test.head(row.limit))
        scores, numbers = scores | per_query, numbers | more
    if not scores:
        raise BadInput(f"corpus {row.corpus}: neither labels nor captions of their own to measure on")
    return numbers | summary(scores), known


def sample(scores: Tensor, pmi: Tensor, most: int = 4000) -> pl.DataFrame:
    """At most this many pairs at regular intervals, and as many whose caption is true of the image. (n, m), (n, m) -> true,
    pmi, similarity"""
    spaced = torch.linspace(0, pmi.numel() - 1, min(most, pmi.numel())).long()
    true = torch.nonzero(pmi.flatten() > pmi.min()).flatten()[:most]
    pairs = torch.cat([spaced, true])
    columns = {"pmi": pmi.flatten()[pairs].numpy(), "similarity": scores.flatten()[pairs].numpy()}
    return pl.DataFrame({"true": [False] * len(spaced) + [True] * len(true), **columns})


def evaluate_image_text(name: str, row: EvaluateImageText, study: params.Study, run: track.Run) -> None:
    """Measure the encoders of every seed; mean and spread over seeds."""
    frame = check_images(row.corpus, store.read_corpus(row.corpus))
    train, test = (frame.filter(pl.col("split") == split) for split in ("train", "test"))
    test = frame if test.is_empty() and row.corpus != study.train_image_text[row.encoders].corpus else test
    if len(test) < 2:
        raise BadInput(
            f"evaluate_image_text.{name}: corpus {row.corpus} has {len(test)} test images; two are needed"
        )
    run.input(store.corpus_path(row.corpus), "images")
    per_seed, known, device = [], None, resolve(row.device)
    for seed in study.train_image_text[row.encoders].seeds:
        model, words = load(store.intact(store.image_text_path(row.encoders)) / f"seed-{seed}")
        numbers, pair = measure(model.to(device), words, row, train, test)
        per_seed.append({"seed": seed} | numbers)
        known = known or pair
        run.log({f"seed-{seed}": {"image_text": numbers}})
    seeds = pl.DataFrame(per_seed)
    store.write_csv(store.plots_path("evaluate_image_text", name) / "seeds.csv", seeds)
    if known:
        store.write_csv(store.plots_path("evaluate_image_text", name) / "pmi.csv", sample(*known))
        run.artifact(store.plots_path("evaluate_image_text", name) / "pmi.csv")
    means = {k: seeds[k].mean() for k in seeds.columns if k != "seed"}
    spreads = {
        f"{k}_std": seeds[k].std()
        for k in means
        if len(seeds) > 1 and not k.endswith(("_error", "_C", "rank_limit"))
    }
    metrics = means | spreads | {"test": len(test), "seeds": len(seeds)}
    store.write_metrics("evaluate_image_text", name, metrics)
    run.log({"image_text": metrics})
    run.table(per_seed, "seeds.json")


if __name__ == "__main__":
    stage.main(evaluate_image_text)
