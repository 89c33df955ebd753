"""Whole sessions archived, thrown away, restored, pruned, removed."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from kept.core.errors import NotFound
from kept.core.ids import SessionId
from kept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Session, Usage
from kept.core.search import SearchRequest
from kept.sessions.settings import SessionSettings
from kept.sessions.sqlite import index, purge
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.sessions.usage import totals
from kept.storage.state import open_state
from kept.testing.session_store_contract import Summarised


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.moment = datetime(2026, 6, 1, tzinfo=UTC)

    def now(self):
        return self.moment


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    database = open_state(tmp_path / "state.db")
    yield SqliteSessionStore(database, SessionSettings(), clock=clock)
    database.close()


def talk(store, name, *texts, source="cli", days_ago=0.0):
    at = store.file.now() - days_ago * 86_400
    store.create(Session(SessionId(name), source, at))
    return store.append(SessionId(name), [NewMessage(Message(Role.USER, text), at, Origin.PERSON) for text in texts])


def compacted(store, name, ids, child):
    summary = Message(Role.USER, "so far")
    return store.compact(
        SessionId(name), Summarised(summary, ids[:-1], [], ids[-1:], False, SessionId(child), store.file.now())
    )


def test_an_archived_session_is_found_but_not_listed(store):
    """Archiving hides a conversation, with its whole chain, from lists; search finds it; undo shows it again."""
    ids = talk(store, "a", "first okapi", "second okapi")
    compacted(store, "a", ids, "b")

    assert store.keeping.archive(SessionId("b")) == ["a", "b"]
    assert store.recent(limit=5) == []
    assert {one.id for one in store.recent(limit=5, archived=True)} == {"a", "b"}
    assert store.search(SearchRequest("okapi")).messages
    store.keeping.archive(SessionId("a"), archived=False)
    assert len(store.recent(limit=5)) == 2


def test_a_deleted_session_can_be_restored(store):
    """What is in the trash is nowhere to be seen until it is restored."""
    ids = talk(store, "a", "hidden okapi")

    assert store.keeping.delete([SessionId("a")]) == ["a"]
    assert store.session(SessionId("a")) is None
    assert store.search(SearchRequest("okapi")).messages == ()
    assert store.message(ids[0]) is None
    with pytest.raises(NotFound):
        store.append(SessionId("a"), [NewMessage(Message(Role.USER, "x"), 1.0, Origin.PERSON)])
    assert [one.id for one in store.keeping.trashed()] == ["a"]

    assert store.keeping.restore(SessionId("a")) == ["a"]
    assert store.search(SearchRequest("okapi")).messages
    with pytest.raises(NotFound):
        store.keeping.restore(SessionId("a"))


def test_the_trash_empties_itself_after_its_days(store, clock):
    """Thirty days after a delete the session is removed for good, with index rows, blobs and prompt."""
    store.create(Session(SessionId("a"), "cli", store.file.now()), system_prompt="only mine")
    image = (ImagePart("image/png", "QUJDRA=="),)
    store.append(SessionId("a"), [NewMessage(Message(Role.USER, image), store.file.now(), Origin.PERSON)])
    store.keeping.delete([SessionId("a")])

    assert store.keeping.sweep().sessions == 0
    clock.moment += timedelta(days=31)
    removed = store.keeping.sweep()

    assert (removed.sessions, removed.messages, removed.blobs) == (1, 1, 1)
    for table in ("sessions", "messages", "blobs", "blob_uses", "prompts", "index_queue"):
        assert store.database.connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]
    assert index.check(store.database.connection) == []


def test_what_a_branch_carries_stays(store):
    """Removing a session leaves the rows that a branch carries; they become the branch's own."""
    ids = talk(store, "a", "one", "two", "three")
    store.branch(SessionId("a"), at=ids[1], new=Session(SessionId("side"), "cli", store.file.now()))
    store.append(SessionId("side"), [NewMessage(Message(Role.USER, "aside"), store.file.now(), Origin.PERSON)])

    store.keeping.delete([SessionId("a")])
    removed = store.keeping.sweep(days=0)

    assert removed.messages == 1
    assert [one.message.text for one in store.context(SessionId("side"))] == ["one", "two", "aside"]
    assert [one.message.text for one in store.messages(SessionId("side"))] == ["one", "two", "aside"]
    assert store.session(SessionId("side")).message_count == 3


