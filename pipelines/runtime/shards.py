"""Parquet shards in, Parquet shards of the same names out: a plain loop over files, or Ray Data with a pool of actors.

A shard is done when its output is there, was made in the same way (`Job.made_from` and the input's size are in its footer),
and is not older than its input. So a run that was killed, or that was given more shards, does what is left. An output appears
in one rename.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import atomic


@dataclass(frozen=True)
class Job:
    """What is done to each shard. It travels to the workers: paths are absolute, and `make` can be pickled."""

    make: Callable[[], Callable[[Any], pa.Table]]  # called once in each worker
    folder: Path  # of the outputs
    made_from: str  # a digest of all that the outputs depend on but the shards
    batch: int  # rows that the function is given at once


@dataclass(frozen=True)
class Done:
    """What became of a shard: the rows that were written, or why none were."""

    shard: str
    rows: int
    fault: str


def listed(path: Path) -> list[Path]:
    """The Parquet files of a folder, by name, or the one file; absolute. Raises BadInput where there is none."""
    if not path.exists():
        raise BadInput(f"{path}: there is no such file or folder")
    shards = sorted(path.resolve().glob("*.parquet")) if path.is_dir() else [path.resolve()]
    if not shards:
        raise BadInput(f"{path}: there is no file *.parquet in it")
    return shards


def done(shard: Path, job: Job) -> bool:
    """Whether nothing is left to do for a shard."""
    output = job.folder / shard.name
    if not output.is_file() or output.stat().st_mtime_ns < shard.stat().st_mtime_ns:
        return False
    return (pq.read_metadata(output).metadata or {}).get(b"made_from") == _made_from(shard, job).encode()


def loop(job: Job, shards: Sequence[Path]) -> Iterator[Done]:
    """One shard after the other, in this process. Another shard's fault stops nothing."""
    worker = Worker(job)
    yield from (worker.do(str(shard)) for shard in shards)


def on_ray(
    job: Job, shards: Sequence[Path], address: str | None, workers: int, cpus: int, gpus: float | None
) -> Iterator[Done]:
    """At most `workers` actors, each with its cores and GPUs; a shard whose worker dies is done again by another.

    address: of a cluster; None: the variable RAY_ADDRESS, else one on this machine that ends with this call. gpus: None: one
    where the cluster has any. Shards, outputs and encoders must have the same path on all machines. Raises BadInput without Ray
    or a cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray  # pyright: ignore[reportMissingImports] - the extra is on few machines
        import ray.data  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise BadInput("engine: ray is not installed: pip install -c constraints.txt -e '.[ray]'") from None
    code = {
        "py_modules": [str(Path(__file__).parents[1])]
    }  # workers run this package, not one that is installed there
    try:
        ray.init(address=address, runtime_env=code, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = address or os.environ.get("RAY_ADDRESS") or "this machine"
        raise BadInput(f"ray: no cluster at {where}: {str(error).strip().splitlines()[0]}") from None
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        gpus = float("GPU" in ray.cluster_resources()) if gpus is None else gpus
        names = ray.data.from_items(
            [{"shard": str(shard)} for shard in shards], override_num_blocks=len(shards)
        )
        pool = ray.data.ActorPoolStrategy(min_size=1, max_size=workers)
        options: dict[str, Any] = {
            "num_cpus": cpus,
            "num_gpus": gpus,
            "compute": pool,
            "fn_constructor_args": (job,),
        }
        finished = names.map_batches(Worker, batch_size=1, batch_format="pyarrow", **options)
        yield from (Done(**row) for row in finished.iter_rows())
    finally:
        ray.shutdown()


class Worker:
    """Does shards. As an actor it gets a table of their names and returns one of what became of them."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @cached_property
    def function(self) -> Callable[[Any], pa.Table]:
        return self.job.make()

    def __call__(self, names: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([vars(self.do(shard)) for shard in names["shard"].to_pylist()])

    def do(self, shard: str) -> Done:
        """A shard that is done already (by a worker that died thereafter) is not done again."""
        path = Path(shard)
        try:
            if not done(path, self.job):
                _write(self.function, path, self.job)
            return Done(shard, pq.read_metadata(self.job.folder / path.name).num_rows, "")
        except (BadInput, pa.ArrowInvalid, OSError) as error:
            return Done(shard, 0, f"{path}: {' '.join(str(error).split())}")


def _write(function: Callable[[Any], pa.Table], shard: Path, job: Job) -> None:
    output = job.folder / shard.name
    # A draft of this process: a cluster that loses sight of a worker may have another do the shard while the first still writes.
    mine = output.with_name(f".{socket.gethostname()}-{os.getpid()}-{output.name}")
    with atomic(mine) as draft, pq.ParquetFile(shard) as file:
        batches = (
            file.iter_batches(job.batch) if file.metadata.num_rows else [file.schema_arrow.empty_table()]
        )
        tables = (function(batch) for batch in batches)
        first = next(tables)
        with pq.ParquetWriter(
            draft, first.schema, compression="zstd", use_dictionary=_texts(first.schema)
        ) as writer:  # pyright: ignore[reportArgumentType]
            writer.add_key_value_metadata({"made_from": _made_from(shard, job)})
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)
    mine.replace(output)


def _texts(schema: pa.Schema) -> list[str]:
    """Columns worth a dictionary: no vectors."""
    return [field.name for field in schema if pa.types.is_string(field.type)]


def _made_from(shard: Path, job: Job) -> str:
    return f"{job.made_from} {shard.stat().st_size}"
