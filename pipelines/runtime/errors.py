"""The exception for bad input, and names of other people's files in its message."""

import re
from collections.abc import Iterable

_NAME = re.compile(r"(?!(?:.*\d){5})[^\W\d][\w.-]{0,31}")


class BadInput(Exception):
    """The input is at fault, not the code: one line says what is wrong and where.

    A stage prints it and exits with 2.
    """


def listed(names: Iterable[object], most: int = 20) -> str:
    """Return the names of columns for a message: at most `most`, and only what looks like a name.

    Where a file has no header its "names" are data, perhaps private.
    """
    every = [str(name) for name in names]
    shown = [name for name in every if _NAME.fullmatch(name)][:most]
    if more := len(every) - len(shown):
        shown.append(f"{more} more" if shown else f"{more}, whose names look like data")
    return ", ".join(shown) or "none"


def cut(name: object, length: int = 40) -> str:
    """Return a foreign name for a message: control characters escaped, no longer than `length`."""
    text = str(name)
    if not text.isprintable():
        text = text.encode("unicode_escape", "backslashreplace").decode()
    return text if len(text) <= length else text[: length - 3] + "..."
