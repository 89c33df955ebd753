"""The index: derived, brought up to date in batches, checked, free of what was removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.core.search import SearchRequest
from kept.sessions.sqlite import index, index_check, indexing, segments
from kept.sessions.sqlite.postings import find
from kept.storage.sqlite import Database, open_state


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = open_state(tmp_path / "state.db")
    database.connection.execute("INSERT INTO sessions (id, source, user_id, started) VALUES ('s', 'cli', 'owner', 1)")
    index.make_ready(database.connection)
    yield database
    database.close()


def fill(database: Database, texts: list[str], *, start: int = 1) -> None:
    database.connection.executemany(
        "INSERT INTO messages (id, session_id, role, content, timestamp, indexed_on_write) VALUES (?, 's', 'user', ?, 1, 1)",
        [(start + place, text) for place, text in enumerate(texts)],
    )


def hits(database: Database, query: str) -> set[int]:
    found = find(database.connection, SearchRequest(query, limit=50), now=2.0).messages
    return {int(hit.message_id) for hit in found if hit.parts["words"]}


def ranges(database: Database) -> list[tuple[int, int]]:
    return [(one.first, one.size) for one in index.read_segments(database.connection)]


def numbered(count: int) -> list[str]:
    return [f"word{number} in message {number}" for number in range(1, count + 1)]


def test_a_message_is_found_before_and_after_it_is_indexed(database: Database) -> None:
    """What no segment covers is read from its row; the check is content with both."""
    fill(database, numbered(300))
    assert ranges(database) == []
    assert hits(database, "word7") == {7}

    assert indexing.catch_up(database, seconds=60) > 0

    assert ranges(database)[0] == (0, 256)
    assert [hits(database, f"word{number}") for number in (7, 255, 256, 300)] == [{7}, {255}, {256}, {300}]
    assert index_check.find_faults(database.connection) == []
    assert indexing.catch_up(database, seconds=60) == 0


def test_segments_are_merged_as_they_fill(database: Database) -> None:
    """Stored one by one, messages end in few segments, each of which begins at a multiple of its size."""
    for number in range(1, 1_100):
        fill(database, [f"word{number}"], start=number)
        if number % 7 == 0:
            indexing.catch_up(database, seconds=60)

    assert ranges(database) == [(0, 1_024), (1_024, 64)]
    assert hits(database, "word512") == {512}
    assert index_check.find_faults(database.connection) == []


def test_ids_far_apart_cost_no_more_than_others(database: Database) -> None:
    """An id may be any number; between two messages there may be nothing."""
    fill(database, numbered(40))
    fill(database, ["alone on an island", *numbered(40)], start=10**12)

    indexing.catch_up(database, seconds=60)

    assert hits(database, "island") == {10**12}
    assert hits(database, "word7") == {7, 10**12 + 7}
    assert index_check.find_faults(database.connection) == []


@pytest.mark.parametrize("is_indexed_before", [False, True])
def test_a_changed_message_is_found_by_its_new_text_only(database: Database, is_indexed_before: bool) -> None:
    """The change is seen at once, and the next catch-up applies it to the segment."""
    fill(database, numbered(100))
    if is_indexed_before:
        indexing.catch_up(database, seconds=60)
    database.connection.execute("UPDATE messages SET content = 'later text' WHERE id = 2")

    for _ in range(2):
        assert 2 not in hits(database, "word2")
        assert hits(database, "later") == {2}
        indexing.catch_up(database, seconds=60)
    assert index_check.find_faults(database.connection) == []


def test_the_newest_messages_are_indexed_first(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an old file is brought over, recent messages are found; how many are missing is told."""
    monkeypatch.setattr(segments, "LARGEST_BUILD", 64)
    monkeypatch.setattr("kept.sessions.sqlite.postings._LOOSE_CHARACTERS", 100)
    fill(database, numbered(400))
    indexing.catch_up(database, seconds=0)

    with indexing._Indexing(database, sink=lambda _: None, clock=indexing.SystemClock()) as work:
        work.step()
        work.step()

    found = find(database.connection, SearchRequest("word390"), now=2.0)
    assert [hit.message_id for hit in found.messages if hit.parts["words"]] == [390]
    assert 300 < found.unchecked < 400
    assert find(database.connection, SearchRequest("word3"), now=2.0).unchecked == found.unchecked
    indexing.catch_up(database, seconds=60)
    assert hits(database, "word3") == {3}


def test_the_check_counts_what_is_missing_and_what_is_left_over(database: Database) -> None:
    """Rows without an entry and entries without a row are both told."""
    fill(database, numbered(64))
    indexing.catch_up(database, seconds=60)
    database.connection.execute("DROP TRIGGER messages_removed")
    database.connection.execute("DELETE FROM messages WHERE id = 1")
    fill(database, ["here"], start=0)

    wrong = " ".join(index_check.find_faults(database.connection))

    assert "1 messages are not in the index" in wrong
    assert "1 entries of the index have no message" in wrong


@pytest.mark.parametrize("table", index.TABLES)
def test_a_missing_table_is_told(database: Database, table: str) -> None:
    """The check does not fail where a table is gone."""
    database.connection.execute(f"DROP TABLE {table}")

    assert table in index_check.find_faults(database.connection)[0]


def test_what_was_removed_leaves_no_bytes(database: Database) -> None:
    """Lists, vocabulary and file hold nothing of a message that is gone."""
    fill(database, [*numbered(100), "unspeakablesecret here"])
    fill(database, numbered(30), start=102)
    indexing.catch_up(database, seconds=60)
    (before,) = database.connection.execute("SELECT count(*) FROM message_terms").fetchone()
    database.connection.execute("DELETE FROM messages WHERE id = 101")

    indexing.catch_up(database, seconds=60)

    (after,) = database.connection.execute("SELECT count(*) FROM message_terms").fetchone()
    assert int(before) - int(after) == 2  # "here" stood in no other message either
    assert index_check.find_faults(database.connection) == []
    database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert b"peakablesecre" not in Path(database.path).read_bytes()


def test_what_a_killed_process_left_is_removed(database: Database) -> None:
    """A segment that was not completed is read by no search, and goes at the next opportunity."""
    fill(database, numbered(40))
    ((number,),) = database.connection.execute(index.SQL.begin_segment, (0, 16, index.VERSION)).fetchall()
    database.connection.execute(index.SQL.add_list, (int(str(number)) << 40, b"\x01\x00"))
    assert hits(database, "word7") == {7}

    indexing.catch_up(database, seconds=60)

    assert database.connection.execute("SELECT count(*) FROM message_segments WHERE state <> 'active'").fetchall() == [
        (0,)
    ]
    assert index_check.find_faults(database.connection) == []


def test_segments_of_an_older_analysis_are_replaced_one_by_one(database: Database) -> None:
    """They answer until then; the first segment has no message 0."""
    fill(database, numbered(40))
    indexing.catch_up(database, seconds=60)
    database.connection.execute("UPDATE message_segments SET version = 3")
    assert hits(database, "word7") == {7}

    assert indexing.catch_up(database, seconds=60) == 31

    assert {one.version for one in index.read_segments(database.connection)} == {index.VERSION}
    assert hits(database, "word7") == {7}


def test_another_process_that_works_on_the_index_is_not_disturbed(database: Database) -> None:
    """Its lease is respected; searches read the rows meanwhile."""
    fill(database, numbered(40))
    with indexing._Indexing(database, sink=lambda _: None, clock=indexing.SystemClock()):
        assert indexing.catch_up(database, seconds=60) == 0
        assert hits(database, "word7") == {7}
