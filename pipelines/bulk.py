"""bulk: Parquet shards through one function, by this machine or a Ray cluster -> data/bulk/<row>/, shards of the same names."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from pipelines import batchwise
from pipelines.aligners.core.translator import load_best
from pipelines.encoders import query, sources
from pipelines.runtime import shards, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress
from pipelines.study import Bulk, params

ENGINE = {"engine", "address", "workers", "cpus", "gpus"}  # what changes no number


def bulk(name: str, row: Bulk, study: params.Study, run: track.Run) -> None:
    """Do the shards that are not done yet, remove outputs whose input is gone, and count rows and labels.

    Raises BadInput before any work for shards without the column or with vectors of another dimension; after all others are done
    for a shard in which something else is at fault.
    """
    inputs, job = plan(name, row, study)
    with store.alone("bulk", name):
        todo = [shard for shard in inputs if not shards.done(shard, job)]
        print(f"bulk.{name}: {len(todo)} of {len(inputs)} shards are to be done")
        started = time.perf_counter()
        finished = list(progress(engine(row, job, todo), what=f"bulk {name}", unit="shards", total=len(todo)))
        seconds = time.perf_counter() - started
        names = {shard.name for shard in inputs}
        for file in job.folder.iterdir():  # of shards that are gone, and of workers that were killed
            if file.name not in names:
                file.unlink()
    if faults := sorted(d.fault for d in finished if d.fault):
        raise BadInput(f"{len(faults)} of {len(todo)} shards failed: {faults[0]}")
    metrics = counts([job.folder / shard.name for shard in inputs])
    store.write_metrics("bulk", name, metrics)
    rate = {"rows_per_second": sum(d.rows for d in finished) / seconds} if finished else {}
    run.log({"shards": metrics["shards"], "rows": metrics["rows"]} | rate)


def plan(name: str, row: Bulk, study: params.Study) -> tuple[list[Path], shards.Job]:
    """The shards, and what is to be done to each; for a loop of one's own: `shards.loop(job, inputs[3::8])`. Raises BadInput."""
    inputs, column = (
        shards.listed(Path(row.path)),
        row.column or ("text" if row.apply == "embed" else "vector"),
    )
    kinds = {shard: kind(shard, column) for shard in inputs}
    if row.apply == "embed":
        folder, encoder = store.intact(store.encoder_path(row.encoder)).resolve(), study.encoders[row.encoder]
        if bad := [
            shard
            for shard, of in kinds.items()
            if not pa.types.is_string(of) and not pa.types.is_large_string(of)
        ]:
            raise BadInput(f"{bad[0]}: column {column!r} is {kinds[bad[0]]}, not text")
        make, made_from = partial(batchwise.embed, folder, encoder), (encoder, sources.weights(folder))
    else:
        translator = load_best(store.intact(store.translators_path(row.translator)), row.hub_correction)
        for shard, of in kinds.items():
            check(shard, column, of, batchwise.source_dimension(translator), row.translator)
        tables, of_tables = ((), ()) if row.apply == "translate" else labelled(row, study)
        make = partial(getattr(batchwise, row.apply), translator, *tables)
        made_from = (translator.config, *translator.state_dict().values(), *of_tables)
    output = store.bulk_path(name).resolve()
    output.mkdir(parents=True, exist_ok=True)
    digest = digest_of(row.model_dump(exclude=ENGINE), *made_from)
    return inputs, shards.Job(partial(make, column=column, device=row.device), output, digest, row.batch)


def kind(shard: Path, column: str) -> pa.DataType:
    """The type of a shard's column. Raises BadInput."""
    try:
        schema = pq.read_schema(shard)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{shard}: cannot be read as Parquet: {' '.join(str(error).split())}") from None
    if column not in schema.names:
        raise BadInput(f"{shard}: there is no column {column!r}; there are: {', '.join(schema.names)}")
    return schema.field(column).type


def check(shard: Path, column: str, of: pa.DataType, width: int, translator: str) -> None:
    """Raise BadInput unless the vectors are of the translator's source, as far as the type and the first row say."""
    try:
        dimension = batchwise.dimension(of)
    except BadInput as error:
        raise BadInput(f"{shard}: column {column!r}: {error}") from None
    if dimension is None:
        first = next(pq.ParquetFile(shard).iter_batches(1, columns=[column]), None)
        dimension = len(first[0][0].as_py() or ()) if first else width
    if dimension != width:
        raise BadInput(
            f"{shard}: column {column!r} has {dimension} dimensions, but {translator} translates from {width}"
        )


def labelled(row: Bulk, study: params.Study) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Labels and their vectors in the target space, for `audit` also ids and vectors of the target's train texts; and what all
    of these are made from (label vectors themselves differ in a last bit from one kind of machine to another)."""
    fitted = study.translators()[row.translator]
    name = study.spaces()[fitted.target].encoder
    folder, encoder = store.intact(store.encoder_path(name)), study.encoders[name]
    encode = query.as_function(folder, encoder, resolve(row.device))
    labels = (row.labels, encode([row.template.format(label=label) for label in row.labels]))
    made_from = (encoder, sources.weights(folder))
    if row.apply == "label":
        return labels, made_from
    target = store.read_embeddings(fitted.target)
    rows = target.rows(fitted.splits[1] if fitted.splits else "train")[: row.known]
    known = (target.ids[rows].tolist(), target.vectors[rows], row.nearest)
    return (*labels, *known), (*made_from, *known)


def engine(row: Bulk, job: shards.Job, todo: list[Path]) -> Iterator[shards.Done]:
    """Of each shard what became of it, as they are finished."""
    if row.engine == "local" or not todo:
        return shards.loop(job, todo)
    return shards.on_ray(job, todo, row.address, row.workers, row.cpus, row.gpus)


def counts(outputs: list[Path]) -> dict[str, Any]:
    """Shards, rows, and how many rows have each label, most first."""
    labels = Counter()
    for output in outputs:
        if "label" in pq.read_schema(output).names:
            column = pq.read_table(output, columns=["label"])["label"]
            labels.update({pair["values"]: pair["counts"] for pair in column.value_counts().to_pylist()})
    rows = sum(pq.read_metadata(output).num_rows for output in outputs)
    return {"shards": len(outputs), "rows": rows} | ({"labels": dict(labels.most_common())} if labels else {})


def digest_of(*parts: Any) -> str:
    """sha256 of settings and tensors."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(
            part.contiguous().numpy().tobytes() if isinstance(part, Tensor) else repr(part).encode()
        )
    return digest.hexdigest()


if __name__ == "__main__":
    stage.main(bulk)
