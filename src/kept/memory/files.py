"""The page files in a user's folder: read as they are, replaced as a whole, backed up before a refusal."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from kept.core.errors import Busy, StorageError
from kept.memory.edits import Target
from kept.memory.page import StoredPage
from kept.storage.files import explain_errors, make_folder, read_bytes, remove_stale_temps, write_atomically
from kept.storage.locks import hold_lock

FILE_NAMES = {Target.MEMORY: "MEMORY.md", Target.USER: "USER.md"}
BACKUPS_KEPT = 10


class FilePages:
    """The pages in one folder, `memories/`; implements `Pages`."""

    def __init__(self, folder: Path, *, write: Callable[[Path, bytes], None] = write_atomically) -> None:
        self._folder = folder
        self._write = write

    def prepare(self) -> None:
        """Create the folder and remove temporary files of killed writers."""
        make_folder(self._folder)
        for target in Target:
            remove_stale_temps(self._path(target))

    def name(self, target: Target) -> str:
        """Return the file name of a page."""
        return FILE_NAMES[target]

    def read(self, target: Target) -> StoredPage:
        """Return a page; a missing file is an empty page. The stamp is the time of the last write in nanoseconds."""
        path = self._path(target)
        raw = read_bytes(path) or b""
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            stamp = 0
        return StoredPage(str(path), target, raw, stamp)

    def lock(self, target: Target, *, timeout_seconds: float) -> AbstractContextManager[None]:
        """Hold the lock on the sidecar file, which is never deleted and which other agents use as well."""
        return hold_lock(self._folder / f"{FILE_NAMES[target]}.lock", timeout_seconds=timeout_seconds)

    def replace(self, target: Target, text: str, *, expected: StoredPage) -> None:
        """Replace the file durably and verify it by reading it back."""
        path, data = self._path(target), text.encode()
        # the lock keeps other agents out, but not an editor that knows nothing of it
        if (read_bytes(path) or b"") != expected.raw:
            raise Busy(f"{str(path)!r} was changed by another program at the same moment", "try again")
        self._write(path, data)
        with explain_errors("read back", path):
            if path.read_bytes() != data:
                raise StorageError(f"{str(path)!r} does not hold what was written", "check the disk, then try again")

    def back_up(self, target: Target, raw: bytes, *, epoch: int) -> str:
        """Keep the raw bytes as `MEMORY.md.bak.<epoch>`, once per distinct content, the newest ten."""
        path = self._path(target)
        existing = sorted(path.parent.glob(f"{path.name}.bak.*"), key=_epoch)
        for copy in existing:
            if _digest(read_bytes(copy) or b"") == _digest(raw):
                return copy.name
        copy = path.with_name(f"{path.name}.bak.{epoch}")
        while copy.exists():
            epoch += 1
            copy = path.with_name(f"{path.name}.bak.{epoch}")
        write_atomically(copy, raw)
        for old in existing[: max(0, len(existing) + 1 - BACKUPS_KEPT)]:
            old.unlink(missing_ok=True)
        return copy.name

    def _path(self, target: Target) -> Path:
        return self._folder / FILE_NAMES[target]


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _epoch(path: Path) -> int:
    suffix = path.name.rpartition(".")[2]
    return int(suffix) if suffix.isdigit() else 0
