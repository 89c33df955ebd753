"""Answers that only say that nothing was found, which are no evidence for anything."""

import re
from functools import cache
from typing import Final

from wellkept.core.text import UNSPACED, WORD
from wellkept.languages.language import join_expressions
from wellkept.sessions.search.query import is_asking

_MOST_CHARACTERS: Final = 400
"""A longer answer tells something."""
_SIGNS: Final = re.compile("[;:；：]")
_SENTENCE: Final = re.compile(r"[^.!?\n？。！]+[.!?？。！]*")


@cache
def _compile(name: str, frame: str = "{}") -> re.Pattern[str]:
    """Return the expression of all languages for a part of such an answer."""
    return re.compile(frame.replace("{}", join_expressions("answers", name)), re.IGNORECASE)


def tells_nothing(text: str) -> bool:
    """Return whether an answer only says that nothing was found; asking back and offering help tell no more."""
    if len(text) > _MOST_CHARACTERS or _compile("empty").search(text) is None:
        return False
    if _SIGNS.search(text) or _compile("goes_on").search(text):
        return False
    sentences = [one for one in _SENTENCE.findall(text) if WORD.search(one) or UNSPACED.search(one)]
    empty = [one for one in sentences if _compile("empty").search(one) and not any(map(str.isdigit, one))]
    offers = _compile("offers", r"\W*(?:{})")
    return bool(empty) and all(one in empty or is_asking(one) or offers.match(one) for one in sentences)
