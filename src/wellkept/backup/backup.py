"""Backups of a home: one archive, a consistent snapshot of pages, ledger, conversations, skills and settings."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import field
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import iso
from wellkept.core.errors import Busy, KeptError, NotFound, Reason, Refused, StorageError, Unreadable
from wellkept.core.events import Warned
from wellkept.core.regular_files import explain_errors
from wellkept.core.text import JSON, dumps
from wellkept.core.values import JsonStruct
from wellkept.storage.archive import (
    HOME,
    ArchiveWriter,
    Contents,
    Description,
    create_archive,
    is_encrypted,
    open_archive,
    read_archive,
)
from wellkept.storage.files import (
    make_folder,
    open_scratch,
    read_bytes,
    remove_stale_temps,
    remove_unfinished,
    write_atomically,
)
from wellkept.storage.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wellkept.app.root import App
    from wellkept.backup.files import LeftOut, Staging

T = TypeVar("T")
_SESSIONS = frozenset({"state.db", "kept.db"})
_LEDGER = "ledger.db"
_FACTS = "holographic.db"
_MOST_SHOWN = 5


def is_checked(name: str) -> bool:
    """Whether a file of an archive is one of our databases."""
    return Path(name).name in {*_SESSIONS, _LEDGER, _FACTS} and name.startswith(HOME)


def find_damage(files: Mapping[str, Path]) -> list[str]:
    """Return what is damaged in the databases among these copies, given by their name in the archive.

    Pages and rows are compared with their checksums. Derived data is not looked at: it can be rebuilt.
    """
    return [
        f"{name.removeprefix(HOME)}: {problem.replace(repr(str(path)), 'the file')}"
        for name, path in sorted(files.items())
        if is_checked(name)
        for problem in _shorten(_check(Path(name).name, path))
    ]


def _check(name: str, path: Path) -> list[str]:
    from wellkept.storage.maintenance import check_pages

    try:
        problems = check_pages(path)
        if not problems and name in _SESSIONS:
            from wellkept.app.store_care import check_copied_store

            return check_copied_store(path)
        if not problems and name == _LEDGER:
            from wellkept.memory.ledger import check_copied_ledger

            return check_copied_ledger(path)
    except KeptError as error:
        return [error.message]
    return problems


def _shorten(problems: list[str]) -> list[str]:
    rest = len(problems) - _MOST_SHOWN
    return [*problems[:_MOST_SHOWN], f"and {rest:,} more"] if rest > 0 else problems


def with_room(caller: Caller, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of a folder for unpacked databases: in the home, or a temporary one if that is full."""
    root = caller.app.home.root
    if os.access(root, os.W_OK):
        try:
            with open_scratch(root) as folder:
                return read(folder)
        except StorageError as error:
            if not is_full(error):
                raise
    with tempfile.TemporaryDirectory(prefix="kept-verify-") as name:
        return read(Path(name))


