"""The search port on SQLite: posting lists from FTS5, metadata from the tables of messages and sessions."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast
from weakref import WeakKeyDictionary

from kept.core.ids import OWNER, UserId
from kept.core.search import Found, SearchRequest
from kept.core.text import STOP_WORDS
from kept.core.values import dataclass, field
from kept.sessions.search.analysis import SPEAKER, STRONG
from kept.sessions.search.engine import search
from kept.sessions.search.postings import (
    AllOf,
    AnyOf,
    Lookup,
    MessageHead,
    Prefix,
    SessionFilter,
    SessionHead,
    Similarity,
    TimeFilter,
    Without,
    Word,
    phrase_pattern,
    substring_pattern,
)
from kept.sessions.sqlite.index import BLOCK_BITS
from kept.storage.connections import statements
from kept.storage.sqlite import Connection

if TYPE_CHECKING:
    from kept.sessions.search.candidates import Budget

SQL = statements("kept.sessions.sqlite", "search.sql")
TOKENIZER = ("unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc So")
_QUERY = 0x0001
"""FTS5_TOKENIZE_QUERY."""
_STALE_SHARE = 0.02
"""Share by which the number of messages may change before cached counts are dropped."""
_TRIGRAMS = 8
_MOST_BLOCKS = 2_500
"""Blocks whose texts are read for one substring: about ten milliseconds."""
_NEWEST_ID = 2**62
_ONE_BYTE = 0x80
_CACHE_KIB = 32_768
"""Page cache of a connection that searches; SQLite's default of 2 MiB is smaller than a common word's list."""


def find(
    connection: Connection,
    request: SearchRequest,
    *,
    user: UserId = OWNER,
    now: float,
    embed: "Callable[[str], Similarity | None] | None" = None,
    budget: "Budget | None" = None,
) -> Found:
    """Search the sessions of `user`; every read sees the same state of the file."""
    with _snapshot(connection):
        catalog = SqliteCatalog(connection, user=user)
        return search(SqlitePostings(connection), catalog, request, now=now, embed=embed, budget=budget)


@contextmanager
def _snapshot(connection: Connection) -> Iterator[None]:
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")  # nothing was written; after a damaged page a commit would fail


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

    @cached_property
    def stop_tokens(self) -> frozenset[str]:
        """The tokens of the English stop words."""
        return frozenset(self.tokens(" ".join(STOP_WORDS)))

    def stem(self, word: str) -> str:
        """Return the token of one word; empty when it has none."""
        tokens = self.tokens(word)
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
        # without offsets and synonyms the answer is a plain list of tokens
        return self._tokenize(utf8, _QUERY, None, include_offsets=False, include_colocated=False)


@dataclass(slots=True)
class _Statistics:
    """Cached counts of one connection's store."""

    analyzer: Fts5Analyzer
    documents: int = 0
    frequencies: dict[str, int] = field(default_factory=dict)
    sessions: int = 0
    has_speakers: bool = False
    totals: tuple[int, float] | None = None
    """The state of the index in which no speaker was found."""


_statistics: WeakKeyDictionary[Connection, _Statistics] = WeakKeyDictionary()
"""Per connection, because FTS5 counts a common word by reading its whole list."""


