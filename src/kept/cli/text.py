"""Text that may stand on a terminal: nothing that steers it, and lines that fit."""

import re
import sys
import unicodedata
from collections.abc import Iterator

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LEAST_CELLS = 20


def printable(text: str) -> str:
    """Return `text` without what could steer the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return `1 message`, `2,000 messages`, `2 entries`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def indented(text: str, indent: str = "    ") -> str:
    """Return `text` with every line indented; for a person, broken between words so that the indent stays whole."""
    if not sys.stdout.isatty():
        return "\n".join(f"{indent}{line}" for line in text.split("\n"))
    from shutil import get_terminal_size

    cells = max(_LEAST_CELLS, get_terminal_size().columns - len(indent) - 1)
    return "\n".join(f"{indent}{part}" for line in text.split("\n") for part in folded(line, cells))


def folded(line: str, cells: int) -> Iterator[str]:
    """Yield a line in parts of at most so many cells, broken after a space where there is one."""
    start = used = 0
    space: int | None = None
    for place, character in enumerate(line):
        width = _cells(character)
        while used + width > cells and place > start:
            cut = space + 1 if space is not None else place
            yield line[start:cut].rstrip(" ")
            start, space = cut, None
            used = sum(_cells(each) for each in line[start:place])
        if character == " ":
            space = place
        used += width
    yield line[start:]


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
