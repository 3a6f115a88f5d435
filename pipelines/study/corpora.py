"""Rows of corpora: where texts and images come from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pipelines.runtime.settings import Count, Natural
from pipelines.study.row import Row, Seed, Study, Text, Watched, matching

_PACKAGES = Path(__file__).parents[1] / "corpora" / "kinds"
KINDS = tuple(sorted(path.parent.name for path in _PACKAGES.glob("*/__init__.py")))


Kind = Annotated[str, matching("|".join(KINDS), f"is no kind of corpus; there are: {', '.join(KINDS)}")]


class Chunk(Row):
    """Cut long texts into chunks of at most `size` units, and drop those shorter than `least`.

    With a `stride` below `size`, the train chunks of a text overlap: an attacker has more to train on. Test
    chunks never overlap.
    """

    unit: Literal["words", "tokens"] = "words"  # tokens: WordPiece tokens of the packaged MiniLM
    size: Count = 45  # most units of a chunk
    stride: Count | None = None  # units from the beginning of one chunk to the next; None: size
    least: Count = 1  # fewest units of a chunk that is kept
    first: bool = False  # keep the first chunk of each text alone

    @property
    def step(self) -> int:
        """Return the units between the beginnings of two chunks."""
        return self.stride or self.size

    def check_alone(self) -> None:
        if self.step > self.size:
            raise ValueError(f"stride {self.stride} is more than size {self.size}: words would be lost")
        if self.step < self.size and self.first:
            raise ValueError(f"stride {self.stride} and `first` exclude each other")
        if self.least > self.size:
            raise ValueError(f"least {self.least} is more than size {self.size}: nothing would be left")


class Corpus(Row):
    """What rows of every source share."""

    kind: Kind = "passages"  # a folder of pipelines/corpora/kinds
    path: Watched  # what DVC watches for changes: the user's file or folder, or what the texts are made from
    rows: Count | None = None  # how many texts to keep, drawn with `seed`; None: all
    test: Natural = 0  # how many are held out in whole documents, if the source has no split of its own
    seed: Seed = 0  # of every draw of texts
    private: bool = False  # keep its texts and labels out of MLflow, the report and standard output

    def check(self, study: Study) -> None:
        """Raise ValueError if the kind cannot be read from this source, or cannot be cut."""
        if isinstance(self, VectorsCorpus):
            return
        source = getattr(self, "source", "")  # a field of every subclass
        # An import would take up to a second
        code = (_PACKAGES / self.kind / "__init__.py").read_text(encoding="utf-8")
        found = re.search(r"^SOURCES = \(([^),]+,[^)]*)\)", code, re.MULTILINE)
        if not found:
            raise ValueError(f": kind {self.kind}: its file needs a line such as SOURCES = ('path',)")
        if source not in (sources := re.findall(r"\w+", found[1])):
            known = ", ".join(sources)
            raise ValueError(f": {self.kind} has no source {source}; its sources are {known}")
        cut = isinstance(self, TextCorpus) and (self.chunk or self.document)
        if cut and "\nCHUNKED = True" not in code:
            raise ValueError(f": kind {self.kind} has no `chunk` and no `document`")


class LibraryCorpus(Corpus):
    """Prose from the docstrings of the installed dependencies."""

    source: Literal["library"]  # the packages installed here
    # The shortest and the longest sequence
    words: tuple[Count, Count] = (18, 45)
    per_package: Count = 4000  # most sequences of one package
    document: Literal["package", "file"] = "file"  # what counts as one document

    def check_alone(self) -> None:
        if self.words[0] > self.words[1]:
            raise ValueError(f"words: the shortest, {self.words[0]}, is longer than the longest")


class SyntheticCorpus(Corpus):
    """Generated texts with labels and planted facts. Every number about them is marked as generated."""

    source: Literal["synthetic"]  # GENERATED here
    rows: Count | None = 2000  # how many texts to generate
    grid: Literal[2, 3] = 2  # of scenes: cells a side

    @property
    def count(self) -> int:
        """Return how many texts to generate."""
        return self.rows or 2000

    def check_alone(self) -> None:
        if self.grid != 2 and self.kind != "scenes":
            raise ValueError("grid: only scenes have one")
        if self.rows and self.test >= self.rows:
            raise ValueError(f"test: {self.test} leaves no row of {self.rows} to train on")


class TextCorpus(Corpus):
    """Texts that are read, not generated."""

    columns: dict[str, str] = {}  # our column -> theirs
    document: Text | None = None  # their column that names the document of a text; None: each its own
    chunk: Chunk | None = None  # cut long texts; None: as they are


class HubCorpus(TextCorpus):
    """A data set on the Hugging Face hub, read with `datasets`."""

    source: Literal["hub"]  # the Hugging Face hub
    id: Text  # the data set's name on the hub
    config: str | None = None  # the data set's configuration
    hub_split: str = "train"  # which of its splits to read
    revision: str | None = None  # a commit of the data set; None: the newest
    data_files: Text | None = None  # one file of a repository that holds several sets

    def check_alone(self) -> None:
        """Refuse files that `datasets` would read from this machine or from another server."""
        parts = (self.data_files or "").split("/")
        if "" in parts[:-1] or ".." in parts or "://" in (self.data_files or ""):
            raise ValueError("data_files: a path inside the repository is needed")


class PathCorpus(TextCorpus):
    """The user's table, document or mbox; a folder of tables of one kind, of documents, or of mails."""

    source: Literal["path"]  # your own texts
    private: bool = True  # keep its texts and labels out of MLflow, the report and standard output
    annotations: str | None = None  # of notes: MedCAT's file, in the folder of NOTEEVENTS

    def check_alone(self) -> None:
        if self.annotations and self.kind != "notes":
            raise ValueError("annotations: only notes have them")


class VectorsCorpus(Corpus):
    """Vectors without text, as of a leaked database, in any format that docs/audit.md lists."""

    source: Literal["vectors"]  # your own vectors
    columns: dict[str, str] = {}  # our column -> theirs
    collection: Text | None = None  # of Chroma, or a table of LanceDB or sqlite-vec; None: the only one
    document: Text | None = None  # their column that names the document of a vector; None: each its own
    private: bool = True  # keep its ids out of MLflow, the report and standard output

    def check_alone(self) -> None:
        if unknown := {*self.columns} - {"vector", "id", "split"}:
            raise ValueError(f"columns: vector, id and split can be named, not {min(unknown)!r}")


AnyCorpus = Annotated[
    LibraryCorpus | SyntheticCorpus | HubCorpus | PathCorpus | VectorsCorpus, Field(discriminator="source")
]
