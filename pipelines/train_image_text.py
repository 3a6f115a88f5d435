"""train_image_text: images with captions -> an image and a text encoder per seed, and the vectors of both sides.

Every random choice is made from (seed, step), so that a killed run continues to the same bits, and several ranks draw the same
frequencies.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from pipelines import distributed
from pipelines.contrastive.kernels import Fourier, PointSets, exact, features, fourier
from pipelines.contrastive.losses import symmetric_info_nce
from pipelines.contrastive.pairs import Pairs, captions_of, check_images, generator, pairs
from pipelines.contrastive.pixels import Pixels
from pipelines.contrastive.point_sets import DualEncoder, save
from pipelines.contrastive.towers import Words
from pipelines.runtime import files, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress
from pipelines.study import TrainImageText, params

LOGGED = 10  # steps between two points of the curve


def rate(row: TrainImageText, step: int) -> float:
    """Learning rate: linear warm-up, then a half cosine to `lr_end`."""
    if step < row.warmup:
        return row.lr * (step + 1) / row.warmup
    done = (step - row.warmup) / max(1, row.steps - row.warmup)
    return row.lr_end + (row.lr - row.lr_end) * (1 + math.cos(math.pi * done)) / 2


def rows_of(row: TrainImageText, n: int, seed: int, step: int) -> Tensor:
    """The image rows of one step's batch over all ranks: consecutive parts of one permutation per epoch."""
    size = min(row.batch, n)
    epoch, at = divmod(step, n // size)
    return torch.randperm(n, generator=generator(seed, 0, epoch))[at * size : (at + 1) * size]


def draw(row: TrainImageText, model: DualEncoder, seed: int, step: int) -> Fourier | None:
    """This step's random Fourier features, the same on every rank; None where the kernel is linear or exact."""
    if model.kernel.nonlinear == 0 or row.head.features is None:
        return None
    drawn = fourier(model.kernel, row.head.dim, row.head.features, generator(seed, 1, step))
    return drawn.to(model.raw_scale.device)


def loss_of(
    model: DualEncoder, row: TrainImageText, images: Tensor, ids: Tensor, fourier: Fourier | None
) -> Tensor:
    """Symmetric InfoNCE of the batch of all ranks; this rank's gradient is of its own images and captions."""
    gather = distributed.all_gather if row.negatives == "gathered" else lambda rows: rows
    with torch.autocast(model.raw_scale.device.type, torch.bfloat16, enabled=row.precision == "bf16"):
        x, y = model.image_sets(images), model.text_sets(ids)
        x = PointSets(
            x.points, model.scale * x.weights
        )  # before the gather: its gradient, too, is of this rank's rows alone
        if fourier is None and model.kernel.nonlinear > 0:
            x, y = (PointSets(gather(s.points), gather(s.weights)) for s in (x, y))
            logits = exact(x, y, model.kernel)
        else:
            x, y = (gather(features(s, model.kernel, fourier).float()) for s in (x, y))
            logits = x @ y.T
    loss = symmetric_info_nce(logits.float())
    return loss if row.negatives == "gathered" else loss / distributed.world_size()


def optimiser_of(model: DualEncoder, row: TrainImageText) -> torch.optim.AdamW:
    """AdamW; what is no matrix (norms, biases, the scale) does not decay."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": row.decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=row.lr, betas=row.betas)


def step(
    model: DualEncoder, optimiser: torch.optim.Optimizer, row: TrainImageText, data: Pairs, seed: int, at: int
) -> Tensor:
    """One step of training. -> the loss of the whole batch, which nothing has waited for: see `check`."""
    for group in optimiser.param_groups:
        group["lr"] = rate(row, at)
    rows = rows_of(row, len(data), seed, at)
    images, ids = data.batch(rows, generator(seed, 2, at))
    share = torch.tensor(distributed.shard(list(range(len(rows)))))
    loss = loss_of(model, row, images[share], ids[share], draw(row, model, seed, at))
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    distributed.all_reduce_gradients(model.parameters())
    optimiser.step()
    model.clamp_scale()
    return distributed.all_reduce(loss.detach()) if row.negatives == "local" else loss.detach()


def check(losses: list[Tensor], row: TrainImageText, end: int) -> None:
    """Read the losses of the steps before `end` in one transfer. Raises BadInput, naming the first that is not finite."""
    for at, loss in enumerate(torch.stack(losses).tolist(), end - len(losses)):
        if not math.isfinite(loss):
            raise BadInput(
                f"step {at}: the loss is {loss}; weights of kind {row.head.weight} overflowed? try tanh"
            )


def train(
    row: TrainImageText, data: Pairs, words: Words, seed: int, folder: Path, log
) -> tuple[DualEncoder, list[dict]]:
    """Train from scratch, or from the checkpoint in `folder`. -> the model and its curve; `log(metrics, step)`."""
    if len(data) < 2:
        raise BadInput(f"{len(data)} training image: two at least are needed, to be told apart")
    device = resolve(row.device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = DualEncoder(row, len(words.words)).to(device)
    optimiser, start, curve = optimiser_of(model, row), 0, []
    checkpoint = folder / f"seed-{seed}.pt"
    if distributed.broadcast(checkpoint.exists()):
        state = files.load_state(checkpoint, device)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        start, curve = state["step"], state["curve"]
    losses: list[Tensor] = []  # that nothing has looked at yet
    for at in progress(range(start, row.steps), what=f"train, seed {seed}", unit="steps"):
        losses.append(loss := step(model, optimiser, row, data, seed, at))
        keep, last = (at + 1) % row.checkpoint == 0, at == row.steps - 1
        if at % LOGGED == 0 or keep or last:  # a look at every step would have the device wait for the host
            check(losses, row, at + 1)
            losses = []
        if at % LOGGED == 0 or last:
            curve.append(
                {
                    "seed": seed,
                    "step": at,
                    "loss": loss.item(),
                    "scale": model.scale.item(),
                    "rate": rate(row, at),
                }
            )
            log({f"seed-{seed}/{k}": v for k, v in curve[-1].items() if k not in ("seed", "step")}, at)
        if (keep or last) and distributed.rank() == 0:
            state = {
                "model": model.state_dict(),
                "optimiser": optimiser.state_dict(),
                "step": at + 1,
                "curve": curve,
            }
            files.save_state(checkpoint, state)
    return model.eval(), curve


@torch.inference_mode()
def vectors(
    model: DualEncoder, images: Pixels, ids: Tensor, batch: int = 512
) -> tuple[np.ndarray, np.ndarray]:
    """The mean weighted point of every image and of every caption. -> (n, d), (n, d)"""
    rows = torch.arange(len(images)).split(batch)
    x = torch.cat([model.image_sets(images[r]).mean().cpu() for r in rows])
    y = torch.cat([model.text_sets(part).mean().cpu() for part in ids.split(batch)])
    return x.numpy(), y.numpy()


def train_image_text(name: str, row: TrainImageText, study: params.Study, run: track.Run) -> None:
    """Train one pair of encoders per seed; write them, their curves, and the first one's vectors of the whole corpus."""
    with distributed.process_group(resolve(row.device)):
        frame = check_images(row.corpus, store.read_corpus(row.corpus))
        train_rows = frame.filter(pl.col("split") == "train")
        run.input(store.corpus_path(row.corpus), "pairs")
        words = Words.of((c for cs in captions_of(train_rows) for c in cs), row.text)
        data = pairs(train_rows, row.image.size, words)
        curves, models, digest = [], [], store.digest(store.corpus_path(row.corpus))
        with distributed.on_rank_zero(
            store.work("train_image_text", name, row, digest, distributed.world_size())
        ) as folder:
            for seed in row.seeds:
                model, curve = train(row, data, words, seed, folder, run.log)
                models.append(model)
                curves += curve
            if distributed.rank() == 0:
                _write(name, row, study, frame, models, words, curves, data.truncated, folder / "output")


def _write(
    name, row, study, frame, models, words: Words, curves: list[dict], truncated: int, output: Path
) -> None:
    output.mkdir(exist_ok=True)
    for seed, model in zip(row.seeds, models, strict=True):
        save(model, words, output / f"seed-{seed}")
    digest = store.digest(output / f"seed-{row.seeds[0]}.safetensors")
    store.move_into(output, store.image_text_path(name))

    images = Pixels(frame["image"].to_list(), frame["id"].to_list(), row.image.size)
    sides = zip(("image", "text"), vectors(models[0], images, words(frame["text"].to_list())[0]), strict=True)
    about = {
        "corpus": row.corpus,
        "source": study.corpora[row.corpus].source,
        "pooling": f"mean of {row.head.kind}",
    }
    about |= {"weights": digest, "precision": row.precision, "max_tokens": str(row.text.context)}
    for side, array in sides:
        store.check_vectors(f"train_image_text.{name}-{side}", array, frame["id"].to_numpy())
        metadata = {"encoder": f"{name}-{side}", "model": f"{name}-{side}"} | about
        store.write_embeddings(
            f"{name}-{side}", frame["id"].to_list(), frame["split"].to_list(), array, metadata
        )
    curve = pl.DataFrame(curves)
    store.write_csv(store.plots_path("train_image_text", name) / "curve.csv", curve)
    last = curve.group_by("seed", maintain_order=True).last()
    metrics = {
        "loss": last["loss"].mean(),
        "scale": last["scale"].mean(),
        "seeds": len(row.seeds),
        "truncated": truncated,
    }
    metrics["parameters"] = sum(p.numel() for p in models[0].parameters())
    store.write_metrics("train_image_text", name, metrics)


if __name__ == "__main__":
    stage.main(train_image_text)
