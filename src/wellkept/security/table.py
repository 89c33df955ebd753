"""The rule table: rules.toml as `make reference` built it; patterns are compiled when they are first needed."""

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

from msgspec import Struct

from wellkept.core.errors import Unreadable
from wellkept.core.text import dumps, expression, resource_text
from wellkept.core.values import hide
from wellkept.security.patterns import Anchors, Index, Keys, Places, Structure, TextPattern, choose_keys
from wellkept.security.skeleton import Lexicon, sentences, split_part

BUILT = "rules.json"
_LITERALS = "="
_LONG_TEXT = 10_000
_ADDRESSED = ("you", "your", "ai")
_LETTERS = "\u0400-\u04ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_OTHER_SCRIPTS = expression(f"([{_LETTERS}](?:[{_LETTERS} ]*[{_LETTERS}])?)")


class Severity(StrEnum):
    """What a match means: an attack, or a text that a person should look at."""

    BLOCK = "block"
    HOLD = "hold"


class Scope(StrEnum):
    """Where a text will be used; orders to the assistant are normal in some places."""

    MEMORY = "memory"
    CONTEXT = "context"
    SKILL = "skill"


class Rule(Struct, frozen=True):
    """One row of the table."""

    id: str
    category: str
    severity: Severity | None
    """None for a signal, which only adds its weight."""
    weight: int
    scopes: frozenset[Scope]
    structures: tuple[Structure, ...]
    texts: tuple[TextPattern, ...]
    positive: str
    negative: str

    __repr__ = hide("positive", "negative")


class Reading(Struct, frozen=True):
    """A text as the rules see it."""

    folded: str
    skeleton: str
    tokens: list[str]
    words: set[str]
    vocabulary: str
    """The text, or for a long one its distinct words."""


class Table:
    """All rules, with the lexicon that their structures are written in."""

    def __init__(self, document: Mapping[str, Any], keys: Keys | None = None) -> None:
        """Take the content of a TOML file, with the literal words of its structures, and the keys if they are known."""
        classes = {name: words.split() for name, words in document["words"].items()}
        classes[_LITERALS] = document["literals"]
        self.lexicon = Lexicon(classes, document["misspelt"].split())
        self.rules = tuple(_rule(row, self.lexicon) for row in document["rule"])
        self._translations: str = document["translations"]
        self.anchors = Anchors(anchor for rule in self.rules for pattern in rule.texts for anchor in pattern.anchors)
        # one for all scopes: `matching` leaves out the rules of others
        structures = [each for rule in self.rules for each in rule.structures]
        self.keys = keys or choose_keys(structures, self.lexicon)
        self._index = Index(structures, self.lexicon, self.keys)

    def read(self, folded: str) -> Reading:
        """Return what the rules look at in `folded` text."""
        skeleton, tokens, words = self.lexicon.read(folded)
        return Reading(folded, skeleton, tokens, words, " ".join(words) if len(folded) > _LONG_TEXT else folded)

    def matching(self, reading: Reading, scope: Scope) -> Iterator[tuple[Rule, bool]]:
        """Yield the rules of `scope` that match, with False for one that could not be tried everywhere."""
        structured = self._index.find_rules(sentences(reading.skeleton))
        places = Places(reading.folded, self.anchors.among(reading.folded, reading.words, reading.vocabulary))
        if not structured and not places.present:
            return
        for rule in self.rules:
            if scope in rule.scopes:
                hit = rule.id in structured or _any_match(rule.texts, places)
                if hit is not False:
                    yield rule, hit is True

    def addresses_someone(self, reading: Reading) -> bool:
        """Tell whether the text addresses its reader or speaks of an AI."""
        symbols = "".join([self.lexicon.element(name) for name in _ADDRESSED])
        return not set(reading.skeleton).isdisjoint(symbols)

    def in_english(self, text: str) -> str:
        """Return `text` with key words of other scripts translated to English."""
        parts = _OTHER_SCRIPTS.split(text)
        runs = set(parts[1::2])
        if not runs:
            return text
        lowered = read = "\n".join(runs).lower()
        letters = set(lowered)
        for word, english in _pairs(self._translations):
            if letters.issuperset(word) and word in lowered:
                read = read.replace(word, f" {english} ")
        parts[1::2] = map(dict(zip(runs, read.split("\n"), strict=True)).__getitem__, parts[1::2])
        return "".join(parts)


def _any_match(patterns: Iterable[TextPattern], places: Places) -> bool | None:
    """Tell whether one of the expressions matches; None if one could not be tried everywhere."""
    flooded = False
    for pattern in patterns:
        match pattern.matches(places):
            case True:
                return True
            case None:
                flooded = True
    return None if flooded else False


@lru_cache(maxsize=2)
def _pairs(translations: str) -> list[tuple[str, str]]:
    """Return words of other scripts, longest first, and the English words they stand for."""
    lines = (line.partition("=") for line in translations.strip().splitlines())
    return sorted(((word.strip(), english.strip()) for word, _, english in lines), key=lambda pair: -len(pair[0]))


@cache
def table() -> Table:
    """Return the shipped table; read once per process."""
    built = json.loads(resource_text("wellkept.security", BUILT))
    return Table(built["document"], Keys(**built["keys"]))


def parse(source: str) -> dict[str, Any]:
    """Return the content of rules.toml, with the literal words of its structures."""
    import tomllib

    try:
        document = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"rules.toml cannot be read: {error}") from error
    parts = sorted({part for row in document["rule"] for part in row.get("words", "").split() if "=" in part})
    return {**document, "literals": [word for part in parts for word in split_part(part)[1]]}


def build() -> str:
    """Return rules.toml in the form that is read at the start: a quarter of the time of the table itself."""
    document = parse(resource_text("wellkept.security", "rules.toml"))
    return dumps({"document": document, "keys": Table(document).keys._asdict()})


def _rule(row: Mapping[str, Any], lexicon: Lexicon) -> Rule:
    severity = row.get("severity")
    return Rule(
        id=row["id"],
        category=row["category"],
        severity=None if severity is None else Severity(severity),
        weight=row.get("weight", 0),
        scopes=frozenset(map(Scope, row.get("scope", "memory context skill").split())),
        structures=tuple([Structure(line, lexicon, row["id"]) for line in row.get("words", "").strip().splitlines()]),
        texts=tuple(map(TextPattern, row.get("text", "").strip().splitlines())),
        positive=row["positive"],
        negative=row["negative"],
    )
