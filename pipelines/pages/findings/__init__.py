"""What a study found, in sentences that need no table: one for each kind of result that the study has.

Where several rows compete, one rule picks: of translators the one to trust (judged on the corpus that it was fitted on, its
seeds aligned, on texts that people wrote), then the best rank-1 share; of attacks the one that stands highest above its floor,
by the lower end of the interval; of encoders trained here the best on test pairs. Generated texts are called GENERATED, and
what no attacker has ORACLE.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.pages.findings.encoders import geometry, image_text, training
from pipelines.pages.findings.finding import Finding
from pipelines.pages.findings.leakage import attribute_inference, inversion
from pipelines.pages.findings.translation import judgement, translation
from pipelines.study import params

KINDS: tuple[Callable[[params.Study], Finding | None], ...] = (
    translation, judgement, attribute_inference, inversion, geometry, training, image_text,
)  # fmt: skip


def findings(study: params.Study) -> list[Finding]:
    """What the results in results/ say, in the order in which it should be read. A kind without results has no finding."""
    return [finding for of_kind in KINDS if (finding := of_kind(study))]
