"""evaluate_image_text: trained image and text encoders, measured on a corpus.

Zero-shot and linear classification, retrieval, and on generated scenes the agreement with the true pointwise
mutual information (PMI).
"""

import math
from collections.abc import Callable

import numpy as np
import polars as pl
import torch
from torch import Tensor

from pipelines.contrastive.kernels import PointSets, exact, features, fourier
from pipelines.contrastive.pairs import by_image, check_images, generator
from pipelines.contrastive.pixels import pixels_of
from pipelines.contrastive.point_sets import DualEncoder, load
from pipelines.contrastive.towers import Words
from pipelines.corpora.kinds.scenes.synthetic import pmi as true_pmi
from pipelines.measures import attributes, image_text, numbered, summary
from pipelines.measures.linear import linear_correct
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import EvaluateImageText, params

BATCH = 512
LEAST = 10  # train images of a linear classifier


def evaluate_image_text(name: str, row: EvaluateImageText, study: params.Study, run: track.Run) -> None:
    """Measure the encoders of every seed. Write mean and standard deviation over seeds."""
    # 1. Choose the images.
    frame = check_images(row.corpus, store.read_corpus(row.corpus))
    run.input(store.corpus_path(row.corpus), "images")
    trained = study.train_image_text[row.encoders]
    train, test = images_of(frame, own=row.corpus == trained.corpus)
    if len(test) < 2:
        raise BadInput(f"corpus {row.corpus} has {len(test)} test images; two are needed")

    # 2. Measure the encoders of each seed.
    per_seed, known, device = [], None, resolve(row.device)
    for seed in trained.seeds:
        model, words = load(intact.checked(store.image_text_path(row.encoders)) / f"seed-{seed}")
        numbers, pair = measure(model.to(device), words, row, train, test)
        per_seed.append({"seed": seed} | numbers)
        known = known or pair
        run.log({f"seed-{seed}": {"image_text": numbers}})

    # 3. Write the tables and the metrics.
    seeds, plots = pl.DataFrame(per_seed), store.tables_path("evaluate_image_text", name)
    store.write_csv(plots / "seeds.csv", seeds)
    if known:
        store.write_csv(plots / "pmi.csv", sample(*known))
        run.artifact(plots / "pmi.csv")
    metrics = {key: seeds[key].mean() for key in seeds.columns if key != "seed"}
    if len(seeds) > 1:
        fixed = ("_error", "rank_limit", "width", "classified")
        varying = [key for key in metrics if not key.endswith(fixed)]
        metrics |= {f"{key}_std": seeds[key].std() for key in varying}
    metrics |= {"test": len(test), "seeds": len(seeds)}
    store.write_metrics("evaluate_image_text", name, metrics)
    run.log({"image_text": metrics})


