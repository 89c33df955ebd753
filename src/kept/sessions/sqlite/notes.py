"""Small things kept with a session: facts, leases, counted model calls, nodes of summaries."""

import json
from collections.abc import Sequence
from datetime import datetime

from kept.core.ids import SessionId, UserId
from kept.core.messages import Usage
from kept.core.text import JSON, dumps
from kept.sessions.records import storable
from kept.sessions.usage import UsageRow
from kept.storage.sql import statements
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "notes.sql")


def note(connection: Connection, session_id: SessionId, key: str, value: JSON) -> None:
    """Keep `value` under `key`; None takes it away."""
    if value is None:
        connection.execute(SQL.forget_note, (session_id, key))
    else:
        connection.execute(SQL.note, (session_id, key, storable(dumps(value))))


def noted(connection: Connection, session_id: SessionId, key: str) -> JSON:
    """Return what was kept under `key`, or None."""
    row = connection.execute(SQL.noted, (session_id, key)).fetchone()
    value: JSON = None if row is None else json.loads(row[0])
    return value


def lease(connection: Connection, name: str, *, holder: str, now: float, seconds: float) -> bool:
    """Take or renew a lease; False when another holder has it and it has not run out."""
    bindings = {"name": name, "holder": holder, "expires": now + seconds, "now": now}
    connection.execute(SQL.lease, bindings)
    return connection.changes() > 0


def release(connection: Connection, name: str, *, holder: str) -> None:
    """Give a lease back; another holder's stays."""
    connection.execute(SQL.release, (name, holder))


def add_usage(
    connection: Connection, key: tuple[UserId, SessionId, datetime, str, str], *, usage: Usage, cost: float | None
) -> None:
    """Count one model call under user, session, day, model and task."""
    user, session_id, moment, model, task = key
    tokens = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    connection.execute(SQL.add_usage, (user, session_id, f"{moment:%Y-%m-%d}", model, task, *tokens, cost))


def usage(connection: Connection, *, user: UserId, session_id: SessionId | None, since: str) -> list[UsageRow]:
    """Return the user's counted calls, by day, model and task."""
    found = connection.execute(SQL.usage, {"user": user, "session": session_id, "since": since})
    return [
        UsageRow(day, model, task, session, calls, Usage(sent, received, read, written), cost)
        for day, model, task, session, calls, sent, received, read, written, cost in found
    ]


def add_node(
    connection: Connection, session_id: SessionId, *, depth: int, text: str, children: Sequence[int], now: float
) -> int:
    """Store a node over messages or nodes, and return its id."""
    connection.execute(SQL.add_node, (session_id, depth, storable(text), json.dumps(list(children)), now))
    return connection.last_insert_rowid()


def nodes(connection: Connection, session_id: SessionId) -> list[tuple[int, int, str, tuple[int, ...]]]:
    """Return (id, depth, text, children) of every node, oldest first."""
    found = connection.execute(SQL.nodes, (session_id,))
    return [(number, depth, text, tuple(json.loads(children))) for number, depth, text, children in found]
