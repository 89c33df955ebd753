"""Checksums of message rows: computed for rows that have none, and compared with the rows."""

import time
from collections.abc import Iterator

from msgspec import Struct

from wellkept.core.ids import MessageId, SessionId
from wellkept.sessions.records import PARTS, Row, blob_text, hash_blob, is_damaged, list_blobs
from wellkept.sessions.rows import message_rows
from wellkept.storage import row_checksums
from wellkept.storage.connections import DamagedText, statements
from wellkept.storage.sqlite import Connection, Database

SQL = statements("wellkept.sessions.sqlite", "checksums.sql")
_BATCH = 1_000
_BEFORE_ALL = -(2**63)
"""Damage can make an id negative."""


class DamagedMessage(Struct, frozen=True):
    """A message whose row or blob is not as it was written."""

    message_id: MessageId
    session_id: SessionId
    """As far as it can be read."""
    why: str

    def __str__(self) -> str:
        return f"message {self.message_id} of session {self.session_id} is damaged: {self.why}"


def check_rows(connection: Connection) -> Iterator[DamagedMessage]:
    """Yield every damaged message in order, then messages with damaged or lost blobs.

    Reads all rows. Rows without a checksum are checked by their form only.
    """
    last = _BEFORE_ALL
    while batch := connection.execute(message_rows.SQL.rows_after, (last, _BATCH)).fetchall():
        last = int(str(batch[-1][0]))
        yield from (_describe(row) for row in batch if is_damaged(row))
    yield from _check_blobs(connection)


def _describe(row: Row) -> DamagedMessage:
    is_text = not any(isinstance(value, DamagedText) for value in row)
    why = "it does not match its checksum" if is_text else "its text is not valid UTF-8"
    return DamagedMessage(MessageId(row[0]), SessionId(str(row[1])), why)


def _check_blobs(connection: Connection) -> Iterator[DamagedMessage]:
    last = 0
    while (row := connection.execute(SQL.blobs_after, (last,)).fetchone()) is not None:
        last, digest, data = row
        if blob_text(digest, data) is None:
            for number, session_id in connection.execute(SQL.blob_users, (digest,)):
                why = "its image or encoded data does not match its hash"
                yield DamagedMessage(MessageId(number), SessionId(session_id), why)
    for number, session_id in connection.execute(SQL.without_blob):
        yield DamagedMessage(MessageId(number), SessionId(session_id), "its image or encoded data is lost")


def find_wrong_uses(connection: Connection) -> dict[int, set[str]]:
    """Return the whole messages whose rows in `blob_uses` differ from what they name, with the right hashes.

    A missing row lets a removal of another message take the blob; one too many keeps a blob that was forgotten.
    """
    listed: dict[int, set[str]] = {}
    for number, digest in connection.execute(SQL.uses):
        listed.setdefault(number, set()).add(digest)
    wrong: dict[int, set[str]] = {}
    last = _BEFORE_ALL
    while batch := connection.execute(SQL.parts_after, (last, _BATCH)).fetchall():
        last = int(str(batch[-1][0]))
        for row in batch:
            number, parts = int(str(row[0])), row[PARTS]
            named = None if is_damaged(row) else list_blobs(None if parts is None else str(parts))
            if named is not None and named != listed.get(number, set()):
                wrong[number] = named
    return wrong


def find_wrong_hashes(connection: Connection) -> dict[int, str]:
    """Return the blobs whose own hash is damaged, by the number of the row, with the hash that they should have.

    A blob whose content has the hash that a message names, and no blob has, is the one that the message means.
    """
    missing = {digest for (digest,) in connection.execute(SQL.missing_blobs)}
    found: dict[int, str] = {}
    last = 0
    while missing and (row := connection.execute(SQL.blobs_after, (last,)).fetchone()) is not None:
        last, _, data = row
        right = hash_blob(data)
        if right in missing:
            found[last] = right
            missing.remove(right)
    return found


def correct_blobs(connection: Connection) -> int:
    """Let `blob_uses` say what the messages name, correct damaged hashes of blobs, and return how many rows changed."""
    uses = find_wrong_uses(connection)
    for number, named in uses.items():
        connection.execute(SQL.remove_uses, (number,))
        connection.executemany(SQL.add_use, [(number, digest) for digest in sorted(named)])
    hashes = find_wrong_hashes(connection)
    connection.executemany(SQL.rename_blob, [(digest, number) for number, digest in hashes.items()])
    return len(uses) + len(hashes)


def fill_missing(database: Database, *, seconds: float) -> int:
    """Compute the checksums of rows from before there were any, in steps, for about the given time; return how many."""
    deadline = time.monotonic() + seconds
    done = 0
    for is_missing, fill in ((SQL.missing_to, _fill_batch), (SQL.rows_missing, _fill_other_rows)):
        while time.monotonic() < deadline:
            with database.reading() as connection:
                if connection.execute(is_missing).fetchone() is None:
                    break
            with database.writing() as connection:
                done += fill(connection)
    return done


def _fill_batch(connection: Connection) -> int:
    (end,) = connection.execute(SQL.missing_to).fetchone() or (0,)
    (last,) = connection.execute(SQL.filled_to).fetchone() or (_BEFORE_ALL,)
    rows = connection.execute(message_rows.SQL.rows_after, (last, _BATCH)).fetchall()
    message_rows.set_checksums(connection, rows)
    reached = int(str(rows[-1][0])) if rows else 0
    if len(rows) < _BATCH or reached >= int(str(end)):
        connection.execute(SQL.forget_progress)
    else:
        connection.execute(SQL.set_filled_to, (str(reached),))
    return len(rows)


def _fill_other_rows(connection: Connection) -> int:
    count = row_checksums.fill_missing(connection, most=_BATCH)
    if count < _BATCH:
        connection.execute(SQL.forget_rows_missing)
    return count
