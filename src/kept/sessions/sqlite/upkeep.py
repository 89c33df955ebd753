"""Upkeep of the store: archive, trash, prune, statistics, check, optimise."""

import re
import struct
from collections.abc import Sequence
from pathlib import Path

from kept.core.errors import StorageError
from kept.core.ids import SessionId, UserId
from kept.core.messages import Session
from kept.core.search import SearchRequest
from kept.core.text import JSON
from kept.sessions.records import session_from
from kept.sessions.reports import Coverage, Finding, Pruned, Removed
from kept.sessions.sqlite import checksums, file, index, message_rows, removal, session_rows, vectors
from kept.sessions.sqlite.session_rows import no_session
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.storage.connections import statements
from kept.storage.maintenance import check_integrity
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "upkeep.sql")
DAY_SECONDS = 86_400.0
_NEVER = 1e18
_UNTIL_DONE = 3_600.0


class SqliteUpkeep:
    """Implements `sessions.ports.Upkeep` on one file."""

    def __init__(self, store: SqliteSessionStore) -> None:
        self._store = store
        self._file = store.file
        self._user = store.user
        self._database = store.database

    def archive(self, session_id: SessionId, *, archived: bool = True) -> list[SessionId]:
        """Hide a conversation from lists, or show it again; search finds it either way."""
        with self._file.writing() as connection:
            session_rows.require(connection, session_id, user=self._user)
            chain = message_rows.lineage(connection, user=self._user).chain(session_id)
            session_rows.archive(connection, chain, archived=archived)
        return chain

    def delete(self, session_ids: Sequence[SessionId]) -> list[SessionId]:
        """Move conversations to the trash, each with the whole chain of its compressions."""
        gone: list[SessionId] = []
        with self._file.writing() as connection:
            links = message_rows.lineage(connection, user=self._user)
            for session_id in session_ids:
                if session_id not in gone:
                    session_rows.require(connection, session_id, user=self._user)
                    gone += session_rows.move_to_trash(connection, links.chain(session_id), now=self._file.now())
        return gone

    def restore(self, session_id: SessionId) -> list[SessionId]:
        """Bring a conversation back from the trash."""
        with self._file.writing() as connection:
            chain = message_rows.lineage(connection, user=self._user).chain(session_id)
            back = session_rows.restore_from_trash(connection, chain, user=self._user)
        if not back:
            raise no_session(session_id)
        return back

    def trash(self) -> list[Session]:
        """Return what is in the trash, the latest first."""
        with self._database.reading() as connection:
            return session_rows.read_trash(connection, user=self._user)

    def sweep(self, *, days: float | None = None) -> Removed:
        """Remove for good what has been in the trash longer than the retention time, or than `days`.

        Sessions of other users go with the retention time only, because they may not return; they are not reported.
        """
        now, retention = self._file.now(), self._file.settings.trash_days
        until = now - (retention if days is None else days) * DAY_SECONDS
        with self._database.reading() as connection:
            own = session_rows.find_due(connection, user=self._user, until=until)
            others = session_rows.find_due_of_others(connection, user=self._user, until=now - retention * DAY_SECONDS)
        removal.purge_sessions(self._database, others, keep_borrowed=True)
        return removal.purge_sessions(self._database, own, keep_borrowed=True)

    def prunable(self, *, days: float | None, source: str | None, most_bytes: int | None = None) -> Pruned:
        """Return what a prune would trash: idle for `days`, of `source`, the oldest until `most_bytes` are left."""
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
        """Return how many messages have vectors."""
        with self._database.reading() as connection:
            return vectors.coverage(connection)

    def check(self) -> list[Finding]:
        """Return every fault of the file, its rows, its index and a search; empty if there is none."""
        return check(self._store)

    def reindex(self) -> int:
        """Rebuild both indexes while others read and write; return the number of messages."""
        count = index.rebuild(self._database, sink=self._file.sink, clock=self._file.clock)
        checksums.fill_missing(self._database, seconds=_UNTIL_DONE)
        return count

    def optimize(self, *, vacuum: bool = False) -> dict[str, JSON]:
        """Index what is waiting, merge segments in small steps, update the planner's statistics, shorten the log."""
        before = self._file_bytes()
        caught_up = index.drain(self._database, seconds=_UNTIL_DONE)
        checksums.fill_missing(self._database, seconds=_UNTIL_DONE)
        file.merge_indexes(self._database)
        with self._database.reading() as connection:
            connection.execute("PRAGMA optimize")
            if vacuum:
                connection.execute("VACUUM")
            connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if vacuum else 'PASSIVE'})").fetchall()
        return {"caught_up": caught_up, "bytes_before": before, "bytes_after": self._file_bytes()}

    def _file_bytes(self) -> int:
        return 0 if self._database.is_empty else self._database.path.stat().st_size


