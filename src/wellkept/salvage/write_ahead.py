"""The write-ahead log of a SQLite file, read without SQLite: which pages it holds committed."""

import os
import struct
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import apsw
from msgspec import Struct, field

from wellkept.core.errors import DamagedLog
from wellkept.core.regular_files import FileBytes

PAGE_SIZES = tuple(512 << power for power in range(8))
_LOG_HEADER, _FRAME_HEADER, _COVERED = 32, 24, 8
"""Bytes of the log's header, of a frame's header, and of the part of the latter that the checksum covers."""
_MASK = 0xFFFFFFFF
_MAGICS = {"<": 0x377F0682, ">": 0x377F0683}
"""What a log begins with, by the byte order of its checksums."""
FORMAT_VERSION = 3_007_000
_MOST_CHECKPOINTS = 1 << 24
"""A header that counts more of them is none: its checksum matches by chance."""
_TELLING = 0x1FFF
"""If the difference has one of these bits, a wrong word would have to match 40 bits by chance, in a thousand tries."""
_Sum = tuple[int, int]


class Log(Struct):
    """The committed pages of a write-ahead log."""

    page_bytes: int = 0
    frames: dict[int, int] = field(default_factory=dict)
    """Page → offset in the log of its newest intact committed copy."""
    restored: dict[int, bytes] = field(default_factory=dict)
    """Offset → page that was damaged in one word and reconstructed with the checksum of its frame."""
    spoiled: dict[int, int] = field(default_factory=dict)
    """Page → offset of a committed copy that fails its checksum and is newer than the intact one."""
    loose: list[int] = field(default_factory=list)
    """Offsets of committed pages whose number is lost."""
    page_count: int = 0
    """Pages of the database after the last commit; 0 if nothing is committed."""
    is_damaged: bool = False
    """Whether a committed frame fails its checksum: SQLite ignores everything from it on."""
    skipped: int = 0
    """Frames that are lost with the header: what follows may be an older generation, which the file has outgrown."""
    is_cut: bool = False
    """Whether it ends inside a frame; a killed process can leave it so as well."""

    @property
    def is_complete(self) -> bool:
        """Whether the newest copy of every committed page is intact."""
        return not self.spoiled and not self.loose

    def commit(self, frames: "list[_Frame]") -> None:
        """Add the frames of a transaction; the last one states how many pages the database has."""
        self.page_count = frames[-1].size
        for frame in frames:
            if frame.is_whole:
                self.frames[frame.page] = frame.at
                self.spoiled.pop(frame.page, None)
            elif frame.has_number and 0 < frame.page <= self.page_count:
                self.spoiled[frame.page] = frame.at
            else:
                self.loose.append(frame.at)
            if frame.restored:
                self.restored[frame.at] = frame.restored


class _Frame(Struct, frozen=True):
    """One page in the log."""

    page: int
    size: int
    """Pages of the database, if the frame ends a transaction; else 0."""
    at: int
    """Offset of the page."""
    sum: _Sum
    """The checksum up to this frame; that of the next frame continues it."""
    is_whole: bool = True
    is_healthy: bool = True
    """Whether SQLite accepts it."""
    is_certain: bool = True
    """Whether its header is intact, so that it reliably marks the end of a transaction."""
    has_number: bool = True
    restored: bytes = b""


