"""What every aligner returns: a translator from source to target vectors, saved as safetensors and JSON."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.measures.vectors import centred_unit, finite
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import atomic, reading, write_text


class Translator(nn.Module):
    """Map source vectors (n, d) to target vectors (n, e), in the target encoder's own raw space.

    A tensor of any float type gives float32; a NumPy array gives a float32 array, without gradients. A
    subclass keeps the arguments of its constructor, of which `source_dim` is one, in `config`, which is saved
    as JSON. All its other state is parameters and buffers. A call raises BadInput for a translation that is
    not finite, because every measure of it would be meaningless.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = config

    def __call__(self, vectors: Any) -> Any:
        name, width = type(self).__name__, self.source_dim
        array = isinstance(vectors, np.ndarray) and vectors.dtype.kind in "fiu"
        numbers = (array or isinstance(vectors, Tensor)) and vectors.ndim == 2
        if not numbers or vectors.shape[1] != width:
            shaped = hasattr(vectors, "dtype")
            got = f"{tuple(vectors.shape)} {vectors.dtype}" if shaped else type(vectors).__name__
            raise BadInput(f"{name}: vectors must be numbers (n, {width}), got {got}")
        if isinstance(vectors, Tensor):
            return finite(f"{name}: what it translated", super().__call__(vectors.float()))
        device = next(iter(self.state_dict().values()), torch.empty(0)).device
        with torch.inference_mode():
            return self(torch.from_numpy(vectors.astype(np.float32)).to(device)).cpu().numpy()

    @property
    def source_dim(self) -> int:
        """The dimension of the vectors that it translates."""
        return self.config["source_dim"]

    def set_hub_correction(self, strength: float) -> None:
        """Set how strongly hubs are corrected. Raises BadInput for a translator without such correction."""
        if strength:
            raise BadInput(f"{type(self).__name__} has no hub correction: leave `hub_correction` out")


class Identity(Translator):
    """Pad (n, d) with zeros to (n, e) if d < e, or cut it if d > e."""

    def __init__(self, source_dim: int, target_dim: int) -> None:
        super().__init__(source_dim=source_dim, target_dim=target_dim)

    def forward(self, vectors: Tensor) -> Tensor:
        return nn.functional.pad(vectors, (0, self.config["target_dim"] - vectors.shape[-1]))


class Linear(Translator):
    """y = unit(x - source_mean) W * scale + target_mean, for every linear method.

    `unit` is L2 normalisation. With `scale`, translations minus target_mean are on average as long as the
    target's vectors minus target_mean.
    """

    source_mean: Tensor
    target_mean: Tensor
    map: Tensor
    scale: Tensor

    def __init__(self, source_dim: int, target_dim: int) -> None:
        super().__init__(source_dim=source_dim, target_dim=target_dim)
        self.register_buffer("source_mean", torch.zeros(source_dim))
        self.register_buffer("target_mean", torch.zeros(target_dim))
        self.register_buffer("map", torch.zeros(source_dim, target_dim))
        self.register_buffer("scale", torch.ones(()))

    @classmethod
    def of(cls, map: Tensor, source: Tensor, target: Tensor) -> Linear:
        """Make a translator of a map between centred unit vectors of the clouds (n, d), (m, e)."""
        self = cls(*map.shape).to(map.device)
        self.map.copy_(map)
        self.source_mean.copy_(source.mean(0))
        self.target_mean.copy_(target.mean(0))
        mapped = centred_unit(source) @ map
        self.scale.copy_((target - target.mean(0)).norm(dim=1).mean() / mapped.norm(dim=1).mean())
        return self

    def forward(self, vectors: Tensor) -> Tensor:
        centred = nn.functional.normalize(vectors - self.source_mean, dim=1)
        return centred @ self.map * self.scale + self.target_mean  # (n, target_dim)


def save(translator: Translator, path: str | Path) -> None:
    """Write `path`.safetensors, then `path`.json. Raises BadInput for a number that is not finite."""
    from safetensors.torch import save_file

    _check(translator, Path(path))
    weights, about = _files(Path(path))
    with atomic(weights) as draft:
        save_file({k: v.cpu().contiguous() for k, v in translator.state_dict().items()}, draft)
    kind = f"{type(translator).__module__}:{type(translator).__qualname__}"
    described = json.dumps({"class": kind, "config": translator.config}, indent=2)
    write_text(about, described + "\n")


