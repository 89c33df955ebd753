"""The search port on PostgreSQL: posting lists from segments and fresh texts, metadata from messages and sessions.

Lists and statistics are those of one user: row-level security shows no others.
"""

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from math import log
from typing import Any, NamedTuple, cast

from wellkept.languages.language import STOP_WORDS
from wellkept.sessions.postgres.index import WORDS_TOKENIZER, cut_substrings, cut_text
from wellkept.sessions.postgres.segments import (
    SUBSTRING,
    Bucket,
    count_places,
    find_bucket,
    from_bytes,
    is_beginning,
    unpack,
)
from wellkept.sessions.search.postings import (
    AllOf,
    AnyOf,
    Lookup,
    MessageHead,
    Prefix,
    SessionFilter,
    SessionHead,
    TimeFilter,
    Without,
    Word,
    phrase_pattern,
)
from wellkept.sessions.search.terms import recognise_languages
from wellkept.storage.connections import statements
from wellkept.storage.postgres.unit import Unit, as_array, unescape

_SHORT_BYTES = 2_000
"""Texts up to this size are read with their messages, because most of them are compared with the question."""


class PostgresCatalog:
    """Messages and sessions that one user may find; implements `search.postings.Catalog`."""

    has_other_users = False
    """Lists hold messages of this user only."""

    def __init__(self, unit: Unit, *, texts: dict[int, str]) -> None:
        self._unit = unit
        self._texts = texts
        """Receives the texts that are read with their messages."""
        self._known: dict[str, SessionHead | None] = {}
        """Sessions that were read with their messages; None for one in the trash."""

    def messages(self, ids: Collection[int]) -> dict[int, MessageHead]:
        """Return the messages that exist and were not rewound."""
        found: dict[int, MessageHead] = {}
        bindings = {"ids": list(ids), "most_bytes": _SHORT_BYTES}
        rows: Iterable[Any] = self._unit.execute(SQL.messages, bindings).fetchall()
        for number, name, kind, moment, detail, text, *rest in rows:
            if number is None:
                self._known[name] = SessionHead(unescape(kind), detail, moment, *rest)
                continue
            found[number] = MessageHead(name, kind, moment, detail)
            self._known.setdefault(name)
            if text is not None:
                self._texts[number] = text
        return found

    def sessions(self, session_ids: Collection[str]) -> dict[str, SessionHead]:
        unknown = [name for name in session_ids if name not in self._known]
        if unknown:
            self._known |= dict.fromkeys(unknown)
            rows: Iterable[Any] = self._unit.execute(SQL.sessions, {"ids": unknown}).fetchall()
            self._known |= {name: SessionHead._make(rest) for name, *rest in rows}
        return {name: head for name in session_ids if (head := self._known[name]) is not None}

    def session_ids(self, conditions: SessionFilter, limit: int) -> list[str]:
        named = conditions._asdict() | {"limit": limit}
        return [str(name) for (name,) in self._unit.execute(SQL.filtered_sessions, _as_lists(named))]

    def titled(self, title: str) -> list[str]:
        return [str(name) for (name,) in self._unit.execute(SQL.titled, {"title": title})]

    def titles(self) -> Iterable[tuple[str, str]]:
        rows = self._unit.execute(SQL.titles)
        return ((str(name), str(title)) for name, title in rows)

    def timeline(
        self, conditions: TimeFilter, limit: int, *, is_oldest_first: bool = False
    ) -> tuple[int, list[tuple[str, int]]]:
        """Return how many sessions have messages of a time, and the newest of them, each with one message."""
        named = conditions._asdict() | {"limit": limit, "sign": 1 if is_oldest_first else -1}
        rows = self._unit.execute(SQL.timeline, _as_lists(named)).fetchall()
        found = [(str(name), int(str(number))) for _, name, number in rows if number is not None]
        return int(str(rows[0][0])) if rows else 0, found

    def span(self, session_ids: Collection[str]) -> tuple[int, int, int] | None:
        """Return the first and last message and the number of messages of sessions; None without messages."""
        row = self._unit.execute(SQL.session_span, {"ids": list(session_ids)}).fetchone()
        if row is None or row[0] is None:
            return None
        first, last, count = (int(str(value)) for value in row)
        return first, last, count

    def ids_by_session(self, session_ids: Collection[str]) -> Mapping[str, Sequence[int]]:
        rows = self._unit.execute(SQL.ids_by_session, {"ids": list(session_ids)})
        return {str(name): ids for name, ids in rows if isinstance(ids, list)}

    def ids_near(self, session_id: str, first: int, last: int) -> list[int]:
        """Return the messages of one session from `first` to `last` in ascending order."""
        named = {"session": session_id, "first": first, "last": last}
        return [int(str(number)) for (number,) in self._unit.execute(SQL.ids_near, named)]


