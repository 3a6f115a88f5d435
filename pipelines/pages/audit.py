"""The page of an audit: one HTML file that opens without a network, and a Markdown twin."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from pipelines.measures.intervals import share
from pipelines.pages import page, pictures
from pipelines.pages.tables import ENOUGH, escaped, table

# A defence is worth its cost if it keeps KEPT of retrieval, and leaves at most LEFT of the leakage.
KEPT, LEFT = 0.9, 0.5
SCALE = "(the scale is: none shown, unknown, high)"
INVERTED = 12  # inverted texts that the page shows
Rows = list[dict[str, Any]]  # of one of the page's tables
Label = Literal["failed", "doubtful", "partial", "aligned"]  # of a verdict, worst first
VERDICTS = get_args(Label)
# The text below each heading
ABOUT = yaml.safe_load(Path(__file__).with_name("audit.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Tried:
    """The result of the attack with one encoder."""

    encoder: str
    known_texts: int
    score: float
    verdict: str  # a Label
    seconds: float
    share: float = 1.0  # of the vectors for which the map is right
    fingerprint_share: float = 0.0  # of the vectors that match its fingerprint, each by itself
    fitted: bool = True  # False: the fingerprint names the encoder
    own_encoder: bool = False  # whether this encoder made the vectors


@dataclass
class Findings:
    """All that the page shows."""

    dump: str
    about: dict[str, Any]
    tried: list[Tried] = field(default_factory=list)
    attributes: Rows = field(default_factory=list)
    inversions: Rows = field(default_factory=list)
    defences: Rows = field(default_factory=list)
    leaks: Rows = field(default_factory=list)  # what was read right, if the truth was given
    made: dict[str, Any] = field(default_factory=dict)  # date, files, settings and versions
    unfinished: str = ""  # the step that was running

    @property
    def best(self) -> Tried:
        """Return the best attempt (`best_of`)."""
        return best_of(self.tried)

    @property
    def named(self) -> tuple[str, float]:
        """Return the encoder that probably made the dump, and the share of the vectors that it made."""
        if own := [one for one in self.tried if one.own_encoder]:
            return best_of(own).encoder, best_of(own).share
        most = max(self.tried, key=lambda one: one.fingerprint_share)
        return most.encoder, most.fingerprint_share

    @property
    def evidence(self) -> bool:
        return self.best.verdict in ("aligned", "partial")


def best_of(tried: Sequence[Tried]) -> Tried:
    """Return the attempt with the best verdict, then with the best score, then with the best fingerprint."""
    return max(tried, key=lambda t: (VERDICTS.index(t.verdict), t.score, t.fingerprint_share))


def write(findings: Findings, folder: Path, stem: str) -> Path:
    """Write `stem`.html, `stem`.md and two pictures. Return the path of the HTML."""
    title = f"Audit of {findings.dump}"
    verdict = conclusion(findings, escaped(findings.best.encoder))
    markdown = [f"# {escaped(title)}", "", f"> {verdict}", "", "## What to do", ""]
    if findings.unfinished:
        markdown += [escaped(unfinished_line(findings)), ""]
    markdown += [f"- {line}" for line in advice(findings)] + [""]
    of_leaks, of_defences = picture_paths(folder, stem)
    if leaks := countable(findings.leaks):
        leak_picture(of_leaks, leaks)
        markdown.append(f"![what leaks, and its floor]({of_leaks.name})")
    if findings.defences:
        defence_picture(of_defences, findings.defences)
        markdown.append(f"![what each defence keeps and leaves]({of_defences.name})")
    for heading, rows in tables(findings).items():
        markdown += ["", f"## {heading}", "", ABOUT[heading], ""]
        cells = [[escaped(formatted(value)) for value in row.values()] for row in rows]
        missing = "not reached" if findings.unfinished else "none"
        markdown += table(list(rows[0]), cells) if rows else [missing]
    return page.write(folder / f"{stem}.html", title, "\n".join(markdown) + "\n")


def remove(folder: Path, stem: str) -> None:
    """Remove the files of a page, and the `.json` beside it, if they exist."""
    for suffix in (".html", ".md", ".json"):
        (folder / f"{stem}{suffix}").unlink(missing_ok=True)
    for picture in picture_paths(folder, stem):
        picture.unlink(missing_ok=True)


def picture_paths(folder: Path, stem: str) -> tuple[Path, Path]:
    """Return where a page has its pictures: of leaks, and of defences."""
    name = hashlib.sha256(stem.encode()).hexdigest()[:12]  # a dump's name may hold what a link cannot
    return folder / f"{name}-leaks.png", folder / f"{name}.png"


def unfinished_line(findings: Findings) -> str:
    return f"The audit has not finished: it was in the step {findings.unfinished}."


def conclusion(findings: Findings, encoder: str) -> str:
    """Return the verdict in a few sentences. encoder: the name of the best, as it is to be written."""
    best = findings.best
    if findings.evidence:
        return (
            f"Verdict: {best.verdict} with {encoder} (score {best.score:.2f}), for {best.share:.0%} of the "
            "vectors. An attacker can map them into the space of this encoder. What he reads there also "
            "depends on his texts (`--texts`): if they are unlike those behind the dump, topics and inverted "
            "texts say nothing about the dump."
        )
    if best.verdict == "doubtful":
        return (
            f"Verdict: doubtful (best: {encoder}, score {best.score:.2f}). No leak is claimed. "
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
            f"Severity: high {SCALE}. Handle these vectors like their texts: with the same access rules, "
            "encryption and deletion. What can be linked to a person by means that are likely to be used is "
            "personal data (GDPR, recital 26).",
            *_about_leaks(findings),
            *_about_defences({row["defence"]: row for row in findings.defences}),
        ]
    if findings.best.verdict == "doubtful":
        severity = f"unknown {SCALE}. Handle the vectors like their texts until an audit says otherwise."
    else:
        severity = (
            f"none shown {SCALE}. This is no proof of safety: an attacker with known pairs, or with the "
            "encoder itself, may read them."
        )
    said = [f"Severity: {severity}"]
    if (used := findings.about["used"]) < ENOUGH:
        said.append(
            f"The attack saw {used:,} vectors. With {ENOUGH:,} it reads more: audit again with more vectors, "
            "and with texts as close as possible to those behind the dump."
        )
    return said


def countable(leaks: Rows) -> Rows:
    """Return the rows that count anything: true texts may state no facts."""
    return [row for row in leaks if row["of"]]


def _about_leaks(findings: Findings) -> list[str]:
    """Say what leaks in one line, or how to measure it."""
    if findings.unfinished and not findings.leaks:
        return []
    if not findings.leaks:
        if findings.made.get("truth", "none") != "none":
            return ["`--truth` has no text of the vectors that were read, so nothing was compared with it."]
        return ["Give `--truth`, the texts behind the dump, to measure how much of what was read is right."]
    texts, *others = (
        f"{r['found'] / r['of']:.0%} ({r['floor'] / r['of']:.0%}) of the {r['what']}"
        for r in countable(findings.leaks)
    )
    return [
        f"The attack matches {texts} to their vectors, and reads {' and '.join(others)} right. "
        "In brackets: what is right without a vector."
    ]


def leakage_to_best(row: dict[str, Any]) -> float:
    """Return what a defence leaves to the attacker who knows most."""
    return max(v for k, v in row.items() if k == "leakage" or k.endswith(" pairs"))


def _about_defences(defences: dict[str, dict[str, Any]]) -> list[str]:
    """Say which of the defences is worth its cost, and what a rotation is worth."""
    leaks = {name: leakage_to_best(row) for name, row in defences.items()}
    if not leaks.get("none"):
        return []
    # Shares of the undefended vectors' leakage
    left = {name: leak / leaks["none"] for name, leak in leaks.items()}
    kept = {name: row["recall"] for name, row in defences.items()}
    misses = {  # by how much each falls short
        name: max(KEPT - kept[name], 0) + max(left[name] - LEFT, 0) for name in left if name != "none"
    }
    said = []
    if left.get("rotate", 0) > LEFT:
        del misses["rotate"]
        pairs = leaks["rotate"] > defences["rotate"]["leakage"]
        to = " to an attacker who knows some undefended vectors (*pairs*)" if pairs else ""
        lead = "A secret rotation (`rotate`) is no defence: it leaves"
        said.append(f"{lead} {left['rotate']:.1%} of the leakage{to}.")
    if misses:
        best = min(misses, key=lambda name: (misses[name], left[name]))
        bar = f"keeps {KEPT:.0%} of retrieval and leaves {LEFT:.0%} or less of the leakage"
        lead = f"No defence that was tried {bar}. The nearest miss:" if misses[best] else "Worth its cost:"
        said.append(
            f"{lead} `{best}` keeps {kept[best]:.1%} of retrieval, and leaves {left[best]:.1%} of the "
            "leakage to the attacker who knows most."
        )
    return said


def tables(findings: Findings) -> dict[str, Rows]:
    """Return the rows of every section. Results of an attack are shown only if it is evidence."""
    tried = [{key.replace("_", " "): value for key, value in asdict(t).items()} for t in findings.tried]
    made = [{"": key, "value": value} for key, value in findings.made.items()]
    out = {"The dump": [findings.about], "Encoders tried": tried}
    if findings.evidence:
        out |= {"What is right": findings.leaks} if findings.leaks else {}
        out |= {"Inferred topics": findings.attributes, "Inverted texts": findings.inversions[:INVERTED]}
    if findings.defences:
        out["Defences"] = findings.defences
    return out | {"This audit": made}


def formatted(value: Any) -> str:
    """Return a value as text, floats with three decimals."""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def leak_picture(path: Path, leaks: Rows) -> None:
    """Draw what was read right, each share above its floor."""
    shares = {}
    for row in leaks:
        shares[row["what"]] = share(row["found"], row["of"])
        shares[f"floor of {row['what']}"] = share(row["floor"], row["of"])
    floors = tuple(shares)[1::2]
    pictures.bars(path, shares, "right of what was read; grey: without a vector", floors)


def defence_picture(path: Path, rows: Rows) -> None:
    """Draw the retrieval that each defence keeps above the leakage that it leaves, best first."""
    order = sorted(rows, key=lambda row: leakage_to_best(row) - row["recall"])
    places = range(len(order))
    with pictures.figure(path, figsize=(6.4, 1 + 0.42 * len(order))) as (_, ax):
        kept, left = [row["recall"] for row in order], [leakage_to_best(row) for row in order]
        ax.barh([y - 0.2 for y in places], kept, 0.36, color=pictures.TARGET, label="recall")
        ax.barh([y + 0.2 for y in places], left, 0.36, color=pictures.SOURCE, label="leakage")
        ax.set_yticks(list(places), [row["defence"] for row in order])
        ax.invert_yaxis()
        ax.set(xlim=(0, 1.02), xlabel="share")
        ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, fontsize=8)
        ax.spines[["top", "right"]].set_visible(False)
