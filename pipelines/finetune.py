"""finetune: SimCSE on one corpus -> data/trained/<row>/, with alignment, uniformity and STS dev measured as it learns.

The loop replaces sentence-transformers' Trainer: every step draws its batch, dropout and masks from (seed, step), so
that a killed run continues bit for bit; the batch is one however many ranks share it; and the Trainer would bring in another
dependency. The losses are modules that also fit that Trainer: see pipelines/contrastive/simcse.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from torch import Tensor, nn

from pipelines import distributed
from pipelines.contrastive import losses, scratch, simcse
from pipelines.encoders import pooling
from pipelines.measures import geometry, similarity
from pipelines.runtime import files, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress
from pipelines.study import Finetune, Network, params

STATE, BEST = "state.pt", "best.pt"  # the state to continue from; the best weights so far
CLIP = 1.0  # largest norm of the gradient, as the Trainer that the paper used


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs with a human score each."""

    first: list[str]
    second: list[str]
    scores: Tensor  # (n,)


@dataclass
class Training:
    """The state of a run: the network, its training-only parts, the optimiser, the step, and the best checkpoint so far."""

    model: SentenceTransformer  # transformer and pooler, what will be saved
    trained: SentenceTransformer  # the same modules, and the MLP head where there is one
    words: simcse.MaskedWords | None
    optimiser: torch.optim.Optimizer
    step: int = 0
    best: float = -math.inf
    best_step: int = -1
    losses: list[Tensor] = field(default_factory=list)  # of the last steps, which nothing has looked at yet
    before: Tensor | None = None  # spectrum at step 0
    curve: list[dict[str, float]] = field(default_factory=list)

    def parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimiser.param_groups for p in group["params"]]


def finetune(name: str, row: Finetune, study: params.Study, run: track.Run) -> None:
    """Train, keep the checkpoint that is best on STS dev, write it with its curves."""
    columns = columns_of(row, study)
    dev = pairs(row.dev, "dev")
    for corpus in (row.corpus, row.dev):
        run.input(store.corpus_path(corpus), "train" if corpus == row.corpus else "dev")
    made_from = (row, store.digest(store.corpus_path(row.corpus)), store.digest(store.corpus_path(row.dev)))
    with (
        distributed.process_group(resolve(row.device)),
        distributed.on_rank_zero(store.work("finetune", name, *made_from)) as folder,
    ):
        training = begin(row, columns, folder)
        train(training, row, columns, dev, folder, run.log)
        if distributed.rank() == 0:
            finish(name, row, training, dev, folder, run)


# ---------------------------------------------------------------- what to train on


