"""Marks left where something was forgotten, so that an import does not bring it back; they hold hashes only."""

import hashlib

from kept.core.ids import OWNER, UserId, random_hex
from kept.storage.sql import statements
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "tombstones.sql")


def salt(connection: Connection) -> str:
    """Return the secret of this file that keeps short texts from being guessed off their hashes."""
    row = connection.execute(SQL.salt).fetchone()
    return "" if row is None else str(row[0])


def make_salt(connection: Connection) -> str:
    """Return the secret of this file, made at the first need."""
    connection.execute(SQL.make_salt, (random_hex(16),))
    return salt(connection)


def scope(session_id: str, user: UserId) -> str:
    """Return what marks name a session by; one user's marks must not stop another's import."""
    return session_id if user == OWNER else f"{user}\0{session_id}"


def of_session(salted: str, session_id: str) -> str:
    """Return the mark of a whole session."""
    return _hash(salted, "session", session_id)


def of_message(salted: str, session_id: str, *, external_id: str | None, mark: bytes) -> str:
    """Return the mark of one message."""
    if external_id is not None:
        return _hash(salted, "external", session_id, external_id)
    return _hash(salted, "content", session_id, mark.hex())


def _hash(*pieces: str) -> str:
    return hashlib.sha256("\0".join(pieces).encode("utf-8", "surrogatepass")).hexdigest()


def add(connection: Connection, hashes: list[str], *, now: float) -> None:
    """Leave marks."""
    connection.executemany(SQL.add, [(one, now) for one in hashes])


def has(connection: Connection, mark: str) -> bool:
    """Whether the mark was left."""
    return connection.execute(SQL.has, (mark,)).fetchone() is not None


def any_left(connection: Connection) -> bool:
    """Whether anything was ever forgotten here."""
    return connection.execute(SQL.any).fetchone() is not None
