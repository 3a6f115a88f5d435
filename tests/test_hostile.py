"""Files of an attacker are read, or refused in one line, in bounded memory and time."""

import json
import os
import random
import re
import shutil
import sys

import pytest

from tests.drills.inputs import bytes_changed
from tests.hostile import (
    FILES,
    LISTS,
    ROW,
    TEXTS,
    VECTORS,
    arrow,
    content,
    hnswlib,
    lines,
    np,
    png,
    table,
    vec0,
    written,
)
from tests.small import ROOT, completed

MEMORY = 2**29 + 2**28  # bytes; as many as the bombs unpack to
OUT_OF_MEMORY = "[Mm]emory(?!-mapped)|allocat"
READ = {  # odd, and nothing is wrong with them
    "dump-a quote.db",
    "dump-a # and a %41 in its name?", "dump-not UTF-8.jsonl", "texts-names",
    "texts-names twice.csv", "texts-labels of structs.parquet", "mail-less deep",
    "mail-addresses", "mail-names", "mail-headers",
}  # fmt: skip
WHOLE = {
    "dump-a.npz": lambda p: np.savez_compressed(p, vectors=VECTORS),
    "dump-a.npy": lambda p: np.save(p, VECTORS),
    "dump-a.jsonl": lines(*LISTS),
    "dump-a.parquet": table(vector=VECTORS.tolist()),
    "dump-a.arrow": arrow(vector=VECTORS.tolist()),
    "dump-a.db": vec0,
    "dump-a.bin": content(hnswlib(VECTORS)),
    "dump-a.csv": lambda p: np.savetxt(p, VECTORS, delimiter=","),
    "vectors-a.parquet": table(id=[str(i) for i in range(40)], vector=VECTORS.tolist()),
    "texts-a.parquet": table(id=[str(i) for i in range(40)], text=TEXTS),
    "texts-a.csv": lines("id,text", *(f"{i},{text}" for i, text in enumerate(TEXTS))),
    "texts-a.jsonl": lines(*(ROW % (i, i) for i in range(9))),
    "mail-a.mbox": content(b"From a@b Thu Jan  1 00:00:00 2026\nSubject: x\n\nbody\n\n"),
    "images-a.parquet": table(image=[png(4, 4)], text=["a"]),
}


def read_apart(folder):
    """Read the files of a folder in a process with little memory. -> the line of each"""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.hostile", folder.resolve(), str(MEMORY)]
    env = os.environ | {
        "OMP_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "POLARS_MAX_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",  # an arena of a thread is 64 MB of addresses
    }
    done = completed(*command, cwd=ROOT, env=env, timeout=500)
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


def damage(folder, count, rng):
    """Add whole files in which a few bytes are changed."""
    for number in range(count):
        name = rng.choice(sorted(WHOLE))
        path = folder / f"{name.partition('-')[0]}-{number:05}{name[name.index('.') :]}"
        WHOLE[name](path)
        path.write_bytes(bytes_changed(path.read_bytes(), rng))


def fault(line):
    return line if line.startswith("!") or "\n" in line or re.search(OUT_OF_MEMORY, line) else ""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on memory, and names of any bytes")
def test_hostile_and_damaged_files_get_one_line_and_little_memory(tmp_path):
    """`python -m tests.drills hostile` reads hundreds of damaged files."""
    folder = written(tmp_path / "files", FILES | WHOLE)
    damage(folder, 60, random.Random(0))
    names = {path.name for path in folder.iterdir()}
    said = read_apart(folder)
    assert said.keys() == names == {path.name for path in folder.iterdir()}  # no stray file of a database
    assert not {name: line for name, line in said.items() if fault(line)}
    assert {name for name in FILES | WHOLE if not said[name]} == READ | set(WHOLE)
    shutil.rmtree(folder)
