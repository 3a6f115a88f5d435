"""finetune: SimCSE on one corpus -> data/trained/<row>/, measured on STS dev during training.

The loop replaces sentence-transformers' Trainer. Each step draws its batch, dropout and masks from (seed,
step), so a killed run continues bit for bit, and the global batch does not depend on the number of ranks.
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

STATE, BEST = "state.pt", "best.pt"  # the state to resume from; the best weights so far
CLIP = 1.0  # maximum norm of the gradient, as in the Trainer that the paper used
LOGGED = 10  # steps between two logged losses

Log = Callable[[dict, int], None]


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs with a human score each."""

    first: list[str]
    second: list[str]
    scores: Tensor  # (n,)


@dataclass
class Training:
    """The state of a run."""

    model: SentenceTransformer  # transformer and pooler, which are saved
    trained: SentenceTransformer  # the same modules, and the MLP head if it is used in training only
    words: simcse.MaskedWords | None
    optimiser: torch.optim.Optimizer
    step: int = 0
    best: float = -math.inf
    best_step: int = -1
    losses: list[Tensor] = field(default_factory=list)  # of the last steps, still on the device
    curve: list[dict[str, float]] = field(default_factory=list)

    def parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimiser.param_groups for p in group["params"]]


def finetune(name: str, row: Finetune, study: params.Study, run: track.Run) -> None:
    """Train, and write the checkpoint that is best on STS dev, with its curves."""
    # 1. Read and check the texts.
    columns = read_texts(row, study)
    frame = store.read_pairs(row.dev, "dev")
    dev = Pairs(frame["text"].to_list(), frame["pair"].to_list(), frame["score"].to_torch())
    digests = []
    for corpus, role in ((row.corpus, "train"), (row.dev, "dev")):
        run.input(store.corpus_path(corpus), role)
        digests.append(store.digest(store.corpus_path(corpus)))
    with (
        distributed.process_group(resolve(row.device)),
        distributed.on_rank_zero(store.work("finetune", name, row, *digests)) as folder,
    ):
        # 2. Build the network, or resume.
        training = build(row, columns, folder)
        if distributed.broadcast((folder / STATE).exists()):  # asked once: rank 0 may write one soon
            restore(training, folder)
        distributed.barrier()

        # 3. Train, and measure on dev.
        train(training, row, columns, dev, folder, run.log)

        # 4. Write the best checkpoint.
        if distributed.rank() == 0:
            finish(name, row, training, dev, folder, run)


# ---------------------------------------------------------------- 1. texts


def read_texts(row: Finetune, study: params.Study) -> list[list[str]]:
    """Return one column of texts (unsupervised), or three: anchors, positives, negatives.

    Raise BadInput for missing columns, empty texts, or fewer texts than a batch.
    """
    names = ["text", "positive", "negative"] if study.corpora[row.corpus].kind == "nli" else ["text"]
    where, frame = f"finetune: corpus {row.corpus}", store.read_corpus(row.corpus)
    for column in names:
        if column not in frame.columns:
            raise BadInput(f"{where} has no column {column!r}; a triple needs text, positive and negative")
    frame = frame.filter(pl.col("split") == "train")
    for column in names:
        empty = frame[column].fill_null("").str.strip_chars() == ""
        if empty.any():
            first = frame["id"][int(empty.arg_max() or 0)]
            raise BadInput(f"{where}: {empty.sum()} rows have no {column}, the first with id {first!r}")
    rows = rows_of_half(frame, row.half)
    if len(rows) < row.batch:
        raise BadInput(f"{where}: {len(rows)} train texts do not fill a batch of {row.batch}")
    return [frame[column].gather(rows).to_list() for column in names]


def rows_of_half(frame: pl.DataFrame, half: str | None) -> np.ndarray:
    """Return the rows of one half of the documents, which does not depend on the seed; None: all rows."""
    names, document = np.unique(
        frame["document" if "document" in frame.columns else "id"], return_inverse=True
    )
    order = np.random.default_rng(0).permutation(len(names))
    middle = len(order) // 2
    chosen = {None: order, "first": order[:middle], "second": order[middle:]}[half]
    return np.flatnonzero(np.isin(document, chosen))


# ---------------------------------------------------------------- 2. the network


