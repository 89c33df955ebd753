"""Messages that mean something only after the one before them: "no, blue", "it moved to 5"."""

import re
from functools import cache
from typing import Final

from wellkept.core.text import WORD
from wellkept.facts.reading import list_signals
from wellkept.languages.language import join_expressions
from wellkept.languages.questions import is_asking

_MOST_WORDS: Final = 3
"""Words of a value that stands alone."""


def says_change(text: str) -> bool:
    """Return whether a message says that something is no longer as it was: "the lesson is on Tuesdays now"."""
    return any(signals.by_name["change"].search(text) for signals in list_signals()) and not is_asking(text)


def asks_history(question: str) -> bool:
    """Return whether a question asks for what no longer holds: "where did I live before?", "the old port"."""
    return _compile_history().search(question) is not None


@cache
def _compile_history() -> re.Pattern[str]:
    return re.compile(join_expressions("", "history", file="facts"), re.IGNORECASE)


def find_lead(text: str) -> int:
    """Return how many characters of a text only say that it corrects something: those of "no, actually"."""
    ends = (match.end() for signals in list_signals() if (match := signals.by_name["lead"].match(text)) is not None)
    return max(ends, default=0)


def begins_correction(text: str) -> bool:
    """Return whether a message begins like an answer to the one before it: "no, use 2 spaces"."""
    return find_lead(text) > 0


def is_bare_correction(text: str) -> bool:
    """Return whether a message has a meaning only after the statement that it corrects: "no, blue"."""
    lead = find_lead(text)
    return lead > 0 and 0 < len(WORD.findall(text[lead:])) <= _MOST_WORDS and not is_asking(text)


@cache
def _compile_value() -> re.Pattern[str]:
    """Return an expression for a statement with a value ("my colour is green"); Chinese verbs count last."""
    spaced, unspaced = (join_expressions("", "value", file="facts", is_spaced=is_spaced) for is_spaced in (True, False))
    frame = rf"^(?P<frame>.*(?:{spaced})|.*(?:{unspaced}))"
    return re.compile(rf"{frame}(?P<gap>\s*)(?P<value>.+?)(?P<end>[.!。]*)$", re.IGNORECASE | re.DOTALL)


def complete(earlier: str, later: str) -> str:
    """Return a bare correction as a whole statement: "no, blue" after "my colour is green" is "my colour is blue"."""
    lead = find_lead(later)
    value = later[lead:].strip().rstrip(".!。") if lead else ""
    frame = _compile_value().match(earlier) if value and len(WORD.findall(value)) <= _MOST_WORDS else None
    return later if frame is None else f"{frame['frame']}{frame['gap']}{value}{frame['end']}"
