"""The search port on SQLite: posting lists from FTS5, metadata from the tables of messages and sessions."""

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from wellkept.core.ids import OWNER, UserId
from wellkept.core.search import Found, SearchRequest
from wellkept.sessions.search.analysis import SPEAKER, STRONG
from wellkept.sessions.search.engine import search
from wellkept.sessions.search.postings import (
    AllOf,
    AnyOf,
    Lookup,
    MessageHead,
    SessionFilter,
    SessionHead,
    Similarity,
    TimeFilter,
    Word,
    phrase_pattern,
)
from wellkept.sessions.search.terms import recognise_languages
from wellkept.sessions.sqlite.fts5 import (
    Fts5Analyzer,
    IndexPages,
    PackedList,
    match_expression,
    quote,
    read_totals,
    read_varints,
)
from wellkept.sessions.sqlite.index import find_messages
from wellkept.storage.connections import Snapshot, is_writing, statements
from wellkept.storage.sqlite import Connection

if TYPE_CHECKING:
    from wellkept.sessions.search.candidates import Budget

SQL = statements("wellkept.sessions.sqlite", "search.sql")
Rows: TypeAlias = list[tuple[Any, ...]]
_STALE_SHARE = 0.02
"""Share by which the number of messages may change before cached counts are dropped."""
_NEWEST_ID = 2**62
_MOST_STARTS = 200
"""Beginnings whose words are remembered."""
_SHORT_LIST = 500
"""Length of the longest list that is read to count it; a longer one is counted by the index and cached."""
_LONG_LIST = 2_000
"""Length from which on a list takes less time to decode from the pages of the index than to read through SQL."""
_as_head = tuple.__new__
"""Makes a named tuple of a row, in a third of the time of its own constructor: a search makes dozens."""
_CACHE_KIB = 8_192
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
    with Snapshot(connection):
        catalog = SqliteCatalog(connection, user=user)
        return search(SqlitePostings(connection), catalog, request, now=now, embed=embed, budget=budget)


class _Statistics(Struct):
    """Cached counts of one connection's store."""

    analyzer: Fts5Analyzer
    documents: int = 0
    frequencies: dict[str, int] = field(default_factory=dict)
    sessions: int = 0
    has_speakers: bool = False
    totals: tuple[int, float] | None = None
    """The state of the index in which no speaker was found."""
    languages: tuple[str, ...] | None = None
    vocabulary: dict[str, tuple[tuple[int, float], list[tuple[str, int]]]] = field(default_factory=dict)
    """The words with some beginnings, each with the state of the index in which they were read."""


_statistics: WeakKeyDictionary[Connection, _Statistics] = WeakKeyDictionary()
"""Per connection, because FTS5 counts a common word by reading its whole list."""


