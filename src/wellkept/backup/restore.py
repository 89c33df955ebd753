"""Restore of a backup into an empty home or one with data: a preview, then a merge that loses nothing.

One rename turns the unpacked backup into the folder `restoring` of the home. A process that is killed before that
leaves the home unchanged; after that, the next command completes the restore, because every part can be repeated.
"""

from __future__ import annotations

import json
import os
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.backup.files import list_provider_roots, newest_schema
from wellkept.backup.restore_parts import (
    PartResult,
    Source,
    restore_files,
    restore_pages,
    restore_sessions,
    restore_skills,
)
from wellkept.core.errors import Busy, KeptError, Reason, Refused, StorageError, UsageError
from wellkept.core.events import Warned
from wellkept.core.ids import OWNER, UserId
from wellkept.core.regular_files import load_bytes
from wellkept.core.text import JSON, dumps
from wellkept.operations.storage import Move, copy_home, is_unused, restore_documents
from wellkept.operations.users import add_account, list_users
from wellkept.storage.files import make_folder, move, open_scratch, publish, read_bytes, write_atomically
from wellkept.storage.locks import hold_lock
from wellkept.storage.sqlite import open_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wellkept.storage.archive import Contents
    from wellkept.storage.postgres.database import PostgresServer

_PLAN = "restore.json"
_DATABASES = ("state.db", "kept.db")


class RestoreOptions(Struct, frozen=True):
    """What a restore does in addition to merging."""

    settings: bool = False
    """Also replace the settings of a home with data."""
    include_forgotten: bool = False
    """Also restore skills and files that do not exist here, although something was forgotten after the backup."""


class RestoreReport(Struct, frozen=True):
    """What a restore did, or with `is_preview` would do."""

    file: Path
    created: str
    user: str
    is_preview: bool
    is_fresh: bool
    """Whether nothing was stored here before."""
    parts: dict[str, dict[str, PartResult]]
    """By user, then by part: pages, skills, files, sessions."""
    forgotten_since: tuple[str, ...]
    """The times at which something was forgotten here after the backup was made."""
    backup: Path | None = None
    """The backup of the home before the restore."""

    def collect(self, name: str) -> list[str]:
        """Return the lines of all parts: `conflicts` or `held_back`."""
        return [
            line if user == OWNER else f"{user}: {line}"
            for user, parts in self.parts.items()
            for part in parts.values()
            for line in getattr(part, name)
        ]

    @property
    def changes_nothing(self) -> bool:
        """Whether everything of the backup is here already."""
        idle = {"unchanged", "held back", "forgotten"}
        return not any(
            count
            for parts in self.parts.values()
            for part in parts.values()
            for name, count in part.counts.items()
            if name not in idle
        )

    def as_json(self) -> dict[str, JSON]:
        """Return the counts by user and part, conflicts, and what was held back."""
        return {
            "file": str(self.file),
            "created": self.created,
            "user": self.user,
            "dry_run": self.is_preview,
            "empty_home": self.is_fresh,
            "users": {
                user: {name: part.as_json() for name, part in parts.items()} for user, parts in self.parts.items()
            },
            "conflicts": list(self.collect("conflicts")),
            "held_back": list(self.collect("held_back")),
            "forgotten_since": list(self.forgotten_since),
            "changed": not self.changes_nothing,
            "backup": None if self.backup is None else str(self.backup),
        }


class Restore(Struct):
    """An unpacked backup, and what restoring it would do."""

    folder: Path
    file: Path
    contents: Contents
    options: RestoreOptions
    preview: RestoreReport | None = None


@contextmanager
def open_restore(
    caller: Caller, file: Path, options: RestoreOptions | None = None, *, passphrase: str | None = None
) -> Iterator[Restore | Refused]:
    """Unpack a backup beside the home, compare all checksums, and plan the restore.

    The home is not changed; the unpacked files are removed at the end.
    """
    from wellkept.storage.archive import open_archive, read_archive

    caller.require(Scope.ADMIN if caller.is_owner else Scope.WRITE)
    file = file.expanduser().absolute()
    with open_archive(file, passphrase=passphrase) as archive, open_scratch(caller.app.home.root) as scratch:
        folder = scratch / "backup"
        make_folder(folder)
        contents = read_archive(archive, into=folder, sink=caller.space.listeners)
        restore = Restore(folder, file, contents, options or RestoreOptions())
        refused = _refuse(caller, restore)
        if refused is not None:
            yield refused
            return
        restore.preview = _run(caller, restore, is_preview=True)
        yield restore


def _refuse(caller: Caller, restore: Restore) -> Refused | None:
    of = restore.contents.description.user
    if not caller.is_owner and of not in {OWNER, caller.user}:
        return Refused(Reason.NOT_ALLOWED, f"the backup is that of {of!r}", "restore it as that user or as owner")
    for name, version in restore.contents.details.get("schemas", {}).items():
        newest = newest_schema(Path(str(name)).name)
        if isinstance(version, int) and newest and version > newest:
            message = f"{name} in the backup has schema {version}, this kept knows {newest}"
            return Refused(Reason.UNAVAILABLE, message, "update kept; nothing was changed")
    return None


