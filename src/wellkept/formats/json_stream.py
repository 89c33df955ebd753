"""Long JSON files as a stream: the objects of an array one after the other, in bounded memory.

The standard library parses whole texts only. Here each object is parsed out of a growing piece of the file. Brackets
are counted only to get past an object that is broken or too large, so that it costs itself and nothing after it.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
                piece = self._skip_word()
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
            found = _BETWEEN.match(self._text, self._place)
            self._place = found.end() if found else self._place
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

    def _skip_word(self) -> Piece:
        """Go past a number, a word or a bracket that closes nothing."""
        found = _WORD.match(self._text, self._place)
        self._place = found.end() if found else self._place + 1
        return Piece(None, "not an object")

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
