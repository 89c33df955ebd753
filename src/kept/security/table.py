"""The rule table as it is read from rules.toml, its patterns compiled on first need."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TypedDict, cast

from kept.core.resources import shipped_text
from kept.security.skeleton import Lexicon, Structure, split_part

_LITERALS = "="
_RARE_FIRST = "_/-qzjxkvbwypgfmucdlhrsnioate. "
"""Characters from rare to common in prose; those not named are rarer still."""
_REACH = 400
"""No expression looks further than this from its anchor."""
_DENSE = 4_096
"""A longer stretch has an anchor in nearly every line; no note looks so."""
_LONGEST_STRETCH = 6_000
_DENSE_STRETCHES = 4
"""More of them flood the text; so the time of an expression is bounded, whatever the text."""


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
    """A regular expression that runs only near one of its literal anchors."""

    def __init__(self, line: str) -> None:
        """Read `anchor~anchor :: expression`; nothing is compiled yet."""
        anchors, _, self.source = line.partition(" :: ")
        self.anchors = anchors.split("~")
        self._regex: re.Pattern[str] | None = None
        self._within_line = "[^\\n" in self.source

    def matches(self, text: str, present: frozenset[str]) -> bool | None:
        """Tell whether the expression is found near the anchors that are `present` in `text`.

        None: the anchors flood the text, so that not all of it was tried.
        """
        if present.isdisjoint(self.anchors):
            return False
        if self._regex is None:
            self._regex = re.compile(self.source)
        dense = 0
        anchors = [anchor for anchor in self.anchors if anchor in present]
        for start, end in _near(text, anchors, within_line=self._within_line):
            dense += end - start > _DENSE
            if dense > _DENSE_STRETCHES:
                return None
            if self._regex.search(text, start, end) is not None:
                return True
        return False


def _near(text: str, anchors: list[str], *, within_line: bool) -> Iterator[tuple[int, int]]:
    """Yield the stretches of text around the anchors, those that overlap as one."""
    for anchor in anchors:
        place = text.find(anchor)
        start, end = _stretch(text, place, within_line=within_line)
        while place >= 0:
            first, last = _stretch(text, place, within_line=within_line)
            if first > end or end - start > _LONGEST_STRETCH:
                yield start, end
                start = first
            end = last
            place = text.find(anchor, place + len(anchor))
        yield start, end


def _stretch(text: str, place: int, *, within_line: bool) -> tuple[int, int]:
    """Return what an expression may see from `place`: its line with both ends, or all within reach."""
    start, end = max(0, place - _REACH), place + _REACH
    if within_line:
        start = max(start, text.rfind("\n", start, place))
        line_end = text.find("\n", place, end)
        end = end if line_end < 0 else line_end + 1
    return start, end


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
    texts: tuple[TextPattern, ...]
    positive: str = field(repr=False)
    negative: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Table:
    """All rules, with the lexicon that their structures are written in."""

    rules: tuple[Rule, ...]
    structures: tuple[tuple[int, Structure, str], ...]
    """Every structure: what a text must hold for it, and the id of its rule."""
    keyed: Mapping[Scope, Mapping[str, frozenset[int]]]
    """The places in `structures` of those of each scope, under the characters of their keys."""
    lexicon: Lexicon
    anchors: Mapping[str, tuple[str, ...]]
    """Every anchor of the expressions, under its rarest character."""
    translations: tuple[tuple[str, str], ...]
    """Words of scripts without spaces, longest first, and the English words they stand for."""

    def anchors_in(self, folded: str) -> frozenset[str]:
        """Return the anchors that occur in `folded` text."""
        near = (group for char, group in self.anchors.items() if char in folded)
        return frozenset(anchor for group in near for anchor in group if anchor in folded)


class _Row(TypedDict, total=False):
    id: str
    category: str
    severity: str
    weight: int
    scope: str
    words: str
    text: str
    positive: str
    negative: str


@cache
def table() -> Table:
    """Return the shipped table; read once per process."""
    source = shipped_text("kept.security", "rules.toml")
    return parsed(tomllib.loads(source))


def parsed(data: Mapping[str, object]) -> Table:
    """Return the table of one parsed TOML document."""
    rows = cast("list[_Row]", data["rule"])
    classes = {name: words.split() for name, words in cast("dict[str, str]", data["words"]).items()}
    literals = {part for row in rows for part in row.get("words", "").split() if "=" in part}
    classes[_LITERALS] = [word for part in literals for word in split_part(part)[1]]
    lexicon = Lexicon(classes)
    pairs = (line.split(None, 1) for line in cast("str", data["translations"]).strip().splitlines())
    translations = sorted(((a, b) for a, b in pairs), key=lambda pair: -len(pair[0]))
    rules = tuple(_rule(row, lexicon) for row in rows)
    anchors = {anchor for rule in rules for pattern in rule.texts for anchor in pattern.anchors}
    structures = tuple((each.needs, each, rule.id) for rule in rules for each in rule.structures)
    scopes = {rule.id: rule.scopes for rule in rules}
    keyed = {
        scope: _by_key({place: row[1] for place, row in enumerate(structures) if scope in scopes[row[2]]})
        for scope in Scope
    }
    return Table(rules, structures, keyed, lexicon, _by_rarest(anchors), tuple(translations))


def _by_key(structures: Mapping[int, Structure]) -> dict[str, frozenset[int]]:
    """Group the places of `structures` by each character of their keys."""
    groups: dict[str, set[int]] = {}
    for place, structure in structures.items():
        for char in structure.key:
            groups.setdefault(char, set()).add(place)
    return {char: frozenset(group) for char, group in groups.items()}


def _by_rarest(anchors: set[str]) -> dict[str, tuple[str, ...]]:
    """Group `anchors` by the character that an ordinary text is least likely to hold."""
    groups: dict[str, list[str]] = {}
    for anchor in sorted(anchors):
        groups.setdefault(min(anchor, key=_RARE_FIRST.find), []).append(anchor)
    return {char: tuple(group) for char, group in groups.items()}


def _rule(row: _Row, lexicon: Lexicon) -> Rule:
    severity = row.get("severity")
    return Rule(
        id=row["id"],
        category=row["category"],
        severity=None if severity is None else Severity(severity),
        weight=row.get("weight", 0),
        scopes=frozenset(map(Scope, row.get("scope", "memory context skill").split())),
        structures=tuple(Structure(line, lexicon) for line in row.get("words", "").strip().splitlines()),
        texts=tuple(map(TextPattern, row.get("text", "").strip().splitlines())),
        positive=row["positive"],
        negative=row["negative"],
    )
