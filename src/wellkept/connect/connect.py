"""Connect other agents to this home: plan, write with a backup, repair, disconnect, pause."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.config.home import DEFAULT_PROFILE
from wellkept.connect.record import Connection, FileRecord, Recall, Record, load_record, save_record
from wellkept.connect.written_parts import NotEditable, OwnFile, Part, has_parts, put_parts, take_parts_out
from wellkept.core.errors import Reason, Refused
from wellkept.core.installation import find_program
from wellkept.core.regular_files import explain_errors
from wellkept.core.values import JsonStruct
from wellkept.storage.files import find_project, make_folder, read_bytes, resolve_link, write_atomically
from wellkept.storage.locks import hold_lock

if TYPE_CHECKING:
    from wellkept.connect.clients import Client, Machine, Presence
    from wellkept.core.text import JSON
    from wellkept.imports.sources import FoundSource

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

        old, new = (
            (data or b"")[:_SHOWN_CHARS].decode("utf-8", "replace").splitlines() for data in (self.current, self.wanted)
        )
        lines = list(unified_diff(old, new, lineterm="", n=0))[2:]
        return [line for line in lines if not line.startswith("@@")]


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


class ConnectOptions(Struct, frozen=True):
    """How clients are connected; None follows the settings."""

    project: Path | None = None
    """The project whose files are written instead of the user's."""
    recall: Recall | None = None
    capture: bool | None = None


class ClientPlan(Struct, frozen=True):
    """What connecting or disconnecting one client changes."""

    connection: Connection
    changes: tuple[FileChange, ...]
    next_step: str = ""

    @property
    def is_changed(self) -> bool:
        """Whether any file changes."""
        return any(change.action != "none" for change in self.changes)

    def as_json(self) -> dict[str, JSON]:
        """Return the files with what changes in each."""
        return {
            "client": self.connection.client,
            "project": self.connection.project,
            "changed": self.is_changed,
            "files": [change.as_json() for change in self.changes],
            "next": self.next_step,
        }


class ConnectPlan(JsonStruct, frozen=True):
    """What connecting or disconnecting clients changes."""

    clients: tuple[ClientPlan, ...]

    @property
    def is_changed(self) -> bool:
        """Whether any file changes."""
        return any(client.is_changed for client in self.clients)


def client_names() -> list[str]:
    """Return the names of the clients that can be connected."""
    from wellkept.connect.clients import CLIENTS

    return list(CLIENTS)


def project_of(folder: Path) -> Path:
    """Return the project that a folder is in: its repository, or the folder itself."""
    return Path(find_project(folder.resolve()) or folder)


def find_clients(caller: Caller) -> list[Presence]:
    """Look for every client on this machine."""
    from wellkept.connect.clients import CLIENTS, find_client

    machine = this_machine(caller)
    return [find_client(client, machine) for client in CLIENTS.values()]


def plan_connect(caller: Caller, names: Sequence[str], options: ConnectOptions | None = None) -> ConnectPlan | Refused:
    """Return what would be written where; nothing is written."""
    chosen = options or ConnectOptions()
    clients = _choose(names)
    if isinstance(clients, Refused):
        return clients
    record = load_record(caller.space.home.connections)
    plans = []
    for client in clients:
        plan = _plan(caller, client, chosen, record)
        if isinstance(plan, Refused):
            return plan
        plans.append(plan)
    return ConnectPlan(tuple(plans))


def connect(caller: Caller, names: Sequence[str], options: ConnectOptions | None = None) -> ConnectPlan | Refused:
    """Write the files of each client, with backups; return what was changed. A second call changes nothing."""
    caller.require(Scope.ADMIN)
    if options is not None and (options.capture or options.recall not in {None, "off"}):
        caller.require_person("`kept connect` with --recall or --capture")  # may undo what the person had restricted
    folder = caller.space.home.connections
    with hold_lock(folder / "record.lock"):
        plan = plan_connect(caller, names, options)
        if isinstance(plan, ConnectPlan):
            for client in plan.clients:
                _write(caller, client)
    return plan


