"""The check of the search index: its own integrity check, and a comparison with the stored messages.

The messages are indexed again in memory, and both indexes must list the same tokens for the same messages. So damage
that leaves an index readable is found as well. The list of words must have all words of the messages; it may have more
until it is swept.
"""

import random
from collections.abc import Collection, Iterator
from pathlib import Path

from wellkept.core.errors import StorageError
from wellkept.sessions.search.analysis import TALK_CHARACTERS, spell
from wellkept.sessions.sqlite import index
from wellkept.storage.connections import explain_sql_errors, statements
from wellkept.storage.sqlite import Connection
from wellkept.storage.versions import build_reference

SQL = statements("wellkept.sessions.sqlite", "index_check.sql")
QUICK_CHARS = 4_000_000
"""Text that the doctor indexes again: one or two seconds. Of more text, a sample is compared."""
REPAIR_CHARS = 60_000_000
"""The same for a repair, which may take longer; the index in memory takes about as much room as the text."""
_BATCH = 1_000
_MOST_NAMED = 5
_TABLES = {"message_words": "word index", index.SPELLINGS: "list of words"}


def find_faults(connection: Connection, *, most_chars: int = QUICK_CHARS, without: Collection[int] = ()) -> list[str]:
    """Return what is wrong with the index, each as one sentence; empty when it agrees with the rows.

    Messages that wait to be indexed are left out.

    `most_chars` of text are compared, 0 for none. `without` are messages whose text is damaged: their words are
    others than those that were indexed.
    """
    there = {str(row[0]) for row in connection.execute(SQL.existing)}
    wrong = [f"the {name} is missing" for table, name in _TABLES.items() if table not in there]
    wrong += _check_form(connection) if "message_words" in there else []
    if wrong:
        return wrong
    for sql, words in (
        (SQL.missing, "messages are not in the word index"),
        (SQL.left_over, "rows of the word index have no message"),
    ):
        (number,) = next(iter(connection.execute(sql)))
        if number:
            wrong.append(f"{number} {words}")
    if wrong or not most_chars:
        return wrong
    waiting = {int(str(number)) for (number,) in connection.execute(SQL.waiting)}
    return _compare(connection, most_chars, waiting.union(without))


def _check_form(connection: Connection) -> list[str]:
    if connection.readonly("main"):
        return []  # SQLite's integrity check covers the index too; this one is a statement that writes
    try:
        with explain_sql_errors(Path(connection.filename)):
            connection.execute(SQL.check_words)
    except StorageError as error:
        return [f"the word index is damaged: {error.message}"]
    return []


def choose_messages(connection: Connection, *, most_chars: int) -> tuple[list[int], bool]:
    """Return the messages to compare, and whether these are all: very long ones, then others in any order.

    Very long ones come first, because older versions indexed only their beginning.
    """
    sizes = {int(str(number)): int(str(chars or 0)) for number, chars in connection.execute(SQL.sizes)}
    order = list(sizes)
    if sum(sizes.values()) > most_chars:
        random.shuffle(order)  # a sample of its own in every check, so that each message has its turn
        order.sort(key=lambda number: sizes[number] <= TALK_CHARACTERS)
    chosen: list[int] = []
    room = most_chars
    for number in order:
        if room < sizes[number] and chosen:
            return sorted(chosen), False
        chosen.append(number)
        room -= sizes[number]
    return sorted(chosen), True


def _compare(connection: Connection, most_chars: int, without: Collection[int]) -> list[str]:
    chosen, is_all = choose_messages(connection, most_chars=most_chars)
    listed = [(number,) for number in chosen if number not in without]
    again = build_reference((), 0)
    try:
        index.create(again)
        for each in (connection, again):
            each.execute(SQL.create_compared)
            each.execute(SQL.clear_compared)
            each.executemany(SQL.add_compared, listed)
        unlisted = _index_again(connection, again)
        wrong = [f"the list of words lacks {unlisted} words of stored messages"] if unlisted else []
        return [*wrong, *_compare_words(connection, again, is_all=is_all and not without)]
    finally:
        again.close()
        for sql in (SQL.drop_terms, SQL.drop_compared):
            connection.execute(sql)


def _index_again(connection: Connection, again: Connection) -> int:
    """Index the compared messages in memory; return how many of their words are missing in the list of words."""
    (below,) = connection.execute(SQL.missing_below).fetchone() or (0,)
    words: set[str] = set()
    last = -(2**63)
    with again:
        while read := index.texts(connection.execute(SQL.texts_of, (last, _BATCH)).fetchall()):
            last = read[-1].message_id
            index.add_texts(again, read)
            due = [spell(text) for text in read if text.message_id >= int(str(below))]
            words |= index.collect(connection, due)
    return len(index.find_missing(connection, words))


def _compare_words(connection: Connection, again: Connection, *, is_all: bool) -> Iterator[str]:
    for each in (connection, again):
        each.execute(SQL.drop_terms)
        each.execute(SQL.create_terms)
    differing = sorted(_find_differing(connection, again))
    if differing:
        named = ", ".join(map(str, differing[:_MOST_NAMED])) + (", …" if len(differing) > _MOST_NAMED else "")
        yield f"message_words does not list {len(differing)} messages by the words that are stored: {named}"
    elif is_all and connection.execute(SQL.is_astray).fetchone() is not None:
        yield "message_words lists words of messages that are not there"
    elif is_all and _totals(connection) != _totals(again):
        yield "message_words counts other words than there are"


def _totals(connection: Connection) -> bytes:
    """Return the numbers of rows and words as FTS5 counts them; zeros at the end may be left out."""
    row = connection.execute(SQL.totals).fetchone()
    return bytes(row[0]).rstrip(b"\0") if row is not None and isinstance(row[0], bytes) else b""


def _find_differing(connection: Connection, again: Connection) -> set[int]:
    """Return the compared messages whose tokens or lengths differ between the two indexes."""
    found, wanted = ({row[0]: row[1:] for row in each.execute(SQL.terms).fetchall()} for each in (connection, again))
    differing: set[int] = set()
    for term in found.keys() | wanted.keys():
        if found.get(term) != wanted.get(term):
            one, other = (_messages_of(each, str(term)) for each in (connection, again))
            differing |= one ^ other
    there, right = ({*each.execute(SQL.lengths).fetchall()} for each in (connection, again))
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
