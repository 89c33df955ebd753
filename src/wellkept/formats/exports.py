"""Data exports of web services: archives, checked before use and read in place, and the conversations in them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from msgspec import Struct

from wellkept.formats.json_files import UNEXPECTED, JsonStream, open_own
from wellkept.formats.port import START, Item, Left, Position, Problem, Reading, Said, Unusable, unknown

MOST_DIRECTORY_BYTES = 32_000_000
"""About 250,000 files. A longer list of files would fill the memory before the first file is read."""
MOST_FILES = 250_000
MOST_RATIO = 250
"""Exports of text shrink to a tenth, seldom to a fiftieth; deflate can reach a thousandth, and bombs do."""
FREE_BYTES = 50_000_000
"""Files up to this size may have any compression ratio."""
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)
"""What reading raises on damaged files: a wrong checksum, a cut stream, a method that is not known."""
_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\x05\x06"
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_FULL = 0xFFFFFFFF
"""The size in the short end record of an archive whose real size is in the long one."""
_MOST_COMMENT_BYTES = 65_535
_ENCRYPTED = 0x1
_CHUNK_BYTES = 1 << 20
_OTHER_ARCHIVES = {
    b"\x1f\x8b": "a gzip file",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
}


class ExportFiles(Protocol):
    """The files of one export."""

    stamp: str
    """Differs after the export was changed."""
    total_bytes: int

    def names(self) -> list[str]:
        """Return the paths of all files, sorted."""
        ...

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """Open a file to be read from its beginning."""
        ...

    def check(self, names: Iterable[str]) -> None:
        """Read files to their end; raise Unusable if one is damaged."""
        ...

    def close(self) -> None:
        """Close the export."""
        ...


def open_export(path: Path) -> ExportFiles:
    """Open a zip archive, a folder or a JSON file; raise Unusable with the reason if it cannot be trusted or read."""
    if path.is_dir():
        return _Folder(path)
    with open_own(path) as file:
        start = file.read(64)
    if start.startswith(b"PK") or path.suffix.lower() == ".zip":
        return _Archive(path)
    if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in {b"[", b"{"}:
        return _Folder(path.parent, [path.name])
    raise _refuse(path, _describe_start(start), "give the zip file, the unpacked folder, or the JSON file in it")


def find_names(files: ExportFiles, pattern: str) -> list[str]:
    """Return the paths of the files whose last part matches an expression, sorted."""
    wanted = re.compile(pattern)
    return [name for name in files.names() if wanted.fullmatch(name.rpartition("/")[2])]


def hash_file(files: ExportFiles, name: str) -> str:
    """Return the first half of the SHA-256 of a file."""
    digest = hashlib.sha256()
    with files.open(name) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()[:16]


def _describe_start(start: bytes) -> str:
    if not start:
        return "is empty"
    for mark, kind in _OTHER_ARCHIVES.items():
        if start.startswith(mark):
            return f"is {kind}, not a zip archive"
    return "is not an archive"


def _refuse(path: Path, why: str, remedy: str) -> Unusable:
    return Unusable(f"{str(path)!r} {why}", remedy)


_DOWNLOAD_AGAIN = "download the export again, or unpack it and give the folder"


class _Archive:
    """Implements `ExportFiles` on a zip archive; refuses one that is not what an export can be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_own(path)
        found = os.fstat(self._file.fileno())
        self.stamp = f"{found.st_size}:{found.st_mtime_ns}"
        self.total_bytes = found.st_size
        try:
            self._check()
        except BaseException:
            self._file.close()
            raise

    def _check(self) -> None:
        """Read the list of files, and refuse an archive that is not what an export can be."""
        self._check_end()
        try:
            self._zip = zipfile.ZipFile(self._file)
        except DAMAGE as error:
            raise self._refuse(f"is a damaged archive: {error}", _DOWNLOAD_AGAIN) from error
        self._members = {info.filename: info for info in self._zip.infolist() if not info.is_dir()}
        for info in self._zip.infolist():
            self._check_member(info)
        expanded = sum(info.file_size for info in self._zip.infolist())
        if expanded > max(FREE_BYTES, MOST_RATIO * self.total_bytes):
            raise self._refuse(f"would grow to {expanded:,} bytes, which no export does", _DOWNLOAD_AGAIN)

    def names(self) -> list[str]:
        """Return the paths of all files."""
        return sorted(self._members)

    def size(self, name: str) -> int:
        """Return the unpacked bytes of a file."""
        return self._members[name].file_size

    def open(self, name: str) -> IO[bytes]:
        """Open a file; it is unpacked as it is read."""
        return self._zip.open(self._members[name])

    def check(self, names: Iterable[str]) -> None:
        """Read files to their end, so that a damaged one is found before anything was stored."""
        for name in names:
            try:
                with self.open(name) as file:
                    while file.read(_CHUNK_BYTES):
                        pass
            except DAMAGE as error:
                raise self._refuse(f"is damaged at {name!r}: {error}", _DOWNLOAD_AGAIN) from error

    def close(self) -> None:
        """Close the archive."""
        self._zip.close()
        self._file.close()

    def _refuse(self, why: str, remedy: str) -> Unusable:
        return _refuse(self._path, why, remedy)

    def _check_end(self) -> None:
        """Find the end of the archive, and refuse a list of files that does not fit the memory."""
        start = max(0, self.total_bytes - _END.size - _MOST_COMMENT_BYTES)
        tail = self._pread(start, self.total_bytes - start)
        place = tail.rfind(_END_MARK)
        if place < 0 or len(tail) - place < _END.size:
            is_begun = self._pread(0, 4).startswith(b"PK")
            why = "is cut off: the end of the archive is missing" if is_begun else "is not an archive"
            raise self._refuse(why, _DOWNLOAD_AGAIN)
        length = _END.unpack_from(tail, place)[5]
        if length == _FULL:
            locator = self._pread((start + place) - _END64_LOCATOR.size, _END64_LOCATOR.size)
            record = b""
            if len(locator) == _END64_LOCATOR.size:
                record = self._pread(_END64_LOCATOR.unpack(locator)[2], _END64.size)
            if len(record) < _END64.size:
                raise self._refuse("is a damaged archive: its end is incomplete", _DOWNLOAD_AGAIN)
            length = int(_END64.unpack(record)[8])
        if length > MOST_DIRECTORY_BYTES:
            raise self._refuse("lists more files than an export can have", _DOWNLOAD_AGAIN)

    def _pread(self, place: int, count: int) -> bytes:
        return os.pread(self._file.fileno(), count, place) if 0 <= place <= self.total_bytes else b""

    def _check_member(self, info: zipfile.ZipInfo) -> None:
        name = info.orig_filename.replace("\\", "/")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in name.split("/") or "\0" in name:
            raise self._refuse(f"contains the path {name[:80]!r}, which leads out of it", _DOWNLOAD_AGAIN)
        if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
            raise self._refuse(f"contains a link or a device ({name[:80]!r}), which no export does", _DOWNLOAD_AGAIN)
        if info.flag_bits & _ENCRYPTED:
            raise self._refuse("is encrypted", "unpack it with its password, and give the folder")
        if info.file_size > max(FREE_BYTES, MOST_RATIO * info.compress_size):
            why = f"holds {name[:80]!r}, which would grow from {info.compress_size:,} to {info.file_size:,} bytes"
            raise self._refuse(why, _DOWNLOAD_AGAIN)


