"""Growing JSONL files, compressed or not: bounded memory, a cut last line waits, a rewritten file is read again."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from msgspec import Struct

from wellkept.core.regular_files import open_regular
from wellkept.formats.port import START, Item, Left, Position, Unusable, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from wellkept.core.text import JSON

MOST_LINE_BYTES = 64_000_000
"""A longer line is skipped and counted: it would need several times its size in memory."""
MOST_WHOLE_BYTES = 256_000_000
"""A longer JSON file is not read: it would need several times its size in memory."""
_LARGE_LINE_BYTES = 256_000
"""From this size on, base64 runs are replaced before parsing."""
_CHECK_BYTES = 1_024
UNEXPECTED = (TypeError, AttributeError, KeyError, ValueError, RecursionError)
"""What a parser raises on a row whose shape no known version has; such a row is counted."""
_ZSTD = b"\x28\xb5\x2f\xfd"
_MOST_UNPACKED = 4_000_000_000
"""No transcript is larger than this."""
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{4096,}={0,2}")


def read_row(read: Callable[[dict[str, Any]], Iterator[Item]], row: Any, part: str = "message") -> Iterator[Item]:
    """Yield what one row of a transcript says; one whose shape no known version has is counted instead."""
    if isinstance(row, dict):
        try:
            yield from read(row)
        except UNEXPECTED:
            yield unknown(row, part)
    else:
        yield unknown(row, part)


def describe_binary(data: bytes) -> str:
    """Return the placeholder for base64 text: its size and hash."""
    return f"[binary: {len(data) * 3 // 4} bytes, sha256 {hashlib.sha256(data).hexdigest()[:16]}]"


def open_own(path: Path) -> BinaryIO:
    """Open a regular file of this process's user; raise Unusable for anything else."""
    try:
        file = open_regular(path, buffering=1 << 20)
    except OSError as error:
        if error.errno in {errno.EISDIR, errno.ENOTSUP, errno.ENXIO}:
            raise Unusable(f"{str(path)!r} is not a file", "give the path of a transcript") from error
        raise Unusable(f"cannot read {str(path)!r}: {error.strerror}", "check the path and the permissions") from error
    owner = os.fstat(file.fileno()).st_uid
    if hasattr(os, "geteuid") and owner != os.geteuid():
        file.close()
        raise Unusable(f"{str(path)!r} belongs to another user", "let that user import it")
    return file


def modification_time(path: Path) -> float:
    """Return when a file was last changed, in epoch seconds; 0 if it cannot be read."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def unpack(data: bytes, most: int) -> bytes:
    """Return data, decompressed if zstd made it; raise ValueError if it is damaged or larger than `most` bytes."""
    if not data.startswith(_ZSTD):
        return data
    with io.BytesIO(data) as packed, io.BytesIO() as plain:
        _unpack(packed, plain, most)
        return plain.getvalue()


def _unpack(packed: BinaryIO, plain: BinaryIO, most: int) -> None:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    try:
        with zstd.open(packed, "rb") as file:
            while piece := file.read(1 << 20):
                most -= len(piece)
                if most < 0:
                    raise ValueError("it is too large when it is unpacked")
                plain.write(piece)
    except (zstd.ZstdError, EOFError) as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file of this process's user; one that zstd compressed is unpacked into a temporary file."""
    file = open_own(path)
    is_packed = file.peek(len(_ZSTD)).startswith(_ZSTD) if isinstance(file, io.BufferedReader) else False
    if not is_packed:
        return file
    plain = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with file:
            _unpack(file, plain, _MOST_UNPACKED)
    except ValueError as error:
        plain.close()
        raise Unusable(f"{str(path)!r} cannot be unpacked: {error}", "unpack it with `zstd -d`") from error
    plain.flush()  # positions are checked by reading the file itself
    return plain


