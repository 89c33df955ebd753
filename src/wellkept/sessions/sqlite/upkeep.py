"""Upkeep of a session file: trash of all its users, check, index, optimise, sizes."""

from wellkept.core.messages import Session
from wellkept.core.text import JSON
from wellkept.sessions.records import session_from
from wellkept.sessions.reports import Finding, Removed
from wellkept.sessions.rows import removal, session_rows
from wellkept.sessions.rows.database import Connection
from wellkept.sessions.rows.upkeep import DAY_SECONDS, RowUpkeep
from wellkept.sessions.sqlite import checksums, index
from wellkept.sessions.sqlite.check import check_store
from wellkept.sessions.sqlite.store import SqliteSessionStore, merge_index
from wellkept.storage import maintenance
from wellkept.storage.connections import statements
from wellkept.storage.sqlite import Database

SQL = statements("wellkept.sessions.sqlite", "upkeep.sql")
_UNTIL_DONE = 3_600.0


class SqliteUpkeep(RowUpkeep):
    """Implements `sessions.ports.Upkeep` on one file."""

    def __init__(self, store: SqliteSessionStore) -> None:
        super().__init__(store)
        self._own = store
        self._database: Database = store.database

    def activity(self, since: float) -> list[tuple[str, str, int, int]]:
        with self._file.database.reading() as connection:
            found = connection.execute(SQL.activity, (self._user, since))
            return [(str(day), str(source), int(count), int(messages or 0)) for day, source, count, messages in found]

    def sweep(self, *, days: float | None = None) -> Removed:
        """Remove for good what has been in the trash longer than the retention time, or than `days`.

        Sessions of other users go with the retention time only, because they may not return; they are not reported.
        """
        until = self._file.now() - self._file.settings.trash_days * DAY_SECONDS
        with self._database.reading() as connection:
            others = session_rows.find_due_of_others(connection, user=self._user, until=until)
        removal.purge_sessions(self._database, others, keep_borrowed=True)
        return super().sweep(days=days)

    def check(self) -> list[Finding]:
        """Return every fault of the file, its rows and its index; empty if there is none. Writes nothing."""
        return check_store(self._own)

    def quarantine(self) -> list[Session]:
        """Return the sessions that a repair found without an owner."""
        with self._database.reading() as connection:
            rows = connection.execute(session_rows.SQL.quarantine, (session_rows.NOBODY,))
            return [session_from(row) for row in rows]

    def reindex(self) -> int:
        """Rebuild the index while others read and write; return the number of messages."""
        count = index.rebuild(self._database, sink=self._file.sink, clock=self._file.clock)
        index.drain(self._database, seconds=_UNTIL_DONE)  # rows of removed messages, which the new index does not hold
        checksums.fill_missing(self._database, seconds=_UNTIL_DONE)
        return count

    def optimize(self, *, vacuum: bool = False) -> dict[str, JSON]:
        """Index what is waiting, merge segments in small steps, update the planner's statistics, shorten the log."""
        before = self._file_bytes()
        caught_up = index.drain(self._database, seconds=_UNTIL_DONE)
        checksums.fill_missing(self._database, seconds=_UNTIL_DONE)
        index.fill_spellings(self._database, seconds=_UNTIL_DONE, sink=self._file.sink)
        merge_index(self._database)
        with self._database.reading() as connection:
            may_have_unused = index.may_have_unused(connection)
        if may_have_unused:
            index.remove_unused(self._database)
        with self._database.reading() as connection:
            connection.execute("PRAGMA optimize")
            if vacuum:
                maintenance.vacuum(connection, self._database.path)
            connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if vacuum else 'PASSIVE'})").fetchall()
        return {"caught_up": caught_up, "bytes_before": before, "bytes_after": self._file_bytes()}

    def _table_bytes(self, connection: Connection) -> dict[str, JSON]:
        """Return the size of each table of the file with its indexes, the largest first."""
        return dict(connection.execute(SQL.sizes))

    def _file_bytes(self) -> int:
        return 0 if self._database.is_empty else self._database.path.stat().st_size