def images_of(frame: pl.DataFrame, own: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return train and test images, each once.

    own: the encoders were trained on this corpus. Another corpus without a split test gives all its images as
    test images. Whether the encoders were trained on one of these is not checked.
    """
    train, test = (by_image(frame.filter(pl.col("split") == split)) for split in ("train", "test"))
    return (train, test) if own or len(test) else (test, by_image(frame))


def measure(
    model: DualEncoder, words: Words, row: EvaluateImageText, train: pl.DataFrame, test: pl.DataFrame
) -> tuple[dict[str, float], tuple[Tensor, Tensor] | None]:
    """Measure classification if images have labels, retrieval, and the PMI's agreement if it is known.

    -> numbers, and (similarity, PMI) if the PMI is known. Raises BadInput if labels have only one class.
    """
    scores, numbers, known = {}, {}, None
    if test["labels"].list.len().sum():
        scores, numbers = classification(model, words, row, train, test)
    frame, dim = some(test, row.limit), model.row.head.dim
    similarity, texts, right = similarities(model, words, frame)
    scores |= image_text.retrieval(similarity, right)
    if "scene" in frame.columns:
        known = similarity, torch.from_numpy(true_pmi(frame["scene"].to_list(), texts))
        numbers |= image_text.pmi_agreement(*known, dim)
    return numbers | summary(scores), known


# ---------------------------------------------------------------- classification


def classification(
    model: DualEncoder, words: Words, row: EvaluateImageText, train: pl.DataFrame, test: pl.DataFrame
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Classify images with exactly one label, zero-shot and by a linear classifier. -> whether each is right,
    (n,); classified: n; linear_width: how many features the classifier sees

    Raises BadInput for fewer than two classes.
    """
    test, train = single_label(test), some(single_label(train), row.probe)
    true_labels, classes = test["label"].to_numpy(), test["label"].unique().sort().to_list()
    if len(classes) < 2:
        raise BadInput(f"{len(classes)} class among the images with one label; two are needed")
    sets = image_sets(model, test)
    scores = {"zero_shot": zero_shot(model, words, sets, numbered(true_labels), classes, row.templates)}
    numbers: dict[str, float] = {"classified": len(test)}
    if len(train) < LEAST:
        return scores, numbers
    seen, new = (probe_features(model, of, row.features) for of in (image_sets(model, train), sets))
    where = f"corpus {row.corpus}, images"
    scores["linear"] = linear_correct(where, seen, train["label"].to_numpy(), new, true_labels)
    return scores, numbers | {"linear_width": seen.shape[1]}


def some(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return at most so many rows, drawn at random: a table may be sorted by class."""
    return frame if len(frame) <= most else frame.sample(most, seed=0, shuffle=True)


def single_label(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with exactly one label, with a column `label`."""
    return frame.filter(pl.col("labels").list.len() == 1).with_columns(label=pl.col("labels").list.first())


def zero_shot(
    model: DualEncoder,
    words: Words,
    sets: PointSets,
    labels: Tensor,
    classes: list[str],
    templates: tuple[str, ...],
) -> Tensor:
    """Return the top-1 of the ensemble of templates. -> (n,)

    The similarity to the union of a class's sets is the mean similarity to each.
    """
    total = torch.zeros(len(labels), len(classes))
    for template in templates:
        prompts = words([template.replace("{}", name.replace("_", " ")) for name in classes])[0]
        scores = exact(sets, sets_of(model.text_sets, prompts), model.kernel).cpu()
        total += scores.exp() if model.kernel.log else scores
    return image_text.top1(total, labels)


@torch.inference_mode()
def probe_features(model: DualEncoder, sets: PointSets, count: int) -> np.ndarray:
    """Return the mean weighted point and `count` random Fourier features of images. -> (n, dim + count)

    Without a non-linear kernel, as for a single vector, it is the mean alone, (n, dim); without a linear one
    the Fourier features alone.
    """
    draw = fourier(model.kernel, model.row.head.dim, count, generator(0, 4)).to(model.raw_scale.device)
    return torch.cat([features(part, model.kernel, draw).cpu() for part in sets.split(BATCH)]).numpy()


# ---------------------------------------------------------------- retrieval and PMI


def similarities(model: DualEncoder, words: Words, frame: pl.DataFrame) -> tuple[Tensor, list[str], Tensor]:
    """Compare n images with their m different captions. -> (n, m), captions, (n, m) which belong together"""
    captions = frame["captions"].to_list()
    texts = sorted({text for of_image in captions for text in of_image})
    right = attributes.truth(captions, texts)
    captioned = sets_of(model.text_sets, words(texts)[0])
    return exact(image_sets(model, frame), captioned, model.kernel).cpu(), texts, right


def sample(scores: Tensor, pmi: Tensor, most: int = 4000) -> pl.DataFrame:
    """Return up to `most` pairs at regular intervals, and up to `most` whose caption is true of the image.

    Both (n, m) -> a table
    """
    spaced = torch.linspace(0, pmi.numel() - 1, min(most, pmi.numel()), dtype=torch.float64).long()
    true = torch.nonzero(pmi.flatten() > pmi.min()).flatten()
    true = true[:: math.ceil(len(true) / most) or 1]
    pairs = torch.cat([spaced, true])
    return pl.DataFrame(
        {
            "true": [False] * len(spaced) + [True] * len(true),
            "pmi": pmi.flatten()[pairs].numpy(),
            "similarity": scores.flatten()[pairs].numpy(),
        }
    )


# ---------------------------------------------------------------- point sets


def image_sets(model: DualEncoder, frame: pl.DataFrame) -> PointSets:
    """Return the sets of the images of a table."""
    return sets_of(model.image_sets, pixels_of(frame, model.row.image.size))


@torch.inference_mode()
def sets_of(tower: Callable[[Tensor], PointSets], inputs: Tensor) -> PointSets:
    """Return the sets of all images or captions, in batches."""
    parts = [tower(part) for part in inputs.split(BATCH)]
    return PointSets(torch.cat([p.points for p in parts]), torch.cat([p.weights for p in parts]))


if __name__ == "__main__":
    stage.main(evaluate_image_text)