def build(row: Finetune, columns: list[list[str]], folder: Path) -> Training:
    """Return the network to train, from a folder or untrained. Raise BadInput if it has too few positions."""
    transformer, head = start(row, columns, folder)
    positions = transformer.model.config.max_position_embeddings
    if row.max_tokens > positions:
        raise BadInput(
            f"finetune: max_tokens {row.max_tokens} is beyond the {positions} positions of {row.start}"
        )
    if row.network:
        transformer.max_seq_length = positions
    simcse.set_dropout(transformer, row.dropout)
    width, device = pooling.width(transformer), resolve(row.device)
    torch.manual_seed(row.seed)  # for the weights of the head and of the word model
    pooler, head = pooling.pooler(row.pooling, width), head or pooling.head(width)
    words = None
    if row.mlm:
        words = simcse.MaskedWords(transformer.model.get_input_embeddings(), width).to(device)
    kept = [transformer, pooler, *([head] if row.head == "always" else [])]
    model = SentenceTransformer(modules=kept, device=str(device))
    trained = model if row.head != "train" else SentenceTransformer(modules=[*kept, head], device=str(device))
    learnt = [*trained.parameters(), *(words.parameters() if words else ())]
    return Training(model, trained, words, torch.optim.AdamW(learnt, lr=row.lr, weight_decay=0.0))


def start(row: Finetune, columns: list[list[str]], folder: Path) -> tuple[Any, Dense | None]:
    """Return the transformer of the folder `row.start` and its head, if any; or a new transformer."""
    if row.start.endswith("scratch.py"):
        network = folder / "network"
        if distributed.rank() == 0:
            shape = row.network or Network.model_validate({})
            scratch.network([text for column in columns for text in column], shape, row.seed, network)
        distributed.barrier()
        return Transformer(str(network)), None
    if row.network:
        raise BadInput(f"finetune: `network` describes a new network, but this one starts from {row.start}")
    if not any(Path(row.start, file).is_file() for file in ("modules.json", "config.json")):
        raise BadInput(f"finetune: {row.start} is no model: it has neither modules.json nor config.json")
    transformer, *others = pooling.open_model(Path(row.start))
    if not isinstance(transformer, Transformer):
        kind = type(transformer).__name__
        raise BadInput(f"finetune: {row.start} starts with {kind}, which is no transformer")
    return transformer, next((module for module in others if isinstance(module, Dense)), None)


def restore(training: Training, folder: Path) -> None:
    """Continue from the state that `save` wrote."""
    state = files.load_state(folder / STATE)
    training.trained.load_state_dict(state["model"])
    training.optimiser.load_state_dict(state["optimiser"])
    if training.words:
        training.words.load_state_dict(state["words"])
    for key in ("step", "best", "best_step", "curve"):
        setattr(training, key, state[key])


def save(training: Training, folder: Path) -> None:
    """Write the best weights so far, then the state to resume from."""
    if training.best_step == training.step:
        files.save_state(folder / BEST, training.model.state_dict())
    state: dict[str, Any] = {
        "model": training.trained.state_dict(),
        "optimiser": training.optimiser.state_dict(),
        "words": training.words.state_dict() if training.words else None,
    }
    for key in ("step", "best", "best_step", "curve"):
        state[key] = getattr(training, key)
    files.save_state(folder / STATE, state)


# ---------------------------------------------------------------- 3. training


def train(
    training: Training, row: Finetune, columns: list[list[str]], dev: Pairs, folder: Path, log: Log
) -> None:
    """Train up to `row.steps`. Measure on dev at step 0, every `row.every` steps, and at the end."""
    if not training.curve:
        measure(training, row, dev, float("nan"), folder, log)
    for _ in progress(range(training.step, row.steps), what="train", unit="steps"):
        training.losses.append(step(training, row, columns))
        if training.step % row.every == 0 or training.step == row.steps:
            measure(training, row, dev, last_loss(training), folder, log)
        elif training.step % LOGGED == 0:
            log({"loss": last_loss(training)}, training.step)


