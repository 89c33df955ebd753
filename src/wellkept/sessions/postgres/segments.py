"""Segments of a search index: the posting lists of some messages, packed for a database that only stores bytes.

A segment knows its messages by their place, 0 … 65,535, in the ascending list of their ids. Its terms are spread over
buckets by a hash of their first characters, so that one row of a database holds many short lists, a term is found by
equality, and all terms with the same beginning are together. Whoever has a segment never changes it; a change is
another segment.
"""

import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, compress
from operator import sub
from zlib import crc32

from msgspec import Struct

MOST_DOCUMENTS = 65_536
SUBSTRING = "\x01"
"""Begins the terms that are three characters of a text instead of a word; no word contains it."""
_BUCKET_BYTES = 1_500
"""About what a bucket holds: rows above 2,000 bytes are compressed or moved out of their table by PostgreSQL."""
_BETWEEN = b"\xff"
"""Separates terms; a byte that UTF-8 does not have."""
_GAPS, _NUMBERS, _BITMAP = b"g", b"n", b"b"
_FAR = 255
"""As a gap: that many places further, where no message of the list is."""
_SKIP = bytes([_FAR])
_FLAGS = bytes.maketrans(b"01", b"\x00\x01")
_LONGEST = 2**16 - 1


def find_bucket(term: str, buckets: int) -> int:
    """Return the bucket of a term, which is that of all words with the same two first characters."""
    return crc32(_beginning(term).encode()) % buckets


def _beginning(term: str) -> str:
    return term[:3] if term.startswith(SUBSTRING) else term[:2]


def is_beginning(start: str) -> bool:
    """Whether all words that start with `start` are in one bucket."""
    return len(start) >= 2


