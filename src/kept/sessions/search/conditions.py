"""The condition of an explicit query: as an expression of the word index, and checked against a text."""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kept.sessions.search.analysis import clean, split
from kept.sessions.search.query import All, Any, Kind, Node, Not, Term
from kept.sessions.sqlite.postings import Postings, quoted

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of a message."""

    node: Node
    """What must be checked against the text; what the expression decides is left out."""
    expression: str
    """Matches every message that may hold it, and no more unless `has_phrase`."""
    has_phrase: bool
    required: str
    """The longest phrase that must hold, folded; empty when there is none."""

    @property
    def substrings(self) -> str:
        """Return what the substring index can be asked for; it knows no scripts without spaces."""
        return self.required if self.required.isascii() else ""


def condition(postings: Postings, node: Node) -> Condition | None:
    """Return `node` ready to be asked, or None when it excludes but asks for nothing."""
    expression = _expression(postings, node)
    if expression is None:
        return None
    return Condition(_undecided(node), expression, _has_phrase(node), _spaced(_required_phrase(node)))


def fulfils(postings: Postings, asked: Condition, text: str) -> bool:
    """Return whether a message of this text, which the expression matches, is what was asked for."""
    folded = _spaced(text)
    return asked.required in folded and _checked(postings, asked.node, text, folded=folded)


def is_any(node: Node) -> bool:
    """Return whether `node` asks for no more than any one of some words."""
    match node:
        case Term():
            return node.kind is not Kind.PHRASE
        case Any(nodes):
            return all(is_any(child) for child in nodes)
        case _:
            return False


def _required_phrase(node: Node) -> str:
    """Return the longest phrase that must hold, or nothing."""
    match node:
        case Term(text, Kind.PHRASE):
            return text
        case All(nodes):
            return max((_required_phrase(child) for child in nodes), key=len, default="")
        case _:
            return ""


def _undecided(node: Node) -> Node:
    """Return `node` without the words that every match of the expression holds, or does not hold, anyway."""
    if not isinstance(node, All):
        return node
    left = tuple(child for child in node.nodes if _has_phrase(child))
    return All(left) if left else node


def _has_word(node: Node) -> bool:
    match node:
        case Term():
            return node.kind is not Kind.PHRASE
        case All(nodes) | Any(nodes):
            return any(_has_word(child) for child in nodes)
        case Not(child):
            return _has_word(child)


def _has_phrase(node: Node) -> bool:
    match node:
        case Term():
            return node.kind is Kind.PHRASE
        case All(nodes) | Any(nodes):
            return any(_has_phrase(child) for child in nodes)
        case Not(child):
            return _has_phrase(child)


def _expression(postings: Postings, node: Node) -> str | None:
    """Return an expression that matches at least every message for which `node` holds."""
    match node:
        case Term():
            return _term_expression(postings, node)
        case Any(nodes):
            found = [_expression(postings, child) for child in nodes if not isinstance(child, Not)]
            known = [expression for expression in found if expression is not None]
            return " OR ".join(f"({expression})" for expression in known) if known else None
        case All(nodes):
            return _all_expression(postings, nodes)
        case Not():
            return None


def _all_expression(postings: Postings, nodes: Sequence[Node]) -> str | None:
    found = [_expression(postings, child) for child in nodes if not isinstance(child, Not)]
    wanted = [expression for expression in found if expression is not None]
    if not wanted:
        return None
    expression = " AND ".join(f"({part})" for part in wanted)
    for child in nodes:
        # a phrase is known by its words only, so its absence is left to the check against the text
        if isinstance(child, Not) and not _has_phrase(child.node):
            unwanted = _expression(postings, child.node)
            if unwanted is not None:
                expression = f"({expression}) NOT ({unwanted})"
    return expression


def beginning(postings: Postings, text: str) -> str:
    """Return what finds every word that begins with `text`.

    The index stems what is asked, and `deploi*` would not meet `deploy`: it is asked for what both begin with.
    """
    stem = postings.stem(text)
    shared = next((place for place in range(min(len(stem), len(text))) if stem[place] != text[place]), len(stem))
    return quoted(text[:shared] or text) + " *"


def _term_expression(postings: Postings, term: Term) -> str | None:
    match term.kind:
        case Kind.PREFIX:
            return beginning(postings, term.text)
        case Kind.WORD:
            return quoted(term.text) if postings.stem(term.text) else None
        case Kind.PHRASE:
            words, _ = split(clean(term.text))
            tokens = [word for word in _WORD.findall(words) if postings.stem(word)]
            return " AND ".join(quoted(token) for token in tokens) if tokens else None


def holds(postings: Postings, node: Node, text: str) -> bool:
    """Return whether `node` holds for a message of this text."""
    return _checked(postings, node, text, folded=_spaced(text))


def _checked(postings: Postings, node: Node, text: str, *, folded: str) -> bool:
    tokens: frozenset[str] = frozenset()
    if _has_word(node):
        words, marks = split(clean(text))
        tokens = frozenset(postings.tokens(f"{words} {' '.join(marks)}"))
    return _holds(postings, node, tokens, folded)


def _folded(text: str) -> str:
    return clean(text).casefold()


def _spaced(text: str) -> str:
    return " ".join(_folded(text).split())


def _holds(postings: Postings, node: Node, tokens: frozenset[str], folded: str) -> bool:
    match node:
        case Term():
            return _term_holds(postings, node, tokens, folded)
        case All(nodes):
            return all(_holds(postings, child, tokens, folded) for child in nodes)
        case Any(nodes):
            return any(_holds(postings, child, tokens, folded) for child in nodes)
        case Not(child):
            return not _holds(postings, child, tokens, folded)


def _term_holds(postings: Postings, term: Term, tokens: frozenset[str], folded: str) -> bool:
    match term.kind:
        case Kind.WORD:
            return postings.stem(term.text) in tokens
        case Kind.PREFIX:
            return any(token.startswith(term.text) for token in tokens)
        case Kind.PHRASE:
            return _phrase(term.text).search(folded) is not None


@lru_cache(maxsize=64)
def _phrase(text: str) -> re.Pattern[str]:
    phrase = _folded(text)
    start = r"(?<!\w)" if phrase[:1].isascii() and phrase[:1].isalnum() else ""
    end = r"(?!\w)" if phrase[-1:].isascii() and phrase[-1:].isalnum() else ""
    return re.compile(start + re.escape(phrase) + end)


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
