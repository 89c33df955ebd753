"""The state of every client: installed, connected, trusted, last event, last turn stored, and the next step."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.connect.clients import CLIENTS, Client, Machine, Presence, find_client, read_version
from wellkept.connect.connect import this_machine
from wellkept.connect.record import Connection, Health, Record, load_health, load_record
from wellkept.core.clock import iso_moment
from wellkept.core.errors import StorageError
from wellkept.core.regular_files import load_text
from wellkept.core.values import JsonStruct

if TYPE_CHECKING:
    from wellkept.app.caller import Caller
    from wellkept.connect.capture import ClientCaptures
    from wellkept.core.text import JSON

_MANY_BYTES = 5_000_000
"""More than an event stores within its deadline; less is not reported."""


class ClientStatus(JsonStruct, frozen=True):
    """The state of one client."""

    client: str
    installed: bool
    version: str | None
    connected: bool
    trusted: bool | None
    """Whether the client runs our hooks; None where it needs no consent, or has no hooks."""
    last_event: float | None
    last_captured: float | None
    lag_seconds: float
    """How long the oldest turn has waited that is not stored yet."""
    errors: tuple[str, ...]
    next_step: str = field(name="next")
    projects: tuple[str, ...] = ()

    def as_json(self) -> dict[str, JSON]:
        """Return the state."""
        return {
            **super().as_json(),
            "last_event": iso_moment(self.last_event),
            "last_captured": iso_moment(self.last_captured),
        }


class ConnectStatus(Struct, frozen=True):
    """The state of all clients."""

    clients: tuple[ClientStatus, ...]
    is_paused: bool
    note: str = ""
    """What the limits of captured conversations have removed, or why that is unknown."""

    def as_json(self) -> list[JSON]:
        """Return one object per client."""
        return [client.as_json() for client in self.clients]


def read_status(caller: Caller) -> ConnectStatus:
    """Return the state of every client."""
    machine = this_machine(caller)
    record = load_record(caller.space.home.connections)
    lags = _read_lags(caller)
    stored, note = _read_captures(caller)
    found = []
    for client in CLIENTS.values():
        status = _status(caller, find_client(client, machine), record, machine)
        if client.name in stored:
            last = max(status.last_captured or 0.0, stored[client.name].last_captured)
            status = replace(status, last_captured=last)
        if client.name in lags:
            waiting = stored[client.name].waiting_bytes if client.name in stored else 0
            status = _tell_lag(status, lags[client.name], waiting)
        found.append(status)
    return ConnectStatus(tuple(found), record.is_paused, note)


def _tell_lag(status: ClientStatus, seconds: float, waiting_bytes: int) -> ClientStatus:
    """Return the state of a client whose transcripts are not stored completely."""
    told = replace(status, lag_seconds=round(seconds, 1))
    if waiting_bytes < _MANY_BYTES:
        return told  # the next event stores it
    behind = f"{waiting_bytes / 1e6:,.0f} MB of its transcripts are not stored yet"
    return replace(told, errors=(*status.errors, behind), next_step=status.next_step or f"kept import {status.client}")


def _status(caller: Caller, presence: Presence, record: Record, machine: Machine) -> ClientStatus:
    client = presence.client
    connections = record.of_client(client.name)
    health = load_health(caller.space.home.connections, client.name)
    trusted = _is_trusted(client, connections, health, machine)
    broken = [problem for connection in connections for problem in _problems(connection)]
    return ClientStatus(
        client=client.name,
        installed=presence.is_installed,
        version=read_version(presence),
        connected=bool(connections),
        trusted=trusted,
        last_event=health.last_event,
        last_captured=health.last_captured,
        lag_seconds=0.0,
        errors=(*broken, *(text for _moment, text in health.errors)),
        next_step=_next_step(presence, connections, health, trusted=trusted, broken=broken, paused=record.is_paused),
        projects=tuple(one.project for one in connections if one.project is not None),
    )


def _next_step(
    presence: Presence,
    connections: list[Connection],
    health: Health,
    *,
    trusted: bool | None,
    broken: list[str],
    paused: bool,
) -> str:
    client = presence.client
    steps = (
        (not connections and presence.is_installed, f"kept connect {client.name}"),
        (not connections, ""),
        (bool(broken), "kept connect --repair"),
        (paused, "kept connect resume"),
        (trusted is False, client.next_step),
        (bool(health.errors), "kept doctor; the log names the cause"),
        (client.has_hooks and health.last_event is None, f"start `{client.command}` once; it has sent no event yet"),
    )
    return next((step for applies, step in steps if applies), "")


def _problems(connection: Connection) -> list[str]:
    """Return what would keep the hooks of a connection from running."""
    program = Path(connection.command[0]) if connection.command else Path()
    if not os.access(program, os.X_OK):
        return [f"{str(program)!r} no longer exists"]
    missing = [file.path for file in connection.files if not file.path.exists()]
    if connection.project is not None and not Path(connection.project).is_dir():
        return []  # the project is gone, and with it everything that could run
    return [f"{str(path)!r} was removed" for path in missing[:1]]


def _is_trusted(client: Client, connections: list[Connection], health: Health, machine: Machine) -> bool | None:
    """Whether Codex runs our hooks: it keeps a hash of each in its settings, or one of them has run already."""
    if client.name != "codex" or not connections:
        return None
    if health.last_hook is not None and health.last_hook >= max(one.since for one in connections):
        return True
    hooks = [
        str(file.path) for connection in connections for file in connection.files if file.path.name == "hooks.json"
    ]
    return any(path in _trust_text(client.folder(machine) / "config.toml") for path in hooks)


def _trust_text(settings: Path) -> str:
    """Return the names of the hooks that Codex trusts, as one text; each begins with the path of its file."""
    from wellkept.connect.toml_text import NotToml, parse

    try:
        state = parse(load_text(settings)).get("hooks", {}).get("state", {})
    except (OSError, ValueError, NotToml, AttributeError):
        return ""
    return "\n".join(name for name, row in state.items() if isinstance(row, dict) and row.get("trusted_hash"))


def _read_captures(caller: Caller) -> tuple[dict[str, ClientCaptures], str]:
    """Return what was stored of each client, and what the limits have removed; best effort."""
    from wellkept.connect.capture import report_captures

    if not caller.app.has_database:
        return {}, ""
    try:
        report = report_captures(caller)
    except StorageError as error:
        return {}, error.message
    return {client.client: client for client in report.clients}, report.note or ""


def _read_lags(caller: Caller) -> dict[str, float]:
    """Return, for each client with items in the spool, the age of the oldest in seconds."""
    from wellkept.imports.spool import Spool

    now, found = time.time(), dict[str, float]()
    for _path, waiting in Spool(caller.space.home.spool).entries():
        found[waiting.client] = max(found.get(waiting.client, 0.0), now - waiting.since if waiting.since else 0.0)
    return found
