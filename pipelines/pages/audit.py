"""The audit's page: one HTML file that opens without a network, and a Markdown twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.pages import page, pictures
from pipelines.pages.tables import ENOUGH, escaped, table

Table = tuple[str, str, list[dict[str, Any]]]  # heading, explanation, rows
HELD = 0.1  # texts that stand out: of other texts it is .02 (docs/experiments.md)
KEPT, LEFT = (
    0.9,
    0.5,
)  # worth its cost: a defence that keeps so much of retrieval, and leaves at most so much of the leakage


@dataclass(frozen=True)
class Tried:
    """How the attack with one encoder ended."""

    encoder: str
    known_texts: int
    score: float
    verdict: str  # aligned | doubtful | failed
    seconds: float


@dataclass
class Findings:
    """All that the page shows."""

    dump: str
    about: dict[str, Any]
    tried: list[Tried]
    best: Tried
    attributes: list[dict[str, Any]] = field(default_factory=list)
    inversions: list[dict[str, Any]] = field(default_factory=list)
    defences: list[dict[str, Any]] = field(default_factory=list)
    held: float = 0.0  # share of the attacker's texts that stand out as texts of the dump
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def evidence(self) -> bool:
        return self.best.verdict == "aligned"


def conclusion(findings: Findings) -> str:
    """The one sentence that is to be read if nothing else is."""
    best = findings.best
    if findings.evidence:
        return (
            f"Verdict: aligned with {best.encoder} (score {best.score:.2f}). These vectors can be read "
            "by somebody who has nothing but them and texts of his own: what follows is what he reads."
        )
    if best.verdict == "doubtful":
        return (
            f"Verdict: doubtful (best: {best.encoder}, score {best.score:.2f}). No leak is claimed: "
            "with more vectors, or texts nearer to those behind the dump, the attack may yet work."
        )
    return (
        f"Verdict: failed: no evidence of leakage by this attack (best score {best.score:.2f}). "
        "Another attack, or known pairs, may still work."
    )


def advice(findings: Findings) -> list[str]:
    """How grave it is, and what to do."""
    if findings.evidence:
        return [
            "Severity: high. Handle these vectors like the texts behind them: the same access, the same encryption, deleted as "
            "soon, and if they are lost, the same people are to be told.",
            "The attack needs thousands of vectors of one encoder: hand out as few as will do.",
            *_held(findings.held),
            *_worth({row["defence"]: row for row in findings.defences}),
        ]
    if findings.best.verdict == "doubtful":
        said = ["Severity: unknown. Handle the vectors like their texts until an audit says otherwise."]
    else:
        said = [
            "Severity: none shown, which proves no safety: known pairs, or the encoder itself, may read them."
        ]
    if (used := findings.about["used"]) < ENOUGH:
        said.append(
            f"The attack saw {used:,} vectors. It reads with {ENOUGH:,} what it cannot read with fewer: audit again with more of "
            "them, and with texts as near as possible to those behind the dump."
        )
    return said


def _held(share: float) -> list[str]:
    if share <= HELD:
        return []
    return [
        f"Of the texts that the attack was given, {share:.0%} stand out as texts of the dump itself. A thief has others: audit "
        "again without them, for what was read here may be what was given."
    ]


def _worth(defences: dict[str, dict[str, Any]]) -> list[str]:
    """Which of the defences that were tried is worth its cost, and what a rotation is worth."""

    def leaks(name: str) -> float:  # to the attacker who knows most
        return max(v for k, v in defences[name].items() if k == "leakage" or k.endswith(" pairs"))

    if not defences or not (bare := leaks("none")):
        return []
    worth = [
        n for n in defences if n != "none" and defences[n]["utility"] >= KEPT and leaks(n) <= LEFT * bare
    ]
    said = [
        f"No defence that was tried keeps {KEPT:.0%} of retrieval and leaves {LEFT:.0%} or less of the leakage."
    ]
    if worth:
        best = min(worth, key=leaks)
        said = [
            f"Worth its cost: `{best}` keeps {defences[best]['utility']:.0%} of retrieval, and leaves {leaks(best) / bare:.0%} "
            "of the leakage to the attacker who knows most."
        ]
    if "rotate" in defences and leaks("rotate") > LEFT * bare:
        said.append(
            f"A secret rotation (`rotate`) is no defence: it leaves {leaks('rotate') / bare:.0%} of the leakage."
        )
    return said


def tables(findings: Findings) -> list[Table]:
    """Every table of the page; of the attack's results only where the verdict is `aligned`."""
    tried = [
        {name.replace("_", " "): value for name, value in asdict(attempt).items()}
        for attempt in findings.tried
    ]
    out: list[Table] = [
        (
            "The dump",
            "Far off: so much further from the centre than the others that they can only be errors.",
            [findings.about],
        ),
        (
            "Encoders tried",
            "Each: the dump's vectors mapped to this encoder without a single pair; the verdict uses unpaired data only.",
            tried,
        ),
    ]
    if findings.evidence:
        out += [
            (
                "Inferred topics",
                "The label nearest to each translated vector; no label was known.",
                findings.attributes,
            ),
            (
                "Inverted texts",
                "What the inverter writes for a vector, and the nearest of the attacker's own texts. Guesses, not quotations: "
                "names and numbers in them may be the attacker's own. How many come back above the floor can be measured only "
                "where the true texts are known: the report's section Inversion does.",
                findings.inversions,
            ),
        ]
    if findings.defences:
        out += [
            (
                "Defences",
                "utility: of the 10 nearest neighbours, the share that is kept. leakage: what a fresh attack on the "
                "defended vectors still agrees on with the attack on the bare ones, 0 by chance; "
                "`none` is the same attack with another seed. *n* pairs: the leakage to an attacker who knows the bare "
                "vectors of *n* of them besides, and the cells; of four maps the best. `cells`: a secret rotation for each of "
                "so many k-means cells; its utility is that of searching the cells nearest to a query, the square root of "
                "their number.",
                findings.defences,
            ),
        ]
    return [*out, ("Time", "Seconds.", [findings.seconds])]


