"""Segments of the search index: the posting lists of one range of message ids, and what is to be done next.

A segment covers ids from a multiple of its size on, so an id tells where it is. The number of a message in a list is
the lower half of its id (16 bits); no segment crosses a multiple of 65,536.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import NamedTuple, TypeAlias

from kept.sessions.records import Row
from kept.sessions.search.analysis import IndexedText, cut, guess_language
from kept.sessions.sqlite.index import BITMAP_FROM, CHUNK, SQL, VERSION, Segment, hash_word, is_bitmap, read_segments
from kept.storage.sqlite import Connection

SIZES = (16, 64, 256, 1_024, 4_096, 16_384, CHUNK)
"""What segments are merged into, four to one: with more at once, a search would read more segments."""
QUEUE_BATCH = 500
LARGEST_BUILD = 16_384
"""Messages that one step indexes: half a second, after which the time is looked at again."""
_BEFORE_ALL = -(1 << 62)
_OFFSET = CHUNK - 1
_LONGEST = 2**16 - 1
_FLAGS = bytes.maketrans(b"01", b"\x00\x01")


def pack(offsets: "array[int]", first: int, size: int) -> bytes:
    """Return a list in the shorter of two forms: 16-bit numbers, or a bitmap of the whole range.

    A bitmap has exactly size / 8 bytes, and a list of numbers always has fewer.
    """
    if size < BITMAP_FROM or 16 * len(offsets) < size:
        return _to_little(offsets).tobytes()
    digits, last = bytearray(b"0") * size, (first & _OFFSET) + size - 1
    for offset in offsets:
        digits[last - offset] = 49  # the digit 1
    return int(digits, 2).to_bytes(size // 8, "little")


def unpack(data: bytes, first: int, size: int) -> "array[int]":
    """Return the numbers of a list; raise ValueError if the bytes are no list."""
    if is_bitmap(data, size):
        digits = f"{int.from_bytes(data, 'little'):0{size}b}".encode().translate(_FLAGS)
        start = first & _OFFSET
        return array("H", compress(range(start, start + size), reversed(digits)))
    offsets = array("H")
    offsets.frombytes(data)
    return _to_little(offsets)


def _to_little(offsets: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        offsets = offsets[:]
        offsets.byteswap()
    return offsets


def merge_lists(parts: Sequence[tuple[bytes, Segment]], first: int, size: int) -> bytes:
    """Return the lists of one word in several segments, in order, as the list of a larger one."""
    length = sum(len(data) for data, _ in parts)
    if not any(is_bitmap(data, segment.size) for data, segment in parts) and (size < BITMAP_FROM or 8 * length < size):
        return b"".join(data for data, _ in parts)
    joined = array("H")
    for data, segment in parts:
        joined += unpack(data, segment.first, segment.size)
    return pack(joined, first, size)


class Draft:
    """A segment that is being built."""

    def __init__(self, first: int, size: int) -> None:
        self.first = first
        self.size = size
        self.documents = 0
        self.words = 0
        self.lists: dict[str, array[int]] = {}
        self.lengths = array("H", bytes(2 * size))
        self.sessions: dict[int, str] = {}
        """The session of each message, by its place in the segment."""
        self.languages: Counter[str] = Counter()

    def add(self, text: IndexedText, session_id: str) -> None:
        """Add a message; ids must be ascending."""
        words, length = cut(text)
        offset, place = text.message_id & _OFFSET, text.message_id - self.first
        lists = self.lists
        for word in words:
            known = lists.get(word)
            if known is None:
                lists[word] = array("H", (offset,))
            else:
                known.append(offset)
        self.lengths[place] = length = min(length, _LONGEST)
        self.sessions[place] = session_id
        self.documents += 1
        self.words += length
        language = guess_language(words)
        if language is not None:
            self.languages[language] += 1

    def by_key(self) -> "dict[int, array[int]]":
        """Return the lists by the hash of their word; words with one hash share a list."""
        found: dict[int, array[int]] = {}
        for word, offsets in self.lists.items():
            key = hash_word(word)
            found[key] = array("H", sorted({*found[key], *offsets})) if key in found else offsets
        return found

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield the packed lists in the order of their keys."""
        lists = self.by_key()
        for key in sorted(lists):
            yield key, pack(lists[key], self.first, self.size)

    def number_sessions(self, numbers: Mapping[str, int]) -> bytes:
        """Return the number of the session of every message in the range, 32 bits each, 0 where there is none."""
        column = array("I", bytes(4 * self.size))
        for place, session_id in self.sessions.items():
            column[place] = numbers[session_id]
        return column.tobytes()


