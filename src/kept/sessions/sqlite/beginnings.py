"""The newest messages with a word that begins so, read from the texts where the index would have to join too much."""

import re
from collections.abc import Callable

from kept.sessions.sqlite.postings import Postings

_AT_ONCE = 500
_ENOUGH = 1_500
"""So many are all looked at; of more, only some would be."""
_MOST_CHARACTERS = 750_000
_COMMON_SHARE = 0.04
"""Of the newest messages; a beginning that fewer hold has a list that is read as fast."""


def newest_beginning(postings: Postings, text: str) -> list[int] | None:
    """Return those of the newest messages in which a word begins with `text`, in order; None where few hold one."""
    begins = _begins(text.lower())
    found: list[int] = []
    below: int | None = None
    read = characters = 0
    while len(found) < _ENOUGH and characters < _MOST_CHARACTERS:
        page = postings.said_before(below, _AT_ONCE)
        found += [number for number, said in page if begins(said.lower())]
        read += len(page)
        characters += sum([len(said) for _, said in page])
        if len(found) < _COMMON_SHARE * read:
            return None
        if len(page) < _AT_ONCE:
            break
        below = page[-1][0]
    return found[:_ENOUGH][::-1]


def _begins(text: str) -> Callable[[str], bool]:
    """Return what tells whether a word of a lower-cased message begins with `text`; most words follow a space."""
    spaced, anywhere = f" {text}", re.compile(rf"(?<![^\W_]){re.escape(text)}")
    return lambda said: text in said and (spaced in said or anywhere.search(said) is not None)
