"""Read a document as text: txt, md, html; pdf and docx with the packages of the extra [documents]."""

import html
import re
from pathlib import Path

from pipelines.corpora.core.files import quiet
from pipelines.runtime.errors import BadInput

PACKAGES = {".pdf": "pypdf", ".docx": "python-docx"}
SUFFIXES = (".txt", ".md", ".markdown", ".html", ".htm", *PACKAGES)
UNSHOWN = [("<!--", "-->"), *((rf"<{tag}\b", rf"</{tag}\s*>") for tag in ("script", "style", "template"))]
BLOCKS = "p|div|br|li|tr|h[1-6]|section|article|title|hr|dl|dt|dd|blockquote|pre"
BLOCK, CELL = (re.compile(rf"</?(?:{tags})\b[^>]*>", re.I) for tags in (BLOCKS, "td|th"))
TAG = re.compile(r"</?[a-z!][^>]*>", re.I)


def text(path: Path) -> str:
    """Return the text of a document. Raises BadInput, which names the file, and a missing package."""
    suffix = path.suffix.lower()
    if suffix not in PACKAGES:
        try:
            plain = path.read_text("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadInput(f"{path}: not UTF-8: byte {error.start}") from None
        return shown(plain) if suffix in (".html", ".htm") else plain
    with quiet(path, f"cannot be read as {suffix[1:]}"):
        try:
            return _pdf(path) if suffix == ".pdf" else _docx(path)
        except ModuleNotFoundError:
            hint = f"the package {PACKAGES[suffix]}: pip install 'universal-geometry[documents]'"
            raise BadInput(f"{path}: {suffix[1:]} files need {hint}") from None


def _pdf(path: Path) -> str:
    import pypdf  # pyright: ignore[reportMissingImports]

    return "\n\n".join(page.extract_text() for page in pypdf.PdfReader(path).pages)


def _docx(path: Path) -> str:
    import docx  # pyright: ignore[reportMissingImports]

    return "\n\n".join(paragraph.text for paragraph in docx.Document(str(path)).paragraphs)


def shown(page: str) -> str:
    """Return what a browser shows of a page, in linear time.

    Blocks have a blank line between them, and cells of a table a space.
    """
    for begin, end in UNSHOWN:
        page = re.sub(rf"(?is){begin}.*?(?:{end}|\Z)", "", page)
    last = page.rfind(">") + 1  # no tag ends later
    text = TAG.sub("", CELL.sub(" ", BLOCK.sub("\n\n", page[:last]))) + page[last:]
    lines = (" ".join(line.split()) for line in html.unescape(text).split("\n\n"))
    return "\n\n".join(line for line in lines if line)
