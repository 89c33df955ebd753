"""The write-ahead log of a SQLite file, read without SQLite: which pages it holds committed."""

import mmap
import struct
from pathlib import Path

import apsw

from kept.core.errors import Unreadable
from kept.core.values import dataclass, field

PAGE_SIZES = tuple(512 << power for power in range(8))
_LOG_HEADER, _FRAME_HEADER = 32, 24


@dataclass(slots=True)
class Log:
    """The committed pages of a write-ahead log."""

    page_bytes: int = 0
    frames: dict[int, int] = field(default_factory=dict)
    """Where in the log the newest committed copy of a page begins."""
    page_count: int = 0
    """Pages of the database after the last commit; 0 if nothing is committed."""
    is_damaged: bool = False
    """Whether a frame fails its checksum although later ones are right: SQLite ignores everything from it on."""
    is_cut: bool = False
    """Whether it ends inside a frame; a process that was killed leaves that too."""


def read_log(data: "bytes | mmap.mmap", page_bytes: int = 0) -> Log:
    """Return what is committed in a write-ahead log, also beyond a damaged frame.

    `page_bytes` is used if the header of the log names no page size.

    The checksum of a frame continues that of the frame before it, which is stored in that frame. So every frame can
    be checked by itself, and damage to one does not hide the others.
    """
    log = Log()
    if len(data) < _LOG_HEADER + _FRAME_HEADER:
        return log
    declared = int.from_bytes(data[8:12], "big")
    log.page_bytes = declared if declared in PAGE_SIZES else page_bytes
    if not log.page_bytes:
        return log
    step = _FRAME_HEADER + log.page_bytes
    order = _find_byte_order(data, step)
    header_is_whole = _checksum(data[:24], (0, 0), order) == struct.unpack(">2I", data[24:32])
    salts = data[16:24] if header_is_whole else data[_LOG_HEADER + 8 : _LOG_HEADER + 16]
    before, pending, bad = struct.unpack(">2I", data[24:32]), {}, not header_is_whole
    for at in range(_LOG_HEADER, len(data) - step + 1, step):
        page, size, salt, *stored = struct.unpack(">2I8s2I", data[at : at + _FRAME_HEADER])
        if salt != salts and not _continues(data, at, step, salts):
            break  # an older log, of which this one has overwritten the beginning
        sum_of_head = _checksum(data[at : at + 8], before, order)
        is_whole = salt == salts and [*_checksum(data[at + _FRAME_HEADER : at + step], sum_of_head, order)] == stored
        before = (stored[0], stored[1])
        if not is_whole:
            bad = True
            continue
        pending[page] = at + _FRAME_HEADER
        if size:  # frames without a commit after them may be left over from a writer that was killed
            log.is_damaged |= bad
            log.frames.update(pending)
            log.page_count, pending = size, {}
    log.is_cut = _ends_in_a_frame(data, step, salts)
    return log


def _find_byte_order(data: "bytes | mmap.mmap", step: int) -> str:
    """Return the byte order of the checksums: that of the header, unless only the other one fits the first frame."""
    declared, other = (">", "<") if data[3] & 1 else ("<", ">")
    stored = struct.unpack(">2I", data[24:32])
    sum_of_head = _checksum(data[_LOG_HEADER : _LOG_HEADER + 8], stored, other)
    page = data[_LOG_HEADER + _FRAME_HEADER : _LOG_HEADER + step]
    is_other = len(page) % 8 == 0 and _checksum(page, sum_of_head, other) == struct.unpack(">2I", data[48:56])
    return other if is_other else declared


def _continues(data: "bytes | mmap.mmap", at: int, step: int, salts: bytes) -> bool:
    """Whether the next frame belongs to this log, so that a wrong salt here is damage."""
    return data[at + step + 8 : at + step + 16] == salts


def _ends_in_a_frame(data: "bytes | mmap.mmap", step: int, salts: bytes) -> bool:
    rest = (len(data) - _LOG_HEADER) % step
    return rest > 0 and data[len(data) - rest + 8 : len(data) - rest + 16] == salts


def _checksum(data: bytes, start: tuple[int, ...], order: str) -> tuple[int, int]:
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return first, second


def refuse_damaged_log(connection: apsw.Connection, path: Path) -> None:
    """Raise Unreadable if SQLite has read less of the log than was committed to it; the log then stays as it is.

    SQLite ignores everything from a damaged frame on, and removes the log when the file is closed.
    """
    log = path.with_name(f"{path.name}-wal")
    salts, last = _find_last_commit(log)
    read, _ = connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)
    # without a whole transaction after it, the damage is the torn end of a log after a loss of power
    if read < last and read_log(log.read_bytes()).is_damaged and _find_last_commit(log)[0] == salts:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        what = f"the log of {str(path)!r} is damaged: {last - read} pages after the damage would be lost"
        raise Unreadable(what, "run `kept sessions repair`; it saves what is whole")


def _find_last_commit(log: Path) -> tuple[bytes, int]:
    """Return the salts of a log and the number of its last frame that ends a transaction; reads headers only."""
    try:
        with log.open("rb") as file:
            head = file.read(_LOG_HEADER)
            step = _FRAME_HEADER + int.from_bytes(head[8:12], "big")
            salts, number, last = head[16:24], 0, 0
            while len(frame := file.read(_FRAME_HEADER)) == _FRAME_HEADER and step > _FRAME_HEADER:
                number += 1
                if frame[8:16] == salts and frame[4:8] != bytes(4):
                    last = number
                file.seek(step - _FRAME_HEADER, 1)
    except FileNotFoundError:
        return b"", 0
    return salts, last
