"""The messages for which an explicit condition holds; a phrase is checked against the text, newest first."""

from collections.abc import Container, Sequence

from kept.sessions.sqlite.conditions import Condition, fulfils
from kept.sessions.sqlite.postings import Postings

_READ_AT_ONCE = 500
_MOST_MESSAGES = 3_000
_MOST_CHARACTERS = 750_000
"""How much is read for a phrase of common words: about 20 ms, and far more than most phrases need."""
_WORTH_SPELLING = 1_500
"""Candidates from which on asking the substring index as well costs less than reading them."""


def holding(
    postings: Postings, asked: Condition, *, allowed: Container[int] | None, limit: int
) -> tuple[set[int], int]:
    """Return the messages for which `asked` holds, and how many older ones were too many to be read."""
    newest = postings.newest_ids(asked.expression, limit)
    left = int(len(newest) >= limit)
    if allowed is not None:
        newest = [number for number in newest if number in allowed]
    if not asked.has_phrase:
        return set(newest), left
    if len(newest) > _WORTH_SPELLING and asked.substrings:
        spelt = set(postings.newest_containing(asked.substrings, limit))
        left |= len(spelt) >= limit
        newest = [number for number in newest if number in spelt]
    found, unread = _checked(postings, asked, newest[::-1])
    return found, unread + left


def _checked(postings: Postings, asked: Condition, newest: Sequence[int]) -> tuple[set[int], int]:
    found: set[int] = set()
    characters = 0
    for start in range(0, len(newest), _READ_AT_ONCE):
        if start >= _MOST_MESSAGES or characters >= _MOST_CHARACTERS:
            return found, len(newest) - start
        for number, text in postings.texts(newest[start : start + _READ_AT_ONCE]).items():
            characters += len(text)
            if fulfils(postings, asked, text):
                found.add(number)
    return found, 0
