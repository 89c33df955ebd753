"""The index on PostgreSQL: the same answers as SQLite's on made-up conversations, whatever was changed since."""

import importlib.util
import os
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wellkept.core.errors import NotFound, StorageError
from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.postgres import index
from wellkept.sessions.postgres.store import PostgresSessionStore
from wellkept.sessions.search.postings import Word
from wellkept.sessions.sqlite.index import drain
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.postgres import database as postgres
from wellkept.storage.postgres.database import PostgresServer

HEAVY = os.environ.get("KEPT_HEAVY") == "1"
CORPUS = Path(__file__).parents[4] / "benchmarks" / "corpus.py"
SESSION = SessionId("talk")


@pytest.fixture
def store(postgres_server):
    server = PostgresServer(postgres_server.shared_url, tenant=postgres_server.make_tenant())
    yield PostgresSessionStore(server)
    server.close()


@pytest.fixture
def small_segments(monkeypatch):
    """Segments of few messages, so that a test makes, merges and rewrites many."""
    for name, value in (("FRESH_MOST", 16), ("_SMALL", 64), ("_PARTS", 4), ("_LOOK_EVERY", 1)):
        monkeypatch.setattr(index, name, value)


class StoppedClock:
    """One moment for both databases: how recent a message is counts."""

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC)


def said(text, number=0):
    return NewMessage(Message(Role.USER, text), 1_600_000_000.0 + number, Origin.PERSON)


def fill(store, texts):
    store.create(Session(SESSION, "cli", 1_600_000_000.0))
    return [store.append(SESSION, [said(text, number)])[0] for number, text in enumerate(texts)]


def found(store, word):
    """Return the messages that contain a word, as the index says; a search returns their neighbours too."""
    with store.rows.reading() as unit:
        return store.open_index(unit)[0].ids(Word(word))


def load_corpus(count):
    spec = importlib.util.spec_from_file_location("corpus_script", CORPUS)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return list(module.Corpus().messages(count))


def rank(store, query):
    """Return sessions and scores, not ids: the databases number messages each in its own way."""
    answer = store.search(SearchRequest(query, limit=50))
    messages = {one.id: one for one in store.messages_by_id([hit.message_id for hit in answer.messages])}
    lines = [(-round(hit.score, 9), messages[hit.message_id].timestamp) for hit in answer.messages]
    return sorted(lines), sorted((-round(hit.score, 9), hit.session_id) for hit in answer.sessions), answer.abstained


