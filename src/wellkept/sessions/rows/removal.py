"""Removal for good: rows with their index entries, blobs and prompts; and marks that stop a later import.

A mark (tombstone) is a salted hash of what was forgotten.
"""

import hashlib
import json
from collections.abc import Sequence

from wellkept.core.ids import OWNER, SessionId, UserId, random_hex
from wellkept.sessions.reports import Removed
from wellkept.sessions.rows import receipts, session_rows
from wellkept.sessions.rows.database import Connection, Database, find_index
from wellkept.storage.connections import statements

SQL = statements("wellkept.sessions.rows", "removal.sql")
STEP = 1_000


def purge_sessions(database: Database, ids: Sequence[SessionId], *, keep_borrowed: bool) -> Removed:
    """Remove sessions with everything that belongs to them alone.

    With `keep_borrowed`, messages that another session carries move to that session; without, they are removed.
    Others can write between the steps; the next call completes what a killed process left half done.
    """
    removed = Removed()
    for session_id in ids:
        if keep_borrowed:
            with database.writing() as connection:
                _give_away(connection, session_id, ids)
        while True:
            with database.writing() as connection:
                page = [number for (number,) in connection.execute(SQL.page, (session_id, STEP))]
                removed.blobs += purge_messages(connection, page)
                removed.messages += len(page)
                if len(page) < STEP:
                    removed.sessions += _purge_row(connection, session_id)
                    break
    return removed


def _give_away(connection: Connection, session_id: SessionId, going: Sequence[SessionId]) -> None:
    given: dict[int, SessionId] = {}
    for number, heir in list(connection.execute(SQL.borrowed, (session_id, json.dumps(list(going))))):
        if number not in given:
            given[number] = heir
            connection.execute(SQL.give, (heir, number))
            find_index(connection).note_changes()
    session_rows.recount(connection, set(given.values()))


def purge_messages(connection: Connection, ids: Sequence[int]) -> int:
    """Remove messages from every table and the index; return how many blobs were removed."""
    listed = [(number,) for number in ids]
    hashes = {digest for one in listed for (digest,) in connection.execute(SQL.blobs_of, one)}
    sources = {number for one in listed for (number,) in connection.execute(SQL.source_of, one)}
    connection.executemany(SQL.drop_uses, listed)
    connection.executemany(SQL.uncarry, listed)
    connection.executemany(SQL.delete_message, listed)
    receipts.forget_messages(connection, ids)
    find_index(connection).remove(ids)
    connection.executemany(SQL.drop_source, [(number,) for number in sources])
    gone = 0
    for digest in hashes:
        connection.execute(SQL.drop_blob, (digest,))
        gone += connection.changes()
    return gone


def _purge_row(connection: Connection, session_id: SessionId) -> int:
    found = connection.execute(session_rows.SQL.prompt_hash, (session_id,)).fetchone()
    connection.execute(SQL.keep_totals, (session_id,))
    for sql in (SQL.drop_usage, SQL.drop_carried, SQL.drop_notes, SQL.drop_nodes, SQL.drop_session):
        connection.execute(sql, (session_id,))
    gone = connection.changes()
    find_index(connection).note_session(is_removed=True)
    receipts.forget_session(connection, session_id)
    if found is not None and found[0] is not None:
        connection.execute(session_rows.SQL.drop_unused_prompt, (found[0],))
    return gone


def purge_empty(connection: Connection, session_id: SessionId) -> None:
    """Remove a session without messages; its children stay on their own."""
    connection.execute(SQL.orphan, (session_id,))
    _purge_row(connection, session_id)


def find_salt(connection: Connection) -> str:
    """Return the file's salt, without which short texts could be guessed from their hashes."""
    row = connection.execute(SQL.salt).fetchone()
    return "" if row is None else str(row[0])


def make_salt(connection: Connection) -> str:
    """Return the file's salt, creating it if needed."""
    connection.execute(SQL.make_salt, (random_hex(16),))
    return find_salt(connection)


def mark_scope(session_id: str, user: UserId) -> str:
    """Return the name of a session in marks; one user's marks must not stop another's import."""
    return session_id if user == OWNER else f"{user}\0{session_id}"


def session_mark(salted: str, session_id: str) -> str:
    """Return the mark of a whole session."""
    return _hash(salted, "session", session_id)


def message_mark(salted: str, session_id: str, *, external_id: str | None, mark: bytes) -> str:
    """Return the mark of one message."""
    if external_id is not None:
        return _hash(salted, "external", session_id, external_id)
    return _hash(salted, "content", session_id, mark.hex())


def _hash(*pieces: str) -> str:
    return hashlib.sha256("\0".join(pieces).encode("utf-8", "surrogatepass")).hexdigest()


def add_marks(connection: Connection, hashes: list[str], *, now: float) -> None:
    """Store marks."""
    connection.executemany(SQL.add, [(one, now) for one in hashes])


def has_mark(connection: Connection, mark: str) -> bool:
    """Whether the mark is stored."""
    return connection.execute(SQL.has, (mark,)).fetchone() is not None


def has_marks(connection: Connection) -> bool:
    """Whether anything was ever forgotten here."""
    return connection.execute(SQL.any).fetchone() is not None