def step(training: Training, row: Finetune, columns: list[list[str]]) -> Tensor:
    """Take one optimiser step and return its loss.

    Batch, augmentation, dropout and masks come from (seed, step).
    """
    batch = distributed.shard(list(batch_rows(len(columns[0]), row.batch, row.seed, training.step)))
    torch.manual_seed((row.seed * 1_000_003 + training.step) * 1009 + distributed.rank())
    views = [[column[i] for i in batch] for column in columns]
    if len(views) == 1:
        views = two_views(views[0], row, training.step, batch)
    training.trained.train()
    vectors = simcse.embed_columns(training.trained, views, row.max_tokens, row.mask)
    gathered = [distributed.all_gather(v) for v in vectors]
    loss = losses.info_nce(*gathered, temperature=row.temperature, negative_weight=row.negative_weight)
    if training.words is not None:
        loss = loss + row.mlm * word_loss(training, row, [columns[0][i] for i in batch])
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
    """Return the rows of one batch. Every epoch is a new permutation, without its last incomplete batch."""
    epoch, at = divmod(step, n // batch)
    return _permutation(n, seed, epoch)[at * batch : (at + 1) * batch]


@lru_cache(maxsize=1)
def _permutation(n: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(n)


def two_views(texts: list[str], row: Finetune, step: int, batch: list[int]) -> list[list[str]]:
    """Return the texts twice, for dropout to tell apart.

    The second or both are augmented, each with its own draws.
    """
    if row.augment is None:
        return [texts, texts]
    rngs = [np.random.default_rng([row.seed, step, int(i)]) for i in batch]
    views = []
    for _ in range(2):
        pairs = zip(texts, rngs, strict=True)
        views.append([simcse.augment(text, row.augment, row.augment_share, rng) for text, rng in pairs])
    return views if row.augment_views == "both" else [texts, views[0]]


def word_loss(training: Training, row: Finetune, texts: list[str]) -> Tensor:
    """Return the mean cross entropy of the masked words of all ranks, with gradient of this rank's words."""
    assert training.words is not None
    first: Any = training.trained[0]
    tokenizer, transformer = first.tokenizer, first.model
    features = simcse.tokenize(training.trained, texts, row.max_tokens)
    allowed = features["attention_mask"].bool()
    for special in tokenizer.all_special_ids:
        allowed &= features["input_ids"] != special
    ids, targets = simcse.mask_words(features["input_ids"], allowed, tokenizer.mask_token_id, len(tokenizer))
    hidden = transformer(**{**features, "input_ids": ids}).last_hidden_state
    count = distributed.all_reduce(targets.sum()).clamp(min=1)
    return training.words(hidden[targets], features["input_ids"][targets]) / count


def rate(step: int, row: Finetune) -> float:
    """Return the learning rate as a fraction of `row.lr`: linear warm-up, then linear decay to 0."""
    if step < row.warmup:
        return step / row.warmup
    return (row.steps - step) / max(1, row.steps - row.warmup)


def last_loss(training: Training) -> float:
    """Return the last step's loss. Raise BadInput, naming the first step whose loss is not finite.

    All pending losses are read in one transfer, because each read makes the device wait for the host.
    """
    losses = torch.stack(training.losses).tolist()
    for at, loss in enumerate(losses, training.step - len(losses) + 1):
        if not math.isfinite(loss):
            raise BadInput(f"finetune: the loss is {loss} at step {at}; a lower lr may help")
    training.losses.clear()
    return losses[-1]


def measure(training: Training, row: Finetune, dev: Pairs, loss: float, folder: Path, log: Log) -> None:
    """Add a point to the curve, and update the best checkpoint.

    Step 0 is no candidate if there are later ones.
    """
    if distributed.rank() == 0:
        first, second = encode(training.model, dev.first), encode(training.model, dev.second)
        point = {"step": training.step, "loss": loss, **similarity.sts(first, second, dev.scores)}
        training.curve.append(point)
        log({k: v for k, v in point.items() if k != "step" and math.isfinite(v)}, training.step)
        if (training.step > 0 or row.steps == 0) and point["spearman"] > training.best:
            training.best, training.best_step = point["spearman"], training.step
        save(training, folder)
    distributed.barrier()


def encode(model: SentenceTransformer, texts: list[str]) -> Tensor:
    """Return vectors of texts without dropout. n texts -> (n, d), on the CPU"""
    model.eval()
    vectors = model.encode(texts, batch_size=128, convert_to_tensor=True, show_progress_bar=False)
    return vectors.float().cpu()


# ---------------------------------------------------------------- 4. outputs


def finish(name: str, row: Finetune, training: Training, dev: Pairs, folder: Path, run: track.Run) -> None:
    """Write the best checkpoint, its metrics and the curve."""
    if not (folder / BEST).exists():
        raise BadInput(f"finetune.{name}: no checkpoint has a finite correlation on {row.dev}")
    training.model.load_state_dict(files.load_state(folder / BEST))
    vectors = encode(training.model, list(dict.fromkeys(dev.first + dev.second)))
    training.model.save(str(folder / "model"), create_model_card=False)
    store.move_into(folder / "model", store.trained_path(name))

    curve = store.plots_path("finetune", name) / "curve.csv"
    store.write_csv(curve, pl.DataFrame(training.curve))

    best = next(point for point in training.curve if point["step"] == training.best_step)
    metrics = {}
    for part, point in (("dev", best), ("before", training.curve[0])):
        metrics[part] = {k: v for k, v in point.items() if k != "loss"}
    metrics["dev"] |= geometry.anisotropy(vectors)
    store.write_metrics("finetune", name, metrics)
    run.log({"similarity": metrics})
    run.artifact(curve)


if __name__ == "__main__":
    stage.main(finetune)
