"""How often does a fingerprint name the encoder of a dump? Prints a table like that of docs/identify.md.

    python -m benchmarks.identify [--draws 500]

On the embeddings of study `dumps`, whose texts are of another kind than those of the fingerprints. Each draw
takes some rows of one space; each draw of `rotated` has a rotation of its own. A cell is the share of draws
that are answered right, first for Wikipedia, then for Enron, in one number if both are equal.
"""

import argparse

import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from pipelines.measures.defences import Defence, defend
from pipelines.measures.fingerprint import Fingerprint, Matches
from pipelines.runtime import store
from pipelines.tool.identify import fingerprint_of

CORPORA, SIZES = ("wikipedia", "enron"), (1, 10, 100, 1000)
ENCODERS = ("wordllama", "use", "minilm", "e5")
STORED, WIDTHS = ("int8", "centred", "binary"), (256, 384, 512)


def main() -> None:
    """Print a row for each kind of vectors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=500)
    draws = parser.parse_args().draws
    known = {name: fingerprint_of(name) for name in ENCODERS}
    spaces = {e: [store.read_embeddings(f"{c}-{e}").vectors for c in CORPORA] for e in ENCODERS}

    def row(
        what: str, answer: str, clouds: list[Tensor], without: str | None = None, turned: bool = False
    ) -> None:
        among = {name: one for name, one in known.items() if name != without}
        both = [shares_right(vectors, answer, among, draws, turned) for vectors in clouds]
        cells = [", ".join(dict.fromkeys(map(cell, pair))) for pair in zip(*both, strict=True)]
        print(f"| {' | '.join([what, answer, *cells])} |", flush=True)

    print(f"| vectors (Wikipedia, Enron) | right answer | {' | '.join(f'{size:,}' for size in SIZES)} |")
    print("|---" * (2 + len(SIZES)) + "|")
    for encoder, clouds in spaces.items():
        row(encoder, encoder, clouds)
    for encoder in ("minilm", "e5"):  # the only two of one width
        row(f"{encoder}, which is not among the known", "unknown", spaces[encoder], without=encoder)
    for encoder, clouds in spaces.items():
        row(f"{encoder}, rotated", "unknown", clouds, turned=True)
    for encoder, clouds in spaces.items():
        for kind in STORED:
            row(f"{encoder}, {kind}", encoder, [stored(vectors, kind) for vectors in clouds])
    for d in WIDTHS:
        row(f"Gaussian, {d}", "unknown", [torch.randn(8192, d, generator=torch.Generator().manual_seed(0))])
    for d in WIDTHS:
        row(f"LSA of TF-IDF, {d}", "unknown", [latent_semantics(corpus, d) for corpus in CORPORA])


def shares_right(
    vectors: Tensor, answer: str, known: dict[str, Fingerprint], draws: int, turned: bool
) -> list[float]:
    """Return for each of SIZES the share of draws with the right answer."""
    random, shares = torch.Generator().manual_seed(0), []
    for size in SIZES:
        right = 0
        for seed in range(draws):
            some = vectors[torch.randperm(len(vectors), generator=random)[:size]]
            seen = defend(some, Defence("rotate"), seed) if turned else some
            right += (Matches.of(seen, known).best or "unknown") == answer
        shares.append(right / draws)
    return shares


def stored(vectors: Tensor, kind: str) -> Tensor:
    """Return vectors less their mean, or under a defence."""
    return vectors - vectors.mean(0) if kind == "centred" else defend(vectors, Defence(kind))


def latent_semantics(corpus: str, d: int) -> Tensor:
    """Return the latent semantic analysis of the texts of a corpus, d dimensions of each."""
    words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(
        store.read_corpus(corpus)["text"].to_list()
    )
    return torch.from_numpy(TruncatedSVD(d, random_state=0).fit_transform(words)).float()


def cell(share: float) -> str:
    return f"{share:.3f}".lstrip("0") if share < 1 else "1"


if __name__ == "__main__":
    main()
