"""Translate wordllama's vectors into MiniLM's space without a single pair, and search with them.

The texts are docstrings of the installed packages: 3,000 by one encoder, 3,000 others by the other one. It
takes some five minutes on two cores: python examples/align_two_arrays.py
"""

import numpy as np

from pipelines import fit
from pipelines.tool import encoders

SIDE, HELD_OUT = 3000, 500


def main() -> None:
    """Fit on different texts, print the verdict, then measure on texts that were in neither side."""
    first, second = encoders.opened("wordllama"), encoders.opened("minilm")
    texts = encoders.drawn(encoders.texts_of(None), 2 * SIDE + HELD_OUT, seed=0)
    held_out = texts[2 * SIDE :]

    # 1. No text is on both sides.
    source, target = first(texts[:SIDE]), second(texts[SIDE : 2 * SIDE])
    translator, verdict = fit(source, target, restarts=0)
    print(verdict)

    # 2. Pairs measure the map: how often is the nearest vector that of the same text?
    translated, true = translator(first(held_out)).numpy(), second(held_out).numpy()
    nearest = (translated @ true.T).argmax(1)
    print(f"top-1 of {HELD_OUT}: {(nearest == np.arange(HELD_OUT)).mean():.2f}; chance {1 / HELD_OUT:.3f}")


if __name__ == "__main__":
    main()
