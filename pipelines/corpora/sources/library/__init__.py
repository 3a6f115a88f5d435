"""Prose from the docstrings of the installed dependencies: real English on every machine, never
redistributed.

The packages are those that `constraints.txt` names above the line END. Files are parsed with `ast`, never
imported. Only prose is kept: paragraphs that begin like a sentence, without code, parameter lists, tables,
licences, addresses.
"""

import ast
import gc
import hashlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from importlib import metadata
from itertools import islice, takewhile
from multiprocessing import get_context
from pathlib import Path, PurePosixPath

import polars as pl

from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress
from pipelines.study import LibraryCorpus

END = "# The library corpus ends here"  # a line of constraints.txt; packages below it are not read
AHEAD = 64  # files of a package that are read at once
LARGEST = 1_000_000  # bytes; longer files are generated tables
SKIPPED = {"tests", "test", "_tests", "testing"}
SKIPPED |= {"_vendor", "vendor", "vendored", "third_party", "site-packages"}

_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#]+)", re.M)
_UNDERLINE = re.compile(r"^([=\-~^*#\"'`.])\1{2,}$")
_SECTION = re.compile(
    r"^(args?|arguments|(other )?param(eter)?s|returns?|return values?|raises?|yields?|examples?"
    r"|usage|see also|references?|attributes|methods|warns"
    r"|keyword arguments|options|literature|doctest|citations?|shape"
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
    """Return every sequence of every package: id (`path:line#k`), text, package, file, document.

    The document is the file, or what `document` names. Raises BadInput if there is no text.
    """
    return of_packages(pinned(Path(p.path)), p)


def of_packages(names: Sequence[str], p: LibraryCorpus) -> pl.DataFrame:
    """Return the `rows` of the installed packages of these names."""
    records: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    # Syntax trees have no cycles, so these processes switch off the garbage collector, which is slow on them.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), initializer=gc.disable) as pool:
        for name in progress(names, what="docstrings", unit="packages"):
            records += islice(_package(name, p, seen, pool), p.per_package)
    if not records:
        raise BadInput(f"{p.path}: none of {len(names)} packages is installed with docstrings")
    frame = pl.DataFrame(records, schema=["id", "text", "package"], orient="row")
    frame = frame.with_columns(file=pl.col("id").str.extract(r"^(.*):\d+#\d+$"))
    return frame.with_columns(document=pl.col(p.document))


def pinned(path: Path) -> list[str]:
    """Return the installed packages among those that `path` pins, sorted. Report each of another version."""
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file; it names the packages of the library corpus")
    names = []
    pins = set(_PINNED.findall(path.read_text(encoding="utf-8").partition(END)[0]))
    for name, version in sorted(pins, key=lambda pin: (pin[0].lower(), pin[1])):
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # constraints also name packages of other platforms
        if installed.split("+")[0] != version.split("+")[0]:
            print(f"{path}: {name} is {installed} here, not {version}: the texts may differ", file=sys.stderr)
        names.append(name)
    return names


def _package(name: str, p: LibraryCorpus, seen: set[str], pool: Executor) -> Iterator[tuple[str, str, str]]:
    """Yield the new sequences of a package. Files are in the order of a hash, to sample widely."""
    found = filter(_is_read, metadata.files(name) or ())
    files = sorted(found, key=lambda file: hashlib.sha256(str(file).encode()).digest())
    for at in range(0, len(files), AHEAD):
        block = files[at : at + AHEAD]
        read = pool.map(partial(_texts, words=p.words), [str(f.locate()) for f in block], chunksize=8)
        for file, texts in zip(block, read, strict=True):
            for place, text in texts:
                if _new(text, seen):
                    yield f"{file}:{place}", text, name


def _texts(path: str, words: tuple[int, int]) -> list[tuple[str, str]]:
    """Return (line#number, text) of every sequence of a file."""
    return [
        (f"{line}#{k}", text)
        for line, docstring in docstrings(Path(path))
        for k, text in enumerate(sequences(prose(docstring), *words))
    ]


def _is_read(file: PurePosixPath) -> bool:
    inside = file.suffix == ".py" and not file.name.startswith("test_") and ".." not in file.parts
    return inside and not SKIPPED.intersection(file.parts)


def _new(text: str, seen: set[str]) -> bool:
    """Return True if no earlier text has the same first 14 words, and remember this one. Every run of
    digits counts as 0. Case and punctuation are ignored.
    """
    words = re.sub(r"[^a-z0 ]+", " ", re.sub(r"\d+", "0", text.lower())).split()
    key = " ".join(words[:14])
    new = key not in seen
    seen.add(key)
    return new


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each module, class and function docstring, if the file is valid Python.

    Files without triple quotes are skipped. Definitions in blocks of `except`, `finally` and
    `case` are not visited.
    """
    try:
        source = path.read_bytes() if path.stat().st_size <= LARGEST else b""
        if b'"""' not in source and b"'''" not in source:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    stack: list[ast.AST] = [tree]
    while stack:  # only statements can hold a definition, so expressions need no visit
        node = stack.pop()
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text
        for part in ("body", "orelse"):
            stack.extend(reversed(getattr(node, part, [])))


def prose(docstring: str) -> list[str]:
    """Return the sentences of a docstring's paragraphs of prose, without inline markup."""
    sentences: list[str] = []
    skipping = False
    for block in re.split(r"\n\s*\n", docstring):
        lines = block.rstrip().split("\n")
        header = lines[0].strip()
        if len(lines) > 1 and _UNDERLINE.match(lines[1].strip()):
            skipping = bool(_SECTION.match(header))
            lines = lines[2:]
        elif _SECTION.match(header):
            continue  # `Args:` and the like: their text is indented
        if lines and not skipping:
            sentences += _paragraph(lines)
    return sentences


def _paragraph(lines: list[str]) -> list[str]:
    """Return the sentences of a block up to its first line that is indented or looks like code.

    Return none of a licence, or if the block does not begin like a sentence.
    """
    lines = list(takewhile(lambda line: not line.startswith((" ", "\t")) and not _CODE.search(line), lines))
    if _LICENCE.search(" ".join(lines)):
        return []
    text = _MARKS.sub("", _ASIDE.sub("", _ROLE.sub(r"\1", " ".join(" ".join(lines).split()))))
    if not re.match(r"[A-Z][a-z]*'?[a-z]* [a-zA-Z]", text):
        return []
    whole = [s for s in _SENTENCE.split(text) if s[-1] in ".!?" and _reads(s)]
    return whole if whole and sum(map(len, whole)) > len(text) / 3 else []


def _reads(sentence: str) -> bool:
    """Return whether a sentence has three words or more, 80 % of them plain, and hardly any code."""
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
    """Join sentences to sequences of shortest..longest words.

    A sequence ends before the sentence that would make it too long. If it has fewer than `shortest` words,
    it ends within that sentence. A rest below `shortest` is dropped.
    """
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
