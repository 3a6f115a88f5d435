"""The audit's page: one HTML file that opens without a network, and a Markdown twin."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

from pipelines import store

if TYPE_CHECKING:
    from pipelines.audit import Findings

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;display:block;overflow-x:auto}"
    "td,th{border:1px solid #bbb;padding:.3rem .6rem;text-align:left}"
    "img{max-width:100%}.verdict{font-size:1.2rem;padding:.8rem;border-left:6px solid #b00}.clear{border-color:#1b6ca8}"
)
Table = tuple[str, str, list[dict[str, Any]]]  # heading, explanation, rows


def conclusion(found: Findings) -> str:
    """The one sentence that is to be read if nothing else is."""
    best = found.best
    if found.evidence:
        return (
            f"Verdict: aligned with {best.known.encoder} (score {best.verdict.score:.2f}). These vectors can be read "
            "by somebody who has nothing but them and texts of his own: what follows is what he reads."
        )
    if best.verdict.word == "doubtful":
        return (
            f"Verdict: doubtful (best: {best.known.encoder}, score {best.verdict.score:.2f}). No leak is claimed: "
            "with more vectors, or texts nearer to those behind the dump, the attack may yet work."
        )
    return (
        f"Verdict: failed: no evidence of leakage by this attack (best score {best.verdict.score:.2f}). "
        "Another attack, or known pairs, may still work."
    )


def tables(found: Findings) -> list[Table]:
    """Every table of the page; of the attack's results only where the verdict is `aligned`."""
    tried = [
        {"encoder": a.known.encoder, "known texts": len(a.known.texts)}
        | {"score": a.verdict.score, "verdict": a.verdict.word, "seconds": a.seconds}
        for a in found.attempts
    ]
    out: list[Table] = [
        ("The dump", "", [found.about]),
        (
            "Encoders tried",
            "Each: the dump's vectors mapped to this encoder without a single pair; the verdict uses unpaired data only.",
            tried,
        ),
    ]
    if found.evidence:
        out += [
            ("Inferred topics", "The label nearest to each translated vector; no label was known.", found.attributes),
            (
                "Inverted texts",
                "What the inverter writes for a vector, and the nearest of the attacker's own texts. Guesses, not quotations.",
                found.inversions,
            ),
            (
                "Defences",
                "utility: of the 10 nearest neighbours, the share that is kept. leakage: what a fresh attack on the "
                "defended vectors still agrees on with the attack on the bare ones, 0 by chance; "
                "`none` is the same attack with another seed.",
                found.defences,
            ),
        ]
    return [*out, ("Time", "Seconds.", [found.seconds])]


def write(found: Findings, folder: Path, stem: str) -> Path:
    """Write `stem`.html and `stem`.md; returns the first."""
    shown, said = tables(found), conclusion(found)
    markdown = [f"# Audit of {found.dump}", "", f"**{said}**"]
    page = [f"<p class='verdict{'' if found.evidence else ' clear'}'>{html.escape(said)}</p>"]
    for heading, about, rows in shown:
        markdown += ["", f"## {heading}", "", *([about, ""] if about else []), *_markdown(rows)]
        page += [f"<h2>{heading}</h2>", f"<p>{html.escape(about)}</p>", _html(rows)]
        if heading == "Defences":
            image = base64.b64encode(picture(rows)).decode()
            page.append(f"<img alt='utility against leakage' src='data:image/png;base64,{image}'>")
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
    head += f"<title>Audit of {html.escape(found.dump)}</title>"
    body = f"<h1>Audit of {html.escape(found.dump)}</h1>" + "\n".join(page)
    for suffix, text in (
        ("html", f"<!doctype html><html lang='en'><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>\n"),
        ("md", "\n".join(markdown) + "\n"),
    ):
        with store.atomic(folder / f"{stem}.{suffix}") as draft:
            draft.write_text(text)
    return folder / f"{stem}.html"


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _markdown(rows: Sequence[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["none"]
    cells = [[_cell(v).replace("|", "\\|").replace("\n", " ") for v in row.values()] for row in rows]
    return [f"| {' | '.join(rows[0])} |", "|" + "---|" * len(rows[0]), *(f"| {' | '.join(c)} |" for c in cells)]


def _html(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{html.escape(k)}</th>" for k in rows[0])
    lines = ("<tr>" + "".join(f"<td>{html.escape(_cell(v))}</td>" for v in row.values()) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def picture(rows: Sequence[dict[str, Any]]) -> bytes:
    """Utility against leakage, one point per defence: the upper left corner is where an owner wants to be."""
    fig, ax = plt.subplots(layout="constrained", dpi=120, figsize=(6.4, 4.4))
    for row in rows:
        ax.scatter(row["leakage"], row["utility"], color="#1b6ca8" if row["defence"] != "none" else "#d95f02", zorder=3)
        ax.annotate(row["defence"], (row["leakage"], row["utility"]), xytext=(5, 4), textcoords="offset points", fontsize=8)
    ax.set(xlabel="leakage that is left", ylabel="retrieval recall@10 kept", xlim=(-0.03, 1.08), ylim=(-0.03, 1.08))
    ax.grid(alpha=0.3)
    out = io.BytesIO()
    fig.savefig(out, format="png", metadata={"Software": None})
    plt.close(fig)
    return out.getvalue()
