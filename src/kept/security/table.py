"""The rule table as it is read from rules.toml, its patterns compiled on first need."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TypedDict, cast

from kept.security.skeleton import Lexicon, Structure, split_part


class Severity(StrEnum):
    """What a match means: an attack, or something for a person to look at."""

    BLOCK = "block"
    HOLD = "hold"


class Scope(StrEnum):
    """Where a text is going; orders to the assistant are normal in some places."""

    MEMORY = "memory"
    CONTEXT = "context"
    SKILL = "skill"


class TextPattern:
    """A regular expression that runs only where one of its literal anchors occurs."""

    def __init__(self, source: str) -> None:
        """Keep `source`; nothing is compiled yet."""
        self.source = source
        self._regex: re.Pattern[str] | None = None

    def matches(self, text: str) -> bool:
        """Tell whether the expression is found in `text`."""
        if self._regex is None:
            self._regex = re.compile(self.source)
        return self._regex.search(text) is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    id: str
    category: str
    severity: Severity | None
    """None for a signal, which only adds its weight."""
    weight: int
    scopes: frozenset[Scope]
    structures: tuple[Structure, ...]
    anchors: tuple[str, ...]
    texts: tuple[TextPattern, ...]
    positive: str = field(repr=False)
    negative: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Table:
    """All rules, with the lexicon that their structures are written in."""

    rules: tuple[Rule, ...]
    lexicon: Lexicon
    translations: tuple[tuple[str, str], ...]
    """Words of scripts without spaces, longest first, and the English words they stand for."""


class _Row(TypedDict, total=False):
    id: str
    category: str
    severity: str
    weight: int
    scope: str
    words: str
    anchors: str
    text: str
    positive: str
    negative: str


@cache
def table() -> Table:
    """Return the shipped table; read once per process."""
    source = files("kept.security").joinpath("rules.toml").read_text(encoding="utf-8")
    return parsed(tomllib.loads(source))


def parsed(data: Mapping[str, object]) -> Table:
    """Return the table of one parsed TOML document."""
    rows = cast("list[_Row]", data["rule"])
    classes = {name: words.split() for name, words in cast("dict[str, str]", data["words"]).items()}
    for row in rows:
        for part in row.get("words", "").split():
            _, literal = split_part(part)
            if literal:
                classes[literal] = literal[1:].split("|")
    lexicon = Lexicon(classes)
    pairs = (line.split(None, 1) for line in cast("str", data["translations"]).strip().splitlines())
    translations = sorted(((a, b) for a, b in pairs), key=lambda pair: -len(pair[0]))
    return Table(tuple(_rule(row, lexicon) for row in rows), lexicon, tuple(translations))


def _rule(row: _Row, lexicon: Lexicon) -> Rule:
    severity = row.get("severity")
    return Rule(
        id=row["id"],
        category=row["category"],
        severity=None if severity is None else Severity(severity),
        weight=row.get("weight", 0),
        scopes=frozenset(map(Scope, row.get("scope", "memory context skill").split())),
        structures=tuple(Structure(line, lexicon) for line in row.get("words", "").strip().splitlines()),
        anchors=tuple(row.get("anchors", "").split()),
        texts=tuple(map(TextPattern, row.get("text", "").strip().splitlines())),
        positive=row["positive"],
        negative=row["negative"],
    )
