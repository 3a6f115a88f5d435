"""All that an attacker has: own texts, their vectors by the target encoder, and what was learnt from both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pipelines.inverters import Queries, Space, decoder, hub, vec2text
from pipelines.inverters.corrector import train_corrector
from pipelines.runtime import files
from pipelines.runtime.errors import BadInput

TEXTS, INVERTER, CORRECTOR = "texts.pt", "inverter.pt", "corrector.pt"


@dataclass(frozen=True)
class Attacker:
    space: Space
    known: Tensor  # (m, e) unit: the vectors of `texts`
    texts: list[str]
    inverter: decoder.Decoder | hub.HubInverter | vec2text.Vec2Text
    corrector: decoder.Decoder | None = None


def learn(
    vectors: Tensor,
    texts: list[str],
    settings: decoder.Settings | hub.Settings | vec2text.Settings,
    seed: int,
    log: decoder.Log | None = None,
    encode: Callable[[Sequence[str]], Tensor] | None = None,
) -> Attacker:
    """From raw vectors (m, e) of own texts. With `encode`, the target encoder, a corrector too, at one query per text. Released
    weights are read, and learn nothing."""
    space = Space.of(vectors)
    known = space(vectors)
    if isinstance(settings, vec2text.Settings):
        return Attacker(space, known, texts, vec2text.suited(vec2text.opened(settings), vectors))
    if isinstance(settings, hub.Settings):
        if encode is not None:
            raise BadInput("inverter: a corrector is learnt beside a decoder from scratch only")
        return Attacker(space, known, texts, hub.train(known, texts, settings, seed, log))
    inverter = decoder.train(known, texts, settings, seed, log)
    if encode is None:
        return Attacker(space, known, texts, inverter)
    corrector = train_corrector(inverter, known, texts, Queries(encode, space), settings, seed)
    return Attacker(space, known, texts, inverter, corrector)


def save(attacker: Attacker, folder: Path) -> None:
    """Write what `load` reads."""
    a = attacker
    files.save_state(folder / TEXTS, {"mean": a.space.mean, "known": a.known, "texts": a.texts})
    if isinstance(a.inverter, vec2text.Vec2Text):
        vec2text.save(a.inverter, folder / INVERTER)
    elif isinstance(a.inverter, hub.HubInverter):
        hub.save(a.inverter, folder / INVERTER)
    else:
        decoder.save(a.inverter, folder / INVERTER)
    if a.corrector is not None:
        decoder.save(a.corrector, folder / CORRECTOR)


def load(folder: Path, device: torch.device | str = "cpu") -> Attacker:
    """What `save` wrote, on a device. Raises BadInput where `learn` has not been."""
    if not (folder / INVERTER).is_file():
        raise BadInput(f"{folder}: no inverter there; `dvc repro` makes it")
    kept, made = files.load_state(folder / TEXTS), files.load_state(folder / INVERTER)
    kinds = {"pretrained": vec2text.load, "model": hub.load}
    corrector = folder / CORRECTOR
    with files.reading(folder):
        read = next((read for key, read in kinds.items() if key in made["settings"]), decoder.load)
        return Attacker(
            Space(kept["mean"].to(device)), kept["known"].to(device), kept["texts"], read(made).to(device),
            decoder.load(files.load_state(corrector)).to(device) if corrector.is_file() else None,
        )  # fmt: skip
