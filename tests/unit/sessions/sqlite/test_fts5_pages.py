"""Lists decoded from the pages of the word index: what FTS5 says, or no answer."""

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.sessions.search.postings import Word
from wellkept.sessions.sqlite import index
from wellkept.sessions.sqlite.fts5 import IndexPages
from wellkept.sessions.sqlite.postings import SqlitePostings
from wellkept.storage.sqlite import Connection, open_state

WORDS = ("alpha", "alphabet", "beta", "gamma", "übel", "数据")


@contextmanager
def open_index() -> Iterator[Connection]:
    with TemporaryDirectory() as folder:
        database = open_state(Path(folder) / "state.db")
        index.create(database.connection)
        yield database.connection
        database.close()


@pytest.fixture
def connection() -> Iterator[Connection]:
    with open_index() as connection:
        yield connection


def add(connection: Connection, rows: Iterable[tuple[int, str]]) -> None:
    with connection:
        for number, words in rows:
            connection.execute("INSERT OR REPLACE INTO message_words (rowid, words) VALUES (?, ?)", (number, words))


def ask(connection: Connection, word: str) -> list[int]:
    """Return what FTS5 itself answers."""
    query = "SELECT json_group_array(rowid) FROM message_words WHERE message_words MATCH ?"
    found: list[int] = json.loads(connection.execute(query, (f'"{word}"',)).fetchone()[0])
    return found


def assert_same(connection: Connection, words: Iterable[str]) -> None:
    pages, stem = IndexPages(connection), SqlitePostings(connection).stem
    for word in words:
        packed, expected = pages.find(stem(word)), ask(connection, word)
        assert packed is not None
        assert packed.ids() == expected
        assert packed.count() == len(expected)
        assert packed.ids(7) == expected[-7:]


Step = tuple[str, list[tuple[int, int]]]
steps = st.lists(
    st.tuples(
        st.sampled_from(("add", "add", "delete", "merge")),
        st.lists(st.tuples(st.integers(1, 60) | st.integers(1, 2**40), st.integers(1, 63)), min_size=1, max_size=40),
    ),
    max_size=12,
)


@given(steps)
def test_pages_hold_what_fts5_answers(taken: list[Step]) -> None:
    """Whatever was added, replaced, deleted and merged, the decoded lists are those of FTS5."""
    with open_index() as connection:
        for kind, numbers in taken:
            if kind == "add":
                texts = [
                    (number, " ".join(word for bit, word in enumerate(WORDS) if held >> bit & 1))
                    for number, held in numbers
                ]
                add(connection, texts)
            elif kind == "delete":
                for number, _ in numbers:
                    connection.execute("DELETE FROM message_words WHERE rowid = ?", (number,))
            else:
                connection.execute(
                    "INSERT INTO message_words (message_words, rank) VALUES ('merge', ?)", numbers[0][1:]
                )

        assert_same(connection, WORDS)


def test_a_list_goes_on_over_many_pages(connection: Connection) -> None:
    """Near and far ids of a common word are decoded, in several segments and while a merge is not finished."""
    chance = random.Random(5)
    number = 0
    for _ in range(6):
        rows = []
        for _ in range(3_000):
            number += chance.choice((1, 1, 2, 127, 128, 129, 256, 16_383, 16_384, 2**21))
            rows.append((number, f"common {'often' if chance.random() < 0.5 else ''} w{chance.randrange(4_000)}"))
        add(connection, rows)
    connection.execute("INSERT INTO message_words (message_words, rank) VALUES ('merge', -12)")

    assert_same(connection, ("common", "often", "w17", "w3999", "absent"))


def test_deleted_messages_are_left_out(connection: Connection) -> None:
    """Ids that were deleted after their segment was written are in none of its lists, however large they are."""
    add(connection, ((number, "common") for number in range(1, 4_001)))
    add(connection, ((2**40 + number, "common") for number in range(200)))
    with connection:
        for number in (1, 77, 3_999, 2**40 + 5):
            connection.execute("DELETE FROM message_words WHERE rowid = ?", (number,))

    assert_same(connection, ("common",))


def test_a_very_long_word_has_no_answer(connection: Connection) -> None:
    """Words whose length takes two bytes are left to FTS5."""
    word = "a" * 200
    add(connection, [(1, word)])

    assert IndexPages(connection).find(word) is None
    assert SqlitePostings(connection).ids(Word(word)) == [1]


def test_a_common_word_is_found_while_it_is_written(connection: Connection) -> None:
    """Within a transaction, what is not on a page yet is found as well."""
    add(connection, ((number, "common") for number in range(1, 3_001)))
    assert SqlitePostings(connection).frequency("common") == 3_000
    with connection:
        connection.execute("INSERT INTO message_words (rowid, words) VALUES (3001, 'common')")

        assert SqlitePostings(connection).ids(Word("common")) == list(range(1, 3_002))
        assert SqlitePostings(connection).newest_ids(Word("common"), 2_500)[-1] == 3_001


def test_a_common_word_is_counted_and_listed(connection: Connection) -> None:
    """The lists of common words, which are decoded, are as those of rare ones, which are not."""
    add(connection, ((number, "common" if number % 3 else "rare") for number in range(1, 6_001)))
    postings = SqlitePostings(connection)

    assert postings.frequency("common") == 4_000
    assert postings.ids(Word("common")) == ask(connection, "common")
    assert postings.newest_ids(Word("common"), 2_500) == ask(connection, "common")[-2_500:]
    assert postings.newest_ids(Word("common"), 4, below=100) == [94, 95, 97, 98]


@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_damaged_pages_end_in_no_answer(chance: random.Random, kind: int) -> None:
    """Of damaged pages there is a list or no answer, but no error of Python and no endless loop."""
    with open_index() as connection:
        add(connection, ((number, f"common w{number % 50}") for number in range(1, 3_000)))
        pages = connection.execute("SELECT id, block FROM message_words_data").fetchall()
        number, block = chance.choice(pages)
        damaged = bytearray(block)
        if kind == 0:
            del damaged[chance.randrange(len(damaged)) :]
        else:
            for _ in range(kind):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        connection.execute("UPDATE message_words_data SET block = ? WHERE id = ?", (bytes(damaged), number))

        for word in ("common", "w7", "w49"):
            packed = IndexPages(connection).find(word)
            assert packed is None or packed.ids() is not None


@pytest.mark.parametrize("block", [None, "text", b"", b"\0\0\0\0\xff\0\0\1\x7f"])
def test_a_damaged_record_of_segments_ends_in_no_answer(connection: Connection, block: bytes | None) -> None:
    """Without the record of segments no list is guessed."""
    add(connection, [(1, "common")])
    connection.execute("UPDATE message_words_data SET block = ? WHERE id = 10", (block,))

    assert IndexPages(connection).find("common") is None
