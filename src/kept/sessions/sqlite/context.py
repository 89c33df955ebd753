"""What a session's model is sent: own rows and carried ones, and how compaction, undo and branches change it."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kept.core.errors import UsageError
from kept.core.ids import MessageId, SessionId, UserId
from kept.core.messages import Link, State, StoredMessage
from kept.sessions.lineage import Lineage
from kept.sessions.sqlite import index, rows
from kept.storage.sql import statements
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "context.sql")
LINEAGE_SQL = statements("kept.sessions.sqlite", "lineage.sql")


def lineage(connection: Connection, *, user: UserId) -> Lineage:
    """Return the links between the user's sessions as the file holds them."""

    def parent_of(session_id: SessionId) -> tuple[SessionId, Link | None] | None:
        row = connection.execute(LINEAGE_SQL.parent, (session_id, user)).fetchone()
        return None if row is None or row[0] is None else (SessionId(row[0]), _link(row[1]))

    def children_of(session_id: SessionId) -> list[tuple[SessionId, Link | None]]:
        found = connection.execute(LINEAGE_SQL.children, (session_id, user))
        return [(SessionId(child), _link(link)) for child, link in found]

    return Lineage(parent_of, children_of)


def _link(word: str | None) -> Link | None:
    return Link(word) if word else None


def messages(connection: Connection, session_id: SessionId) -> list[StoredMessage]:
    """Return the context in order; a carried row is active here, whatever became of it where it was written."""
    carried = rows.restored(connection, connection.execute(SQL.carried, (session_id,)))
    own = rows.restored(connection, connection.execute(SQL.own, (session_id,)))
    return [replace(message, state=State.ACTIVE) for message in carried] + own


def ids(connection: Connection, session_id: SessionId) -> list[tuple[MessageId, SessionId]]:
    """Return the ids of the context in order, each with the session that owns the row."""
    return [(MessageId(number), SessionId(owner)) for number, owner in connection.execute(SQL.ids, (session_id,))]


def cover(connection: Connection, session_id: SessionId, covered: Sequence[MessageId], *, user: UserId) -> None:
    """Mark what a compaction summarised; rows that a branch only borrowed stay as their owner has them."""
    chain = json.dumps(lineage(connection, user=user).chain(session_id))
    connection.executemany(SQL.mark_compacted, [(number, chain) for number in covered])


def carry(connection: Connection, session_id: SessionId, message_ids: Iterable[MessageId], *, own_from: int) -> None:
    """Let the context begin with those rows, followed by own rows after `own_from`."""
    connection.execute(SQL.clear_carried, (session_id,))
    listed = [{"session": session_id, "position": place, "message": number} for place, number in enumerate(message_ids)]
    connection.executemany(SQL.carry, listed)
    connection.execute(SQL.set_context_from, (own_from, session_id))


def rewind(connection: Connection, session_id: SessionId, from_message: MessageId, *, user: UserId) -> int:
    """Take back that message and all after it in the context; return how many."""
    context = ids(connection, session_id)
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
    index.queue(connection, [number for number, _ in taken])
    return len(taken)


def _outside(connection: Connection, session_id: SessionId, message_id: MessageId, *, user: UserId) -> UsageError:
    row = connection.execute(SQL.owner, (message_id,)).fetchone()
    if row is None or row[0] not in lineage(connection, user=user).family(session_id):
        return rows.no_message(message_id)
    return UsageError(
        f"message {message_id} is not in the context of {session_id!r} any more",
        "branch there to go on from it; it stays stored as it is",
    )


def _recount(connection: Connection, changed: Counter[SessionId], *, sign: int) -> None:
    for owner, count in changed.items():
        connection.execute(SQL.count, (sign * count, owner))


def restore(connection: Connection, session_id: SessionId) -> int:
    """Bring back the newest run that was taken back; return how many."""
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
    index.queue(connection, [number for number, _ in found])
    return len(found)


def up_to(connection: Connection, session_id: SessionId, at: MessageId | None, *, user: UserId) -> list[MessageId]:
    """Return the ids that a branch at `at` begins with: the context, or the originals where it was compacted."""
    context = [number for number, _ in ids(connection, session_id)]
    if at is None:
        return context
    if at in context:
        return context[: context.index(at) + 1]
    row = connection.execute(SQL.owner, (at,)).fetchone()
    if row is None or row[0] not in lineage(connection, user=user).family(session_id):
        raise rows.no_message(at)
    return [MessageId(number) for (number,) in connection.execute(SQL.original_ids, (row[0], at))]
