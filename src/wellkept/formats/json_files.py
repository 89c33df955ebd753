"""JSON files as streams: growing JSONL, of which a cut last line waits, and long arrays, in bounded memory.

The standard library parses whole texts only. Here each object of an array is parsed out of a growing piece of the
file. Brackets are counted only to get past an object that is broken or too large, so that it costs itself and nothing
after it.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from msgspec import Struct

from wellkept.core.regular_files import open_regular
from wellkept.core.text import JSON
from wellkept.formats.port import START, Item, Left, Position, Reading, Unusable, unknown

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


class RowParser:
    """Turns the rows of one file into items; may hold back a message that the next row continues."""

    held: int | None = None
    """Where the message that may continue begins, None if there is none."""

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield what a row completes."""
        raise NotImplementedError

    def flush(self) -> Iterator[Item]:
        """Yield what is known of the message that may continue."""
        yield from ()

    def state(self) -> Mapping[str, JSON]:
        """Return what a parser needs to know to continue."""
        raise NotImplementedError


class _Line(Struct, frozen=True):
    start: int
    end: int
    row: dict[str, Any] | None
    """None if the line is no JSON object."""


class WholeReading(Reading):
    """Reads one JSON file that its program writes as a whole: read again when it has changed."""

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

    def close(self) -> None:
        """Release the content."""
        self._data = b""


class JsonlReading(Reading):
    """Reads one JSONL file."""

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


MOST_OBJECT_CHARS = 64_000_000
"""A larger object is skipped: parsed, it would need several times its size in memory."""
_CHUNK_BYTES = 1 << 19
_BETWEEN = re.compile(r"[\s,\ufeff]*")
_TOKENS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]|"', re.DOTALL)
"""A whole string, a bracket, or the beginning of a string that does not end within the piece."""
_WORD = re.compile(r"[^\s,\[\]{}\"]{1,1000}")
_LONGEST_TOKEN = 16
"""An error this near to the end of a piece may be a number, a word or an escape that was cut."""
_CUT_OFF = "the file is cut off here"


class Joined:
    """Lines as a file: reads whole lines, however many bytes are asked for."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)

    def read(self, size: int) -> bytes:
        """Return lines of about this size together, nothing at the end."""
        found: list[bytes] = []
        for line in self._lines:
            found.append(line)
            size -= len(line)
            if size <= 0:
                break
        return b"".join(found)


class Readable(Protocol):
    """What a stream is read from."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, nothing at the end."""
        ...


class Piece(Struct, frozen=True):
    """One object of the stream: its value, or the reason why it has none."""

    value: dict[str, Any] | None
    problem: str = ""


class JsonStream:
    """Yields the objects of the outermost array, or of the array under `key` in the outermost object.

    An outermost object without that key is itself the only object; text of many objects, one per line, gives each.
    """

    def __init__(self, file: Readable, *, key: str | None = None) -> None:
        self._file = file
        self._key = key
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parser = json.JSONDecoder(strict=False)
        self._text = ""
        self._place = 0
        self._is_at_end = False

    def __iter__(self) -> Iterator[Piece]:
        """Yield the objects; for what is cut off at the end the last one has no value."""
        is_array = self._enter()
        while True:
            first = self._find_next()
            if not first:
                if is_array:
                    yield Piece(None, _CUT_OFF)
                return
            if first == "]":
                return
            if first in '{["':
                piece = self._parse() if first == "{" else self._skip("not an object")
            else:
                match = _WORD.match(self._text, self._place)
                self._place = match.end() if match else self._place + 1
                piece = Piece(None, "not an object")
            yield piece
            if piece.problem == _CUT_OFF:
                return

    def _enter(self) -> bool:
        """Advance to the first object; return whether it is in an array."""
        first = self._find_next()
        if first == "{" and self._key is not None:
            # within a text the quotation marks would be escaped, so this is the key
            found = re.compile(rf'"{self._key}"\s*:\s*\[').search(self._text, self._place)
            if found is not None:
                self._place = found.end()
                return True
        if first == "[":
            self._place += 1
            return True
        return False

    def _find_next(self) -> str:
        """Advance to the next significant character and return it; empty at the end of the file."""
        while True:
            match = _BETWEEN.match(self._text, self._place)
            self._place = match.end() if match else self._place
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._read(_CHUNK_BYTES):
                return ""

    def _read(self, count: int) -> bool:
        """Read more, and discard what was consumed; return whether there was more."""
        data = b"" if self._is_at_end else self._file.read(count)
        if not data:
            self._is_at_end = True
            return False
        self._text = self._text[self._place :] + self._decoder.decode(data)
        self._place = 0
        return True

    def _parse(self) -> Piece:
        size = _CHUNK_BYTES
        while True:
            try:
                value, self._place = self._parser.raw_decode(self._text, self._place)
                return Piece(value)
            except json.JSONDecodeError as error:
                is_cut = error.pos >= len(self._text) - _LONGEST_TOKEN or error.msg.startswith("Unterminated string")
                why = f"not valid JSON: {error.msg}"
            except (ValueError, RecursionError) as error:
                is_cut, why = False, f"not valid JSON: {error}"
            if is_cut and len(self._text) - self._place > MOST_OBJECT_CHARS:
                is_cut, why = False, f"larger than {MOST_OBJECT_CHARS:,} characters"
            # a failed parse is repeated from the start, so pieces grow with the object
            if not is_cut or not self._read(size := size * 2):
                return self._skip(why)

    def _skip(self, why: str) -> Piece:
        """Go past a value by counting brackets outside of strings."""
        depth = 0
        while True:
            for token in _TOKENS.finditer(self._text, self._place):
                text = token.group()
                if text == '"':
                    self._place = token.start()
                    break
                self._place = token.end()
                depth += 1 if text in "{[" else -1 if text in "}]" else 0
                if depth <= 0:
                    return Piece(None, why)
            else:
                self._place = len(self._text)
            # a string that is longer than a piece is searched again from its beginning
            if not self._read(max(_CHUNK_BYTES, len(self._text) - self._place)):
                self._place = len(self._text)
                return Piece(None, _CUT_OFF)
