"""SQLite's file format, read without SQLite: pages, cells, records and overflow chains."""

import struct
from collections.abc import Iterator
from itertools import pairwise
from math import inf, isnan
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from wellkept.core.regular_files import FileBytes, explain_errors
from wellkept.salvage.write_ahead import PAGE_SIZES, read_log, use_newer

Value: TypeAlias = int | float | str | bytes | None

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
TABLE_LEAF, TABLE_INTERIOR, INDEX_LEAF, INDEX_INTERIOR = 13, 5, 10, 2
_KINDS = {TABLE_LEAF: 8, TABLE_INTERIOR: 12, INDEX_LEAF: 8, INDEX_INTERIOR: 12}
"""Kinds of b-tree pages, with the bytes of their headers."""
_SAMPLE = 400
"""How many pages are sampled to decide between page sizes."""
_LEAST_CELL = 4
"""SQLite gives a cell at least four bytes, so that a freed one can hold a free block."""


class Malformed(ValueError):
    """The bytes at this place violate the file format."""


class Cell(Struct, frozen=True):
    """One cell of a b-tree page."""

    start: int
    end: int
    rowid: int | None
    """None in an index."""
    payload_bytes: int
    local: bytes
    """The part of the payload in the page itself."""
    overflow: int
    """The first page of the rest; 0 if there is none."""


class Tree(Struct, frozen=True):
    """One b-tree page, taken apart."""

    number: int
    kind: int
    cells: tuple[Cell, ...]
    children: tuple[int, ...]
    is_whole: bool
    """Whether every pointer leads to a cell, and cells and free space fill the page without overlap."""

    @property
    def is_leaf(self) -> bool:
        """Whether the page has no pages below it."""
        return self.kind in {TABLE_LEAF, INDEX_LEAF}

    @property
    def is_table(self) -> bool:
        """Whether its rows have numbers; the pages of indexes and of tables without rowid have none."""
        return self.kind in {TABLE_LEAF, TABLE_INTERIOR}