def read_log(data: "FileBytes | bytes", page_bytes: int = 0, *, until_damage: bool = False) -> Log:
    """Return what is committed in a write-ahead log, also beyond a damaged frame unless `until_damage`.

    `page_bytes` is used if the header of the log is damaged; without it the page size is found by the frames.

    The checksum of a frame continues that of the frame before it, which is stored in that frame. So every frame can
    be checked by itself, and damage to one does not hide the others.
    """
    log = Log()
    if len(data) < _LOG_HEADER + _FRAME_HEADER:
        return log
    declared = int.from_bytes(data[8:12], "big")
    if is_header(data[:_LOG_HEADER]) or (declared in PAGE_SIZES and page_bytes in {0, declared}):
        log.page_bytes = declared
    else:
        log.page_bytes = page_bytes or next(
            (size for size in PAGE_SIZES if _find_generation(data, size) is not None), 0
        )
    if log.page_bytes not in PAGE_SIZES:
        return log
    reader = _Reader(data, log.page_bytes)
    pending, is_healthy = list[_Frame](), reader.has_whole_header
    for frame in reader.frames():
        if until_damage and not frame.is_whole:
            break
        pending.append(frame)
        is_healthy &= frame.is_healthy
        if frame.size and frame.is_certain:  # frames without a commit after them may be left over from a killed writer
            log.is_damaged |= not is_healthy
            log.commit(pending)
            pending = []
    log.is_cut = reader.ends_in_a_frame
    log.skipped = reader.skipped
    return log


