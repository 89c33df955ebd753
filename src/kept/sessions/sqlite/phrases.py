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
_FIRST = 6_000
_ENOUGH = 600
"""Messages that hold a phrase, after which no older ones are looked for: it is a turn of speech, not a find."""


def holding(
    postings: Postings, asked: Condition, *, allowed: Container[int] | None, limit: int
) -> tuple[set[int], int]:
    """Return the messages for which `asked` holds, and how many older ones at least were too many to be read."""
    if not asked.has_phrase:
        newest = postings.newest_ids(asked.expression, limit)
        return {number for number in newest if allowed is None or number in allowed}, int(len(newest) >= limit)
    reading, below = _Reading(postings, asked), None
    for size in (min(_FIRST, limit), limit - _FIRST):
        newest = postings.newest_ids(asked.expression, size, below=below)
        reading.read([number for number in newest if allowed is None or number in allowed])
        if len(newest) < size:
            return reading.found, reading.unread
        below = newest[0]
        if reading.has_enough:
            break
    return reading.found, reading.unread + 1


class _Reading:
    """The texts that were read for one phrase, and those that hold it."""

    def __init__(self, postings: Postings, asked: Condition) -> None:
        self._postings = postings
        self._asked = asked
        self._messages = 0
        self._characters = 0
        self.found: set[int] = set()
        self.unread = 0

    @property
    def has_enough(self) -> bool:
        """Whether enough was found, or read."""
        return len(self.found) >= _ENOUGH or self._messages >= _MOST_MESSAGES or self._characters >= _MOST_CHARACTERS

    def read(self, candidates: Sequence[int]) -> None:
        """Read the candidates, given in order, from the newest on, as far as that goes."""
        if len(candidates) > _WORTH_SPELLING and self._asked.substrings:
            spelt = self._postings.spelt_between(self._asked.substrings, candidates[0], candidates[-1])
            candidates = sorted(spelt.intersection(candidates))
        newest = candidates[::-1]
        for start in range(0, len(newest), _READ_AT_ONCE):
            if self.has_enough:
                self.unread += len(newest) - start
                return
            self._check(newest[start : start + _READ_AT_ONCE])

    def _check(self, numbers: Sequence[int]) -> None:
        self._messages += len(numbers)
        for number, text in self._postings.texts(numbers).items():
            self._characters += len(text)
            if fulfils(self._postings, self._asked, text):
                self.found.add(number)
