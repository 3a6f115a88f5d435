"""publish: register a translator (vectors -> vectors) or a trained encoder (texts -> vectors) as an MLflow
model.

    python -m pipelines.publish ROW [SEED]

ROW is a row of align or finetune, or <row>/<source>/<target> of align_jointly. Of several seeds, the one with
the best verdict is published. Metrics that dvc.lock ties to exactly this file are linked to the model.
Publishing is a command and no stage: stages never wait for a server, and people decide what to publish.
"""

import io
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pipelines import freeze_gc
from pipelines.aligners.core.translator import chosen_seed, load, verdicts_in
from pipelines.encoders.pooling import open_model
from pipelines.encoders.sources import digest_of_weights
from pipelines.runtime import files, intact, sender, store
from pipelines.runtime.errors import BadInput
from pipelines.study import Align, Finetune, Row, params
from pipelines.study.row import maker

PACKAGE = Path(__file__).parent
NEEDS = ("mlflow", "numpy", "safetensors", "torch", "tqdm")  # packages of a translator
ENCODER_NEEDS = (*NEEDS, "sentence-transformers", "transformers", "pydantic")
TEXTS = ["The meeting is moved to Thursday.", "A kettle of water boils in four minutes."]


@dataclass(frozen=True)
class Measured:
    """Metrics of exactly the file that is published."""

    by: str  # the row that measured
    metrics: dict[str, float]
    data: dict[str, str]  # the measured files, with their md5 in dvc.lock


@dataclass(frozen=True)
class Model:
    """What is registered, and what describes it."""

    log: Callable[..., Any]  # mlflow's function, with the model, its signature, example and requirements
    tags: dict[str, str]
    measured: list[Measured]


def publish(name: str, seed: int | None, study: params.Study) -> str:
    """Register the model of a row under the row's name, and link its metrics. Return a line that ends with
    its address.

    The version's alias is its verdict. Raises BadInput for an unknown row or seed, an untrained model,
    settings or inputs that have changed since its stage ran, or an MLflow server that does not answer.
    """
    row = params.find("params.yaml: align or finetune", name, study.finetune | study.translators())
    if name in study.finetune and name in study.align:
        raise BadInput("a row of finetune and one of align have this name; their models would be one")
    verb = "finetune" if isinstance(row, Finetune) else "align_jointly" if "/" in name else "align"
    stage = f"{verb}@{name.partition('/')[0]}"
    outdated = intact.outdated(study.stages())
    if stage in outdated:
        raise BadInput(f"{stage} ran with other settings or inputs: `dvc repro {stage}` first")
    # Libraries write to stderr; the command prints one line.
    with TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        if isinstance(row, Finetune):
            model = _encoder(name, row, seed, study)
        else:
            model = _translator(name, row, seed, study, outdated, Path(folder) / "translator")
        called = name.replace("/", "+")  # MLflow allows no slash, and a row's name has no plus
        try:
            number = _register(called, verb, row, model, study)
        except Exception as error:  # whatever a server, a proxy or a database raises
            raise BadInput(f"MLflow did not take it ({sender.reason(error)})") from error
    about = [f"{key} {model.tags[key]}" for key in ("seed", "verdict") if key in model.tags]
    by = ", ".join(measured.by for measured in model.measured)
    about.append(f"measured by {by}" if by else "not measured as it is now")
    return f"{called} version {number}: {', '.join(about)}: models:/{called}/{number}"


def _register(called: str, verb: str, row: Row, model: Model, study: params.Study) -> str:
    """Register a model and return the number of its version. Raises what MLflow raises."""
    import mlflow

    sender.client()  # creates the database's schema
    mlflow.set_tracking_uri(sender.tracking_uri())
    mlflow.set_experiment(verb)
    with mlflow.start_run(run_name=called, tags={"study": study.study}):
        settings = store.flat(row.model_dump(mode="json"), ".").items()
        # A model takes the params of its run.
        mlflow.log_params({key: value for key, value in settings if value is not None})
        logged = model.log(name=called, tags=model.tags, code_paths=[str(PACKAGE)])
        for measured in model.measured:
            # A run for each: two rows may measure the same data in two ways.
            with mlflow.start_run(run_name=measured.by, nested=True):
                data = [_dataset(path, md5) for path, md5 in measured.data.items()]
                for each in data:
                    mlflow.log_input(each, context="pairs")
                mlflow.log_metrics(measured.metrics, model_id=logged.model_id, dataset=data[0])
    # Last, so that a version is complete or does not exist
    number = mlflow.register_model(logged.model_uri, called, tags=model.tags).version
    if "verdict" in model.tags:
        mlflow.MlflowClient().set_registered_model_alias(called, model.tags["verdict"], number)
    return number


def _dataset(path: str, md5: str) -> Any:
    """Describe a file as `track` describes the inputs of a stage."""
    from mlflow.data.dataset_source_registry import resolve_dataset_source
    from mlflow.data.meta_dataset import MetaDataset

    return MetaDataset(resolve_dataset_source(path), name=Path(path).stem, digest=md5[:36])


