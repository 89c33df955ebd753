"""The search port on SQLite: the index as arrays, and the lists that one search reads.

Positions are ids without the gaps: every range of 65,536 ids with a message has a slot of as many positions.
Messages that no segment covers yet, or that changed since, are loose: they are read from their rows.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from kept.core.errors import Unreadable
from kept.core.ids import OWNER, UserId
from kept.core.search import Found, SearchRequest
from kept.sessions.search.analysis import ENGLISH, choose_languages, cut, guess_language
from kept.sessions.search.engine import search
from kept.sessions.search.postings import Similarity
from kept.sessions.sqlite.index import (
    CHUNK,
    WORD_BITS,
    Segment,
    hash_word,
    is_bitmap,
    read_columns,
    read_segments,
    texts,
)
from kept.sessions.sqlite.message_rows import SqliteCatalog
from kept.storage.connections import statements
from kept.storage.sqlite import Connection

if TYPE_CHECKING:
    from kept.sessions.records import Row
    from kept.sessions.search.candidates import Budget
    from kept.sessions.search.postings import Array, Positions

SQL = statements("kept.sessions.sqlite", "search.sql")
_NEWEST_ID = 2**62
_LAST_CHARACTER = "\U0010ffff"
_CACHE_KIB = 32_768
"""Page cache of a connection that searches; SQLite's default of 2 MiB is smaller than the lists of a question."""


_LOOSE_CHARACTERS = 400_000
"""Text of loose messages that one search reads: a tenth of a second."""
_LOOSE_CHARACTERS_READ_ONLY = 40_000_000
"""The same where the index cannot be written, so that nothing else finds them."""
_BEFORE_ALL, _AFTER_ALL = -(1 << 62), 1 << 62
_NO_POSITIONS: "Positions" = np.zeros(0, np.int64)


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


