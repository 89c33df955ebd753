"""Words that no message contains: other spellings of them, words that they are a part of, and typing errors."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from wellkept.languages.language import list_languages
from wellkept.sessions.search.analysis import WHOLE, list_related
from wellkept.sessions.search.postings import Postings

SUBSTRING_LIMIT = 160
"""Messages that are read for a word which occurs only inside of other words."""
MISSPELT_WEIGHT = 0.6
_LEAST_INSIDE = 5
"""Letters from which on a word is looked for anywhere inside of others; "era" is in "several" by chance."""
_SAME_START = 3
"""Letters that a misspelt word must share with the right one; they narrow the vocabulary that is compared."""
_LEAST_TRANSCRIBED = 5
"""Letters from which on "ue" is tried as "u"; in shorter words it is rarely an umlaut."""
_LEAST_HYPHENATED, _MOST_HYPHENATED = 4, 24


class Spelling(NamedTuple):
    """Another spelling of a word that messages contain."""

    text: str
    frequency: int
    factor: float = 1.0
    """Its weight relative to the word itself."""
    ids: list[int] | None = None
    """The messages, where they were read."""


def find_spelling(
    postings: Postings, word: str, stem: str, *, may_be_part: bool, is_date: bool = False
) -> Spelling | None:
    """Look for a word that no message contains in other spellings, as a part of words, and as a typing error."""
    known = _find_first_known(postings, _list_spellings(word))
    if known is not None or WHOLE in word or is_date:
        return known
    inside = _find_containing(postings, word, may_be_part=may_be_part)
    if inside:
        return Spelling(word, len(inside), ids=inside)
    return _find_first_known(postings, _list_hyphenations(word)) or _correct(postings, stem)


def _find_first_known(postings: Postings, spellings: Iterator[str]) -> Spelling | None:
    counted = ((other, postings.frequency(other)) for other in spellings)
    return next((Spelling(other, count) for other, count in counted if count), None)


def _find_containing(postings: Postings, text: str, *, may_be_part: bool) -> list[int]:
    """Return the newest messages whose text contains `text` inside of a word, case ignored.

    A short one must begin or end the word: "boot" is in "Hausboot", but not in "reboots". Only what is typed alone may
    be any part of a word, because nothing else is looked for.
    """
    folded = text.lower()
    ids = postings.newest_containing(folded, SUBSTRING_LIMIT)
    texts = postings.texts(ids)
    found = [number for number in ids if folded in texts.get(number, "").lower()]
    if found and not may_be_part and len(folded) < _LEAST_INSIDE and folded.isascii() and folded.isalpha():
        at_edge = re.compile(rf"(?<![^\W_]){folded}|{folded}(?![^\W_])")
        found = [number for number in found if at_edge.search(texts[number].lower())]
    return sorted(found)


def _list_spellings(word: str) -> Iterator[str]:
    """Yield other ways to write a word: without its hyphen, with ß or ss, with ü or ue."""
    if WHOLE in word:
        yield word.replace(WHOLE, "")
        return
    for language in list_languages():
        spellings = language.list_pairs("spellings")
        yield from (word.replace(written, other) for written, other in spellings if written in word)
        plain = word
        for written, letter in language.list_pairs("transcribed"):
            plain = plain.replace(written, letter)
        if plain != word and len(word) >= _LEAST_TRANSCRIBED:
            yield plain
            yield from (plain.replace(written, other) for written, other in spellings if written in plain)


def _list_hyphenations(word: str) -> Iterator[str]:
    """Yield the word with a hyphen at every place."""
    if word.isalpha() and _LEAST_HYPHENATED <= len(word) <= _MOST_HYPHENATED:
        yield from (f"{word[:cut]}{WHOLE}{word[cut:]}" for cut in range(1, len(word) - 1))


def _correct(postings: Postings, stem: str) -> Spelling | None:
    """Return the token that `stem` is most likely a misspelling of.

    A known word is spelled as it should be: "store" is no "story", only another form of it may be meant ("decision"
    and "decide").
    """
    if len(stem) < 5 or not (stem.isascii() and stem.isalpha()):
        return None
    close = [
        (distance, -count, word)
        for word, count in postings.vocabulary(stem[:_SAME_START])
        if abs(len(word) - len(stem)) <= 1 and word.isalpha() and (distance := edit_distance(stem, word)) <= 1
    ]
    forms = list_related(stem) if close else None
    if forms is not None:
        close = [one for one in close if one[2] in forms]
    if not close:
        return None
    _, count, word = min(close)
    return Spelling(word, -count, MISSPELT_WEIGHT)


def edit_distance(left: str, right: str) -> int:
    """Return how many insertions, deletions, replacements or swaps of neighbours turn one word into the other."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        new = [i]
        for j, b in enumerate(right, 1):
            best = min(row[j] + 1, new[-1] + 1, row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                best = min(best, before[j - 2] + 1)
            new.append(best)
        before, row = row, new
    return row[-1]
