"""Sessions whose row is lost while their messages are there: restored from indexes, or put into quarantine.

A session is restored only if its user is certain, and whether it was in the trash. Otherwise it belongs to nobody,
so that no search finds it, until a person gives it to a user.
"""

from collections.abc import Iterator

from msgspec import Struct

from wellkept.salvage.evidence import Evidence, Key, gather_evidence
from wellkept.salvage.pages import Value
from wellkept.salvage.rows import Salvage
from wellkept.sessions.reports import Salvaged
from wellkept.sessions.rows.session_rows import NOBODY
from wellkept.storage.connections import statements
from wellkept.storage.sqlite import Connection

SQL = statements("wellkept.sessions.sqlite", "recovery.sql")
_USERS_SINCE = 4
"""The first version whose other tables name the user of each row; a migration fills in the owner for older rows."""


class _Lost(Struct, frozen=True):
    id: str
    first: float
    last: float
    number: Key
    """The number of its row; None if no index knows it."""


class LostSessions:
    """The sessions that messages name and that have no row."""

    def __init__(self, salvage: Salvage, result: Salvaged, *, version: int) -> None:
        self._evidence: Evidence = gather_evidence(salvage, "sessions")
        self._result = result
        self._version = version

    def restore(self, connection: Connection) -> None:
        """Insert a row for each of them."""
        for lost in list(self._find(connection)):
            known = self._evidence.columns.get(lost.number, {})
            users = self._users(connection, lost, known)
            trashed = known.get("trashed")
            is_certain = len(users) == 1 and (trashed is not None or self._is_out_of_trash(connection, lost))
            user = users.pop() if is_certain else NOBODY
            self._insert(connection, lost, known if is_certain else {}, user=user)
            (self._result.restored if is_certain else self._result.quarantined).append(lost.id)

    def _find(self, connection: Connection) -> Iterator[_Lost]:
        numbers = {str(known["id"]): number for number, known in self._evidence.columns.items() if "id" in known}
        present = {str(row[0]) for row in connection.execute(SQL.session_ids)}
        for session_id, first, last in connection.execute(SQL.without_session).fetchall():
            present.add(str(session_id))
            yield _Lost(str(session_id), _moment(first), _moment(last), numbers.get(str(session_id)))
        for session_id, number in numbers.items():
            known = self._evidence.columns[number]
            if session_id not in present and number in self._evidence.expected and "user_id" in known:
                moment = _moment(known.get("last_active"))
                yield _Lost(session_id, moment, moment, number)

    def _users(self, connection: Connection, lost: _Lost, known: dict[str, Value]) -> set[str]:
        users = {str(known["user_id"])} if "user_id" in known else set()
        if self._version >= _USERS_SINCE:
            users |= {str(row[0]) for row in connection.execute(SQL.users_of_session, (lost.id,))}
        return users

    def _is_out_of_trash(self, connection: Connection, lost: _Lost) -> bool:
        """Whether the index of the trash, read to its end, does not list the session."""
        if "sessions_trashed" not in self._evidence.complete:
            return False
        if lost.number is not None:
            return True
        trashed = {number for number, known in self._evidence.columns.items() if "trashed" in known}
        named = {number for number, known in self._evidence.columns.items() if "id" in known}
        present = {int(str(row[0])) for row in connection.execute(SQL.session_numbers)}
        return trashed <= named | present

    def _insert(self, connection: Connection, lost: _Lost, known: dict[str, Value], *, user: str) -> None:
        title = known.get("title")
        if title is not None and connection.execute(SQL.title_taken, (user, title)).fetchone() is not None:
            title = None
        values = {
            "id": lost.id,
            "user": user,
            "title": title,
            "parent": known.get("parent_session_id"),
            "started": lost.first,
            "last_active": max(lost.last, _moment(known.get("last_active"))),
            "trashed": known.get("trashed"),
        }
        connection.execute(SQL.insert_session, values)


def _moment(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
