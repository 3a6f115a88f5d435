"""bulk: Parquet shards through one function, on this machine or a Ray cluster -> data/bulk/<row>/, same file
names.
"""

import hashlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from pipelines import batchwise
from pipelines.aligners.core.translator import Translator, load_best
from pipelines.encoders import sources
from pipelines.runtime import intact, shards, stage, store, track
from pipelines.runtime.errors import BadInput, listed
from pipelines.runtime.files import reading
from pipelines.runtime.progress import progress
from pipelines.study import Bulk, params

ENGINE = {"engine", "address", "workers"}  # settings that change no number


def bulk(name: str, row: Bulk, study: params.Study, run: track.Run) -> None:
    """Process the shards that are not done, remove outputs without an input, count rows.

    Raises BadInput before any work for shards without the column, or with vectors of another dimension. Other
    faults of a shard are raised after all other shards are done.
    """
    inputs, job = plan(name, row, study)
    with store.alone("bulk", name):
        todo = [shard for shard in inputs if not shards.done(shard, job)]
        print(f"bulk.{name}: {len(todo)} of {len(inputs)} shards are to be done")
        started = time.perf_counter()
        if row.engine == "ray" and todo:
            results = shards.on_ray(job, todo, row.address, row.workers)
        else:
            results = shards.loop(job, todo)
        finished = list(progress(results, what=f"bulk {name}", unit="shards", total=len(todo)))
        seconds = time.perf_counter() - started
        names = {shard.name for shard in inputs}
        for file in job.folder.iterdir():  # outputs of removed shards, and drafts of killed workers
            if file.is_file() and file.name not in names:
                file.unlink()
    if faults := sorted(d.fault for d in finished if d.fault):
        raise BadInput(f"{len(faults)} of {len(todo)} shards failed: {faults[0]}")
    rows = sum(pq.read_metadata(job.folder / shard.name).num_rows for shard in inputs)
    metrics = {"shards": len(inputs), "rows": rows}
    store.write_metrics("bulk", name, metrics)
    rate = {"rows_per_second": sum(d.rows for d in finished) / seconds} if finished else {}
    run.log(metrics | rate)


def plan(name: str, row: Bulk, study: params.Study) -> tuple[list[Path], shards.Job]:
    """Return the shards, and the job that processes each. Raises BadInput.

    To share them among 8 processes of your own, call `shards.loop(job, inputs[rank::8])` in each.
    """
    inputs = shards.listed(Path(row.path))
    column = row.column or ("text" if row.apply == "embed" else "vector")
    translator = None
    if row.apply != "embed":
        translator = load_best(intact.checked(store.translators_path(row.made_by)))
    for shard in inputs:
        check(shard, column, translator)
    if translator:
        code = store.code_digest("batchwise", "bulk", "aligners/core", f"aligners/{row.aligner}")
        made_from = (code, translator.config, *translator.state_dict().values())
        make = partial(batchwise.translate, translator)
    else:
        folder = intact.checked(store.encoder_path(row.made_by)).resolve()
        encoder = study.encoders[row.made_by]
        code, digest = store.code_digest("batchwise", "bulk", "encoders"), sources.digest_of_weights(folder)
        made_from = (code, encoder, digest)
        make = partial(batchwise.embed, folder, encoder)
    output = store.bulk_path(name).resolve()
    output.mkdir(parents=True, exist_ok=True)
    digest = digest_of(row.model_dump(exclude=ENGINE), *made_from)
    return inputs, shards.Job(partial(make, column=column, device=row.device), output, digest, row.batch)


def check(shard: Path, column: str, translator: Translator | None) -> None:
    """Raise BadInput unless a shard's column has vectors that the translator reads; without one, texts.

    Dimensions are checked in the first row alone.
    """
    with reading(shard, "cannot be read as Parquet"):
        file = pq.ParquetFile(shard)
        first = next(file.iter_batches(1, columns=[column]), None)
    if column not in file.schema_arrow.names:
        raise BadInput(
            f"{shard}: there is no column {column!r}; there are: {listed(file.schema_arrow.names)}"
        )
    if len({*file.schema_arrow.names}) < len(file.schema_arrow):
        raise BadInput(f"{shard}: columns share a name: {listed(file.schema_arrow.names)}")
    kind, where = file.schema_arrow.field(column).type, f"{shard}: column {column!r}"
    if translator is None:
        return batchwise.check_texts(kind, where)
    batchwise.check_vectors(kind, where)
    if not pa.types.is_floating(kind.value_type):
        raise BadInput(f"{where} is {kind}, not vectors (lists of floating-point numbers)")
    vector = first[0][0].as_py() if first else None  # null is refused later, with its row
    if vector is not None and len(vector) != (width := translator.source_dim):
        raise BadInput(f"{where} has {len(vector)} dimensions, but the translator reads {width}")


def digest_of(*parts: Any) -> str:
    """Return the sha256 of settings and tensors."""
    digest = hashlib.sha256()
    for part in parts:
        tensor = isinstance(part, Tensor)
        digest.update(part.contiguous().numpy().tobytes() if tensor else repr(part).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    stage.main(bulk)
