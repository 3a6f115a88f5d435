"""E-mails from an mbox file, a Maildir, or a tree of files with one message each (as the Enron set is published)."""

from __future__ import annotations

import email
import email.policy
import mailbox
import re
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import polars as pl

from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading
from pipelines.runtime.progress import progress

COLUMNS = ("id", "owner", "folder", "date", "from", "to", "subject", "body")
_PARSE = email.message_from_binary_file


def read(path: Path) -> pl.DataFrame:
    """One row per message: id, owner, folder, date, from, to, subject, body, all str.

    In a tree, `owner` is the first folder and `folder` the rest of the way; the body is the first part of plain text.
    A file without any header is not a message and is skipped.
    """
    messages = _mbox(path) if path.is_file() else _tree(path)
    with reading(path, "cannot be read as e-mail"):
        kept = [_row(*m) for m in progress(messages, what=path.name, unit="mails") if len(m[3])]
    if not kept:
        raise BadInput(f"{path}: there is no e-mail in it")
    return pl.DataFrame(kept, schema={c: pl.String for c in COLUMNS}, orient="row")


def _mbox(path: Path) -> Iterator[tuple[str, str, str, EmailMessage]]:
    box = mailbox.mbox(str(path), factory=_message, create=False)  # type: ignore[arg-type]
    for key in box.keys():  # noqa: SIM118 - a mailbox iterates over messages, not keys
        yield f"{path.stem}-{key}", "", "", box[key]  # type: ignore[misc]


def _tree(path: Path) -> Iterator[tuple[str, str, str, EmailMessage]]:
    for file in sorted(f for f in path.rglob("*") if f.is_file() and not f.name.startswith(".")):
        way = file.relative_to(path)
        folders = [part for part in way.parts[:-1] if part not in ("cur", "new", "tmp")]
        with open(file, "rb") as stream:
            yield way.as_posix(), folders[0] if folders else "", "/".join(folders[1:]), _message(stream)


def _message(stream) -> EmailMessage:
    return _PARSE(stream, policy=email.policy.default)  # type: ignore[return-value]


def _row(key: str, owner: str, folder: str, message: EmailMessage) -> tuple[str, ...]:
    head = [_header(message, name) for name in ("date", "from", "to", "subject")]
    return tuple(
        text.encode(errors="backslashreplace").decode()
        for text in (key, owner, folder, *head, _body(message))
    )


def _header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message[name] or "").split())
    except (ValueError, IndexError, AttributeError):  # the parser gives up on some headers of real mail
        return ""


def _body(message: EmailMessage) -> str:
    try:
        part = message.get_body(("plain", "html"))
        text = part.get_content() if part is not None else ""
    except (LookupError, ValueError, AttributeError, TypeError):  # an unknown charset or content type
        payload = message.get_payload(decode=True) if not message.is_multipart() else None
        part, text = None, payload.decode("latin-1") if isinstance(payload, bytes) else ""
    if part is not None and part.get_content_subtype() == "html":
        text = re.sub(r"<[^>]+>", " ", text)
    return str(text).strip()
