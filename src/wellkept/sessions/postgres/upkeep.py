"""Upkeep and transfer on PostgreSQL: the rules of both databases, in transactions of the user who owns the rows."""

from collections.abc import Iterable

from wellkept.core.clock import from_epoch
from wellkept.core.ids import OWNER, UserId
from wellkept.core.messages import Session
from wellkept.core.text import JSON
from wellkept.sessions.lines import DEFAULT_SOURCE, BadLine, parse_all
from wellkept.sessions.postgres import index
from wellkept.sessions.postgres.postings import CACHE
from wellkept.sessions.postgres.store import PostgresSessionStore
from wellkept.sessions.records import is_damaged
from wellkept.sessions.reports import MOST_REPORTED, Finding, ImportReport, Removed
from wellkept.sessions.rows import message_rows, removal, session_rows
from wellkept.sessions.rows.database import Connection
from wellkept.sessions.rows.transfer import RowTransfer
from wellkept.sessions.rows.upkeep import DAY_SECONDS, RowUpkeep
from wellkept.storage.connections import statements
from wellkept.storage.postgres.schema import list_user_tables
from wellkept.storage.postgres.unit import Unit

SQL = statements("wellkept.sessions.postgres", "upkeep.sql")
_PAGE = 1_000
_RESTORE = "restore it from a backup of the server"


class PostgresUpkeep(RowUpkeep):
    """Implements `sessions.ports.Upkeep`: rows by the shared rules, the rest by the server."""

    def __init__(self, store: PostgresSessionStore) -> None:
        super().__init__(store)
        self._own = store

    def activity(self, since: float) -> list[tuple[str, str, int, int]]:
        days: dict[tuple[str, str], list[int]] = {}
        with self._own.rows.reading() as unit:
            # the days are those of this process, whose time zone the server does not know
            for last_active, source, count in unit.execute(SQL.activity, {"since": since}):
                day = from_epoch(float(str(last_active))).astimezone().strftime("%Y-%m-%d")
                days.setdefault((day, str(source)), []).append(int(str(count)))
        return [(day, source, len(counts), sum(counts)) for (day, source), counts in sorted(days.items())]

    def sweep(self, *, days: float | None = None) -> Removed:
        """Remove for good what has been in the trash longer than the retention time, or than `days`.

        Sessions of other users are removed after the retention time only, each in a transaction of its user.
        """
        until = self._file.now() - self._file.settings.trash_days * DAY_SECONDS
        for user in self._own.users():
            other = self._own.for_user(user)
            if other.user != self._user:
                with other.rows.reading() as unit:
                    due = session_rows.find_due(unit, user=other.user, until=until)
                removal.purge_sessions(other.database, due, keep_borrowed=True)
        return super().sweep(days=days)

    def check(self) -> list[Finding]:
        """Return the user's messages that are not as they were written, and those that the index does not hold."""
        found: list[Finding] = []
        ids: set[int] = set()
        with self._own.rows.reading() as unit:
            last = 0
            while rows := unit.execute(message_rows.SQL.rows_after, (last, _PAGE)).fetchall():
                last = int(str(rows[-1][0]))
                ids.update(int(str(row[0])) for row in rows)
                found += [
                    Finding(f"message {row[0]} of session {row[1]} is damaged", _RESTORE, is_lost=True)
                    for row in rows
                    if is_damaged(row)
                ]
            wrong = ids.symmetric_difference(_read_indexed(unit))
        if wrong:
            found.append(Finding(f"the index is wrong about {len(wrong)} messages", "run `kept sessions reindex`"))
        return found

    def quarantine(self) -> list[Session]:
        """Return nothing: no repair has to guess owners here."""
        return []

    def reindex(self) -> int:
        """Index every message of this user again, in one transaction; return how many."""
        with self._own.file.database.writing() as unit:
            # the server has no statistics of rows that this transaction writes, and would join row by row
            unit.execute("SET LOCAL enable_nestloop = off")
            count = index.rebuild(unit)
        CACHE.clear()
        return count

    def optimize(self, *, vacuum: bool = False) -> dict[str, JSON]:  # noqa: ARG002 - the server vacuums by itself
        """Merge segments, and rewrite them without what was removed."""
        before = self._file_bytes()
        self._own.file.erase()
        return {"caught_up": 0, "bytes_before": before, "bytes_after": self._file_bytes()}

    def _table_bytes(self, connection: Connection) -> dict[str, JSON]:
        """Return the size of the user's rows in each table, the largest first; other users' rows are not counted."""
        rows = connection.execute(size_statement())
        return {str(name): int(str(size)) for name, size in rows if size is not None}

    def _file_bytes(self) -> int:
        with self._own.rows.reading() as unit:
            return sum(int(str(size)) for size in self._table_bytes(unit).values())


def size_statement() -> str:
    """Return the statement that measures the user's rows in every table."""
    counted = (
        f"SELECT '{table}' AS name, sum(pg_column_size(t.*)) AS bytes FROM {table} AS t"  # noqa: S608 - constants
        " WHERE t.tenant = :tenant AND t.user_id = :user"
        for table in sorted(list_user_tables())
    )
    return f"{' UNION ALL '.join(counted)} ORDER BY bytes DESC, name"


def _read_indexed(unit: Unit) -> set[int]:
    """Return the messages that a search can find."""
    stored = {number for one in index.read_stored(unit) for number in one.draft.messages}
    gone = {int(str(number)) for (number,) in unit.execute(index.SQL.gone)}
    fresh = {int(str(number)) for (number,) in unit.execute(SQL.fresh_ids)}
    return stored - gone | fresh


class PostgresTransfer(RowTransfer):
    """Implements `sessions.ports.Transfer`; other users' lines in the owner's import are imported as these users."""

    def __init__(self, store: PostgresSessionStore) -> None:
        super().__init__(store.file, user=store.user, sink=store.sink)
        self._store = store

    def import_lines(
        self, lines: Iterable[bytes], *, source: str = DEFAULT_SOURCE, total: int | None = None, is_own: bool = False
    ) -> ImportReport:
        """Store every line once; report bad ones with their number and skip them."""
        if self._user != OWNER:
            return super().import_lines(lines, source=source, total=total, is_own=is_own)
        every = list(lines)
        owners = self._find_owners(every, source)
        report = ImportReport(lines=len(every))
        for user in dict.fromkeys(owners):
            # an empty line is skipped, so that the numbers of bad lines stay right
            own = [line if owner == user else b"" for line, owner in zip(every, owners, strict=True)]
            store = self._store.for_user(user)
            part = RowTransfer(store.file, user=store.user, sink=self._sink)
            _add(report, part.import_lines(own, source=source, total=total, is_own=is_own))
        report.problems = sorted(report.problems)[:MOST_REPORTED]
        return report

    def _find_owners(self, lines: Iterable[bytes], source: str) -> list[UserId]:
        """Return the user of each line; the first line of a session decides, and the rest are the owner's."""
        known: dict[str, UserId] = {}
        found = []
        for raw in lines:
            owner = OWNER
            try:
                for line in parse_all(raw.removeprefix(b"\xef\xbb\xbf"), source=source, now=0.0) if raw.strip() else ():
                    if not isinstance(line, BadLine):
                        owner = known.setdefault(line.session.id, UserId(line.session.user_id))
            except BadLine:
                pass  # the owner's import reports it
            found.append(owner)
        return found


def _add(whole: ImportReport, part: ImportReport) -> None:
    whole.sessions += part.sessions
    whole.messages += part.messages
    whole.known += part.known
    whole.forgotten += part.forgotten
    whole.bad += part.bad
    whole.problems += part.problems
    whole.ids |= part.ids
