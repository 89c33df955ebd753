"""The plan of what changes in which file, and carrying it out with a backup."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from wellkept.connect.record import FileRecord
from wellkept.connect.written_parts import NotEditable, OwnFile, Part, has_parts, put_parts, take_parts_out
from wellkept.core.regular_files import explain_errors
from wellkept.storage.files import make_folder, read_bytes, resolve_link, write_atomically

if TYPE_CHECKING:
    from wellkept.core.text import JSON

Action = Literal["create", "change", "remove", "none"]
_SHOWN_CHARS = 20_000
"""A longer difference is cut: it is shown to a person."""


class FileChange(Struct, frozen=True):
    """What happens to one file."""

    path: Path
    current: bytes | None
    """The file as it is now."""
    wanted: bytes | None
    """The file as it will be; None removes it."""
    base: bytes | None = None
    """The file without any part of ours."""
    parts: tuple[Part, ...] = ()

    @property
    def action(self) -> Action:
        """Return what is done to the file."""
        if self.current == self.wanted:
            return "none"
        if self.current is None:
            return "create"
        return "remove" if self.wanted is None else "change"

    def as_json(self) -> dict[str, JSON]:
        """Return the change with the lines that differ; lines that stay are not shown, they may hold secrets."""
        return {"path": str(self.path), "action": self.action, "diff": self.diff()}

    def addition(self) -> str:
        """Return what a person adds to the file by hand: the file as it would be if it held nothing else."""
        return put_parts("", self.parts)

    def diff(self) -> list[str]:
        """Return the lines that differ, with `-` and `+`."""
        from difflib import unified_diff

        old, new = (_shown(data).splitlines() for data in (self.current, self.wanted))
        lines = list(unified_diff(old, new, lineterm="", n=0))[2:]
        return [line for line in lines if not line.startswith("@@")]


def _shown(data: bytes | None) -> str:
    return (data or b"")[:_SHOWN_CHARS].decode("utf-8", "replace")


def plan_parts(parts: Sequence[Part], recorded: Mapping[Path, FileRecord], backups: Path) -> list[FileChange]:
    """Return the changes that put `parts` into their files; raise NotEditable where a file cannot be parsed.

    Files of the record that have no part any more are restored.
    """
    by_path: dict[Path, list[Part]] = {}
    for part in parts:
        by_path.setdefault(part.path, []).append(part)
    changes = [_plan_file(path, tuple(own), recorded.get(path), backups) for path, own in by_path.items()]
    gone = [file for path, file in recorded.items() if path not in by_path]
    return [*changes, *plan_removal(gone, backups)]


def _plan_file(path: Path, parts: tuple[Part, ...], recorded: FileRecord | None, backups: Path) -> FileChange:
    current = read_bytes(path)
    base = _base(path, current, parts, recorded, backups)
    is_same = recorded is None or recorded.parts == parts
    if current is not None and is_same and has_parts(_text(path, current), parts):
        return FileChange(path, current, current, base, parts)
    wanted = put_parts(_text(path, base), parts).encode()
    return FileChange(path, current, wanted, base, parts)


def _base(
    path: Path, current: bytes | None, parts: tuple[Part, ...], recorded: FileRecord | None, backups: Path
) -> bytes | None:
    """Return the file without our parts."""
    if recorded is not None:
        return _without_parts(recorded, current, backups)
    if current is None or not has_parts(_text(path, current), parts):
        return current
    # written by an earlier kept whose record is gone
    if all(isinstance(part, OwnFile) for part in parts):
        return None
    return take_parts_out(_text(path, current), parts, "").encode()


def plan_removal(files: Sequence[FileRecord], backups: Path) -> list[FileChange]:
    """Return the changes that take our parts out of the files."""
    changes = []
    for file in files:
        current = read_bytes(file.path)
        changes.append(FileChange(file.path, current, _without_parts(file, current, backups)))
    return changes


def _without_parts(file: FileRecord, current: bytes | None, backups: Path) -> bytes | None:
    """Return the file as it was if nobody edited it since; otherwise as it is, without our parts."""
    if current is None:
        return None
    digest = hash_bytes(current)
    if digest == file.before:
        return current
    before = read_bytes(backups / file.backup) if file.backup is not None else None
    if digest == file.after and (file.before is None or before is not None):
        return before
    if all(isinstance(part, OwnFile) for part in file.parts):
        return before
    left = take_parts_out(_text(file.path, current), file.parts, _text(file.path, before))
    is_empty = file.before is None and left.strip() in {"", "{}"}
    return None if is_empty else left.encode()


def back_up(change: FileChange, backups: Path) -> FileRecord:
    """Make the backup of a file; return its record, which must be saved before `carry_out` writes the file."""
    backup = None
    if change.base is not None:
        backup = f"{hash_bytes(change.base)[:16]}-{change.path.name}"
        make_folder(backups)
        write_atomically(backups / backup, change.base)
    assert change.wanted is not None
    return FileRecord(
        change.path,
        None if change.base is None else hash_bytes(change.base),
        hash_bytes(change.wanted),
        backup,
        tuple(_missing_folders(change.path)),
        change.parts,
    )


def carry_out(change: FileChange, *, mode: int = 0o600) -> None:
    """Write or remove the file."""
    if change.action == "none":
        return
    if change.wanted is None:
        with explain_errors("remove", change.path):
            resolve_link(change.path).unlink(missing_ok=True)
        return
    make_folder(change.path.parent)
    write_atomically(change.path, change.wanted, mode=mode)


def remove_folders(folders: Sequence[str]) -> None:
    """Remove folders that were created for a file and are empty now, the innermost first."""
    for folder in sorted(set(folders), key=len, reverse=True):
        with suppress(OSError):
            Path(folder).rmdir()


def _missing_folders(path: Path) -> Iterator[str]:
    for folder in reversed(path.parents):
        if not folder.exists():
            yield str(folder)


def _text(path: Path, data: bytes | None) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError:
        raise NotEditable(f"{str(path)!r} is not UTF-8 text") from None


def hash_bytes(data: bytes) -> str:
    """Return the hash by which a file is recognised."""
    return hashlib.sha256(data).hexdigest()
