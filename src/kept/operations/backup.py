"""Backups of a home: one archive with pages, ledger, conversations, skills and settings of one moment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kept.app.caller import Scope
from kept.core.clock import iso
from kept.core.errors import Reason, Refused, StorageError

if TYPE_CHECKING:
    from kept.app.caller import Caller
    from kept.core.text import JSON
    from kept.operations.backup_files import LeftOut, Staging
    from kept.storage.archive import Contents

SUFFIX = ".kept.tar.gz"
ENCRYPTED_SUFFIX = f"{SUFFIX}.age"


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A backup that was made, or one that was read and found to be whole."""

    file: Path
    created: str
    program: str
    user: str
    profile: str
    files: int
    content_bytes: int
    """The size of all files in it."""
    archive_bytes: int
    encrypted: bool
    parts: dict[str, int]
    """How much of what is in it: pages, sessions, messages, skills, settings, users."""
    left_out: tuple[LeftOut, ...] = ()
    redacted: tuple[str, ...] = ()
    """Settings that are in it without their credentials."""
    problems: tuple[str, ...] = ()
    """Files that could not be copied as they should, and why."""

    def as_json(self) -> dict[str, JSON]:
        """Return the file, what is in it, and what was left out."""
        return {
            "file": str(self.file),
            "created": self.created,
            "program": self.program,
            "user": self.user,
            "profile": self.profile,
            "files": self.files,
            "bytes": self.content_bytes,
            "archive_bytes": self.archive_bytes,
            "encrypted": self.encrypted,
            "parts": dict(self.parts),
            "left_out": [one.as_json() for one in self.left_out],
            "redacted": list(self.redacted),
            "problems": list(self.problems),
        }


def create_backup(
    caller: Caller, path: Path, *, overwrite: bool = False, passphrase: str | None = None
) -> BackupReport | Refused:
    """Write everything of the caller to one archive: of the owner the whole profile with its users.

    It is safe while others write. `path` may be a folder, which gets a new file. The archive has its name only when
    it is complete; an error leaves nothing.
    """
    from kept.operations.backup_files import Staging, stage_files
    from kept.storage.files import explain_errors, remove_stale_temps
    from kept.storage.scratch import open_scratch, remove_unfinished

    caller.require(Scope.ADMIN if caller.is_owner else Scope.READ)
    moment = caller.app.clock.now()
    path = path.expanduser().absolute()
    if path.is_dir():
        path = _free_name(path, f"kept-{caller.app.home.profile}-{moment:%Y%m%d-%H%M%S}", is_plain=passphrase is None)
    refused = _refuse_target(path, overwrite=overwrite)
    if refused is not None:
        return refused
    remove_stale_temps(path)
    remove_unfinished(path.parent)
    # beside the archive, where there must be space anyway: the home may be full or read-only
    with explain_errors("write", path), open_scratch(path.parent) as folder:
        staging = Staging(folder)
        stage_files(caller, staging)
        return _write(caller, path, staging, created=iso(moment), passphrase=passphrase)


def back_up_before(caller: Caller, what: str) -> BackupReport | Refused:
    """Take a backup before a change named `what` (import-codex, restore); the newest `backup.keep` of them stay."""
    return _take(caller, f"before-{what}", kept="before-")


def _take(caller: Caller, name: str, *, kept: str) -> BackupReport | Refused:
    """Write a backup into the folder of the settings, and remove the oldest whose name contains `kept`."""
    from kept.storage.files import make_folder

    settings = caller.app.settings.backup
    folder = caller.space.home.backups if settings.folder is None else Path(settings.folder).expanduser()
    make_folder(folder)
    passphrase = _find_passphrase(caller)
    if isinstance(passphrase, Refused):
        return passphrase
    stem = f"{caller.app.clock.now():%Y%m%d-%H%M%S}-{name}"
    made = create_backup(caller, _free_name(folder, stem, is_plain=passphrase is None), passphrase=passphrase)
    if not isinstance(made, Refused):
        for old in find_backups(folder, kept)[: -settings.keep]:
            old.unlink(missing_ok=True)
    return made


def _find_passphrase(caller: Caller) -> str | Refused | None:
    variable = caller.app.settings.backup.passphrase_env
    if variable is None:
        return None
    found = caller.app.environ.get(variable)
    if not found:
        message = f"backup.passphrase_env names {variable!r}, which is not set"
        return Refused(Reason.UNAVAILABLE, message, "set it, or run: kept config unset backup.passphrase_env")
    return found


