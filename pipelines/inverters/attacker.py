"""What an attacker has: own texts, their vectors by the target encoder, and what was learnt from both."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pipelines.inverters import Encode, Queries, Space, decoder, hub, vec2text
from pipelines.inverters.corrector import train_corrector
from pipelines.measures.vectors import neighbours
from pipelines.runtime import files
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import Log

FILE = "attacker.pt"
KINDS = {"Decoder": decoder, "HubInverter": hub, "Vec2Text": vec2text}  # classes of inverters


@dataclass(frozen=True)
class Attacker:
    """All that the attack on a vector may use."""

    space: Space
    known: Tensor  # (m, e) unit: the vectors of `texts`
    texts: list[str]
    inverter: decoder.Decoder | hub.HubInverter | vec2text.Vec2Text
    corrector: decoder.Decoder | None = None

    def nearest(self, vectors: Tensor, count: int) -> list[list[str]]:
        """Return the `count` texts nearest to each of the unit `vectors` (n, e), nearest first."""
        return [[self.texts[j] for j in row] for row in neighbours(vectors, self.known, count).tolist()]


def learn(
    vectors: Tensor,
    texts: list[str],
    settings: decoder.Settings | hub.Settings | vec2text.Settings,
    seed: int,
    log: Log | None = None,
    encode: Encode | None = None,
    work: Path | None = None,
) -> Attacker:
    """Train an inverter on texts and their raw vectors (m, e). vec2text's weights are only loaded.

    With `encode`, the target encoder, a decoder gets a corrector, too, at one query per text. work: a folder
    for checkpoints, from which a killed run continues. Raises BadInput for fewer than two texts.
    """
    if len(texts) < 2:
        raise BadInput(f"inverter: {len(texts)} text to learn from; two are needed")
    space = Space.of(vectors)
    known, corrector = space(vectors), None
    options = {"log": log, "checkpoint": work and work / "inverter.pt"}
    if isinstance(settings, vec2text.Settings):
        inverter = vec2text.load(settings)
        inverter.check(vectors)
    elif isinstance(settings, hub.Settings):
        inverter = hub.train(known, texts, settings, seed, **options)
    else:
        inverter = decoder.train(known, texts, settings, seed, **options)
        if encode is not None:
            queries, kept = Queries(encode, space), work and work / "corrector.pt"
            corrector = train_corrector(inverter, known, texts, queries, seed, checkpoint=kept)
    return Attacker(space, known, texts, inverter, corrector)


def save(attacker: Attacker, folder: Path) -> None:
    """Write an attacker to one file in a folder."""
    state = {
        "mean": attacker.space.mean.cpu(),
        "known": attacker.known.cpu(),
        "texts": attacker.texts,
        "kind": type(attacker.inverter).__name__,
        "inverter": attacker.inverter.state(),
        "corrector": attacker.corrector and attacker.corrector.state(),
    }
    files.save_state(folder / FILE, state)


def load(folder: Path, device: torch.device | str = "cpu") -> Attacker:
    """Read an attacker onto a device. Raises BadInput if there is none."""
    if not (folder / FILE).is_file():
        raise BadInput(f"{folder}: no inverter there; `dvc repro` makes it")
    state = files.load_state(folder / FILE)
    with files.reading(folder):
        inverter = KINDS[state["kind"]].restored(state["inverter"]).to(device)
        corrector = decoder.restored(state["corrector"]).to(device) if state["corrector"] else None
        space = Space(state["mean"].to(device))
        return Attacker(space, state["known"].to(device), state["texts"], inverter, corrector)
