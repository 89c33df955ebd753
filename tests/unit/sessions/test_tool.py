"""The `session_search` tool over a real store."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.clock import SystemClock
from wellkept.core.errors import ModelBusy, StorageError
from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session, ToolCall
from wellkept.core.tools import ToolContext
from wellkept.sessions.recall import tokens
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.sessions.tool import MOST_SUMMARIES, search_schema, session_search
from wellkept.storage.sqlite import open_state
from wellkept.testing.session_store_contract import Summarised

START = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
TOPICS = ["the greenhouse heater", "a violin lesson", "the tax return", "a sourdough starter", "the marathon in Lisbon"]


def said(text, role=Role.USER, at=START, **more):
    origin = {Role.USER: Origin.PERSON, Role.TOOL: Origin.TOOL}.get(role, Origin.MODEL)
    return NewMessage(Message(role, text), at, origin, **more)


@pytest.fixture
def filled(store):
    """Five sessions of thirty messages, each about one thing that is named in the middle."""
    for number, topic in enumerate(TOPICS):
        name = SessionId(f"s{number}")
        store.create(Session(name, "cli", START + number * 86_400, title=f"Talk {number}", project=f"/p{number % 2}"))
        store.append(
            name,
            [
                said(
                    f"We spoke about {topic} and it was decided."
                    if place == 15
                    else f"Small remark {place} of day {number}.",
                    Role.ASSISTANT if place % 2 else Role.USER,
                    START + number * 86_400 + place,
                )
                for place in range(30)
            ],
        )
    return store


@pytest.fixture
def ask(filled):
    tool = session_search(lambda: filled, filled.file.settings, clock=SystemClock())

    def call(context=None, /, **arguments):
        return tool.call(arguments, context or ToolContext())

    return call


def test_a_question_finds_its_passage(ask):
    """Discover gives the shape that was promised: match, window, bookends, counts."""
    answer = ask(query="What did we decide about the sourdough starter?")

    assert (answer["success"], answer["mode"], answer["count"]) == (True, "discover", len(answer["results"]))
    first = answer["results"][0]
    assert list(first) == [
        "session_id", "title", "when", "source", "model", "matched_role", "match_message_id", "snippet",
        "bookend_start", "messages", "bookend_end", "messages_before", "messages_after",
    ]  # fmt: skip
    assert (first["session_id"], first["title"], first["matched_role"]) == ("s3", "Talk 3", "assistant")
    assert "sourdough" in first["snippet"]
    assert [len(first[name]) for name in ("bookend_start", "messages", "bookend_end")] == [3, 11, 3]
    assert (first["messages_before"], first["messages_after"]) == (10, 9)
    anchors = [message for message in first["messages"] if message.get("anchor")]
    assert [message["id"] for message in anchors] == [first["match_message_id"]]
    assert set(first["messages"][0]) == {"id", "role", "content", "timestamp"}
    assert first["when"] == "2026-03-04T00:00:15.000Z"


def test_recent_sessions_are_browsed(ask, filled):
    """Without arguments the recent sessions come, with a short preview; a compacted conversation is one."""
    context = [message.id for message in filled.context(SessionId("s4"))]
    filled.compact(
        SessionId("s4"),
        Summarised(
            Message(Role.USER, "so far"), context[1:20], context[:1], context[20:], False, SessionId("s4b"), START + 9e5
        ),
    )

    answer = ask()

    assert answer["mode"] == "browse"
    assert [one["session_id"] for one in answer["results"]] == ["s4b", "s3", "s2"]
    assert set(answer["results"][1]) == {
        "session_id",
        "title",
        "source",
        "started",
        "last_active",
        "message_count",
        "preview",
    }
    assert all(len(one["preview"]) <= 60 for one in answer["results"])
    assert ask(limit=99)["count"] == 5


def test_scrolling_continues_at_the_edge(ask):
    """A window is given around a message; its last id is the anchor of the next one."""
    match = ask(query="violin lesson")["results"][0]

    answer = ask(session_id="s1", around_message_id=match["match_message_id"], window=2)
    further = ask(around_message_id=answer["messages"][-1]["id"], window=2)

    assert (answer["mode"], answer["session_id"], len(answer["messages"])) == ("scroll", "s1", 5)
    assert (answer["messages_before"], answer["messages_after"]) == (13, 12)
    assert further["messages"][2]["id"] == answer["messages"][-1]["id"]
    assert further["messages"][2]["anchor"] is True
    assert further["messages_before"] == 15


def test_reading_a_session(ask, filled):
    """A short session is read whole; of a long one the beginning and the end, with a hint."""
    whole = ask(session_id="s0")
    filled.append(SessionId("s0"), [said(f"later {number}") for number in range(20)])
    long = ask(session_id="s0")

    assert (whole["mode"], whole["count"], "hint" in whole) == ("read", 30, False)
    assert long["count"] == 30
    assert [long["messages"][place]["content"] for place in (0, -1)] == ["Small remark 0 of day 0.", "later 19"]
    assert "20 messages between" in long["hint"]


def test_a_search_inside_a_session(ask):
    """A query with a session looks only there."""
    inside = ask(query="small remark", session_id="s2", limit=10)

    assert {one["session_id"] for one in inside["results"]} == {"s2"}
    nothing = ask(query="violin", session_id="s2")
    assert nothing["count"] == 0
    assert "filters (session) excluded" in nothing["reason"]


def test_filters_and_order(ask):
    """Role, project, dates and order hold; a filter that took everything away is named."""
    assert {one["matched_role"] for one in ask(query="remark", role_filter="assistant", limit=10)["results"]} == {
        "assistant"
    }
    newest = [one["when"] for one in ask(query="remark", sort="newest", limit=5)["results"]]
    assert newest == sorted(newest, reverse=True)
    assert newest[::-1] == [one["when"] for one in ask(query="remark", sort="oldest", limit=5)["results"]]
    assert ask(query="violin", after="2026-03-02", before="2026-03-03")["count"] == 1
    nothing = ask(query="violin lesson", after="2027-01-01")
    assert (nothing["success"], nothing["count"]) == (True, 0)
    assert "filters (after) excluded" in nothing["reason"]


def test_detail_index_is_short(ask):
    """The index form has ids, dates and snippets only."""
    answer = ask(query="violin lesson", detail="index")

    assert "messages" not in answer["results"][0]
    assert answer["results"][0]["snippet"]
    assert tokens(json.dumps(answer)) < 400


def test_nothing_matched_says_so(ask):
    """A query that nothing matches gives a reason, not an error."""
    answer = ask(query="zugzwang xylograph")

    assert (answer["success"], answer["results"]) == (True, [])
    assert "nothing matched" in answer["reason"]


def test_the_active_context_is_left_out(ask, filled):
    """What the model sees is not found; compacted messages of the same conversation are."""
    mine = ToolContext(session_id=SessionId("s1"))
    assert ask(mine, query="violin lesson")["results"] == []
    assert "current conversation" in ask(mine, query="violin lesson")["reason"]
    ids = [message.id for message in filled.context(SessionId("s1"))]
    child = filled.compact(
        SessionId("s1"), Summarised(Message(Role.USER, "summary"), ids[:20], [], ids[20:], False, SessionId("s1b"))
    )
    now = ToolContext(session_id=child)

    found = ask(now, query="violin lesson")

    assert found["results"][0]["session_id"] == "s1"
    shown = {message["id"] for message in found["results"][0]["messages"] + found["results"][0]["bookend_end"]}
    assert shown.isdisjoint(set(ids[20:]))


def test_scrolling_in_the_context_is_refused_only_when_all_of_it_is_there(ask, filled):
    """A window is refused, with the reason, only when every message of it is in the context."""
    ids = [message.id for message in filled.context(SessionId("s1"))]
    inside = ToolContext(session_id=SessionId("s1"), active_message_ids=tuple(ids[10:]))

    refused = ask(inside, around_message_id=ids[20], window=3)
    partly = ask(inside, around_message_id=ids[9], window=3)

    assert refused["success"] is False
    assert "context" in refused["error"]
    assert [message["id"] for message in partly["messages"]] == ids[6:10]


def test_an_id_of_the_same_conversation_is_rebound(ask, filled):
    """An id of another session of the lineage is shown there, with a warning; of a stranger it is refused."""
    ids = [message.id for message in filled.context(SessionId("s1"))]
    filled.compact(
        SessionId("s1"), Summarised(Message(Role.USER, "summary"), ids[:20], [], ids[20:], False, SessionId("s1b"))
    )

    bound = ask(session_id="s1b", around_message_id=ids[5], window=1)
    strange = ask(session_id="s2", around_message_id=ids[5])

    assert (bound["success"], bound["session_id"]) == (True, "s1")
    assert "s1" in bound["warning"]
    assert (strange["success"], bool(strange["remedy"])) == (False, True)


def test_one_result_per_conversation(ask, filled):
    """Hits in the sessions of one lineage count once."""
    ids = [message.id for message in filled.context(SessionId("s1"))]
    filled.compact(
        SessionId("s1"),
        Summarised(Message(Role.USER, "summary: violin lesson"), ids[:20], [], ids[20:], False, SessionId("s1b")),
    )
    filled.branch(SessionId("s1b"), at=None, new=Session(SessionId("s1c"), "cli", START))
    filled.append(SessionId("s1c"), [said("once more the violin lesson")])

    found = ask(query="violin lesson", limit=10)

    assert len({one["session_id"] for one in found["results"]} & {"s1", "s1b", "s1c"}) == 1


def test_hidden_sources_must_be_named(ask, filled):
    """Sub-agents, tools and reviews are found only when the source names them."""
    filled.create(Session(SessionId("r"), "review", START))
    filled.append(SessionId("r"), [said("reviewing the quasar notes")])

    assert ask(query="quasar notes")["count"] == 0
    assert "sub-agents, tools or reviews" in ask(query="quasar notes")["reason"]
    assert ask(query="quasar notes", source="review")["count"] == 1


def test_other_users_are_not_seen(ask, filled):
    """The store's user decides what is seen, in every mode; no argument changes it."""
    own = filled.for_user(UserId("kim"))
    own.create(Session(SessionId("k"), "telegram", START))
    (number,) = own.append(SessionId("k"), [said("the secret of the pelican")])

    tool = session_search(lambda: own, SessionSettings(), clock=SystemClock())

    assert tool.call({"query": "pelican"}, ToolContext())["count"] == 1
    assert [one["session_id"] for one in tool.call({}, ToolContext())["results"]] == ["k"]
    assert ask(query="pelican", user_id="kim")["count"] == 0
    assert ask(session_id="k")["success"] is False
    assert ask(around_message_id=number)["success"] is False


