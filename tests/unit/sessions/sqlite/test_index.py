"""Both indexes: derived, checked, rebuilt."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.core.search import SearchRequest
from kept.sessions.search.analysis import IndexedText
from kept.sessions.sqlite import index, index_check
from kept.sessions.sqlite.postings import SqlitePostings, find
from kept.storage.sqlite import Connection, open_state


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    database = open_state(tmp_path / "state.db")
    database.connection.execute("INSERT INTO sessions (id, source, user_id, started) VALUES ('s', 'cli', 'owner', 1)")
    index.create(database.connection)
    yield database.connection
    database.close()


def fill(connection: Connection, count: int) -> list[IndexedText]:
    rows = [IndexedText(number, f"word{number} in message {number}") for number in range(1, count + 1)]
    for row in rows:
        connection.execute(
            "INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (?, 's', 'user', ?, 1)",
            (row.message_id, row.text),
        )
    return rows


def hits(connection: Connection, query: str) -> set[int]:
    return {
        int(hit.message_id)
        for hit in find(connection, SearchRequest(query, limit=50), now=2.0).messages
        if hit.parts["words"]
    }


def test_a_sound_index_has_nothing_wrong(connection: Connection) -> None:
    """Added rows are found and the check is content."""
    index.add_texts(connection, fill(connection, 20))

    assert index_check.find_faults(connection) == []
    assert hits(connection, "word7") == {7}


def test_adding_again_replaces(connection: Connection) -> None:
    """A message that is indexed twice is found by its newest text only."""
    fill(connection, 3)
    index.add_texts(connection, [IndexedText(2, "earlier text")])
    index.add_texts(connection, [IndexedText(2, "later text")])

    assert hits(connection, "earlier") == set()
    assert hits(connection, "later") == {2}


def test_the_check_counts_what_is_missing_and_what_is_left_over(connection: Connection) -> None:
    """Rows without index and index without rows are both told."""
    rows = fill(connection, 5)
    index.add_texts(connection, rows[:3])
    connection.execute("DELETE FROM messages WHERE id = 1")
    assert index_check.find_faults(connection) == []  # all of it waits in the queue
    connection.execute("DELETE FROM index_queue")

    wrong = " ".join(index_check.find_faults(connection))

    assert "2 messages are not in the word index" in wrong
    assert "1 rows of the word index have no message" in wrong


def test_a_missing_table_is_told(connection: Connection) -> None:
    """The check does not fail where an index is gone."""
    index.drop(connection)

    assert index_check.find_faults(connection)


def test_a_part_of_a_word_is_found_behind_many_blocks_that_only_have_its_trigrams(connection: Connection) -> None:
    """Newer neighbours have the trigrams of it between them, and no message of theirs has all."""
    texts = ["a bruzofon", *("an uzor" if number % 2 else "an ofog" for number in range(2_000))]
    rows = [IndexedText(number, text) for number, text in enumerate(texts, start=1)]
    connection.executemany(
        "INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (?, 's', 'user', ?, 1)",
        [(row.message_id, row.text) for row in rows],
    )
    index.add_texts(connection, rows)

    assert SqlitePostings(connection).newest_containing("uzofo", 160) == [1]


def test_merging_ends_and_leaves_no_bytes_of_what_was_removed(connection: Connection) -> None:
    """After the merges no page of either index holds the words of a removed message."""
    rows = [*fill(connection, 30), IndexedText(31, "unspeakablesecret here")]
    for row in rows:
        index.add_texts(connection, [row])
    index.SqliteIndex(connection).remove([31])

    for sql in index.MERGES:
        steps = 0
        pages = -500
        while index.merge(connection, sql, pages):
            pages = 500
            steps += 1
            assert steps < 100

    for table in ("message_words_data", "message_trigrams_data"):
        ((count,),) = connection.execute(
            f"SELECT count(*) FROM {table} WHERE instr(block, CAST('peakablesecre' AS BLOB)) > 0"
        ).fetchall()
        assert count == 0