def place_columns(segment: Segment, columns: Sequence[tuple[Segment, bytes]], width: int) -> bytes:
    """Return one column of a segment that takes the place of smaller ones; `width` is the bytes of a value."""
    column = bytearray(width * segment.size)
    for part, data in columns:
        start = width * (part.first - segment.first)
        column[start : start + width * part.size] = data
    return bytes(column)


def find_block(low: int, high: int, last: int, *, largest: int) -> tuple[int, int]:
    """Return (first, size) of the largest block inside `low` … `high` that ends with the block of `last`."""
    end = min(high, (last // SIZES[0] + 1) * SIZES[0])
    fitting = [size for size in SIZES if size <= largest and end % size == 0 and end - size >= low]
    return end - fitting[-1], fitting[-1]


def find_mergeable(segments: Sequence[Segment], top: int) -> tuple[int, int, list[Segment]] | None:
    """Return (first, size, parts) of the largest complete block that several segments cover; None if there is none.

    `top` is the first id that no block may reach beyond, because messages are still added there.
    """
    for size in reversed(SIZES):
        parts: dict[int, list[Segment]] = {}
        for one in segments:
            first = one.first // size * size
            if one.size < size and first + size <= top:
                parts.setdefault(first, []).append(one)
        for first, found in sorted(parts.items(), reverse=True):
            if len(found) > 1:
                return first, size, sorted(found, key=lambda one: one.first)
    return None


def without(data: bytes, segment: Segment, offsets: Iterable[int]) -> bytes | None:
    """Return a list without these numbers; None if it contains none of them."""
    gone = set(offsets)
    if not is_bitmap(data, segment.size) and not any(one.to_bytes(2, "little") in data for one in gone):
        return None
    numbers = unpack(data, segment.first, segment.size)
    left = array("H", (one for one in numbers if one not in gone))
    return None if len(left) == len(numbers) else pack(left, segment.first, segment.size)


class Block(NamedTuple):
    """A range of ids to build a segment of; `parts` are the segments that it replaces."""

    first: int
    size: int
    parts: Sequence[Segment] = ()
    is_merge: bool = False
    """Whether the lists of the parts are joined; otherwise the messages are read."""


class Queue(NamedTuple):
    """Rows that wait in the queue."""

    rows: Sequence[Row]


class Leftovers(NamedTuple):
    """Lists of a segment that no search reads."""

    segment_id: int


class OldIndex(NamedTuple):
    """A table of an earlier version's index."""

    table: str


Work: TypeAlias = Block | Queue | Leftovers | OldIndex


def find_work(connection: Connection) -> Work | None:
    """Return what is to be done next, the most urgent first."""
    waiting = connection.execute(SQL.waiting, (QUEUE_BATCH,)).fetchall()
    if waiting:
        return Queue(waiting)
    (newest,) = connection.execute(SQL.newest_message).fetchone() or (None,)
    segments = read_segments(connection)
    top = (int(str(newest)) + 1) // SIZES[0] * SIZES[0] if newest is not None else _BEFORE_ALL
    block = _find_uncovered(connection, segments, top)
    if block is not None:
        return block
    unfinished = connection.execute(SQL.unfinished).fetchone()
    if unfinished is not None:
        return Leftovers(int(str(unfinished[0])))
    for one in reversed(segments):
        if one.version != VERSION:
            return Block(one.first, one.size, (one,))
    merge = find_mergeable(segments, top)
    if merge is not None:
        return Block(*merge, is_merge=True)
    old = connection.execute(SQL.old_tables).fetchone()
    return None if old is None else OldIndex(str(old[0]))


def _find_uncovered(connection: Connection, segments: Sequence[Segment], top: int) -> Block | None:
    """Return the newest block below `top` whose messages are in no segment."""
    high = top
    for low, start in [(one.end, one.first) for one in reversed(segments)] + [(_BEFORE_ALL, _BEFORE_ALL)]:
        if low < high:
            (last,) = connection.execute(SQL.newest_between, (low, high)).fetchone() or (None,)
            if last is not None:
                return Block(*find_block(low, high, int(str(last)), largest=LARGEST_BUILD))
        high = min(high, start)
    return None
