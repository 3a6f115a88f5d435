"""translate: fit a map between the vectors of two files, apply it to a file, measure it on pairs."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from pipelines import batchwise
from pipelines.aligners.core.cloud import checked
from pipelines.aligners.core.parts import Parts
from pipelines.aligners.core.translator import Translator, best_seed, load_seeds, read_verdicts, save
from pipelines.corpora.core.files import located
from pipelines.corpora.sources.vectors import Stored, formats, limits
from pipelines.evaluate import scored
from pipelines.fitting import arrays
from pipelines.fitting.fits import write_verdicts
from pipelines.measures import shown, summary, translation
from pipelines.runtime.errors import BadInput, listed
from pipelines.runtime.files import atomic, check_writable, reading
from pipelines.tool import Answer

WRITTEN = (".parquet", ".arrow", ".npy")
BATCH = 8192  # vectors that are compared with each other, at most
PARTS = "parts.safetensors"  # in the folder of a map: for which source vectors it is right


def fit(args: Namespace) -> Answer:
    """Write a translator that `pipelines.load` reads, its verdict, and the parts that it is right for."""
    check_map(args.out, args.seed)
    source, target = (side.matrix() for side in sides(args, args.source, args.target))
    how = {"seed": args.seed, "restarts": args.restarts}
    translator, verdict, parts = arrays.fit_parts(source, target, **how)
    write_verdicts(args.out, {})  # the last map's are gone before a new map is there
    (args.out / PARTS).unlink(missing_ok=True)
    save(translator, args.out / f"seed-{args.seed}")
    write_verdicts(args.out, {args.seed: verdict})
    if parts:
        with atomic(args.out / PARTS) as draft:
            parts.save(draft)
    advice = "to try: more texts on both sides, more --restarts, or known pairs (`migrate --pairs`)"
    about = str(verdict) if verdict.share else f"{verdict.short}; {advice}"
    said = [f"{len(source)} vectors to {len(target)}: {args.out}", about]
    return Answer(said, {"map": str(args.out), "verdict": asdict(verdict)})


def check_map(folder: Path, seed: int) -> None:
    """Raise BadInput if a map cannot be written to this folder, or if it has a map of another seed."""
    check_writable(folder / f"seed-{seed}.safetensors")
    if others := sorted(path.stem for path in folder.glob("seed-*.json") if path.stem != f"seed-{seed}"):
        raise BadInput(f"{folder}: the map of {others[0]} is there: choose another folder")


def apply(args: Namespace) -> Answer:
    """Translate SOURCE. Of parquet to parquet or arrow, the other columns are kept.

    A column `aligned` tells for which rows the map is right, if `fit` found any. That of SOURCE is left out.
    """
    source = Stored.of(args.source, args)
    check_output(args.out, source, [args.source])
    translators, verdicts = load_seeds(args.map), read_verdicts(args.map)
    seed = best_seed(translators, verdicts)
    parts = Parts.load(args.map / PARTS) if (args.map / PARTS).exists() else None
    rows = write(args.out, source, translators[seed], parts)
    said = [f"{rows} vectors: {args.out}"]
    label = verdicts.get(seed, {}).get("label")
    if label not in (None, "aligned", "partial"):
        said.append(f"the verdict on the map is {label}: it may be wrong")
    return Answer(said, {"out": str(args.out), "rows": rows, "verdict": label})


def sides(args: Namespace, first: str, second: str) -> list[Stored]:
    """Return the vectors of two files. `--column` and `--collection` may be FIRST,SECOND."""
    columns, collections = (
        given.split(",", 1) if given and "," in given else [given, given]
        for given in (args.column, args.collection)
    )
    return [*map(Stored, map(located, (first, second)), columns, collections)]


def check_output(path: Path, source: Stored, inputs: Sequence[str]) -> None:
    """Raise BadInput, before any work, if `write` cannot write the file or would change one of the `inputs`.

    Raise it also for a source that cannot be read.
    """
    if path.suffix not in WRITTEN or path.is_dir():
        raise BadInput(f"{path}: vectors are written to files: {', '.join(WRITTEN)}")
    for name in inputs:
        if located(name).resolve() in (path.resolve(), *path.resolve().parents):
            raise BadInput(f"{path}: is an input of this command, or in one: choose another file")
    check_writable(path)
    if next(source.blocks(), None) is None:
        raise BadInput(f"{source.path}: no vectors")
    _batches(source)  # raises BadInput


def write(path: Path, source: Stored, translator: Translator, parts: Parts | None = None) -> int:
    """Translate the vectors of `source` and write them to `path`, block by block. Return their number.

    With parts they get the column `aligned`, except in `.npy`, which holds vectors alone.
    """
    if path.suffix == ".npy":
        columns = (table["vector"].combine_chunks() for table in _translated(source, translator, None))
        blocks = [column.flatten().to_numpy().reshape(len(column), -1) for column in columns]
        with atomic(path) as draft, open(draft, "wb") as file:
            np.save(file, np.concatenate(blocks))
        return sum(map(len, blocks))
    tables = _translated(source, translator, parts)
    first = next(tables)
    opener, rows = pq.ParquetWriter if path.suffix == ".parquet" else pa.ipc.new_file, 0
    with atomic(path) as draft, opener(draft, first.schema) as writer:
        for table in chain([first], tables):
            # Files of a folder may have the columns in another order
            writer.write_table(table.select(first.schema.names))
            rows += len(table)
    return rows


def _translated(source: Stored, translator: Translator, parts: Parts | None) -> Iterator[pa.Table]:
    """Yield the batches of a source with the translated vectors, in the column `vector`."""
    rows, (column, batches) = 0, _batches(source)
    function = batchwise.translate(translator, column)
    for batch in batches:
        try:
            table = function(batch)
        except BadInput as error:  # which numbers the rows of this batch
            raise BadInput(f"{source.path}, rows from {rows} on: {error}") from None
        table = table.select([name for name in table.column_names if name != "aligned"])
        if parts:
            flat = batch.column(column).flatten().cast(pa.float32(), safe=False)
            right = parts.rows(torch.tensor(flat.to_numpy(zero_copy_only=False)).view(len(table), -1))
            table = table.append_column("aligned", pa.array(right.numpy()))
        yield table
        rows += len(table)


def _batches(source: Stored) -> tuple[str, Iterator[pa.RecordBatch]]:
    """Return the column of vectors and all batches. Raises BadInput for columns that share a name.

    Of parquet with a column of lists all columns are kept, else there is `vector` alone.
    """
    if files := formats.parquet_files(source.path):
        schema = pq.ParquetFile(files[0]).schema_arrow
        [name, *others] = formats.columns_of(source.path, schema, source.column)
        if not others and formats.is_vectors(schema.field(name).type):
            if len({*schema.names}) < len(schema):
                raise BadInput(f"{source.path}: columns share a name: {listed(schema.names)}")
            return name, _of_parquet(files)
    return "vector", (
        pa.record_batch({"vector": pa.FixedSizeListArray.from_arrays(block.ravel(), block.shape[1])})
        for block in source.blocks()
    )


def _of_parquet(files: list[Path]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with reading(file, "not a whole parquet file"):
            yield from pq.ParquetFile(file).iter_batches(limits.BLOCK)


def judge(args: Namespace) -> Answer:
    """Measure a map on true pairs. Raises BadInput for vectors that are all the same: ranks tell nothing."""
    files = sides(args, args.source, args.target)
    source, target = (checked(str(side.path), torch.from_numpy(side.matrix())) for side in files)
    if len(source) != len(target):
        raise BadInput(f"{len(source)} source vectors and {len(target)} target vectors: rows must be pairs")
    translator = arrays.load(args.map)
    if (width := translator(source[:1]).shape[1]) != target.shape[1]:
        raise BadInput(f"{args.target}: vectors of {target.shape[1]} dimensions; the map gives {width}")
    found = summary(scored(translator, source, target, torch.arange(len(source)), BATCH))
    lines = [f"{len(source)} pairs, ranked in batches of at most {BATCH}"]
    for m in shown(translation.MEASURES):
        lines.append(f"{m.title}: {found[m.name]:.{m.digits}f} ± {found[f'{m.name}_error']:.{m.digits}f}")
    return Answer(lines, {"pairs": len(source)} | found)
