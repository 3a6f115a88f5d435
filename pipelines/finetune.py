"""finetune: SimCSE on one corpus -> data/trained/<row>/, measured on STS dev during training.

The loop replaces sentence-transformers' Trainer. Each step draws its batch from (seed, step), dropout and
masks from (seed, step, rank). A killed run resumes bit for bit if the number of ranks is the same. The global
batch never depends on it.
"""

import math
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
from pipelines.contrastive import scratch, simcse
from pipelines.contrastive.losses import finite_losses
from pipelines.encoders import pooling
from pipelines.measures import geometry, similarity
from pipelines.runtime import files, intact, stage, store, track
from pipelines.runtime.device import forked, manual_seed, resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import Log, progress
from pipelines.study import Finetune, Network, params

STATE, BEST = "state.pt", "best.pt"  # the state to resume from; the best weights so far
MAX_NORM = 1.0  # of the gradient, as in the Trainer that the paper used
LOGGED = 10  # steps between two logged losses


@dataclass
class Training:
    """The state of a run."""

    model: SentenceTransformer  # transformer and pooler, which are saved
    trained: SentenceTransformer  # the same modules, and the MLP head if it is used in training only
    words: simcse.MaskedWords | None
    optimiser: torch.optim.Optimizer
    learnt: list[nn.Parameter]  # what the optimiser changes
    curve: list[dict[str, float]] = field(default_factory=list)  # measures on dev, the first at step 0
    step: int = 0

    def parts(self) -> dict[str, Any]:
        """Return all that has a state."""
        parts = {"model": self.trained, "optimiser": self.optimiser, "words": self.words}
        return {name: part for name, part in parts.items() if part is not None}

    def best(self) -> dict[str, float] | None:
        """Return the point of the highest finite Spearman. Step 0 is no candidate if there are later ones."""
        points = [p for p in self.curve[1:] or self.curve if math.isfinite(p["spearman"])]
        return max(points, key=lambda p: p["spearman"], default=None)


def finetune(name: str, row: Finetune, study: params.Study, run: track.Run) -> None:
    """Train, and write the checkpoint that is best on STS dev, with its curves."""
    # 1. Read and check the texts.
    columns, dev = read_texts(row, study), store.read_pairs(row.dev, "dev")
    paths = {role: store.corpus_path(corpus) for role, corpus in (("train", row.corpus), ("dev", row.dev))}
    for role, path in paths.items():
        run.input(path, role)
    origin = intact.checked(Path(row.start))
    weights = origin if origin.is_dir() else None  # else it is code, which `code` digests
    code = store.code_digest("contrastive", "distributed", "encoders", "finetune", "measures")
    device = resolve(row.device)
    made_from = (code, row, device.type, weights, *paths.values())
    with (
        distributed.process_group(device),
        forked(device),
        distributed.on_rank_zero(
            store.work("finetune", name, *made_from, distributed.world_size())
        ) as folder,
    ):
        # 2. Build the network, or resume.
        training = build(row, columns, folder)
        if distributed.broadcast((folder / STATE).exists()):  # rank 0 decides: it may soon write a state
            restore(training, folder)
        distributed.barrier()

        # 3. Train, and measure on dev.
        train(training, row, columns, dev, folder, run.log)

        # 4. Write the best checkpoint.
        if distributed.rank() == 0:
            finish(name, training, dev, folder, run)


# ---------------------------------------------------------------- 1. texts


def read_texts(row: Finetune, study: params.Study) -> list[list[str]]:
    """Return one column of texts (unsupervised), or three: anchors, positives, negatives.

    Raises BadInput for fewer texts than a batch.
    """
    names = ["text", "positive", "negative"] if study.corpora[row.corpus].kind == "nli" else ["text"]
    frame = store.read_corpus(row.corpus).filter(pl.col("split") == "train")
    rows = rows_of_half(frame, row.half)
    if len(rows) < row.batch:
        raise BadInput(f"corpus {row.corpus}: {len(rows)} train texts do not fill a batch of {row.batch}")
    return [frame[column].gather(rows).to_list() for column in names]


def rows_of_half(frame: pl.DataFrame, half: str | None) -> np.ndarray:
    """Return the rows of one half of the documents, which does not depend on the seed; None: all rows."""
    names, document = np.unique(frame["document"], return_inverse=True)
    order = np.random.default_rng(0).permutation(len(names))
    middle = len(order) // 2
    chosen = {None: order, "first": order[:middle], "second": order[middle:]}[half]
    return np.flatnonzero(np.isin(document, chosen))


# ---------------------------------------------------------------- 2. the network


