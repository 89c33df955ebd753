"""A question as it was asked: its words, how much each counts, and the dates that it names."""

import re
from dataclasses import dataclass

from kept.core.dates import DATE_NAMES, Span, find_dates
from kept.providers.holographic.words import asking_words, framing_words

MAX_WORDS = 24
_FRAMING = 0.35
"""How much a word counts that shapes the question more than it says what it is about."""
_DATE_WORD = 0.35
"""How much a word of a date counts: the date itself is compared as well."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the question, and how much it counts beside the others."""

    word: str
    given: float = 1.0
    names_date: bool = False
    """Whether it is a month, a weekday or a number of a date."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The terms of a question and the stretches of time that it names."""

    terms: tuple[Term, ...]
    dates: tuple[Span, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words of the terms."""
        return tuple(term.word for term in self.terms)


def read(question: str, now: float) -> Reading:
    """Return what is asked, seen from the moment `now`."""
    dates = find_dates(question, now)
    date_words = frozenset(word for _, said in dates for word in _WORD.findall(said))
    terms = tuple(_term(word, date_words) for word in asking_words(question)[:MAX_WORDS])
    return Reading(terms, tuple(span for span, _ in dates))


def _term(word: str, date_words: frozenset[str]) -> Term:
    if word in date_words:
        return Term(word, _DATE_WORD, names_date=word.isdigit() or word in DATE_NAMES)
    return Term(word, _FRAMING if word in framing_words() else 1.0)
