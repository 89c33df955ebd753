"""FTS5 as the word index uses it: its tokenizer, its query language, its records, and posting lists from its pages."""

from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, compress, pairwise
from typing import Final, NamedTuple, Protocol, cast
from weakref import WeakKeyDictionary

from msgspec import Struct

from wellkept.languages.language import STOP_WORDS
from wellkept.sessions.search.analysis import find_words
from wellkept.sessions.search.postings import AllOf, AnyOf, Lookup, Prefix, Without, Word
from wellkept.storage.connections import statements
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
        return frozenset(self.tokens(" ".join(STOP_WORDS)))

    def stem(self, word: str) -> str:
        return next(iter(self.tokens(word)), "")

    def tokens(self, text: str) -> Sequence[str]:
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


SQL = statements("wellkept.sessions.sqlite", "search.sql")
_HEADER = 4
"""Bytes before the first entry of a leaf page; the last two say where its entries end."""
_MAGIC = bytes.fromhex("ff000001")
"""Marks a record of segments that counts deleted entries."""
_MAIN = b"0"
"""Begins the terms of the index itself; other numbers begin those of prefix indexes."""
_SEGMENT_BITS: Final = 37
_TOMBSTONES: Final = 1 << 16
"""Added to the number of a segment in the ids of its hash tables."""
_SLOTS = 8
"""Where the slots of a hash table begin; its first byte is the size of one, the next tells whether 0 is deleted."""
_HIGH = bytes(range(ONE_BYTE, 256))
"""Bytes of a number that others follow."""
_STEPS = [byte if byte < ONE_BYTE else (byte & 0x7F) << 7 for byte in range(256)]
"""What a byte adds to the sum of differences, in numbers of one or two bytes."""
_ZERO, _LAST, _MORE = 2, 1, 0
_KINDS = bytes((_ZERO, *[_LAST] * (ONE_BYTE - 1), *[_MORE] * (256 - ONE_BYTE)))
"""What a byte is: zero, or the last of a number, or one that others follow."""


class _Unreadable(Exception):
    """A page is missing, damaged, or has entries that only FTS5 can combine."""


class _Segment(NamedTuple):
    """One segment, as the record of segments describes it."""

    number: int
    first: int
    last: int
    oldest: int
    newest: int
    tables: int
    deleted: int
    entries: int


class _Part(Struct, frozen=True):
    """The entries of one term in one segment."""

    chunks: Sequence[bytes]
    """One for each page: a whole id, then differences."""
    deleted: frozenset[int]

    def decode(self, limit: int | None = None) -> list[list[int]]:
        """Return the ids of each chunk; with a limit, of the last chunks that have at least as many together."""
        taken = 0 if limit is None else len(self.chunks)
        left = (limit or 0) + len(self.deleted)
        while taken and left > 0:
            taken -= 1
            left -= _count(self.chunks[taken])
        lists = [_decode(chunk) for chunk in self.chunks[taken:]]
        if self.deleted:
            lists = [[number for number in ids if number not in self.deleted] for ids in lists]
        return lists


class PackedList(Struct, frozen=True):
    """The messages that contain one term, as the pages hold them."""

    parts: Sequence[_Part]

    def count(self) -> int:
        """Return how many there are."""
        if any(part.deleted for part in self.parts):
            return len(self.ids())
        return sum(_count(chunk) for part in self.parts for chunk in part.chunks)

    def ids(self, newest: int | None = None) -> list[int]:
        """Return them in ascending order; only the newest, if a number is given."""
        lists = [ids for part in self.parts for ids in part.decode(newest) if ids]
        joined = list(chain.from_iterable(lists))
        if any(before[-1] >= after[0] for before, after in pairwise(lists)):
            joined.sort()  # messages were indexed again, so that a newer segment has older ones
        return joined if newest is None else joined[-newest:]


