"""Prose from the docstrings of the installed dependencies: real English that is on every machine, and is never
redistributed.

The packages are those that `constraints.txt` names, but for extras; a file is parsed with `ast` and never imported. Of a
docstring only prose is kept: paragraphs that begin like a sentence, without code, parameter lists, tables, licences and
addresses.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from importlib import metadata
from itertools import takewhile
from multiprocessing import get_context
from pathlib import Path, PurePosixPath

import polars as pl

from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress
from pipelines.study import LibraryCorpus

END = "# The library corpus ends here"  # a line of constraints.txt: what follows is no part of it
AHEAD = 64  # files of a package that are read at once: what its cap leaves unused is read for nothing
LARGEST = 1_000_000  # bytes; longer files are generated tables
SKIPPED = {
    "tests",
    "test",
    "_tests",
    "testing",
    "_vendor",
    "vendor",
    "vendored",
    "third_party",
    "site-packages",
}

_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#]+)", re.M)
_UNDERLINE = re.compile(r"^([=\-~^*#\"'`.])\1{2,}$")
_SECTION = re.compile(
    r"^(args?|arguments|(other )?param(eter)?s|returns?|return values?|raises?|yields?|examples?|usage|see also"
    r"|references?|attributes|methods|warns|keyword arguments|options|literature|doctest|citations?|shape"
    r"|inputs?|outputs?):?$",
    re.I,
)
_CODE = re.compile(
    r">>>|^\s*(\.\. |[:@]\w+|[-*+|#$%]|\d+[.)]|[a-z_*][\w.*]* ?: |[\w.*]+ : |def |import )|\|.*\||{%"
)
_ASIDE = re.compile(r"\s*\[\w+\]_|`[^`<]+<[^`]+>`_+")
_ADDRESS = re.compile(r"http|www\.|\.\.\.|\\|\w\(|<[a-z/]")
_LICENCE = re.compile(
    r"licen[sc]e|copyright|warrant|all rights reserved|\bauthors?\b|deprecated since|versionadded", re.I
)
_ROLE = re.compile(r":[\w:+-]+:`~?!?([^`<]+?)(?:\s*<[^`>]*>)?`")
_MARKS = re.compile(r"`+|\*{1,2}(?=\S)|(?<=\S)\*{1,2}")
_SENTENCE = re.compile(
    r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)(?<!\bcf\.)\s+(?=[A-Z\"'(])"
)
_PLAIN = re.compile(r"[\"'(]*[A-Za-z]+(?:[-'/][A-Za-z]+)*[\"')]*[.,;:!?]*[\"')]*|\d+(?:\.\d+)?[.,;:]?")
_STRANGE = re.compile(r"[{}\[\]<>=_^$@#\\|~+*/]")


def rows(p: LibraryCorpus) -> pl.DataFrame:
    """Every sequence of every package: id (`path:line#k`), text, package. Raises BadInput if `p.path` is absent."""
    names = pinned(Path(p.path))
    records: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    # Syntax trees have no cycles, and searching them takes long: no garbage collector in these processes.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), initializer=gc.disable) as pool:
        for name in progress(names, what="docstrings", unit="packages"):
            records += _package(name, p, seen, pool)
    if not records:
        raise BadInput(f"{p.path}: none of the {len(names)} packages that it names is installed")
    return pl.DataFrame(records, schema=["id", "text", "package"], orient="row")


def pinned(path: Path) -> list[str]:
    """Names of the installed packages among those that `path` pins, sorted; another version than the pinned is
    reported."""
    if not path.is_file():
        raise BadInput(
            f"{path}: there is no such file; the library corpus is the prose of the packages that it names"
        )
    names = []
    pins = set(_PINNED.findall(path.read_text().partition(END)[0]))
    for name, version in sorted(pins, key=lambda pin: (pin[0].lower(), pin[1])):
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # constraints also name what other platforms and the tests need
        if installed.split("+")[0] != version.split("+")[0]:
            print(f"{path}: {name} is {installed} here, not {version}: the texts may differ", file=sys.stderr)
        names.append(name)
    return names


def _package(name: str, p: LibraryCorpus, seen: set[str], pool: Executor) -> list[tuple[str, str, str]]:
    """At most `per_package` sequences, from the package's files in the order of a hash, so that a capped one is
    sampled widely."""
    sampled: list[tuple[str, str, str]] = []
    files = sorted(_sources(name), key=lambda f: hashlib.sha256(str(f).encode()).digest())
    for at in range(0, len(files), AHEAD):
        block = files[at : at + AHEAD]
        read = pool.map(partial(_texts, words=p.words), [str(f.locate()) for f in block], chunksize=8)
        for file, texts in zip(block, read, strict=True):
            for place, text in texts:
                if _new(text, seen):
                    sampled.append((f"{file}:{place}", text, name))
                    if len(sampled) == p.per_package:
                        return sampled
    return sampled


def _texts(path: str, words: tuple[int, int]) -> list[tuple[str, str]]:
    """(line#number, text) of every sequence of a file."""
    return [
        (f"{line}#{k}", text)
        for line, docstring in docstrings(Path(path))
        for k, text in enumerate(sequences(prose(docstring), *words))
    ]


def _sources(name: str) -> list[metadata.PackagePath]:
    def kept(file: PurePosixPath) -> bool:
        inside = file.suffix == ".py" and not file.name.startswith("test_") and ".." not in file.parts
        return inside and not SKIPPED.intersection(file.parts)

    return [f for f in metadata.files(name) or () if kept(f)]


def _new(text: str, seen: set[str]) -> bool:
    """Whether no earlier text is the same or begins the same, up to case, digits and punctuation."""
    words = re.sub(r"[^a-z0 ]+", " ", re.sub(r"\d+", "0", text.lower())).split()
    keys = {" ".join(words), " ".join(words[:14])}
    if keys & seen:
        return False
    seen |= keys
    return True


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of each module, class and function docstring of a file; none of a file that is not valid Python."""
    try:
        source = path.read_bytes() if path.stat().st_size <= LARGEST else b""
    except OSError:
        return
    if b'"""' not in source and b"'''" not in source:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    stack: list[ast.AST] = [tree]
    while stack:  # only bodies of statements can hold a definition, so expressions need no visit
        node = stack.pop()
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            match first:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield first.lineno, inspect.cleandoc(text)
        for part in (body, getattr(node, "orelse", None)):
            stack.extend(
                reversed([s for s in part if isinstance(s, ast.stmt)] if isinstance(part, list) else [])
            )


def prose(docstring: str) -> list[str]:
    """The sentences of a docstring's paragraphs of prose, inline markup removed."""
    sentences: list[str] = []
    skipping = False
    for block in re.split(r"\n\s*\n", docstring):
        lines = block.rstrip().split("\n")
        header = lines[0].strip()
        if len(lines) > 1 and _UNDERLINE.match(lines[1].strip()):
            skipping = bool(_SECTION.match(header))
            lines = lines[2:]
        elif _SECTION.match(header):
            continue  # `Args:` and its like: what belongs to it is indented
        if lines and not skipping:
            sentences += _paragraph(lines)
    return sentences


def _paragraph(lines: list[str]) -> list[str]:
    """Sentences of one block of lines, up to a line that is not prose; none if it does not begin as prose."""
    lines = list(takewhile(lambda line: not line.startswith((" ", "\t")) and not _CODE.search(line), lines))
    if _LICENCE.search(" ".join(lines)):
        return []
    text = _MARKS.sub("", _ASIDE.sub("", _ROLE.sub(r"\1", " ".join(" ".join(lines).split()))))
    if not re.match(r"[A-Z][a-z]*'?[a-z]* [a-zA-Z]", text):
        return []
    whole = [s for s in _SENTENCE.split(text) if s[-1] in ".!?" and _reads(s)]
    return whole if whole and sum(map(len, whole)) > len(text) / 3 else []


def _reads(sentence: str) -> bool:
    """Whether a sentence is made of words: at least three, 80 % of them plain, hardly a character of code."""
    words = sentence.split()
    plain = sum(bool(_PLAIN.fullmatch(w)) for w in words)
    strange = len(_STRANGE.findall(sentence)) + sentence.count("(") // 2
    return (
        len(words) >= 3
        and not _ADDRESS.search(sentence)
        and plain >= 0.8 * len(words)
        and strange <= 0.03 * len(sentence)
    )


def sequences(sentences: list[str], shortest: int, longest: int) -> Iterator[str]:
    """Pack sentences into sequences of shortest..longest words; one is cut inside a sentence only where nothing else
    fits."""
    held: list[str] = []
    for sentence in sentences:
        words = sentence.split()
        if len(held) >= shortest and len(held) + len(words) > longest:
            yield " ".join(held)
            held = []
        held += words
        while len(held) > longest:
            yield " ".join(held[:longest])
            held = held[longest:]
            if len(held) < shortest:
                held = []
    if len(held) >= shortest:
        yield " ".join(held)