def apply_restore(caller: Caller, restore: Restore, *, backup: bool = True) -> RestoreReport | Refused:
    """Back up the home as it is, then merge the backup into it."""
    from wellkept.backup.backup import back_up_before

    caller.require_person("`kept restore FILE`")
    caller.require(Scope.WRITE)
    home = caller.app.home
    assert restore.preview is not None
    if restore.preview.changes_nothing:
        return replace(restore.preview, is_preview=False)
    before: Path | None = None
    if backup and not restore.preview.is_fresh:
        made = back_up_before(caller, "restore")
        if isinstance(made, Refused):
            return made
        before = made.file
    make_folder(home.path)
    with hold_lock(_lock(home.restoring)):
        if home.restoring.exists():
            return Refused(Reason.UNAVAILABLE, "another restore is not finished", "run any command to complete it")
        write_atomically(restore.folder / _PLAN, dumps(_describe(caller, restore)).encode())
        # what follows gives these files other names, and reports them as restored
        publish(restore.folder, home.restoring)  # from now on the restore is completed, whatever happens
        restore.folder = home.restoring
        try:
            done = _run(caller, restore, is_preview=False)
        except StorageError as error:
            raise error.after_start("the restore") from error
        _remove(caller, home.restoring)
    return replace(done, backup=before)


def _lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _remove(caller: Caller, folder: Path) -> None:
    """Remove the unpacked backup; the restore ends with the rename."""
    with open_scratch(caller.app.home.root) as scratch:
        move(folder, scratch / "done")


def _describe(caller: Caller, restore: Restore) -> dict[str, JSON]:
    assert restore.preview is not None
    return {
        "file": str(restore.file),
        "caller": caller.user,
        "created": restore.contents.description.created,
        "user": restore.contents.description.user,
        "settings": restore.options.settings,
        "include_forgotten": restore.options.include_forgotten,
        "is_fresh": restore.preview.is_fresh,
        "outside": restore.contents.details.get("outside", {}),
    }


def finish_interrupted(owner: Caller) -> None:
    """Complete a restore whose process was killed; one that still runs is left alone."""
    folder = owner.app.home.restoring
    try:
        with hold_lock(_lock(folder), timeout_seconds=0):
            if folder.is_dir():
                _finish(owner, folder)
    except Busy:
        return
    except KeptError as error:
        owner.sink(Warned(f"an interrupted restore could not be completed: {error.message}", error.remedy))