class SqlitePostings:
    """The word index and the substring index during one search; implements `search.postings.Postings`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.documents, self.mean_length = _totals(connection)
        known = _statistics.get(connection)
        if known is None:
            connection.pragma("cache_size", -_CACHE_KIB)
            known = _statistics[connection] = _Statistics(Fts5Analyzer(connection))
        if abs(self.documents - known.documents) > _STALE_SHARE * known.documents:
            known.frequencies.clear()
            known.sessions = 0
            known.documents = self.documents
        self._statistics = known
        self._lengths: dict[int, int] = {}
        self._texts: dict[int, str] = {}
        self.tokens = known.analyzer.tokens
        self.stem = known.analyzer.stem
        self.stop_tokens = known.analyzer.stop_tokens

    def frequency(self, token: str) -> int:
        """Return how many messages contain the token; the cached count may lag behind by a small share."""
        known = self._statistics.frequencies.get(token)
        if known is None and token.startswith(SPEAKER) and not self._has_speakers():
            return 0
        if known is None:
            row = self._connection.execute(SQL.frequency, (token,)).fetchone()
            known = self._statistics.frequencies[token] = row[0] if row and isinstance(row[0], int) else 0
        return known

    def _has_speakers(self) -> bool:
        """Return whether any message begins with the name of its speaker; few stores have such messages."""
        known, totals = self._statistics, (self.documents, self.mean_length)
        if not known.has_speakers and known.totals != totals:
            known.has_speakers = bool(self._connection.execute(SQL.any_term, (SPEAKER, STRONG)).fetchall())
            known.totals = totals
        return known.has_speakers

    def vocabulary(self, start: str) -> list[tuple[str, int]]:
        """Return the tokens that start with `start`, each with its frequency."""
        rows = self._connection.execute(SQL.vocabulary, (start, start + "\U0010ffff"))
        return [
            (term.decode("utf-8", "replace"), count)
            for term, count in rows
            if isinstance(term, bytes) and isinstance(count, int)
        ]

    def mean_session(self) -> float:
        """Return the mean number of messages in a session."""
        if self._statistics.sessions == 0:
            (count,) = self._connection.execute(SQL.session_count).fetchone() or (0,)
            self._statistics.sessions = max(1, count if isinstance(count, int) else 0)
        return self.documents / self._statistics.sessions

    def ids(self, lookup: Lookup) -> list[int]:
        """Return the matching messages in ascending order."""
        return _numbers(self._connection.execute(SQL.ids, (match_expression(lookup),)).fetchall())

    def ids_between(self, lookup: Lookup, first: int, last: int) -> list[int]:
        """Return the matching messages from `first` to `last` in ascending order."""
        return _numbers(self._connection.execute(SQL.ids_between, (match_expression(lookup), first, last)).fetchall())

    def newest_ids(self, lookup: Lookup, limit: int, *, below: int | None = None) -> list[int]:
        """Return the newest matching messages, older than `below` where given, in ascending order."""
        bindings = (match_expression(lookup), _NEWEST_ID if below is None else below, limit)
        return sorted(_numbers(self._connection.execute(SQL.newest_ids, bindings).fetchall()))

    def newest_containing(self, text: str, limit: int) -> list[int]:
        """Return the newest messages that may contain `text`, of those whose blocks contain its trigrams.

        Messages whose blocks are not indexed yet are read one after the other.
        """
        expression = _trigram_expression(text)
        if not expression:
            return []
        found, below = list[int](), _NEWEST_ID
        if self._missing_below is not None:
            below = self._missing_below << BLOCK_BITS
            bindings = (expression, text, substring_pattern(text), limit, _MOST_BLOCKS)
            found = _numbers(self._connection.execute(SQL.containing, bindings).fetchall())
        if below and len(found) < limit:
            rest = (below, text, substring_pattern(text), limit - len(found))
            found += _numbers(self._connection.execute(SQL.containing_below, rest).fetchall())
        return found

    def select_containing(self, text: str, ids: Sequence[int]) -> list[int]:
        """Return those of the messages, in order, whose blocks contain trigrams of `text`; all if it has none.

        A message whose block is not indexed yet is returned as well.
        """
        expression, missing = _trigram_expression(text), self._missing_below
        if not expression or missing is None or not ids:
            return list(ids)
        bindings = (expression, ids[0], ids[-1])
        blocks = set(_numbers(self._connection.execute(SQL.blocks_between, bindings).fetchall()))
        return [number for number in ids if (block := number >> BLOCK_BITS) in blocks or block < missing]

    @cached_property
    def _missing_below(self) -> int | None:
        """The block from which on all are indexed; None where the file has no such index."""
        below, is_there = self._connection.execute(SQL.missing_below).fetchone() or (None, 0)
        return int(str(below or 0)) if is_there else None

    def talk_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return id and text of what people and models said, newest first."""
        rows = self._connection.execute(SQL.talk_before, (_NEWEST_ID if below is None else below, limit))
        return [(int(number), str(text)) for number, text in rows]

    def lengths(self, ids: Iterable[int]) -> Mapping[int, int]:
        """Return the number of words of each message, and of those that were asked for before."""
        unknown = sorted({*ids}.difference(self._lengths))
        rows = self._connection.execute(SQL.lengths, (json.dumps(unknown),)) if unknown else ()
        self._lengths |= {
            number: size[0] if size[0] < _ONE_BYTE else _varints(size)[0]
            for number, size in rows
            if size and isinstance(size, bytes)  # a damaged page may hold anything
        }
        return self._lengths

    def texts(self, ids: Sequence[int], *, holding: str = "") -> dict[int, str]:
        """Return the text of each message; of ASCII texts only those with the words of a phrase, where one is given."""
        unknown = [number for number in ids if number not in self._texts]
        if unknown:
            rows = self._connection.execute(SQL.texts, (json.dumps(unknown), phrase_pattern(holding), holding))
            self._texts |= {int(number): str(text or "") for number, text in rows}
        return {number: self._texts[number] for number in ids if number in self._texts}


