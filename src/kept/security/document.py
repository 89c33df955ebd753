"""The part of TOML that rules.toml is written in, read quickly."""

import re
from dataclasses import dataclass
from typing import Final

from kept.core.errors import Unreadable

_STATEMENT: Final = re.compile(
    r"""(?mx)
    ^(?:\#[^\n]*)?$                                   # a comment, or nothing
    | ^\[\[(?P<row>\w+)\]\]$
    | ^\[(?P<section>\w+)\]$
    | ^(?P<key>\w+)\ =\ (?:'''\n?(?P<long>(?s:.)*?)'''|'(?P<short>[^'\n]*)'|(?P<number>-?\d+))$
    """,
)


@dataclass(frozen=True, slots=True)
class Document:
    """What a rule file holds: its own keys, the word classes, and the rows."""

    top: dict[str, str]
    words: dict[str, str]
    rules: list[dict[str, str]]


def parsed(source: str) -> Document:
    """Return the document that `source` writes: literal strings, whole numbers, one level of sections."""
    document = Document({}, {}, [])
    target, end = document.top, 0
    for statement in _STATEMENT.finditer(source):
        if source[end : statement.start()].strip():
            break
        end = statement.end()
        key = statement["key"]
        if key is not None:
            values = (statement["long"], statement["short"], statement["number"])
            target[key] = next(value for value in values if value is not None)
        elif statement["row"]:
            target = {}
            document.rules.append(target)
        elif statement["section"]:
            target = document.words
    if source[end:].strip():
        line = source.count("\n", 0, end) + 1
        raise Unreadable(f"rules.toml cannot be read after line {line}")
    return document
