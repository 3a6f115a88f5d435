"""Audit a dump of vectors: what they give away to an owner of another encoder, and what a defence leaves.

The dump is made here: USE's vectors of docstrings. The audit sees the vectors alone, and other docstrings.
It writes into the current folder: python examples/audit_a_dump.py
"""

from pathlib import Path

import numpy as np

from pipelines.tool import encoders
from pipelines.tool.__main__ import main as universal_geometry

DUMP, KNOWN = 3000, 3000


def main() -> None:
    """Write dump.npy and known.txt, audit the dump with one encoder and one defence, and list the pages."""
    texts = encoders.drawn(encoders.texts_of(None), DUMP + KNOWN, seed=0)
    np.save("dump.npy", encoders.opened("use")(texts[:DUMP]).numpy())
    Path("known.txt").write_text("\n\n".join(texts[DUMP:]), encoding="utf-8")

    # A gate makes the exit code 3: the verdict of an attack may be `doubtful` at most.
    Path("targets.yaml").write_text("verdict: doubtful\n", encoding="utf-8")
    options = "--encoders wordllama --known 3000 --gate targets.yaml --out ."
    code = universal_geometry(
        ["audit", "dump.npy", "--texts", "known.txt", "--defences", "cells 64", *options.split()]
    )
    print(f"exit code {code}; pages: {', '.join(sorted(page.suffix for page in Path().glob('dump-*.*')))}")


if __name__ == "__main__":
    main()