def use_newer(log: Log, data: "FileBytes | bytes", file: "FileBytes | bytes") -> Log:
    """Return `log`, or an empty one if it may be an older generation than the pages of the file.

    A log begins anew when all of it is in the file. So an older generation differs from the file only in pages that
    the frames before it have changed since; a log that was never copied differs in most of its pages.
    """
    size = log.page_bytes
    pairs = ((data[at : at + size], file[(page - 1) * size : page * size]) for page, at in log.frames.items())
    if not log.skipped or sum(logged != stored for logged, stored in pairs) > max(log.skipped, len(log.frames) // 2):
        return log
    return Log(page_bytes=size, is_damaged=log.is_damaged)


class _Reader:
    """Checks the frames of a log one after another."""

    def __init__(self, data: "FileBytes | bytes", page_bytes: int) -> None:
        self._data, self._step = data, _FRAME_HEADER + page_bytes
        self._order = self._find_byte_order()
        self.has_whole_header = is_header(data[:_LOG_HEADER])
        if self.has_whole_header:
            self._salts = data[16:24]
        else:
            self._order, self._salts = _find_generation(data, page_bytes) or (
                self._order, _find_salts(data, self._step)
            )  # fmt: skip
        self._end = self._find_end()
        self._start = self._find_start(page_bytes)

    def frames(self) -> Iterator[_Frame]:
        """Yield every frame up to the last one of this log; after it come those of an older one."""
        before = self._start
        for at in range(_LOG_HEADER, self._end, self._step):
            frame = self._read(at, before)
            before = frame.sum
            yield frame

    @property
    def skipped(self) -> int:
        """How many frames come before the first of this log, if no header says that they are of it."""
        starts = range(_LOG_HEADER, _LOG_HEADER if self.has_whole_header else self._end, self._step)
        return next((index for index, at in enumerate(starts) if self._salts_at(at) == self._salts), 0)

    @property
    def ends_in_a_frame(self) -> bool:
        """Whether the last frame is cut off."""
        rest = (len(self._data) - _LOG_HEADER) % self._step
        return rest > 0 and self._salts_at(len(self._data) - rest) == self._salts

    def _find_start(self, page_bytes: int) -> _Sum:
        """Return the checksum that the first frame continues: that of the header, whatever is left of it."""
        stored, counted = _unpack_sum(self._data[24:32]), _checksum(self._data[:24], (0, 0), self._order)
        if self.has_whole_header or self._end == _LOG_HEADER:
            return stored
        sums = [stored, counted]
        after_head = _undo_checksum(
            self._data[_LOG_HEADER + _FRAME_HEADER : _LOG_HEADER + self._step], self._read_sum(_LOG_HEADER), self._order
        )
        needed = _undo_checksum(self._data[_LOG_HEADER : _LOG_HEADER + _COVERED], after_head, self._order)
        if self._salts == self._salts_at(_LOG_HEADER) and _can_begin(needed, self._salts, page_bytes, self._order):
            return needed
        wanted = self._read_sum(_LOG_HEADER)
        return next((start for start in sums if self._sum_of(_LOG_HEADER, start) == wanted), stored)

    def _find_end(self) -> int:
        """Return where the last frame of this log ends."""
        frames = (len(self._data) - _LOG_HEADER) // self._step
        starts = (_LOG_HEADER + number * self._step for number in reversed(range(frames)))
        return next((at + self._step for at in starts if _share_salt(self._salts_at(at), self._salts)), _LOG_HEADER)

    def _read(self, at: int, before: _Sum) -> _Frame:
        page, size = struct.unpack(">2I", self._data[at : at + _COVERED])
        start, stored, counted = at + _FRAME_HEADER, self._read_sum(at), self._sum_of(at, before)
        has_salts = self._salts_at(at) == self._salts
        if stored == counted:
            return _Frame(page, size, start, stored, is_healthy=has_salts)
        if self._is_sum_damaged(at, counted):
            return _Frame(page, size, start, counted, is_healthy=False)
        changes = self._explain(at, stored, counted)
        # only if the low bits of a half differ: changes of high bits have the same effect in many words
        if len(changes) == 1 and (halves := _subtract(stored, counted)) and (halves[0] | halves[1]) & _TELLING:
            covered = self._correct(at, *changes[0])
            page, size = struct.unpack(">2I", covered[:_COVERED])
            return _Frame(page, size, start, stored, is_healthy=False, restored=covered[_COVERED:])
        # a flipped bit is not a torn write, so the frame was once complete, even if the bit is in the checksum
        is_half = stored[0] == counted[0] or stored[1] == counted[1]
        words = ((self._word(at, index), change) for index, change in changes)
        is_certain = is_half or any((word ^ (word + change) & _MASK).bit_count() == 1 for word, change in words)
        return _Frame(
            page, size, start, stored, is_whole=False, is_healthy=False, is_certain=is_certain, has_number=has_salts
        )

    def _is_sum_damaged(self, at: int, counted: _Sum) -> bool:
        """Whether the stored checksum is what is damaged: the next frame continues the right one."""
        after = at + self._step
        return after < self._end and self._sum_of(after, counted) == self._read_sum(after)

    def _explain(self, at: int, stored: _Sum, counted: _Sum) -> list[tuple[int, int]]:
        """Return the words whose damage would explain a wrong checksum, each with the correction to add to it."""
        words = (_COVERED + self._step - _FRAME_HEADER) // 4
        changes = _find_words(stored, counted, words)
        is_last = at + self._step == self._end
        # in the last frame, a change of the last word may as well be a damaged checksum
        return [change for change in changes if not is_last or change[0] < words - 1]

    def _correct(self, at: int, index: int, change: int) -> bytes:
        """Return the covered bytes of a frame with one word changed."""
        covered = bytearray(self._data[at : at + _COVERED] + self._data[at + _FRAME_HEADER : at + self._step])
        struct.pack_into(f"{self._order}I", covered, 4 * index, (self._word(at, index) + change) & _MASK)
        return bytes(covered)

    def _word(self, at: int, index: int) -> int:
        start = at + 4 * index + (0 if 4 * index < _COVERED else _FRAME_HEADER - _COVERED)
        return int.from_bytes(self._data[start : start + 4], "big" if self._order == ">" else "little")

    def _find_byte_order(self) -> str:
        """Return the byte order of the checksums: that of the header, unless only the other fits the first frame."""
        declared, other = (">", "<") if self._data[3] & 1 else ("<", ">")
        if len(self._data) < _LOG_HEADER + self._step:
            return declared
        self._order = other
        fits = self._sum_of(_LOG_HEADER, _unpack_sum(self._data[24:32])) == self._read_sum(_LOG_HEADER)
        return other if fits else declared

    def _sum_of(self, at: int, before: _Sum) -> _Sum:
        sum_of_head = _checksum(self._data[at : at + _COVERED], before, self._order)
        return _checksum(self._data[at + _FRAME_HEADER : at + self._step], sum_of_head, self._order)

    def _read_sum(self, at: int) -> _Sum:
        return _unpack_sum(self._data[at + 16 : at + _FRAME_HEADER])

    def _salts_at(self, at: int) -> bytes:
        return self._data[at + 8 : at + 16]


def _find_salts(data: "FileBytes | bytes", step: int) -> bytes:
    """Return the salts that most of the first frames have; for a log whose header is damaged."""
    frames = range(_LOG_HEADER, min(len(data) - step, _LOG_HEADER + 2 * step) + 1, step)
    counts = Counter(data[at + 8 : at + 16] for at in frames)
    return max(counts, key=lambda salts: (any(salts), counts[salts]), default=b"")


def _find_generation(data: "FileBytes | bytes", page_bytes: int) -> tuple[str, bytes] | None:
    """Return byte order and salts of a log without a header: those of the first frame that the next one continues.

    A log is written from its beginning; frames of an older generation come only after those of the newest.
    """
    step = _FRAME_HEADER + page_bytes
    for at in range(_LOG_HEADER, len(data) - 2 * step + 1, step):
        salts, after = data[at + 8 : at + 16], data[at + step : at + 2 * step]
        if len(after) < step or salts != after[8:16] or not any(salts):
            continue
        stored, continued = _unpack_sum(data[at + 16 : at + 24]), _unpack_sum(after[16:24])
        for order in _MAGICS:
            head = _checksum(after[:_COVERED], stored, order)
            if _checksum(after[_FRAME_HEADER:], head, order) == continued:
                return order, salts
    return None


def _can_begin(start: _Sum, salts: bytes, page_bytes: int, order: str) -> bool:
    """Whether `start` is the checksum of a header with these salts: the only field that is free counts checkpoints."""
    first, second = _undo_checksum(salts, start, order)
    before = _checksum(struct.pack(">2I", _MAGICS[order], FORMAT_VERSION), (0, 0), order)
    size, _ = struct.unpack(f"{order}2I", struct.pack(">2I", page_bytes, 0))
    if first != (before[0] + size + before[1]) & _MASK:
        return False
    (count,) = struct.unpack(">I", struct.pack(f"{order}I", (second - before[1] - first) & _MASK))
    return bool(count < _MOST_CHECKPOINTS)


def _share_salt(salts: bytes, others: bytes) -> bool:
    """Whether one of two salts is the same: restarting a log changes both of them."""
    return salts[:4] == others[:4] or salts[4:] == others[4:]


def _unpack_sum(data: bytes) -> _Sum:
    first, second = struct.unpack(">2I", data)
    return first, second


def _checksum(data: bytes, start: _Sum, order: str) -> _Sum:
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & _MASK
        second = (second + words[at + 1] + first) & _MASK
    return first, second


def _undo_checksum(data: bytes, end: _Sum, order: str) -> _Sum:
    """Return the checksum from which `data` leads to `end`."""
    first, second = end
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in reversed(range(0, len(words), 2)):
        second = (second - words[at + 1] - first) & _MASK
        first = (first - words[at] - second) & _MASK
    return first, second


def _find_words(stored: _Sum, counted: _Sum, words: int) -> list[tuple[int, int]]:
    """Return the indexes of the words whose change explains a wrong checksum, each with the correction to add.

    The checksum is linear: each word adds a multiple of itself to both halves, which depends only on its index.
    """
    short = _subtract(stored, counted)
    changes = []
    for index, (first, second, half, inverse) in enumerate(_list_effects(words)):
        change = short[half] * inverse & _MASK
        if (change * first & _MASK, change * second & _MASK) == short:
            changes.append((index, change))
    return changes


def _subtract(stored: _Sum, counted: _Sum) -> _Sum:
    return (stored[0] - counted[0]) & _MASK, (stored[1] - counted[1]) & _MASK


@lru_cache(maxsize=2)
def _list_effects(words: int) -> list[tuple[int, int, int, int]]:
    """Return the factors of each word in both halves, and the odd one of the two with its inverse."""
    effects = []
    pair = [(0, 1), (1, 1)]  # the last word, and the one before it
    for _ in range(words // 2):
        for first, second in pair:
            half = 0 if first % 2 else 1
            effects.append((first, second, half, pow((first, second)[half], -1, _MASK + 1)))
        pair = [((first + second) & _MASK, (first + 2 * second) & _MASK) for first, second in pair]
    return effects[::-1]


def check_log(connection: apsw.Connection, path: Path) -> None:
    """Raise DamagedLog if SQLite has read less of the log than was committed to it; the log then stays as it is.

    SQLite ignores everything from a damaged frame on, and removes the log when the file is closed; so the connection
    must not do that until this has returned. Of a healthy log only the headers of frames are read that SQLite ignores.
    """
    read = _count_read(connection)
    page_bytes = int(str(connection.pragma("page_size")))
    try:
        data = FileBytes(companion_log(path))
    except FileNotFoundError:
        return
    if not _holds_commit(data, page_bytes, after=read):
        return
    # without a whole transaction after it, the damage is the torn end of a log after a loss of power
    if read_log(data, page_bytes).is_damaged and _count_read(connection) == read:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        pages = (len(data) - _LOG_HEADER) // (_FRAME_HEADER + page_bytes) - read
        what = f"the log of {str(path)!r} is damaged: up to {pages} pages after the damage would be lost"
        raise DamagedLog(what, "run `kept sessions repair`; it saves what is whole")


def _count_read(connection: apsw.Connection) -> int:
    """Return how many frames of the log SQLite uses."""
    frames, _ = connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)
    return max(0, frames)


def _holds_commit(data: FileBytes, page_bytes: int, *, after: int) -> bool:
    """Whether the log holds, behind that number of frames, the end of a transaction of the same generation."""
    step = _FRAME_HEADER + page_bytes
    begin = _LOG_HEADER + after * step
    if after:
        salts = data[begin - step + 8 : begin - step + 16]
    elif is_header(data[:_LOG_HEADER]):
        salts = data[16:24]
    else:
        return len(data) >= _LOG_HEADER + step
    heads = (data[at : at + 16] for at in range(begin, len(data) - step + 1, step))
    return any(_share_salt(head[8:16], salts) and head[4:8] != bytes(4) for head in heads)


def is_header(head: bytes) -> bool:
    """Whether a log begins with this, whole."""
    order = ">" if head[3:4] and head[3] & 1 else "<"
    is_log = len(head) == _LOG_HEADER and int.from_bytes(head[:4], "big") == _MAGICS[order]
    return is_log and _checksum(head[:24], (0, 0), order) == _unpack_sum(head[24:])


def companion_log(path: Path) -> Path:
    """Return the log of a database."""
    return path.with_name(f"{path.name}-wal")


def write_log(file: BinaryIO, log: Log, data: "FileBytes | bytes") -> None:
    """Write a log with one transaction: the newest intact copy of every page that is committed in `log`."""
    order, salts = "<", os.urandom(8)
    head = struct.pack(">4I", _MAGICS[order], FORMAT_VERSION, log.page_bytes, 0) + salts
    total = _checksum(head, (0, 0), order)
    file.write(head + struct.pack(">2I", *total))
    pages = sorted(page for page in log.frames if page <= log.page_count)
    for page in pages:
        at = log.frames[page]
        content = log.restored.get(at) or data[at : at + log.page_bytes]
        start = struct.pack(">2I", page, log.page_count if page == pages[-1] else 0)
        total = _checksum(content, _checksum(start, total, order), order)
        file.write(start + salts + struct.pack(">2I", *total) + content)
