"""The page files on disk: read as they are, replaced whole, backed up before anything is refused."""

import hashlib
from pathlib import Path

from kept.core.errors import StorageError, Unreadable
from kept.memory.edits import Target
from kept.memory.page import Page, parse
from kept.storage.files import explain_errors, make_folder, read_bytes, remove_stale_temps, write_atomically

NAMES = {Target.MEMORY: "MEMORY.md", Target.USER: "USER.md"}
BACKUPS_KEPT = 10


class PageFiles:
    """The folder `memories/` with its two pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, target: Target) -> Path:
        """Return the file of a page."""
        return self.folder / NAMES[target]

    @property
    def ledger(self) -> Path:
        """Return the file of the ledger."""
        return self.folder / "ledger.db"

    def sidecar(self, target: Target) -> Path:
        """Return the lock file of a page; it is never deleted, and other agents use the same."""
        return self.folder / f"{NAMES[target]}.lock"

    def prepare(self) -> None:
        """Make the folder and remove what killed writers left."""
        make_folder(self.folder)
        for target in Target:
            remove_stale_temps(self.path(target))

    def raw(self, target: Target) -> bytes:
        """Return the bytes of a page; a missing file is an empty page."""
        return read_bytes(self.path(target)) or b""

    def stamp(self, target: Target) -> int:
        """Return when the page was last written, in nanoseconds; 0 for a page that is not there."""
        try:
            return self.path(target).stat().st_mtime_ns
        except OSError:
            return 0

    def entries(self, target: Target) -> tuple[str, ...]:
        """Return the entries of a page, or raise Unreadable: a file that cannot be read is not empty."""
        try:
            return parse(self.raw(target).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise Unreadable(
                f"{str(self.path(target))!r} is not UTF-8 text (byte {error.start})",
                f"`kept memory repair --target {target}` proposes a readable page; nothing was changed",
            ) from error

    def write(self, target: Target, page: Page) -> None:
        """Replace the page durably, and make sure that the disk says what was meant."""
        path = self.path(target)
        data = page.text.encode()
        write_atomically(path, data)
        with explain_errors("read back", path):
            if path.read_bytes() != data:
                raise StorageError(f"{str(path)!r} does not hold what was written", "check the disk, then try again")

    def back_up(self, target: Target, raw: bytes, epoch: int) -> Path:
        """Keep the raw bytes beside the page, once per distinct content, the newest ten; return the copy."""
        path = self.path(target)
        existing = sorted(path.parent.glob(f"{path.name}.bak.*"), key=_epoch)
        for copy in existing:
            if _digest(read_bytes(copy) or b"") == _digest(raw):
                return copy
        copy = path.with_name(f"{path.name}.bak.{epoch}")
        while copy.exists():
            epoch += 1
            copy = path.with_name(f"{path.name}.bak.{epoch}")
        write_atomically(copy, raw)
        for old in existing[: max(0, len(existing) + 1 - BACKUPS_KEPT)]:
            old.unlink(missing_ok=True)
        return copy


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _epoch(path: Path) -> int:
    suffix = path.name.rpartition(".")[2]
    return int(suffix) if suffix.isdigit() else 0
