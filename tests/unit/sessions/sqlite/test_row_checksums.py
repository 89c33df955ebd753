"""Checksums of sessions, usage and all other rows: damage is recognised and named, and nothing else is."""

from contextlib import closing

import apsw
import pytest

from wellkept.core.clock import SystemClock
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session, Usage
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite import checksums, index_check
from wellkept.sessions.sqlite.check import check_file, describe_limits
from wellkept.sessions.sqlite.recovery import DERIVED
from wellkept.sessions.sqlite.repair import Repair
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage import row_checksums
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database, open_state, state_migrations

SESSION = SessionId("20260101_120000_aaaaaa")
OTHERWISE = {
    "messages": "computed with the row",
    "blobs": "a hash",
    "prompts": "a hash",
    "sources": "a hash",
    "blob_uses": "an index",
}


def said(text):
    return NewMessage(Message(Role.USER, text), 1.7e9, Origin.PERSON)


@pytest.fixture
def path(tmp_path):
    """A closed store with one session, two messages and one counted call."""
    store = SqliteSessionStore(tmp_path / "state.db")
    store.create(Session(SESSION, "cli", 1.7e9, title="Walrus", project="zoo"))
    store.append(SESSION, [said("the walrus keeps its tusk"), said("a healthy penguin")])
    store.add_usage(SESSION, task="chat", model="m", usage=Usage(10, 20, 0, 0), cost=0.5)
    store.close()
    return tmp_path / "state.db"


def damage(path, sql):
    """Change a value as a flipped bit would: neither the checksum nor an index follows."""
    connection = apsw.Connection(str(path))
    triggers = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    definitions = connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for (name,) in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(sql)
    for (definition,) in definitions:
        connection.execute(definition)
    connection.close()


def findings(path):
    return [finding.what for finding in check_file(path, clock=SystemClock())]


def test_every_table_is_covered(path):
    """A table of the shared file has checksums, or one of the known reasons not to."""
    with closing(open_state(path)) as database:
        names = {
            str(row[0]) for row in database.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        }
        covered = set(row_checksums.find_covered(database.connection))
        assert row_checksums.count_missing(database.connection) == 0

    assert {name for name in names if not name.startswith(DERIVED)} == covered | OTHERWISE.keys()


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("UPDATE sessions SET project = 'zop'", f"sessions {SESSION}"),
        ("UPDATE sessions SET archived = 1", f"sessions {SESSION}"),
        ("UPDATE usage SET output_tokens = 21", f"usage owner, {SESSION}"),
        ("UPDATE usage SET cost = NULL", f"usage owner, {SESSION}"),
        ("UPDATE state_meta SET value = '2' WHERE key = 'index_version'", "state_meta index_version"),
        ("UPDATE sessions SET message_count = 3", f"session {SESSION} has 2 messages and counts 3"),
    ],
)
def test_a_changed_value_is_named(path, sql, named):
    """The check names the row, and so does a repair."""
    assert findings(path) == []

    damage(path, sql)

    assert any(named in what for what in findings(path)), findings(path)
    report = Repair(path, SessionSettings(), clock=SystemClock(), sink=print).run()
    assert any(named in finding.what for finding in report.found)
    assert all(finding.is_lost for finding in report.left)


def test_a_key_of_bytes_is_named_in_hexadecimal(path):
    """A flipped bit in the key itself: the row is named by the key that can be read."""
    with closing(open_state(path)) as database, database.writing() as connection:
        connection.execute("INSERT INTO captured_messages (key, message_id, mark) VALUES (x'82ff', 1, 5)")

    damage(path, "UPDATE captured_messages SET key = x'83ff'")

    assert findings(path) == ["a row of captured_messages is damaged: captured_messages 83ff"]


def test_a_damaged_row_stays_damaged_when_it_is_used(path):
    """Counting another call must not make the wrong number a right one."""
    damage(path, "UPDATE usage SET output_tokens = 21")

    with closing(SqliteSessionStore(path)) as store:
        store.add_usage(SESSION, task="chat", model="m", usage=Usage(10, 20, 0, 0), cost=0.5)

    assert any("usage" in what for what in findings(path))


