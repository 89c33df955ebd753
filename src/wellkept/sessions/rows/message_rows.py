"""Rows of messages: append, read, and the context that a session's model is sent (lineage, compaction, undo)."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from wellkept.core.errors import NotFound, UsageError
from wellkept.core.ids import MessageId, SessionId, SourceName, UserId
from wellkept.core.messages import Lineage, Link, NewMessage, Passage, State, StoredMessage
from wellkept.sessions.records import (
    Blob,
    MessageRow,
    Row,
    blob_text,
    checksum,
    is_damaged,
    message_from,
    message_row,
    session_from,
    source_id,
    storable,
    text_of,
)
from wellkept.sessions.rows.database import Connection, find_index
from wellkept.sessions.rows.session_rows import no_session
from wellkept.storage.connections import explain_sql_errors, statements

SQL = statements("wellkept.sessions.rows", "messages.sql")
EVERYTHING = -1
"""SQLite reads a negative limit as none."""
NEWEST_ID = 9_223_372_036_854_775_807
_UNKNOWN_SOURCE = SourceName("tool:unknown")


def append(
    connection: Connection, session_id: SessionId, messages: Sequence[NewMessage], *, user: UserId
) -> list[MessageId]:
    """Insert redacted `messages`, index them, and return their ids; one transaction is open already."""
    if not messages:
        return []
    latest = max([new.timestamp for new in messages])
    given = connection.execute(SQL.begin_append, (len(messages), latest, session_id, user)).fetchall()
    if not given:
        raise no_session(session_id)
    write_sources(connection, messages)
    ids = [MessageId(number) for (number,) in given]
    # SQLite returns only the first id: the others follow it without a gap
    ids += [MessageId(ids[-1] + step) for step in range(1, len(messages) - len(ids) + 1)]
    return _insert(connection, ids, [message_row(session_id, new) for new in messages])


def write_sources(connection: Connection, messages: Iterable[NewMessage]) -> None:
    """Store the names of the sources of `messages`, which their rows name by number."""
    for name in {new.source for new in messages if new.source is not None}:
        connection.execute(SQL.insert_source, (source_id(name), storable(name)))


def insert(connection: Connection, rows: Sequence[tuple[MessageRow, list[Blob]]]) -> list[MessageId]:
    """Insert prepared rows with their blobs, queue or index them, and return their ids."""
    found = connection.execute(SQL.new_ids, (len(rows),)).fetchall()
    return _insert(connection, [MessageId(int(str(number))) for (number,) in found], rows)


def _insert(
    connection: Connection, ids: list[MessageId], rows: Sequence[tuple[MessageRow, list[Blob]]]
) -> list[MessageId]:
    whole = [(message_id, *row) for message_id, (row, _) in zip(ids, rows, strict=True)]
    # an import is indexed as it is stored; the few rows of a turn are queued by a trigger
    index = find_index(connection)
    statement = SQL.insert_waiting if len(rows) <= index.most_queued else SQL.insert
    connection.executemany(statement, [(*values, checksum(values)) for values in whole])
    for message_id, (_, blobs) in zip(ids, rows, strict=True):
        for blob in blobs:
            connection.execute(SQL.insert_blob, (blob.hash, blob.data))
            connection.execute(SQL.insert_blob_use, (message_id, blob.hash))
    index.add([(number, row) for number, (row, _) in zip(ids, rows, strict=True)])
    return ids


def set_sent_text(connection: Connection, message_id: MessageId, text: str, *, user: UserId) -> None:
    """Store what a model is sent in place of a message; its own text and index rows stay as they are."""
    waits = connection.execute(SQL.is_queued, (message_id,)).fetchone() is not None
    connection.execute(SQL.set_sent_text, (text, message_id, user))
    if connection.changes() == 0:
        raise no_message(message_id)
    update_checksums(connection, [message_id])
    if not waits:
        connection.execute(SQL.leave_index, (message_id,))


def overwrite(connection: Connection, message_id: MessageId, new: tuple[MessageRow, list[Blob]]) -> None:
    """Give a message new content in its place; a trigger queues it for the index."""
    row, blobs = new
    values = (message_id, *row)
    connection.execute(SQL.overwrite, (*row[1:-2], row.source, checksum(values), message_id))
    find_index(connection).note_changes()
    for blob in blobs:
        connection.execute(SQL.insert_blob, (blob.hash, blob.data))
        connection.execute(SQL.insert_blob_use, (message_id, blob.hash))


def update_checksums(connection: Connection, message_ids: Sequence[int]) -> None:
    """Compute the checksums of changed rows; a trigger has removed the old ones."""
    rows = connection.execute(SQL.without_checksum, (json.dumps(list(message_ids)),)).fetchall()
    set_checksums(connection, rows)


def set_checksums(connection: Connection, rows: Iterable[Row]) -> None:
    """Give rows their checksums, except those that have one and those that are damaged already."""
    # a damaged row with a checksum would count as whole
    new = [(checksum(row), row[0]) for row in rows if row[-1] is None and not is_damaged(row)]
    connection.executemany(SQL.set_checksum, new)


def no_message(message_id: int) -> NotFound:
    """Return the error for an id that no visible message has."""
    return NotFound(f"there is no message {message_id}", "find it with `kept sessions search`")


def load(connection: Connection, rows: Iterable[Row]) -> list[StoredMessage]:
    """Return the messages of `rows` with their blobs."""
    sources: dict[int, SourceName] = {}

    def load_source(number: int) -> SourceName:
        if number not in sources:
            sources[number] = _source(connection, number)
        return sources[number]

    load_blob = partial(_blob, connection)
    return [message_from(row, load_blob, load_source) for row in rows]


def _blob(connection: Connection, digest: str) -> str | None:
    row = connection.execute(SQL.blob, (digest,)).fetchone()
    return None if row is None else blob_text(digest, row[0])


def _source(connection: Connection, number: int) -> SourceName:
    """Return the name of a source; one that is lost or damaged is an unknown tool, which nobody trusts."""
    row = connection.execute(SQL.source, (number,)).fetchone()
    name = SourceName(text_of(None if row is None else row[0]))
    return name if source_id(name) == number else _UNKNOWN_SOURCE


def read_session(
    connection: Connection,
    session_id: SessionId,
    *,
    states: Sequence[State],
    after: int = 0,
    limit: int = EVERYTHING,
) -> list[StoredMessage]:
    """Return the session's own messages in those states, in order."""
    words = json.dumps([state.value for state in states])
    return load(connection, connection.execute(SQL.of_session, (session_id, after, words, limit)))


