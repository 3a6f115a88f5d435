"""identify: which known encoder made the vectors of a dump, or none of them.

First it compares the vectors with a fingerprint of each encoder: a few vectors are enough. Then it may fit a
translator to each encoder. This needs thousands of vectors, and also names the encoder of rotated vectors.
"""

import sys
from argparse import Namespace
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipelines.corpora.core.files import located
from pipelines.corpora.sources.vectors import Stored
from pipelines.measures.fingerprint import Fingerprint, Matches
from pipelines.pages.audit import Tried, best_of
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import load_state, save_state
from pipelines.study.encoders import PACKAGED
from pipelines.tool import Answer, audit, encoders

PACKAGES = ("numpy", "polars", "torch", "transformers")  # whose docstrings fingerprints are made from
TEXTS, LONGEST = 1000, 300  # of a fingerprint, and the characters of each
FIRST = 8192  # vectors whose numbers are looked at
FITTED = 1000  # with fewer vectors no verdict was ever *aligned*, so a fit needs `--fit`


def run(args: Namespace) -> Answer:
    """Name the encoder by a fingerprint, else by a fit."""
    path = located(args.dump)
    of_fits = ("texts", "limit", "known", "seed", "quick", "device")
    unused = [f"--{name}" for name in of_fits if getattr(args, name) is not None]
    if args.fit is False and unused:
        raise BadInput(f"{' '.join(unused)}: only fits use this, and --no-fit makes none")
    if args.texts:
        located(args.texts)  # before any work
    if args.encoders is None:
        args.encoders = tuple(encoders.installed())
    options = audit.Options.of(args)
    vectors = first(path, options)
    if args.fit is None and len(vectors) < FITTED and unused:
        few = f"only fits use this, and {len(vectors)} distinct vectors get one only with --fit"
        raise BadInput(f"{path}: {' '.join(unused)}: {few}")
    fingerprints = {name: fingerprint_of(name) for name in options.encoders}
    matches = Matches.of(vectors, fingerprints)
    needed, found = matches.needed, matches.found.items()
    lines = [f"{name}: match {match:.2f}, {needed[name]:.2f} is needed" for name, match in found]
    lines += [f"{name}: another width" for name in fingerprints if name not in needed]
    named, how = matches.best, "by its fingerprint"
    tried: list[Tried] = []
    if args.fit or (args.fit is None and not named and len(vectors) >= FITTED):
        try:
            tried = fits(path, options)
        except BadInput as error:  # the answer by the fingerprint stays
            lines.append(f"no fit: {error}")
        for one in tried:
            about = f"fit {one.verdict}, score {one.score:.2f}"
            lines.append(f"{one.encoder}: {about if one.fitted else 'no fit: the fingerprint names it'}")
        own = [one for one in tried if one.own_encoder and one.verdict == "aligned"]
        if own and not named:
            best = best_of(own)
            named, how = best.encoder, "by a fit" if best.fitted else "by its fingerprint"
    lines.append(f"encoder: {named}, {how}" if named else "encoder: unknown")
    data = {"encoder": named, "by": how if named else None}
    data |= {"matches": matches.found, "least": needed}
    return Answer(lines, data | {"fits": [asdict(one) for one in tried]})


def first(path: Path, options: audit.Options) -> Tensor:
    """Read the first FIRST vectors of a dump: those that are distinct, finite and not zero. (n, d)

    Raises BadInput if there is none.
    """
    taken = []
    for block in Stored(path, options.column, options.collection).blocks():
        taken.append(block)
        if sum(map(len, taken)) >= FIRST:
            break
    vectors = torch.from_numpy(np.concatenate(taken)[:FIRST]) if taken else torch.empty(0, 0)
    squares = vectors.double().square().sum(1)
    vectors = vectors[squares.isfinite() & (squares > 0)]
    if not len(vectors):
        raise BadInput(f"{path}: no vector that is finite and not zero")
    return vectors.unique(dim=0)


def fingerprint_of(name: str) -> Fingerprint:
    """Return the fingerprint of an encoder. That of a packaged one is made once, and kept in the cache."""
    kept = encoders.cache(f"{name}-fingerprint") if name in PACKAGED else None
    if kept and kept.is_file():
        with suppress(BadInput):  # a damaged file: the fingerprint is made again
            return Fingerprint(**load_state(kept))
    print(f"identify: the fingerprint of {name}", file=sys.stderr, flush=True)
    made = Fingerprint.of(encoders.opened(name, "cpu")(fingerprint_texts()))
    if kept:
        save_state(kept, asdict(made))
    return made


@cache
def fingerprint_texts() -> list[str]:
    """Return the texts of a fingerprint, which are everywhere where the command is installed."""
    return [text[:LONGEST] for text in encoders.drawn(encoders.docstrings(PACKAGES), TEXTS, 0)]


def fits(path: Path, options: audit.Options) -> list[Tried]:
    """Fit the dump to each encoder, as an audit does. Raises BadInput for under `audit.LEAST` vectors."""
    _, vectors = audit.sampled(path, options)
    if len(vectors) < audit.LEAST:
        raise BadInput(f"{path}: {len(vectors)} vectors; at least {audit.LEAST} are needed")
    opened = audit.by_width(vectors, options)
    steps = audit.Steps("identify", {f"encoder {name}": 1.0 for name in opened})
    tried: list[Tried] = []
    audit.try_encoders(vectors, audit.known_texts(options), opened, options, steps, tried)
    return tried
