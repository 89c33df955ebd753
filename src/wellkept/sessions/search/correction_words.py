"""How people correct themselves, by language: the words and relations of `search.toml`."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from msgspec import Struct

from wellkept.core.text import resource_text
from wellkept.languages.language import Language, list_languages
from wellkept.sessions.search.analysis import base
from wellkept.sessions.search.query import is_asking

FLAGS: Final = re.IGNORECASE | re.DOTALL


class Relation(Struct, frozen=True):
    """Something that a person has one of, such as a place to live."""

    name: str
    said: re.Pattern[str]
    asked: re.Pattern[str]
    words: str

    def is_told(self, text: str) -> bool:
        """Return whether a text tells it."""
        return self.said.search(text) is not None and not is_asking(text)

    @property
    def is_shared(self) -> bool:
        """Whether it names its thing itself; one with a group is told of many things, in the words of its language."""
        return not self.said.groups


class Corrections(Struct, frozen=True):
    """The words of one language."""

    lead: re.Pattern[str]
    change: re.Pattern[str]
    closes: re.Pattern[str]
    replaced: re.Pattern[str]
    ended: re.Pattern[str]
    it: re.Pattern[str]
    many: frozenset[str]
    """Verbs with which several things hold beside each other: their base forms, or the characters of Chinese ones."""
    relations: tuple[Relation, ...]


@cache
def _read_kinds() -> Mapping[str, int]:
    rows = resource_text("wellkept.sessions", "search", "tool_kinds.txt").splitlines()
    return {name: number for number, row in enumerate(rows) if not row.startswith("#") for name in row.split()}


def _read_corrections(language: Language) -> Corrections:
    table: Mapping[str, Any] = language.search.get("corrections", {})
    keys = ("change", "closes", "replaced", "ended", "it")
    change, closes, replaced, ended, it = (re.compile(table.get(key, "(?!)"), FLAGS) for key in keys)
    relations = (
        Relation(row["name"], re.compile(row["said"], FLAGS), re.compile(row["asked"], FLAGS), str(row["words"]))
        for row in table.get("relations", ())
    )
    lead = re.compile(rf"^\s*(?:{table.get('lead', '(?!)')})+", FLAGS)
    verbs = str(table.get("many", "")).split()
    many = frozenset(map(base, verbs)) if language.is_spaced else frozenset("".join(verbs))
    return Corrections(lead, change, closes, replaced, ended, it, many, tuple(relations))


@cache
def list_corrections() -> tuple[Corrections, ...]:
    """Return the words of every language."""
    return tuple(map(_read_corrections, list_languages()))


def find_kind(word: str) -> int | None:
    """Return the number of the kind of tool that a word names; None where it is not known."""
    return _read_kinds().get(word)


def find_relation(question: str) -> Relation | None:
    """Return what a question asks for, if a person has only one of it and other words may tell it.

    It may have been told in another language than it is asked for.
    """
    for language in list_corrections():
        for relation in language.relations:
            if relation.words and relation.asked.search(question):
                return _join_languages(relation.name)
    return None


def is_about_another_thing(relation: Relation | None, earlier: str, later: str) -> bool:
    """Return whether a text tells what was asked for, and a later one only another thing: a name, then a job."""
    if relation is None or not relation.is_told(earlier) or relation.is_told(later):
        return False
    names = {row.name for language in list_corrections() for row in language.relations if row.is_shared}
    return any(_join_languages(name).is_told(later) for name in names)


@cache
def _join_languages(name: str) -> Relation:
    """Return a relation as all languages tell it."""
    rows = [row for language in list_corrections() for row in language.relations if row.name == name and row.is_shared]
    said, asked = (
        re.compile("|".join(getattr(row, part).pattern for row in rows), FLAGS) for part in ("said", "asked")
    )
    return Relation(name, said, asked, " ".join(dict.fromkeys(word for row in rows for word in row.words.split())))
