"""The index: derived, checked, rebuilt."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from wellkept.core.search import SearchRequest
from wellkept.core.text import WORD
from wellkept.sessions.search.analysis import IndexedText
from wellkept.sessions.search.candidates import choose_budget
from wellkept.sessions.sqlite import index, index_check
from wellkept.sessions.sqlite.postings import SqlitePostings, find
from wellkept.storage.sqlite import Connection, Database, open_state


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_state(tmp_path / "state.db")
    opened.connection.execute("INSERT INTO sessions (id, source, user_id, started) VALUES ('s', 'cli', 'owner', 1)")
    index.create(opened.connection)
    yield opened
    opened.close()


@pytest.fixture
def connection(database: Database) -> Connection:
    return database.connection


def store_texts(connection: Connection, texts: Iterable[str]) -> None:
    """Store and index a message for each text, numbered from 1 on."""
    rows = [IndexedText(number, text) for number, text in enumerate(texts, start=1)]
    connection.executemany(
        "INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (?, 's', 'user', ?, 1)",
        [(row.message_id, row.text) for row in rows],
    )
    index.add_texts(connection, rows)


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


def test_a_part_of_a_word_is_found_behind_many_messages_that_have_its_letters_in_other_words(
    connection: Connection,
) -> None:
    """Two newer words have all three-letter parts of it between them."""
    store_texts(connection, ["a bruzofon", *("an uzor" if number % 2 else "an ofog" for number in range(2_000))])

    assert SqlitePostings(connection).newest_containing("uzofo", 160) == [1]


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("arolin", [1, 2]),  # who speaks, and who is spoken about
        ("nción", [3]),
        ("ncion", []),
        ("ßenba", [4]),
        ("ept20", [5]),  # the index takes the sign as a part of the word
        ("ploys", [6]),
        ("обак", [8]),
        ("ardcomp", [9]),
        ("ाचा", [10]),
    ],
)
def test_a_part_of_a_word_is_found_as_it_is_spelled(connection: Connection, part: str, found: list[int]) -> None:
    """Not by its stem: "ploys" is in "deploys", not in "deployed"."""
    texts = [
        "Caroline: hello",
        "I met Caroline",
        "Una CANCIÓN",
        "Die Straßenbahn",
        "©kept2026",
        "it deploys",
        "deployed",
    ]
    store_texts(connection, [*texts, "две собаки", "class BoardComputer", "यह समाचार है"])

    assert sorted(SqlitePostings(connection).newest_containing(part, 160)) == found


def test_letters_that_many_words_contain_find_the_newest_messages(connection: Connection) -> None:
    """Whether these are among the newest or all of them are old."""
    words = [f"x{number}quokka{number}y" for number in range(1_200)]
    store_texts(connection, [*words, *["nothing of it"] * 2_500])
    postings = SqlitePostings(connection)

    assert postings.newest_containing("quokka", 30) == [*range(1_200, 1_170, -1)]
    assert postings.newest_containing("nothi", 2) == [3_700, 3_699]


def test_a_part_of_many_words_is_found_where_few_messages_of_a_list_are_considered(connection: Connection) -> None:
    """The marks of short messages, by which those of a common word are chosen, know whole words only."""
    store_texts(connection, [f"x{number}quokka{number}y" for number in range(300)])
    request = SearchRequest("quokka", limit=10)
    budget = choose_budget(10, 20_000, [160], is_explicit=False)._replace(per_list=50)

    assert len(find(connection, request, now=2.0, budget=budget).messages) == 10


def test_merging_and_sweeping_leave_no_bytes_of_what_was_removed(database: Database) -> None:
    """Nothing in the index holds the words of a removed message, not even a form of a word that others use."""
    connection = database.connection
    store_texts(connection, [*(f"word{number} walks here" for number in range(30)), "unspeakablesecret walking here"])
    connection.execute("DELETE FROM messages WHERE id = 31")
    index.SqliteIndex(connection).remove([31])

    steps, pages = 0, -500
    while index.merge(connection, pages):
        pages = 500
        steps += 1
        assert steps < 100
    assert index.may_have_unused(connection)

    assert index.remove_unused(database) == 2
    assert not index.may_have_unused(connection)
    for table, column in (("message_words_data", "block"), ("message_spellings", "words")):
        for part in ("peakablesecre", "walking"):
            sql = f"SELECT count(*) FROM {table} WHERE instr(CAST({column} AS BLOB), CAST(? AS BLOB)) > 0"
            assert connection.execute(sql, (part,)).fetchone() == (0,)
    assert SqlitePostings(connection).newest_containing("alks", 100) == [*range(30, 0, -1)]
    assert index_check.find_faults(connection) == []


def test_a_sweep_keeps_the_words_of_messages_that_come_meanwhile(database: Database) -> None:
    """A word that is stored after its part of the table was read is looked up before it is removed."""
    connection = database.connection
    store_texts(connection, ["an old word"])
    read = connection.execute

    class Late:
        """Stores a message as soon as all texts were read."""

        def __init__(self) -> None:
            self.connection = connection

        reading = staticmethod(database.reading)

        @staticmethod
        def writing() -> object:
            if connection.execute("SELECT 1 FROM messages WHERE id = 2").fetchone() is None:
                read("INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (2, 's', 'user', '', 1)")
                read("UPDATE messages SET content = 'Dora: a numbat' WHERE id = 2")
                index.add_texts(connection, [IndexedText(2, "Dora: a numbat")])
            return database.writing()

    assert index.remove_unused(Late()) == 0  # type: ignore[arg-type]
    assert SqlitePostings(connection).newest_containing("umba", 5) == [2]
    assert SqlitePostings(connection).newest_containing("dor", 5) == [2]


def test_a_word_that_is_missing_in_the_list_is_told(connection: Connection) -> None:
    """Without it, parts of the word would not be found."""
    store_texts(connection, ["the zebrafish", "another"])
    connection.execute("UPDATE message_spellings SET words = replace(words, 'zebrafish', 'zebrafisk')")
    connection.execute("DELETE FROM index_queue")

    assert index_check.find_faults(connection) == ["the list of words lacks 1 words of stored messages"]


def test_no_word_is_more_than_one_token_of_the_index(connection: Connection) -> None:
    """FTS5 would take two tokens as a phrase, which this index does not know."""
    words = [f"ab{chr(code)}cd" for code in range(0x80, 0x20000)]
    tokens = SqlitePostings(connection).tokens

    assert [word for word in words if WORD.fullmatch(word) and len(tokens(word)) > 1] == []
    for currency in "৲৳৻૰૱௹෴":
        assert hits(connection, f"ab{currency}cd") == set()
