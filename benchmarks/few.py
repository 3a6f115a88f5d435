"""How often does `fit` call a right map of few vectors aligned?

    python -m benchmarks.few wikipedia-wordllama wikipedia-minilm [--sizes 2000 3000 4000] [--draws 20]

The two embeddings are of the active study. Each draw takes random halves of the train texts, of this size on
each side, and measures the map on the test texts. Prints one line for each draw.
"""

import argparse

import torch

from pipelines.fitting.arrays import fit
from pipelines.measures.translation import paired_scores
from pipelines.runtime import store
from pipelines.runtime.errors import BadInput


def main() -> None:
    """Print the label, agreement, top-1 and FOSCTTM of each draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs=2, help="source and target, rows of `embed`")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 3000, 4000])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=10, help="seed of the first draw")
    arguments = parser.parse_args()
    try:
        source, target = (store.read_embeddings(space) for space in arguments.spaces)
        store.check_same_texts(source, target)
    except BadInput as error:
        raise SystemExit(str(error)) from None

    def drawn(size: int, seed: int) -> str:
        train, test = source.rows("train"), source.rows("test")
        if len(train) < 2 * size:
            raise SystemExit(f"{size} a side: there are {len(train)} train texts")
        rows = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))]
        x, y = source.vectors[rows[:size]], target.vectors[rows[size : 2 * size]]
        translator, verdict = fit(x, y, seed=seed)
        with torch.inference_mode():
            scores = paired_scores(translator(source.vectors[test]), target.vectors[test])
        top1, foscttm = (float(scores[name].mean()) for name in ("top1", "foscttm"))
        return f"{size} {seed} {verdict.label} {verdict.agreement:.3f} {top1:.3f} {foscttm:.4f}"

    print("size seed label agreement top1 foscttm")
    for size in arguments.sizes:
        for seed in range(arguments.first, arguments.first + arguments.draws):
            print(drawn(size, seed), flush=True)


if __name__ == "__main__":
    main()