def load(path: Path) -> Translator:
    """Read what `save` wrote. Raises BadInput if the class is no translator or a number is not finite."""
    from safetensors.torch import load_file

    weights, about = _files(path)
    with reading(path):
        described = json.loads(about.read_bytes())
        module, name = described["class"].split(":")
        ours = module.startswith("pipelines.aligners.")
        kind = getattr(importlib.import_module(module), name, None) if ours else None
        if not (isinstance(kind, type) and issubclass(kind, Translator)):
            raise BadInput(f"{path}: {described['class']} is no translator")
        translator = kind(**described["config"])
        translator.load_state_dict(load_file(weights))
    _check(translator, path)
    return translator.eval()


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.safetensors"), path.with_name(f"{path.name}.json")


def verdicts_in(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the verdict on each translator of a row of `align` by seed, the best verdict first.

    An oracle's row has no verdicts: each of its seeds has {}, the least seed first. Raises BadInput if there
    are no translators.
    """
    stems = (path.stem.removeprefix("seed-") for path in folder.glob("seed-*.json"))
    seeds = sorted(int(stem) for stem in stems if stem.isdigit())
    if not seeds:
        raise BadInput(f"{folder}: no translators there; `dvc repro` or `translate fit` makes them")
    path, found = folder / "verdicts.json", {}
    if path.exists():
        with reading(path):
            found = {int(seed): verdict for seed, verdict in json.loads(path.read_bytes()).items()}
    verdicts = {seed: found.get(seed, {}) for seed in seeds}
    return dict(sorted(verdicts.items(), key=lambda item: verdict_rank(item[1]), reverse=True))


def verdict_rank(verdict: Mapping[str, Any]) -> tuple[bool, float, float]:
    """Return a verdict's sort key: *aligned* is better than other labels; then share and score decide."""
    return verdict.get("label") == "aligned", verdict.get("share", 0.0), verdict.get("score", 0.0)


def load_seeds(
    folder: Path, hub_correction: float | None = None, device: torch.device | str = "cpu"
) -> dict[int, Translator]:
    """Read the translators of a row of `align` by seed, and set their hub correction if one is given.

    Raises BadInput if there are none, or if they have no hub correction to set.
    """
    translators = {seed: load(folder / f"seed-{seed}").to(device) for seed in sorted(verdicts_in(folder))}
    if hub_correction is not None:
        for translator in translators.values():
            translator.set_hub_correction(hub_correction)
    return translators


def chosen_seed(folder: Path, seed: int | None = None) -> int:
    """Return `seed`, or the best verdict's if it is None. Raises BadInput if it has no translator."""
    seeds = [*verdicts_in(folder)]
    if seed not in (None, *seeds):
        raise BadInput(f"{folder}: there is no seed {seed}; there are: {', '.join(map(str, sorted(seeds)))}")
    return seeds[0] if seed is None else seed


def load_best(folder: str | Path, seed: int | None = None) -> Translator:
    """Read a translator of data/translators/<row>: that of `seed`, or the one with the best verdict.

    An attacker without pairs would take the best. A translator takes vectors (n, d) and returns (n, e), both
    NumPy arrays or both tensors. An oracle's row has no verdicts: read its first seed. Raises BadInput if
    there is no translator, or none of `seed`.
    """
    return load(Path(folder) / f"seed-{chosen_seed(Path(folder), seed)}")


def load_aligned(folder: Path) -> list[Translator]:
    """Read all translators that are *aligned*, or the one of `load_best` if none is.

    The errors of separate fits are independent. So the mean of their translations is nearer to the true
    vectors than the translation by the best fit. Raises BadInput if there are none.
    """
    verdicts = verdicts_in(folder)
    aligned = sorted(seed for seed, verdict in verdicts.items() if verdict.get("label") == "aligned")
    best = next(iter(verdicts))
    return [load(folder / f"seed-{seed}") for seed in aligned or [best]]


def _check(translator: Translator, path: Path) -> None:
    bad = [name for name, tensor in translator.state_dict().items() if not tensor.isfinite().all()]
    bad += [k for k, v in translator.config.items() if isinstance(v, float) and not math.isfinite(v)]
    if bad:
        raise BadInput(f"{path}: {bad[0]} is not finite")