def find_message(connection: Connection, message_id: int, *, user: UserId) -> StoredMessage | None:
    """Return a message of that user that was neither rewound nor moved to the trash, or None."""
    if not 0 <= message_id <= NEWEST_ID:
        return None
    found = load(connection, connection.execute(SQL.one, (message_id, user)))
    return found[0] if found else None


def find_messages(connection: Connection, message_ids: Sequence[int], *, user: UserId) -> list[StoredMessage]:
    """Return the user's messages that were neither rewound nor moved to the trash, in order of their ids."""
    known = [number for number in message_ids if 0 <= number <= NEWEST_ID]
    return load(connection, connection.execute(SQL.of_ids, (json.dumps(known), user)))


def read_window(connection: Connection, anchor: StoredMessage, *, before: int, after: int) -> list[StoredMessage]:
    """Return `anchor` with its neighbours in the session, in order."""
    earlier = list(connection.execute(SQL.before, (anchor.session_id, anchor.id, before)))
    later = connection.execute(SQL.after, (anchor.session_id, anchor.id, after))
    return [*load(connection, reversed(earlier)), anchor, *load(connection, later)]


def read_passage(connection: Connection, message_id: int, *, user: UserId, window: int, bookend: int) -> Passage | None:
    """Return a visible message of that user with its session, its neighbours, and both ends of the session."""
    if not 0 <= message_id <= NEWEST_ID:
        return None
    row = connection.execute(SQL.session_of, (message_id, user)).fetchone()
    if row is None:
        return None
    *columns, earlier = row
    session = session_from(tuple(columns))
    found = load(connection, connection.execute(SQL.passage, (session.id, message_id, window, bookend)).fetchall())
    # nothing lies between the neighbours of a message, so they are next to it in the ordered union too
    place = next((place for place, message in enumerate(found) if message.id == message_id), None)
    if place is None:
        return None  # rewound or removed between the two statements
    first, last = max(0, place - window), place + window + 1
    around = tuple(found[first:last])
    before = int(earlier) - (place - first)
    after = max(0, session.message_count - before - len(around))
    end = found[max(0, len(found) - bookend) :]
    return Passage(session, found[place], around, tuple(found[:bookend]), tuple(end), before, after)


