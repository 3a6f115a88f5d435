"""Paths of artefacts, checked reads and atomic writes.

data/corpora/<corpus>.parquet          id, text, split, labels, document, and what the corpus has
data/encoders/<encoder>/               a sentence-transformers folder
data/trained/<row of finetune>/        a sentence-transformers folder
data/embeddings/<row of embed>.arrow   id, split, vector, document, same_as, judgements; metadata: the encoder
data/image_text/<row of train_image_text>/       seed-<n>.safetensors + .json: an image and a text encoder
data/translators/<row of align>/       seed-<n>.safetensors + .json; verdicts.json by seed
data/translators/<row of align_jointly>/<source>/<target>/       the same of every ordered pair
data/inverters/<row of inverters>/     attacker.pt: texts, their vectors, inverter, corrector
data/bulk/<row>/*.parquet             shards, named like the input shards
results/<verb>/<row>.json              metrics
results/<verb>/<row>/*.csv            tables
report/                                pages for people; metrics/<verb>/<row>.json: headline numbers
.cache/work/<verb>/<row>/              what a killed stage left to continue from; never an output
.cache/locks/<verb>/<row>              held while a stage works there
.cache/mlflow/                         logs of runs that are not yet sent to MLflow
.cache/runs/<verb>@<row>.json          times and MLflow run of a stage's last good run
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import torch

from pipelines.runtime import intact
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import atomic, digest, draft_of, reading, sweep, try_lock, write_text, writing
from pipelines.study.params import Study

DATA, RESULTS, REPORT = Path("data"), Path("results"), Path("report")
WORK, LOCKS = Path(".cache/work"), Path(".cache/locks")


def corpus_path(name: str) -> Path:
    return DATA / "corpora" / f"{name}.parquet"


def encoder_path(name: str) -> Path:
    return DATA / "encoders" / name


def trained_path(name: str) -> Path:
    return DATA / "trained" / name


def embeddings_path(name: str) -> Path:
    return DATA / "embeddings" / f"{name}.arrow"


def image_text_path(name: str) -> Path:
    return DATA / "image_text" / name


def translators_path(name: str) -> Path:
    return DATA / "translators" / name


def inverters_path(name: str) -> Path:
    return DATA / "inverters" / name


def bulk_path(name: str) -> Path:
    return DATA / "bulk" / name


def metrics_path(verb: str, name: str) -> Path:
    return RESULTS / verb / f"{name}.json"


def tables_path(verb: str, name: str) -> Path:
    return RESULTS / verb / name


def examples_path(name: str) -> Path:
    """Return the path of inverted texts, the worst leaks first."""
    return tables_path("invert", name) / "examples.csv"


def seeds_path(name: str) -> Path:
    """Return the path of a table with one row a seed: the mean and standard error of every measure."""
    return tables_path("evaluate", name) / "seeds.csv"


@contextmanager
def work(verb: str, name: str, *made_from: Any) -> Iterator[Path]:
    """Yield a folder for checkpoints, which survives a kill and is removed when the block ends well.

    A digest of `made_from` names the folder: a stage resumes only if all of it is unchanged. These are
    settings, digests of code, and inputs: a Path stands for the bytes of its file, or of all files of its
    folder. Raises BadInput while another process runs the same row.
    """
    parts = [intact.md5_of(part) if isinstance(part, Path) else part for part in made_from]
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    folder = WORK / verb / name / key
    with alone(verb, name):
        folder.mkdir(parents=True, exist_ok=True)
        for other in folder.parent.iterdir():
            if other != folder and other.is_dir():
                shutil.rmtree(other)
        yield folder
        shutil.rmtree(folder.parent)


@contextmanager
def alone(verb: str, name: str) -> Iterator[None]:
    """Hold the lock of a stage until the block or the process ends. Raises BadInput if another has it."""
    path = LOCKS / verb / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        if not try_lock(file):
            raise BadInput(f"{verb} {name}: the same stage is already running")
        yield


def code_digest(*packages: str) -> str:
    """Return a digest of the code and data of packages, modules and files, such as "aligners/core"."""
    root, total = Path(__file__).parents[1], hashlib.sha256()
    paths = [root / package for package in packages]
    inside = {file for path in paths for file in path.rglob("*.*") if file.suffix in (".py", ".yaml")}
    modules = {path if path.suffix else path.with_suffix(".py") for path in paths if not path.is_dir()}
    for file in sorted(inside | modules):
        total.update(f"{file.relative_to(root)} {digest(file)}\n".encode())
    return total.hexdigest()


# ---------------------------------------------------------------- corpora

CORPUS_COLUMNS = {"id": pl.String, "text": pl.String, "split": pl.String, "labels": pl.List(pl.String)}


def write_corpus(name: str, frame: pl.DataFrame) -> None:
    """Write a corpus: CORPUS_COLUMNS, with null texts if it has only vectors, and any other columns."""
    check_corpus(name, frame)
    with atomic(corpus_path(name)) as draft:
        frame.write_parquet(draft, compression="zstd")


def read_corpus(name: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
    path = _existing(corpus_path(name))
    with reading(path):
        return pl.read_parquet(path, columns=list(columns) if columns else None)


def read_pairs(corpus: str, split: str | None) -> pl.DataFrame:
    """Return `text`, `pair` and `score` of a split of an STS corpus; None: all.

    Raises BadInput for fewer than three pairs, or if all have one score.
    """
    frame = read_corpus(corpus, ["text", "pair", "score", "split"])
    frame = frame if split is None else frame.filter(pl.col("split") == split)
    found = f"corpus {corpus} has {len(frame)} pairs" + (f" of split {split!r}" if split else "")
    if len(frame) < 3:
        raise BadInput(f"{found}; three are needed for a correlation")
    if frame["score"].n_unique() < 2:
        raise BadInput(f"{found}, all of one score; a correlation needs two")
    return frame.select("text", "pair", pl.col("score").cast(pl.Float64))


def check_corpus(name: str, frame: pl.DataFrame) -> None:
    """Raise BadInput for a missing or wrong column, a repeated id, an empty text, or a repeated one.

    Published benchmarks, with `pair`, `judgements` or `task`, may repeat texts.
    """
    where = f"corpus {name}"
    for column, dtype in CORPUS_COLUMNS.items():
        if (found := frame.schema.get(column)) != dtype:
            raise BadInput(f"{where}: column {column!r} is {found}, not {dtype}")
    if frame.is_empty():
        raise BadInput(f"{where}: no rows")
    for column in ("id", "split"):
        if n := frame[column].null_count():
            raise BadInput(f"{where}: {n} rows have no {column}")
    if (twice := frame["id"].is_duplicated()).any():
        raise BadInput(f"{where}: id {frame['id'].filter(twice)[0]!r} occurs twice")
    if "vector" not in frame.columns:
        _check_texts(where, frame)


def _check_texts(where: str, frame: pl.DataFrame) -> None:
    # A text may repeat with another hypothesis or image
    others = [column for column in ("positive", "negative", "image") if column in frame.columns]
    faults = {"empty": frame["text"].fill_null("").str.strip_chars() == ""}
    if not {"pair", "judgements", "task"} & {*frame.columns}:  # published benchmarks may repeat texts
        faults["repeated"] = frame.select("text", *others).is_duplicated()
    if "judgements" in frame.columns:
        query = frame["judgements"].is_not_null()
        faults["documents that follow a query"] = query.cum_max() & ~query
    for fault, found in faults.items():
        if ids := frame["id"].filter(found).to_list():
            raise BadInput(f"{where}: {len(ids)} texts are {fault}, the first with id {ids[0]!r}")


# ---------------------------------------------------------------- embeddings


@dataclass(frozen=True)
class Embeddings:
    """Vectors of one corpus by one encoder, in corpus order: raw encoder output."""

    name: str
    ids: np.ndarray  # (n,) of str
    splits: np.ndarray  # (n,) of str
    vectors: torch.Tensor  # (n, dimension) float32
    metadata: dict[str, str]  # encoder, corpus, source, dimension, and what `embed.metadata` returns
    documents: np.ndarray  # (n,) of str: the document of each row; without documents, its id
    same_as: np.ndarray  # (n,) of str: the id of each row's first near-duplicate, or its own
    judgements: np.ndarray | None = None  # (n,): JSON of a query, None of a document; of kind `judged` alone

    def rows(self, split: str | None) -> torch.Tensor:
        """Return the indices of the rows of one split; None: all."""
        mask = np.ones(len(self.ids), bool) if split is None else self.splits == split
        return torch.from_numpy(np.flatnonzero(mask))


def write_embeddings(
    name: str,
    ids: Sequence[str],
    splits: Sequence[str],
    vectors: np.ndarray | Iterable[np.ndarray],
    metadata: dict[str, str],
    more: Mapping[str, Sequence[str | None]] = {},
) -> None:
    """Write one Arrow IPC file: id, split, vector (fixed-size list of float32 or float16), `more` columns.

    `vectors`: (n, dimension), or blocks of rows, of which memory holds one at a time. Readers map the file
    without a copy only if it has one record batch, and Arrow cannot stream into a batch. So: write the file
    with zeros as vectors, find their offset, and overwrite them block by block.
    """
    blocks = iter([vectors] if isinstance(vectors, np.ndarray) else vectors)
    first = next(blocks)
    dimension = first.shape[1]
    zeros = np.zeros(len(ids) * dimension, first.dtype)  # untouched pages take no memory
    columns = {"id": pa.array(ids, pa.string()), "split": pa.array(splits, pa.string())}
    columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(zeros), dimension)
    columns |= {column: pa.array(values, pa.string()) for column, values in more.items()}
    table = pa.table(columns, metadata={**metadata, "dimension": str(dimension)})
    with atomic(embeddings_path(name)) as draft:
        with pa.ipc.new_file(draft, table.schema) as arrow:
            arrow.write_table(table)
        with open(draft, "r+b") as file:
            file.seek(_vectors_at(draft))
            for block in chain([first], blocks):
                block.tofile(file)


def _vectors_at(path: Path) -> int:
    """Return the offset of the vectors in an Arrow file of one record batch, in bytes."""
    mapped = pa.memory_map(str(path))
    vectors: Any = pa.ipc.open_file(mapped).get_batch(0).column("vector")
    return vectors.values.buffers()[1].address - mapped.read_buffer().address


def read_embeddings(name: str, device: torch.device | str = "cpu") -> Embeddings:
    """Read and check embeddings, the vectors onto `device`. On the CPU, float32 vectors are not copied.

    Raises BadInput, naming the file and the row.
    """
    path = _existing(embeddings_path(name))
    with reading(path):
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all().combine_chunks()
        lists = table["vector"].chunk(0)
        array = lists.flatten().to_numpy(zero_copy_only=True).reshape(-1, lists.type.list_size)
        texts = table.drop_columns("vector").to_pydict()
        columns = {column: np.asarray(values, dtype=object) for column, values in texts.items()}
        metadata = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
        ids, splits = columns["id"], columns["split"]
    check_vectors(str(path), array, ids)
    documents, same_as = columns.get("document", ids), columns.get("same_as", ids)
    vectors, judgements = read_only(array).to(device), columns.get("judgements")
    return Embeddings(name, ids, splits, vectors, metadata, documents, same_as, judgements)


def check_vectors(where: str, vectors: np.ndarray, ids: Sequence[str] | np.ndarray) -> None:
    """Raise BadInput for NaN, infinite or zero vectors (n, d), naming the first."""
    half = " in float16 (`store: float32` holds more)" if vectors.dtype == np.float16 else ""
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    for bad, word in ((~np.isfinite(squares), f"not finite{half}"), (squares == 0, "zero")):
        if bad.any():
            raise BadInput(
                f"{where}: {bad.sum()} vectors are {word}, the first with id {ids[bad.argmax()]!r}"
            )


def check_same_texts(source: Embeddings, target: Embeddings) -> None:
    """Raise BadInput unless both have the same ids in the same order: rows with one index are partners."""
    if len(source.ids) != len(target.ids):
        raise BadInput(f"{source.name} has {len(source.ids)} rows, {target.name} has {len(target.ids)}")
    if (differ := source.ids != target.ids).any():
        row = int(differ.argmax())
        raise BadInput(
            f"{source.name} and {target.name} do not have the same ids in the same order: "
            f"row {row} is {source.ids[row]!r} in {source.name}, {target.ids[row]!r} in {target.name}"
        )


def document_columns(corpus: pl.DataFrame) -> dict[str, list[str | None]]:
    """Return the columns that tell which texts belong together, if the corpus has them."""
    names = ("document", "same_as", "judgements")
    return {name: corpus[name].to_list() for name in names if name in corpus.columns}


def read_texts(embeddings: Embeddings, corpus: str) -> pl.DataFrame:
    """Read the corpus of embeddings. Raises BadInput unless both have the same ids in the same order."""
    texts = read_corpus(corpus)
    if list(embeddings.ids) != texts["id"].to_list():
        raise BadInput(f"{embeddings.name}: its ids are not those of corpus {corpus}")
    return texts


def read_only(array: np.ndarray) -> torch.Tensor:
    """Return a float32 tensor over a read-only memory map. Nothing may write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array).float()


