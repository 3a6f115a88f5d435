"""Drills of what a stage is given: studies, and files that other people made."""

import json
import os
import re
import shutil
import signal
from copy import deepcopy
from pathlib import Path

import yaml

from tests.drills.places import running

# Seconds (SIGXCPU, later SIGKILL) and bytes of a stage, its imports included
LIMITED = ["prlimit", "--cpu=40:60", f"--as={12 * 2**30}"]
VALUES = yaml.safe_load("""
[null, "", abc, "a\\nb", -1, 0, 1, 2, 3, 7, 64, 1000, -0.5, 0.1, 0.5, 1.5, 1.0e-9, .inf, .nan, true, false,
 [], {}, [1, 1], [0, 1], [a], {a: 1}, auto, fp32, train, test]
""")
VALUES += ["x" * 300, 10**30]


def places(tree, path=()):
    """Every value of a tree of mappings and lists, with the keys that lead to it."""
    if path:
        yield path, tree
    for key, value in (
        tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    ):
        yield from places(value, (*path, key))


def mutated(study, rng):
    """Another study: where, what, to which value, and its text."""
    changed = deepcopy(study)
    where, _ = rng.choice(spots := list(places(changed)))
    parent, last = changed, where[-1]
    for key in where[:-1]:
        parent = parent[key]
    value = deepcopy(rng.choice(spots)[1] if rng.random() < 0.3 else rng.choice(VALUES))
    change = rng.choice(["replace", "replace", "remove", "add"])
    if change == "remove":
        del parent[last]
    elif change == "add" and isinstance(parent, dict):
        parent["another"] = value
    else:
        parent[last] = value
    return where, change, value, yaml.safe_dump(changed)


def studies(place, count, rng, tally):
    """Change a study at one random place; of 100 studies that are accepted, run the changed row's stage."""
    from pipelines.runtime.errors import BadInput
    from pipelines.study import params

    path = Path("params.yaml")
    smoke, before, accepted = yaml.safe_load(path.read_text()), params.load(), {}
    for _ in range(count):
        where, change, value, text = mutated(smoke, rng)
        path.write_text(text)
        what, fault = f"{'.'.join(map(str, where))} {change} {value!r:.60}", ""
        try:
            if params.load() != before:
                accepted[text] = (where, what)
        except BadInput as error:
            fault = "" if len(str(error).splitlines()) == 1 else f"lines: {error}"
        except Exception as error:
            fault = f"traceback: {error!r:.150}"
        tally.add(what, fault)
    verbs = {table: verb for verb, table in params.Study.table_by_verb().items()}
    some = rng.sample(sorted(accepted), min(100, len(accepted)))
    codes = []
    for text in some:
        where, what = accepted[text]
        path.write_text(text)
        verb, rows = verbs.get(str(where[0]), "report"), list(yaml.safe_load(text).get(where[0], ()) or ())
        row = where[1] if len(where) > 1 and where[1] in rows else rows[0] if rows else ""
        stage = [f"pipelines.{verb}", *([row] if row and verb != "report" else [])]
        done = running([*LIMITED, "python", "-m", *stage])
        codes.append(done.code)
        tally.add(f"{' '.join(stage)} with {what}", "" if done.code == -signal.SIGXCPU else done.fault(list))
        place.restore()
    tally.notes.append(
        f"{len(accepted)} changed studies were accepted; the changed row's stage ran for {len(codes)} of them"
    )
    ended = f"{codes.count(0)} ended well, {codes.count(2)} with one line"
    tally.notes.append(f"{ended}, {codes.count(-signal.SIGXCPU)} were stopped after 40 s of CPU time")


def bytes_changed(whole, rng):
    """A few pieces of other bytes, of one byte, gone, twice, or an end that is missing."""
    out = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(out) + 1), rng.choice([1, 2, 4, 8, 64])
        piece = bytes(out[at : at + length])
        new = rng.choice(
            [rng.randbytes(length), bytes([rng.choice([0, 127, 128, 255])]) * length, b"", piece * 2]
        )
        out[at : at + length] = new
        if rng.random() < 0.1:
            del out[at:]
    return bytes(out)


def hostile(place, count, rng, tally):
    """Read hostile files in a process with 768 MiB more than its imports take, 60 s a file."""
    from tests.hostile import FILES, written
    from tests.test_hostile import MEMORY, OUT_OF_MEMORY, WHOLE

    folder = written(Path("hostile"), FILES)
    damaged = max(0, count - len(FILES))
    for n in range(damaged):
        name = rng.choice(sorted(WHOLE))
        reader, suffix = name.split("-")[0], Path(name).suffix
        WHOLE[name](path := folder / f"{reader}-{n:05}{suffix}")
        path.write_bytes(bytes_changed(path.read_bytes(), rng))
    left = sorted(folder.iterdir())
    os.environ |= {"ARROW_DEFAULT_MEMORY_POOL": "system", "POLARS_MAX_THREADS": "1"}
    while left:
        (batch := Path("batch")).mkdir()
        taken, left = left[:40], left[40:]
        for path in taken:
            path.rename(batch / path.name)
        done = running(["python", "-m", "tests.hostile", str(batch), str(MEMORY)], limit=60 * len(taken))
        said = dict(json.loads(line) for line in done.out.splitlines() if line.startswith("["))
        for path in taken:
            line = said.get(path.name, f"! {'hangs' if done.code is None else 'the process died'}")
            memory = "memory: " if re.search(OUT_OF_MEMORY, line) else ""
            tally.add(
                path.name.encode(errors="replace").decode(),
                memory or (line if line[:1] == "!" or "\n" in line else ""),
            )
        shutil.rmtree(batch)
    if (folder / "code-was-run").exists():
        tally.faults["code was run"] += 1
    tally.notes.append(f"{tally.tried - damaged} by construction, the others damaged at random")
