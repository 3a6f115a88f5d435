"""Fit, load and judge translators from Python: `from pipelines import fit, fit_parts, load, verdict`."""

import logging
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from pipelines.aligners.core.cloud import FAR, checked, finite, floats
from pipelines.aligners.core.parts import Parts, judge_parts
from pipelines.aligners.core.translator import Translator, load_best
from pipelines.aligners.core.verdict import REPLICATE_SEED, Verdict, judge, part_for_replicate
from pipelines.fitting.fits import FitId, Translators, Work, fit_until_aligned
from pipelines.fitting.splitting import with_pairs
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import Log
from pipelines.runtime.track import Run
from pipelines.study import Align, aligner_module, settings_of
from pipelines.study.params import one_line

ALIGNER = "wasserstein_procrustes"
PAIR = ("source", "target")
BLOCK = 65_536  # rows whose distances are computed at once

logger = logging.getLogger(__name__)

load = load_best  # as `pipelines.load`


def fit(
    source: Any,
    target: Any,
    seed: int = 0,
    restarts: int = 2,
    pairs: tuple[Any, Any] | None = None,
    **settings: Any,
) -> tuple[Translator, Verdict]:
    """Fit a translator of source (n, d) to the space of target (m, e) without pairs, and judge it.

    The method is Wasserstein Procrustes. The texts of both sides should be of one kind and in random order.
    Rows of zeros, repeated rows and rows far off, which a few faulty texts give, are left out of the fit and
    of the verdict; a warning counts them.
    restarts: as a row of `align` does, fit again up to this often while the fit is not *aligned*, and return
    the fit with the best verdict. A failed replicate makes a right fit look wrong, so each restart also fits
    a new replicate, to other texts. pairs: vectors (k, d), (k, e) of k texts that are known in both spaces.
    The fit gets every second one, and its replicates get the others: if both had the same wrong pairs, their
    wrong maps would agree. settings: those of a row of `align`. Raises BadInput for vectors that cannot be
    aligned and for settings that do not exist.

    >>> from pipelines import fit
    >>> random = np.random.default_rng(0)
    >>> topics, shares = random.normal(size=(40, 64)), np.linspace(1, 4, 40)
    >>> of = random.choice(40, 3000, p=shares / shares.sum())
    >>> texts = (topics[of] + 0.5 * random.normal(size=(3000, 64))) * np.linspace(2, 0.5, 64)
    >>> rotation, _ = np.linalg.qr(random.normal(size=(64, 64)))
    >>> quick = dict(clusters=40, repeats=[30], refinements=20, passes=2, rotations=0, restarts=0)
    >>> translator, verdict = fit(texts[:1500], texts[1500:] @ rotation, **quick)
    >>> translator(texts[:5]).shape
    (5, 64)
    >>> verdict.agreement > 0.5, verdict.dimensions < 20, verdict.label  # right, but few dimensions
    (True, True, 'doubtful')
    """
    return fit_and_judge(*usable(source, target), seed, restarts, pairs, **settings)[:2]


def fit_parts(source: Any, target: Any, **how: Any) -> tuple[Translator, Verdict, Parts | None]:
    """Do as `fit`, and return for which source vectors the map is right, too; None if it is for none.

    `Parts.rows(source)` marks them. A dump of two encoders is such a source. how: the other arguments of
    `fit`, by name.
    """
    source, target = usable(source, target)
    translator, verdict, replicates = fit_and_judge(source, target, **how)
    if not verdict.share:
        return translator, verdict, None
    return translator, verdict, judge_parts(source, translator, target, replicates)


def fit_and_judge(
    source: torch.Tensor,
    target: torch.Tensor,
    seed: int = 0,
    restarts: int = 2,
    pairs: Any = None,
    **settings: Any,
) -> tuple[Translator, Verdict, list[Translator]]:
    """Do as `fit`, for vectors that `usable` returned. Also return the replicates that the verdict is of."""
    try:
        chosen = settings_of(ALIGNER, settings, ("seed", "restarts"))
        row = Align(
            source=PAIR[0],
            target=PAIR[1],
            aligner=ALIGNER,
            seeds=(seed,),
            restarts=restarts,
            settings=chosen,
        )
    except ValidationError as error:
        raise BadInput(f"fit: {one_line(error)}") from None
    known = [source[:0], target[:0]] if pairs is None else vectors_of_pairs(pairs, source, target)
    aligner = aligner_module(ALIGNER)

    def made(fit_id: FitId, log: Log | None) -> Translators:
        x, y = part_for_replicate([source, target], fit_id.restart) if fit_id.replicate else (source, target)
        data = with_pairs(x, y, *(side[fit_id.replicate :: 2] for side in known))  # every second pair
        return {PAIR: aligner.fit(data.source, data.target, chosen, fit_id.generator_seed, data.pairs)}

    with TemporaryDirectory() as folder:
        work = Work(
            row,
            Run(),
            Path(folder),
            source.device,
            subfolders={PAIR: ""},
            clouds=[source, target],
            fit=made,
            vectors_of_seed=lambda _: {PAIR[0]: source, PAIR[1]: target},
        )
        best = fit_until_aligned(work)[0][seed]
    return best.translators[PAIR], best.verdicts[PAIR], best.judges[PAIR]