def columns_of(row: Finetune, study: params.Study) -> list[list[str]]:
    """One column of texts (unsupervised), or three: anchors, positives, negatives. Checked before any work is done."""
    names = ["text", "positive", "negative"] if study.corpora[row.corpus].kind == "nli" else ["text"]
    frame = store.read_corpus(row.corpus)
    for column in names:
        if column not in frame.columns:
            raise BadInput(
                f"finetune: corpus {row.corpus} has no column {column!r}; a triple needs text, positive and negative"
            )
    frame = frame.filter(pl.col("split") == "train")
    for column in names:
        empty = frame[column].fill_null("").str.strip_chars() == ""
        if empty.any():
            where = frame["id"][int(empty.arg_max() or 0)]
            raise BadInput(
                f"finetune: corpus {row.corpus}: {empty.sum()} rows have no {column}, the first with id {where!r}"
            )
    cut = "document" in frame.columns  # texts that overlap: halves are of documents
    unit = frame["document"].rle_id().cast(pl.Int64).to_numpy() if cut else np.arange(len(frame))
    order = np.random.default_rng(0).permutation(
        unit.max(initial=-1) + 1
    )  # halves are of the corpus, not of a seed
    chosen = {None: order, "first": order[: len(order) // 2], "second": order[len(order) // 2 :]}[row.half]
    rows = np.flatnonzero(np.isin(unit, chosen))
    if len(rows) < row.batch:
        raise BadInput(
            f"finetune: {len(rows)} train texts of corpus {row.corpus} do not fill a batch of {row.batch}"
        )
    return [frame[column].gather(rows).to_list() for column in names]


def pairs(corpus: str, split: str | None) -> Pairs:
    """The pairs of one split of an STS corpus. Raises BadInput if there are fewer than three."""
    frame = store.read_pairs(corpus, split)
    return Pairs(frame["text"].to_list(), frame["pair"].to_list(), frame["score"].to_torch())


# ---------------------------------------------------------------- the network


def begin(row: Finetune, columns: list[list[str]], folder: Path) -> Training:
    """The network to train, from a folder or from nothing; where a killed run left a state, at that state."""
    transformer, head = start(row, columns, folder)
    positions = transformer.model.config.max_position_embeddings
    if row.max_tokens > positions:
        raise BadInput(
            f"finetune: max_tokens {row.max_tokens} is beyond the {positions} positions of {row.start}"
        )
    transformer.max_seq_length = positions if row.network else transformer.max_seq_length
    simcse.set_dropout(transformer, row.dropout)
    width = pooling.width(transformer)
    device = resolve(row.device)
    torch.manual_seed(row.seed)  # the head's and the word model's weights
    pooler, head = pooling.pooler(row.pooling, width), head or pooling.head(width)
    words = (
        simcse.MaskedWords(transformer.model.get_input_embeddings(), width).to(device) if row.mlm else None
    )
    kept = [transformer, pooler, *([head] if row.head == "always" else [])]
    model = SentenceTransformer(modules=kept, device=str(device))
    trained = model if row.head != "train" else SentenceTransformer(modules=[*kept, head], device=str(device))
    learnt = [*trained.parameters(), *(words.parameters() if words else ())]
    training = Training(model, trained, words, torch.optim.AdamW(learnt, lr=row.lr, weight_decay=0.0))
    if distributed.broadcast((folder / STATE).exists()):  # asked once: the first rank may soon write one
        restore(training, folder)
    distributed.barrier()
    return training


def start(row: Finetune, columns: list[list[str]], folder: Path) -> tuple[Any, Dense | None]:
    """The transformer of a folder of sentence-transformers or of transformers, and the head that was kept there, if any; or a
    new one with a vocabulary learnt on the texts."""
    if row.start.endswith("scratch.py"):
        network = folder / "network"
        if distributed.rank() == 0:  # transformers writes on the first rank only
            shape = row.network or Network.model_validate({})
            scratch.network([text for column in columns for text in column], shape, row.seed, network)
        distributed.barrier()
        return Transformer(str(network)), None
    if row.network:
        raise BadInput(f"finetune: `network` describes a new network, but this one starts from {row.start}")
    if not any(
        Path(row.start, file).is_file() for file in ("modules.json", "config.json")
    ):  # the latter: plain transformers
        raise BadInput(
            f"finetune: {row.start} is no folder of a model (there is no modules.json and no config.json)"
        )
    transformer, *others = pooling.opened(Path(row.start), device="cpu", local_files_only=True)
    if not isinstance(transformer, Transformer):
        raise BadInput(
            f"finetune: {row.start} starts with {type(transformer).__name__}, which is no transformer"
        )
    return transformer, next((module for module in others if isinstance(module, Dense)), None)


def restore(training: Training, folder: Path) -> None:
    state = files.load_state(folder / STATE)
    training.trained.load_state_dict(state["model"])
    training.optimiser.load_state_dict(state["optimiser"])
    if training.words:
        training.words.load_state_dict(state["words"])
    training.step, training.best, training.best_step = state["step"], state["best"], state["best_step"]
    training.before, training.curve = state["before"], state["curve"]


def keep(training: Training, folder: Path) -> None:
    """The state to continue from, and the best weights so far, each in one rename."""
    state: dict[str, Any] = {
        "model": training.trained.state_dict(),
        "optimiser": training.optimiser.state_dict(),
        "words": training.words.state_dict() if training.words else None,
    }
    state |= {k: getattr(training, k) for k in ("step", "best", "best_step", "before", "curve")}
    if training.best_step == training.step:
        files.save_state(folder / BEST, training.model.state_dict())
    files.save_state(folder / STATE, state)


# ---------------------------------------------------------------- the loop


def train(
    training: Training,
    row: Finetune,
    columns: list[list[str]],
    dev: Pairs,
    folder: Path,
    log: Callable[[dict, int], None],
) -> None:
    """From where `training` is to `row.steps`, measuring on dev every `row.every` steps and at both ends."""
    if not training.curve:
        measure(training, row, dev, float("nan"), folder, log)
    for _ in progress(range(training.step, row.steps), what="train", unit="steps"):
        training.losses.append(step(training, row, columns))
        if training.step % row.every == 0 or training.step == row.steps:
            measure(training, row, dev, last_loss(training), folder, log)
        elif training.step % 10 == 0:
            log({"loss": last_loss(training)}, training.step)


def last_loss(training: Training) -> float:
    """The last step's loss, read in one transfer with those before it: a look at every step would have the device wait.

    Raises BadInput, naming the first step whose loss is not finite.
    """
    losses = torch.stack(training.losses).tolist()
    for at, loss in enumerate(losses, training.step - len(losses) + 1):
        if not math.isfinite(loss):
            raise BadInput(f"finetune: the loss is {loss} at step {at}; a lower lr may help")
    training.losses.clear()
    return losses[-1]


def step(training: Training, row: Finetune, columns: list[list[str]]) -> Tensor:
    """One step of the optimiser -> its loss. Its batch, augmentation, dropout and masks come from (seed, step)."""
    batch = distributed.shard(list(batch_rows(len(columns[0]), row.batch, row.seed, training.step)))
    torch.manual_seed((row.seed * 1_000_003 + training.step) * 1009 + distributed.rank())
    views = [[column[i] for i in batch] for column in columns]
    if len(views) == 1:
        views = two_views(views[0], row, training.step, batch)
    training.trained.train()
    loss = contrast(training, row, views)
    if training.words is not None:
        masked = (
            [columns[0][i] for i in batch]
            if row.mlm_of == "anchors"
            else [text for view in views for text in view]
        )
        loss = loss + row.mlm * word_loss(training, row, masked)
    training.optimiser.zero_grad()
    loss.backward()
    distributed.all_reduce_gradients(training.parameters())
    nn.utils.clip_grad_norm_(training.parameters(), CLIP)
    for group in training.optimiser.param_groups:
        group["lr"] = row.lr * rate(training.step, row)
    training.optimiser.step()
    training.step += 1
    return loss.detach()


def batch_rows(n: int, batch: int, seed: int, step: int) -> np.ndarray:
    """Which rows the step sees: every epoch is a new permutation, its last incomplete batch left out."""
    epoch, at = divmod(step, n // batch)
    return permutation(n, seed, epoch)[at * batch : (at + 1) * batch]


@lru_cache(maxsize=1)
def permutation(n: int, seed: int, epoch: int) -> np.ndarray:
    """One for all steps of an epoch: of a million rows it takes longer than a step."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def two_views(texts: list[str], row: Finetune, step: int, batch: list[int]) -> list[list[str]]:
    """The same texts twice, for dropout to tell apart; the second or both augmented, each on its own."""
    kind = row.augment
    if kind is None:
        return [texts, texts]
    rngs = [np.random.default_rng([row.seed, step, int(i)]) for i in batch]
    views = [
        [simcse.augmented(t, kind, row.augment_share, rng) for t, rng in zip(texts, rngs, strict=True)]
        for _ in range(2)
    ]
    return views if row.augment_views == "both" else [texts, views[0]]


def contrast(training: Training, row: Finetune, views: list[list[str]]) -> Tensor:
    """InfoNCE of the whole batch, all ranks' texts in it."""
    vectors = simcse.embed_columns(training.trained, views, row.max_tokens, row.mask)
    gathered = [distributed.all_gather(v) for v in vectors]
    return losses.info_nce(*gathered, temperature=row.temperature, negative_weight=row.negative_weight)


def word_loss(training: Training, row: Finetune, texts: list[str]) -> Tensor:
    """Mean cross entropy of the masked words of the whole batch; this rank's gradient is that of its own words."""
    assert training.words is not None
    first: Any = training.trained[0]
    tokenizer, transformer = first.tokenizer, first.model
    features = simcse.tokenized(training.trained, texts, row.max_tokens)
    allowed = features["attention_mask"].bool()
    for special in tokenizer.all_special_ids:
        allowed &= features["input_ids"] != special
    ids, targets = simcse.masked(features["input_ids"], allowed, tokenizer.mask_token_id, len(tokenizer))
    hidden = transformer(**{**features, "input_ids": ids}).last_hidden_state
    return training.words(hidden[targets], features["input_ids"][targets]) / distributed.all_reduce(
        targets.sum()
    ).clamp(min=1)


def rate(step: int, row: Finetune) -> float:
    """Learning rate as a share of `row.lr`: linear up from 0 during the warm-up, then linear down to 0 after the last step, as
    the schedule of transformers' Trainer, which the paper used."""
    if step < row.warmup:
        return step / row.warmup
    return (row.steps - step) / max(1, row.steps - row.warmup)


def measure(
    training: Training, row: Finetune, dev: Pairs, loss: float, folder: Path, log: Callable[[dict, int], None]
) -> None:
    """A point of the curve; a candidate for selection, unless nothing has been learnt yet."""
    if distributed.rank() == 0:
        first, second = encode(training.model, dev.first), encode(training.model, dev.second)
        point = {"step": training.step, "loss": loss, **similarity.sts(first, second, dev.scores)}
        training.curve.append(point)
        if training.before is None:
            training.before = geometry.spectrum(torch.cat([first, second]))
        log({k: v for k, v in point.items() if k != "step" and math.isfinite(v)}, training.step)
        if (training.step > 0 or row.steps == 0) and point["spearman"] > training.best:
            training.best, training.best_step = point["spearman"], training.step
        keep(training, folder)
    distributed.barrier()


def encode(model: SentenceTransformer, texts: list[str]) -> Tensor:
    """Vectors of texts, dropout off. n texts -> (n, d), on the CPU"""
    return (
        model.eval()
        .encode(texts, batch_size=128, convert_to_tensor=True, show_progress_bar=False)
        .float()
        .cpu()
    )


# ---------------------------------------------------------------- what is left behind


def finish(name: str, row: Finetune, training: Training, dev: Pairs, folder: Path, run: track.Run) -> None:
    """Write the best checkpoint, its metrics, its curve, and the spectrum before and after."""
    texts = list(dict.fromkeys(dev.first + dev.second))
    plots = store.plots_path("finetune", name)
    if not (folder / BEST).exists():
        raise BadInput(f"finetune.{name}: no checkpoint has a finite correlation on {row.dev}")
    training.model.load_state_dict(files.load_state(folder / BEST))
    best = encode(training.model, texts)
    training.model.save(str(folder / "model"), create_model_card=False)
    store.move_into(folder / "model", store.trained_path(name))
    store.write_csv(plots / "curve.csv", pl.DataFrame(training.curve))
    assert training.before is not None
    spectra = {"before": training.before.numpy(), "after": geometry.spectrum(best).numpy()}
    ranks = min(
        map(len, spectra.values())
    )  # of few texts fewer than dimensions: before, those that stand twice count twice
    columns = {"rank": range(1, ranks + 1)} | {when: values[:ranks] for when, values in spectra.items()}
    store.write_csv(plots / "spectrum.csv", pl.DataFrame(columns))
    chosen = next(p for p in training.curve if p["step"] == training.best_step)
    points = {"dev": chosen, "before": training.curve[0]}
    metrics = {part: {k: v for k, v in point.items() if k != "loss"} for part, point in points.items()}
    metrics["dev"] |= geometry.anisotropy(best)
    store.write_metrics("finetune", name, metrics)
    run.log({"similarity": metrics})
    for table in ("curve.csv", "spectrum.csv"):
        run.artifact(plots / table)


if __name__ == "__main__":
    stage.main(finetune)
