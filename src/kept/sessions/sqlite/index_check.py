"""The check of the search indexes: their own integrity check, and a comparison with the stored messages.

The messages are indexed again in memory, and both indexes must list the same words for the same messages. So damage
that leaves an index readable is found as well.
"""

import random
from collections.abc import Collection, Iterator
from pathlib import Path

from kept.core.errors import StorageError
from kept.sessions.search.analysis import TALK_CHARACTERS
from kept.sessions.sqlite import index
from kept.storage.connections import explain_sql_errors, statements
from kept.storage.sqlite import Connection
from kept.storage.versions import build_reference

SQL = statements("kept.sessions.sqlite", "index_check.sql")
QUICK_CHARS = 4_000_000
"""Text that the doctor indexes again: one or two seconds. Of more text, a sample is compared."""
REPAIR_CHARS = 60_000_000
"""The same for a repair, which may take longer; the index in memory takes about as much room as the text."""
_BATCH = 1_000
_MOST_NAMED = 5
_ROWS = {"words": "messages", "trigrams": "blocks of eight messages"}
"""What a row of each index stands for."""


def find_faults(connection: Connection, *, most_chars: int = QUICK_CHARS, without: Collection[int] = ()) -> list[str]:
    """Return what is wrong with the indexes, each as one sentence; empty when they agree with the rows.

    Messages that wait to be indexed are left out.

    `most_chars` of text are compared, 0 for none. `without` are messages whose text is damaged: their words are
    others than those that were indexed.
    """
    there = {str(row[0]) for row in connection.execute(SQL.existing)}
    wrong = [f"the {table} index is missing" for table in index.TABLES if f"message_{table}" not in there]
    wrong += [why for table in index.TABLES if f"message_{table}" in there for why in _check_form(connection, table)]
    if wrong:
        return wrong
    for sql, words in (
        (SQL.missing, "messages are not in the word index"),
        (SQL.missing_trigrams, "messages are not in the trigram index"),
        (SQL.left_over, "rows of the word index have no message"),
        (SQL.left_over_trigrams, "rows of the trigram index have no message"),
    ):
        (number,) = next(iter(connection.execute(sql)))
        if number:
            wrong.append(f"{number} {words}")
    if wrong or not most_chars:
        return wrong
    waiting = {int(str(number)) for (number,) in connection.execute(SQL.waiting)}
    return _compare(connection, most_chars, waiting.union(without))


def _check_form(connection: Connection, table: str) -> list[str]:
    if connection.readonly("main"):
        return []  # SQLite's integrity check covers the indexes too; this one is a statement that writes
    try:
        with explain_sql_errors(Path(connection.filename)):
            connection.execute(getattr(SQL, f"check_{table}"))
    except StorageError as error:
        return [f"the {table} index is damaged: {error.message}"]
    return []


def choose_messages(connection: Connection, *, most_chars: int) -> tuple[list[int], bool]:
    """Return the messages to compare, and whether these are all: very long ones, then others in any order.

    Very long ones come first, because older versions indexed only their beginning. Blocks are chosen as a whole.
    """
    blocks: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    long: set[int] = set()
    for number, chars in connection.execute(SQL.sizes):
        block = int(str(number)) >> index.BLOCK_BITS
        blocks.setdefault(block, []).append(int(str(number)))
        sizes[block] = sizes.get(block, 0) + int(str(chars or 0))
        if int(str(chars or 0)) > TALK_CHARACTERS:
            long.add(block)
    order = list(sizes)
    if sum(sizes.values()) > most_chars:
        random.shuffle(order)  # a sample of its own in every check, so that each message has its turn
        order.sort(key=lambda block: block not in long)
    chosen: list[int] = []
    room = most_chars
    for block in order:
        if room < sizes[block] and chosen:
            return sorted(chosen), False
        chosen += blocks[block]
        room -= sizes[block]
    return sorted(chosen), True


