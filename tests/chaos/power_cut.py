"""What a disk may hold after a loss of power, made from the log of changes that shim.c writes.

The model is that of a journaling file system: changes of names become durable in their order, at the latest with the
next sync of anything; the bytes of a file become durable when that file is synced. What was not synced by then may be
there, be missing, or be there in part.
"""

import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR_BYTES = 512
"""What a disk writes as a whole."""
_HEAD = struct.Struct("8sQQQQQ")


@dataclass(frozen=True, slots=True)
class Change:
    """One change that succeeded; the letters of `kind` are explained in shim.c."""

    kind: str
    file: tuple[int, int]
    """The inode, and how many files had its number before."""
    offset: int
    path: str
    other: str
    """The old name of a rename, the target of a link."""
    data: bytes


def read_log(log: Path) -> list[Change]:
    """Return the changes of a command, in their order."""
    return list(_parse(log.read_bytes()))


def _parse(data: bytes) -> Iterator[Change]:
    at, generations = 0, {}
    while at < len(data):
        kind, inode, offset, *lengths = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        parts = []
        for length in lengths:
            parts.append(data[at : at + length])
            at += length
        letter = kind.rstrip(b"\0").decode()
        generations[inode] = generations.get(inode, 0) + (letter == "C")
        path, other = (os.fsdecode(part) for part in parts[:2])
        yield Change(letter, (inode, generations[inode]), offset, path, other, parts[2])


@dataclass(slots=True)
class Names:
    """The names below a folder: a file has its number, a folder has None, a symbolic link has its target."""

    files: dict[str, tuple[int, int] | str | None] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        """Change the names as one call did."""
        match change.kind:
            case "C":
                self.files[change.path] = change.file
            case "M":
                self.files[change.path] = None
            case "U":
                self.files.pop(change.path, None)
            case "Y":
                self.files[change.path] = change.other
            case "L":
                self.files[change.path] = self.files.get(change.other, change.file)
            case "R":
                self._rename(change)

    def _rename(self, change: Change) -> None:
        below = [name for name in self.files if name.startswith(f"{change.other}/")]
        self.files[change.path] = self.files.pop(change.other, change.file)
        for name in below:
            self.files[change.path + name.removeprefix(change.other)] = self.files.pop(name)


class Disk:
    """The files below a folder at the time when a command starts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names = Names()
        self._bytes: dict[tuple[int, int], bytes] = {}
        self._status: dict[tuple[int, int], os.stat_result] = {}
        for path in sorted(root.rglob("*")):
            status = path.lstat()
            number = (status.st_ino, 0)
            if path.is_symlink():
                self._names.files[str(path)] = str(path.readlink())
            elif path.is_dir():
                self._names.files[str(path)] = None
            elif path.is_file():
                self._names.files[str(path)] = number
                self._bytes[number], self._status[number] = path.read_bytes(), status

    def cut(self, changes: Sequence[Change], draw: Random) -> None:
        """Put in the place of the folder what the disk may hold when the power fails after these changes."""
        last_sync = max((number for number, change in enumerate(changes) if change.kind == "S"), default=-1) + 1
        self._keep(changes, draw, draw.randint(last_sync, len(changes)), chance=draw.choice((0.0, 0.0, 0.5, 1.0)))

    def lose_what_is_not_synced(self, changes: Sequence[Change]) -> None:
        """Put in the place of the folder the least that the disk must hold after these changes, but all names."""
        self._keep(changes, Random(0), len(changes), chance=0.0)

    def _keep(self, changes: Sequence[Change], draw: Random, named: int, *, chance: float) -> None:
        """Keep the first changes of names, all bytes that were synced, and others by chance, some of them torn."""
        synced = {change.file: number for number, change in enumerate(changes) if change.kind == "S"}
        names = Names(dict(self._names.files))
        for change in changes[:named]:
            names.apply(change)
        contents = {number: bytearray(data) for number, data in self._bytes.items()}
        for number, change in enumerate(changes):
            is_safe = number <= synced.get(change.file, -1)
            if change.kind in "WT" and (is_safe or draw.random() < chance):
                data = change.data if is_safe or draw.random() < 0.7 else _tear(change.data, draw)
                _write(contents.setdefault(change.file, bytearray()), change, data)
        written = {change.file: change.offset for change in changes if change.kind == "S"}
        self._place(names, contents, written)

    def _place(
        self, names: Names, contents: dict[tuple[int, int], bytearray], written: dict[tuple[int, int], int]
    ) -> None:
        shutil.rmtree(self.root)
        self.root.mkdir(mode=0o700)
        for name, file in sorted(names.files.items()):
            path = Path(name)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if file is None:
                path.mkdir(mode=0o700, exist_ok=True)
            elif isinstance(file, str):
                path.symlink_to(file)
            elif not name.endswith("-shm"):  # memory, which is gone
                data = bytes(contents.get(file, b""))
                path.write_bytes(data)
                status = self._status.get(file)
                path.chmod(0o600 if status is None else status.st_mode & 0o777)
                # pages know by the time of the last write whether a row of the ledger was applied
                moment = status.st_mtime_ns if status is not None and data == self._bytes[file] else written.get(file)
                if moment is not None:
                    os.utime(path, ns=(moment, moment))

    def find_unsafe(self, changes: Sequence[Change]) -> list[str]:
        """Return the files with bytes or names that a loss of power after the last change may take away."""
        names = Names(dict(self._names.files))
        dirty: set[tuple[int, int]] = set()
        unsynced: set[str] = set()
        for change in changes:
            names.apply(change)
            if change.kind in "WT":
                dirty.add(change.file)
            elif change.kind == "S":
                dirty.discard(change.file)
                unsynced = {name for name in unsynced if os.path.dirname(name) != change.path}  # noqa: PTH120
            elif change.kind == "R":
                moved = {name for name in unsynced if name.startswith(f"{change.other}/")}
                unsynced -= moved
                unsynced |= {change.path + name.removeprefix(change.other) for name in moved} | {change.path}
            elif change.kind in "CMLY":
                unsynced.add(change.path)
        bytes_of = [name for name, file in names.files.items() if file in dirty]
        return sorted(
            [f"bytes of {os.path.relpath(name, self.root)}" for name in bytes_of]
            + [f"name of {os.path.relpath(name, self.root)}" for name in unsynced if name in names.files]
        )


def _tear(data: bytes, draw: Random) -> bytes:
    return data[: draw.randrange(len(data) // SECTOR_BYTES + 1) * SECTOR_BYTES]


def _write(content: bytearray, change: Change, data: bytes) -> None:
    if change.kind == "T":
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
    elif data:
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(data)] = data
