"""Judge an alignment without pairs: a score in [0, 1] and a label.

Every unpaired method returns some map. Its own objective cannot judge the map, because a wrong map couples
points almost as well as the right one. But two fits rarely end at the same wrong map. So fit a *replicate*: a
second translator with another seed, on another draw of the texts or a part of them. If both maps are right,
they translate nearly alike. If one is wrong, they do not. `agreement` measures how alike they translate. It
leaves out the leading directions, in which two wrong maps can agree. `core.parts` tells for which share of
the source vectors the map is right. Signals that did not work are in docs/experiments/verdict.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import FEW, dimensions, principal_axes
from pipelines.aligners.core.matching import draw
from pipelines.aligners.core.parts import judge_parts
from pipelines.aligners.core.translator import Translator, verdict_rank
from pipelines.measures.vectors import centred_unit
from pipelines.runtime.errors import BadInput

RIGHT = 0.1  # largest FOSCTTM of a right map on held-out pairs
# The score of a verdict is the probability that the map is right: 1 / (1 + exp(-SLOPE (agreement - MIDDLE))).
# `benchmarks.verdict fit` fits both constants.
SLOPE, MIDDLE = 39.4, 0.134
ALIGNED, DOUBTFUL = 0.95, 0.05  # lowest scores of these labels
# Lowest share of the source for which an *aligned* map is right. Where it is wrong, FOSCTTM is 0.5 on
# average, which adds at most (1 - WHOLE) * 0.5 = 0.075 to the mean.
WHOLE = 0.85
LEADING = 20  # directions that are left out: wrong maps can agree there by matching whole clusters
REPLICATE_SEED = 1_000_000  # added to a seed to get the seed of a replicate
SMALL = 8000  # vectors on a side (`part_for_replicate`)
ADVICE = (
    "to try: more texts on both sides, known pairs, more restarts; with wasserstein_procrustes also "
    "`match_in: smaller`"
)
SAMPLE = 40_000  # vectors that a verdict looks at: the standard error of the mean cosine is then below .005


@dataclass(frozen=True)
class Verdict:
    score: float
    label: str  # aligned | partial | doubtful | failed
    agreement: float
    dimensions: float  # effective number of dimensions of the translated cloud
    share: float = 1.0  # of the source vectors that are translated correctly; 0 unless score >= ALIGNED

    @property
    def rank(self) -> tuple[bool, float, float]:
        """The sort key of translators (`core.translator.verdict_rank`)."""
        return verdict_rank(vars(self))

    @property
    def short(self) -> str:
        """`failed (agreement 0.10)`"""
        return f"{self.label} (agreement {self.agreement:.2f})"

    def __str__(self) -> str:
        return self.explained(ADVICE)

    def explained(self, advice: str) -> str:
        """Return label and agreement, then the share of the source for which the map is right, or advice."""
        if self.share:
            return f"{self.short}, for {self.share:.0%} of the source"
        if self.dimensions < FEW and self.agreement > MIDDLE:
            few = f"{self.dimensions:.0f} effective dimensions; below {FEW} wrong maps agree, too"
            return f"{self.short}; the translations have {few}"
        return f"{self.short}; {advice}"


@torch.no_grad()
def judge(
    source: Tensor, translator: Translator, target: Tensor, replicates: Sequence[Translator]
) -> Verdict:
    """Compare a translator with replicates, on the source (n, d) and target vectors (m, e) of its own fit.

    Replicates need another draw of the texts: on the same texts a deterministic aligner always agrees with
    itself. Of more than SAMPLE vectors a random sample is used.
    """
    if len(source) > SAMPLE:
        source = draw(source, SAMPLE, torch.Generator().manual_seed(0))
    translated = translator(source)
    if translated.shape[1] != target.shape[1]:
        wide = f"translations have {translated.shape[1]} dimensions, target vectors {target.shape[1]}"
        raise BadInput(f"{type(translator).__name__}: {wide}")
    verdict = verdict_of(agreement(source, translated, replicates), dimensions(translated))
    if verdict.label != "aligned":
        return verdict
    right = judge_parts(source, translator, target, replicates).rows(source)  # (n,) bool
    return verdict_of(verdict.agreement, verdict.dimensions, float(right.double().mean()))


@torch.no_grad()
def agreement(source: Tensor, translated: Tensor, replicates: Sequence[Translator]) -> float:
    """Return the mean centred cosine of translations (n, e) of source (n, d) and those by a replicate.

    The LEADING principal directions are left out, at most half of all. Of several replicates, the one that
    agrees most counts. One right replicate is enough, because two wrong fits rarely agree.
    """
    unit = centred_unit(translated)
    leading = min(LEADING, unit.shape[1] // 2)
    fine = principal_axes(unit)[:, : unit.shape[1] - leading]  # the leading ones are last
    unit = normalize(unit @ fine, dim=1)
    cosines = []
    for replicate in replicates:
        other = normalize(centred_unit(replicate(source)) @ fine, dim=1)
        cosines.append(float((unit * other).sum(1).mean()))
    return max(cosines)


def verdict_of(agreed: float, dimensions: float, share: float = 1.0) -> Verdict:
    """Return the verdict for an agreement, the effective dimensions of the translated cloud, and a share.

    A score of at least ALIGNED gives *aligned* for a share of at least WHOLE, *partial* for a smaller share,
    and *doubtful* for none. Below FEW dimensions wrong fits agree, too, so the label is *doubtful* at best.
    """
    score = 1 / (1 + math.exp(-SLOPE * (agreed - MIDDLE)))
    score = score if dimensions >= FEW else min(score, 0.5)
    if score >= ALIGNED:
        label = "aligned" if share >= WHOLE else "partial" if share else "doubtful"
        return Verdict(score, label, agreed, dimensions, share)
    return Verdict(score, "doubtful" if score >= DOUBTFUL else "failed", agreed, dimensions, 0.0)


def part_for_replicate(clouds: Sequence[Tensor], left_out: int = 0) -> list[Tensor]:
    """Return the vectors of each side that a replicate sees, from shuffled rows (n, d), (m, e), ...

    It sees half of them. If a side has fewer than SMALL, half is too few to find the map again, so it sees
    three quarters of each side (docs/experiments/sizes.md). `left_out` chooses the half or quarter that is
    left out. Clouds of the same texts lose the same rows.
    """
    parts = 4 if min(map(len, clouds)) < SMALL else 2
    return [cloud[(torch.arange(len(cloud)) + left_out) % parts < parts - 1] for cloud in clouds]