def find_backups(folder: Path, kind: str) -> list[Path]:
    """Return the backups of a folder that were taken for a reason, oldest first: `scheduled`, or `before-`."""
    found = folder.glob(f"[0-9]*-{kind}*{SUFFIX}*") if folder.is_dir() else ()
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def _refuse_target(path: Path, *, overwrite: bool) -> Refused | None:
    if not path.parent.is_dir():
        return Refused(Reason.INVALID, f"there is no folder {str(path.parent)!r}", "create it, or choose another file")
    if path.exists() and not overwrite:
        return Refused(Reason.PRESENT, f"{str(path)!r} exists already", "choose another file, or give --overwrite")
    return None


def _free_name(folder: Path, stem: str, *, is_plain: bool) -> Path:
    suffix = SUFFIX if is_plain else ENCRYPTED_SUFFIX
    names = (f"{stem}{f'-{number}' if number else ''}{suffix}" for number in range(1_000_000))
    return next(path for name in names if not (path := folder / name).exists())


def _write(caller: Caller, path: Path, staging: Staging, *, created: str, passphrase: str | None) -> BackupReport:
    from kept import __version__
    from kept.storage.archive import ArchiveWriter, Contents, Description, create_archive

    home, listeners = caller.app.home, caller.space.listeners
    description = Description(created, __version__, caller.user, home.profile, len(staging.files), staging.total_bytes)
    details: dict[str, JSON] = {
        "parts": dict(_count_parts(staging)),
        "schemas": dict(staging.schemas),
        "outside": dict(staging.outside),
        "left_out": [one.as_json() for one in staging.list_left_out()],
        "redacted": list(staging.redacted),
        "problems": list(staging.problems),
    }
    with create_archive(path, passphrase=passphrase) as file:
        writer = ArchiveWriter(file, description, sink=listeners)
        for name, copy in sorted(staging.files.items()):
            writer.add(name, copy, mode=staging.modes[name])
            copy.unlink()  # the folder is never much larger than the largest file that waits
        writer.finish(details)
    return _report(path, Contents(description, tuple(writer.members), details), encrypted=passphrase is not None)


def _count_parts(staging: Staging) -> dict[str, int]:
    """Return how much of what is in the backup."""
    from kept.storage.archive import HOME
    from kept.storage.columns import count_rows

    names = [name.removeprefix(HOME) for name in staging.files if name.startswith(HOME)]
    parts = {
        "users": len({name.split("/")[1] for name in names if name.startswith("users/")}),
        "pages": sum(name.endswith(".md") and "memories/" in name for name in names),
        "skills": sum(name.endswith("/SKILL.md") and "/.versions/" not in name for name in names),
        "settings": sum("/" not in name and name.endswith((".yaml", ".json")) for name in names),
    }
    for name, copy in staging.files.items():
        if name in {f"{HOME}state.db", f"{HOME}kept.db"}:
            with suppress(StorageError):  # a damaged database is copied as it is
                parts |= {table: count_rows(copy, table) for table in ("sessions", "messages", "receipts")}
    return parts


def verify_backup(caller: Caller, path: Path, *, passphrase: str | None = None) -> BackupReport:
    """Read a whole backup and compare every checksum; raises NotABackup, or Unreadable with what is damaged."""
    from kept.storage.archive import open_archive, read_archive

    caller.require(Scope.READ)
    path = path.expanduser().absolute()
    with open_archive(path, passphrase=passphrase) as file:
        contents = read_archive(file, sink=caller.space.listeners)
    return _report(path, contents, encrypted=passphrase is not None)


def needs_passphrase(path: Path) -> bool:
    """Whether a backup is encrypted."""
    from kept.storage.archive import is_encrypted

    return is_encrypted(path.expanduser())


def _report(path: Path, contents: Contents, *, encrypted: bool) -> BackupReport:
    from kept.operations.backup_files import LeftOut

    about, details = contents.description, contents.details
    return BackupReport(
        path,
        about.created,
        about.program,
        about.user,
        about.profile,
        len(contents.members),
        sum(member.size for member in contents.members),
        path.stat().st_size,
        encrypted,
        dict(details.get("parts", {})),
        tuple(LeftOut(**one) for one in details.get("left_out", ())),
        tuple(details.get("redacted", ())),
        tuple(details.get("problems", ())),
    )