def test_rewound_messages_are_never_shown(ask, filled):
    """Rewound messages are in no window, no session and no search result."""
    ids = [message.id for message in filled.context(SessionId("s1"))]
    filled.rewind(SessionId("s1"), ids[15])

    assert ask(query="violin lesson")["count"] == 0
    assert ask(session_id="s1")["count"] == 15
    assert ask(around_message_id=ids[15])["success"] is False
    assert [one["id"] for one in ask(around_message_id=ids[14], window=5)["messages"]][-1] == ids[14]


def test_long_messages_are_shortened_around_the_match(store):
    """An answer stays under its budget; a long message is cut around the match and says so."""
    store.create(Session(SessionId("a"), "cli", START))
    store.append(
        SessionId("a"), [said("filler " * 3_000 + "the kingfisher nest " + "filler " * 3_000) for _ in range(12)]
    )
    tool = session_search(lambda: store, SessionSettings(answer_tokens=1_000), clock=SystemClock())

    for arguments in (
        {"query": "kingfisher nest"},
        {"query": "kingfisher nest", "detail": "full"},
        {"session_id": "a"},
        {"around_message_id": 5, "window": 20},
    ):
        answer = tool.call(arguments, ToolContext())
        assert answer["success"] is True
        assert tokens(json.dumps(answer, ensure_ascii=False)) <= 1_000
    found = tool.call({"query": "kingfisher nest"}, ToolContext())["results"][0]
    assert "kingfisher" in found["snippet"]
    anchor = next(message for message in found["messages"] if message.get("anchor"))
    assert "kingfisher" in anchor["content"]
    assert anchor["content"].endswith("[…]")


