"""The page of an audit: one HTML file that opens without a network, and a Markdown twin."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.pages import page, pictures
from pipelines.pages.tables import ENOUGH, escaped, table

IN_DUMP = 0.2  # share of texts that stand out; .02 to .13 where none is in the dump, .39 where all are
# A defence is worth its cost if it keeps KEPT of retrieval, and leaves at most LEFT of the leakage.
KEPT, LEFT = 0.9, 0.5
SCALE = "(of: none shown, unknown, high)"
VERDICTS = ("failed", "doubtful", "partial", "aligned")  # worst first
ABOUT = {  # of each section
    "This audit": "What was audited, with what, and when.",
    "The dump": "Far off: vectors so much further from the centre than the others that they must be errors.",
    "Encoders tried": (
        "Each fit maps the dump to one encoder, without a single pair. The verdict uses unpaired data only. "
        "share: of the vectors, for which the map is right. All that follows is about these."
    ),
    "Inferred topics": "The label nearest to each translated vector. No label was known.",
    "Inverted texts": (
        "What the inverter writes for a vector, and the nearest of the attacker's texts. These are guesses, "
        "not quotations: names and numbers may come from the attacker's texts. How many are right can be "
        "measured only if the true texts are known: see Inversion in the report."
    ),
    "Defences": (
        "utility: share of the 10 nearest neighbours that is kept. leakage: agreement of a new attack on "
        "the defended vectors with the attack on the bare ones; 0 is chance. `none`: the same attack with "
        "another seed. *n* pairs: leakage to an attacker who also knows *n* bare vectors, and the cells; "
        "the best of four maps. `cells`: a secret rotation for each k-means cell; its utility is that of "
        "searching the cells nearest to a query, as many as the square root of their number."
    ),
    "Time": "Seconds of each step.",
}


@dataclass(frozen=True)
class Tried:
    """The result of the attack with one encoder."""

    encoder: str
    known_texts: int
    score: float
    verdict: str  # one of VERDICTS
    seconds: float
    share: float = 1.0  # of the vectors for which the map is right


@dataclass
class Findings:
    """All that the page shows."""

    dump: str
    about: dict[str, Any]
    tried: list[Tried] = field(default_factory=list)
    attributes: list[dict[str, Any]] = field(default_factory=list)
    inversions: list[dict[str, Any]] = field(default_factory=list)
    defences: list[dict[str, Any]] = field(default_factory=list)
    in_dump: float = 0.0  # share of the attacker's texts for which one vector stands out
    made: dict[str, Any] = field(default_factory=dict)  # date, files, settings and versions
    seconds: dict[str, float] = field(default_factory=dict)  # of each step
    stopped: str = ""  # the step in which Ctrl-C ended the audit

    @property
    def best(self) -> Tried:
        return best_of(self.tried)

    @property
    def evidence(self) -> bool:
        return self.best.verdict in ("aligned", "partial")


def best_of(tried: Sequence[Tried]) -> Tried:
    """Return the attempt with the best verdict, then with the best score."""
    return max(tried, key=lambda t: (VERDICTS.index(t.verdict), t.score))


def write(findings: Findings, folder: Path, stem: str) -> Path:
    """Write `stem`.html, `stem`.md and a picture of the defences. Return the path of the HTML."""
    title = f"Audit of {findings.dump}"
    markdown = [f"# {escaped(title)}", "", f"> {conclusion(findings)}", "", "## What to do", ""]
    if findings.stopped:
        markdown += [
            f"The audit was stopped in the step {escaped(findings.stopped)}: what follows it is missing.",
            "",
        ]
    markdown += [f"- {line}" for line in advice(findings)]
    for heading, rows in tables(findings).items():
        markdown += ["", f"## {heading}", "", ABOUT[heading], ""]
        cells = [[escaped(shown(value)) for value in row.values()] for row in rows]
        markdown += table(list(rows[0]), cells) if rows else ["none"]
        if heading == "Defences":
            # The name is a digest: a dump's name may hold what a link cannot.
            name = f"{hashlib.sha256(stem.encode()).hexdigest()[:12]}.png"
            picture(folder / name, rows)
            markdown += ["", f"![utility against leakage]({name})"]
    return page.write(folder / f"{stem}.html", title, "\n".join(markdown) + "\n")


def conclusion(findings: Findings) -> str:
    """Return the verdict in one or two sentences."""
    best = findings.best
    if findings.evidence:
        return (
            f"Verdict: aligned with {best.encoder} (score {best.score:.2f}), for {best.share:.0%} of the "
            "vectors. An attacker who has only these vectors and texts of his own can read them. "
            "This page shows what he reads."
        )
    if best.verdict == "doubtful":
        return (
            f"Verdict: doubtful (best: {best.encoder}, score {best.score:.2f}). No leak is claimed. "
            "The attack may work with more vectors, or with texts closer to those behind the dump."
        )
    return (
        f"Verdict: failed: no evidence of leakage by this attack (best score {best.score:.2f}). "
        "Another attack, or known pairs, may still work."
    )


def advice(findings: Findings) -> list[str]:
    """Return the severity, and what to do."""
    if findings.evidence:
        return [
            f"Severity: high {SCALE}. Handle these vectors like their texts. They need the same access "
            "rules, encryption and deletion. If they are lost, notify the same people.",
            "The attack needs thousands of vectors of one encoder: share as few as possible.",
            *_about_texts(findings.in_dump),
            *_about_defences({row["defence"]: row for row in findings.defences}),
        ]
    if findings.best.verdict == "doubtful":
        said = [
            f"Severity: unknown {SCALE}. Handle the vectors like their texts until an audit says otherwise."
        ]
    else:
        said = [
            f"Severity: none shown {SCALE}. This is no proof of safety: "
            "an attacker with known pairs, or with the encoder itself, may read them."
        ]
    if (used := findings.about["used"]) < ENOUGH:
        said.append(
            f"The attack saw {used:,} vectors. With {ENOUGH:,} it reads more: audit again with more vectors, "
            "and with texts as close as possible to those behind the dump."
        )
    return said


def leakage_to_best(row: dict[str, Any]) -> float:
    """Return what a defence leaves to the attacker who knows most."""
    return max(v for k, v in row.items() if k == "leakage" or k.endswith(" pairs"))


def _about_texts(share: float) -> list[str]:
    if share <= IN_DUMP:
        return []
    return [
        f"One vector of the dump stands out for {share:.0%} of the texts that the attack was given. This was "
        "so for 2 to 13 % of texts where none was in the dump, and for 39 % where all were. If yours are "
        "texts behind the dump, audit again without them: an attacker has other texts."
    ]


def _about_defences(defences: dict[str, dict[str, Any]]) -> list[str]:
    """Say which of the defences is worth its cost, and what a rotation is worth."""

    def leaks(name: str) -> float:
        return leakage_to_best(defences[name])

    def shortfall(name: str) -> float:
        return max(KEPT - defences[name]["utility"], 0) + max(leaks(name) / bare - LEFT, 0)

    def result(name: str) -> str:
        return (
            f"`{name}` keeps {defences[name]['utility']:.0%} of retrieval, and leaves "
            f"{leaks(name) / bare:.0%} of the leakage to the attacker who knows most."
        )

    if not defences or not (bare := leaks("none")):
        return []
    good = [name for name, row in defences.items() if name != "none" and row["utility"] >= KEPT]
    good = [name for name in good if leaks(name) <= LEFT * bare]
    if good:
        best = min(good, key=leaks)
        said = [f"Worth its cost: {result(best)}"]
    else:
        bar = f"keeps {KEPT:.0%} of retrieval and leaves {LEFT:.0%} or less of the leakage"
        said = [f"No defence that was tried {bar}."]
        if tried := [name for name in defences if name != "none"]:
            said[0] += f" The nearest miss: {result(min(tried, key=shortfall))}"
    if "rotate" in defences and leaks("rotate") > LEFT * bare:
        left = leaks("rotate") / bare
        said.append(f"A secret rotation (`rotate`) is no defence: it leaves {left:.0%} of the leakage.")
    return said


def tables(findings: Findings) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every section. Results of an attack are shown only if it is evidence."""
    tried = [{key.replace("_", " "): value for key, value in asdict(t).items()} for t in findings.tried]
    made = [{"": key, "value": value} for key, value in findings.made.items()]
    out = {"This audit": made, "The dump": [findings.about], "Encoders tried": tried}
    if findings.evidence:
        out |= {"Inferred topics": findings.attributes, "Inverted texts": findings.inversions}
    if findings.defences:
        out["Defences"] = findings.defences
    return out | {"Time": [findings.seconds]}


def shown(value: Any) -> str:
    """Return a value as text, floats with three decimals."""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def picture(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Draw utility against leakage, one point per defence. Upper left is best."""
    with pictures.figure(path, figsize=(6.4, 4.4)) as (_, ax):
        for row in rows:
            at = (row["leakage"], row["utility"])
            colour = pictures.SOURCE if row["defence"] == "none" else pictures.TARGET
            ax.scatter(*at, color=colour, zorder=3)
            ax.annotate(row["defence"], at, xytext=(5, 4), textcoords="offset points", fontsize=8)
        limits = (-0.03, 1.08)
        ax.set(xlabel="leakage that is left", ylabel="retrieval recall@10 kept", xlim=limits, ylim=limits)
        ax.grid(alpha=0.3)
