"""Lists of the messages that hold a term, read from the word index as cheaply as it allows."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from kept.core.search import Found, SearchRequest
from kept.storage.sql import statements
from kept.storage.sqlite import Connection

if TYPE_CHECKING:
    from kept.sessions.search.features import Asks

SQL = statements("kept.sessions.sqlite", "search.sql")
TOKENIZER = ("unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc So")
_QUERY = 0x0001
_STALE_SHARE = 0.02
_TRIPLES = 8
_NEWEST_ID = 2**62
_ONE_BYTE = 0x80
_CACHE_KIB = 32_768
"""Pages that a connection which searches may keep; SQLite's own 2 MiB holds no common word's list."""


class Tokenize(Protocol):
    """SQLite's own tokenizer, as the word index uses it."""

    def __call__(
        self, utf8: bytes, flags: int, locale: str | None, *, include_offsets: bool, include_colocated: bool
    ) -> Iterable[object]:
        """Return the tokens of `utf8`."""
        ...


@dataclass(slots=True)
class _Remembered:
    """What one connection learned of its store; counts may lag behind by a small share."""

    tokenize: Tokenize
    documents: int = 0
    holding: dict[str, int] = field(default_factory=dict)
    sessions: int = 0


_remembered: WeakKeyDictionary[Connection, _Remembered] = WeakKeyDictionary()
"""Per connection, because counting a common word reads its whole list."""


def quoted(text: str) -> str:
    """Return `text` as one string of the index's query language."""
    return '"' + text.replace('"', '""') + '"'


class Postings:
    """The word index as seen by one search."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.documents, self.mean_length = _totals(connection)
        known = _remembered.get(connection)
        if known is None:
            connection.pragma("cache_size", -_CACHE_KIB)
            known = _remembered[connection] = _Remembered(connection.fts5_tokenizer("porter", list(TOKENIZER)))
        if abs(self.documents - known.documents) > _STALE_SHARE * known.documents:
            known.holding.clear()
            known.sessions = 0
            known.documents = self.documents
        self._known = known
        self._lengths: dict[int, int] = {}

    def stem(self, text: str) -> str:
        """Return the token under which a word is indexed; empty when it has none."""
        tokens = self.tokens(text)
        return tokens[0] if tokens else ""

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of `text` in order."""
        try:
            return self._tokens(text)
        except UnicodeDecodeError:
            # the stemmer works on bytes and may cut a character of another script in two: leave that word out
            return [token for word in text.split() for token in self._tokens_or_none(word)]

    def _tokens_or_none(self, word: str) -> list[str]:
        try:
            return self._tokens(word)
        except UnicodeDecodeError:
            return []

    def _tokens(self, text: str) -> list[str]:
        utf8 = text.encode("utf-8", "replace")
        found = self._known.tokenize(utf8, _QUERY, None, include_offsets=False, include_colocated=False)
        return [token for token in found if isinstance(token, str)]

    def holding(self, stem: str) -> int:
        """Return how many messages hold the token, as of not long ago."""
        known = self._known.holding.get(stem)
        if known is None:
            row = self.connection.execute(SQL.holding, (stem,)).fetchone()
            known = self._known.holding[stem] = row[0] if row and isinstance(row[0], int) else 0
        return known

    def spellings(self, start: str) -> list[tuple[str, int]]:
        """Return the indexed tokens that begin with `start`, with the number of messages that hold each."""
        rows = self.connection.execute(SQL.spellings, (start, start + "\U0010ffff"))
        return [
            (term.decode("utf-8", "replace"), count)
            for term, count in rows
            if isinstance(term, bytes) and isinstance(count, int)
        ]

    def mean_session(self) -> float:
        """Return how many messages a session has on average."""
        if self._known.sessions == 0:
            (count,) = self.connection.execute(SQL.session_count).fetchone() or (0,)
            self._known.sessions = max(1, count if isinstance(count, int) else 0)
        return self.documents / self._known.sessions

    def ids(self, expression: str) -> list[int]:
        """Return the messages that `expression` matches, in order."""
        return numbers(self.connection.execute(SQL.ids, (expression,)).fetchall())

    def ids_between(self, expression: str, first: int, last: int) -> list[int]:
        """Return the messages from `first` to `last` that `expression` matches, in order."""
        return numbers(self.connection.execute(SQL.ids_between, (expression, first, last)).fetchall())

    def newest_ids(self, expression: str, limit: int, *, below: int | None = None) -> list[int]:
        """Return the newest messages, older than `below`, that `expression` matches, in order."""
        older = (expression, _NEWEST_ID if below is None else below, limit)
        return sorted(numbers(self.connection.execute(SQL.newest_ids, older).fetchall()))

    def containing(self, text: str, limit: int) -> list[int]:
        """Return the newest messages whose text holds `text` anywhere, case ignored; three characters at least."""
        folded = text.lower()
        ids = self.newest_containing(folded, limit)
        texts = self.texts(ids)
        return sorted(number for number in ids if folded in texts.get(number, "").lower())

    def newest_containing(self, text: str, limit: int) -> list[int]:
        """Return the newest messages that hold all the letter triples of `text`: more than hold the text itself."""
        expression = _triples(text)
        if not expression:
            return []
        return numbers(self.connection.execute(SQL.substring_ids, (expression, limit)).fetchall())

    def spelt_between(self, text: str, first: int, last: int) -> set[int]:
        """Return the messages from `first` to `last` that hold all the letter triples of `text`; all if it has none."""
        expression = _triples(text)
        if not expression:
            return set(range(first, last + 1))
        return set(numbers(self.connection.execute(SQL.substring_ids_between, (expression, first, last)).fetchall()))

    def said_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return what people and models said, the newest first, each with its id."""
        rows = self.connection.execute(SQL.said_before, (_NEWEST_ID if below is None else below, limit))
        return [(int(number), str(said)) for number, said in rows]

    def lengths(self, ids: Iterable[int]) -> Mapping[int, int]:
        """Return how many words each message has, among others that were asked for before."""
        unknown = sorted({*ids}.difference(self._lengths))
        rows = self.connection.execute(SQL.lengths, (json.dumps(unknown),))
        self._lengths |= {
            number: size[0] if size[0] < _ONE_BYTE else _first_varint(size)
            for number, size in rows
            if size and isinstance(size, bytes)  # a damaged page may hold anything
        }
        return self._lengths

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the text of each message."""
        rows = self.connection.execute(SQL.texts, (json.dumps(list(ids)),))
        return {int(number): str(text or "") for number, text in rows}


