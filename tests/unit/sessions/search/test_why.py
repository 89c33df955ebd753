"""Why a search shows a message, or why not; the same search as everywhere else."""

import random
from datetime import UTC, datetime

import pytest

from wellkept.core.clock import FixedClock
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.search.discovery import explain, find_conversations
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.testing.session_store_contract import Summarised

START = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
WORDS = [
    "heron",
    "greenhouse",
    "violin",
    "heater",
    "staging",
    "server",
    "lisbon",
    "marathon",
    "sourdough",
    "okapi",
    "tuesday",
    "deploy",
    "password",
    "tea",
]


def said(text, role=Role.USER, at=START):
    return NewMessage(Message(role, text), at, Origin.PERSON if role is Role.USER else Origin.MODEL)


def talk(store, name, *lines, source="cli", project=None):
    store.create(Session(SessionId(name), source, START, project=project))
    return store.append(SessionId(name), [said(line) for line in lines])


@pytest.fixture
def store(tmp_path):
    """A store whose clock stands still: the age of a message is part of its score."""
    opened = SqliteSessionStore(tmp_path / "state.db", clock=FixedClock())
    yield opened
    opened.close()


@pytest.fixture
def filled(store):
    """Twenty-five sessions of eight messages of random words; always the same ones."""
    chance = random.Random(7)
    for number in range(25):
        lines = [" ".join(chance.choices(WORDS, k=6)) for _ in range(8)]
        talk(store, f"s{number}", *lines)
    return store


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_the_rank_is_that_of_the_search(filled, limit):
    """For every conversation and message of many answers, `why` tells the same rank, score and parts."""
    chance = random.Random(limit)
    queries = [" ".join(chance.sample(WORDS, k=1 + number % 4)) for number in range(8)]
    queries += ['"heron violin"', "tea AND okapi", "green*", "what was the staging server?"]
    checked = 0
    for query in queries:
        request = SearchRequest(query, limit=limit)
        found = find_conversations(filled, request)
        for rank, match in enumerate(found.matches, start=1):
            told = explain(filled, request, match.message)
            assert (told.outcome, told.rank) == ("shown", rank)
            checked += 1
        for rank, hit in list(enumerate(found.found.messages, start=1))[::4]:  # each costs one search
            told = explain(filled, request, filled.message(hit.message_id))
            assert (told.message_rank, told.score, told.parts) == (rank, hit.score, hit.parts)
            assert told.score == pytest.approx(sum(told.parts.values()))
    assert checked >= len(queries) - 2


def test_explaining_changes_no_answer(filled):
    """The answer with an explanation is the answer without one."""
    plain = filled.search(SearchRequest("staging heron", limit=5))
    explained = filled.search(SearchRequest("staging heron", limit=5, explain=plain.messages[0].message_id))

    assert explained.explained is not None
    assert (explained.sessions, explained.messages) == (plain.sessions, plain.messages)


def test_below_the_limit_names_the_last_one_shown(filled):
    """A conversation that ranks after the limit tells its rank, and what the last one shown scored."""
    wide = find_conversations(filled, SearchRequest("okapi", limit=6)).matches
    request = SearchRequest("okapi", limit=2)
    shown = find_conversations(filled, request).matches

    told = explain(filled, request, wide[4].message)

    assert told.outcome == "below_limit"
    assert told.rank > 2
    assert told.last_shown.message_id == shown[-1].message.id
    assert "limit of 2" in told.reason


def test_a_conversation_counts_once(store):
    """The weaker message of a conversation names the one that is shown for it, also across a compaction."""
    ids = talk(store, "a", "the okapi eats", "the okapi eats leaves in the greenhouse", "yes")
    store.compact(
        SessionId("a"), Summarised(Message(Role.USER, "an okapi"), ids[:-1], [], ids[-1:], False, SessionId("b"))
    )
    request = SearchRequest("okapi eats leaves in the greenhouse")
    summary = store.messages(SessionId("b"))[0]

    weak, other = explain(store, request, store.message(ids[0])), explain(store, request, summary)

    assert (weak.outcome, weak.rank, weak.instead.message_id) == ("duplicate", 1, ids[1])
    assert (other.outcome, other.instead.message_id) == ("duplicate", ids[1])


@pytest.mark.parametrize(
    ("narrowing", "name"),
    [
        ({"sources": ("telegram",)}, "source"),
        ({"project": "/other"}, "project"),
        ({"roles": ("assistant",)}, "role"),
        ({"after": START + 60}, "after"),
        ({"before": START - 60}, "before"),
        ({"session_id": SessionId("b")}, "session"),
        ({"exclude_sessions": (SessionId("a"),)}, "session"),
    ],
)
def test_a_filter_is_named(store, narrowing, name):
    """Each filter that excludes the message is named."""
    (number,) = talk(store, "a", "an okapi", project="/p")
    talk(store, "b", "an okapi as well", project="/p")

    told = explain(store, SearchRequest("okapi", **narrowing), store.message(number))

    assert (told.outcome, told.excluded_by, told.rank) == ("excluded", name, None)


def test_sources_that_are_searched_only_by_name_are_named(store):
    """A message of a sub-agent is excluded unless the request names that source."""
    (number,) = talk(store, "a", "an okapi", source="subagent")

    assert explain(store, SearchRequest("okapi"), store.message(number)).excluded_by == "hidden source"
    assert explain(store, SearchRequest("okapi", sources=("subagent",)), store.message(number)).outcome == "shown"


def test_missing_words_are_named(store):
    """A message that is no candidate tells which words it lacks."""
    talk(store, "a", "an okapi and a giraffe")
    (number,) = talk(store, "b", "the violin lesson is on tuesday")

    told = explain(store, SearchRequest("okapi giraffe"), store.message(number))

    assert told.outcome == "no_candidate"
    assert {one.text: one.is_held for one in told.terms} == {"okapi": False, "giraffe": False}
    assert "'okapi'" in told.reason


def test_a_required_word_is_named_as_the_query(store):
    """An explicit query excludes what does not fulfil it."""
    (number,) = talk(store, "a", "an okapi eats leaves")

    told = explain(store, SearchRequest("okapi AND violin"), store.message(number))

    assert (told.outcome, told.excluded_by) == ("excluded", "query")


def test_a_question_without_words_finds_nothing(store):
    """A query of nothing but punctuation explains itself."""
    (number,) = talk(store, "a", "an okapi")

    assert explain(store, SearchRequest("?!"), store.message(number)).outcome == "no_candidate"


def test_an_unsure_search_says_so(store):
    """Where the best match has too little of the question, the message is ranked but not shown."""
    (number,) = talk(store, "a", "the server room has a window and a door " * 20)
    request = SearchRequest("server quagga xylophone zeppelin marzipan")

    told = explain(store, request, store.message(number))

    assert (told.outcome, told.rank, told.message_rank) == ("unsure", 1, 1)
