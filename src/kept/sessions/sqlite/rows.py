"""Messages in their table: added in one go with their index rows, read back in order."""

import json
from collections.abc import Iterable, Sequence
from functools import partial

from kept.core.errors import NotFound
from kept.core.ids import MessageId, SessionId, UserId
from kept.core.messages import NewMessage, State, StoredMessage
from kept.sessions.blobs import Blob, blob_text
from kept.sessions.records import MessageRow, Row, message_from, message_row
from kept.sessions.sqlite import index
from kept.storage.sql import statements
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "messages.sql")
EVERYTHING = -1
"""SQLite reads a negative limit as none."""
_NEWEST_ID = 9_223_372_036_854_775_807


def add(
    connection: Connection, session_id: SessionId, messages: Sequence[NewMessage], *, user: UserId
) -> list[MessageId]:
    """Insert redacted `messages`, index them, and return their ids; one transaction is open already."""
    if not messages:
        return []
    latest = max(new.timestamp for new in messages)
    connection.execute(SQL.touch, (len(messages), latest, session_id, user))
    if connection.changes() == 0:
        raise no_session(session_id)
    return insert(connection, [message_row(session_id, new) for new in messages])


def insert(connection: Connection, rows: Sequence[tuple[MessageRow, list[Blob]]]) -> list[MessageId]:
    """Insert prepared rows with their blobs and index rows, and return their ids."""
    connection.executemany(SQL.insert, [row for row, _ in rows])
    # nobody else writes inside an immediate transaction, so the ids of one statement follow each other
    last = connection.last_insert_rowid()
    ids = [MessageId(number) for number in range(last - len(rows) + 1, last + 1)]
    for message_id, (_, blobs) in zip(ids, rows, strict=True):
        for blob in blobs:
            connection.execute(SQL.insert_blob, (blob.hash, blob.data))
            connection.execute(SQL.insert_blob_use, (message_id, blob.hash))
    index.add(connection, [(number, row) for number, (row, _) in zip(ids, rows, strict=True)])
    return ids


def no_session(session_id: str) -> NotFound:
    """Return the error for an id that no session has."""
    return NotFound(f"there is no session {session_id!r}", "list them with `kept sessions list`")


def no_message(message_id: int) -> NotFound:
    """Return the error for an id that no visible message has."""
    return NotFound(f"there is no message {message_id}", "find it with `kept sessions search`")


def restored(connection: Connection, rows: Iterable[Row]) -> list[StoredMessage]:
    """Return the messages of `rows`, blobs put back."""
    load = partial(_blob, connection)
    return [message_from(row, load) for row in rows]


def _blob(connection: Connection, digest: str) -> str | None:
    row = connection.execute(SQL.blob, (digest,)).fetchone()
    return None if row is None else blob_text(row[0])


def of_session(
    connection: Connection,
    session_id: SessionId,
    *,
    states: Sequence[State],
    after: int = 0,
    limit: int = EVERYTHING,
) -> list[StoredMessage]:
    """Return the session's own messages in those states, in order."""
    words = json.dumps([state.value for state in states])
    return restored(connection, connection.execute(SQL.of_session, (session_id, after, words, limit)))


def one(connection: Connection, message_id: int, *, user: UserId) -> StoredMessage | None:
    """Return a message of that user that was neither rewound nor moved to the trash, or None."""
    if not 0 <= message_id <= _NEWEST_ID:
        return None
    found = restored(connection, connection.execute(SQL.one, (message_id, user)))
    return found[0] if found else None


def of_ids(connection: Connection, message_ids: Sequence[int], *, user: UserId) -> list[StoredMessage]:
    """Return the user's messages that were neither rewound nor moved to the trash, in order of their ids."""
    known = [number for number in message_ids if 0 <= number <= _NEWEST_ID]
    return restored(connection, connection.execute(SQL.of_ids, (json.dumps(known), user)))


def around(connection: Connection, anchor: StoredMessage, *, before: int, after: int) -> list[StoredMessage]:
    """Return `anchor` with its neighbours in the session, in order."""
    earlier = list(connection.execute(SQL.before, (anchor.session_id, anchor.id, before)))
    later = connection.execute(SQL.after, (anchor.session_id, anchor.id, after))
    return [*restored(connection, reversed(earlier)), anchor, *restored(connection, later)]


def edges(
    connection: Connection, session_id: SessionId, *, first: int, last: int
) -> tuple[list[StoredMessage], list[StoredMessage]]:
    """Return the first and the last messages of a session, each in order; a short session has overlaps."""
    head = restored(connection, connection.execute(SQL.after, (session_id, 0, first)))
    tail = list(connection.execute(SQL.before, (session_id, _NEWEST_ID, last)))
    return head, restored(connection, reversed(tail))


def count_before(connection: Connection, session_id: SessionId, message_id: int) -> int:
    """Return how many visible messages of the session come before that one."""
    (count,) = connection.execute(SQL.count_before, (session_id, message_id)).fetchone() or (0,)
    return int(count)


def preview(connection: Connection, session_id: SessionId) -> str:
    """Return the beginning of what the person first said."""
    row = connection.execute(SQL.preview, (session_id,)).fetchone()
    return "" if row is None else str(row[0])
