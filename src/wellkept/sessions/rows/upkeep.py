"""Upkeep of the store: archive, trash, prune, statistics."""

from abc import abstractmethod
from collections.abc import Sequence

from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import Session
from wellkept.core.text import JSON
from wellkept.sessions.records import session_from
from wellkept.sessions.reports import Coverage, Pruned, Removed
from wellkept.sessions.rows import message_rows, removal, session_rows, vectors
from wellkept.sessions.rows.database import Connection
from wellkept.sessions.rows.session_rows import no_session
from wellkept.sessions.rows.store import RowStore
from wellkept.storage.connections import statements

SQL = statements("wellkept.sessions.rows", "upkeep.sql")
DAY_SECONDS = 86_400.0
_NEVER = 1e18


class RowUpkeep:
    """Implements `sessions.ports.Upkeep` with its subclasses: what needs nothing but rows."""

    def __init__(self, store: RowStore) -> None:
        self._file = store.file
        self._user = store.user
        self._database = store.database

    def browse(
        self,
        *,
        limit: int,
        offset: int = 0,
        source: str | None = None,
        archived: bool = False,
        between: tuple[float, float] | None = None,
    ) -> list[Session]:
        with self._file.database.reading() as connection:
            return session_rows.read_recent(
                connection, user=self._user, limit=limit, source=source, project=None, archived=archived,
                offset=offset, between=between,
            )  # fmt: skip

    def archive(self, session_id: SessionId, *, archived: bool = True) -> list[SessionId]:
        with self._file.writing() as connection:
            session_rows.require(connection, session_id, user=self._user)
            chain = message_rows.lineage(connection, user=self._user).chain(session_id)
            connection.executemany(session_rows.SQL.archive, [(int(archived), one) for one in chain])
        return chain

    def delete(self, session_ids: Sequence[SessionId]) -> list[SessionId]:
        gone: list[SessionId] = []
        with self._file.writing() as connection:
            links = message_rows.lineage(connection, user=self._user)
            for session_id in session_ids:
                if session_id in gone:
                    continue
                session_rows.require(connection, session_id, user=self._user)
                for one in links.chain(session_id):
                    connection.execute(session_rows.SQL.trash, (self._file.now(), one))
                    if connection.changes():
                        gone.append(one)
        return gone

    def restore(self, session_id: SessionId) -> list[SessionId]:
        back: list[SessionId] = []
        with self._file.writing() as connection:
            chain = message_rows.lineage(connection, user=self._user).chain(session_id)
            for one in chain:
                connection.execute(session_rows.SQL.untrash, (one, self._user))
                if connection.changes():
                    back.append(one)
        if not back:
            raise no_session(session_id)
        return back

    def trash(self) -> list[Session]:
        with self._database.reading() as connection:
            return [session_from(row) for row in connection.execute(session_rows.SQL.in_trash, (self._user,))]

    def sweep(self, *, days: float | None = None) -> Removed:
        """Remove for good what has been in the trash longer than the retention time, or than `days`."""
        until = self._file.now() - (self._file.settings.trash_days if days is None else days) * DAY_SECONDS
        with self._database.reading() as connection:
            own = session_rows.find_due(connection, user=self._user, until=until)
        return removal.purge_sessions(self._database, own, keep_borrowed=True)

    def prunable(self, *, days: float | None, source: str | None, most_bytes: int | None = None) -> Pruned:
        with self._database.reading() as connection:
            before = _NEVER if days is None else self._file.now() - days * DAY_SECONDS
            bindings = {"user": self._user, "before": before, "source": source}
            idle = [session_from(row) for row in connection.execute(SQL.idle, bindings)]
            sizes: dict[str, int] = dict(connection.execute(SQL.text_bytes, (self._user,)))
        if most_bytes is not None:
            excess = sum(sizes.values()) - most_bytes
            taken = []
            for session in idle:
                if excess <= 0:
                    break
                excess -= sizes.get(session.id, 0)
                taken.append(session)
            idle = taken
        return Pruned(tuple(idle), sum(sizes.get(session.id, 0) for session in idle))

    def stats(self, *, months: int = 12, biggest: int = 10) -> dict[str, JSON]:
        """Return the user's counts, growth by month and biggest sessions, and the sizes of the tables."""
        with self._database.reading() as connection:
            ((sessions, in_trash),) = connection.execute(SQL.totals, (self._user,)).fetchall()
            ((messages, text_bytes),) = connection.execute(SQL.message_totals, (self._user,)).fetchall()
            sizes = self._table_bytes(connection)
            growth = list(connection.execute(SQL.growth, (self._user, months)))
            big = list(connection.execute(SQL.biggest, (self._user, biggest)))
        return {
            "path": str(self._database.path),
            "file_bytes": self._file_bytes(),
            "sessions": sessions,
            "in_trash": in_trash,
            "messages": messages,
            "text_bytes": text_bytes,
            "tables": sizes,
            "growth": [{"month": month, "messages": count, "text_bytes": size} for month, count, size in growth],
            "biggest": [
                {"session_id": session_id, "title": title, "messages": count, "text_bytes": size}
                for session_id, title, count, size in big
            ],
        }

    @abstractmethod
    def _table_bytes(self, connection: Connection) -> dict[str, JSON]:
        """Return the size of each table, the largest first."""

    @abstractmethod
    def _file_bytes(self) -> int:
        """Return the size of all tables."""

    def coverage(self) -> Coverage:
        with self._database.reading() as connection:
            return vectors.coverage(connection)

    def give(self, session_ids: Sequence[SessionId], *, user: UserId) -> None:
        with self._file.writing() as connection:
            for session_id in session_ids:
                connection.execute(session_rows.SQL.give, (user, session_id, session_rows.NOBODY))
                if not connection.changes():
                    raise no_session(session_id)
