"""Markdown to one HTML file: readable on a phone, opens without a network, its pictures inside."""

from __future__ import annotations

import base64
import html
import os
import re
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

from pipelines.runtime import store

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:auto;padding:1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:.8rem 0;display:block;overflow-x:auto;font-variant-numeric:tabular-nums}"
    "td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left}th{background:#f3f5f7}"
    "img{max-width:100%}"
    # the report's findings: a number, the claim, what belongs to it in small, the picture
    "body>ol{list-style:none;padding:0;counter-reset:n}body>ol>li{counter-increment:n;border-top:1px solid #ccc;padding:.6rem 0}"
    "body>ol>li::before{content:counter(n);font-size:1.6rem;color:#1b6ca8}"
    "body>ol>li>p{margin:.3rem 0}body>ol>li>p+p{color:#555;font-size:.9rem}body>ol>li img{max-height:15rem}"
    "@media(min-width:48rem){body>ol>li{display:grid;grid-template-columns:1.2rem 1fr 24rem;column-gap:1.2rem}"
    "body>ol>li::before{grid-row:1/span 3}body>ol>li>p{grid-column:2}body>ol>li>p:has(img){grid-column:3;grid-row:1/span 3}}"
)


def write(path: Path, title: str, markdown: str) -> Path:
    """Write the page as `path` (.html) and its Markdown twin (.md). Pictures are named relative to the page. -> path"""
    for file, text in ((path.with_suffix(".md"), markdown), (path, rendered(title, markdown, path.parent))):
        with store.atomic(file) as draft:
            draft.write_text(text)
    return path


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it: lower case, spaces to hyphens, letters, digits, hyphens and _ alone."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def rendered(title: str, markdown: str, folder: Path) -> str:
    """The whole HTML. Tags within the Markdown are shown, never interpreted; headings can be linked to by their `slug`."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    together = re.sub(
        r"(?<=\d) (?=%)", "\u00a0", markdown.replace(" ± ", "\u00a0±\u00a0")
    )  # a number, its unit, its error
    tokens = parser.parse(together)
    for image in (child for token in tokens for child in token.children or () if child.type == "image"):
        data = base64.b64encode(
            Path(os.path.normpath(folder / str(image.attrs["src"]))).read_bytes()
        ).decode()
        image.attrs["src"] = f"data:image/png;base64,{data}"
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", slug(inline.content))
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
    head += f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    body = parser.renderer.render(tokens, parser.options, {})
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"