REPAIR = "run `kept sessions repair`"
REMOVE = "what can be read of it is shown; restore a backup, or remove it with `kept forget --session ID`"
_WAL_HEADER, _FRAME_HEADER = 32, 24
_WHOLE_CHECK_BYTES = 200_000_000
_WORD = re.compile(r"[^\W\d_]{4,}")


def log_tail(path: Path) -> Finding | None:
    """Return what is wrong with the end of the write-ahead log; call it before the database is opened."""
    try:
        data = path.with_name(f"{path.name}-wal").read_bytes()
    except OSError:
        return None
    if not data:
        return None
    page_bytes = struct.unpack(">I", data[8:12])[0] if len(data) >= _WAL_HEADER else 0
    if page_bytes and (len(data) - _WAL_HEADER) % (_FRAME_HEADER + page_bytes) == 0:
        return None
    return Finding(
        "the write-ahead log ends in the middle of a page: a write cut off there is lost, all before it is whole",
        "nothing needs to be done; the next write repairs the log",
    )


def check(store: SqliteSessionStore) -> list[Finding]:
    """Return every fault of an open store; empty if there is none."""
    database = store.database
    try:
        with database.reading() as connection:
            found = file_findings(connection, database.path)
            if found:
                return found
            found = _row_findings(connection)
            if not database.is_read_only:  # the check of an index is a statement that writes
                found += _index_findings(connection)
    except StorageError as error:
        return [Finding(error.message, REPAIR)]
    return found or _search_findings(store)


def file_findings(connection: Connection, path: Path) -> list[Finding]:
    """Return what SQLite's integrity check reports, with the names of the damaged tables."""
    check = "integrity_check(20)" if path.stat().st_size <= _WHOLE_CHECK_BYTES else "quick_check(20)"
    lines = check_integrity(connection, path, check)
    if not lines:
        return []
    places = _damaged_places(connection, path, lines)
    where = f" (in {', '.join(places)})" if places else ""
    return [Finding(f"the file is damaged{where}: {line}", REPAIR) for line in lines]


def _damaged_places(connection: Connection, path: Path, lines: Sequence[str]) -> list[str]:
    """Return the tables and indexes that the report names, or else those that fail their own check."""
    roots = connection.execute(SQL.roots).fetchall()
    told = [str(name) for root, name, _ in roots if any(line.startswith(f"Tree {root} ") for line in lines)]
    tables = [str(name) for _, name, kind in roots if kind == "table"]
    return told or [name for name in tables if check_integrity(connection, path, f"integrity_check({name})")]


def _row_findings(connection: Connection) -> list[Finding]:
    ((orphans,),) = connection.execute(SQL.orphans).fetchall()
    found = [Finding(f"{orphans} messages belong to no session", REPAIR)] if orphans else []
    return found + [Finding(str(damaged), REMOVE, is_lost=True) for damaged in checksums.check_rows(connection)]


def _index_findings(connection: Connection) -> list[Finding]:
    ((waiting,),) = connection.execute(SQL.waiting).fetchall()
    if waiting:  # rows written by another program: the next search indexes them
        return []
    return [Finding(f"index: {what}", "run `kept sessions reindex`") for what in index.check(connection)]


def _search_findings(store: SqliteSessionStore) -> list[Finding]:
    with store.database.reading() as connection:
        sample = connection.execute(SQL.sample).fetchall()
    for number, session_id, user, content in sample:
        words = _WORD.findall(str(content)[:2_000])
        if len(words) >= 2:
            request = SearchRequest(" ".join(words[:6]), limit=50, session_id=SessionId(str(session_id)))
            found = store.for_user(UserId(str(user))).search(request)
            if number in {hit.message_id for hit in found.messages}:
                return []
            return [Finding(f"a search does not find message {number}, which is stored", "run `kept sessions reindex`")]
    return []