@pytest.mark.parametrize("count", [400, pytest.param(20_000, marks=[pytest.mark.heavy, pytest.mark.timeout(900)])])
def test_both_databases_give_the_same_ranked_lists(request, store, tmp_path, count):
    if count < 1_000:  # many messages fill segments of the real size
        request.getfixturevalue("small_segments")
    file = SqliteSessionStore(tmp_path / "state.db", clock=StoppedClock())
    store = PostgresSessionStore(store.server, clock=StoppedClock())
    made = load_corpus(count)
    other = store.for_user(UserId("other"))
    other.create(Session(SESSION, "cli", 1.0))
    for name in dict.fromkeys(message.session_id for message in made):
        own = [message for message in made if message.session_id == name]
        new = [NewMessage(Message(Role(each.role), each.text), each.timestamp, Origin.PERSON) for each in own]
        for one in (file, store):
            one.create(Session(SessionId(name), "cli", made[0].timestamp))
            one.append(SessionId(name), new)
        other.append(SESSION, [said("somebody else writes to the same server")] * 3)
    drain(file.database, seconds=600)  # a search gives up after a few seconds, before a loaded machine has indexed all
    words = [word.strip(".,?") for message in made[:: max(1, count // 40)] for word in message.text.split()[:6]]
    queries = [*words[:60:3], *(" ".join(words[place : place + 5]) + "?" for place in range(0, 100, 10))]
    queries += [f'"{words[0]} {words[1]}"', f"{words[5][:3]}*", words[7][1:], f"{words[2]} NOT {words[3]}"]

    for query in queries:
        assert rank(store, query) == rank(file, query), query
    file.close()


@pytest.fixture
def round_trips(monkeypatch):
    """The statements that wait for an answer of the server, one entry per round trip."""
    seen, real = [], postgres._Connection.wait

    def wait(connection, *arguments, **options):
        seen.append(connection)
        return real(connection, *arguments, **options)

    monkeypatch.setattr(postgres._Connection, "wait", wait)
    return seen


def test_a_search_and_an_append_take_few_round_trips(store, round_trips):
    """Each answer costs a round trip; on another machine that is more than what the server computes."""
    fill(store, ["the gnu ate grass"] * 300 + ["the okapi sleeps", "who saw the gnu?"])
    store.search(SearchRequest("sleeps", limit=10))  # the first one of a process also reads which messages there are
    for act, most in (
        (lambda: store.append(SESSION, [said("hello")]), 2),
        (lambda: store.search(SearchRequest("okapi", limit=10)), 5),
        (lambda: store.search(SearchRequest("When did the okapi see the gnu at the grass?", limit=10)), 6),
        (lambda: store.search(SearchRequest("okapi", limit=10)), 5),  # its lists are known, titles are not
    ):
        before = len(round_trips)
        act()
        assert len(round_trips) - before <= most


def test_an_append_on_a_connection_that_was_ended_is_made_on_another(store, postgres_server):
    """Its first statement is sent together with the beginning of the transaction; nothing was committed before."""
    fill(store, ["one"])
    with store.rows.reading() as unit:
        pid = unit.connection.info.backend_pid
    postgres_server.run_sql("postgres", f"SELECT pg_terminate_backend({pid})")

    store.append(SESSION, [said("two")])

    assert [one.message.text for one in store.messages(SESSION)] == ["one", "two"]
    assert store.session(SESSION).message_count == 2


def test_long_texts_are_compared_as_well(store):
    """Texts that are not read with their messages are read when they are needed."""
    ids = fill(store, [f"the okapi sleeps {'and sleeps ' * 300}", "the okapi and the gnu"])

    found = store.search(SearchRequest('"okapi sleeps"', limit=10))

    assert [hit.message_id for hit in found.messages] == [ids[0]]


def test_ids_of_a_user_are_consecutive_whoever_else_writes(store):
    """As in a file; and no two users of a home have the same, so that it can move back into one file."""
    other = store.for_user(UserId("other"))
    ids = {store: [], other: []}
    for one in ids:
        one.create(Session(SessionId(f"talk-{one.user}"), "cli", 1.0))
    for count in (1, 3, 40):
        for one in ids:
            ids[one] += one.append(SessionId(f"talk-{one.user}"), [said("hello")] * count)
    with pytest.raises(NotFound):
        store.append(SessionId("missing"), [said("lost")])
    ids[store] += store.append(SessionId(f"talk-{store.user}"), [said("hello")])

    for given in ids.values():
        assert given == [*range(given[0], given[0] + len(given))]
        assert given[0] % 32 == 1
    assert not set(ids[store]).intersection(ids[other])


def test_a_writer_that_hangs_in_a_transaction_holds_no_other_up(store, monkeypatch):
    """As a process does that was stopped, or whose host was cut off; it cannot write when it wakes up."""
    monkeypatch.setattr(postgres, "PAUSE_SECONDS", 0.5)
    hanging = PostgresSessionStore(PostgresServer(store.server.address, tenant=store.server.tenant))
    fill(store, ["one"])

    def hang():
        with hanging.unit() as unit:
            hanging.append(SESSION, [said("lost")], unit=unit)
            written = threading.Thread(target=lambda: store.append(SESSION, [said("meanwhile")]))
            written.start()
            written.join(8)
            hanging.append(SESSION, [said("lost too")], unit=unit)

    with pytest.raises(StorageError):
        hang()

    assert [one.message.text for one in store.messages(SESSION)] == ["one", "meanwhile"]
    hanging.close()


def test_a_range_of_ids_that_is_used_up_is_followed_by_another(store):
    ids = fill(store, ["one"])
    with store.rows.writing() as unit:
        unit.execute("UPDATE message_numbers SET next_id = range_end - 2 WHERE tenant = :tenant AND user_id = :user")
    later = store.append(SESSION, [said("hello")] * 5)

    assert later[1] - ids[0] == 1_048_574
    assert later[2] % 1_048_576 == 0
    assert [number - later[2] for number in later[2:]] == [0, 1, 2]


def test_a_message_is_found_before_and_after_every_merge(store, small_segments):
    ids = fill(store, [f"number{place} of the harbour" for place in range(150)])

    assert [found(store, f"number{place}") for place in range(0, 150, 7)] == [
        [ids[place]] for place in range(0, 150, 7)
    ]
    assert store.upkeep.check() == []


def test_what_is_rewound_is_not_found_until_it_is_restored(store, small_segments):
    ids = fill(store, [f"number{place} of the harbour" for place in range(40)])

    store.rewind(SESSION, ids[5])
    assert found(store, "number7") == []
    assert found(store, "number2") == [ids[2]]
    store.restore_rewound(SESSION)

    assert found(store, "number7") == [ids[7]]
    assert store.upkeep.check() == []


def test_a_message_that_was_overwritten_is_found_by_its_new_words_only(store, small_segments):
    ids = fill(store, [f"number{place} of the harbour" for place in range(40)])

    store.transfer.overwrite(ids[3], said("a lantern in the attic"))

    assert found(store, "lantern") == [ids[3]]
    assert found(store, "number3") == []
    store.append(SESSION, [said(f"later{place}") for place in range(20)])  # a merge takes the new text in
    assert found(store, "lantern") == [ids[3]]
    assert found(store, "number3") == []
    assert store.upkeep.check() == []


def test_forgetting_rewrites_the_segments_that_name_a_message(store, small_segments):
    ids = fill(store, [f"number{place} okapi" if place == 9 else f"number{place}" for place in range(40)])

    report = store.forgetting.carry_out(store.forgetting.plan_query("okapi"))

    assert report.still_found == 0
    with store.rows.reading() as unit:
        lists = [
            bytes(data)
            for (data,) in unit.execute("SELECT lists FROM postings WHERE tenant = :tenant AND user_id = :user")
        ]
        named = [number for one in index.read_stored(unit) for number in one.draft.messages]
        rest = unit.execute("SELECT * FROM gone_messages WHERE tenant = :tenant AND user_id = :user").fetchall()
    assert lists
    assert not any(b"okapi" in data or b"\x01oka" in data for data in lists)
    assert ids[9] not in named
    assert rest == []
    assert found(store, "number8") == [ids[8]]
    assert store.upkeep.check() == []


def test_a_rebuilt_index_gives_the_same_answers(store, small_segments):
    fill(store, [f"number{place} of the harbour" for place in range(60)])
    before = [rank(store, query) for query in ("number7", "harbour", "umber1")]

    assert store.upkeep.reindex() == 60

    assert [rank(store, query) for query in ("number7", "harbour", "umber1")] == before
    assert store.upkeep.check() == []


def test_a_check_notices_a_changed_row_and_a_lost_index(store, postgres_server):
    ids = fill(store, ["one", "two", "three"])
    with store.rows.writing() as unit:
        unit.execute("DELETE FROM fresh_words WHERE tenant = :tenant AND user_id = :user AND message_id = ?", (ids[0],))
        unit.execute(
            "UPDATE messages SET checksum = 7 WHERE tenant = :tenant AND user_id = :user AND id = ?", (ids[1],)
        )

    findings = [finding.what for finding in store.upkeep.check()]

    assert len(findings) == 2
    assert f"message {ids[1]} of session talk is damaged" in findings[0]
    assert "the index is wrong about 1 messages" in findings[1]


def test_writers_of_one_user_lose_nothing_while_segments_are_merged(store, small_segments):
    """Several processes append, rewind and restore at once; every message is indexed once, in its last state."""

    def write(number):
        own = PostgresSessionStore(PostgresServer(store.server.address, tenant=store.server.tenant))
        name = SessionId(f"talk-{number}")
        own.create(Session(name, "cli", 1.0))
        ids = [own.append(name, [said(f"writer{number} text{place}")])[0] for place in range(40)]
        own.rewind(name, ids[30])
        own.append(name, [said(f"writer{number} again")])
        own.close()
        written[number] = ids[:30]

    written = {}
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)

    assert sorted(written) == [0, 1, 2, 3]
    for number, ids in written.items():
        assert set(found(store, f"writer{number}")) >= set(ids)
        assert len(found(store, f"writer{number}")) == 31
    assert store.upkeep.check() == []
    with store.rows.reading() as unit:
        assert sum(one.draft.documents for one in index.read_stored(unit)) > 100


def test_a_failed_transaction_leaves_the_index_as_it_was(store, small_segments):
    ids = fill(store, [f"number{place}" for place in range(20)])

    def fail():
        with store.unit() as unit:
            store.append(SESSION, [said(f"lost{place}") for place in range(40)], unit=unit)
            assert len(found(store, "lost7")) == 1  # the same transaction sees it
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert found(store, "lost7") == []
    assert found(store, "number7") == [ids[7]]
    assert store.upkeep.check() == []