def _as_lists(named: Mapping[str, object]) -> dict[str, object]:
    """Return bindings with lists for the driver, and None for conditions that match everything."""
    return {
        name: (sorted(value) or None) if isinstance(value, (tuple, frozenset)) else value
        for name, value in named.items()
    }


SQL = statements("wellkept.sessions.postgres", "search.sql")
_CACHE_BYTES = 64_000_000
_TRIGRAMS = 8
_LONGEST_WORD = 40
"""The tokens of texts up to this length are cached: words of questions are looked up several times."""
_STEPS = 50
"""How often the languages of a store are detected while it grows by a factor of e: each time it grew by 2 %."""
_NEWEST_ID = 2**62
_BETWEEN = "\x02"
"""Separates the terms of two messages, as `open_search` joins them."""
_READ_LISTS = "SELECT * FROM read_postings(%s::bigint[], %s::integer[])"


class _Cache:
    """An LRU cache of parts of segments, for all users of this process; a segment never changes."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[object, ...], tuple[object, int]] = OrderedDict()
        self._bytes = 0
        self._guard = threading.Lock()

    def get(self, key: tuple[object, ...]) -> object | None:
        with self._guard:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def put(self, key: tuple[object, ...], value: object, size: int) -> None:
        with self._guard:
            if key not in self._found:
                self._found[key] = (value, size)
                self._bytes += size
            while self._bytes > _CACHE_BYTES:
                _, (_, removed) = self._found.popitem(last=False)
                self._bytes -= removed

    def clear(self) -> None:
        with self._guard:
            self._found.clear()
            self._bytes = 0


CACHE = _Cache()
"""Shared by all stores of a process; forgetting anything clears it."""


@cache
def _cut_stop_words() -> frozenset[str]:
    return frozenset(cut_text(WORDS_TOKENIZER, " ".join(STOP_WORDS)))


@lru_cache(maxsize=4_096)
def _cut_short(text: str) -> tuple[str, ...]:
    return tuple(cut_text(WORDS_TOKENIZER, text))


class _Segment(NamedTuple):
    id: int
    documents: int
    words: int
    buckets: int


class _Columns(NamedTuple):
    messages: Sequence[int]
    lengths: Mapping[int, int]


class PostgresPostings:
    """The index of one user during one search; implements `search.postings.Postings`."""

    def __init__(self, unit: Unit, *, place: tuple[object, ...]) -> None:
        self._unit = unit
        self._place = place
        stored, numbers, lengths, terms, gone, sessions = unit.execute(SQL.open).fetchall()[0]
        self._segments = [_Segment(*values) for values in _as_list(stored)]
        self._fresh_lengths: dict[int, int] = dict(zip(_as_list(numbers), _as_list(lengths), strict=True))
        self._fresh = self._find_fresh(tuple(self._fresh_lengths), "" if terms is None else str(terms))
        self._sessions = max(1, int(str(sessions)))
        self.known_texts: dict[int, str] = {}
        """Texts that were read already."""
        self._hidden: set[int] = {*_as_list(gone), *self._fresh_lengths}
        """Messages whose entries in segments are ignored: their text has changed since, or they were removed."""
        count, words = self._count_hidden() if self._hidden else (0, 0)
        self.documents = sum(one.documents for one in self._segments) + len(self._fresh_lengths) - count
        words = sum(one.words for one in self._segments) + sum(self._fresh_lengths.values()) - words
        self.mean_length = words / self.documents if self.documents else 1.0
        self._packed: dict[str, list[tuple[int, bytes]]] = {}
        self._lists: dict[str, list[int]] = {}

    def _find_fresh(self, numbers: tuple[int, ...], terms: str) -> Mapping[str, list[int]]:
        """Return the messages in no segment by term; cached, because they are often the same for the next search."""
        key = (*self._place, "fresh", numbers, terms)
        found = cast("dict[str, list[int]] | None", CACHE.get(key))
        if found is None:
            found = _invert(numbers, terms)
            CACHE.put(key, found, 4 * len(terms))
        return found

    def _count_hidden(self) -> tuple[int, int]:
        """Return how many messages of segments are hidden, and how many words they have."""
        count = words = 0
        for columns in self._columns.values():
            for number in self._hidden:
                if number in columns.lengths:
                    count += 1
                    words += columns.lengths[number]
        return count, words

    def tokens(self, text: str) -> Sequence[str]:
        return _cut_short(text) if len(text) <= _LONGEST_WORD else cut_text(WORDS_TOKENIZER, text)

    def stem(self, word: str) -> str:
        return next(iter(self.tokens(word)), "")

    @property
    def stop_tokens(self) -> frozenset[str]:
        return _cut_stop_words()

    @property
    def languages(self) -> Sequence[str]:
        # not detected again after every message of a large store
        key = (*self._place, "languages", round(_STEPS * log(self.documents + 1)))
        found = cast("tuple[str, ...] | None", CACHE.get(key))
        if found is None:
            found = recognise_languages(self, self._count_each)
            CACHE.put(key, found, 200)
        return found

    def _count_each(self, words: Sequence[str]) -> dict[str, int]:
        self.expect(words)
        return {word: self.frequency(word) for word in words}

    def mean_session(self) -> float:
        return self.documents / self._sessions

    def expect(self, words: Sequence[str]) -> None:
        """Read the lists of these words in one round trip."""
        self._read_lists({self.stem(word) for word in words})

    def frequency(self, word: str) -> int:
        """Return how many messages contain the word."""
        return self._count(self.stem(word))

    def _count(self, token: str) -> int:
        if self._hides_stored:
            return len(self._ids_of(token))
        return sum(count_places(data) for _, data in self._read_list(token)) + len(self._in_fresh(token))

    @cached_property
    def _hides_stored(self) -> bool:
        """Whether a segment may name a message that is hidden."""
        newest = max((columns.messages[-1] for columns in self._columns.values()), default=0)
        return min(self._hidden, default=newest + 1) <= newest

    def vocabulary(self, start: str) -> list[tuple[str, int]]:
        found = {term for term in self._fresh if term.startswith(start)}
        head = start.encode()
        for bucket in self._read_buckets(self._buckets_of(start)).values():
            found.update(term.decode() for term in bucket.terms if term.startswith(head))
        words = sorted(term for term in found if not term.startswith(SUBSTRING))
        return [(term, count) for term in words if (count := self._count(term))]

    def _buckets_of(self, start: str) -> list[tuple[int, int]]:
        if is_beginning(start):
            return [(one.id, find_bucket(start, one.buckets)) for one in self._segments]
        return [(one.id, bucket) for one in self._segments for bucket in range(one.buckets)]

    def ids(self, lookup: Lookup) -> list[int]:
        match lookup:
            case Word(text):
                return self._ids_of(self.stem(text))
            case _:
                return sorted(self._match(lookup))

    def ids_between(self, lookup: Lookup, first: int, last: int) -> list[int]:
        """Return the matching messages from `first` to `last` in ascending order."""
        found = self.ids(lookup)
        return found[bisect_left(found, first) : bisect_right(found, last)]

    def newest_ids(self, lookup: Lookup, limit: int, *, below: int | None = None) -> list[int]:
        found = self.ids(lookup)
        end = len(found) if below is None else bisect_left(found, below)
        return found[max(0, end - limit) : end]

    def newest_containing(self, text: str, limit: int) -> list[int]:
        """Return the newest messages that contain trigrams of `text`: more than contain the text itself."""
        return sorted(self._containing(text), reverse=True)[:limit]

    def talk_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return id and text of what people and models said, newest first."""
        named = {"below": _NEWEST_ID if below is None else below, "limit": limit}
        return [(int(str(number)), str(text)) for number, text in self._unit.execute(SQL.talk_before, named)]

    def lengths(self, ids: Iterable[int]) -> Mapping[int, int]:
        """Return the number of words of each message."""
        found: dict[int, int] = {}
        for number in ids:
            fresh = self._fresh_lengths.get(number)
            if fresh is not None:
                found[number] = fresh
                continue
            for columns in self._columns.values():
                if number in columns.lengths:
                    found[number] = columns.lengths[number]
                    break
        return found

    def texts(self, ids: Sequence[int], *, holding: str = "") -> dict[int, str]:
        """Return the text of each message; of ASCII texts only those with the words of a phrase, where one is given."""
        unknown = [number for number in ids if number not in self.known_texts]
        if unknown:
            bindings = {"ids": unknown, "pattern": phrase_pattern(holding)}
            rows = self._unit.execute(SQL.texts, bindings)
            self.known_texts |= {int(str(number)): str(text) for number, text in rows}
        return {number: self.known_texts[number] for number in ids if number in self.known_texts}

    def _match(self, lookup: Lookup) -> set[int]:
        match lookup:
            case Word(text):
                return set(self._ids_of(self.stem(text)))
            case Prefix(text):
                return {one for term, _ in self.vocabulary(self.stem(text)) for one in self._ids_of(term)}
            case AllOf(parts):
                return set.intersection(*(self._match(part) for part in parts))
            case AnyOf(parts):
                return set().union(*(self._match(part) for part in parts))
            case Without(wanted, unwanted):
                return self._match(wanted) - self._match(unwanted)

    def _ids_of(self, term: str) -> list[int]:
        known = self._lists.get(term)
        if known is None:
            known = [*self._in_segments(term), *self._in_fresh(term)]
            known.sort()
            self._lists[term] = known
        return known

    def _in_fresh(self, term: str) -> Sequence[int]:
        """Return the messages in no segment that contain a term."""
        return self._fresh.get(term, ())

    def _in_segments(self, term: str) -> list[int]:
        found: list[int] = []
        for segment, data in self._read_list(term):
            messages = self._columns[segment].messages
            found += [messages[place] for place in unpack(data)]
        return [number for number in found if number not in self._hidden] if self._hidden else found

    def _containing(self, text: str) -> set[int]:
        """Return the messages that contain some trigrams of `text`; none if it has none."""
        trigrams = [text[place : place + 3] for place in range(len(text) - 2)]
        if not trigrams:
            return set()
        # every second trigram covers every letter; the caller checks the rest against the text
        chosen = [*trigrams[:: max(2, len(trigrams) // _TRIGRAMS)], trigrams[-1]]
        terms = {term for trigram in chosen for term in cut_substrings(trigram)}
        if not terms:
            return set()
        fresh = {number for number, said in self._fresh_substrings.items() if terms <= said}
        self._read_lists(terms)
        return fresh.union(set.intersection(*(set(self._in_segments(term)) for term in terms)))

    @cached_property
    def _fresh_substrings(self) -> dict[int, frozenset[str]]:
        rows = self._unit.execute(SQL.fresh_substrings)
        return {int(str(number)): cut_substrings(str(text)) for number, text in rows}

    def _read_list(self, term: str) -> list[tuple[int, bytes]]:
        """Return the packed lists of a term, each with its segment."""
        if term not in self._packed:
            self._read_lists([term])
        return self._packed[term]

    def _read_lists(self, terms: Iterable[str]) -> None:
        """Read the packed lists of terms, in one round trip."""
        unknown = [term for term in terms if term not in self._packed]
        self._packed |= {term: [] for term in unknown}
        wanted = [(one.id, find_bucket(term, one.buckets), term) for one in self._segments for term in unknown if term]
        buckets = self._read_buckets([(segment, bucket) for segment, bucket, _ in wanted])
        for segment, bucket, term in wanted:
            data = buckets[segment, bucket].find(term)
            if data is not None:
                self._packed[term].append((segment, data))

    def _read_buckets(self, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Bucket]:
        found: dict[tuple[int, int], Bucket] = {}
        unknown: list[tuple[int, int]] = []
        for key in dict.fromkeys(wanted):
            known = CACHE.get((*self._place, *key))
            if isinstance(known, Bucket):
                found[key] = known
            else:
                unknown.append(key)
        if unknown:
            arrays = (as_array([segment for segment, _ in unknown]), as_array([bucket for _, bucket in unknown]))
            for segment, number, lists in self._unit.read_bytes(_READ_LISTS, arrays):
                assert isinstance(segment, int)
                assert isinstance(number, int)
                data = bytes(lists) if isinstance(lists, (bytes, memoryview)) else b""
                found[segment, number] = bucket = Bucket(data)
                CACHE.put((*self._place, segment, number), bucket, 4 * len(data))
        return found

    @cached_property
    def _columns(self) -> dict[int, _Columns]:
        """Ids and lengths of every segment's messages."""
        found: dict[int, _Columns] = {}
        for one in self._segments:
            known = CACHE.get((*self._place, one.id, "columns"))
            if isinstance(known, _Columns):
                found[one.id] = known
        unknown = [one.id for one in self._segments if one.id not in found]
        if unknown:
            for number, messages, lengths in self._unit.execute(SQL.columns, {"ids": unknown}):
                assert isinstance(messages, bytes)
                assert isinstance(lengths, bytes)
                ids = from_bytes("q", messages)
                columns = _Columns(ids, dict(zip(ids, from_bytes("H", lengths), strict=True)))
                found[int(str(number))] = columns
                CACHE.put((*self._place, int(str(number)), "columns"), columns, 100 * len(ids))
        return found


def _invert(numbers: Sequence[int], terms: str) -> dict[str, list[int]]:
    """Return which of the messages contain each term."""
    found: dict[str, list[int]] = {}
    for number, lines in zip(numbers, terms.split(_BETWEEN) if numbers else (), strict=True):
        for term in lines.split("\n"):
            found.setdefault(term, []).append(number)
    found.pop("", None)
    return found


def _as_list(value: object) -> list[Any]:
    """Return an array of the server; NULL is an empty one."""
    return value if isinstance(value, list) else []