class PageFile:
    """The pages of a database file, each in its newest committed form."""

    def __init__(self, path: Path) -> None:
        self._data = _read(path)
        self._log_data = _read(path.with_name(f"{path.name}-wal"))
        self.log = read_log(self._log_data)
        self.page_bytes, reserved = self._find_page_bytes()
        if self.log.page_bytes != self.page_bytes:
            self.log = read_log(self._log_data, self.page_bytes)
        self.log = use_newer(self.log, self._log_data, self._data)
        self.usable = self.page_bytes - reserved
        self.count = self.log.page_count if self._uses_log else -(-len(self._data) // self.page_bytes)
        self._copies: list[tuple[bool, int]] = []
        """Where other copies of damaged pages of the log begin, each with whether that is in the log."""
        if self._uses_log:
            frames = self.log.frames
            older = [
                (number in frames, frames.get(number, (number - 1) * self.page_bytes)) for number in self.log.spoiled
            ]
            self._copies = [*((True, at) for at in self.log.loose), *older]

    @property
    def numbers(self) -> range:
        """The numbers of all pages; beyond the count are pages that lost theirs, and older copies of damaged ones."""
        return range(1, self.count + len(self._copies) + 1)

    def is_copy(self, number: int) -> bool:
        """Whether a page is an older copy of a damaged one."""
        return number > self.count + len(self.log.loose)

    @property
    def header(self) -> bytes:
        """The first hundred bytes of the file."""
        return self.page(1)[:HEADER_BYTES]

    @property
    def missing(self) -> int:
        """How many pages the file lacks, by the count in its header; 0 if the header cannot be right."""
        counted = int.from_bytes(self.header[28:32], "big")
        is_plausible = self.header.startswith(MAGIC) and self.header[24:28] == self.header[92:96]
        return max(0, counted - self.count) if is_plausible else 0

    @property
    def _uses_log(self) -> bool:
        return self.log.page_count > 0 and self.log.page_bytes == self.page_bytes

    def page(self, number: int) -> bytes:
        """Return a page, filled up with zeros where the file was cut off."""
        is_in_log, start = self._locate(number)
        data = self._log_data if is_in_log else self._data
        restored = self.log.restored.get(start) if is_in_log else None
        return restored or data[start : start + self.page_bytes].ljust(self.page_bytes, b"\0")

    def _locate(self, number: int) -> tuple[bool, int]:
        """Return whether the newest copy of a page is in the log, and where it begins."""
        if number > self.count and self._copies:
            return self._copies[number - self.count - 1]
        at = self.log.spoiled.get(number, self.log.frames.get(number)) if self._uses_log else None
        return (False, (number - 1) * self.page_bytes) if at is None else (True, at)

    def __contains__(self, number: int) -> bool:
        return 0 < number <= self.count

    def _find_page_bytes(self) -> tuple[int, int]:
        """Return page size and reserved bytes: those of the header, unless others fit the pages better."""
        declared = int.from_bytes(self._data[16:18], "big")
        declared = 65_536 if declared == 1 else declared
        reserved = self._data[20] if len(self._data) > HEADER_BYTES else 0
        likely = [(size, spare) for size in (declared, self.log.page_bytes) for spare in (reserved, 0)]
        tries = [*dict.fromkeys([*likely, *((size, 0) for size in PAGE_SIZES)])]
        sizes = [(size, spare) for size, spare in tries if size in PAGE_SIZES and size - spare >= 480]
        if self._fit(*sizes[0]) * 2 > len(self._data):
            return sizes[0]  # most of the file cannot fit two sizes
        scores = [(self._fit(size, spare), -place) for place, (size, spare) in enumerate(sizes)]
        return sizes[-max(scores)[1]]

    def _fit(self, size: int, reserved: int) -> int:
        """Return how many bytes of the sampled pages are b-tree pages without any contradiction."""
        pages = len(self._data) // size
        step = max(1, pages // _SAMPLE)
        fitting = 0
        for number in range(1, pages + 1, step):
            page = self._data[(number - 1) * size : number * size]
            tree = parse_page(page, number, size - reserved)
            fitting += size * step if tree is not None and tree.is_whole and tree.cells else 0
        return fitting

    def tree(self, number: int) -> Tree | None:
        """Return a page as part of a b-tree, or None if it cannot be one."""
        return parse_page(self.page(number), number, self.usable) if number in self.numbers else None

    def payload(self, cell: Cell) -> tuple[bytes, list[int], bool]:
        """Return the payload of a cell, its overflow pages, and whether the chain is as long as it should be."""
        rest = cell.payload_bytes - len(cell.local)
        pieces, pages, number = [cell.local], list[int](), cell.overflow
        while rest > 0:
            if number not in self or number in pages:
                return b"".join(pieces), pages, False
            page = self.page(number)
            pages.append(number)
            pieces.append(page[4 : 4 + min(rest, self.usable - 4)])
            rest -= self.usable - 4
            number = int.from_bytes(page[:4], "big")
        return b"".join(pieces), pages, number == 0

    def free_pages(self) -> set[int]:
        """Return the pages of the list of free pages, as far as it can be followed."""
        free: set[int] = set()
        trunk = int.from_bytes(self.header[32:36], "big")
        while trunk in self and trunk not in free:
            page = self.page(trunk)
            after, count = struct.unpack(">2I", page[:8])
            if count > self.usable // 4 - 2 or (after and after not in self):
                break
            leaves = struct.unpack(f">{count}I", page[8 : 8 + 4 * count])
            if any(leaf not in self for leaf in leaves):
                break
            free |= {trunk, *leaves}
            trunk = after
        return free


def _read(path: Path) -> "FileBytes | bytes":
    with explain_errors("read", path):
        return FileBytes(path) if path.exists() and path.stat().st_size else b""


def parse_page(page: bytes, number: int, usable: int) -> Tree | None:
    """Return a page as part of a b-tree, with the cells that can be read; None if its header cannot be one."""
    start = HEADER_BYTES if number == 1 else 0
    if len(page) < usable or page[start] not in _KINDS:
        return None
    kind = page[start]
    first_free, count, content, fragments = struct.unpack(">3HB", page[start + 1 : start + 8])
    pointers_at = start + _KINDS[kind]
    content = content or 65_536
    if count * 2 > usable - pointers_at or content > usable:
        return None
    cells, children, is_whole = [], [], content >= pointers_at + 2 * count
    for (at,) in struct.iter_unpack(">H", page[pointers_at : pointers_at + 2 * count]):
        try:
            cell, child = parse_cell(page, at, kind, usable, least=pointers_at)
        except Malformed:
            is_whole = False
            continue
        is_whole &= at >= content
        cells.append(cell)
        children += [child] if child else []
    if kind in {TABLE_INTERIOR, INDEX_INTERIOR}:
        children.append(int.from_bytes(page[start + 8 : start + 12], "big"))
    is_whole = is_whole and _fills(page[:usable], cells, content, (first_free, fragments))
    return Tree(number, kind, tuple(cells), tuple(children), is_whole)


def _fills(page: bytes, cells: list[Cell], content: int, free: tuple[int, int]) -> bool:
    """Whether cells, free blocks and fragments are exactly the content area, and no two of them overlap."""
    block, fragments = free
    spans = [(cell.start, cell.end) for cell in cells]
    while block:
        if block < content or block + 4 > len(page):
            return False
        after, size = struct.unpack(">2H", page[block : block + 4])
        spans.append((block, block + size))
        if size < _LEAST_CELL or (after and after <= block):
            return False
        block = after
    spans.sort()
    if any(end > start for (_, end), (start, _) in pairwise(spans)):
        return False
    return sum(end - start for start, end in spans) + fragments == len(page) - content


def parse_cell(page: bytes, at: int, kind: int, usable: int, *, least: int = 0) -> tuple[Cell, int]:
    """Return the cell at an offset and the page below it, 0 in a leaf; raise Malformed if none can be there."""
    if at < least:
        raise Malformed("a cell begins in the header of its page")
    start, child, rowid = at, 0, None
    try:
        if kind in {TABLE_INTERIOR, INDEX_INTERIOR}:
            child, at = int.from_bytes(page[at : at + 4], "big"), at + 4
        if kind == TABLE_INTERIOR:
            rowid, at = varint(page, at)
            return _clamp(Cell(start, at, rowid, 0, b"", 0), usable), child
        size, at = varint(page, at)
        if kind == TABLE_LEAF:
            rowid, at = varint(page, at)
    except IndexError:
        raise Malformed("a cell begins at the end of the page") from None
    local = _local_bytes(size, usable, is_leaf_of_table=kind == TABLE_LEAF)
    end = at + local
    overflow = int.from_bytes(page[end : end + 4], "big") if local < size else 0
    end = max(end + (4 if local < size else 0), start + _LEAST_CELL)
    return _clamp(Cell(start, end, rowid, size, page[at : at + local], overflow), usable), child


def _clamp(cell: Cell, usable: int) -> Cell:
    if cell.end > usable:
        raise Malformed("a cell goes beyond its page")
    return cell


def _local_bytes(size: int, usable: int, *, is_leaf_of_table: bool) -> int:
    """Return how much of a payload is in the page itself (the formula is part of the file format)."""
    most = usable - 35 if is_leaf_of_table else (usable - 12) * 64 // 255 - 23
    if size < 0:
        raise Malformed("a negative size")
    if size <= most:
        return size
    least = (usable - 12) * 32 // 255 - 23
    fitting = least + (size - least) % (usable - 4)
    return fitting if fitting <= most else least


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at an offset, and the offset after it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for index in range(1, 9):
        byte = data[at + index]
        if index == 8:
            value = value << 8 | byte
            return (value - (1 << 64) if value >> 63 else value), at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    raise AssertionError


_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def serial_types(payload: bytes, most: float = inf) -> tuple[list[int], int]:
    """Return the types in the header of a record, and where its values begin; at most `most` types may be there."""
    try:
        size, at = varint(payload, 0)
        types = list[int]()
        while at < size and len(types) <= most:
            kind, at = varint(payload, at)
            types.append(kind)
    except IndexError:
        raise Malformed("the header of a record is cut off") from None
    if at != size or any(kind < 0 or kind in {10, 11} for kind in types):
        raise Malformed("no record has this header")
    return types, size


def value_bytes(kind: int) -> int:
    """Return the length of a value of this type."""
    if kind >= 12:
        return (kind - 12) // 2
    return 8 if kind == 7 else _INTEGER_BYTES.get(kind, 0)


def decode(kind: int, data: bytes) -> tuple[Value, bool]:
    """Return a value, and whether it could be decoded completely."""
    if len(data) < value_bytes(kind) and kind < 12:
        return None, False
    value: Value
    match kind:
        case 0:
            value = None
        case 8 | 9:
            value = kind - 8
        case 7:
            (number,) = struct.unpack(">d", data)
            value = None if isnan(number) else number  # as SQLite reads it
        case _ if kind < 12:
            value = int.from_bytes(data, "big", signed=True)
        case _ if kind % 2 == 0:
            value = data
        case _:
            try:
                return data.decode(), len(data) == value_bytes(kind)
            except UnicodeDecodeError:
                return data.decode(errors="replace"), False
    return value, len(data) == value_bytes(kind)


def decode_record(payload: bytes) -> Iterator[tuple[Value, bool]]:
    """Yield the values of a record, each with whether it is complete."""
    types, at = serial_types(payload)
    for kind in types:
        size = value_bytes(kind)
        yield decode(kind, payload[at : at + size])
        at += size