def write(findings: Findings, folder: Path, stem: str) -> Path:
    """Write `stem`.html and `stem`.md; returns the first."""
    title = f"Audit of {findings.dump}"
    markdown = [f"# {title}", "", f"> {conclusion(findings)}", "", "## What to do", ""]
    markdown += [f"- {line}" for line in advice(findings)]
    for heading, about, rows in tables(findings):
        cells = [
            [escaped(f"{v:.3f}" if isinstance(v, float) else str(v)) for v in row.values()] for row in rows
        ]
        markdown += ["", f"## {heading}", "", *([about, ""] if about else [])]
        markdown += table(list(rows[0]), cells) if rows else ["none"]
        if heading == "Defences":
            picture(folder / f"{stem}.png", rows)
            markdown += ["", f"![utility against leakage]({stem}.png)"]
    return page.write(folder / f"{stem}.html", title, "\n".join(markdown) + "\n")


def picture(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Utility against leakage, one point per defence: the upper left corner is where an owner wants to be."""
    with pictures.figure(path, figsize=(6.4, 4.4)) as (_, ax):
        for row in rows:
            colour = pictures.SOURCE if row["defence"] == "none" else pictures.TARGET
            ax.scatter(row["leakage"], row["utility"], color=colour, zorder=3)
            at = (row["leakage"], row["utility"])
            ax.annotate(row["defence"], at, xytext=(5, 4), textcoords="offset points", fontsize=8)
        ax.set(
            xlabel="leakage that is left",
            ylabel="retrieval recall@10 kept",
            xlim=(-0.03, 1.08),
            ylim=(-0.03, 1.08),
        )
        ax.grid(alpha=0.3)
