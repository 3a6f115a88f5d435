"""Translators that the official code saved, as one of ours: the same layers under other names.

There: `in_adapters.<encoder>`, `out_adapters.<encoder>`, `transform`, each with `layers.<layer>.<place>`. Here: see networks. The
places of a layer differ between versions of the code, their order does not. Vectors go in and come out unit and not centred.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from pipelines.aligners.vec2vec.networks import Vec2VecTranslator
from pipelines.runtime.errors import BadInput


def read(folder: Path, names: Mapping[str, str]) -> Vec2VecTranslator:
    """The networks in a folder's `model.safetensors`, as the hub has it, of the encoders in `names`, {name here: name there}, as
    the translator from the first of them to the last; sizes, depths and norm are read off the weights.

    Raises BadInput where there is no such file (`model.pt`, as training leaves it, is a pickle), no such encoder, or a network of
    another kind.
    """
    state = _tensors(folder)
    there = sorted({key.split(".")[1] for key in state if key.startswith("in_adapters.")})
    for name in names.values():
        if name not in there:
            raise BadInput(f"{folder}: no encoder {name!r} there; there are: {', '.join(there) or 'none'}")
    parts = {"backbone": "transform"}
    for ours, theirs in names.items():
        parts |= {f"inputs.{ours}": f"in_adapters.{theirs}", f"outputs.{ours}": f"out_adapters.{theirs}"}
    weights = {mine: _layers(state, theirs) for mine, theirs in parts.items()}
    try:
        first, *_, last = names
        dims = {name: weights[f"inputs.{name}"]["layers.0.0.weight"].shape[1] for name in names}
        width = len(weights[f"inputs.{first}"]["layers.0.0.weight"])
        depths = [_depth(weights[part]) for part in (f"inputs.{first}", "backbone")]
        norm = "batch" if any(key.endswith("running_mean") for key in state) else "layer"
        shape = {"width": width, "adapter_depth": depths[0], "backbone_depth": depths[1], "norm": norm}
        shape |= {"dropout": 0.1, "unit_output": True, "mapped": False}
        translator = Vec2VecTranslator(dims, first, last, **shape)
        translator.model.load_state_dict(
            {f"{part}.{key}": v for part, tensors in weights.items() for key, v in tensors.items()}
        )
    except (KeyError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:200]
        raise BadInput(f"{folder}: its layers are not those of the released configuration: {said}") from None
    return translator.eval()


def _tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / "model.safetensors"
    if not path.is_file():
        pickled = "; model.pt is a pickle, which is not read here: save its state dict with safetensors.torch.save_file"
        hint = pickled if (folder / "model.pt").is_file() else ""
        raise BadInput(f"{folder}: there is no model.safetensors{hint}")
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path}: no weights: {' '.join(str(error).split())[:200]}") from None


def _depth(layers: dict[str, Tensor]) -> int:
    return 1 + max(int(key.split(".")[1]) for key in layers)


def _layers(state: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """One residual MLP, each layer's modules at our places: a matrix, then a norm, or in the last layer a second matrix."""
    pattern = re.compile(re.escape(part) + r"\.layers\.(\d+)\.(\d+)\.(\w+)")
    found = [
        (int(m[1]), int(m[2]), m[3], value) for key, value in state.items() if (m := pattern.fullmatch(key))
    ]
    last = max((layer for layer, *_ in found), default=0)
    out = {}
    for layer, place, name, value in found:
        order = sorted({p for one, p, *_ in found if one == layer}).index(place)
        ours = order if order == 0 else (3 if layer == last else 2) + order - 1
        out[f"layers.{layer}.{ours}.{name}"] = value
    return out
