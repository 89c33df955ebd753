"""The condition of an explicit query: as posting lists, and as a test of the text."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kept.sessions.search.analysis import clean, fold, split
from kept.sessions.search.postings import Postings
from kept.sessions.search.query import All, Any, Kind, Node, Not, Term
from kept.sessions.search.terms import Vocabulary, join_lists

if TYPE_CHECKING:
    from kept.sessions.search.candidates import Scope
    from kept.sessions.search.postings import Array, Positions

_PAGE = 250
_MOST_MESSAGES = 3_000
_MOST_CHARACTERS = 750_000
"""Text that is read for a phrase of common words: about 20 ms, and far more than most phrases need."""
_ENOUGH = 600
"""Matches of a phrase after which no older ones are read: such a phrase is too common to identify a message."""


class Condition:
    """What a message must fulfil."""

    def __init__(self, vocabulary: Vocabulary, node: Node) -> None:
        self._vocabulary = vocabulary
        self._has_phrase = _has_phrase(node)
        self._node = _drop_decided(node)
        """What must be tested against the text; what the lists decide is left out."""
        self._required = _fold_spaces(_required_phrase(node))
        """The longest phrase that must occur; empty when there is none."""
        self.positions = self._find(node)
        """The messages that may fulfil it, and no others unless there is a phrase; None when it only excludes."""

    def find_matching(self, postings: Postings, scope: "Scope") -> "tuple[Positions, int]":
        """Return the messages that fulfil it, and how many older ones with its words were not tested."""
        assert self.positions is not None
        positions = scope.narrow(self.positions, postings.sessions)
        if not self._has_phrase:
            return positions, 0
        found: list[int] = []
        newest = postings.ids(positions)[::-1]
        read = characters = 0
        while read < len(newest):
            if len(found) >= _ENOUGH or read >= _MOST_MESSAGES or characters >= _MOST_CHARACTERS:
                break
            texts = postings.texts(newest[read : read + _PAGE])
            read += _PAGE
            characters += sum(map(len, texts.values()))
            found += [number for number, text in texts.items() if self._is_fulfilled_by(text)]
        return np.sort(postings.positions(found)), max(0, len(newest) - read)

    def _find(self, node: Node) -> "Positions | None":
        """Return at least every message that fulfils `node`."""
        match node:
            case Term():
                return self._find_term(node)
            case Any(nodes):
                known = [one for child in nodes if (one := self._find(child)) is not None]
                return join_lists(known) if known else None
            case All(nodes):
                return self._find_all(nodes)
            case Not():
                return None

    def _find_all(self, nodes: Sequence[Node]) -> "Positions | None":
        wanted = [one for child in nodes if (one := self._find(child)) is not None]
        if not wanted:
            return None
        found = _intersect(wanted)
        for child in nodes:
            # the lists know a phrase by its words only, so its absence is left to the test of the text
            if isinstance(child, Not) and not _has_phrase(child.node):
                unwanted = self._find(child.node)
                if unwanted is not None:
                    found = found[~_are_in(found, unwanted)]
        return found

    def _find_term(self, term: Term) -> "Positions | None":
        words = _lookup_words(self._vocabulary, term)
        match term.kind:
            case Kind.PHRASE:
                self._vocabulary.load(words)
                return _intersect([self._vocabulary.join([word]) for word in words]) if words else None
            case _:
                return self._vocabulary.join(words)

    def _is_fulfilled_by(self, text: str) -> bool:
        folded = _fold_spaces(text)
        if self._required not in folded:
            return False
        words: frozenset[str] = frozenset()
        if _has_word(self._node):
            own, further = split(clean(text))
            words = frozenset((*own, *further))
        return self._holds(self._node, words, folded)

    def _holds(self, node: Node, words: frozenset[str], folded: str) -> bool:
        match node:
            case Term():
                if node.kind is Kind.PHRASE:
                    return _phrase_pattern(node.text).search(folded) is not None
                return not words.isdisjoint(_lookup_words(self._vocabulary, node))
            case All(nodes):
                return all(self._holds(child, words, folded) for child in nodes)
            case Any(nodes):
                return any(self._holds(child, words, folded) for child in nodes)
            case Not(child):
                return not self._holds(child, words, folded)


def _lookup_words(vocabulary: Vocabulary, term: Term) -> Sequence[str]:
    """Return the words that are looked up for a term: all forms of a word, but a phrase as it is written."""
    match term.kind:
        case Kind.PREFIX:
            return vocabulary.starting(fold(term.text))
        case Kind.WORD:
            return vocabulary.forms(fold(term.text))
        case Kind.PHRASE:
            words, further = split(clean(term.text))
            return words or further  # a single character of a script without spaces is no pair


def _intersect(lists: "Sequence[Positions]") -> "Positions":
    """Return the positions that every list contains, beginning with the shortest."""
    shortest, *others = sorted(lists, key=len)
    for other in others:
        shortest = shortest[_are_in(shortest, other)]
    return shortest


def _are_in(positions: "Positions", others: "Positions") -> "Array":
    """Return for each position whether it is among the others."""
    if not len(others):
        return np.zeros(len(positions), bool)
    places = np.searchsorted(others, positions)
    places[places == len(others)] = 0
    found: Array = others[places] == positions
    return found


def is_any(node: Node) -> bool:
    """Return whether one word of several is enough to fulfil `node`."""
    match node:
        case Term():
            return node.kind is not Kind.PHRASE
        case Any(nodes):
            return all(is_any(child) for child in nodes)
        case _:
            return False


def _required_phrase(node: Node) -> str:
    match node:
        case Term(text, Kind.PHRASE):
            return text
        case All(nodes):
            return max((_required_phrase(child) for child in nodes), key=len, default="")
        case _:
            return ""


def _drop_decided(node: Node) -> Node:
    """Return `node` without the words that the lookup decides."""
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


def _fold_spaces(text: str) -> str:
    """Return `text` in one case, with single spaces."""
    return " ".join(clean(text).casefold().split())


@lru_cache(maxsize=64)
def _phrase_pattern(text: str) -> re.Pattern[str]:
    phrase = clean(text).casefold()
    start = r"(?<!\w)" if phrase[:1].isascii() and phrase[:1].isalnum() else ""
    end = r"(?!\w)" if phrase[-1:].isascii() and phrase[-1:].isalnum() else ""
    return re.compile(start + re.escape(phrase) + end)
