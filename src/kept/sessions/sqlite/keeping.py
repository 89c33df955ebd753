"""What a person does with whole sessions: archive, throw away, bring back, prune, measure, optimise."""

from collections.abc import Sequence

from kept.core.ids import SessionId
from kept.core.messages import Session
from kept.core.text import JSON
from kept.sessions.health import Finding
from kept.sessions.keeping import Coverage, Pruned, Removed
from kept.sessions.records import session_from
from kept.sessions.sqlite import checkup, context, erasing, index, life, purge, vectors
from kept.sessions.sqlite.rows import no_session
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.storage.sql import statements

SQL = statements("kept.sessions.sqlite", "keeping.sql")
DAY_SECONDS = 86_400.0
_NEVER = 1e18


class SqliteKeeping:
    """Implements `sessions.ports.Keeping` on one file."""

    def __init__(self, store: SqliteSessionStore) -> None:
        self._store = store
        self._file = store.file
        self._user = store.user
        self._database = store.database

    def archive(self, session_id: SessionId, *, archived: bool = True) -> list[SessionId]:
        """Hide a conversation from lists, or show it again; search finds it either way."""
        with self._file.writing() as connection:
            life.existing(connection, session_id, user=self._user)
            chain = context.lineage(connection, user=self._user).chain(session_id)
            life.archive(connection, chain, archived=archived)
        return chain

    def delete(self, session_ids: Sequence[SessionId]) -> list[SessionId]:
        """Move conversations to the trash, each with the whole chain of its compressions."""
        gone: list[SessionId] = []
        with self._file.writing() as connection:
            links = context.lineage(connection, user=self._user)
            for session_id in session_ids:
                if session_id not in gone:
                    life.existing(connection, session_id, user=self._user)
                    gone += life.trash(connection, links.chain(session_id), now=self._file.now())
        return gone

    def restore(self, session_id: SessionId) -> list[SessionId]:
        """Bring a conversation back from the trash."""
        with self._file.writing() as connection:
            chain = context.lineage(connection, user=self._user).chain(session_id)
            back = life.untrash(connection, chain, user=self._user)
        if not back:
            raise no_session(session_id)
        return back

    def trashed(self) -> list[Session]:
        """Return what is in the trash, the latest first."""
        with self._database.reading() as connection:
            return life.in_trash(connection, user=self._user)

    def sweep(self, *, days: float | None = None) -> Removed:
        """Remove for good what any user's trash has held for longer than its time."""
        kept_days = self._file.settings.trash_days if days is None else days
        with self._database.reading() as connection:
            due = life.due(connection, until=self._file.now() - kept_days * DAY_SECONDS)
        if not due:
            return Removed()
        return purge.sessions(self._database, due, keep_borrowed=True)

    def prunable(self, *, days: float | None, source: str | None, most_bytes: int | None = None) -> Pruned:
        """Return what a prune would throw away: idle for so long, of that source, the oldest until the rest fits."""
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
        """Return the user's counts, growth by month and biggest sessions, and the sizes of the file's tables."""
        with self._database.reading() as connection:
            ((sessions, in_trash),) = connection.execute(SQL.totals, (self._user,)).fetchall()
            ((messages, text_bytes),) = connection.execute(SQL.message_totals, (self._user,)).fetchall()
            sizes: dict[str, JSON] = dict(connection.execute(SQL.sizes))
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

    def coverage(self) -> Coverage:
        """Return how far the vectors go."""
        with self._database.reading() as connection:
            return vectors.coverage(connection)

    def checked(self) -> list[Finding]:
        """Return everything that is wrong with the file, its rows, its index and a search; empty when it is well."""
        return checkup.checked(self._store)

    def reindex(self) -> int:
        """Build both indexes anew from the messages while others read and write; return how many."""
        return index.rebuild(self._database, sink=self._file.sink, clock=self._file.clock)

    def optimize(self, *, vacuum: bool = False) -> dict[str, JSON]:
        """Catch up the index, merge its segments a little at a time, refresh the planner, shorten the log."""
        before = self._file_bytes()
        caught_up = index.drain(self._database, seconds=3_600)
        erasing.merge(self._database)
        with self._database.reading() as connection:
            connection.execute("PRAGMA optimize")
            if vacuum:
                connection.execute("VACUUM")
            connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if vacuum else 'PASSIVE'})").fetchall()
        return {"caught_up": caught_up, "bytes_before": before, "bytes_after": self._file_bytes()}

    def _file_bytes(self) -> int:
        return 0 if self._database.is_empty else self._database.path.stat().st_size
