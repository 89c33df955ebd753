"""The word index and the substring index of messages: derived from the rows, and rebuilt from them."""

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from kept.core.errors import StorageError
from kept.sessions.text import IndexedText, prepared
from kept.storage.sqlite import Connection, explained_sql
from kept.storage.statements import statements

VERSION = 3
"""Rises when the prepared text or the tables change; an older index is rebuilt."""

SQL = statements("kept.sessions.sqlite", "index.sql")
TABLES = ("words", "substrings")
_BATCH = 2_000


def create(connection: Connection) -> None:
    """Create both indexes and the view of their words, where they do not exist."""
    connection.execute(SQL.create_words)
    connection.execute(SQL.create_substrings)
    connection.execute(SQL.create_vocabulary)


def add(connection: Connection, rows: Iterable[IndexedText]) -> None:
    """Index `rows`, or index them again; the caller's transaction is open."""
    ready = [prepared(row) for row in rows]
    connection.executemany(SQL.add_words, [(row.message_id, row.words, row.marks) for row in ready])
    connection.executemany(SQL.add_substrings, [(row.message_id, row.substrings) for row in ready])


def remove(connection: Connection, message_ids: Iterable[int]) -> None:
    """Take messages out of both indexes; their bytes go with the next merges (see `merge`)."""
    ids = [(message_id,) for message_id in message_ids]
    connection.executemany(SQL.remove_words, ids)
    connection.executemany(SQL.remove_substrings, ids)


def merge(connection: Connection, pages: int) -> bool:
    """Do one step of merging and say whether it changed anything; a negative number begins a full merge."""
    before = connection.total_changes()
    connection.execute(SQL.merge_words, (pages,))
    connection.execute(SQL.merge_substrings, (pages,))
    # a merge that finds nothing to do still counts as one change per table
    return connection.total_changes() - before > len(TABLES)


def drop(connection: Connection) -> None:
    """Drop both indexes, whatever state they are in."""
    for sql in (SQL.drop_vocabulary, SQL.drop_words, SQL.drop_substrings):
        connection.execute(sql)


def rebuild(connection: Connection, rows: Iterable[IndexedText], progress: Callable[[int], None] | None = None) -> int:
    """Build both indexes anew from `rows`, in the caller's transaction, and return how many were indexed.

    Readers keep the old index until the transaction commits. `progress` hears the number done so far.
    """
    drop(connection)
    create(connection)
    done = 0
    source = iter(rows)
    while batch := list(islice(source, _BATCH)):
        add(connection, batch)
        done += len(batch)
        if progress is not None:
            progress(done)
    return done


def check(connection: Connection) -> list[str]:
    """Return what is wrong with the indexes, each as one sentence; empty when they agree with the rows."""
    there = {str(row[0]) for row in connection.execute(SQL.existing)}
    wrong = [f"the {table} index is missing" for table in TABLES if f"message_{table}" not in there]
    wrong += [why for table in TABLES if f"message_{table}" in there for why in _damage(connection, table)]
    if wrong:
        return wrong
    for sql, words in (
        (SQL.missing, "messages are not in the word index"),
        (SQL.missing_substrings, "messages are not in the substring index"),
        (SQL.left_over, "rows of the word index have no message"),
    ):
        (number,) = next(iter(connection.execute(sql)))
        if number:
            wrong.append(f"{number} {words}")
    return wrong


def _damage(connection: Connection, table: str) -> list[str]:
    try:
        with explained_sql(Path(connection.filename)):
            connection.execute(getattr(SQL, f"check_{table}"))
    except StorageError as error:
        return [f"the {table} index is damaged: {error.message}"]
    return []