def plan_repair(caller: Caller) -> ConnectPlan | Refused:
    """Return what rewriting every recorded connection would change, after kept or a client has moved."""
    from wellkept.connect.clients import CLIENTS

    record = load_record(caller.space.home.connections)
    plans = []
    for connection in record.connections.values():
        client = CLIENTS.get(connection.client)
        project = Path(connection.project) if connection.project else None
        if client is None or (project is not None and not project.is_dir()):
            continue
        plan = _plan(caller, client, ConnectOptions(project, connection.recall, connection.capture), record)
        if isinstance(plan, Refused):
            return plan
        plans.append(plan)
    return ConnectPlan(tuple(plans))


def repair(caller: Caller) -> ConnectPlan | Refused:
    """Rewrite every recorded connection with the current path of kept."""
    caller.require(Scope.ADMIN)
    with hold_lock(caller.space.home.connections / "record.lock"):
        plan = plan_repair(caller)
        if isinstance(plan, ConnectPlan):
            for client in plan.clients:
                _write(caller, client)
    return plan


def plan_disconnect(caller: Caller, names: Sequence[str], *, project: Path | None = None) -> ConnectPlan | Refused:
    """Return what disconnecting the clients would change: everywhere, or in one project only."""
    clients = _choose(names)
    if isinstance(clients, Refused):
        return clients
    folder = caller.space.home.connections
    record = load_record(folder)
    plans = []
    for client in clients:
        for connection in record.of_client(client.name):
            if project is not None and connection.project != str(project):
                continue
            try:
                changes = plan_removal(connection.files, folder / "backups")
            except NotEditable as error:
                return _refuse_file(error)
            plans.append(ClientPlan(connection, tuple(changes)))
    return ConnectPlan(tuple(plans))


def disconnect(caller: Caller, names: Sequence[str], *, project: Path | None = None) -> ConnectPlan | Refused:
    """Remove everything that was written; files that nobody has edited since are restored byte for byte."""
    caller.require(Scope.ADMIN)
    folder = caller.space.home.connections
    with hold_lock(folder / "record.lock"):
        plan = plan_disconnect(caller, names, project=project)
        if isinstance(plan, Refused):
            return plan
        for client in plan.clients:
            for change in client.changes:
                carry_out(change)
            remove_folders([place for file in client.connection.files for place in file.folders])
            save_record(folder, load_record(folder).without(client.connection.key))
    return plan


def any_sends_events(names: Sequence[str]) -> bool:
    """Whether one of the clients sends events; the others have the tools alone."""
    from wellkept.connect.clients import CLIENTS

    return any(CLIENTS[name].has_hooks for name in names)


def connected_clients(caller: Caller, project: Path | None = None) -> list[str]:
    """Return the clients that are connected, anywhere or in one project."""
    found = load_record(caller.space.home.connections).connections.values()
    return list(dict.fromkeys(one.client for one in found if project is None or one.project == str(project)))


def find_history(caller: Caller, names: Sequence[str]) -> list[FoundSource]:
    """Return what the clients have from before, of which something is not stored yet."""
    from wellkept.formats.port import SOURCES
    from wellkept.imports.sources import find_sources

    found = [find_sources(caller, name) for name in dict.fromkeys(names) if name in SOURCES]
    listed = [source for sources in found if not isinstance(sources, Refused) for source in sources.sources]
    return [one for one in listed if one.new]


def set_paused(caller: Caller, *, paused: bool) -> bool:
    """Stop or resume capture and recall of every connected agent; return whether that changed anything."""
    caller.require(Scope.ADMIN)
    if not paused:
        caller.require_person("`kept connect resume`")
    folder = caller.space.home.connections
    with hold_lock(folder / "record.lock"):
        record = load_record(folder)
        save_record(folder, replace(record, is_paused=paused))
    return record.is_paused != paused


