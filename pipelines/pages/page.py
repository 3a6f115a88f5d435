"""Markdown to one HTML file: readable on a phone, opens without a network, its pictures inside."""

from __future__ import annotations

import base64
import html
import os
from pathlib import Path

from markdown_it import MarkdownIt

from pipelines.runtime import store

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:auto;padding:1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:.8rem 0;display:block;overflow-x:auto;font-variant-numeric:tabular-nums}"
    "td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left}th{background:#f3f5f7}"
    "img{max-width:100%}"
    "blockquote{font-size:1.15rem;margin:1rem 0;padding:.6rem 1rem;border-left:6px solid #1b6ca8;background:#f3f5f7}"
)


def write(path: Path, title: str, markdown: str) -> Path:
    """Write the page as `path` (.html) and its Markdown twin (.md). Pictures are named relative to the page. -> path"""
    for file, text in ((path.with_suffix(".md"), markdown), (path, rendered(title, markdown, path.parent))):
        with store.atomic(file) as draft:
            draft.write_text(text)
    return path


def rendered(title: str, markdown: str, folder: Path) -> str:
    """The whole HTML. Tags within the Markdown are shown, never interpreted."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown.replace(" ± ", "\u00a0±\u00a0"))  # a number and its error stay on one line
    for image in (child for token in tokens for child in token.children or () if child.type == "image"):
        data = base64.b64encode(Path(os.path.normpath(folder / str(image.attrs["src"]))).read_bytes()).decode()
        image.attrs["src"] = f"data:image/png;base64,{data}"
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
    head += f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    body = parser.renderer.render(tokens, parser.options, {})
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"
