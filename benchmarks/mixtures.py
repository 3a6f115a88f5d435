"""For which rows of a mixed dump is a map right, and does `fit_parts` tell?

    python -m benchmarks.mixtures RUNS.csv [--draws 20]

On the embeddings of study `dumps`. Each draw halves a corpus by document: the dump has one half of it, the
target the other. A share of the dump's rows (SHARES) is of a second encoder, as in an index that was half
moved to a new model, or of a second corpus by the same encoder. The narrower vectors of two encoders are
padded with zeros, and those of the second are rotated at random. Each draw has another split, and the next of
DUMPS and SHARES. Appends to RUNS.csv, where earlier draws stay.

Columns: `told`: the verdict's share. `told_first`, `told_second`: the share of the rows of each part that are
marked as right. The others are measured on held-out texts, which are mixed like the dump.
"""

import argparse
from pathlib import Path

import polars as pl
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from pipelines.fitting.arrays import fit_parts
from pipelines.fitting.splitting import sides
from pipelines.measures.translation import paired_scores
from pipelines.runtime import store
from pipelines.study import Align

SHARES = (0.05, 0.1, 0.2, 0.35, 0.5)  # of the second part
DUMPS = (  # first part, second part, target of the first part's corpus
    ("wikipedia-minilm", "wikipedia-wordllama", "wikipedia-use"),
    ("wikipedia-use", "wikipedia-minilm", "wikipedia-wordllama"),
    ("wikipedia-minilm", "wikipedia-e5", "wikipedia-use"),
    ("wikipedia-minilm", "enron-minilm", "wikipedia-use"),
)


def one_draw(number: int, spaces: dict[str, store.Embeddings]) -> dict[str, object]:
    """Fit one mixed dump, and return what its verdict says and what is true."""
    dump, share = DUMPS[number % len(DUMPS)], SHARES[number % len(SHARES)]
    first, second, target = (spaces[name] for name in dump)
    corpus, encoder = dump[1].split("-")
    random = torch.Generator().manual_seed(number)

    # 1. Both parts in one space, and the second one's true partners
    width = max(first.vectors.shape[1], second.vectors.shape[1])
    rotation = torch.eye(width)
    if encoder != dump[0].split("-")[1]:
        rotation = torch.linalg.qr(torch.randn(width, width, generator=random))[0]
    one, two = (
        pad(normalize(space.vectors, dim=1), (0, width - space.vectors.shape[1])) for space in (first, second)
    )
    two = two @ rotation
    partners = spaces[f"{corpus}-{dump[2].split('-')[1]}"].vectors

    # 2. The rows of each part; of the same corpus no text is in both
    row = Align.model_validate({"source": dump[0], "target": dump[2], "aligner": "identity"})
    (_, rows), (_, rows_y) = sides(first, target, row, number)
    rows = rows[torch.randperm(len(rows), generator=random)]
    test = first.rows("test")

    def mixed(rows: Tensor, split: str) -> tuple[Tensor, Tensor, int]:
        """Return the rows (n,) of the first part, those of the second, and how many are of the first."""
        kept = round((1 - share) * len(rows))
        others = rows[kept:] if second.name.startswith("wikipedia") else second.rows(split)
        return rows[:kept], others[: len(rows) - kept], kept

    of_one, of_two, kept = mixed(rows, "train")
    source = torch.cat([one[of_one], two[of_two]])
    order = torch.randperm(len(source), generator=random)

    # 3. The fit, and what it tells
    translator, verdict, parts = fit_parts(source[order], target.vectors[rows_y], seed=number, restarts=1)
    right = torch.zeros(len(source), dtype=torch.bool) if parts is None else parts.rows(source)

    # 4. The truth
    of_one, of_two, many = mixed(test, "test")
    moved = translator(torch.cat([one[of_one], two[of_two]]))
    scores = paired_scores(moved, torch.cat([target.vectors[of_one], partners[of_two]]))
    top1, foscttm = scores["top1"].double(), scores["foscttm"].double()
    run = {"first": dump[0], "second": dump[1], "target": dump[2], "size": len(source), "share": share}
    run |= {"label": verdict.label, "agreement": verdict.agreement, "told": verdict.share}
    run |= {"told_first": right[:kept].double().mean(), "told_second": right[kept:].double().mean()}
    run |= {"top1_first": top1[:many].mean(), "top1_second": top1[many:].mean()}
    run |= {"foscttm_first": foscttm[:many].mean(), "foscttm_second": foscttm[many:].mean()}
    run["foscttm"] = foscttm.mean()
    return {
        key: value if isinstance(value, str | int) else round(float(value), 4) for key, value in run.items()
    }


def main() -> None:
    """Make the next draws, and print each as it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=len(DUMPS) * len(SHARES))
    arguments = parser.parse_args()
    names = {name for dump in DUMPS for name in dump} | {"enron-use"}
    spaces = {name: store.read_embeddings(name) for name in sorted(names)}
    runs = pl.read_csv(arguments.file).rows(named=True) if arguments.file.exists() else []
    for number in range(len(runs), len(runs) + arguments.draws):
        runs.append({"draw": number} | one_draw(number, spaces))
        print(runs[-1], flush=True)
        pl.DataFrame(runs).write_csv(arguments.file)


if __name__ == "__main__":
    main()