class SqlitePostings:
    """The word index and the substring index during one search; implements `search.postings.Postings`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.documents, self.mean_length = read_totals(connection.execute(SQL.totals).fetchone())
        known = _statistics.get(connection)
        if known is None:
            connection.pragma("cache_size", -_CACHE_KIB)
            known = _statistics[connection] = _Statistics(Fts5Analyzer(connection))
        if abs(self.documents - known.documents) > _STALE_SHARE * known.documents:
            known.frequencies.clear()
            known.sessions = 0
            known.languages = None
            known.documents = self.documents
        self._statistics = known
        self._lengths: dict[int, int] = {}
        self._texts: dict[int, str] = {}
        self._short_lists: dict[str, list[int]] = {}
        self._packed_lists: dict[str, PackedList | None] = {}
        self.tokens = known.analyzer.tokens
        self.stem = known.analyzer.stem
        self.stop_tokens = known.analyzer.stop_tokens

    def expect(self, words: Sequence[str]) -> None:
        """Do nothing: every list is near."""

    def frequency(self, word: str) -> int:
        """Return how many messages contain the word; the cached count of a common one may lag by a small share."""
        if word.startswith(SPEAKER) and not self._has_speakers():
            return 0
        token, *more = self.tokens(word) or ("",)
        known = self._statistics.frequencies.get(token, 0)
        if known or not token:
            return known
        # the list of a rare word takes less time than its count, and is read next
        if not more and (listed := self._read_short(word)) is not None:
            return len(listed)
        packed = self._find_packed(token)
        if packed is not None:
            known = packed.count()
        else:
            row = self._connection.execute(SQL.frequency, (token,)).fetchone()
            known = row[0] if row and isinstance(row[0], int) else 0
        self._statistics.frequencies[token] = known
        return known

    @cached_property
    def _pages(self) -> IndexPages | None:
        """The pages of the index; None in a transaction that may have changed what is not in them yet."""
        return None if is_writing(self._connection) else IndexPages(self._connection)

    def _find_packed(self, token: str) -> PackedList | None:
        """Return the list of a common token as the index holds it; None where only SQL can tell."""
        if token not in self._packed_lists:
            self._packed_lists[token] = self._pages.find(token) if self._pages is not None else None
        return self._packed_lists[token]

    def _read_long(self, lookup: Lookup, newest: int | None = None) -> list[int] | None:
        """Return the list of a word that is known or expected to be long; None for any other."""
        match lookup:
            case Word(text) if len(tokens := self.tokens(text)) == 1:
                length = newest or self._statistics.frequencies.get(tokens[0], 0)
                packed = self._find_packed(tokens[0]) if length >= _LONG_LIST else None
                return packed.ids(newest) if packed is not None else None
            case _:
                return None

    def _read_short(self, word: str) -> list[int] | None:
        """Return the list of a word that few messages contain; None for any other."""
        if word not in self._short_lists:
            rows = self._connection.execute(SQL.first_ids, (quote(word), _SHORT_LIST)).fetchall()
            found = _numbers(rows)
            if len(found) == _SHORT_LIST:
                return None
            self._short_lists[word] = found
        return self._short_lists[word]

    def _combine_short(self, lookup: Lookup) -> list[int] | None:
        """Return the matching messages if they follow from short lists that were read."""
        match lookup:
            case Word(text):
                return self._short_lists.get(text)
            case AllOf(parts):
                lists = [self._combine_short(part) for part in parts]
                known = [found for found in lists if found is not None]
                return sorted(set(known[0]).intersection(*known[1:])) if len(known) == len(lists) else None
            case _:
                return None

    def _join_words(self, lookup: Lookup) -> list[int] | None:
        """Return the messages with any of some words; None for any other lookup."""
        words = [part for part in lookup.parts if isinstance(part, Word)] if isinstance(lookup, AnyOf) else []
        if not words or not isinstance(lookup, AnyOf) or len(words) < len(lookup.parts):
            return None
        # to count a rare word reads its list
        lists = [self.ids(word) for word in words if self.frequency(word.text)]
        # ascending lists are sorted again in the time of a merge
        return list(dict.fromkeys(sorted(chain.from_iterable(lists))))

    def _has_speakers(self) -> bool:
        """Return whether any message begins with the name of its speaker; few stores have such messages."""
        known, totals = self._statistics, (self.documents, self.mean_length)
        if not known.has_speakers and known.totals != totals:
            known.has_speakers = bool(self._connection.execute(SQL.any_term, (SPEAKER, STRONG)).fetchall())
            known.totals = totals
        return known.has_speakers

    def vocabulary(self, start: str) -> list[tuple[str, int]]:
        known, totals = self._statistics.vocabulary, (self.documents, self.mean_length)
        if start not in known or known[start][0] != totals:
            rows: Rows = self._connection.execute(SQL.vocabulary, (start, start + "\U0010ffff")).fetchall()
            found = [(term.decode("utf-8", "replace"), count) for term, count in rows if isinstance(term, bytes)]
            if len(known) >= _MOST_STARTS:
                known.clear()
            known[start] = totals, found
        return known[start][1]

    @property
    def languages(self) -> Sequence[str]:
        if self._statistics.languages is None:
            self._statistics.languages = recognise_languages(self, self._count_each)
        return self._statistics.languages

    def _count_each(self, words: Sequence[str]) -> dict[str, int]:
        tokens = {self.stem(word): word for word in words}
        rows: Rows = self._connection.execute(SQL.frequencies, (json.dumps(list(tokens)),)).fetchall()
        return {tokens[token]: count for token, count in rows}

    def mean_session(self) -> float:
        if self._statistics.sessions == 0:
            (count,) = self._connection.execute(SQL.session_count).fetchone() or (0,)
            self._statistics.sessions = max(1, count if isinstance(count, int) else 0)
        return self.documents / self._statistics.sessions

    def ids(self, lookup: Lookup) -> list[int]:
        for read in (self._join_words, self._combine_short, self._read_long):
            known: list[int] | None = read(lookup)
            if known is not None:
                return known
        return _numbers(self._connection.execute(SQL.ids, (match_expression(lookup),)).fetchall())

    def ids_between(self, lookup: Lookup, first: int, last: int) -> list[int]:
        """Return the matching messages from `first` to `last` in ascending order."""
        return _numbers(self._connection.execute(SQL.ids_between, (match_expression(lookup), first, last)).fetchall())

    def newest_ids(self, lookup: Lookup, limit: int, *, below: int | None = None) -> list[int]:
        known = self._combine_short(lookup)
        if known is not None:
            return known[: None if below is None else bisect_left(known, below)][-limit:]
        if below is None and (known := self._read_long(lookup, limit)) is not None:
            return known
        bindings = (match_expression(lookup), _NEWEST_ID if below is None else below, limit)
        return sorted(_numbers(self._connection.execute(SQL.newest_ids, bindings).fetchall()))

    def newest_containing(self, text: str, limit: int) -> list[int]:
        """Return the newest messages with a word that contains `text`, a part of a word in lower case; newest first."""
        return find_messages(self._connection, text, limit, has_speakers=self._has_speakers())

    def talk_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return id and text of what people and models said, newest first."""
        rows = self._connection.execute(SQL.talk_before, (_NEWEST_ID if below is None else below, limit)).fetchall()
        return [(int(str(number)), str(text)) for number, text in rows]

    # a list of numbers is JSON as Python writes it, in a third of the time
    def lengths(self, ids: Iterable[int]) -> Mapping[int, int]:
        """Return the number of words of each message, and of those that were asked for before."""
        unknown = sorted({*ids}.difference(self._lengths))
        if unknown:
            rows: Rows = self._connection.execute(SQL.lengths, (str(unknown),)).fetchall()
            sizes = bytes.fromhex(str(rows[0][0]))
            numbers = sizes if sizes.isascii() else read_varints(sizes)  # a byte beyond ASCII is a part of a number
            # each has two columns, words and marks; on a damaged page a record may be of any length
            words = numbers[::2] if len(numbers) == 2 * len(unknown) else [1] * len(unknown)
            self._lengths.update(zip(unknown, words, strict=True))
        return self._lengths

    def texts(self, ids: Sequence[int], *, holding: str = "") -> dict[int, str]:
        """Return the text of each message; of ASCII texts only those with the words of a phrase, where one is given."""
        unknown = [number for number in ids if number not in self._texts]
        if unknown:
            bindings = (str(unknown), phrase_pattern(holding) if holding else "%")
            rows: Rows = self._connection.execute(SQL.texts, bindings).fetchall()
            self._texts |= {int(number): str(text or "") for number, text in rows}
        return {number: self._texts[number] for number in ids if number in self._texts}