def test_what_was_sent_is_never_shown(store):
    """`api_content` is in no answer and finds nothing; calls without text are named."""
    store.create(Session(SessionId("a"), "cli", START))
    call = NewMessage(Message(Role.ASSISTANT, "", (ToolCall("1", "read_file", "{}"),)), START, Origin.MODEL)
    store.append(SessionId("a"), [said("plain ostrich", api_content="plain ostrich <hidden emu>"), call])
    tool = session_search(lambda: store, SessionSettings(), clock=SystemClock())

    assert "emu" not in json.dumps(tool.call({"query": "ostrich", "detail": "full"}, ToolContext()))
    assert tool.call({"query": "emu"}, ToolContext())["count"] == 0
    assert tool.call({"session_id": "a"}, ToolContext())["messages"][1]["content"] == "[called read_file]"


def test_a_store_that_cannot_be_opened_is_an_answer():
    """While the database cannot be used, the tool says why and what to do."""

    def broken():
        raise StorageError("'state.db' has schema 99", "update kept")

    answer = session_search(broken, SessionSettings(), clock=SystemClock()).call({"query": "x"}, ToolContext())

    assert answer == {
        "success": False,
        "error": "session store unavailable: 'state.db' has schema 99",
        "remedy": "update kept",
    }


class Summariser:
    """An auxiliary model with one answer."""

    name, context_length = "scripted/one", 8_000

    def __init__(self, answer):
        self.answer = answer
        self.prompts = []

    def complete(self, system, prompt, *, max_output_tokens):
        self.prompts.append(prompt)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_summaries_cite_their_evidence(filled):
    """With an auxiliary model each session is summarised; cited ids are checked against the transcript."""
    match = 46
    model = Summariser(f"They decided on a violin lesson [{match}] and more [999999].")
    tool = session_search(lambda: filled, filled.file.settings, clock=SystemClock(), auxiliary=lambda: model)

    answer = tool.call({"query": "violin lesson", "summarize": True, "limit": 1}, ToolContext())

    assert answer["results"][0]["summary"].startswith("They decided")
    assert answer["results"][0]["evidence"] == [match]
    assert f"[{match}]" in model.prompts[0]
    assert len(model.prompts[0]) < 100_200


