"""The store's health: the file, its log, its rows, its index, and a search that must find what is there."""

import re
import struct
from collections.abc import Sequence
from pathlib import Path

from kept.core.errors import StorageError
from kept.core.ids import SessionId, UserId
from kept.core.search import SearchRequest
from kept.sessions.health import Finding
from kept.sessions.sqlite import index
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.storage.maintenance import check_integrity
from kept.storage.sql import statements
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "checkup.sql")
REPAIR = "run `kept sessions repair`"
_WAL_HEADER, _FRAME_HEADER = 32, 24
_WHOLE_CHECK_BYTES = 200_000_000
_WORD = re.compile(r"[^\W\d_]{4,}")


def log_tail(path: Path) -> Finding | None:
    """Return what is wrong with the end of the write-ahead log; ask before the database is opened."""
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
        "nothing needs to be done; the next write mends the log",
    )


def checked(store: SqliteSessionStore) -> list[Finding]:
    """Return everything that is wrong with an open store; empty when it is well."""
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
    """Return what SQLite's own check says of the file, with the names of what is damaged."""
    check = "integrity_check(20)" if path.stat().st_size <= _WHOLE_CHECK_BYTES else "quick_check(20)"
    lines = check_integrity(connection, path, check)
    if not lines:
        return []
    places = _damaged_places(connection, path, lines)
    where = f" (in {', '.join(places)})" if places else ""
    return [Finding(f"the file is damaged{where}: {line}", REPAIR) for line in lines]


def _damaged_places(connection: Connection, path: Path, lines: Sequence[str]) -> list[str]:
    """Return the tables and indexes that the lines of a check are about, or else those that fail one of their own."""
    roots = connection.execute(SQL.roots).fetchall()
    told = [str(name) for root, name, _ in roots if any(line.startswith(f"Tree {root} ") for line in lines)]
    tables = [str(name) for _, name, kind in roots if kind == "table"]
    return told or [name for name in tables if check_integrity(connection, path, f"integrity_check({name})")]


def _row_findings(connection: Connection) -> list[Finding]:
    ((orphans,),) = connection.execute(SQL.orphans).fetchall()
    return [Finding(f"{orphans} messages belong to no session", REPAIR)] if orphans else []


def _index_findings(connection: Connection) -> list[Finding]:
    ((waiting,),) = connection.execute(SQL.waiting).fetchall()
    if waiting:  # rows of another program: the next search indexes them, so they are not missing
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
