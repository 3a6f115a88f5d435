"""Rows of corpora: where texts and images come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipelines.study.row import Row, Seed, Text, Watched

_PACKAGES = Path(__file__).parents[1] / "corpora" / "kinds"
KINDS = tuple(sorted(path.parent.name for path in _PACKAGES.glob("*/__init__.py")))


def _kind(name: str) -> str:
    if name not in KINDS:
        raise ValueError(f"{name!r} is no kind of corpus; there are: {', '.join(KINDS)}")
    return name


Kind = Annotated[str, AfterValidator(_kind)]


class Chunk(Row):
    """Cut long texts into sequences of at most `size` units, dropping what is shorter than `least`.

    With a `stride` below `size` a text is cut at several offsets, so that its sequences overlap: an attacker's own texts say more
    so. Those of one text are then in one half of an alignment, and of texts that are held out the ones kept do not overlap.
    """

    unit: Literal["words", "tokens"] = (
        "words"  # tokens: WordPiece tokens of the packaged MiniLM, cut at their offsets
    )
    size: int = Field(45, ge=1)
    stride: int | None = Field(
        None, ge=1
    )  # units from where one sequence begins to where the next does; None: size
    least: int = Field(1, ge=1)
    first: bool = False  # of each text its first piece alone
    whole: bool = False  # draw and split whole texts, so that no text has pieces on both sides; `rows` and `test` count texts

    @property
    def step(self) -> int:
        """Units between the beginnings of two sequences."""
        return self.stride or self.size

    @property
    def overlaps(self) -> bool:
        """Whether sequences of one text have words in common."""
        return self.step < self.size

    @model_validator(mode="after")
    def _windows(self) -> Self:
        if self.step > self.size:
            raise ValueError(
                f"stride {self.stride} is more than size {self.size}: the words between would be lost"
            )
        if self.overlaps and self.first:
            raise ValueError(
                f"stride {self.stride} goes with no `first`, which keeps one sequence of each text"
            )
        if self.overlaps and not self.whole:
            raise ValueError(
                f"stride {self.stride} needs `whole: true`: sequences that overlap would be split apart"
            )
        return self


class Corpus(Row):
    """What every corpus row says, whatever its source."""

    kind: Kind = "passages"  # default: the row's own name, where it is one of these
    path: Watched  # what DVC watches for changes: the user's own file or folder, or what the texts are made from
    rows: int | None = Field(None, ge=1)  # how many texts to keep, drawn with `seed`; None: all
    test: int = Field(
        0, ge=0
    )  # how many of them are held out (`split == "test"`) where the source has no split of its own
    seed: Seed = 0
    private: bool = (
        False  # its texts and labels go to no tracking server, report or standard output: see the README
    )


class LibraryCorpus(Corpus):
    """Prose from the docstrings of the installed dependencies."""

    source: Literal["library"]
    words: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (
        18,
        45,
    )  # shortest and longest sequence
    per_package: int = Field(4000, ge=1)


class SyntheticCorpus(Corpus):
    """Texts generated here, with labels and planted facts. Marked as generated wherever a number of theirs is shown."""

    source: Literal["synthetic"]
    rows: int | None = Field(2000, ge=1)


class HubCorpus(Corpus):
    """A data set on the Hugging Face hub, read with `datasets`."""

    source: Literal["hub"]
    id: Text
    config: str | None = None
    hub_split: str = "train"
    revision: str | None = None
    data_files: Text | None = None  # the file of the repository that is meant, where it holds several sets
    columns: dict[str, str] = {}  # our column -> theirs
    chunk: Chunk | None = None


class PathCorpus(Corpus):
    """The user's own file or folder: parquet, csv, tsv, jsonl, txt, mbox, maildir; a folder of parquet or of txt. `data/raw` is a
    link to $CORPORA_ROOT."""

    source: Literal["path"]
    columns: dict[str, str] = {}
    chunk: Chunk | None = None
    private: bool = True
    annotations: str | None = None  # notes: file of MedCAT concept annotations in the folder of NOTEEVENTS


class VectorsCorpus(Corpus):
    """Vectors without text: a leaked database. parquet, a folder of parquet, arrow, npy or npz."""

    source: Literal["vectors"]
    columns: dict[str, str] = {}
    private: bool = True


AnyCorpus = Annotated[
    LibraryCorpus | SyntheticCorpus | HubCorpus | PathCorpus | VectorsCorpus, Field(discriminator="source")
]