def lineage(connection: Connection, *, user: UserId) -> Lineage:
    """Return the links between the user's sessions as the file holds them."""
    path = Path(connection.filename)

    def parent_of(session_id: SessionId) -> tuple[SessionId, Link | None] | None:
        with explain_sql_errors(path):  # a lineage is read after the call that made it
            row = connection.execute(SQL.parent, (session_id, user)).fetchone()
        return None if row is None or row[0] is None else (SessionId(row[0]), _link(row[1]))

    def children_of(session_id: SessionId) -> list[tuple[SessionId, Link | None]]:
        with explain_sql_errors(path):
            found = connection.execute(SQL.children, (session_id, user)).fetchall()
        return [(SessionId(str(child)), _link(link)) for child, link in found]

    return Lineage(parent_of, children_of)


def _link(word: object) -> Link | None:
    return next((link for link in Link if link.value == word), None)  # a damaged row can hold any value


def read_context_ids(connection: Connection, session_id: SessionId) -> list[tuple[MessageId, SessionId]]:
    """Return the ids of the context in order, each with the session that owns the row."""
    return [(MessageId(number), SessionId(owner)) for number, owner in connection.execute(SQL.ids, (session_id,))]


def mark_compacted(
    connection: Connection, session_id: SessionId, covered: Sequence[MessageId], *, user: UserId
) -> None:
    """Mark what a compaction summarised; rows that a branch carries from elsewhere keep their state."""
    chain = json.dumps(lineage(connection, user=user).chain(session_id))
    connection.executemany(SQL.mark_compacted, [(number, chain) for number in covered])


def carry(connection: Connection, session_id: SessionId, message_ids: Iterable[MessageId], *, own_from: int) -> None:
    """Begin the context with these messages, followed by own ones after `own_from`."""
    connection.execute(SQL.clear_carried, (session_id,))
    listed = [{"session": session_id, "position": place, "message": number} for place, number in enumerate(message_ids)]
    connection.executemany(SQL.carry, listed)
    connection.execute(SQL.set_context_from, (own_from, session_id))


def rewind(connection: Connection, session_id: SessionId, from_message: MessageId, *, user: UserId) -> int:
    """Rewind that message and all after it in the context; return how many."""
    context = read_context_ids(connection, session_id)
    places = [place for place, (number, _) in enumerate(context) if number == from_message]
    if not places:
        raise _outside(connection, session_id, from_message, user=user)
    taken = context[places[0] :]
    ((run,),) = list(connection.execute(SQL.next_run))
    chain = json.dumps(lineage(connection, user=user).chain(session_id))
    gone: Counter[SessionId] = Counter()
    for number, owner in taken:
        connection.execute(SQL.uncarry, (run, session_id, number))
        connection.execute(SQL.mark_rewound, (run, number, chain))
        gone[owner] += connection.changes()
    _recount(connection, gone, sign=-1)
    find_index(connection).queue([number for number, _ in taken])
    return len(taken)


def _outside(connection: Connection, session_id: SessionId, message_id: MessageId, *, user: UserId) -> UsageError:
    row = connection.execute(SQL.owner, (message_id,)).fetchone()
    if row is None or row[0] not in lineage(connection, user=user).family(session_id):
        return no_message(message_id)
    return UsageError(
        f"message {message_id} is not in the context of {session_id!r} any more",
        "branch there to continue from it; the message stays stored",
    )


def _recount(connection: Connection, changed: Counter[SessionId], *, sign: int) -> None:
    for owner, count in changed.items():
        connection.execute(SQL.count, (sign * count, owner))


def restore_rewound(connection: Connection, session_id: SessionId) -> int:
    """Restore the newest rewound run; return how many."""
    (run,) = connection.execute(SQL.newest_run, (session_id,)).fetchone() or (None,)
    if run is None:
        return 0
    found = list(connection.execute(SQL.run_rows, (session_id, run)))
    back: Counter[SessionId] = Counter()
    for number, owner in found:
        connection.execute(SQL.restore_row, (number, run))
        back[SessionId(owner)] += connection.changes()
    connection.execute(SQL.restore_carried, (session_id, run))
    _recount(connection, back, sign=1)
    find_index(connection).queue([number for number, _ in found])
    return len(found)


def read_context_up_to(
    connection: Connection, session_id: SessionId, at: MessageId | None, *, user: UserId
) -> list[MessageId]:
    """Return the ids that a branch at `at` begins with: the context, or the originals if `at` was compacted."""
    context = [number for number, _ in read_context_ids(connection, session_id)]
    if at is None:
        return context
    if at in context:
        return context[: context.index(at) + 1]
    row = connection.execute(SQL.owner, (at,)).fetchone()
    if row is None or row[0] not in lineage(connection, user=user).family(session_id):
        raise no_message(at)
    return [MessageId(number) for (number,) in connection.execute(SQL.original_ids, (row[0], at))]