def _choose(names: Sequence[str]) -> list[Client] | Refused:
    from wellkept.connect.clients import CLIENTS

    unknown = [name for name in dict.fromkeys(names) if name not in CLIENTS]
    if unknown:
        return Refused(
            Reason.INVALID,
            f"there is no client {unknown[0]!r}",
            f"use one of: {', '.join(CLIENTS)}",
            {"clients": list(CLIENTS)},
        )
    return [CLIENTS[name] for name in dict.fromkeys(names)]


def _plan(caller: Caller, client: Client, options: ConnectOptions, record: Record) -> ClientPlan | Refused:
    from wellkept.connect.clients import Wiring

    if options.project is not None and not client.has_projects:
        return Refused(Reason.INVALID, f"{client.name} has no project settings", "leave out --project")
    wiring = Wiring(kept_command(caller), options.project)
    known = record.connections.get(Connection(client.name, (), str(options.project) if options.project else None).key)
    recorded: dict[Path, FileRecord] = {file.path: file for file in known.files} if known is not None else {}
    try:
        parts = client.parts(this_machine(caller), wiring)
        changes = plan_parts(parts, recorded, caller.space.home.connections / "backups")
    except NotEditable as error:
        return _refuse_file(error)
    connection = Connection(
        client.name,
        wiring.command,
        str(options.project) if options.project else None,
        options.recall or (known.recall if known else None),
        options.capture if options.capture is not None else (known.capture if known else None),
        known.since if known else caller.app.clock.now().timestamp(),
        known.files if known else (),
    )
    return ClientPlan(connection, tuple(changes), client.next_step)


def _refuse_file(error: Exception) -> Refused:
    return Refused(
        Reason.INVALID, f"{error}; nothing was changed", "repair the file, or add the lines of `kept connect --print`"
    )


def _write(caller: Caller, plan: ClientPlan) -> None:
    """Back up and record each file before it is written, so that an interrupted run can be undone too."""
    folder = caller.space.home.connections
    mode = 0o600 if plan.connection.project is None else 0o644  # files of a project are shared by its people
    known = {file.path: file for file in plan.connection.files}
    records: dict[Path, FileRecord] = {}
    wanted = [change for change in plan.changes if change.parts]
    for change in wanted:
        old = known.get(change.path)
        if old is not None and change.action == "none":
            records[change.path] = old
            continue
        made = back_up(change, folder / "backups")
        records[change.path] = replace(made, folders=(old.folders if old else ()) or made.folders)
    connection = replace(plan.connection, files=tuple(records.values()))
    save_record(folder, load_record(folder).with_connection(connection))
    for change in plan.changes:
        carry_out(change, mode=mode)
    remove_folders([place for path, file in known.items() if path not in records for place in file.folders])


def kept_command(caller: Caller) -> tuple[str, ...]:
    """Return the absolute path of kept and the options that lead to this home, profile and user."""
    home = caller.space.home
    options: list[str] = []
    if home.root != (this_machine(caller).home / ".kept"):
        options += ["--home", str(home.root)]
    if home.profile != DEFAULT_PROFILE:
        options += ["--profile", home.profile]
    if not caller.is_owner:
        options += ["--as", caller.user]
    return (*_find_kept(caller), *options)


def _find_kept(caller: Caller) -> tuple[str, ...]:
    import shutil

    program = find_program()
    if len(program) > 1:
        return program
    own = Path(program[0])
    found = shutil.which(own.name, path=caller.app.environ.get("PATH", ""))
    # a link like ~/.local/bin/kept stays valid when the environment behind it is replaced
    is_same = found is not None and Path(found).resolve() == own.resolve()
    return (str(Path(found).absolute()),) if found is not None and is_same else program


def this_machine(caller: Caller) -> Machine:
    """Return where programs keep their files on this machine."""
    from wellkept.connect.clients import Machine

    return Machine(caller.app.environ, sys.platform)