def _compare(connection: Connection, most_chars: int, without: Collection[int]) -> list[str]:
    chosen, is_all = choose_messages(connection, most_chars=most_chars)
    (below,) = connection.execute(SQL.missing_below).fetchone() or (None,)
    is_whole = {"words": is_all and not without, "trigrams": is_all and not without and below is None}
    partial = {number >> index.BLOCK_BITS for number in without}
    blocks = {number >> index.BLOCK_BITS for number in chosen} - partial
    listed = {
        "words": [number for number in chosen if number not in without],
        "trigrams": [block for block in blocks if below is None or block >= int(str(below))],
    }
    again = build_reference((), 0)
    try:
        index.create(again)
        wrong: list[str] = []
        for table in index.TABLES:
            for each in (connection, again):
                each.execute(SQL.create_compared)
                each.execute(SQL.clear_compared)
                each.executemany(SQL.add_compared, [(number,) for number in listed[table]])
            if table == "words":
                _index_again(connection, again)
            wrong += _compare_table(connection, again, table, is_all=is_whole[table])
        return wrong
    finally:
        again.close()
        for sql in (SQL.drop_terms, SQL.drop_compared):
            connection.execute(sql)


def _index_again(connection: Connection, again: Connection) -> None:
    last = -(2**63)
    with again:
        while read := index.texts(connection.execute(SQL.texts_of, (last, _BATCH)).fetchall()):
            batch = index.cut_to_blocks(read, _BATCH)
            last = batch[-1].message_id
            index.add_blocks(again, batch)


def _compare_table(connection: Connection, again: Connection, kind: str, *, is_all: bool) -> Iterator[str]:
    table = f"message_{kind}"
    for each in (connection, again):
        each.execute(SQL.drop_terms)
        each.execute(_fill_in(SQL.create_terms, table))
    differing = sorted(_find_differing(connection, again, table))
    if differing:
        named = ", ".join(map(str, differing[:_MOST_NAMED])) + (", …" if len(differing) > _MOST_NAMED else "")
        yield f"{table} does not list {len(differing)} {_ROWS[kind]} by the words that are stored: {named}"
    elif is_all and connection.execute(getattr(SQL, f"is_astray_{kind}")).fetchone() is not None:
        yield f"{table} lists words of messages that are not there"
    elif is_all and _totals(connection, table) != _totals(again, table):
        yield f"{table} counts other words than there are"


def _totals(connection: Connection, table: str) -> bytes:
    """Return the numbers of rows and words as FTS5 counts them; zeros at the end may be left out."""
    row = connection.execute(_fill_in(SQL.totals, table)).fetchone()
    return bytes(row[0]).rstrip(b"\0") if row is not None and isinstance(row[0], bytes) else b""


def _fill_in(sql: str, table: str) -> str:
    return sql.replace("{index}", table)


def _find_differing(connection: Connection, again: Connection, table: str) -> set[int]:
    """Return the compared rows whose words or lengths differ between the two indexes."""
    found, wanted = ({row[0]: row[1:] for row in each.execute(SQL.terms).fetchall()} for each in (connection, again))
    differing: set[int] = set()
    for term in found.keys() | wanted.keys():
        if found.get(term) != wanted.get(term):
            one, other = (_messages_of(each, str(term)) for each in (connection, again))
            differing |= one ^ other
    there, right = ({*each.execute(_fill_in(SQL.lengths, table)).fetchall()} for each in (connection, again))
    return differing | {int(str(row[0])) for row in there ^ right}


def _messages_of(connection: Connection, term: str) -> set[int]:
    return {int(str(row[0])) for row in connection.execute(SQL.messages_of_term, (term,))}


def describe_sample(connection: Connection, *, most_chars: int) -> str:
    """Return which part of the messages a check compares; empty if it compares all."""
    chosen, is_all = choose_messages(connection, most_chars=most_chars)
    if is_all:
        return ""
    ((total,),) = connection.execute(SQL.total).fetchall()
    return f"the search index is compared for {len(chosen) if most_chars else 20:,} of {total:,} messages"