@pytest.mark.parametrize("model", [None, Summariser(ModelBusy("overloaded"))])
def test_without_a_model_the_passages_come_back(filled, model):
    """No model, or one that fails, gives the raw answer with a note."""
    tool = session_search(lambda: filled, filled.file.settings, clock=SystemClock(), auxiliary=lambda: model)

    answer = tool.call({"query": "violin lesson", "summarize": True}, ToolContext())

    assert answer["results"][0]["messages"]
    assert "passages themselves" in answer["note"]


def test_a_silent_model_does_not_occupy_all_threads(filled):
    """Beyond a few summaries at once, others get the passages without waiting."""
    wake, begun = threading.Event(), threading.Semaphore(0)

    class Silent(Summariser):
        def complete(self, system, prompt, *, max_output_tokens):
            begun.release()
            wake.wait(30)
            return super().complete(system, prompt, max_output_tokens=max_output_tokens)

    tool = session_search(lambda: filled, filled.file.settings, clock=SystemClock(), auxiliary=lambda: Silent("done"))
    asked = {"query": "violin lesson", "summarize": True, "limit": 1}
    with ThreadPoolExecutor(MOST_SUMMARIES) as pool:
        waiting = [pool.submit(tool.call, asked, ToolContext()) for _ in range(MOST_SUMMARIES)]
        assert all(begun.acquire(timeout=10) for _ in waiting)
        answer = tool.call(asked, ToolContext())
        wake.set()

    assert "passages themselves" in answer["note"]
    assert all(one.result()["results"][0]["summary"] == "done" for one in waiting)


queries = st.text(max_size=60) | st.sampled_from(
    [
        '"',
        '"open',
        "NOT",
        "a AND",
        "(((",
        "deploy*",
        "*",
        "你",
        "東京",
        "วันนี้",
        "한국",
        "привет",
        "مرحبا",
        "👩‍👩‍👧",
        "the of and",
        "x" * 10_000,
        "src/app.py",
        "v1.2.3",
        "camelCase",
        "-- ' ; DROP TABLE",
    ]
)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    database = open_state(tmp_path_factory.mktemp("small") / "state.db")
    store = SqliteSessionStore(database)
    store.create(Session(SessionId("a"), "cli", START))
    store.append(SessionId("a"), [said("deploy src/app.py v1.2.3 camelCase 東京 привет")])
    yield session_search(lambda: store, SessionSettings(), clock=SystemClock())
    database.close()


@given(queries)
def test_no_query_raises(small, queried):
    """Whatever is asked, there is an answer."""
    assert small.call({"query": queried}, ToolContext())["success"] is True


