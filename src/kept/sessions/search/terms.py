"""The terms of a question as this store knows them: spelt, counted, and with the messages that hold them."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kept.sessions.search.analysis import SPEAKER, STRONG, WHOLE
from kept.sessions.search.conditions import beginning
from kept.sessions.search.query import Kind, Query, Term
from kept.sessions.sqlite.postings import Postings, quoted

SUBSTRING_LIMIT = 160
PREFIX_LIMIT = 40_000
MISSPELT_WEIGHT = 0.6
SPEAKER_WEIGHT = 0.5
_SAME_START = 3
_UMLAUTS = (("ä", "ae"), ("ö", "oe"), ("ü", "ue"))
_LEAST_GERMAN = 5
_LEAST_JOINED, _MOST_JOINED = 4, 24
_SHORT_PREFIX = 3
_MANY = 20_000
"""Messages from which on the list of a short prefix is too long to be read."""


@dataclass(slots=True)
class Held:
    """A term, how many messages hold it, and their list once it was read."""

    text: str
    expression: str
    given: float
    holding: int
    speaking: int = 0
    ids: list[int] | None = None
    beside: list[int] | None = None
    """The messages that hold a rarer term of the question as well, where the whole list would be too long."""
    newest: list[int] | None = None
    """The newest messages that hold it, of a beginning that so many words have that its whole list is not read."""
    names_date: bool = False
    _members: frozenset[int] | None = None

    @property
    def members(self) -> frozenset[int]:
        """Return the messages that hold the term, as far as they were read."""
        known = self.ids or self.beside or ()
        if self._members is None or len(self._members) != len(known):
            self._members = frozenset(known)
        return self._members

    @property
    def strong(self) -> str:
        """Return the expression that finds the term in short messages only."""
        return f'"{STRONG}{self.expression[1:]}'  # a prefix stays one

    def between(self, postings: Postings, first: int, last: int) -> Sequence[int]:
        """Return the messages from `first` to `last` that hold the term."""
        known = self.ids if self.ids is not None else self.beside
        if known is None:
            return postings.ids_between(self.expression, first, last)
        return known[bisect_left(known, first) : bisect_right(known, last)]


def held_terms(postings: Postings, query: Query) -> list[Held]:
    """Return the question's terms that some message holds; a phrase ranks by its words, which are there too."""
    found: dict[str, Held] = {}
    for term in query.terms:
        held = _held(postings, term)
        if held is None:
            continue
        known = found.get(held.expression)
        if known is None or known.given < held.given:
            found[held.expression] = held
    terms = [held for held in found.values() if held.holding or held.speaking]
    if terms and all(held.speaking for held in terms):
        # only names were asked for: what these people say counts as well, less than what is said of them
        terms += [_spoken(postings, held) for held in terms]
    return [held for held in terms if held.holding or held.speaking]


def unknown_weight(query: Query, terms: Sequence[Held]) -> float:
    """Return the given weight of the question's words that no message holds."""
    asked = sum(term.weight for term in query.terms if term.kind is Kind.WORD and WHOLE not in term.text)
    known = sum(held.given for held in terms if WHOLE not in held.text and not held.text.startswith(SPEAKER))
    return max(0.0, asked - known)


def speakers(terms: Sequence[Held]) -> Held | None:
    """Return what finds the messages that the people among `terms` say, or None when there are none."""
    names = [held for held in terms if held.speaking]
    if not names:
        return None
    expression = " OR ".join(quoted(SPEAKER + held.text) for held in names)
    return Held("", expression, 0.0, sum(held.speaking for held in names))


def _held(postings: Postings, term: Term) -> Held | None:
    match term.kind:
        case Kind.PHRASE:
            return None
        case Kind.PREFIX:
            return _prefix(postings, term)
        case Kind.WORD:
            return _word(postings, term)


def _prefix(postings: Postings, term: Term) -> Held:
    expression = beginning(postings, term.text)
    if len(term.text) <= _SHORT_PREFIX and term.text.isascii() and postings.documents > _MANY:
        # the index would join the lists of thousands of words, to be cut to the newest again
        newest = newest_beginning(postings, term.text)
        if newest is not None:
            return Held(term.text, expression, term.weight, PREFIX_LIMIT, newest=newest)
    ids = postings.newest_ids(expression, PREFIX_LIMIT)
    return Held(term.text, expression, term.weight, len(ids), ids=ids)


def _word(postings: Postings, term: Term) -> Held | None:
    stem = postings.stem(term.text)
    if not stem:
        return None
    held = Held(term.text, quoted(term.text), term.weight, postings.holding(stem), names_date=term.names_date)
    held.speaking = postings.holding(postings.stem(SPEAKER + term.text))
    if held.holding or held.speaking:
        return held
    return _otherwise(postings, term, stem) or held


def _otherwise(postings: Postings, term: Term, stem: str) -> Held | None:
    """Return a term that no message holds as another spelling of it, inside of words, or as a slip."""
    known = _first_known(postings, term, _other_letters(term.text))
    if known is not None or WHOLE in term.text:
        return known
    inside = postings.containing(term.text, SUBSTRING_LIMIT)
    if inside:
        return Held(term.text, quoted(term.text), term.weight, len(inside), ids=inside)
    known = _first_known(postings, term, _hyphenated(term.text))
    if known is not None:
        return known
    spelling = _spelling(postings, stem)
    if spelling is None:
        return None
    return Held(spelling[0], quoted(spelling[0]), term.weight * MISSPELT_WEIGHT, spelling[1])


def _first_known(postings: Postings, term: Term, spellings: Iterator[str]) -> Held | None:
    for other in spellings:
        count = postings.holding(postings.stem(other))
        if count:
            return Held(other, quoted(other), term.weight, count, names_date=term.names_date)
    return None


def _other_letters(word: str) -> Iterator[str]:
    """Yield other ways to write a word: without its hyphen, with ß or ss, ü or ue."""
    if WHOLE in word:
        yield word.replace(WHOLE, "")
        return
    for written, other in (("ss", "ß"), ("ß", "ss"), *_UMLAUTS):
        if written in word:
            yield word.replace(written, other)
    without = word
    for plain, written in (("a", "ae"), ("o", "oe"), ("u", "ue")):
        without = without.replace(written, plain)
    if without != word and len(word) >= _LEAST_GERMAN:
        yield without
        yield without.replace("ss", "ß")


def _hyphenated(word: str) -> Iterator[str]:
    """Yield a word parted by a hyphen, at every place."""
    if word.isalpha() and _LEAST_JOINED <= len(word) <= _MOST_JOINED:
        yield from (f"{word[:cut]}{WHOLE}{word[cut:]}" for cut in range(1, len(word) - 1))


def _spoken(postings: Postings, held: Held) -> Held:
    marked = SPEAKER + held.text
    return Held(marked, quoted(marked), held.given * SPEAKER_WEIGHT, postings.holding(postings.stem(marked)))


def _spelling(postings: Postings, stem: str) -> tuple[str, int] | None:
    """Return the indexed word that `stem` is most likely a misspelling of, and how many messages hold it."""
    if len(stem) < 5 or not (stem.isascii() and stem.isalpha()):
        return None
    close = [
        (distance, -count, word)
        for word, count in postings.spellings(stem[:_SAME_START])
        if abs(len(word) - len(stem)) <= 1 and word.isalpha() and (distance := edits(stem, word)) <= 1
    ]
    if not close:
        return None
    _, count, word = min(close)
    return word, -count


def edits(left: str, right: str) -> int:
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
