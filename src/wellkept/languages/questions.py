"""Questions: the words that form one, and whether a text asks, in any of the languages."""

import re
from functools import cache
from typing import Final

from wellkept.core.text import UNSPACED, WORD
from wellkept.languages.language import join_words, list_dropped_words, list_languages

FRAMES: Final = join_words("frames") | join_words("requests") | join_words("polite")
"""Words that form a question rather than name its topic, and therefore have less weight."""
BEGINNINGS: Final = join_words("asks") | join_words("requests")
"""Words that a question or a request begins with; a query that begins otherwise is a list of keywords."""
_COURTESIES: Final = "|".join(sorted(join_words("polite"))).replace("_", r"\W+")
_POLITE: Final = re.compile(rf"\W*(?:(?:{_COURTESIES})\b\W*)+", re.IGNORECASE)
_INTRODUCING: Final = join_words("introduces") | join_words("verbs")
_ENDS: Final = tuple(join_words("ends"))
_ENDING: Final = 40
"""Characters at the end of a text that hold its last two words."""
_UNSPACED_ASKS: Final = tuple(filter(UNSPACED.match, BEGINNINGS))
UNSPACED_STOPS: Final = tuple(sorted(list_dropped_words(), key=len, reverse=True))
FORMING: Final = FRAMES | BEGINNINGS | frozenset(UNSPACED_STOPS)
"""Words that say how something is asked, not what."""
UNSPACED_SHAPING: Final = tuple(sorted((*UNSPACED_STOPS, *filter(UNSPACED.match, FRAMES)), key=len, reverse=True))
"""What is dropped from scripts without spaces, longest first, because one may contain another."""


def is_asking(text: str) -> bool:
    """Return whether a text is a question, or an order to tell something, in any of the languages."""
    stripped = text.strip()
    if stripped.endswith(("?", "\uff1f")):
        return True
    if not stripped.isascii() and any(word in stripped for word in _UNSPACED_ASKS):
        return True
    polite = _POLITE.match(stripped)
    first = WORD.search(stripped, polite.end() if polite else 0)
    return (first is not None and first[0].lower() in BEGINNINGS) or asks_by_words(stripped)


def asks_by_words(text: str) -> bool:
    """Return whether a text without a question mark begins like "bei wem" or "hat das Auto", or ends with "quoi"."""
    first = WORD.search(text)
    if first is not None and first[0].lower() in _INTRODUCING and _compile_introductions().match(text) is not None:
        return True
    ending = text[-_ENDING:].lower()
    return any(word in ending and word in WORD.findall(ending)[-2:] for word in _ENDS)


@cache
def _compile_introductions() -> re.Pattern[str]:
    """Return the expression for how a question begins: a preposition and a question word, or a verb and its subject."""
    pairs = (
        rf"(?:{'|'.join(first)})(?:['’\s]|-(?:t-)?)+(?:{'|'.join(second)})"
        for language in list_languages()
        for kinds in (("introduces", "introduced"), ("verbs", "subjects"))
        if all((first := language.list_words(kinds[0]), second := language.list_words(kinds[1])))
    )
    return re.compile(rf"\W*(?:{'|'.join(pairs)})\b", re.IGNORECASE)
