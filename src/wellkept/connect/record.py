"""The record of connections: what kept wrote into the files of other programs, and what each agent last sent."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.regular_files import load_bytes
from wellkept.core.text import JSON, dumps, one_line
from wellkept.core.values import asdict
from wellkept.storage.files import make_folder, read_bytes, write_atomically

if TYPE_CHECKING:
    from wellkept.connect.written_parts import Part

log = logging.getLogger(__name__)

Recall = Literal["start", "sure", "off"]
RECALLS = ("start", "sure", "off")


class FileRecord(Struct, frozen=True):
    """One file: its hashes without and with the parts, and the copy of how it was."""

    path: Path
    before: str | None
    """The hash of the file before; None where there was none."""
    after: str
    backup: str | None
    """The name of the copy in the folder of backups."""
    folders: tuple[str, ...]
    """Folders that were created for the file, the innermost last."""
    parts: tuple[Part, ...]


class Connection(Struct, frozen=True):
    """One client that is connected, for a person or for one project."""

    client: str
    command: tuple[str, ...]
    """How the client starts kept."""
    project: str | None = None
    recall: Recall | None = None
    """What is given to the agent; None follows the settings."""
    capture: bool | None = None
    """Whether its conversations are stored; None follows the settings."""
    since: float = 0.0
    files: tuple[FileRecord, ...] = ()

    @property
    def key(self) -> str:
        """Return the name under which the record holds it."""
        return self.client if self.project is None else f"{self.client} {self.project}"


class Record(Struct, frozen=True):
    """All connections of one user."""

    connections: Mapping[str, Connection] = field(default_factory=dict)
    is_paused: bool = False

    def of_client(self, client: str) -> list[Connection]:
        """Return the connections of a client: the person's own first, then those of projects."""
        found = [connection for connection in self.connections.values() if connection.client == client]
        return sorted(found, key=lambda one: one.project or "")

    def with_connection(self, connection: Connection) -> Record:
        """Return the record with a connection, in place of an earlier one."""
        return replace(self, connections={**self.connections, connection.key: connection})

    def without(self, key: str) -> Record:
        """Return the record without a connection."""
        return replace(self, connections={name: one for name, one in self.connections.items() if name != key})


def load_record(folder: Path) -> Record:
    """Return the record in `folder`; one that cannot be read counts as empty and is set aside when it is written."""
    data = read_bytes(folder / "record.json")
    if data is None:
        return Record()
    try:
        return _from_json(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError):
        log.warning("the record of connections cannot be read: %s", folder / "record.json")
        return Record()


def save_record(folder: Path, record: Record) -> None:
    """Write the record."""
    make_folder(folder)
    rows = [_connection_json(connection) for connection in record.connections.values()]
    value: JSON = {"version": 1, "paused": record.is_paused, "connections": rows}
    write_atomically(folder / "record.json", f"{dumps(value, indent=1)}\n".encode())


def _connection_json(connection: Connection) -> dict[str, JSON]:
    return {
        "client": connection.client,
        "project": connection.project,
        "command": list(connection.command),
        "recall": connection.recall,
        "capture": connection.capture,
        "since": connection.since,
        "files": [_file_json(file) for file in connection.files],
    }


def _file_json(file: FileRecord) -> dict[str, JSON]:
    from wellkept.connect.written_parts import part_as_json

    return {
        "path": str(file.path),
        "before": file.before,
        "after": file.after,
        "backup": file.backup,
        "folders": list(file.folders),
        "parts": [part_as_json(part) for part in file.parts],
    }


def _from_json(value: Any) -> Record:
    connections = [_connection(row) for row in value["connections"]]
    return Record({connection.key: connection for connection in connections}, value.get("paused") is True)


def _connection(row: Any) -> Connection:
    recall = row.get("recall")
    return Connection(
        client=row["client"],
        command=tuple(row["command"]),
        project=row.get("project"),
        recall=recall if recall in RECALLS else None,
        capture=row.get("capture"),
        since=float(row.get("since", 0)),
        files=tuple(_file(one) for one in row["files"]),
    )


def _file(row: Any) -> FileRecord:
    from wellkept.connect.written_parts import part_from_json

    return FileRecord(
        Path(row["path"]),
        row.get("before"),
        row["after"],
        row.get("backup"),
        tuple(row.get("folders", ())),
        tuple(part_from_json(part) for part in row["parts"]),
    )


_MOST_ERRORS = 5
_ERROR_CHARS = 300


class Health(Struct, frozen=True):
    """The last signs of one client; moments are epoch seconds."""

    last_event: float | None = None
    event: str = ""
    """The name of the last event."""
    last_hook: float | None = None
    """The last event of a hook that needs trust, as opposed to Codex' `notify`."""
    last_captured: float | None = None
    errors: tuple[tuple[float, str], ...] = ()
    """The newest errors, the last one last; they are dropped when an event succeeds."""

    def after_event(self, event: str, now: float, *, is_hook: bool) -> Health:
        """Return the health after an event arrived."""
        return replace(self, last_event=now, event=event, last_hook=now if is_hook else self.last_hook)

    def after_capture(self, now: float) -> Health:
        """Return the health after turns were stored."""
        return replace(self, last_captured=now, errors=())

    def after_error(self, message: str, now: float) -> Health:
        """Return the health after an event failed."""
        return replace(self, errors=(*self.errors, (now, one_line(message, width=_ERROR_CHARS)))[-_MOST_ERRORS:])


def load_health(folder: Path, client: str) -> Health:
    """Return the health of a client; an unreadable file counts as none."""
    try:
        return msgspec.json.decode(load_bytes(folder / f"health-{client}.json"), type=Health)
    except (OSError, ValueError):
        return Health()


def save_health(folder: Path, client: str, health: Health) -> None:
    """Write the health of a client; without a sync, because losing it costs nothing, and best effort."""
    path = folder / f"health-{client}.json"
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temp.touch(0o600)
        temp.write_text(dumps(asdict(health)), encoding="utf-8")
        temp.replace(path)
