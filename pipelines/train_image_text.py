"""train_image_text: images with captions -> an image and a text encoder per seed, and their vectors.

Every random choice comes from (seed, step), so a killed run continues bit for bit, and all ranks draw the
same frequencies.
"""

import math
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from pipelines import distributed
from pipelines.contrastive.kernels import Fourier, PointSets, exact, features, fourier
from pipelines.contrastive.losses import finite_losses
from pipelines.contrastive.pairs import Pairs, check_images, generator, pairs
from pipelines.contrastive.pixels import pixels_of
from pipelines.contrastive.point_sets import DualEncoder, save, symmetric_info_nce
from pipelines.contrastive.shape import CONTEXT
from pipelines.contrastive.towers import Words, in_float32
from pipelines.runtime import files, stage, store, track
from pipelines.runtime.device import forked, manual_seed, resolve
from pipelines.runtime.progress import Log, progress
from pipelines.study import TrainImageText, params

BATCH = 512  # images or captions that are embedded at once
LOGGED = 10  # steps between two points of the curve
CHECKPOINT = 200  # steps between two checkpoints
END_RATE = 1e-5  # learning rate that the cosine would reach at step `steps`, as in the paper of point sets
DECAY, BETAS = 0.2, (0.9, 0.98)  # of AdamW, as in CLIP; the paper of point sets decays by 0.5


def train_image_text(name: str, row: TrainImageText, study: params.Study, run: track.Run) -> None:
    """Train a pair of encoders per seed.

    Write them, their curves, and the first pair's vectors of the whole corpus.
    """
    device = resolve(row.device)
    with distributed.process_group(device):
        # 1. Read images and captions.
        frame = check_images(row.corpus, store.read_corpus(row.corpus))
        run.input(store.corpus_path(row.corpus), "pairs")
        train_rows = frame.filter(pl.col("split") == "train")
        words = Words.of((c for of_image in train_rows["captions"].to_list() for c in of_image), row.text)
        data = pairs(train_rows, row.image.size, words)

        # 2. Train each seed, or resume.
        code = store.code_digest("contrastive", "distributed", "train_image_text")
        made_from = (code, row, device.type, store.corpus_path(row.corpus), distributed.world_size())
        with distributed.on_rank_zero(store.work("train_image_text", name, *made_from)) as folder:
            trained = [train(row, data, words, seed, folder, run.log) for seed in row.seeds]
            if distributed.rank() > 0:
                return
            models, curves = zip(*trained, strict=True)

            # 3. Write the encoders of every seed.
            output = folder / "output"
            output.mkdir(exist_ok=True)
            for seed, model in zip(row.seeds, models, strict=True):
                save(model, words, output / f"seed-{seed}")
            digest = files.digest(output / f"seed-{row.seeds[0]}.safetensors")
            store.publish_folder(output, store.image_text_path(name))

            # 4. Write the vectors of the first.
            about = {
                "corpus": row.corpus,
                "source": study.corpora[row.corpus].source,
                "pooling": f"mean of {row.head.kind}",
                "weights": digest,
                "precision": "float32",
                "max_tokens": str(CONTEXT),
            }
            write_vectors(name, models[0], words, frame, about)

            # 5. Write the curves, and the means over seeds of the last loss and scale.
            curve = pl.DataFrame([point for points in curves for point in points])
            store.write_csv(store.tables_path("train_image_text", name) / "curve.csv", curve)
            last = curve.group_by("seed", maintain_order=True).last()
            metrics = {
                "loss": last["loss"].mean(),
                "scale": last["scale"].mean(),
                "seeds": len(row.seeds),
                "truncated": data.truncated,
                "parameters": sum(p.numel() for p in models[0].parameters()),
            }
            store.write_metrics("train_image_text", name, metrics)


# ---------------------------------------------------------------- training


def train(
    row: TrainImageText, data: Pairs, words: Words, seed: int, folder: Path, log: Log
) -> tuple[DualEncoder, list[dict]]:
    """Train one seed, or continue from its checkpoint in `folder`. Return the model and its curve."""
    device = resolve(row.device)
    cpu = torch.device("cpu")
    with forked(cpu):
        manual_seed(seed, cpu)
        model = DualEncoder(row, len(words.words)).to(device)
    optimiser, start, curve = optimiser_of(model, row), 0, []
    checkpoint = folder / f"seed-{seed}.pt"
    if distributed.broadcast(checkpoint.exists()):
        state = files.load_state(checkpoint)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        start, curve = state["step"], state["curve"]

    pending: list[Tensor] = []  # losses that are still on the device
    for at in progress(range(start, row.steps), what=f"train, seed {seed}", unit="steps"):
        pending.append(step(model, optimiser, row, data, seed, at))
        last = at == row.steps - 1
        logged, kept = at % LOGGED == 0 or last, (at + 1) % CHECKPOINT == 0 or last
        if logged or kept:
            loss = finite_losses(pending, at + 1 - len(pending))[-1]
            pending = []
        if logged:
            point = {"loss": loss, "scale": model.scale.item(), "rate": rate(row, at)}
            curve.append({"seed": seed, "step": at, **point})
            log({f"seed-{seed}/{key}": value for key, value in point.items()}, at)
        if kept and distributed.rank() == 0:
            state = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
            files.save_state(checkpoint, {**state, "step": at + 1, "curve": curve})
    return model.eval(), curve