# ---------------------------------------------------------------- folders


def publish_folder(folder: Path, path: Path) -> None:
    """Copy a finished folder to a draft, then put the draft in the place of `path`.

    Drafts of files that a killed process left in the folder are not copied. Raises BadInput if the disk is
    full.
    """
    draft = draft_of(path)
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(draft, ignore_errors=True)  # of a killed process that had the same id
            shutil.copytree(folder, draft, ignore=shutil.ignore_patterns(".*.part"))
            shutil.rmtree(path, ignore_errors=True)
            draft.replace(path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def sweep_drafts(verb: str, name: str) -> None:
    """Remove the drafts that killed processes left beside the outputs of a stage."""
    made = ["corpora", "encoders", "trained", "embeddings", "image_text", "translators", "inverters"]
    folders = [DATA / kind for kind in made]
    sweep([*folders, tables_path(verb, name), RESULTS / verb, REPORT, REPORT / "pictures"])


# ---------------------------------------------------------------- metrics and tables


def write_metrics(verb: str, name: str, metrics: dict[str, Any]) -> None:
    """Write nested numbers as JSON, rounded to 6 decimals, so that comparisons show no noise."""
    text = json.dumps(metrics, default=float)  # numbers of NumPy become floats
    rounded = json.loads(text, parse_float=lambda number: round(float(number), 6))
    write_text(metrics_path(verb, name), json.dumps(rounded, indent=2) + "\n")


def read_metrics(verb: str, rows: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return {row: metrics} for those of `rows` that have a file of metrics. No other file is read."""
    return {name: metrics_of(path) for name in rows if (path := metrics_path(verb, name)).exists()}


def metrics_of(path: Path) -> dict[str, Any]:
    """Return the metrics of one row."""
    with reading(intact.checked(path)):
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("not a mapping")
        return content


def alignments(study: Study) -> dict[str, dict[str, Any]]:
    """Return the metrics of every translator, by its name in `Study.translators`."""
    every = read_metrics("align", study.align)
    for row, pairs in read_metrics("align_jointly", study.align_jointly).items():
        every |= {f"{row}/{pair}": metrics for pair, metrics in pairs.items()}
    return every


def write_csv(path: Path, frame: pl.DataFrame) -> None:
    """Write a table of results."""
    with atomic(path) as draft:
        frame.write_csv(draft, float_precision=6)


def read_csv(path: Path, *texts: str) -> pl.DataFrame:
    """Read a table of results. texts: columns to read as text, even if they hold only digits."""
    with reading(_existing(path)):
        return pl.read_csv(path, schema_overrides=dict.fromkeys(texts, pl.String))


def flat(nested: Any, by: str, at: str = "") -> dict[str, Any]:
    """Flatten nested mappings: by "/", {"a": {"b": 1}} becomes {"a/b": 1}. at: the key of `nested` itself."""
    if not isinstance(nested, Mapping):
        return {at: nested}
    parts = (flat(value, by, f"{at}{by}{key}" if at else str(key)) for key, value in nested.items())
    return {key: value for part in parts for key, value in part.items()}


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file; `dvc repro` makes it")
    return intact.checked(path)