def vectors_of_pairs(pairs: Any, source: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    """Return known pairs as float32 (k, d), (k, e) on the source's device.

    Raises BadInput unless they are two finite matrices of equally many rows, as wide as source and target.
    """
    try:
        given = tuple(pairs)
    except TypeError:
        given = (pairs,)
    known = [floats("pairs", side).float().to(source.device) for side in given]
    if [side.ndim for side in known] != [2, 2]:
        raise BadInput(
            "fit: pairs: two arrays of vectors are needed, (k, d) and (k, e), one row for each text"
        )
    known = [finite("pairs", side) for side in known]
    if len(known[0]) != len(known[1]):
        raise BadInput(f"fit: pairs of {len(known[0])} and {len(known[1])} vectors: each needs a partner")
    for side, cloud in zip(known, (source, target), strict=True):
        if side.shape[1] != cloud.shape[1]:
            raise BadInput(
                f"fit: pairs of {side.shape[1]} dimensions; the other vectors have {cloud.shape[1]}"
            )
    return known


def verdict(
    fit: Callable[[np.ndarray, np.ndarray, int], Callable[[np.ndarray], Any]],
    source: Any,
    target: Any,
    seed: int = 0,
) -> Verdict:
    """Judge any aligner's map of source vectors (n, d) to the space of target vectors (m, e), without pairs.

    `fit(source, target, seed)` takes float32 arrays and returns a function of arrays (n, d) -> (n, e). It is
    called twice, the second time with another seed on a part of the vectors
    (`core.verdict.part_for_replicate`): two right maps agree, two wrong ones do not. It never sees the rows
    that `pipelines.fit` leaves out. The verdict is meaningless for a function that always returns the same
    map. Raises BadInput for translations of another shape, or that are not finite.

    >>> from pipelines import verdict
    >>> random = np.random.default_rng(0)
    >>> vectors = random.normal(size=(1000, 64))
    >>> def guess(source, target, seed):
    ...     rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(64, 64)))
    ...     return lambda vectors: vectors @ rotation
    >>> verdict(guess, vectors, vectors).label
    'failed'
    """
    source, target = usable(source, target)

    def method(x: torch.Tensor, y: torch.Tensor, seed: int) -> Any:
        fitted = fit(x.cpu().numpy(), y.cpu().numpy(), seed)
        if not callable(fitted):
            raise BadInput(f"verdict: fit must return a function of vectors, got {type(fitted).__name__}")

        def translate(vectors: torch.Tensor) -> torch.Tensor:
            translated = floats("verdict: what fit returned gives", fitted(vectors.cpu().numpy())).float()
            if (shape := tuple(translated.shape)) != (needed := (len(vectors), target.shape[1])):
                raise BadInput(f"verdict: what fit returned gives {shape}, and {needed} is needed")
            if not translated.isfinite().all():
                raise BadInput("verdict: what fit returned gives vectors that are not finite")
            return translated.to(vectors.device)

        return translate

    translate = method(source, target, seed)
    x, y = part_for_replicate([source, target])
    return judge(source, translate, target, [method(x, y, seed + REPLICATE_SEED)])


def usable(source: Any, target: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows of both sides that a fit sees, as float32 on the source's device.

    Raises BadInput for what cannot be aligned.
    """
    x, y = (_usable_rows(name, side) for name, side in zip(PAIR, (source, target), strict=True))
    return x, y.to(x.device)


def _usable_rows(name: str, side: Any) -> torch.Tensor:
    """Return the rows that are distinct, not zero and near the centre, in order; log how many are not."""
    vectors = checked(name, floats(name, side))
    array = vectors.cpu().numpy()
    rows = distinct_rows(array)
    rows = rows[array[rows].any(1)]
    rows = rows[near_centre(array[rows])]
    if not (left_out := len(vectors) - len(rows)):
        return vectors
    said = "%s: %s of %s vectors are left out of the fit: zero, repeated or far off"
    logger.warning(said, name, f"{left_out:,}", f"{len(vectors):,}")
    return checked(name, vectors[torch.from_numpy(rows).to(vectors.device)])


def distinct_rows(vectors: np.ndarray) -> np.ndarray:
    """Return the first row of each distinct vector of (n, d), in order. -> (k,)"""
    return np.sort(np.unique(vectors, axis=0, return_index=True)[1])


def near_centre(vectors: np.ndarray) -> np.ndarray:
    """Mark the rows of (n, d), all distinct, within FAR times the median distance from their centre. -> (n,)

    The centre is the median of each coordinate: a minority of rows cannot move it.
    """
    centre = np.median(vectors, axis=0).astype(np.float64)
    blocks = np.array_split(vectors, len(vectors) // BLOCK + 1)
    distances = np.concatenate([np.linalg.norm(block - centre, axis=1) for block in blocks])
    return distances <= FAR * np.median(distances)
