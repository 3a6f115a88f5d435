"""Render Markdown to one HTML file, which opens without a network and contains its pictures."""

import base64
import html
import os
import re
from functools import partial
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pipelines.runtime import store

GLOSSARY = Path("docs/glossary.md")
STYLE = """
:root{color-scheme:light dark;--ink:#222;--soft:#555;--line:#ccc;--head:#f3f5f7;--page:#fff;--accent:#1b6ca8}
@media(prefers-color-scheme:dark){
:root{--ink:#ddd;--soft:#aaa;--line:#444;--head:#262b31;--page:#16191d;--accent:#6db3ea}img{filter:brightness(.85)}}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:auto;padding:1rem;overflow-wrap:anywhere}
body{color:var(--ink);background:var(--page)}a{color:var(--accent)}
div.table{overflow-x:auto;margin:.8rem 0}pre{white-space:pre-wrap}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;overflow-wrap:normal}
td,th{border:1px solid var(--line);padding:.25rem .6rem;text-align:left}th{background:var(--head)}
td{max-width:24rem}
img{max-width:100%;max-height:32rem;background:#fff}
@media(min-width:48rem){p:has(img+img){display:grid;grid-template-columns:1fr 1fr;column-gap:1rem}}
/* the report's findings: number, claim, small print, picture */
body>ol{list-style:none;padding:0;counter-reset:n}
body>ol>li{counter-increment:n;border-top:1px solid var(--line);padding:.6rem 0}
body>ol>li::before{content:counter(n);font-size:1.6rem;color:var(--accent)}
body>ol>li>p{margin:.3rem 0}body>ol>li>p+p{color:var(--soft);font-size:.9rem}body>ol>li img{max-height:15rem}
@media(min-width:48rem){
body>ol>li{display:grid;grid-template-columns:1.2rem 1fr 24rem;column-gap:1.2rem}
body>ol>li::before{grid-row:1/span 3}body>ol>li>p{grid-column:2}
body>ol>li>p:has(img){grid-column:3;grid-row:1/span 3}}
/* on paper no column is cut, and a picture stays with what stands before it */
@page{size:A4;margin:14mm}
@media print{
:root{color-scheme:light;--ink:#000;--soft:#333;--line:#999;--head:#eee;--page:#fff;--accent:#1b6ca8}
body{font-size:10pt;max-width:none;padding:0}img{filter:none;max-height:9cm}
div.table{overflow:visible;break-inside:avoid}table{width:100%;font-size:6.5pt}td,th{padding:1pt 2pt}
td{overflow-wrap:anywhere}
h1,h2,h3{break-after:avoid}tr,li,img{break-inside:avoid}p:has(img){break-before:avoid;break-inside:avoid}}
"""


def write(path: Path, title: str, markdown: str) -> Path:
    """Write the page as `path` (.html), and its Markdown beside it (.md).

    Pictures are named relative to the page.
    """
    for file, text in ((path.with_suffix(".md"), markdown), (path, rendered(title, markdown, path.parent))):
        with store.atomic(file) as draft:
            draft.write_text(text, encoding="utf-8")
    return path


def rendered(title: str, markdown: str, folder: Path) -> str:
    """Return the whole HTML. Tags in the Markdown are shown as text; headings have their `slug` as anchor."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    together = re.sub(r"(?<=\d) (?=%)", "\u00a0", markdown.replace(" ± ", "\u00a0±\u00a0"))  # on one line
    tokens = parser.parse(together)
    for image in (child for token in tokens for child in token.children or () if child.type == "image"):
        embed(image, folder)
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", slug(inline.content))
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
    head += f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", "<div class='table'><table>").replace("</table>", "</table></div>")
    glossary = GLOSSARY.read_text(encoding="utf-8") if GLOSSARY.is_file() else ""
    body = re.sub("<th>([^<]+)</th>", partial(defined, glossary, folder), body)
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"


def defined(glossary: str, folder: Path, title: re.Match) -> str:
    """Link a column's title, on a page of the folder, to its definition in the glossary if it has one.

    glossary: its text.
    """
    text = title[1]
    if f"\n## {text}\n" in glossary:
        text = f"<a href='{os.path.relpath(GLOSSARY, folder)}#{slug(text)}'>{text}</a>"
    return f"<th>{text}</th>"


def embed(image: Token, folder: Path) -> None:
    """Put a picture below the page's folder into the page. Anything else becomes its own description."""
    path = (folder / str(image.attrs["src"])).resolve()
    if path.is_relative_to(folder.resolve()) and path.is_file():
        image.attrs["src"] = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    else:
        image.type, image.tag = "text", ""


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub does: lower case, hyphens for spaces, no punctuation but -
    and _.
    """
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")