def build(row: Finetune, columns: list[list[str]], folder: Path) -> Training:
    """Return the network to train, from a folder or untrained.

    Raises BadInput if it has too few positions, or for `mlm` no mask token or embeddings of another width.
    """
    transformer, head = start(row, columns, folder)
    positions = pooling.positions(transformer)
    if positions and row.max_tokens > positions:
        raise BadInput(f"max_tokens {row.max_tokens} is beyond the {positions} positions of the network")
    if row.mlm and transformer.tokenizer.mask_token_id is None:
        raise BadInput(f"mlm {row.mlm}: the tokenizer of {row.start} has no mask token")
    simcse.set_dropout(transformer, row.dropout)
    width, device = pooling.width(transformer), resolve(row.device)
    manual_seed(row.seed, device)  # for the weights of the head and of the word model
    body, mlp = [transformer, pooling.pooler(row.pooling, width)], head or pooling.head(width)
    words = None
    if row.mlm:
        embeddings = transformer.model.get_input_embeddings()
        if embeddings.embedding_dim != width:
            hint = f"embeddings of {embeddings.embedding_dim} dimensions, but layers of {width}"
            raise BadInput(f"mlm {row.mlm}: {row.start} has {hint}, and `mlm` needs one width")
        words = simcse.MaskedWords(embeddings, width).to(device)
    trained = SentenceTransformer(modules=body if row.head == "none" else [*body, mlp], device=str(device))
    model = SentenceTransformer(modules=body, device=str(device)) if row.head == "train" else trained
    learnt = [*trained.parameters(), *(words.parameters() if words else ())]
    return Training(model, trained, words, torch.optim.AdamW(learnt, lr=row.lr, weight_decay=0.0), learnt)


def start(row: Finetune, columns: list[list[str]], folder: Path) -> tuple[Any, Dense | None]:
    """Return the transformer of the folder `row.start` and its head, if any; or a new transformer.

    A head is a layer with tanh from the transformer's width to the same width.
    """
    if row.from_scratch:
        network = folder / "network"
        if distributed.rank() == 0:
            shape = row.network or Network()
            scratch.network([text for column in columns for text in column], shape, row.seed, network)
        distributed.barrier()
        return Transformer(str(network)), None
    if row.network:
        raise BadInput(f"`network` describes a new network, but this one starts from {row.start}")
    model = pooling.open_model(Path(row.start), torch.float32)  # AdamW's epsilon is 0 in 16 bits
    if pooling.document_prompt(model):
        raise BadInput(f"{row.start} puts a prompt before each text, and training has none")
    transformer, *others = model
    if not isinstance(transformer, Transformer):
        kind = type(transformer).__name__
        raise BadInput(f"{row.start} starts with {kind}, which is no transformer")
    width = pooling.width(transformer)
    tanh = (m for m in others if isinstance(m, Dense) and isinstance(m.activation_function, nn.Tanh))
    return transformer, next((m for m in tanh if m.in_features == m.out_features == width), None)


def restore(training: Training, folder: Path) -> None:
    """Continue from the state that `measure` wrote."""
    state = files.load_state(folder / STATE)
    for name, part in training.parts().items():
        part.load_state_dict(state[name])
    training.step, training.curve = state["step"], state["curve"]


# ---------------------------------------------------------------- 3. training


def train(
    training: Training, row: Finetune, columns: list[list[str]], dev: pl.DataFrame, folder: Path, log: Log
) -> None:
    """Train up to `row.steps`. Measure on dev at step 0, every `row.every` steps, and at the end.

    Raises BadInput for a loss that is not finite.
    """
    if not training.curve:
        measure(training, dev, math.nan, folder, log)
    pending: list[Tensor] = []  # losses that are still on the device
    for _ in progress(range(training.step, row.steps), what="train", unit="steps"):
        pending.append(step(training, row, columns))
        measured = training.step % row.every == 0 or training.step == row.steps
        if measured or training.step % LOGGED == 0:
            loss = finite_losses(pending, training.step - len(pending) + 1)[-1]
            pending = []
            if measured:
                measure(training, dev, loss, folder, log)
            else:
                log({"loss": loss}, training.step)


def step(training: Training, row: Finetune, columns: list[list[str]]) -> Tensor:
    """Take one optimiser step and return its loss.

    Batch and augmentation come from (seed, step), dropout and masks from (seed, step, rank).
    """
    batch = distributed.shard(list(batch_rows(len(columns[0]), row.batch, row.seed, training.step)))
    seed = (row.seed * 1_000_003 + training.step) * 1009 + distributed.rank()
    manual_seed(seed, training.trained.device)
    views = [[column[i] for i in batch] for column in columns]
    if len(views) == 1:
        views = two_views(views[0], row, training.step, batch)
    training.trained.train()
    vectors = simcse.embed_columns(training.trained, views, row.max_tokens, row.mask)
    gathered = [distributed.all_gather(v) for v in vectors]
    loss = simcse.info_nce(*gathered, temperature=row.temperature, negative_weight=row.negative_weight)
    of_all = loss.detach()  # of all ranks, to be logged
    if training.words is not None:
        words = row.mlm * word_loss(training, row, [columns[0][i] for i in batch])
        of_all = of_all + distributed.all_reduce(words.detach())
        loss = loss + words
    training.optimiser.zero_grad()
    loss.backward()
    distributed.all_reduce_gradients(training.learnt)
    nn.utils.clip_grad_norm_(training.learnt, MAX_NORM)
    for group in training.optimiser.param_groups:
        group["lr"] = row.lr * rate_factor(training.step, row)
    training.optimiser.step()
    training.step += 1
    return of_all


