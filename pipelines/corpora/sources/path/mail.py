"""E-mails from an mbox file, a Maildir, or a tree of files with one message each, such as the Enron set."""

import mailbox
from collections.abc import Callable, Iterable
from contextlib import closing
from email import message_from_binary_file
from email.message import EmailMessage
from email.policy import EmailPolicy
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.corpora.core.files import printable
from pipelines.corpora.sources.path.formats import shown
from pipelines.runtime.errors import BadInput, cut
from pipelines.runtime.files import of_a_file
from pipelines.runtime.progress import progress

HEADERS = ("date", "from", "to", "subject")
COLUMNS = ("id", "owner", "folder", *HEADERS, "body")
LONGEST = 10_000  # characters of a header that are read: the parser takes a thousand times the memory

Mail = tuple[str, str, str, Callable[[], Any]]  # id, owner, folder, and a function that opens it


class _ShortHeaders(EmailPolicy):
    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:LONGEST])


def mbox(path: Path) -> pl.DataFrame:
    """Return one row per message: id, owner, folder, date, from, to, subject, body, all str.

    The body is the first part of plain text, or else of HTML. What has no header is not a message.
    """
    with closing(mailbox.mbox(str(path), create=False)) as box:
        keys = box.keys()  # a mailbox itself iterates over messages
        return _table(path, ((f"{path.stem}-{key}", "", "", partial(box.get_file, key)) for key in keys))


def tree(folder: Path, files: list[Path]) -> pl.DataFrame:
    """Return the columns of `mbox` for files with a message each. `owner` is the first folder, `folder` the
    rest.
    """
    return _table(folder, (_in_tree(folder, file) for file in files if not file.name.startswith(".")))


def _in_tree(root: Path, file: Path) -> Mail:
    place = file.relative_to(root)
    folders = [part for part in place.parts[:-1] if part not in ("cur", "new", "tmp")]
    return printable(place), folders[0] if folders else "", "/".join(folders[1:]), partial(open, file, "rb")


def _table(path: Path, mails: Iterable[Mail]) -> pl.DataFrame:
    """Read all mails. Those that cannot be parsed are left out; a line counts them and names the first."""
    kept, damaged = [], []
    for name, owner, folder, opened in progress(mails, what=path.name, unit="mails"):
        try:
            with opened() as stream:
                message: Any = message_from_binary_file(stream, policy=_ShortHeaders())
            if len(message):
                headers = (_header(message, header) for header in HEADERS)
                kept.append((name, owner, folder, *headers, _body(message)))
        except Exception as error:
            if not of_a_file(error):
                raise
            damaged.append(name)
    if damaged:
        print(f"{path}: {len(damaged)} mails cannot be read and are left out, the first is {cut(damaged[0])}")
    if not kept:
        raise BadInput(f"{path}: there is no e-mail in it")
    rows = [tuple(text.encode(errors="backslashreplace").decode() for text in row) for row in kept]
    return pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")


def _header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message[name] or "").split())
    except (ValueError, IndexError, AttributeError):  # the parser gives up on some headers of real mail
        return ""


def _body(message: EmailMessage) -> str:
    part: Any = message
    try:
        body: Any = message.get_body(("plain", "html"))
        if body is None:
            return ""
        part = body
        text = str(part.get_content())
    except (LookupError, ValueError, AttributeError, TypeError):  # an unknown charset or content type
        payload = None if part.is_multipart() else part.get_payload(decode=True)
        text = payload.decode("latin-1") if isinstance(payload, bytes) else ""
    return (shown(text) if part.get_content_subtype() == "html" else text).strip()
