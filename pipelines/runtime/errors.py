"""BadInput, and how its message quotes foreign names and errors."""

import re
from collections.abc import Iterable

MOST = 20  # names in a message
_NAME = re.compile(r"(?!(?:.*\d){5})[^\W\d][\w.-]{0,31}")


class BadInput(Exception):
    """The input is at fault, not the code: one line says what is wrong and where.

    A stage prints it and exits with 2.
    """


def listed(names: Iterable[object]) -> str:
    """Return the names of columns for a message: at most MOST, and only what looks like a name.

    Where a file has no header its "names" are data, perhaps private.
    """
    every = [str(name) for name in names]
    shown = [name for name in every if _NAME.fullmatch(name)][:MOST]
    if more := len(every) - len(shown):
        data = f"{more}, whose names look like data"
        if more == 1:
            data = "1 column, not shown because its name looks like data (is the separator `;`?)"
        shown.append(f"{more} more" if shown else data)
    return ", ".join(shown) or "none"


def message(error: BaseException, length: int = 2000) -> str:
    """Return an error's message in one line, no longer than `length`; its type if it has no message."""
    return " ".join(str(error).split())[:length] or type(error).__name__


def cut(name: object, length: int = 40) -> str:
    """Return a foreign name for a message: control characters escaped, no longer than `length`."""
    text = str(name)
    if not text.isprintable():
        text = text.encode("unicode_escape", "backslashreplace").decode()
    return text if len(text) <= length else text[: length - 3] + "..."
