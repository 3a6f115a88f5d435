"""What a study found, in sentences that need no table: at most one finding for each kind of result.

If several rows compete, one rule selects. Translators: judged aligned, measured on the corpus of their fit,
on real texts, without a document on both sides, then the best top-1. Attacks: the highest above their floor,
by the lower end of the interval. Encoders trained here: the best on dev pairs. Generated texts are marked
GENERATED; what no attacker has is marked ORACLE.
"""

from pipelines.pages.findings import encoders, leakage, translation
from pipelines.pages.findings.finding import Finding
from pipelines.study.params import Study

FINDINGS = (*translation.FINDINGS, *leakage.FINDINGS, *encoders.FINDINGS)


def findings(study: Study) -> list[Finding]:
    """Return the findings of the results in results/, in reading order."""
    return [finding for kind in FINDINGS if (finding := kind(study))]