def numbers(rows: Sequence[Sequence[object]]) -> list[int]:
    """Return the numbers of an answer that holds them in one JSON list: an answer of rows takes seven times as long."""
    joined = rows[0][0] if rows else None
    found: list[int] = json.loads(joined) if isinstance(joined, str) else []
    return found


def _triples(text: str) -> str:
    """Return the expression for letter triples of `text`, as many as tell it from most others."""
    marks = [text[place : place + 3] for place in range(len(text) - 2)]
    if not marks:
        return ""
    # every second holds every letter, and what stands between two of them is seen in the text
    chosen = [*marks[:: max(2, len(marks) // _TRIPLES)], marks[-1]]
    return " AND ".join(quoted(mark) for mark in dict.fromkeys(chosen))


def _first_varint(blob: bytes) -> int:
    number = 0
    for byte in blob:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return number


def _totals(connection: Connection) -> tuple[int, float]:
    """Return the number of messages and their mean length, which the index keeps in its first record."""
    row = connection.execute(SQL.totals).fetchone()
    numbers: list[int] = []
    value = 0
    for byte in row[0] if row else b"":
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    documents = numbers[0] if numbers else 0
    return documents, (numbers[1] / documents if documents and len(numbers) > 1 else 1.0)


def find(connection: Connection, request: SearchRequest, *, user: str, now: float, asks: "Asks | None" = None) -> Found:
    """Run the ranked search over the user's sessions on one state of the file."""
    from kept.sessions.search import engine

    with _one_state(connection):
        # without other users the filter passes everything and would only make the search read more
        only = None if _is_only_user(connection, user) else user
        return engine.find(connection, request, user=only, now=now, asks=asks)


def _is_only_user(connection: Connection, user: str) -> bool:
    return connection.execute(SQL.other_user, (user, user)).fetchone() is None


@contextmanager
def _one_state(connection: Connection) -> Iterator[None]:
    """Let every read inside see the same rows: what one statement allows, another's write must not change."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")  # nothing was written; after a damaged page a commit would fail