def _about(example: Any, output: np.ndarray, packages: tuple[str, ...]) -> dict[str, Any]:
    """Describe a model to MLflow. example: vectors (n, d) or texts; output: (n, e)"""
    from mlflow.models import infer_signature

    # A local version, such as torch's 2.13.0+cpu, is in no registry.
    needs = [f"{package}=={version(package).split('+')[0]}" for package in packages]
    signature = infer_signature(example, output)
    return {"signature": signature, "input_example": example, "pip_requirements": needs}


def _read_by(stage: str) -> dict[str, str]:
    """Return the files and folders that a stage read when DVC last ran it, with their md5."""
    return {path: md5 for of, path, md5 in intact.locked("deps") if of == stage}


def _as_locked(*paths: Path) -> bool:
    """Return whether these files are those that DVC's last run of their stage wrote."""
    return all(path.exists() and intact.locked_md5(path) == intact.md5_of(path) for path in paths)


# ---------------------------------------------------------------- translators


def _translator(
    name: str, row: Align, seed: int | None, study: params.Study, outdated: list[str], copy: Path
) -> Model:
    """Describe the translator of one seed, as a copy of its files. Without a seed, take the best verdict."""
    import mlflow.pyfunc

    folder = intact.checked(store.translators_path(name))
    seed = chosen_seed(folder, seed)
    verdict = verdicts_in(folder)[seed]
    translator = load(folder / f"seed-{seed}")
    copy.mkdir()
    for suffix in (".json", ".safetensors"):
        shutil.copy(folder / f"seed-{seed}{suffix}", copy)
    # Random vectors: those of the study's texts may be private.
    example = np.random.default_rng(0).normal(size=(2, translator.source_dim)).astype(np.float32)
    fitted = study.align_jointly.get(name.partition("/")[0], row)  # a joint fit sees all spaces of its row
    private = study.private(*study.corpora_of(fitted))
    sha256 = files.digest(copy / f"seed-{seed}.safetensors")
    tags = {"seed": str(seed), "sha256": sha256, "private": str(private)}
    if verdict:  # an oracle's is empty
        tags["verdict"] = verdict["label"]
    about = _about(example, translator(example), NEEDS)
    served, artifacts = str(PACKAGE.parent / "scripts/served.py"), {"translator": str(copy)}
    log = partial(mlflow.pyfunc.log_model, python_model=served, artifacts=artifacts, **about)
    return Model(log, tags, list(_evaluated(name, seed, folder, study, outdated)))


def _evaluated(
    name: str, seed: int, folder: Path, study: params.Study, outdated: list[str]
) -> Iterator[Measured]:
    """Yield metrics of rows of `evaluate` that read exactly these files and kept their hub correction."""
    md5 = intact.md5_of(folder)
    for by, row in study.evaluate.items():
        read, results = _read_by(f"evaluate@{by}"), store.seeds_path(by)
        same = row.translator == name and row.hub_correction is None and read.get(str(folder)) == md5
        if same and _as_locked(results) and f"evaluate@{by}" not in outdated:
            [measures] = store.read_csv(results).filter(seed=seed).drop("seed").to_dicts()
            metrics = {f"translation/{key}": value for key, value in measures.items()}
            yield Measured(by, metrics, {path: md5 for path, md5 in read.items() if path.endswith(".arrow")})


# ---------------------------------------------------------------- encoders


def _encoder(name: str, row: Finetune, seed: int | None, study: params.Study) -> Model:
    """Describe a trained encoder, in MLflow's flavour for sentence-transformers, with metrics on its dev
    pairs.
    """
    from mlflow import sentence_transformers

    if seed is not None:
        raise BadInput("a row of finetune has one model: no seed")
    folder, results = intact.checked(store.trained_path(name)), store.metrics_path("finetune", name)
    if not folder.is_dir():
        raise BadInput(f"{folder}: no encoder there; `dvc repro` makes it")
    model = open_model(folder)
    about = _about(TEXTS, model.encode(TEXTS, show_progress_bar=False), ENCODER_NEEDS)
    log = partial(sentence_transformers.log_model, model, create_model_card=False, **about)
    measured, dev = [], str(store.corpus_path(row.dev))
    read = _read_by(f"finetune@{name}")
    if dev in read and _as_locked(folder, results):
        metrics = store.flat({"similarity/dev": store.metrics_of(results)["dev"]}, "/")
        measured = [Measured(name, metrics, {dev: read[dev]})]
    private = study.private(*_corpora(row, study))
    return Model(log, {"sha256": digest_of_weights(folder), "private": str(private)}, measured)


def _corpora(row: Finetune, study: params.Study) -> Iterator[str]:
    """Yield the corpora that an encoder was trained on: the row's, and those of the rows it starts from."""
    yield row.corpus
    table, start = maker(row.start)
    while table == "encoders":
        table, start = maker(study.encoders[start].path)
    if table == "finetune":
        yield from _corpora(study.finetune[start], study)


# ---------------------------------------------------------------- the command


def main(argv: list[str]) -> int:
    """Publish, and print one line. Bad input is one line on stderr, exit code 2."""
    freeze_gc()
    try:
        if {"-h", "--help"} & {*argv}:
            print(__doc__)
            return 0
        if not 1 <= len(argv) <= 2 or not all(map(str.isdecimal, argv[1:])):
            raise BadInput("usage: python -m pipelines.publish ROW [SEED]")
        print(publish(argv[0], next(map(int, argv[1:]), None), params.load()))
    except BadInput as error:
        print(f"{' '.join(['publish', *argv])}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
