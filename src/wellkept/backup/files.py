"""The files of a backup: found by the table of places, and copied as one consistent snapshot."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.places import (
    FACTS_OF_USER,
    IN_COPY,
    PASSING,
    REBUILT,
    ROWS_OF_USER,
    Nature,
    OnForget,
    Place,
    find_place,
)
from wellkept.core.errors import Busy, DamagedLog, StorageError, Unreadable
from wellkept.core.events import Progressed, Warned
from wellkept.core.regular_files import open_regular
from wellkept.core.text import dumps
from wellkept.core.values import JsonStruct
from wellkept.storage.archive import HOME, OUTSIDE
from wellkept.storage.connections import sql_migrations
from wellkept.storage.files import SCRATCH_FOLDER, is_foreign, read_bytes
from wellkept.storage.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wellkept.app.caller import Caller
    from wellkept.config.home import Home
    from wellkept.storage.maintenance import Snapshot
    from wellkept.storage.postgres.database import PostgresServer

_ATTEMPTS = 5
_FACTS = "holographic.db"
_UNDER_LOCK = frozenset({OnForget.ENTRIES, OnForget.SKILL})
"""Pages and skills are copied while their locks are held; every other file is replaced as a whole when it changes."""
_NOT_OURS = "kept did not write it"
_LINK = "it is a link to a folder"
_OTHER_PROFILE = "another profile: back it up with --profile NAME"
_OF_THE_HOME = "it belongs to the home and its owner"


class LeftOut(JsonStruct, frozen=True):
    """A kind of file that a backup does not contain, and why."""

    what: str
    why: str
    files: int

    @property
    def is_needless(self) -> bool:
        """Whether nobody would look for it in a backup: logs of databases, locks, indexes."""
        return self.why in {IN_COPY, PASSING, REBUILT}


class SourceFile(Struct, frozen=True):
    """A file of the home that goes into the backup."""

    path: Path
    name: str
    """The path relative to the home."""
    place: Place

    @property
    def is_live_database(self) -> bool:
        """Whether one of our stores writes it; opening and closing such a file here would drop its locks."""
        return self.place.on_forget is OnForget.ROWS


class Staging(Struct):
    """Copies of all files in a folder, by their name in the archive."""

    folder: Path
    files: dict[str, Path] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    redacted: list[str] = field(default_factory=list)
    """Settings that contain no credentials in the copy, unlike the original."""
    problems: list[str] = field(default_factory=list)
    schemas: dict[str, int] = field(default_factory=dict)
    """The versions of the databases."""
    outside: dict[str, str] = field(default_factory=dict)
    """Where files outside the home were, by their name in the archive."""

    def place(self, name: str, *, mode: int = 0o600) -> Path:
        """Return where the copy of a file is to be written."""
        copy = self.folder / str(len(self.files))
        self.files[name], self.modes[name] = copy, mode
        return copy

    def drop(self, name: str, why: str) -> None:
        """Take a file out again that could not be copied."""
        self.files.pop(name, None)
        self.problems.append(f"{name}: {why}")

    def list_left_out(self) -> tuple[LeftOut, ...]:
        """Return what was left out, by kind and reason."""
        return tuple(LeftOut(what, why, count) for (what, why), count in sorted(self.left_out.items()))

    @property
    def total_bytes(self) -> int:
        """The size of all copies."""
        return sum(copy.stat().st_size for copy in self.files.values())


def stage_files(caller: Caller, staging: Staging) -> None:
    """Copy everything of the caller's home as one consistent snapshot.

    While all pages and skills are locked, a read transaction is opened on every database. So a page agrees with the
    ledger, and a database copy contains everything committed before that. The locks are released when pages and
    skills are copied; the databases are then copied from their snapshots while others write.
    """
    with ExitStack() as open_snapshots:
        with _hold_locks(caller):
            staging.left_out.clear()
            _settle_names(caller, staging)
            sources = _list_sources(caller, staging)
            snapshots = _open_snapshots(caller, sources, staging, open_snapshots)
            for source in sources:
                if source.name not in snapshots and source.place.on_forget in _UNDER_LOCK:
                    _copy(source, staging)
        total = sum(source.path.stat().st_size for source in sources if source.name in snapshots)
        _copy_databases(caller, snapshots, staging, total)
    for source in sources:
        if source.name not in snapshots and source.place.on_forget not in _UNDER_LOCK:
            _copy(source, staging)
    if caller.app.server is not None:
        _copy_server(caller, caller.app.server, staging)
    if caller.is_owner:
        _copy_provider_paths(caller, staging)


def _copy_server(caller: Caller, server: PostgresServer, staging: Staging) -> None:
    """Copy the data on a server in the form of a home without one: a backup can be restored into either."""
    from wellkept.config.home import Home  # the name is only a type elsewhere
    from wellkept.operations.storage import copy_to_files
    from wellkept.operations.users import list_users

    home = Home(staging.folder / "server")
    users = [user.id for user in list_users(caller)] if caller.is_owner else [caller.user]
    copy_to_files(server, users, home, caller.space.listeners)
    for path in sorted(path for path in home.path.rglob("*") if path.is_file()):
        name = path.relative_to(home.path).as_posix()
        place = find_place(name)
        if place is not None and not place.left_out:
            # a file left over from before the migration must not hide the server's data
            path.replace(staging.files.get(f"{HOME}{name}") or staging.place(f"{HOME}{name}"))
            staging.schemas |= {name: newest_schema(path.name)} if path.suffix == ".db" else {}
    _drop_address(home, staging)


def _drop_address(home: Home, staging: Staging) -> None:
    """Remove the server from the copied settings: a home restored from them must not write to it unasked."""
    from wellkept.config.settings import unset_value

    copy = staging.files.get(f"{HOME}{home.config_file.name}")
    if copy is not None:
        copy.rename(home.config_file)
        if unset_value(home, "storage.url", why_no_person=""):
            staging.left_out["the setting storage.url", "the data on the server is in the backup"] += 1
        home.config_file.rename(copy)


def newest_schema(name: str) -> int:
    """Return the schema version that this kept writes to a database of this name; 0 if it is not ours."""
    packages = {"ledger.db": "wellkept.memory", "holographic.db": "wellkept.providers.holographic"}
    packages |= dict.fromkeys(("state.db", "kept.db"), "wellkept.storage")
    return sql_migrations(packages[name])[-1].version if name in packages else 0


@contextmanager
def _hold_locks(caller: Caller) -> Iterator[None]:
    """Hold the lock of every page and of every skill that was ever changed through kept."""
    for _ in range(_ATTEMPTS):
        wanted = _find_locks(caller)
        with ExitStack() as held:
            for sidecar in wanted:
                try:
                    held.enter_context(hold_lock(sidecar))
                except Busy:
                    raise
                except StorageError:
                    continue  # a folder that cannot be written is not being changed
            if _find_locks(caller) == wanted:  # no page was created meanwhile
                yield
                return
    raise Busy("pages are being created faster than they can be locked", "try again in a moment")


def _find_locks(caller: Caller) -> list[Path]:
    locks: list[Path] = []
    for own in _user_folders(caller):
        memories, versions = own / "memories", own / "skills" / ".versions"
        if memories.is_dir():
            pages = {memories / "MEMORY.md", memories / "USER.md", *memories.glob("projects/*/MEMORY.md")}
            locks += [page.with_name(f"{page.name}.lock") for page in sorted(pages)]
        if versions.is_dir():
            locks += sorted(versions / f"{path.name}.lock" for path in versions.iterdir() if path.is_dir())
    return locks


def _user_folders(caller: Caller) -> list[Path]:
    home = caller.space.home
    others = sorted(home.users.iterdir()) if caller.is_owner and home.users.is_dir() else []
    return [home.own, *(folder for folder in others if folder.is_dir())]


def _list_sources(caller: Caller, staging: Staging) -> list[SourceFile]:
    """Return the files to copy, by name; count the others with the reason."""
    home = caller.space.home
    sources = [
        source for path in _walk(home.own, home.path, staging) if (source := _judge(caller, path, staging)) is not None
    ]
    if not caller.is_owner:
        shared = [home.database, home.path / _FACTS]
        sources += [
            source for path in shared if path.exists() and (source := _judge(caller, path, staging)) is not None
        ]
        staging.left_out["settings, plugins and the other files of the home", _OF_THE_HOME] += 1
    return sorted(sources, key=lambda source: source.name)


def _walk(root: Path, home: Path, staging: Staging) -> Iterator[Path]:
    for base, folders, names in os.walk(root):
        if Path(base) == home:
            staging.left_out["other profiles", _OTHER_PROFILE] += "profiles" in folders
            folders[:] = [name for name in folders if name not in {"profiles", SCRATCH_FOLDER}]
        for name in [name for name in folders if Path(base, name).is_symlink()]:
            folders.remove(name)
            staging.left_out[Path(base, name).relative_to(home).as_posix(), _LINK] += 1
        yield from (Path(base, name) for name in names)
    staging.left_out += Counter()  # without zeros


def _judge(caller: Caller, path: Path, staging: Staging) -> SourceFile | None:
    """Return a file if a backup contains it."""
    home = caller.app.home
    name = path.relative_to(home.path).as_posix()
    place = find_place(name)
    is_other = place is None or (path.parent == home.path and _is_of_another_program(caller, path))
    if place is None or is_other or not name.isprintable():
        staging.left_out["files of other programs", _NOT_OURS] += 1
        return None
    if place.left_out:
        staging.left_out[place.holds, place.left_out] += 1
        return None
    return SourceFile(path, name, place)


def _is_of_another_program(caller: Caller, path: Path) -> bool:
    """Whether another agent whose home this is owns the file."""
    if path.name == "state.db":
        return is_foreign(path)
    return path.name.startswith("config.yaml") and caller.app.home.is_shared


def _settle_names(caller: Caller, staging: Staging) -> None:
    """Recover the databases that are missing beside their logs, which no list of files would name; note lost logs."""
    from wellkept.storage.log_recovery import is_misplaced, note_lost_log

    home = caller.app.home
    ledgers = [own / "memories" / "ledger.db" for own in _user_folders(caller)]
    for path in (home.database, home.path / _FACTS, *ledgers):
        try:
            if is_misplaced(path):
                _recover(caller, path)
            elif what := note_lost_log(path):
                caller.app.report(Warned(what, "`kept doctor` tells it until it is removed"))
        except StorageError as error:
            staging.problems.append(f"{path.relative_to(home.path).as_posix()}: {error.message}")


def _recover(caller: Caller, path: Path) -> None:
    """Recover what SQLite would not read of a log, as the next use of the database would."""
    from wellkept.storage.log_recovery import recover_log, settle_names

    if path == caller.app.home.database:
        _ = caller.app.state_file
        return
    for what in (settle_names(path, may_cut=True), recover_log(path, may_cut=True)):
        if what:
            caller.app.report(Warned(what, "remove what is set aside when nothing is missing"))


def _open_snapshot(caller: Caller, path: Path) -> Snapshot:
    from wellkept.storage.maintenance import Snapshot

    try:
        return Snapshot(path)
    except DamagedLog:
        _recover(caller, path)
        return Snapshot(path)


def _open_snapshots(
    caller: Caller, sources: list[SourceFile], staging: Staging, open_snapshots: ExitStack
) -> dict[str, Snapshot]:
    from wellkept.storage.maintenance import is_database

    snapshots: dict[str, Snapshot] = {}
    for source in sources:
        try:
            if source.is_live_database or (source.place.nature is Nature.CANONICAL and is_database(source.path)):
                snapshots[source.name] = snapshot = _open_snapshot(caller, source.path)
                open_snapshots.callback(snapshot.close)
                staging.schemas[source.name] = snapshot.version
        except Busy:
            raise
        except Unreadable as error:  # its bytes are copied as they are
            staging.problems.append(f"{source.name}: {error.message}")
        except StorageError as error:
            if source.path.exists():  # without its log, the copy of the file may lack what was written last
                staging.problems.append(f"{source.name}: {error.message}")
    return snapshots


def _copy_databases(caller: Caller, snapshots: dict[str, Snapshot], staging: Staging, total: int) -> None:
    from wellkept.storage.columns import keep_rows

    done = 0
    for name, snapshot in snapshots.items():
        copy = staging.place(f"{HOME}{name}")
        for size in snapshot.copy_to(copy):
            done += size
            if done < total:  # the end is reported once
                caller.space.listeners(Progressed("copying databases", done, total))
        if not caller.is_owner and not name.startswith("users/"):
            keep_rows(copy, FACTS_OF_USER if name == _FACTS else ROWS_OF_USER, user=caller.user)
    if total:
        caller.space.listeners(Progressed("copying databases", total, total))


def _copy(source: SourceFile, staging: Staging) -> None:
    """Copy one file; settings without their credentials."""
    name = f"{HOME}{source.name}"
    try:
        if source.place.secrets:
            data = read_bytes(source.path)
            if data is not None:
                plain = _redact(source.path, data)
                staging.place(name).write_bytes(plain)
                staging.redacted += [source.name] if plain != data else []
        else:
            _copy_bytes(source.path, name, staging)
    except FileNotFoundError:
        staging.files.pop(name, None)  # removed meanwhile
    except Unreadable as error:
        staging.drop(name, error.message)


def _copy_bytes(path: Path, name: str, staging: Staging) -> None:
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}") from error
    with file:
        is_executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
        with staging.place(name, mode=0o700 if is_executable else 0o600).open("wb") as copy:
            shutil.copyfileobj(file, copy)


def _redact(path: Path, data: bytes) -> bytes:
    """Return settings without credentials; the same bytes if there are none."""
    from wellkept.security.secrets import redact, redact_json

    text = data.decode("utf-8", "surrogateescape")
    if path.suffix == ".json":
        with suppress(ValueError):
            value = json.loads(text)
            safe = redact_json(value)
            return data if safe == value else f"{dumps(safe, indent=2)}\n".encode()
    plain = redact(text)
    return data if plain == text else plain.encode("utf-8", "surrogateescape")


def _copy_provider_paths(caller: Caller, staging: Staging) -> None:
    """Copy what providers keep outside the home; links are not followed."""
    for name, path in list_provider_files(caller):
        copied = f"{OUTSIDE}{name}{path.as_posix()}"
        try:
            if path.is_symlink() or not path.is_file():
                continue
            _copy_bytes(path, copied, staging)
            staging.outside[copied] = str(path)
        except (FileNotFoundError, Unreadable) as error:
            staging.drop(copied, str(error))


def list_provider_files(caller: Caller) -> Iterator[tuple[str, Path]]:
    """Yield the files outside the home that the chosen providers name, with the name of the provider."""
    for name, root in list_provider_roots(caller):
        yield from ((name, path) for path in (sorted(root.rglob("*")) if root.is_dir() else [root]))


def list_provider_roots(caller: Caller) -> list[tuple[str, Path]]:
    """Return the files and folders outside the home that the chosen providers name."""
    from wellkept.providers.manager import chosen_names

    names = chosen_names(caller.app.settings.memory.provider)
    if not names:
        return []
    from wellkept.providers.status import list_backup_paths

    home = caller.app.home
    backup_paths = list_backup_paths(names, caller.app.plugin_source())
    return [
        (name, path) for name, paths in backup_paths.items() for path in paths if not path.is_relative_to(home.path)
    ]