def test_forgetting_takes_what_a_branch_carries(store):
    """Forgetting is final: carried rows go, and the branch's summaries of them are blanked."""
    ids = talk(store, "a", "one okapi", "two okapi")
    store.branch(SessionId("a"), at=None, new=Session(SessionId("side"), "cli", store.file.now()))
    summary = Summarised(Message(Role.USER, "about the okapi"), ids[:1], [], ids[1:], True, None, store.file.now())
    store.compact(SessionId("side"), summary)

    store.forgetting.carry_out(store.forgetting.plan_sessions([SessionId("a")]))

    assert [one.message.text for one in store.context(SessionId("side"))] == ["[forgotten]"]
    assert store.search(SearchRequest("okapi")).messages == ()


def test_prune_takes_the_idle(store):
    """Prune takes what was idle for so many days, of a source, or the oldest until the rest fits."""
    for number in range(5):
        talk(store, f"s{number}", "x" * 1_000, source="web" if number % 2 else "cli", days_ago=number * 10)

    def pruned(**limits):
        return [one.id for one in store.keeping.prunable(**{"days": None, "source": None, **limits}).sessions]

    assert pruned(days=15) == ["s4", "s3", "s2"]
    assert pruned(days=15, source="web") == ["s3"]
    assert pruned(most_bytes=3_500) == ["s4", "s3"]
    assert store.keeping.prunable(days=15, source=None).text_bytes == 3_000


def test_usage_is_counted_by_day_model_and_task(store, clock):
    """Calls are summed by their key; unknown prices stay unknown; forgetting a session keeps the totals."""
    name = SessionId("a")
    talk(store, "a", "x")
    for cost in (0.5, 0.25):
        store.add_usage(name, task="main", model="m1", usage=Usage(10, 5, 80, 10), cost=cost)
    clock.moment += timedelta(days=1)
    store.add_usage(name, task="title", model="m2", usage=Usage(1, 1), cost=None)

    by_model = {one.key: one for one in totals(store.usage(), lambda row: row.model)}

    assert (by_model["m1"].calls, by_model["m1"].cost, by_model["m1"].usage) == (2, 0.75, Usage(20, 10, 160, 20))
    assert by_model["m1"].cache_share == 0.8
    assert by_model["m2"].cost is None
    assert [row.model for row in store.usage(since="2026-06-02")] == ["m2"]
    store.forgetting.carry_out(store.forgetting.plan_sessions([name]))
    assert {one.key: one for one in totals(store.usage(), lambda row: row.model)} == by_model
    assert store.usage(session_id=name) == []


def test_a_session_is_named_by_id_title_or_beginning(store):
    """People may say the title or the beginning of an id; what is not clear is refused."""
    for name in ("20260101_aaa", "20260102_bbb"):
        talk(store, name, "x")
    store.rename(SessionId("20260102_bbb"), "Plan")

    assert store.resolve("Plan") == store.resolve("20260102") == store.resolve("20260102_bbb") == "20260102_bbb"
    for name in ("2026", "nothing", ""):
        with pytest.raises(Exception, match=r"could be|there is no session"):
            store.resolve(name)


def test_statistics_name_the_sizes(store):
    """Statistics count sessions and messages, and name every table, the growth and the biggest sessions."""
    talk(store, "a", "x" * 500)
    talk(store, "b", "y")

    found = store.keeping.stats()

    assert (found["sessions"], found["messages"], found["text_bytes"]) == (2, 2, 501)
    assert {"messages", "sessions"} <= set(found["tables"])
    assert found["biggest"][0]["session_id"] == "a"
    assert found["growth"] == [{"month": "2026-06", "messages": 2, "text_bytes": 501}]
    assert json.dumps(found)


def test_a_large_session_is_removed_in_steps(store):
    """More messages than one step takes are removed, whole and with their index."""
    talk(store, "a", *(f"m{number}" for number in range(purge.STEP + 10)))
    talk(store, "b", "stays")

    removed = purge.sessions(store.database, [SessionId("a")], keep_borrowed=True)

    assert removed.messages == purge.STEP + 10
    assert index.check(store.database.connection) == []
    assert [one.id for one in store.recent(limit=5)] == ["b"]