class _Folder:
    """Implements `ExportFiles` on a folder, or on some files in it; links are not followed."""

    def __init__(self, path: Path, only: Iterable[str] | None = None) -> None:
        self._path = path
        found = sorted(self._walk() if only is None else only)
        self._sizes = {name: (path / name).stat() for name in found}
        self.total_bytes = sum(found.st_size for found in self._sizes.values())
        listed = "".join(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n" for name, found in self._sizes.items())
        self.stamp = hashlib.blake2b(listed.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()

    def _walk(self) -> list[str]:
        found: list[str] = []
        for folder, _folders, names in os.walk(self._path):
            places = [Path(folder) / name for name in names]
            found += [str(place.relative_to(self._path)) for place in places if _is_plain_file(place)]
            if len(found) > MOST_FILES:
                raise _refuse(self._path, "holds more files than an export can have", "give the folder of the export")
        return found

    def names(self) -> list[str]:
        """Return the paths of all files."""
        return list(self._sizes)

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        return self._sizes[name].st_size

    def open(self, name: str) -> IO[bytes]:
        """Open a file of this user."""
        return open_own(self._path / name)

    def check(self, names: Iterable[str]) -> None:
        """Open each file, so that one that cannot be read is found before anything was stored."""
        for name in names:
            self.open(name).close()

    def close(self) -> None:
        """Do nothing: every file is closed after it was read."""


def _is_plain_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


_MANY_PROBLEMS = 100
"""How many broken records of one export are named; the others are counted."""


class Node(Struct, frozen=True):
    """A message in a tree; `parent` may name a node that is not there."""

    id: str
    parent: str | None
    moment: float
    message: dict[str, Any] | None


class Branch(Struct, frozen=True):
    """A path through the tree, from where it leaves the earlier paths to its end."""

    own: list[Node]
    joint: Node | None
    """The last node that it shares with an earlier path; None for the first path, and for another root."""


def split_branches(nodes: Mapping[str, Node], current: str | None) -> list[Branch]:
    """Return the paths through a tree, the current one first; every node is in one of them.

    Without a current node it is the path to the newest leaf. Parents decide, never children or the order of the nodes.
    """
    order = sorted(nodes.values(), key=lambda node: node.moment)
    parents = {name: _find_parent(node, nodes, order) for name, node in nodes.items()}
    inner = set(parents.values())
    leaves = sorted((name for name in nodes if name not in inner), key=lambda name: (nodes[name].moment, name))
    if current not in nodes:
        current = leaves[-1] if leaves else max(nodes, key=lambda name: nodes[name].moment, default=None)
    if current is None:
        return []
    branches: list[Branch] = []
    taken: set[str] = set()
    for leaf in [current, *leaves]:
        own: list[Node] = []
        name: str | None = leaf
        while name is not None and name not in taken:  # a cycle ends where it began
            taken.add(name)
            own.append(nodes[name])
            name = parents[name]
        if own:
            joint = nodes[name] if name is not None and branches else None
            branches.append(Branch(own[::-1], joint))
    return branches


def _find_parent(node: Node, nodes: Mapping[str, Node], order: Sequence[Node]) -> str | None:
    """Return the parent; newer exports omit hidden nodes, so a missing one is replaced by the last node before it."""
    if node.parent is None or node.parent in nodes:
        return node.parent
    place = bisect_left(order, node.moment, key=lambda other: other.moment)
    return order[place - 1].id if place else None


def repeat_joint(branch: Branch, nodes: Mapping[str, Node], read: Callable[[Node], Iterator[Item]]) -> Iterator[Said]:
    """Yield the last stored message before a branch: it is already stored, and shows where the branch begins."""
    node, steps = branch.joint, 0
    while node is not None and steps <= len(nodes):
        said = [item for item in read(node) if isinstance(item, Said)]
        if said:
            yield said[-1]
            return
        node, steps = nodes.get(node.parent or ""), steps + 1


class ExportReading(Reading):
    """Reads an export: read whole, unless it is the one that was read before."""

    def __init__(
        self,
        files: ExportFiles,
        names: list[str],
        position: Position,
        read: Callable[[dict[str, Any]], Iterator[Item]],
    ) -> None:
        self._files = files
        self._names = names
        self._read = read
        self._is_done = position.check == files.stamp

    def __iter__(self) -> Iterator[Item]:
        """Yield the conversations of all files; broken records are reported and skipped."""
        for name in self._names if not self._is_done else ():
            problems = 0
            try:
                with self._files.open(name) as file:
                    for number, piece in enumerate(JsonStream(file, key="conversations"), 1):
                        if piece.value is None:
                            problems += 1
                            yield Left("broken record")
                            if problems <= _MANY_PROBLEMS:
                                yield Problem(f"{name}, record {number}", piece.problem)
                        else:
                            try:
                                yield from self._read(piece.value)
                            except UNEXPECTED:
                                yield unknown(piece.value)
            except (*DAMAGE, Unusable) as error:
                yield Problem(name, str(error))
        self._is_done = True

    def position(self) -> Position:
        """Return the end after everything was read; before, the beginning: ids tell what is stored."""
        return Position(self._files.total_bytes, self._files.stamp) if self._is_done else START

    def waiting_bytes(self) -> int:
        """Return the size of the export until it was read."""
        return 0 if self._is_done else self._files.total_bytes

    def close(self) -> None:
        """Close the export."""
        self._files.close()


def open_conversations(
    path: Path, position: Position, pattern: str, make_read: Callable[[ExportFiles], Callable[..., Iterator[Item]]]
) -> ExportReading:
    """Open the files with conversations whose names match; raise Unusable if there are none or one is damaged."""
    files = open_export(path)
    try:
        names = find_conversations(files, pattern, path)
        if position.check != files.stamp:
            files.check(names)
        return ExportReading(files, names, position, make_read(files))
    except BaseException:
        files.close()
        raise


def find_conversations(files: ExportFiles, pattern: str, path: Path) -> list[str]:
    """Return the files with conversations; a single file may have been renamed. Raise Unusable if there are none."""
    names = find_names(files, pattern)
    if not names and len(files.names()) == 1:
        names = files.names()
    if not names:
        raise Unusable(f"{str(path)!r} holds no conversations", "give the export as it was downloaded")
    return names


def list_exports(root: Path, pattern: str) -> list[Path]:
    """Return the exports at a place: itself, or the archives in a folder that holds no unpacked export."""
    if not root.is_dir():
        return [root]
    files = open_export(root)
    try:
        if find_names(files, pattern):
            return [root]
    finally:
        files.close()
    return sorted(root.glob("*.zip"), key=lambda path: (path.stat().st_mtime, path.name))