def batch_rows(n: int, batch: int, seed: int, step: int) -> np.ndarray:
    """Return the rows of one batch. Every epoch is a new permutation, without its last incomplete batch."""
    epoch, at = divmod(step, n // batch)
    return _permutation(n, seed, epoch)[at * batch : (at + 1) * batch]


@lru_cache(maxsize=1)
def _permutation(n: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(n)


def two_views(texts: list[str], row: Finetune, step: int, batch: list[int]) -> list[list[str]]:
    """Return two views of the texts. Dropout makes them differ.

    If the row says so, the second or both are augmented, each with its own draws.
    """
    if row.augment is None:
        return [texts, texts]
    kind, rngs = row.augment, [np.random.default_rng([row.seed, step, int(i)]) for i in batch]

    def augmented() -> list[str]:
        return [simcse.augment(t, kind, row.augment_share, rng) for t, rng in zip(texts, rngs, strict=True)]

    return [augmented() if row.augment_views == "both" else texts, augmented()]


def word_loss(training: Training, row: Finetune, texts: list[str]) -> Tensor:
    """Return this rank's part of the mean cross entropy of all masked words: the parts add up to the mean."""
    assert training.words is not None
    first: Any = training.trained[0]
    features = simcse.tokenize(training.trained, texts, row.max_tokens)
    allowed = pooling.words_of(first.tokenizer, features)
    mask_id, size = first.tokenizer.mask_token_id, len(first.tokenizer)
    ids, targets = simcse.mask_words(features["input_ids"], allowed, mask_id, size)
    hidden = first.model(**{**features, "input_ids": ids}).last_hidden_state
    count = distributed.all_reduce(targets.sum()).clamp(min=1)
    return training.words(hidden[targets], features["input_ids"][targets]) / count


def rate_factor(step: int, row: Finetune) -> float:
    """Return the learning rate as a fraction of `row.lr`: linear warm-up, then linear decay to 0."""
    if step < row.warmup:
        return step / row.warmup
    return (row.steps - step) / (row.steps - row.warmup)


def measure(training: Training, dev: pl.DataFrame, loss: float, folder: Path, log: Log) -> None:
    """Add a point to the curve, write the weights if they are the best, then the state to resume from."""
    if distributed.rank() == 0:
        first, second = (encode(training.model, dev[column].to_list()) for column in ("text", "pair"))
        measures = similarity.sts(first, second, dev["score"].to_torch())
        point = {"step": training.step, "loss": loss, **measures}
        training.curve.append(point)
        log({k: v for k, v in point.items() if k != "step" and math.isfinite(v)}, training.step)
        if training.best() is point:
            files.save_state(folder / BEST, training.model.state_dict())
        state = {name: part.state_dict() for name, part in training.parts().items()}
        files.save_state(folder / STATE, {**state, "step": training.step, "curve": training.curve})
    distributed.barrier()


def encode(model: SentenceTransformer, texts: list[str]) -> Tensor:
    """Return vectors of texts without dropout. n texts -> (n, d), on the CPU"""
    model.eval()
    vectors = model.encode(texts, batch_size=128, convert_to_tensor=True, show_progress_bar=False)
    return vectors.float().cpu()


# ---------------------------------------------------------------- 4. outputs


def finish(name: str, training: Training, dev: pl.DataFrame, folder: Path, run: track.Run) -> None:
    """Write the best checkpoint, its metrics and the curve."""
    best = training.best()
    if best is None:
        raise BadInput("no checkpoint has a finite correlation on dev")
    training.model.load_state_dict(files.load_state(folder / BEST))
    vectors = encode(training.model, list(dict.fromkeys([*dev["text"], *dev["pair"]])))
    training.model.save(str(folder / "model"), create_model_card=False)
    store.publish_folder(folder / "model", store.trained_path(name))

    curve = store.tables_path("finetune", name) / "curve.csv"
    store.write_csv(curve, pl.DataFrame(training.curve))

    points = {"dev": best | geometry.anisotropy(vectors), "before": training.curve[0]}
    metrics = {part: {k: v for k, v in point.items() if k != "loss"} for part, point in points.items()}
    store.write_metrics("finetune", name, metrics)
    run.log({"similarity": metrics})
    run.artifact(curve)


if __name__ == "__main__":
    stage.main(finetune)
