"""Files of an attacker are read, or refused in one line, in bounded memory and time."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile import (
    FILES,
    LISTS,
    ROW,
    TEXTS,
    VECTORS,
    arrow,
    chroma,
    content,
    lines,
    np,
    png,
    read,
    table,
    tar,
)

ROOT = Path(__file__).parents[1]
MEMORY = 2**29 + 2**28  # bytes; as many as the bombs unpack to
READ = {  # odd, and nothing is wrong with them
    "dump-a # in its name?", "dump-a % 41 in its name", "dump-not UTF-8.jsonl", "texts-names",
    "texts-names twice.csv", "texts-labels of structs.parquet", "mail-less deep", "mail-tags",
    "mail-addresses", "mail-names", "mail-headers", "images-class.tar",
}  # fmt: skip
WHOLE = {
    "dump-a.npz": lambda p: np.savez_compressed(p, vectors=VECTORS),
    "dump-a.npy": lambda p: np.save(p, VECTORS),
    "dump-a.jsonl": lines(*LISTS),
    "dump-a.parquet": table(vector=VECTORS.tolist()),
    "dump-a.arrow": arrow(vector=VECTORS.tolist()),
    "vectors-a.npz": lambda p: np.savez(p, vectors=VECTORS),
    "vectors-a.parquet": table(id=[str(i) for i in range(40)], vector=VECTORS.tolist()),
    "vectors-a.arrow": arrow(vector=VECTORS.tolist()),
    "texts-a.parquet": table(id=[str(i) for i in range(40)], text=TEXTS),
    "texts-a.csv": lines("id,text", *(f"{i},{text}" for i, text in enumerate(TEXTS))),
    "texts-a.jsonl": lines(*(ROW % (i, i) for i in range(9))),
    "mail-a.mbox": content(b"From a@b Thu Jan  1 00:00:00 2026\nSubject: x\n\nbody\n\n"),
    "images-a.tar": tar(("a.png", png(4, 4)), ("a.txt", b"a")),
}


def written(folder: Path, names) -> Path:
    folder.mkdir()
    for name, write in names.items():
        with contextlib.suppress(UnicodeEncodeError):
            write(folder / name)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on memory, and names of any bytes")
def test_every_hostile_file_is_read_or_refused_in_one_line_and_in_little_memory(tmp_path):
    folder = written(tmp_path / "files", FILES)
    assert len(FILES) >= 60
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "tests.hostile",
        str(folder),
        str(MEMORY),
    ]  # a crash says where
    env = os.environ | {
        "OMP_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "POLARS_MAX_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",  # an arena of a thread is 64 MB of addresses
    }
    done = subprocess.run(command, cwd=ROOT, capture_output=True, env=env, check=False, timeout=500)
    said = dict(json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("["))
    assert done.returncode == 0, (list(said)[-1:], done.stderr[-500:])
    assert set(said) == set(FILES)
    assert not {name: line for name, line in said.items() if line.startswith("!") or "\n" in line}
    assert not {name: line for name, line in said.items() if "emory" in line or "allocat" in line}
    assert {name for name, line in said.items() if not line} == READ
    assert not [
        path for path in tmp_path.rglob("*") if path.parent == tmp_path and path != folder
    ]  # nor a stray file
    shutil.rmtree(folder)


def mutated(whole: bytes, data) -> bytes:
    """Some damage, somewhere: a few bytes are others, a piece is gone, comes twice, or is of one byte."""
    out = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = (
            data.draw(st.integers(0, max(len(out) - 1, 0))),
            data.draw(st.sampled_from([1, 2, 4, 8, 64])),
        )
        match data.draw(st.sampled_from(["other", "gone", "twice", "byte", "cut"])):
            case "other":
                out[at : at + length] = data.draw(st.binary(min_size=1, max_size=8))
            case "gone":
                del out[at : at + length]
            case "twice":
                out[at:at] = out[at : at + length]
            case "byte":
                out[at : at + length] = bytes([data.draw(st.sampled_from([0, 0x7F, 0x80, 0xFF]))]) * length
            case "cut":
                del out[at:]
    return bytes(out)


def check_mutated(tmp_path_factory, data) -> None:
    name = data.draw(st.sampled_from(sorted(WHOLE)))
    folder = tmp_path_factory.mktemp("mutated")
    WHOLE[name](folder / name)
    (folder / name).write_bytes(mutated((folder / name).read_bytes(), data))
    with contextlib.redirect_stdout(io.StringIO()):
        said = read(folder / name)
    shutil.rmtree(folder)
    assert not said.startswith("!")
    assert "\n" not in said


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_mutated_file_is_read_or_refused_in_one_line(tmp_path_factory, data):
    check_mutated(tmp_path_factory, data)


@pytest.mark.slow
@settings(max_examples=800, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_many_mutated_files_are_read_or_refused_in_one_line(tmp_path_factory, data):
    check_mutated(tmp_path_factory, data)


def test_whole_files_are_read(tmp_path):
    folder = written(tmp_path / "files", WHOLE)
    assert {path.name: read(path) for path in folder.iterdir()} == dict.fromkeys(WHOLE, "")


def test_a_chroma_folder_of_any_name_leaves_no_stray_file(tmp_path):
    chroma(tmp_path / "dump-a#b?c")
    assert read(tmp_path / "dump-a#b?c") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["dump-a#b?c"]
