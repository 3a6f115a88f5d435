"""Files of an attacker are read, or refused in one line, in bounded memory and time."""

import contextlib
import io
import json
import random
import re
import shutil
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.drills.inputs import bytes_changed
from tests.hostile import FILES, ROW, TEXTS, VECTORS, arrow, content, lines, np, png, read, table, written
from tests.small import ROOT, completed
from tests.test_audit import WRITERS

MEMORY = 2**29 + 2**28  # bytes; as many as the bombs unpack to
OUT_OF_MEMORY = "[Mm]emory(?!-mapped)|allocat"
READ = {  # odd, and nothing is wrong with them
    "dump-a quote.db",
    "dump-a # and a %41 in its name?", "dump-not UTF-8.jsonl", "texts-names",
    "texts-names twice.csv", "texts-labels of structs.parquet", "mail-less deep",
    "mail-addresses", "mail-names", "mail-headers",
}  # fmt: skip
WHOLE = {f"dump-{name}": write for name, write in WRITERS.items()} | {
    "dump-a.npz": lambda p: np.savez_compressed(p, vectors=VECTORS),
    "dump-a.npy": lambda p: np.save(p, VECTORS),
    "dump-a.parquet": table(vector=VECTORS.tolist()),
    "dump-a.arrow": arrow(vector=VECTORS.tolist()),
    "vectors-a.parquet": table(id=[str(i) for i in range(40)], vector=VECTORS.tolist()),
    "texts-a.parquet": table(id=[str(i) for i in range(40)], text=TEXTS),
    "texts-a.csv": lines("id,text", *(f"{i},{text}" for i, text in enumerate(TEXTS))),
    "texts-a.jsonl": lines(*(ROW % (i, i) for i in range(9))),
    "mail-a.mbox": content(b"From a@b Thu Jan  1 00:00:00 2026\nSubject: x\n\nbody\n\n"),
    "images-a.parquet": table(image=[png(4, 4)], text=["a"]),
}


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on memory, and names of any bytes")
def test_hostile_files_get_one_line_and_little_memory(tmp_path):
    folder = written(tmp_path / "files", FILES)
    command = ["python", "-X", "faulthandler", "-m", "tests.hostile", folder, str(MEMORY)]
    env = {
        "OMP_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "POLARS_MAX_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",  # an arena of a thread is 64 MB of addresses
    }
    done = completed(*command, cwd=ROOT, env=env, timeout=500)
    said = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert set(said) == set(FILES)
    assert not {name: line for name, line in said.items() if line.startswith("!") or "\n" in line}
    assert not {name: line for name, line in said.items() if re.search(OUT_OF_MEMORY, line)}
    assert {name for name, line in said.items() if not line} == READ
    assert {path.name for path in folder.iterdir()} == set(FILES)  # and no stray file of a database
    shutil.rmtree(folder)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(WHOLE)), st.integers(0, 2**32))
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path_factory, name, seed):
    """`python -m tests.drills hostile` reads hundreds of them."""
    path = tmp_path_factory.mktemp("damaged") / name
    WHOLE[name](path)
    path.write_bytes(bytes_changed(path.read_bytes(), random.Random(seed)))
    with contextlib.redirect_stdout(io.StringIO()):
        said = read(path)
    shutil.rmtree(path.parent)
    assert not said.startswith("!")
    assert "\n" not in said


def test_whole_files_are_read(tmp_path):
    folder = written(tmp_path / "files", WHOLE)
    assert {path.name: read(path) for path in folder.iterdir()} == dict.fromkeys(WHOLE, "")