class SqliteCatalog:
    """Messages and sessions that one user may find; implements `search.postings.Catalog`."""

    def __init__(self, connection: Connection, *, user: UserId) -> None:
        self._connection = connection
        self._user = user
        self.has_other_users = connection.execute(SQL.other_user, (user, user)).fetchone() is not None

    def messages(self, ids: Collection[int]) -> dict[int, MessageHead]:
        rows: Rows = self._connection.execute(SQL.heads, (str(sorted(ids)),)).fetchall()
        return {row[0]: _as_head(MessageHead, row[1:]) for row in rows}

    def sessions(self, session_ids: Collection[str]) -> dict[str, SessionHead]:
        rows: Rows = self._connection.execute(SQL.sessions, (json.dumps(list(session_ids)), self._user)).fetchall()
        return {row[0]: _as_head(SessionHead, row[1:]) for row in rows}

    def session_ids(self, conditions: SessionFilter, limit: int) -> list[str]:
        bindings = {
            "user": self._user,
            "project": conditions.project,
            "sources": json.dumps(conditions.sources) if conditions.sources else None,
            "after": conditions.after,
            "before": conditions.before,
            "limit": limit,
        }
        return [str(name) for (name,) in self._connection.execute(SQL.filtered_sessions, bindings).fetchall()]

    def titled(self, title: str) -> list[str]:
        return [str(name) for (name,) in self._connection.execute(SQL.titled, {"user": self._user, "title": title})]

    def titles(self) -> Iterable[tuple[str, str]]:
        rows = self._connection.execute(SQL.titles, {"user": self._user})
        return ((str(name), str(title)) for name, title in rows)

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

    def ids_by_session(self, session_ids: Collection[str]) -> Mapping[str, Sequence[int]]:
        """Return the messages of each session in ascending order; most sessions are stored without gaps, as a range."""
        found: dict[str, Sequence[int]] = {}
        with_gaps = []
        rows: Rows = self._connection.execute(SQL.spans_by_session, (json.dumps(list(session_ids)),)).fetchall()
        for name, first, last, count in rows:
            if count and last - first + 1 == count:
                found[name] = range(first, last + 1)
            elif count:
                with_gaps.append(name)
        if with_gaps:
            rows = self._connection.execute(SQL.ids_by_session, (json.dumps(with_gaps),)).fetchall()
            found |= {str(name): _numbers([(joined,)]) for name, joined in rows}
        return found

    def ids_near(self, session_id: str, first: int, last: int) -> list[int]:
        """Return the messages of one session from `first` to `last` in ascending order."""
        rows = self._connection.execute(SQL.session_ids_near, (session_id, first, last))
        return [number for (number,) in rows if isinstance(number, int)]


def _numbers(rows: Sequence[Sequence[object]]) -> list[int]:
    """Return the numbers of one JSON array: an answer with a row per number takes seven times as long."""
    joined = rows[0][0] if rows else None
    found: list[int] = json.loads(joined) if isinstance(joined, str) else []
    return found
