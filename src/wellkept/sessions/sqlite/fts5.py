"""FTS5 as the word index uses it: its tokenizer, its query language and its records."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final, Protocol, cast
from weakref import WeakKeyDictionary

from wellkept.languages.stop_words import STOP_WORDS
from wellkept.sessions.search.analysis import find_words
from wellkept.sessions.search.postings import AllOf, AnyOf, Lookup, Prefix, Without, Word
from wellkept.storage.sqlite import Connection

TOKENIZER = ("unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc So")
_QUERY, _DOCUMENT = 0x0001, 0x0004
"""FTS5_TOKENIZE_QUERY and FTS5_TOKENIZE_DOCUMENT."""
_LONGEST_WORD, _MOST_KNOWN = 24, 4_096
"""Texts whose tokens are remembered, and how many: one search asks for those of each of its words several times."""
ONE_BYTE: Final = 0x80
"""A number below it takes one byte in a record."""


class Tokenize(Protocol):
    """An FTS5 tokenizer, as apsw offers it."""

    def __call__(
        self, utf8: bytes, flags: int, locale: str | None, *, include_offsets: bool, include_colocated: bool
    ) -> list[str]:
        """Return the tokens of `utf8`."""
        ...


class Fts5Analyzer:
    """The tokenizer of the word index: Unicode words without diacritics, Porter stems."""

    def __init__(self, connection: Connection) -> None:
        self._tokenize = cast(Tokenize, connection.fts5_tokenizer("porter", list(TOKENIZER)))
        self._known: dict[str, tuple[str, ...]] = {}

    @cached_property
    def stop_tokens(self) -> frozenset[str]:
        """The tokens of the English stop words."""
        return frozenset(self.tokens(" ".join(STOP_WORDS)))

    def stem(self, word: str) -> str:
        """Return the token of one word; empty when it has none."""
        return next(iter(self.tokens(word)), "")

    def tokens(self, text: str) -> Sequence[str]:
        """Return the tokens of `text` in order."""
        if len(text) > _LONGEST_WORD:
            return self._cut(text)
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[text] = tuple(self._cut(text))
        return known

    def _cut(self, text: str) -> list[str]:
        try:
            utf8 = text.encode("utf-8", "replace")
            # without offsets and synonyms the answer is a plain list of tokens
            return self._tokenize(utf8, _QUERY, None, include_offsets=False, include_colocated=False)
        except UnicodeDecodeError:
            # the stemmer works on bytes and may cut a character of another script in two: leave that word out
            return [token for word in text.split() for token in self._tokens_or_none(word)]

    def _tokens_or_none(self, word: str) -> list[str]:
        utf8 = word.encode("utf-8", "replace")
        try:
            return self._tokenize(utf8, _QUERY, None, include_offsets=False, include_colocated=False)
        except UnicodeDecodeError:
            return []


_without_stems: WeakKeyDictionary[Connection, Tokenize] = WeakKeyDictionary()


def cut_words(connection: Connection, text: str) -> list[str]:
    """Return the words of `text` as the word index cuts them before it takes their stems: lower case, no accents."""
    if text.isascii():
        return find_words(text)
    tokenize = _without_stems.get(connection)
    if tokenize is None:
        tokenize = cast(Tokenize, connection.fts5_tokenizer(TOKENIZER[0], list(TOKENIZER[1:])))
        _without_stems[connection] = tokenize
    utf8 = text.encode("utf-8", "replace")
    return tokenize(utf8, _DOCUMENT, None, include_offsets=False, include_colocated=False)


def match_expression(lookup: Lookup) -> str:
    """Return `lookup` in the query language of FTS5."""
    match lookup:
        case Word(text):
            return quote(text)
        case Prefix(text):
            return quote(text) + " *"
        case AllOf(parts):
            return " AND ".join(f"({match_expression(part)})" for part in parts)
        case AnyOf(parts):
            return " OR ".join(f"({match_expression(part)})" for part in parts)
        case Without(wanted, unwanted):
            return f"({match_expression(wanted)}) NOT ({match_expression(unwanted)})"


def quote(text: str) -> str:
    """Return `text` as a string of the query language."""
    return '"' + text.replace('"', '""') + '"'


def read_varints(blob: bytes) -> list[int]:
    """Return the numbers in a record of FTS5."""
    numbers: list[int] = []
    value = 0
    for byte in blob:
        value = value << 7 | byte & 0x7F
        if byte < ONE_BYTE:
            numbers.append(value)
            value = 0
    return numbers or [value]


def read_totals(row: Sequence[object] | None) -> tuple[int, float]:
    """Return the number of messages and their mean length, from the first record of an index."""
    block = row[0] if row else None
    numbers = read_varints(block) if isinstance(block, bytes) else []
    documents, length, *_ = *numbers, 0, 0
    return documents, (length / documents if documents and length else 1.0)
