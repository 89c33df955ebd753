"""Texts to look for, in every form in which a file may hold them: any case, escaped as JSON, UTF-16, compressed."""

import codecs
import gzip
import json
import re
import stat
import unicodedata
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import IO, cast

from wellkept.core.errors import Unreadable
from wellkept.core.regular_files import open_regular

_CHUNK = 1 << 20
_BYTES_PER_CHARACTER = 16
"""The most bytes that one character takes in a file: a surrogate pair escaped twice is longer, but rare in JSON."""
_MOST_UNPACKED = 4 << 30
"""An archive that unpacks to more is reported as not searched."""
_LEVELS = 3
"""JSON inside JSON inside JSON: a tool call's arguments in a stored line of an export."""
_ESCAPE = re.compile(r'(?:\\u[0-9a-fA-F]{4})+|\\["\\/bfnrt]')
_FOLDING_TO_ASCII = ("\u212a".encode(), "\u017f".encode(), b"\xef\xac")
"""Kelvin sign, long s and the ligatures: case folding turns them into ASCII letters."""
_MARKS_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Texts:
    """Texts that are compared without case, with letters and their accents as one character or as two."""

    def __init__(self, texts: Iterable[str]) -> None:
        forms = (form for text in texts if text.strip() for form in _list_forms(text))
        self.folded: tuple[str, ...] = tuple(dict.fromkeys(form.casefold() for form in forms))
        self._plain = tuple(text.encode() for text in self.folded if text.isascii())
        self._wide = tuple(text.encode(name, "surrogatepass").lower() for text in self.folded for name in _WIDE)
        # nobody escapes plain ASCII letters, so that a search for them can skip the slow forms
        self._needs_decoding = any(not text.isascii() or _ESCAPED.search(text) for text in self.folded)
        self._overlap = _BYTES_PER_CHARACTER * max(map(len, self.folded), default=0)

    def __bool__(self) -> bool:
        return bool(self.folded)

    def are_in(self, text: str) -> bool:
        """Whether `text` holds one of the texts, as it is or escaped as JSON."""
        if not self.folded:
            return False
        for _ in range(_LEVELS):
            folded = text.casefold()
            if any(one in folded for one in self.folded):
                return True
            if "\\" not in text:
                return False
            text = _ESCAPE.sub(_unescape, text)
        return False

    def are_in_bytes(self, data: bytes) -> bool:
        """Whether `data` holds one of the texts as UTF-8, UTF-16 or escaped JSON."""
        low = data.lower()
        if any(one in low for one in (*self._plain, *self._wide)):
            return True
        if self._needs_decoding or any(mark in data for mark in _FOLDING_TO_ASCII):
            return self.are_in(data.decode("utf-8", "surrogateescape"))
        return False

    def are_in_file(self, path: Path) -> bool:
        """Whether a file holds one of the texts, also compressed (gzip, zip); raise Unreadable if it is not searchable.

        Reads piece by piece. Anything but a regular file counts as empty.
        """
        if not self.folded:
            return False
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                return False
            with open_regular(path) as file:
                return self._are_in_stream(file) or self._are_unpacked_in(file)
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            if not path.exists():
                return False
            raise Unreadable(f"cannot search {str(path)!r}: {error}", "look into it yourself, or remove it") from error

    def may_be_in_file(self, path: Path) -> bool:
        """Whether a file holds one of the texts, or cannot be searched."""
        try:
            return self.are_in_file(path)
        except Unreadable:
            return True

    def are_found_in_file(self, path: Path) -> bool:
        """Whether a file holds one of the texts; one that cannot be searched counts as not."""
        try:
            return self.are_in_file(path)
        except Unreadable:
            return False

    def _are_in_stream(self, file: IO[bytes], most_bytes: float = inf) -> bool:
        return any(self.are_in_bytes(window) for window in self._windows(file, most_bytes))

    def _windows(self, file: IO[bytes], most_bytes: float = inf) -> Iterator[bytes]:
        """Yield overlapping pieces, so that a text across a border is in one of them."""
        tail, total = b"", 0
        while chunk := file.read(_CHUNK):
            total += len(chunk)
            if total > most_bytes:
                raise OSError(f"it unpacks to more than {_MOST_UNPACKED:,} bytes")
            window = tail + chunk
            yield window
            tail = window[-self._overlap :]

    def _are_unpacked_in(self, file: IO[bytes]) -> bool:
        file.seek(0)
        head = file.read(4)
        file.seek(0)
        if head[:2] in _MARKS_16:
            return self.are_in(file.read().decode("utf-16", "replace"))
        if head[:2] == b"\x1f\x8b":
            with gzip.open(file, "rb") as unpacked:
                return self._are_in_stream(cast(IO[bytes], unpacked), _MOST_UNPACKED)
        if head == b"PK\x03\x04":
            with zipfile.ZipFile(file) as archive:
                return any(self._are_in_member(archive, name) for name in archive.namelist())
        return False

    def _are_in_member(self, archive: zipfile.ZipFile, name: str) -> bool:
        with archive.open(name) as member:
            return self.are_in(name) or self._are_in_stream(member, _MOST_UNPACKED)

    def lines_in(self, text: str) -> tuple[int, ...]:
        """Return the numbers of the lines that hold one of the texts, or a part of one that spans lines."""
        lines = text.splitlines(keepends=True)
        folded = [line.casefold().replace("\r\n", "\n") for line in lines]
        ends = list(accumulate(map(len, folded)))
        joined = "".join(folded)
        found = {number for number, line in enumerate(lines) if "\\" in line and self.are_in(line)}
        for one in self.folded:
            at = joined.find(one)
            while at >= 0:
                found.update(range(bisect_right(ends, at), bisect_right(ends, at + len(one) - 1) + 1))
                at = joined.find(one, at + 1)
        return tuple(sorted(found))

    def without_lines(self, text: str) -> tuple[str, int]:
        """Return `text` without the lines that hold one of the texts, and how many they were."""
        count = 0
        while going := set(self.lines_in(text)):  # lines that become neighbours may hold a text together
            lines = text.splitlines(keepends=True)
            text = "".join(line for number, line in enumerate(lines) if number not in going)
            count += len(going)
        return text, count

    def without_words(self, text: str) -> str:
        """Return `text` with each of the texts replaced by a mark; empty if some form of them stays."""
        for one in self.folded:
            folded = [character.casefold() for character in text]  # "ß" becomes two letters
            ends, joined = list(accumulate(map(len, folded))), "".join(folded)
            kept, done, at = "", 0, joined.find(one)
            while at >= 0:
                kept += text[done : bisect_right(ends, at)] + "[forgotten]"
                done = bisect_right(ends, at + len(one) - 1) + 1
                at = joined.find(one, at + len(one))
            text = kept + text[done:]
        return "" if self.are_in(text) else text


def _list_forms(text: str) -> Iterator[str]:
    """Yield a text as it is, composed and decomposed: names of files of macOS are decomposed."""
    yield text
    if not text.isascii():
        yield from (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))


_WIDE = ("utf-16-le", "utf-16-be")
_ESCAPED = re.compile(r'["\\/\x00-\x1f]')


def _unescape(found: re.Match[str]) -> str:
    return str(json.loads(f'"{found[0]}"'))