def _finish(owner: Caller, folder: Path) -> None:
    from wellkept.storage.archive import Contents, Description

    try:
        plan: dict[str, Any] = json.loads(read_bytes(folder / _PLAN) or b"")
        about = Description(plan["created"], "", plan["user"], "", 0, 0)
        options = RestoreOptions(plan["settings"], plan["include_forgotten"])
        caller = owner.for_user(UserId(plan["caller"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{str(folder)!r} is not a backup", "move it away; nothing else was changed") from error
    contents = Contents(about, (), {"outside": plan["outside"]})
    restore = Restore(folder, Path(plan["file"]), contents, options)
    _run(caller, restore, is_preview=False, is_fresh=bool(plan["is_fresh"]))
    _remove(owner, folder)
    owner.sink(Warned(f"completed the interrupted restore of {plan['file']}"))


# the steps of a restore


def _run(caller: Caller, restore: Restore, *, is_preview: bool, is_fresh: bool | None = None) -> RestoreReport:
    """Restore every part, or only find out what that would do."""
    about = restore.contents.description
    if is_fresh is None:
        is_fresh = restore.preview.is_fresh if restore.preview is not None else _is_empty(caller)
    forgets = _find_forgets(caller, about.created)
    parts: dict[str, dict[str, PartResult]] = {}
    for user, folder in _find_users(caller, restore):
        own = caller.app.home.for_user(user).own
        holds_new = bool(forgets) and not restore.options.include_forgotten
        stamp = "".join(letter for letter in about.created if letter.isdigit())[:14]
        source = Source(user, folder, own, own / "restored" / stamp, is_fresh, holds_new)
        parts[user] = {
            "pages": restore_pages(caller, source, is_preview=is_preview),
            "skills": restore_skills(caller, source, is_preview=is_preview),
            "files": restore_files(source, with_settings=restore.options.settings, is_preview=is_preview),
        }
    for user, result in _restore_databases(caller, restore, is_fresh=is_fresh, is_preview=is_preview).items():
        parts.setdefault(user, {})["sessions"] = result
    if caller.app.server is not None and not is_preview:
        for user in map(UserId, parts):
            restore_documents(caller.app.server, user, caller.app.home.for_user(user).own)
    if caller.is_owner and about.user == OWNER:
        parts[OWNER]["outside"] = _restore_outside(caller, restore, is_preview=is_preview)
    return RestoreReport(restore.file, about.created, about.user, is_preview, is_fresh, parts, forgets)


def _is_empty(caller: Caller) -> bool:
    """Whether nothing was stored here yet."""
    home = caller.space.home
    if caller.app.server is not None:
        return all(is_unused(caller.app.server, user.id) for user in list_users(caller))
    stored = [home.memories, home.skills, home.pending, home.connections]
    stored += [home.database, home.config_file, home.users] if caller.is_owner else []
    return not any(path.exists() for path in stored)


def _find_users(caller: Caller, restore: Restore) -> Iterator[tuple[UserId, Path]]:
    """Yield the users whose files are in the backup and may be restored by the caller."""
    from wellkept.config.home import user_folder

    home = restore.folder / "home"
    if caller.is_owner and restore.contents.description.user == OWNER:
        yield OWNER, home
    for folder in sorted((home / "users").iterdir()) if (home / "users").is_dir() else ():
        user = _read_id(folder)
        if user_folder(user) == folder.name and (caller.is_owner or user == caller.user):
            yield user, folder


def _read_id(folder: Path) -> UserId:
    try:
        return UserId(str(json.loads(read_bytes(folder / "user.json") or b"")["id"]))
    except (ValueError, KeyError, TypeError):
        return UserId(folder.name)


def _find_forgets(caller: Caller, created: str) -> tuple[str, ...]:
    """Return when something was forgotten here after that moment, from the names of the reports."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError as error:
        raise UsageError(f"the backup has no valid date: {created!r}", "use another backup") from error
    stamp = f"{moment:%Y%m%d-%H%M%S-%f}"
    reports = caller.space.home.forget_reports
    return tuple(sorted(path.stem for path in reports.glob("[0-9]*.json") if path.stem > stamp))


def _restore_databases(
    caller: Caller, restore: Restore, *, is_fresh: bool, is_preview: bool
) -> dict[UserId, PartResult]:
    """Place the database with the conversations, or merge the conversations of each user into the one here."""
    from wellkept.app.store_care import open_store_of
    from wellkept.storage.columns import count_rows

    found = [path for name in _DATABASES if (path := restore.folder / "home" / name).exists()]
    if not found:
        return {}
    staged, target = found[0], caller.app.home.database
    is_whole = caller.is_owner and restore.contents.description.user == OWNER
    if caller.app.server is not None and is_whole and is_fresh:
        return _copy_to_server(caller, caller.app.server, staged, is_preview=is_preview)
    if caller.app.server is None and is_whole and not target.exists():
        result = PartResult()
        result.counts["new"] = count_rows(staged, "sessions")
        if not is_preview:
            move(staged, target)
        return {OWNER: result}
    with open_store_of(staged) as theirs:
        users = [user for user in theirs.users() if caller.is_owner or user == caller.user]
        spaces = [caller.app.space(user) for user in users]
        return {
            space.user: restore_sessions(
                space.database, space.sessions, theirs.for_user(space.user), is_preview=is_preview
            )
            for space in spaces
        }


def _copy_to_server(
    caller: Caller, server: PostgresServer, staged: Path, *, is_preview: bool
) -> dict[UserId, PartResult]:
    """Copy the rows of a whole home unchanged to an empty server; rows that are already there stay."""
    from wellkept.app.store_care import open_store_of

    result: dict[UserId, PartResult] = {}
    with open_store_of(staged) as theirs:
        users = theirs.users()
        for user in users:
            result[user] = PartResult()
            result[user].counts["new"] = theirs.for_user(user).totals()[0]
    if is_preview:
        return result
    home = caller.app.home
    with closing(open_state(staged)) as database:
        for user in {OWNER, *users}:
            memories = staged.parent / home.for_user(user).memories.relative_to(home.path)
            Move(server, user, memories, caller.space.listeners).run_forward(database)
        copy_home(server, database, to_files=False)
    for one in list_users(caller):
        if one.created is not None:
            add_account(server, one.id, one.created)
    return result


def _restore_outside(caller: Caller, restore: Restore, *, is_preview: bool) -> PartResult:
    """Restore missing files outside the home, only under paths that a provider in use names."""
    result = PartResult()
    roots = [root for _, root in list_provider_roots(caller)] if restore.contents.details.get("outside") else []
    for name, original in restore.contents.details.get("outside", {}).items():
        staged, target = restore.folder / name, Path(os.path.normpath(original))
        if not staged.is_file():
            continue
        if not any(target.is_relative_to(root) for root in roots):
            result.counts["held back"] += 1
            result.held_back.append(f"{original}: no provider in use names it")
        elif target.exists():
            result.counts["unchanged"] += 1
        else:
            result.counts["new"] += 1
            if not is_preview:
                make_folder(target.parent)
                write_atomically(target, load_bytes(staged))
    return result