class SegmentArrays:
    """Follows the index of one connection; what did not change is not read again."""

    def __init__(self) -> None:
        self._mark: tuple[object, int] | None = None
        self._segments: dict[int, Segment] = {}
        self._chunks: Array = _NO_POSITIONS
        """The upper parts of the ids that occur, in order of their slots."""
        self._stale: Positions = _NO_POSITIONS
        """The messages in segments whose rows changed or went since."""
        self._loose: dict[str, list[int]] = {}
        self._loose_places: list[int] = []
        self.loose_sessions: dict[str, int] = {}
        """Numbers of sessions that have only loose messages."""
        self._bases: dict[int, Segment] = {}
        self._slots: dict[int, int] = {}
        self.bases = "[]"
        """The segments as JSON, each as the first key of its lists."""
        self.lengths: Array = np.zeros(0, np.uint16)
        self.sessions: Array = np.zeros(0, np.uint32)
        self.session_sizes: Array = np.zeros(1, np.int64)
        self.languages: Sequence[str] = (ENGLISH,)
        self.documents = self.unread = 0
        self.mean_length = self.mean_session = 1.0

    @property
    def size(self) -> int:
        """How many positions there are."""
        return len(self.lengths)

    @property
    def loose_words(self) -> Collection[str]:
        """The words of the loose messages."""
        return self._loose.keys()

    def follow(self, connection: Connection) -> None:
        """Read what changed since the last call, in the snapshot that is open."""
        mark = (connection.pragma("data_version"), connection.total_changes())
        if mark == self._mark:
            return
        self._mark = None  # if reading fails in the middle, the next call begins anew
        segments = {one.id: one for one in read_segments(connection)}
        rows, queued = self._read_loose(connection, list(segments.values()))
        self._make_slots(segments.values(), [row[0] for row in rows])
        self._clear_loose()
        for one in [one for one in self._segments.values() if segments.get(one.id) != one]:
            self._place(one, np.zeros(one.size, np.uint16), np.zeros(one.size, np.uint32))
            del self._segments[one.id]
        for one in segments.values():
            if one.id not in self._segments:
                lengths, sessions = read_columns(connection, one)
                self._place(one, np.frombuffer(lengths, "<u2"), np.frombuffer(sessions, "<u4"))
                self._segments[one.id] = one
        self._bases = {one.id << WORD_BITS: one for one in segments.values()}
        self.bases = json.dumps(list(self._bases))
        self._slots = {int(chunk): slot for slot, chunk in enumerate(self._chunks.tolist())}
        languages = Counter[str]()
        for one in segments.values():
            languages.update(json.loads(one.languages))
        self._add_loose_rows(connection, rows, queued, languages)
        self._count(languages)
        self._mark = mark

    def _read_loose(self, connection: Connection, segments: Sequence[Segment]) -> "tuple[list[Row], list[int]]":
        """Return the rows of the loose messages, and the ids that wait in the queue."""
        queued = [int(str(row[0])) for row in connection.execute(SQL.queued).fetchall()]
        left = _LOOSE_CHARACTERS_READ_ONLY if connection.readonly("main") else _LOOSE_CHARACTERS
        rows: list[Row] = []
        self.unread = 0
        for low, high in _find_gaps(segments):
            if left <= 0:
                ((count,),) = connection.execute(SQL.count_between, (low, high)).fetchall()
                self.unread += int(str(count))
                continue
            for row in connection.execute(SQL.rows_between, (low, high)):
                rows.append(row)
                left -= len(row[3] or "")
                if left <= 0:
                    ((count,),) = connection.execute(SQL.count_between, (low, row[0])).fetchall()
                    self.unread += int(str(count))
                    break
        read = {row[0] for row in rows}
        rows += [row for one in queued if one not in read for row in connection.execute(SQL.row, (one,)).fetchall()]
        return rows, queued

    def _make_slots(self, segments: Collection[Segment], loose: Sequence[int]) -> None:
        """Give every range of ids a slot; a range before the known ones moves all, so they are read again."""
        chunks = np.array(sorted({one.first // CHUNK for one in segments} | {one // CHUNK for one in loose}), np.int64)
        known = len(self._chunks)
        if known > len(chunks) or not np.array_equal(chunks[:known], self._chunks):
            self._segments.clear()
            self._loose_places, self._stale = [], _NO_POSITIONS
            known = 0
            self.session_sizes = np.zeros(1, np.int64)
        added = CHUNK * (len(chunks) - known)
        self.lengths = np.concatenate((self.lengths[: CHUNK * known], np.zeros(added, np.uint16)))
        self.sessions = np.concatenate((self.sessions[: CHUNK * known], np.zeros(added, np.uint32)))
        self._chunks = chunks

    def _place(self, segment: Segment, lengths: "Array", sessions: "Array") -> None:
        start = int(self.positions([segment.first])[0])
        self.lengths[start : start + segment.size] = lengths
        self._place_sessions(slice(start, start + segment.size), sessions)

    def _place_sessions(self, place: "slice | Array", sessions: "Array") -> None:
        counts = np.bincount(sessions, minlength=len(self.session_sizes))
        if len(counts) > len(self.session_sizes):
            self.session_sizes = np.concatenate(
                (self.session_sizes, np.zeros(len(counts) - len(self.session_sizes), np.int64))
            )
        self.session_sizes = self.session_sizes + counts - np.bincount(self.sessions[place], minlength=len(counts))
        self.sessions[place] = sessions

    def _clear_loose(self) -> None:
        """Forget the loose messages; segments that contain some of them are read again."""
        places = np.array(self._loose_places, np.int64)
        self.lengths[places] = 0
        self._place_sessions(places, np.zeros(len(places), np.uint32))
        stale = self.ids(self._stale)
        for one in [one for one in self._segments.values() if any(one.first <= each < one.end for each in stale)]:
            del self._segments[one.id]
        self._loose_places, self._stale = [], _NO_POSITIONS

    def _add_loose_rows(
        self, connection: Connection, rows: "Sequence[Row]", queued: Sequence[int], languages: "Counter[str]"
    ) -> None:
        self._loose = {}
        stale = self.positions(queued)
        self._stale = np.sort(stale[stale >= 0])
        places = self.positions([row[0] for row in rows])
        numbers = self._number_sessions(connection, {row[1] for row in rows})
        changed = sorted({*self._stale.tolist(), *places.tolist()})
        lengths, sessions = dict.fromkeys(changed, 0), dict.fromkeys(changed, 0)
        indexed = texts((number, *rest) for number, _, *rest in rows)
        for place, text, row in zip(places.tolist(), indexed, rows, strict=True):
            words, length = cut(text)
            lengths[place], sessions[place] = min(length, 65_535), numbers[row[1]]
            for word in words:
                self._loose.setdefault(word, []).append(place)
            language = guess_language(words)
            if language is not None:
                languages[language] += 1
        where = np.array(changed, np.int64)
        self.lengths[where] = list(lengths.values())
        self._place_sessions(where, np.array(list(sessions.values()), np.uint32))
        self._loose_places = changed

    def _number_sessions(self, connection: Connection, names: set[str]) -> dict[str, int]:
        rows = connection.execute(SQL.numbers_of_sessions, (json.dumps(list(names)),)).fetchall()
        numbers = {str(name): int(str(number)) for name, number in rows}
        start = max(len(self.session_sizes), *numbers.values(), 0) + 1
        self.loose_sessions = {one: start + place for place, one in enumerate(sorted(names - numbers.keys()))}
        return numbers | self.loose_sessions

    def _count(self, languages: "Counter[str]") -> None:
        self.session_sizes[0] = 0
        self.documents = int(self.session_sizes.sum())
        self.mean_length = float(self.lengths.sum(dtype=np.int64)) / self.documents if self.documents else 1.0
        self.mean_session = self.documents / max(1, int(np.count_nonzero(self.session_sizes)))
        self.languages = choose_languages(languages)

    def ids(self, positions: "Array") -> list[int]:
        """Return the messages at these positions."""
        found: list[int] = (self._chunks[positions // CHUNK] * CHUNK + positions % CHUNK).tolist()
        return found

    def positions(self, ids: Collection[int]) -> "Array":
        """Return the positions of these messages in the given order; -1 for ids without a slot."""
        numbers = np.fromiter(ids, np.int64, len(ids))
        if not len(self._chunks):
            return np.full(len(ids), -1, np.int64)
        chunks = numbers // CHUNK
        slots = np.minimum(np.searchsorted(self._chunks, chunks), len(self._chunks) - 1)
        return np.where(self._chunks[slots] == chunks, slots * CHUNK + numbers % CHUNK, -1)

    def join(self, parts: Sequence[tuple[int, bytes]]) -> "Positions":
        """Return the positions in the lists of one word, given with the first keys of their segments, in order."""
        pieces = []
        for base, data in parts:
            segment = self._bases[base]
            start = self._slots[segment.first // CHUNK] * CHUNK
            if is_bitmap(data, segment.size):
                bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
                pieces.append(np.flatnonzero(bits) + (start + segment.first % CHUNK))
            else:
                pieces.append(np.frombuffer(data, "<u2") + np.int64(start))
        found = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return found[~np.isin(found, self._stale)] if len(self._stale) else found

    def add_loose(self, found: "Mapping[str, Positions]", words: Collection[str]) -> "dict[str, Positions]":
        """Return the lists of those of these words that loose messages contain, complete."""
        complete: dict[str, Positions] = {}
        for word in words:
            places = self._loose.get(word)
            if places is not None:
                complete[word] = np.sort(np.concatenate((found.get(word, _NO_POSITIONS), np.array(places, np.int64))))
        return complete


def _find_gaps(segments: Sequence[Segment]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of ids that no segment covers, newest first."""
    high = _AFTER_ALL
    for one in sorted(segments, key=lambda one: one.first, reverse=True):
        if one.end < high:
            yield one.end, high
        high = one.first
    yield _BEFORE_ALL, high


_arrays: WeakKeyDictionary[Connection, SegmentArrays] = WeakKeyDictionary()
"""Per connection: lengths and sessions of all messages, of which only what changed is read again."""


class SqlitePostings:
    """The index during one search; implements `search.postings.Postings`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        known = _arrays.get(connection)
        if known is None:
            connection.pragma("cache_size", -_CACHE_KIB)
            known = _arrays[connection] = SegmentArrays()
        known.follow(connection)
        self._arrays = known
        self.documents, self.mean_length, self.mean_session = known.documents, known.mean_length, known.mean_session
        self.languages, self.unread, self.size = known.languages, known.unread, known.size
        self.lengths, self.sessions, self.session_sizes = known.lengths, known.sessions, known.session_sizes
        self.ids, self.positions = known.ids, known.positions

    def read(self, words: Collection[str]) -> "Mapping[str, Positions]":
        """Return the list of each of these words that some message contains."""
        keys = {hash_word(word): word for word in words}
        rows: dict[str, list[tuple[int, bytes]]] = {}
        bindings = (json.dumps(list(keys)), self._arrays.bases)
        for key, segment, data in self._connection.execute(SQL.lists, bindings).fetchall():
            if isinstance(key, int) and isinstance(segment, int) and isinstance(data, bytes):
                rows.setdefault(keys[key], []).append((segment, data))
            else:
                raise Unreadable("a list of the search index is damaged", "run `kept sessions repair`")
        try:
            found = {word: self._arrays.join(parts) for word, parts in rows.items()}
        except (TypeError, ValueError, IndexError) as error:  # no list of numbers
            raise Unreadable("a list of the search index is damaged", "run `kept sessions repair`") from error
        return {**found, **self._arrays.add_loose(found, words)}

    def words_starting(self, start: str, limit: int) -> list[str]:
        """Return at most `limit` of the words that start with `start`."""
        bindings = (start, start + _LAST_CHARACTER, limit)
        ((joined,),) = self._connection.execute(SQL.words_starting, bindings).fetchall()
        found: list[str] = json.loads(str(joined))
        loose = {word for word in self._arrays.loose_words if word.startswith(start)}
        return sorted(loose.union(found))[:limit] if loose else found

    def words_containing(self, text: str, limit: int) -> list[str]:
        """Return at most `limit` of the words that contain `text`."""
        ((joined,),) = self._connection.execute(SQL.words_containing, (text, limit)).fetchall()
        found: list[str] = json.loads(str(joined))
        loose = {word for word in self._arrays.loose_words if text in word}
        return sorted(loose.union(found))[:limit] if loose else found

    def session_numbers(self, session_ids: Collection[str]) -> list[int]:
        """Return the numbers of those of these sessions that have messages."""
        rows = self._connection.execute(SQL.session_numbers, (json.dumps(list(session_ids)),)).fetchall()
        most = len(self.session_sizes)
        known = [number for (number,) in rows if isinstance(number, int) and number < most]
        return known + [self._arrays.loose_sessions[one] for one in session_ids if one in self._arrays.loose_sessions]

    def talk_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return id and text of what people and models said, newest first."""
        rows = self._connection.execute(SQL.talk_before, (_NEWEST_ID if below is None else below, limit))
        return [(int(number), str(text)) for number, text in rows]

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the text of each message."""
        rows = self._connection.execute(SQL.texts, (json.dumps(list(ids)),))
        return {int(number): str(text or "") for number, text in rows}