class RowParser(Protocol):
    """Turns the rows of one file into items; holds back a message that the next row may continue."""

    held: int | None
    """Where the message that may continue begins, None if there is none."""

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield what a row completes."""
        ...

    def flush(self) -> Iterator[Item]:
        """Yield what is known of the message that may continue."""
        ...

    def state(self) -> Mapping[str, JSON]:
        """Return what a parser needs to know to continue."""
        ...


class _Line(Struct, frozen=True):
    start: int
    end: int
    row: dict[str, Any] | None
    """None if the line is no JSON object."""


class WholeReading:
    """Implements `port.Reading` on one JSON file that its program writes as a whole: read again when it has changed."""

    def __init__(self, path: Path, position: Position, read: Callable[[Any], Iterator[Item]]) -> None:
        with open_own(path) as file:
            self._data = file.read(MOST_WHOLE_BYTES + 1)
        if len(self._data) > MOST_WHOLE_BYTES:
            raise Unusable(f"{str(path)!r} is longer than {MOST_WHOLE_BYTES:,} bytes", "leave it out")
        check = hashlib.blake2b(self._data, digest_size=8).hexdigest()
        self._position = Position(len(self._data), check)
        self._is_read = position.check == check
        self.was_rewritten = position.offset > 0 and not self._is_read
        self._read = read

    def __iter__(self) -> Iterator[Item]:
        """Yield what the file holds, unless it was read before."""
        if self._is_read:
            return
        data = self._data
        if len(data) > _LARGE_LINE_BYTES:
            data = _BASE64.sub(lambda run: describe_binary(run.group()).encode(), data)
        try:
            yield from self._read(json.loads(data.decode("utf-8", "replace")))
        except UNEXPECTED:
            yield Left("broken line")  # it may be written at this moment
            self._position = START

    def position(self) -> Position:
        """Return the end of the file with its hash: it is rewritten as a whole."""
        return self._position

    def waiting_bytes(self) -> int:
        """Return 0: the file is read at once."""
        return 0

    def close(self) -> None:
        """Release the content."""
        self._data = b""


class JsonlReading:
    """Implements `port.Reading` on one JSONL file."""

    def __init__(self, path: Path, position: Position, make_parser: Callable[[Mapping[str, JSON]], RowParser]) -> None:
        self._file = open_plain(path)
        self.was_rewritten = position.offset > 0 and not self._fits(position)
        start = START if self.was_rewritten else position
        self._parser = make_parser(start.state)
        self._offset = start.offset
        self._held_at_end: int | None = None

    def __iter__(self) -> Iterator[Item]:
        """Yield the items of every complete row."""
        for line in self._lines():
            if line.row is None:
                yield Left("broken line")
            else:
                try:
                    yield from self._parser.take(line.row, line.start)
                except UNEXPECTED:
                    yield unknown(line.row)
            self._offset = line.end
        self._held_at_end = self._parser.held  # more rows of the last message may follow, so it is read again
        yield from self._parser.flush()

    def position(self) -> Position:
        """Return the position: before a message that may continue, else after the last row that was taken whole."""
        held = self._parser.held if self._held_at_end is None else self._held_at_end
        offset = self._offset if held is None else held
        return Position(offset, self._check_at(offset), self._parser.state())

    def waiting_bytes(self) -> int:
        """Return how many bytes no row was taken from."""
        return max(0, os.fstat(self._file.fileno()).st_size - self._offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _lines(self) -> Iterator[_Line]:
        self._file.seek(self._offset)
        start = self._offset
        while data := self._file.readline(MOST_LINE_BYTES):
            end = start + len(data)
            if data.endswith(b"\n"):
                if data.strip():
                    yield _Line(start, end, _parse(data))
            elif len(data) < MOST_LINE_BYTES:
                row = _parse(data)
                if row is not None:  # whole, only its line break is missing
                    yield _Line(start, end, row)
                return
            else:
                rest = self._skip_line()
                if rest is None:
                    return
                end += rest
                yield _Line(start, end, None)
            start = end

    def _skip_line(self) -> int | None:
        """Skip the rest of a line that is too long; return its bytes, None if it has not ended yet."""
        skipped = 0
        while data := self._file.readline(1 << 20):
            skipped += len(data)
            if data.endswith(b"\n"):
                return skipped
        return None

    def _fits(self, position: Position) -> bool:
        size = os.fstat(self._file.fileno()).st_size
        return size >= position.offset and self._check_at(position.offset) == position.check

    def _check_at(self, offset: int) -> str:
        if offset == 0:
            return ""
        start = max(0, offset - _CHECK_BYTES)
        data = os.pread(self._file.fileno(), offset - start, start)
        return hashlib.blake2b(data, digest_size=8).hexdigest()


def _parse(data: bytes) -> dict[str, Any] | None:
    if len(data) > _LARGE_LINE_BYTES:
        data = _BASE64.sub(lambda run: describe_binary(run.group()).encode(), data)
    try:
        row = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
