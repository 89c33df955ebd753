"""Connect other agents to this home: plan, write, repair, disconnect, pause."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Scope
from wellkept.config.home import DEFAULT_PROFILE
from wellkept.connect.record import Connection, Record, load_record, save_record
from wellkept.core.errors import Reason, Refused
from wellkept.core.installation import find_program
from wellkept.core.values import JsonStruct
from wellkept.storage.files import find_project
from wellkept.storage.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.app.caller import Caller
    from wellkept.connect.clients import Client, Machine, Presence
    from wellkept.connect.files import FileChange
    from wellkept.connect.record import FileRecord, Recall
    from wellkept.core.text import JSON
    from wellkept.imports.sources import FoundSource


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
        return any(one.is_changed for one in self.clients)


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
            for one in plan.clients:
                _write(caller, one)
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
            for one in plan.clients:
                _write(caller, one)
    return plan


def plan_disconnect(caller: Caller, names: Sequence[str], *, project: Path | None = None) -> ConnectPlan | Refused:
    """Return what disconnecting the clients would change: everywhere, or in one project only."""
    from wellkept.connect.files import plan_removal
    from wellkept.connect.written_parts import NotEditable

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
    from wellkept.connect.files import carry_out, remove_folders

    caller.require(Scope.ADMIN)
    folder = caller.space.home.connections
    with hold_lock(folder / "record.lock"):
        plan = plan_disconnect(caller, names, project=project)
        if isinstance(plan, Refused):
            return plan
        for one in plan.clients:
            for change in one.changes:
                carry_out(change)
            remove_folders([place for file in one.connection.files for place in file.folders])
            save_record(folder, load_record(folder).without(one.connection.key))
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
    listed = [one for sources in found if not isinstance(sources, Refused) for one in sources.sources]
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
    from wellkept.connect.files import plan_parts
    from wellkept.connect.written_parts import NotEditable

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
    from wellkept.connect.files import back_up, carry_out, remove_folders

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
