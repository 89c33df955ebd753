"""Sessions removed for good, in short steps: rows, index rows, blobs and prompts that nothing else uses."""

import json
from collections.abc import Sequence

from kept.core.ids import SessionId
from kept.sessions.keeping import Removed
from kept.sessions.sqlite import index, life
from kept.storage.sql import statements
from kept.storage.sqlite import Connection, Database

SQL = statements("kept.sessions.sqlite", "purge.sql")
STEP = 1_000


def sessions(database: Database, ids: Sequence[SessionId], *, keep_borrowed: bool) -> Removed:
    """Remove sessions with everything that belongs to them alone.

    `keep_borrowed` gives rows that another session carries to that session; without it they go as well.
    Others write between the steps; what a kill leaves half done is finished by the next call.
    """
    removed = Removed()
    for session_id in ids:
        if keep_borrowed:
            with database.writing() as connection:
                _give_away(connection, session_id, ids)
        while True:
            with database.writing() as connection:
                page = [number for (number,) in connection.execute(SQL.page, (session_id, STEP))]
                removed.blobs += messages(connection, page)
                removed.messages += len(page)
                if len(page) < STEP:
                    removed.sessions += _row(connection, session_id)
                    break
    return removed


def _give_away(connection: Connection, session_id: SessionId, going: Sequence[SessionId]) -> None:
    given: dict[int, SessionId] = {}
    for number, heir in list(connection.execute(SQL.borrowed, (session_id, json.dumps(list(going))))):
        if number not in given:
            given[number] = heir
            connection.execute(SQL.give, (heir, number))
    index.recount(connection, set(given.values()))


def messages(connection: Connection, ids: Sequence[int]) -> int:
    """Remove messages from every table and the index; return how many blobs went with them."""
    listed = [(number,) for number in ids]
    hashes = {digest for one in listed for (digest,) in connection.execute(SQL.blobs_of, one)}
    connection.executemany(SQL.drop_uses, listed)
    connection.executemany(SQL.uncarry, listed)
    connection.executemany(SQL.delete_message, listed)
    index.remove(connection, ids)
    gone = 0
    for digest in hashes:
        connection.execute(SQL.drop_blob, (digest,))
        gone += connection.changes()
    return gone


def _row(connection: Connection, session_id: SessionId) -> int:
    found = connection.execute(life.SQL.prompt_hash, (session_id,)).fetchone()
    connection.execute(SQL.keep_totals, (session_id,))
    for sql in (SQL.drop_usage, SQL.drop_carried, SQL.drop_notes, SQL.drop_nodes, SQL.drop_session):
        connection.execute(sql, (session_id,))
    gone = connection.changes()
    if found is not None and found[0] is not None:
        connection.execute(life.SQL.drop_unused_prompt, (found[0],))
    return gone
