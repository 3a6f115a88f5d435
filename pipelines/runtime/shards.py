"""Parquet shards in, Parquet shards of the same names out: a plain loop over files, or actors of Ray Data.

A shard is done if its output exists, its input was not changed or put there later, and its footer has the
job's `made_from` and the input's size. So a run that was killed, or that got more shards, does what is left.
Outputs appear in one rename.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.runtime.errors import BadInput, message
from pipelines.runtime.files import atomic, stamp


@dataclass(frozen=True)
class Job:
    """What is done to each shard. Workers receive it: paths are absolute, and `make` can be pickled."""

    make: Callable[[], Callable[[Any], pa.Table]]  # called once in each worker
    folder: Path  # of the outputs
    made_from: str  # a digest of the row, the model and the code
    batch: int  # rows that the function is given at once


@dataclass(frozen=True)
class Done:
    """The rows of a shard that were written, or why none were."""

    shard: str
    rows: int
    fault: str


def listed(path: Path) -> list[Path]:
    """Return the absolute paths of a folder's Parquet files, or of one file. `_x` and `.x` are no data.

    Raises BadInput for none, and for one in a subfolder: outputs are named by the file alone.
    """
    if not path.exists():
        raise BadInput(f"{path}: there is no such file or folder")
    shards = sorted(path.resolve().glob("[!._]*.parquet")) if path.is_dir() else [path.resolve()]
    below = (shard.relative_to(path) for shard in sorted(path.glob("*/**/*.parquet")))
    if nested := next((place for place in below if place.parts[0][0] not in "._"), None):
        raise BadInput(f"{path}: {nested} is in a subfolder: move it up, or name the subfolder")
    if not shards:
        raise BadInput(f"{path}: there is no file *.parquet in it")
    return shards


def done(shard: Path, job: Job) -> bool:
    """Return whether a shard is done."""
    output = job.folder / shard.name
    put = shard.stat()  # a file that was moved or copied here may have an old time of change, but a new ctime
    if not output.is_file() or output.stat().st_mtime_ns < max(put.st_mtime_ns, put.st_ctime_ns):
        return False
    try:
        written = pq.read_metadata(output).metadata or {}
    except (pa.ArrowInvalid, OSError):  # a damaged output is made again
        return False
    return written.get(b"made_from") == _made_from(shard, job).encode()


def loop(job: Job, shards: Sequence[Path]) -> Iterator[Done]:
    """Do one shard after the other in this process. A faulty shard does not stop the others."""
    return map(Worker(job).do, map(str, shards))


def on_ray(job: Job, shards: Sequence[Path], address: str | None, workers: int) -> Iterator[Done]:
    """Do shards on at most `workers` actors. Each has a core, and a GPU if the cluster has any.

    A dead one's shard is repeated. address: of a cluster; None: RAY_ADDRESS, else a cluster of this machine
    that ends with this call. Shards, outputs and encoders must have the same path on all machines.
    Raises BadInput without Ray or a cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray  # pyright: ignore[reportMissingImports] - the extra is on few machines
        import ray.data  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise BadInput("engine: ray is not installed: pip install -c constraints.txt -e '.[ray]'") from None
    code = {"py_modules": [str(Path(__file__).parents[1])]}  # workers run this package, not an installed one
    try:
        ray.init(address=address, runtime_env=code, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = address or os.environ.get("RAY_ADDRESS") or "this machine"
        raise BadInput(f"ray: no cluster at {where}: {message(error)}") from None
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        names = ray.data.from_items(
            [{"shard": str(shard)} for shard in shards], override_num_blocks=len(shards)
        )
        finished = names.map_batches(
            Worker,
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=1,
            num_gpus=int("GPU" in ray.cluster_resources()),
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
            fn_constructor_args=(job,),
        )
        yield from (Done(**row) for row in finished.iter_rows())
    finally:
        ray.shutdown()


@dataclass
class Worker:
    """Does shards. As an actor it takes a table of their names and returns a table of `Done`."""

    job: Job

    @cached_property
    def function(self) -> Callable[[Any], pa.Table]:
        return self.job.make()

    def __call__(self, names: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([vars(self.do(shard)) for shard in names["shard"].to_pylist()])

    def do(self, shard: str) -> Done:
        """Do a shard unless it is done, for example by a worker that died later."""
        path = Path(shard)
        try:
            if not done(path, self.job):
                _write(self.function, path, self.job)
            return Done(shard, pq.read_metadata(self.job.folder / path.name).num_rows, "")
        except (BadInput, pa.ArrowException, OSError, KeyError) as error:
            return Done(shard, 0, f"{path}: {message(error)}")


def _write(function: Callable[[Any], pa.Table], shard: Path, job: Job) -> None:
    output, before = job.folder / shard.name, stamp(shard)
    # Each process has its draft: a cluster that loses sight of a worker may repeat a shard that is still
    # being written.
    with pq.ParquetFile(shard) as file, atomic(output) as draft:
        empty = [file.schema_arrow.empty_table()]
        tables = _made(function, file.iter_batches(job.batch) if file.metadata.num_rows else empty)
        first = next(tables)
        # Dictionaries compress texts, but not vectors. Any: Arrow's stubs allow no list
        texts: Any = [field.name for field in first.schema if pa.types.is_string(field.type)]
        with pq.ParquetWriter(draft, first.schema, compression="zstd", use_dictionary=texts) as writer:
            writer.add_key_value_metadata({"made_from": _made_from(shard, job)})
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)
        if stamp(shard) != before:
            raise BadInput("it changed while it was read: the next run does it again")


def _made(function: Callable[[Any], pa.Table], batches: Iterable[Any]) -> Iterator[pa.Table]:
    """Yield what the function makes of each batch. Raises its BadInput, with the first row of the batch."""
    start = 0
    for batch in batches:
        try:
            yield function(batch)
        except BadInput as error:
            raise BadInput(f"{error} (counted from row {start})" if start else str(error)) from None
        start += len(batch)


def _made_from(shard: Path, job: Job) -> str:
    return f"{job.made_from} {shard.stat().st_size}"
