"""Move an index from wordllama to MiniLM by the command `migrate`, and search it.

The texts are docstrings of the installed packages: 2,000 are the index, 2,000 others are embedded by the new
encoder, and 200 by both. It writes into the current folder: python examples/move_an_index.py
"""

import numpy as np
import polars as pl

from pipelines.tool import encoders
from pipelines.tool.__main__ import main as universal_geometry

INDEX, OTHERS, KNOWN = 2000, 2000, 200


def main() -> None:
    """Write old.parquet and new.npy, make moved.parquet from them, and search it."""
    old, new = encoders.opened("wordllama"), encoders.opened("minilm")
    texts = encoders.drawn(encoders.texts_of(None), INDEX + OTHERS, seed=0)

    # 1. The index, by the old encoder; the first 200 of its texts and 2,000 others, by the new one.
    index = pl.DataFrame({"text": texts[:INDEX], "vector": old(texts[:INDEX]).numpy()})
    index.write_parquet("old.parquet")
    np.save("new.npy", new(texts[:KNOWN] + texts[INDEX:]).numpy())

    # 2. Move it. Known pairs are optional: they also measure the map. If it is wrong, nothing is moved.
    files = f"old.parquet new.npy --pairs {KNOWN} --out moved.parquet"
    if code := universal_geometry(f"migrate {files}".split()):
        raise SystemExit(code)

    # 3. Search the moved index with a query by the new encoder.
    moved = pl.read_parquet("moved.parquet")
    query = new(["open a file and read its lines"]).numpy()[0]
    best = np.argsort(-moved["vector"].to_numpy() @ query)[:3].tolist()
    print(*("found: " + moved["text"][row][:90] for row in best), sep="\n")


if __name__ == "__main__":
    main()