def optimiser_of(model: DualEncoder, row: TrainImageText) -> torch.optim.AdamW:
    """Return AdamW. It decays every weight of two or more dimensions, embeddings of words and positions too.

    Biases, norms and the scale are not decayed.
    """
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=row.lr, betas=BETAS)


@in_float32
def step(
    model: DualEncoder, optimiser: torch.optim.Optimizer, row: TrainImageText, data: Pairs, seed: int, at: int
) -> Tensor:
    """Take one optimiser step and return the loss of the global batch, still on the device."""
    for group in optimiser.param_groups:
        group["lr"] = rate(row, at)
    rows = batch_rows(row, len(data), seed, at)
    images, ids = data.batch(rows, generator(seed, 2, at))
    own = torch.tensor(distributed.shard(list(range(len(rows)))))
    loss = loss_of(model, images[own], ids[own], draw(row, model, seed, at))
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    distributed.all_reduce_gradients(model.parameters())
    optimiser.step()
    model.clamp_scale()
    return loss.detach()


def batch_rows(row: TrainImageText, n: int, seed: int, step: int) -> Tensor:
    """Return the images of one global batch: consecutive parts of one permutation per epoch.

    No image is in a batch twice. `n` is the number of images.
    """
    size = min(row.batch, n)
    epoch, part = divmod(step, n // size)
    return torch.randperm(n, generator=generator(seed, 0, epoch))[part * size : (part + 1) * size]


def draw(row: TrainImageText, model: DualEncoder, seed: int, step: int) -> Fourier | None:
    """Draw a step's random Fourier features, the same on every rank. None: the kernel is linear or exact."""
    if model.kernel.nonlinear == 0 or row.head.features is None:
        return None
    drawn = fourier(model.kernel, row.head.dim, row.head.features, generator(seed, 1, step))
    return drawn.to(model.raw_scale.device)


def loss_of(model: DualEncoder, images: Tensor, ids: Tensor, fourier: Fourier | None) -> Tensor:
    """Return the symmetric InfoNCE of the global batch, with gradient of this rank's images and captions."""
    x, y = model.image_sets(images), model.text_sets(ids)
    gather = distributed.all_gather
    # Multiply by the scale before gathering. Otherwise every rank would add the whole gradient of the scale.
    x = PointSets(x.points, model.scale * x.weights)
    if fourier is None and model.kernel.nonlinear > 0:
        x, y = (PointSets(gather(s.points), gather(s.weights)) for s in (x, y))
        return symmetric_info_nce(exact(x, y, model.kernel))
    x, y = (gather(features(s, model.kernel, fourier)) for s in (x, y))
    return symmetric_info_nce(x @ y.T)


def rate(row: TrainImageText, step: int) -> float:
    """Return the learning rate: linear warm-up to `lr`, then half a cosine down to END_RATE.

    It would reach END_RATE at step `steps`, which is never taken. An `lr` below END_RATE stays as it is.
    """
    if step < row.warmup:
        return row.lr * (step + 1) / row.warmup
    done = (step - row.warmup) / (row.steps - row.warmup)
    end = min(END_RATE, row.lr)
    return end + (row.lr - end) * (1 + math.cos(math.pi * done)) / 2


# ---------------------------------------------------------------- outputs


@torch.inference_mode()
def write_vectors(
    name: str, model: DualEncoder, words: Words, frame: pl.DataFrame, about: dict[str, str]
) -> None:
    """Write the embeddings <name>-image and <name>-text of the whole corpus: mean weighted points."""
    ids, splits = frame["id"].to_list(), frame["split"].to_list()
    _, first, image = np.unique(frame["document"], return_index=True, return_inverse=True)
    sides = {
        "image": (model.image_sets, pixels_of(frame[first], model.row.image.size)[image]),
        "text": (model.text_sets, words(frame["text"].to_list())[0]),
    }
    for side, (tower, inputs) in sides.items():
        vectors = torch.cat([tower(part).mean().cpu() for part in inputs.split(BATCH)]).numpy()
        encoder = f"{name}-{side}"
        store.check_vectors(f"train_image_text.{encoder}", vectors, ids)
        metadata = {"encoder": encoder, "model": encoder} | about
        store.write_embeddings(encoder, ids, splits, vectors, metadata, store.document_columns(frame))


if __name__ == "__main__":
    stage.main(train_image_text)