def pack(places: "array[int]", documents: int) -> bytes:
    """Return a list in the shortest of three forms, after a byte that names the form.

    Few places are 16-bit numbers, many are a bitmap, and most lists are the gaps between places, a byte each.
    """
    gaps = list(map(sub, places, chain((0,), places)))
    skips = sum(gap // _FAR for gap in gaps) if max(gaps, default=0) >= _FAR else 0
    numbers, size = 2 * len(places), (documents + 7) // 8
    if len(gaps) + skips <= min(numbers, size):
        if not skips:
            return _GAPS + bytes(gaps)
        return _GAPS + b"".join([_SKIP * (gap // _FAR) + bytes((gap % _FAR,)) for gap in gaps])
    if numbers <= size:
        return _NUMBERS + _to_little(places).tobytes()
    digits = bytearray(b"0") * (8 * size)
    for place in places:
        digits[-1 - place] = 49  # the digit 1
    return _BITMAP + int(digits, 2).to_bytes(size, "little")


def unpack(data: bytes) -> "array[int]":
    """Return the places of a list in ascending order."""
    form, rest = data[:1], data[1:]
    if form == _GAPS:
        if _FAR not in rest:
            return array("H", accumulate(rest))
        return array("H", [place for place, gap in zip(accumulate(rest), rest, strict=True) if gap != _FAR])
    if form == _NUMBERS:
        places = array("H")
        places.frombytes(rest)
        return _to_little(places)
    digits = f"{int.from_bytes(rest, 'little'):0{8 * len(rest)}b}".encode().translate(_FLAGS)
    return array("H", compress(range(8 * len(rest)), reversed(digits)))


def count_places(data: bytes) -> int:
    """Return how many places a packed list has."""
    form = data[:1]
    if form == _GAPS:
        return len(data) - 1 - data.count(_FAR, 1)
    if form == _NUMBERS:
        return len(data) // 2
    return int.from_bytes(data[1:], "little").bit_count()


def _to_little(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers


def to_bytes(numbers: "array[int]") -> bytes:
    """Return numbers as a database stores them."""
    return _to_little(numbers).tobytes()


def from_bytes(kind: str, data: bytes) -> "array[int]":
    """Return what `to_bytes` was given; `kind` is a letter of `array`."""
    numbers = array(kind)
    numbers.frombytes(data)
    return _to_little(numbers)


class Bucket:
    """The lists of the terms that share a bucket, read on demand."""

    def __init__(self, data: bytes) -> None:
        head = int.from_bytes(data[:4], "little")
        self.terms = data[4 : 4 + head].split(_BETWEEN) if head else []
        start = 4 + head + 4 * len(self.terms)
        self._ends = from_bytes("I", data[4 + head : start])
        self._data = data[start:]

    def find(self, term: str) -> bytes | None:
        """Return the packed list of a term, or None."""
        try:
            return self._read(self.terms.index(term.encode()))
        except ValueError:
            return None

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Yield every term with its packed list."""
        for place, term in enumerate(self.terms):
            yield term.decode(), self._read(place)

    def _read(self, place: int) -> bytes:
        return self._data[self._ends[place - 1] if place else 0 : self._ends[place]]


def _write_bucket(lists: Sequence[tuple[bytes, bytes]]) -> bytes:
    head = _BETWEEN.join(term for term, _ in lists)
    ends, end = array("I"), 0
    for _, data in lists:
        end += len(data)
        ends.append(end)
    return b"".join([len(head).to_bytes(4, "little"), head, to_bytes(ends), *(data for _, data in lists)])


class Draft(Struct):
    """A segment that is being built: ids in ascending order, the number of words of each, and the lists by term."""

    messages: "array[int]"
    lengths: "array[int]"
    lists: "dict[str, array[int]]"

    @property
    def documents(self) -> int:
        """How many messages it has."""
        return len(self.messages)

    def write_buckets(self) -> list[bytes]:
        """Return the packed lists, bucket by bucket."""
        documents = self.documents
        packed = {term: pack(places, documents) for term, places in self.lists.items()}
        size = sum(len(term) + len(data) + 5 for term, data in packed.items())
        spread: list[list[tuple[bytes, bytes]]] = [[] for _ in range(max(1, size // _BUCKET_BYTES))]
        for term in sorted(packed):
            spread[find_bucket(term, len(spread))].append((term.encode(), packed[term]))
        return [_write_bucket(lists) for lists in spread]


def build(texts: Iterable[tuple[int, int, Iterable[str]]]) -> Draft:
    """Return the segment of messages, each given with its number of words and its terms, in the order of their ids."""
    lists: defaultdict[str, array[int]] = defaultdict(partial(array, "H"))
    draft = Draft(array("q"), array("H"), lists)
    for place, (message_id, length, terms) in enumerate(texts):
        draft.messages.append(message_id)
        draft.lengths.append(min(length, _LONGEST))
        for term in terms:
            lists[term].append(place)
    return draft


def read(messages: "array[int]", lengths: "array[int]", buckets: Iterable[bytes]) -> Draft:
    """Return a stored segment as a draft."""
    lists = {term: unpack(data) for bucket in buckets for term, data in Bucket(bucket).items()}
    return Draft(messages, lengths, lists)


def merge(parts: Sequence[Draft], *, without: frozenset[int] = frozenset()) -> Draft:
    """Return one segment in place of several, which have no message in common, without some of their messages."""
    lengths: Mapping[int, int] = {
        message_id: length
        for part in parts
        for message_id, length in zip(part.messages, part.lengths, strict=True)
        if message_id not in without
    }
    messages = array("q", sorted(lengths))
    places = {message_id: place for place, message_id in enumerate(messages)}
    gathered: dict[str, list[int]] = {}
    for part in parts:
        moved = [places.get(message_id, -1) for message_id in part.messages]
        for term, old in part.lists.items():
            gathered.setdefault(term, []).extend([moved[place] for place in old])
    lists = {term: array("H", sorted(new for new in found if new >= 0)) for term, found in gathered.items()}
    return Draft(
        messages,
        array("H", [lengths[message_id] for message_id in messages]),
        {term: found for term, found in lists.items() if found},
    )
