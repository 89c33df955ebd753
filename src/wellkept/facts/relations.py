"""What a person has one of, such as a place to live: statements of it share no word, and yet one replaces the other."""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct

from wellkept.languages.language import list_languages

_FLAGS: Final = re.IGNORECASE | re.DOTALL


class Relation(Struct, frozen=True):
    """Something that a person has one of."""

    name: str
    said: str
    """An expression for statements of it; where it has a group, those with the same text in it are about one thing."""
    asked: str
    """An expression for questions about it."""
    words: str
    """Words that find statements of it in an index."""

    @property
    def tells(self) -> re.Pattern[str]:
        """Finds a statement of it."""
        return _compile(self.said)

    @property
    def asks(self) -> re.Pattern[str]:
        """Finds a question about it."""
        return _compile(self.asked)

    @property
    def is_shared(self) -> bool:
        """Whether it means the same in every language."""
        return not self.tells.groups


@cache
def _compile(expression: str) -> re.Pattern[str]:
    """Compile when it is first used: all expressions take 6 ms, and most questions need few of them."""
    return re.compile(expression, _FLAGS)


@cache
def _list_relations() -> tuple[tuple[str, Relation], ...]:
    """Return the relations with the codes of their languages."""
    return tuple(
        (
            language.code,
            Relation(row["name"], row["said"], row["asked"], row["words"]),
        )
        for language in list_languages()
        for row in language.facts.get("relations", ())
    )


@lru_cache(maxsize=4_096)
def list_told(text: str) -> Mapping[tuple[str, str], str]:
    """Return what a text tells of the things that a person has one of, by language and relation."""
    return {
        (code, relation.name): " ".join(match.groups("")).casefold()
        for code, relation in _list_relations()
        if (match := relation.tells.search(text)) is not None
    }


def find_relation(question: str) -> Relation | None:
    """Return what a question asks for, if a person has only one of it and other words may tell it.

    It may have been told in another language than it is asked for.
    """
    name = next((one.name for _, one in _list_relations() if one.words and one.asks.search(question)), None)
    return None if name is None else _join_languages(name)


@cache
def _join_languages(name: str) -> Relation:
    relations = [relation for _, relation in _list_relations() if relation.name == name and relation.is_shared]
    said = "|".join(relation.said for relation in relations)
    asked = "|".join(relation.asked for relation in relations)
    return Relation(name, said, asked, " ".join(dict.fromkeys(" ".join(one.words for one in relations).split())))


def is_about_another_thing(relation: Relation | None, earlier: str, later: str) -> bool:
    """Return whether a text tells what was asked for, and a later one only another thing: a name, then a job."""
    if relation is None or not relation.tells.search(earlier) or relation.tells.search(later):
        return False
    shared = {one.name for _, one in _list_relations() if one.is_shared}
    return any(name in shared for _, name in list_told(later))