def test_what_another_program_changes_is_not_damaged(path):
    """It has no checksum until kept writes the row again, and the check says so."""
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE sessions SET title = 'Seal'")
    connection.close()

    assert findings(path) == []
    assert describe_limits(path) == [
        "1 rows have no checksum yet, because an older version or another program wrote them"
    ]
    with closing(SqliteSessionStore(path)) as store:
        store.rename(SESSION, "Otter")
    assert describe_limits(path) == []


def test_an_older_file_gets_its_checksums_when_it_is_closed(tmp_path):
    """Its rows count as rows without a checksum until then."""
    path = tmp_path / "state.db"
    old = Database(path, application_id=APPLICATION_ID, migrations=state_migrations()[:9])
    with old.writing() as connection:
        connection.execute("INSERT INTO sessions (id, source, started) VALUES ('old', 'cli', 1.0)")
        connection.execute("INSERT INTO usage (session_id, day, model, task) VALUES ('old', '2026-01-01', 'm', 'chat')")
    old.close()
    open_state(path).close()
    assert describe_limits(path)[0].startswith("3 rows have no checksum yet")  # and the note that says so

    with closing(open_state(path)) as database:
        assert checksums.fill_missing(database, seconds=5) == 3

    assert (findings(path), describe_limits(path)) == ([], [])


def test_a_new_column_leaves_the_checksums_as_they_are():
    """A migration may add a column that is empty in old rows."""
    row = {"session_id": "a", "cost": 0.5, "checksum": 1}

    assert row_checksums.compute("usage", row) == row_checksums.compute("usage", row | {"later": None})
    assert row_checksums.compute("usage", row) == 3_876_286_645


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT OR REPLACE INTO message_words (rowid, words, marks) SELECT id, 'the walrus keeps its desk', '' FROM messages LIMIT 1",
        "UPDATE message_words_docsize SET sz = x'0500' WHERE id = 1",
        "UPDATE message_spellings SET words = replace(words, char(10), 'x' || char(10))",
    ],
)
def test_an_index_that_differs_from_the_messages_is_found_and_rebuilt(path, sql):
    """It is well formed, so that no check of its form sees it."""
    damage(path, sql)

    named = "the list of words lacks" if "spellings" in sql else "does not list 1 messages by the"
    assert any(named in what for what in findings(path))

    report = Repair(path, SessionSettings(), clock=SystemClock(), sink=lambda event: None).run()
    assert (report.left, findings(path)) == ([], [])


def test_of_much_text_a_sample_is_compared(path):
    """Very long messages are always in it, and the check says how many were compared."""
    with closing(SqliteSessionStore(path)) as store:
        store.append(SESSION, [said(f"number {number} " * 40) for number in range(30)])
        (long,) = store.append(SESSION, [said("word " * 50_000)])
        connection = store.database.connection

        chosen, is_all = index_check.choose_messages(connection, most_chars=251_000)

        assert long in chosen
        assert (is_all, 1 < len(chosen) < 20) == (False, True)
        assert "of 33 messages" in index_check.describe_sample(connection, most_chars=251_000)
        assert index_check.find_faults(connection, most_chars=1_000) == []


def test_rows_that_change_around_an_append_get_their_checksums(tmp_path):
    """Only the append itself is not followed, also where it indexes something and belongs to a wider transaction."""
    store = SqliteSessionStore(tmp_path / "state.db")
    with store.database.writing():
        store.create(Session(SESSION, "cli", 1.7e9))
        store.append(SESSION, [said(f"walrus {number}") for number in range(60)])
        store.note(SESSION, "after", value=1)
        store.append(SESSION, [said("penguin")])
        store.add_usage(SESSION, task="chat", model="m", usage=Usage(10, 20, 0, 0), cost=0.5)

    assert row_checksums.count_missing(store.database.connection) == 0
    store.close()
    assert findings(tmp_path / "state.db") == []


def test_an_append_in_a_wider_transaction_is_not_followed(tmp_path):
    """The rows of messages compute their own checksums, and the hook would cost as much as the row."""
    store = SqliteSessionStore(tmp_path / "state.db")
    with store.database.writing() as connection:
        store.create(Session(SESSION, "cli", 1.7e9))
        assert connection in row_checksums._watching
        with store.file.writing(with_checksums=False):
            with row_checksums.pause(connection):
                pass
            assert connection not in row_checksums._watching
        assert connection in row_checksums._watching
    store.close()