class IndexPages:
    """The lists of the word index in the state that a connection sees."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._segments: list[_Segment] | None = None

    def find(self, token: str) -> PackedList | None:
        """Return the list of a token; None where FTS5 must be asked."""
        try:
            if self._segments is None:
                self._segments = _read_segments(self._read(10))
            term = _MAIN + token.encode("utf-8", "replace")
            parts = [self._find_part(segment, term) for segment in self._segments]
        except (_Unreadable, IndexError, TypeError, ValueError):
            return None
        return PackedList([part for part in parts if part.chunks])

    def _read(self, number: int) -> bytes:
        block = self._connection.execute(SQL.index_page, (number,)).fetchone()
        if block is None or not isinstance(block[0], bytes) or len(block[0]) <= _HEADER:
            raise _Unreadable
        return block[0]

    def _find_part(self, segment: _Segment, term: bytes) -> _Part:
        row = self._connection.execute(SQL.index_leaf, (segment.number, term)).fetchone()
        if row is None:
            return _Part([], frozenset())
        # a merge that is not finished has moved the first pages to the segment that it writes
        leaf = max(cast(int, row[0]) >> 1, segment.first)
        chunks = [chunk for chunk in self._read_chunks(segment, term, leaf) if chunk]
        if not all(map(_is_plain, chunks)):
            raise _Unreadable
        return _Part(chunks, self._read_deleted(segment) if chunks and segment.tables else frozenset())

    def _read_chunks(self, segment: _Segment, term: bytes, leaf: int) -> Iterator[bytes]:
        first_page = segment.number << _SEGMENT_BITS
        page = self._read(first_page + leaf)
        end, starts = _list_terms(page)
        place = _find_term(page, starts, term)
        if place is None:
            return
        number, start = place
        yield page[start : starts[number + 1] if number + 1 < len(starts) else end]
        if number + 1 < len(starts):
            return
        for following in range(leaf + 1, segment.last + 1):
            page = self._read(first_page + following)
            end, starts = _list_terms(page)
            yield page[_HEADER : starts[0] if starts else end]
            if starts:
                return

    def _read_deleted(self, segment: _Segment) -> frozenset[int]:
        deleted: set[int] = set()
        for number in range(segment.tables):
            table = self._read((segment.number + _TOMBSTONES << _SEGMENT_BITS) + number)
            slots = array("I" if table[0] == 4 else "Q", table[_SLOTS:])
            slots.byteswap()
            deleted.update(slots)
        return frozenset(deleted - {0})


def _read_segments(record: bytes) -> list[_Segment]:
    """Return the segments of an index, oldest first."""
    if record[4:8] != _MAGIC:
        raise _Unreadable
    levels, _, _, *numbers = read_varints(record[8:])
    found, place = [], 0
    for _ in range(levels):
        count = numbers[place + 1]  # the number before it tells how many of the level a merge reads
        place += 2
        for _ in range(count):
            found.append(_Segment(*numbers[place : place + len(_Segment._fields)]))
            place += len(_Segment._fields)
    return sorted(found, key=lambda segment: segment.oldest)


def _list_terms(page: bytes) -> tuple[int, list[int]]:
    """Return where the entries of a leaf page end, and where its terms begin."""
    end = page[2] << 8 | page[3]
    if not _HEADER <= end <= len(page):
        raise _Unreadable
    starts = _decode(page[end:]) if end < len(page) else []
    if starts and (starts[0] < _HEADER or starts[-1] >= end):
        raise _Unreadable
    return end, starts


def _find_term(page: bytes, starts: Sequence[int], term: bytes) -> tuple[int, int] | None:
    """Return the place of a term among those of a page, and where its entries begin; None if it is not there.

    Each term is written as how many bytes it shares with the one before, and the rest; the first one as a whole.
    """
    matched = 0  # bytes that the term before shares with the one that is looked for
    for number, start in enumerate(starts):
        shared = page[start] if number else 0
        if shared < matched:
            return None
        if shared > matched:
            continue
        size_at = start + 1 if number else start
        end = size_at + 1 + page[size_at]
        rest, wanted = page[size_at + 1 : end], term[matched:]
        if shared >= ONE_BYTE or page[size_at] >= ONE_BYTE:
            raise _Unreadable
        if rest >= wanted:
            return (number, end) if rest == wanted else None
        matched += _count_shared(rest, wanted)
    return None


def _count_shared(left: bytes, right: bytes) -> int:
    """Return how many bytes at the beginning of both are the same, of which the left one comes first."""
    differing = (place for place, byte in enumerate(left) if byte != right[place])
    return next(differing, len(left))


def _is_plain(chunk: bytes) -> bool:
    """Whether a chunk consists of whole numbers; a difference of zero would mark an entry as deleted."""
    kinds = chunk.translate(_KINDS)
    return b"\1\2" not in kinds and b"\2\2" not in kinds and not kinds.startswith(b"\2") and not kinds.endswith(b"\0")


def _count(chunk: bytes) -> int:
    """Return how many ids a chunk has: each number ends with a byte below 128."""
    return len(chunk.translate(None, _HIGH))


def _decode(chunk: bytes) -> list[int]:
    """Return the sums of the numbers in a chunk, of which the first is the only large one."""
    kinds = chunk.translate(_KINDS)
    start = len(kinds) - len(kinds.lstrip(b"\0")) + 1
    first, rest, kinds = read_varints(chunk[:start])[0], chunk[start:], kinds[start:]
    if rest.isascii():
        return list(accumulate(rest, initial=first))
    if b"\0\0" in kinds:
        return list(accumulate(read_varints(rest), initial=first))
    # the sum of the bytes is one of numbers wherever a number ends
    return list(compress(accumulate(map(_STEPS.__getitem__, rest), initial=first), b"\1" + kinds))