def test_the_schema_is_complete():
    """Every parameter of the specification is in the schema, and the description says how to use it."""
    names = (
        "query session_id around_message_id window limit sort detail role_filter source project after before summarize"
    )

    assert set(search_schema().parameters["properties"]) == set(names.split())
    assert search_schema().toolset == "session_search"
    assert "around_message_id" in search_schema().description


@pytest.fixture
def receipts(filled):
    """The receipts of calls of the tool, in order."""
    stored = []
    tool = session_search(lambda: filled, filled.file.settings, clock=SystemClock(), record=stored.append)

    def call(context=None, /, **arguments):
        stored.clear()
        answer = tool.call(arguments, context or ToolContext(platform="codex", session_id=SessionId("now")))
        return answer, list(stored)

    return call


def test_every_answer_of_a_search_writes_a_receipt(receipts):
    """Query, asker, candidates, shown ids with the parts of their scores, tokens and time; no text."""
    answer, (receipt,) = receipts(query="greenhouse heater", limit=2)

    shown = [(one.message_id, one.session_id) for one in receipt.shown]
    assert shown == [(one["match_message_id"], one["session_id"]) for one in answer["results"]]
    assert (receipt.kind, receipt.client, receipt.session_id) == ("search", "codex", "now")
    assert receipt.query == "greenhouse heater"
    assert receipt.candidates > 0
    assert receipt.tokens == tokens(json.dumps(answer, ensure_ascii=False))
    assert receipt.milliseconds > 0
    assert all(one.score > 0 and one.parts["words"] > 0 for one in receipt.shown)


def test_reading_writes_a_receipt_too(receipts):
    """Reading, scrolling and browsing show sessions or the anchor; a refusal shows nothing and leaves no receipt."""
    _, (read_whole,) = receipts(session_id="s1")
    _, (browsed,) = receipts(limit=2)
    _, (scrolled,) = receipts(around_message_id=5)
    _, none = receipts(around_message_id=10**9)

    assert [one.as_json() for one in read_whole.shown] == [{"session_id": "s1"}]
    assert len(browsed.shown) == 2
    assert [one.message_id for one in scrolled.shown] == [5]
    assert {read_whole.kind, browsed.kind, scrolled.kind} == {"tool"}
    assert none == []


def test_an_incognito_conversation_leaves_no_receipt(receipts):
    """Its questions are stored nowhere."""
    _, none = receipts(ToolContext(incognito=True), query="greenhouse")

    assert none == []


def test_a_time_alone_lists_its_conversations_by_day(filled):
    """Dates without a query, and a question only about a time, give one short object per conversation."""
    tool = session_search(lambda: filled, SessionSettings(), clock=SystemClock())

    by_dates = tool.call({"after": "2026-03-02", "before": "2026-03-04"}, ToolContext())
    by_words = tool.call({"query": "what did we talk about on 2026-03-02?"}, ToolContext())

    assert (by_dates["mode"], [one["session_id"] for one in by_dates["results"]]) == ("timeline", ["s2", "s1"])
    assert [(one["day"], one["title"]) for one in by_words["results"]] == [("2026-03-02, Monday", "Talk 1")]
    assert by_words["time"] == "2026-03-02"


def test_a_filter_by_role_shows_no_message_without_the_words(ask):
    """The neighbour of a match that the filter excludes is not a match."""
    answer = ask(query="sourdough starter", role_filter=["user"])

    assert answer["results"] == []
    assert "the filters (role) excluded" in answer["reason"]


def test_a_hit_in_the_arguments_of_a_call_shows_them(store):
    """The snippet and the message name the call with what was found in it; the text that was found stays as it is."""
    name = SessionId("calls")
    store.create(Session(name, "cli", START))
    call = ToolCall("c1", "search_files", '{"pattern": "zebrafish"}')
    asked = NewMessage(Message(Role.ASSISTANT, "Looking at the tank.", (call,)), START, Origin.MODEL)
    store.append(name, [said("where?"), asked])

    tool = session_search(lambda: store, SessionSettings(), clock=SystemClock())
    (by_call,) = tool.call({"query": "zebrafish"}, ToolContext())["results"]
    (by_text,) = tool.call({"query": "tank"}, ToolContext())["results"]

    assert by_call["snippet"] == 'Looking at the tank. [called search_files({"pattern": "zebrafish"})]'
    assert "zebrafish" in by_call["messages"][-1]["content"]
    assert by_text["snippet"] == "Looking at the tank."