def is_full(error: StorageError) -> bool:
    """Whether a disk without space is the reason."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in {errno.ENOSPC, errno.EDQUOT}


SUFFIX = ".kept.tar.gz"
ENCRYPTED_SUFFIX = f"{SUFFIX}.age"
_SCHEDULED = "scheduled"
_DAMAGED = "-damaged"
"""In the name of a backup with damaged or missing files; it neither counts as one of those to keep nor replaces one."""
_HISTORY = "history.json"
_UNITS = {"h": 3_600, "d": 86_400, "w": 604_800}
_RETRY_SECONDS = 3_600
"""A backup that failed is tried again after an hour."""


class BackupReport(JsonStruct, frozen=True):
    """A backup that was written, or one that was read and verified."""

    file: Path
    created: str
    program: str
    user: str
    profile: str
    files: int
    content_bytes: int = field(name="bytes")
    """The size of all files in it."""
    archive_bytes: int
    encrypted: bool
    parts: dict[str, int]
    """The number of pages, sessions, messages, skills, settings and users in it."""
    left_out: tuple[LeftOut, ...] = ()
    redacted: tuple[str, ...] = ()
    """Settings that are in it without their credentials."""
    problems: tuple[str, ...] = ()
    """Files that could not be copied, and what is damaged in those that were; empty for a whole backup."""


def create_backup(
    caller: Caller, path: Path, *, overwrite: bool = False, passphrase: str | None = None
) -> BackupReport | Refused:
    """Write all data of the caller to one archive; for the owner, the whole profile with its users.

    It is safe while others write. `path` may be a folder, which gets a new file. The archive gets its name only when
    it is complete; an error leaves nothing behind. An archive with damaged or missing files gets a name of its own,
    so that it never takes the place of a whole one.
    """
    from wellkept.backup.files import Staging, stage_files

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
        parts = _count_parts(staging)
        staging.problems += find_damage(staging.files)
        if staging.problems:
            stem, dot, suffix = path.name.partition(".")
            marked = (f"{stem}{_DAMAGED}{f'-{number}' if number else ''}{dot}{suffix}" for number in range(1_000_000))
            path = next(there for name in marked if not (there := path.with_name(name)).exists())
        backup = _write(caller, path, staging, parts, created=iso(moment), passphrase=passphrase)
    if caller.is_owner:
        _record(caller, _SCHEDULED if f"-{_SCHEDULED}" in path.name else "taken", str(path))
        if backup.problems:
            _record(caller, "failed", f"{path.name} is not whole: {'; '.join(backup.problems)}")
    return backup


def back_up_before(caller: Caller, what: str) -> BackupReport | Refused:
    """Take a backup before a change named `what` (import-codex, restore); the newest `backup.keep` of that name stay.

    Those before the changes of agents have a name of their own, so that an agent displaces none of a person.
    """
    made = _take(caller, f"before-{what}-by-agent" if caller.why_no_person else f"before-{what}")
    if isinstance(made, BackupReport) and made.problems:
        caller.sink(Warned(f"the backup {made.file.name} is not whole: {made.problems[0]}", "run `kept doctor`"))
    return made


def take_backup(caller: Caller) -> BackupReport | Refused:
    """Take a backup into the configured folder; the newest `backup.keep` of them stay, so an agent takes none."""
    caller.require_person("`kept backup`; into a file of its own, an agent may write one: `kept backup FILE`")
    return _take_into_folder(caller)


def _take_into_folder(caller: Caller) -> BackupReport | Refused:
    made = _take(caller, _SCHEDULED)
    if isinstance(made, Refused):
        _record(caller, "failed", made.error)
    return made


def _take(caller: Caller, name: str) -> BackupReport | Refused:
    """Take a backup into the configured folder; older ones of this name go, and no others."""
    from wellkept.storage.files import make_folder

    folder = _find_folder(caller)
    make_folder(folder)
    passphrase = _find_passphrase(caller)
    if isinstance(passphrase, Refused):
        return passphrase
    stem = f"{caller.app.clock.now():%Y%m%d-%H%M%S}-{name}"
    backup = create_backup(caller, _free_name(folder, stem, is_plain=passphrase is None), passphrase=passphrase)
    if not isinstance(backup, Refused):
        of_name = re.compile(rf"[\d-]+-{re.escape(name)}(-\d+)?({_DAMAGED}(-\d+)?)?")
        taken = [path for path in find_backups(folder) if of_name.fullmatch(path.name.partition(".")[0])]
        for is_damaged in (True, False):
            alike = [path for path in taken if (_DAMAGED in path.name) is is_damaged]
            for old in alike[: -caller.app.settings.backup.keep]:
                old.unlink(missing_ok=True)
    return backup


def _find_folder(caller: Caller) -> Path:
    folder = caller.app.settings.backup.folder
    return caller.space.home.backups if folder is None else Path(folder).expanduser()


def _find_passphrase(caller: Caller) -> str | Refused | None:
    variable = caller.app.settings.backup.passphrase_env
    if variable is None:
        return None
    passphrase = caller.app.environ.get(variable)
    if not passphrase:
        message = f"backup.passphrase_env names {variable!r}, which is not set"
        return Refused(Reason.UNAVAILABLE, message, "set it, or run: kept config unset backup.passphrase_env")
    return passphrase


def find_backups(folder: Path) -> list[Path]:
    """Return the backups that were taken into a folder, oldest first."""
    found = folder.glob(f"[0-9]*-*{SUFFIX}*") if folder.is_dir() else ()
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


class TakenBackup(JsonStruct, frozen=True):
    """A backup in the configured folder."""

    file: Path
    size: int = field(name="bytes")
    time: float


def list_backups(caller: Caller) -> list[TakenBackup]:
    """Return the backups in the configured folder, newest first."""
    caller.require(Scope.ADMIN)
    found = [(path, path.stat()) for path in find_backups(_find_folder(caller))]
    return [TakenBackup(path, stat.st_size, stat.st_mtime) for path, stat in reversed(found)]


def find_backup(caller: Caller, name: str) -> Path:
    """Return the backup of this name in the configured folder; raises NotFound."""
    found = next((backup.file for backup in list_backups(caller) if backup.file.name == name), None)
    if found is None:
        raise NotFound(
            f"there is no backup {name!r}",
            "restore a file elsewhere with `kept restore FILE`",
        )
    return found


def list_outside_backups(caller: Caller) -> list[Path]:
    """Return the backups that kept knows of and that are not in the home."""
    home, last = caller.app.home.path, read_history(caller).get("taken", {}).get("file", "")
    known = [*find_backups(_find_folder(caller)), *([Path(last)] if last and Path(last).is_file() else [])]
    return sorted({path for path in known if not path.is_relative_to(home)})


# automatic backups


def is_due(app: App) -> bool:
    """Whether a scheduled backup should be taken now; cheap, because every command asks."""
    every = app.settings.backup.every
    if every == "off":
        return False
    seconds = int(every[:-1]) * _UNITS[every[-1]]
    history, now = read_history(app.caller()), app.clock.now().timestamp()
    age, pause = (now - float(history.get(name, {}).get("time", 0.0)) for name in ("scheduled", "failed"))
    return not 0 <= age < seconds and not 0 <= pause < min(seconds, _RETRY_SECONDS)


def take_scheduled_backup(caller: Caller) -> BackupReport | None:
    """Take a backup if one is due and no other process takes it; remember when, or why it failed."""
    try:
        with hold_lock(caller.app.home.path / "backup.lock", timeout_seconds=0):
            if not is_due(caller.app):
                return None
            made = _take_into_folder(caller)
    except Busy:
        return None
    except KeptError as error:
        _record(caller, "failed", error.message)
        return None
    return None if isinstance(made, Refused) else made


def read_history(caller: Caller) -> dict[str, dict[str, Any]]:
    """Return when backups were taken (`taken`, `scheduled`) and when one failed (`failed`), with file or reason."""
    try:
        history = json.loads(read_bytes(caller.app.home.backups / _HISTORY) or b"{}")
    except (ValueError, StorageError):
        return {}
    return {name: one for name, one in history.items() if isinstance(one, dict)} if isinstance(history, dict) else {}


def _record(caller: Caller, event: str, what: str) -> None:
    """Record a backup of the home, or its failure; does nothing if the home cannot be written."""
    entry = {"time": caller.app.clock.now().timestamp(), "error" if event == "failed" else "file": what}
    history = {**read_history(caller), event: entry}
    if event != "failed":
        history = {**history, "taken": entry}
        history.pop("failed", None)
    with suppress(StorageError):
        make_folder(caller.app.home.backups)
        write_atomically(caller.app.home.backups / _HISTORY, f"{dumps(history, indent=1)}\n".encode())


def _refuse_target(path: Path, *, overwrite: bool) -> Refused | None:
    if not path.parent.is_dir():
        return Refused(Reason.INVALID, f"there is no folder {str(path.parent)!r}", "create it, or choose another file")
    if path.exists() and not path.is_file():
        return Refused(Reason.INVALID, f"{str(path)!r} is not a regular file", "choose another file")
    if path.exists() and not overwrite:
        return Refused(Reason.PRESENT, f"{str(path)!r} exists already", "choose another file, or give --overwrite")
    return None


def _free_name(folder: Path, stem: str, *, is_plain: bool) -> Path:
    suffix = SUFFIX if is_plain else ENCRYPTED_SUFFIX
    names = (f"{stem}{f'-{number}' if number else ''}{suffix}" for number in range(1_000_000))
    return next(path for name in names if not (path := folder / name).exists())


def _write(
    caller: Caller, path: Path, staging: Staging, parts: Mapping[str, int], *, created: str, passphrase: str | None
) -> BackupReport:
    from wellkept import __version__

    home, listeners = caller.app.home, caller.space.listeners
    description = Description(created, __version__, caller.user, home.profile, len(staging.files), staging.total_bytes)
    details: dict[str, JSON] = {
        "parts": dict(parts),
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
            copy.unlink()  # the folder never grows much beyond the largest remaining file
        writer.finish(details)
    return _report(path, Contents(description, tuple(writer.members), details), encrypted=passphrase is not None)


def _count_parts(staging: Staging) -> dict[str, int]:
    """Count the pages, sessions, messages, skills, settings and users in the backup."""
    from wellkept.storage.columns import count_rows

    names = [name.removeprefix(HOME) for name in staging.files if name.startswith(HOME)]
    parts = {
        "users": len({name.split("/")[1] for name in names if name.startswith("users/")}),
        "pages": sum(name.endswith(".md") and "memories/" in name for name in names),
        "skills": sum(name.endswith("/SKILL.md") and "/.versions/" not in name for name in names),
        "settings": sum("/" not in name and name.endswith((".yaml", ".json")) for name in names),
    }
    for name, copy in staging.files.items():
        if name in {f"{HOME}state.db", f"{HOME}kept.db"}:
            try:
                parts |= {table: count_rows(copy, table) for table in ("sessions", "messages", "receipts")}
            except Unreadable as error:  # a damaged database is copied as it is
                staging.problems.append(f"{name.removeprefix(HOME)}: {error.message}")
    return parts


def verify_backup(caller: Caller, path: Path, *, passphrase: str | None = None) -> BackupReport:
    """Read a whole backup, compare every checksum, and check the databases in it.

    Raises UsageError for another file, or Unreadable for a damaged archive. A whole archive may hold a damaged
    database, which was copied as it was: that is among the problems.
    """
    caller.require(Scope.READ)
    path = path.expanduser().absolute()

    def read(room: Path) -> tuple[Contents, list[str]]:
        with open_archive(path, passphrase=passphrase) as file:
            contents = read_archive(file, into=room, is_wanted=is_checked, sink=caller.space.listeners)
        return contents, find_damage({member.path: room / member.path for member in contents.members})

    contents, damage = with_room(caller, read)
    report = _report(path, contents, encrypted=passphrase is not None)
    return replace(report, problems=tuple(dict.fromkeys([*report.problems, *damage])))


def needs_passphrase(path: Path) -> bool:
    """Whether a backup is encrypted."""
    return is_encrypted(path.expanduser())


def _report(path: Path, contents: Contents, *, encrypted: bool) -> BackupReport:
    from wellkept.backup.files import LeftOut

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
