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

from pipelines.runtime.files import write_text

GLOSSARY = Path("docs/glossary.md")
STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")


def write(path: Path, title: str, markdown: str) -> Path:
    """Write the page as `path` (.html), and its Markdown beside it (.md).

    Pictures are named relative to the page.
    """
    for file, text in ((path.with_suffix(".md"), markdown), (path, rendered(title, markdown, path.parent))):
        write_text(file, text)
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
