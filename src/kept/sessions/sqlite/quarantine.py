"""Sessions in quarantine: a repair found their messages and could not tell whose they are.

They belong to `NOBODY`, an id that no user can have. So no list and no search shows them, until they are given to a
user.
"""

from collections.abc import Sequence

from kept.core.ids import SessionId, UserId
from kept.core.messages import Session
from kept.sessions.records import session_from
from kept.sessions.sqlite.session_rows import no_session
from kept.storage.connections import statements
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "quarantine.sql")
NOBODY = UserId("")


def read(connection: Connection) -> list[Session]:
    """Return the sessions in quarantine, in order of their ids."""
    return [session_from(row) for row in connection.execute(SQL.read, (NOBODY,))]


def give(connection: Connection, session_ids: Sequence[SessionId], *, user: UserId) -> None:
    """Give sessions in quarantine to a user; raise NotFound for any other session."""
    for session_id in session_ids:
        connection.execute(SQL.give, (user, session_id, NOBODY))
        if not connection.changes():
            raise no_session(session_id)
