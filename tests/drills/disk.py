"""The drill of a full disk."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

from tests.drills.places import free_port, inside, running
from tests.small import completed

WRITERS = [  # what writes, where, and by which stage
    ("parquet", "data/corpora", "collect@synthetic-passages"),
    ("arrow", "data/embeddings", "embed@synthetic-passages-wordllama"),
    ("json of metrics", "results/collect", "collect@synthetic-tweets"),
    ("csv", "results/evaluate", "evaluate@wasserstein"),
    ("folder of translators", "data/translators", "align@wasserstein"),
    ("folder of an encoder", "data/encoders", "fetch@minilm"),
    ("folder of an inverter", "data/inverters", "train_inverter@synthetic-passages"),
    ("checkpoint of a training", ".cache/work", "finetune@simcse"),
    ("image-text checkpoint", "data/image_text", "train_image_text@scenes"),
    ("png", "report/pictures", "report"),
    ("html", "report", "report"),
    ("record of a run", ".cache/runs", "embed@synthetic-tweets-wordllama"),
    ("MLflow store", "mlflow", "embed@synthetic-tweets-wordllama"),
    ("spool", ".cache/mlflow", "embed@synthetic-tweets-wordllama"),
    ("DVC's cache", ".dvc/cache", "fetch@minilm"),
    ("log", "", "report"),
]


@contextmanager
def small_disk(folder, left, keep=True):
    """Put a folder on a file system of its own with `left` bytes free; afterwards put it back."""
    folder.mkdir(parents=True, exist_ok=True)
    content = folder.with_name(f"{folder.name}-content")
    shutil.copytree(folder, content) if keep else content.mkdir()
    used = sum(p.stat().st_size for p in content.rglob("*") if p.is_file())
    completed("mount", "-t", "tmpfs", "-o", f"size={used + left + 2**22}", "drill", folder)
    try:
        shutil.copytree(content, folder, dirs_exist_ok=True)
        free = shutil.disk_usage(folder).free
        with open(filler := folder / ".filler", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - left)
        yield
        filler.unlink()
        shutil.rmtree(content)
        shutil.copytree(folder, content)
    finally:
        completed("umount", folder)
    shutil.copytree(content, folder, dirs_exist_ok=True)
    shutil.rmtree(content)


def full(place, kind, folder, stage, left):
    """One writer on a full disk, then with space: what did not hold."""
    verb, *row = stage.split("@")
    command = mended = ["python", "-m", f"pipelines.{verb}", *row]
    variables = {}
    match kind:
        case "MLflow store":
            variables["MLFLOW_TRACKING_URI"] = f"sqlite:///{place.root}/mlflow/mlflow.db"
            Path("mlflow").mkdir()
            shutil.copy(place.reference / "mlflow.db", "mlflow")
        case "spool":
            variables["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{free_port()}"
        case "DVC's cache":
            mended = ["dvc", "repro", "--quiet"]
            command = [*mended, "--force", "--single-item", stage]
    if kind == "log":
        done = running(["sh", "-c", 'exec "$@" > /dev/full', "sh", *command])
    else:
        with small_disk(Path(folder), left, keep=kind not in ("DVC's cache", "record of a run")):
            done = running(command, **variables)
    drafts = [path for path in place.drafts() if path.endswith(".part")]  # .cache/work is to continue from
    lines, ended = done.lines, f"exit code {done.code}: {done.lines}"
    if kind in ("record of a run", "MLflow store", "spool"):  # the stage's outputs are whole all the same
        whole = done.code == 0 and len(lines) <= 2 and not place.differing()
        fault = "" if whole else f"{len(lines)} lines, {ended}"
    elif kind == "DVC's cache":
        fault = "" if done.code not in (0, None) and "Traceback" not in done.err else ended
    else:
        other = "" if "no space left" in done.err else f"another line: {lines}"
        fault = done.fault(lambda: ["it ended well"]) or other
    again = running(mended)
    then = again.fault(place.differing) or (f"not mended: {again.err.strip()[-150:]}" if again.code else "")
    drafts += place.drafts()
    return fault or (f"a draft is left: {drafts[0]}" if drafts else "") or then


def disk(place, count, rng, tally):
    """Give each writer too little space: one line, no draft left, and with space the reference's bytes."""
    for kind, folder, stage in WRITERS[:count]:
        outs = [
            place.reference / out["path"]
            for out in place.stages[stage]["outs"]
            if out["path"].startswith(folder or "-")
        ]
        sizes = [
            (out / inner).stat().st_size for out in outs for inner in inside(out)
        ]  # files may be replaced one by one
        left = rng.randrange(-(-max(sizes, default=1) // 4096)) * 4096
        tally.add(f"{kind}, {left} bytes left", full(place, kind, folder, stage, left))
        place.restore()