class SqliteCatalog:
    """Messages and sessions that one user may find; implements `search.postings.Catalog`."""

    def __init__(self, connection: Connection, *, user: UserId) -> None:
        self._connection = connection
        self._user = user
        self.has_other_users = connection.execute(SQL.other_user, (user, user)).fetchone() is not None

    def messages(self, ids: Collection[int]) -> dict[int, MessageHead]:
        """Return the messages that exist and were not taken back."""
        rows = self._connection.execute(SQL.heads, (json.dumps(sorted(ids)),))
        return {number: MessageHead._make(rest) for number, *rest in rows}

    def sessions(self, session_ids: Collection[str]) -> dict[str, SessionHead]:
        """Return the user's sessions among these."""
        rows = self._connection.execute(SQL.sessions, {"ids": json.dumps(list(session_ids)), "user": self._user})
        return {
            name: SessionHead(
                source, project, started or 0.0, last_active or 0.0, count or 0, bool(is_headless), bool(has_parent)
            )
            for name, source, project, started, last_active, count, is_headless, has_parent in rows
        }

    def session_ids(self, conditions: SessionFilter, limit: int) -> list[str]:
        """Return at most `limit` of the user's sessions that match."""
        bindings = {
            "user": self._user,
            "project": conditions.project,
            "sources": json.dumps(conditions.sources) if conditions.sources else None,
            "after": conditions.after,
            "before": conditions.before,
            "limit": limit,
        }
        return [str(row[0]) for row in self._connection.execute(SQL.filtered_sessions, bindings)]

    def timeline(
        self, conditions: TimeFilter, limit: int, *, is_oldest_first: bool = False
    ) -> tuple[int, list[tuple[str, int]]]:
        """Return how many sessions have messages of a time, and the newest of them, each with one message."""
        wanted = conditions._asdict() | {"user": self._user, "limit": limit, "sign": 1 if is_oldest_first else -1}
        for name, value in wanted.items():
            if isinstance(value, (tuple, frozenset)):
                wanted[name] = json.dumps(sorted(value)) if value else None
        (total,) = self._connection.execute(SQL.count_timeline, wanted).fetchone() or (0,)
        rows = self._connection.execute(SQL.timeline, wanted)
        return int(total), [(str(name), int(number)) for name, number in rows if number is not None]

    def span(self, session_ids: Collection[str]) -> tuple[int, int, int] | None:
        """Return the first and last message and the number of messages of sessions; None without messages."""
        bindings = (json.dumps(list(session_ids)), self._user)
        first, last, count = self._connection.execute(SQL.session_span, bindings).fetchone() or (None, None, 0)
        if not isinstance(first, int) or not isinstance(last, int):
            return None
        return first, last, count if isinstance(count, int) else 0

    def ids_by_session(self, session_ids: Collection[str]) -> dict[str, list[int]]:
        """Return the messages of each session in ascending order."""
        rows = self._connection.execute(SQL.ids_by_session, (json.dumps(list(session_ids)),))
        return {str(name): _numbers([(joined,)]) for name, joined in rows}

    def ids_near(self, session_id: str, first: int, last: int) -> list[int]:
        """Return the messages of one session from `first` to `last` in ascending order."""
        rows = self._connection.execute(SQL.session_ids_near, (session_id, first, last))
        return [number for (number,) in rows if isinstance(number, int)]


def match_expression(lookup: Lookup) -> str:
    """Return `lookup` in the query language of FTS5."""
    match lookup:
        case Word(text):
            return _quote(text)
        case Prefix(text):
            return _quote(text) + " *"
        case AllOf(parts):
            return " AND ".join(f"({match_expression(part)})" for part in parts)
        case AnyOf(parts):
            return " OR ".join(f"({match_expression(part)})" for part in parts)
        case Without(wanted, unwanted):
            return f"({match_expression(wanted)}) NOT ({match_expression(unwanted)})"


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _trigram_expression(text: str) -> str:
    """Return the expression for as many trigrams of `text` as tell it from most others."""
    trigrams = [text[place : place + 3] for place in range(len(text) - 2)]
    if not trigrams:
        return ""
    # every second trigram covers every letter; the caller checks the rest against the text
    chosen = [*trigrams[:: max(2, len(trigrams) // _TRIGRAMS)], trigrams[-1]]
    return " AND ".join(_quote(trigram) for trigram in dict.fromkeys(chosen))


def _numbers(rows: Sequence[Sequence[object]]) -> list[int]:
    """Return the numbers of one JSON array: an answer with a row per number takes seven times as long."""
    joined = rows[0][0] if rows else None
    found: list[int] = json.loads(joined) if isinstance(joined, str) else []
    return found


def _varints(blob: bytes) -> list[int]:
    """Return the numbers in a record of FTS5."""
    numbers: list[int] = []
    value = 0
    for byte in blob:
        value = value << 7 | byte & 0x7F
        if byte < _ONE_BYTE:
            numbers.append(value)
            value = 0
    return numbers or [value]


def _totals(connection: Connection) -> tuple[int, float]:
    """Return the number of messages and their mean length, which FTS5 keeps in its first record."""
    row = connection.execute(SQL.totals).fetchone()
    numbers = _varints(row[0]) if row else [0]
    documents = numbers[0]
    return documents, (numbers[1] / documents if documents and len(numbers) > 1 else 1.0)
