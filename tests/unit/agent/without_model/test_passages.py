"""Passages of past conversations, from a real store."""

from datetime import UTC, datetime, timedelta

import pytest

from wellkept.agent.without_model.passages import LISTED, PASSAGE_CHARS, list_said, look_up
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

FILLER = "The weather was mild and the meeting went on about many things that nobody remembers. " * 40


@pytest.fixture
def store(tmp_path):
    database = open_state(tmp_path / "state.db")
    yield SqliteSessionStore(database)
    database.close()


def test_a_long_message_is_shown_where_it_answers(store):
    """The words that were asked for are in the passage, wherever in the message they stand."""
    said = Message(Role.USER, f"{FILLER}The vault code is 7781-Q. {FILLER}")
    store.create(Session(SessionId("s"), "cli", started=1.0))
    store.append(SessionId("s"), [NewMessage(said, 1.0, Origin.PERSON)])

    (found,) = look_up(store, "What is the vault code?")

    assert "The vault code is 7781-Q." in found.text
    assert len(found.text) <= PASSAGE_CHARS + 2


def test_a_question_about_a_time_lists_its_conversations_in_chat(store):
    """Each with its day and a source; a conversation that began with such a question tells nothing."""
    noon = datetime.now(UTC).replace(hour=12)
    for name, text, day in (("a", "Paint the fence", 1), ("b", "What did we do last year?", 1), ("c", "Old", 9)):
        at = (noon - timedelta(days=day)).timestamp()
        store.create(Session(SessionId(name), "cli", started=at))
        store.append(SessionId(name), [NewMessage(Message(Role.USER, text), at, Origin.PERSON)])

    (found,) = look_up(store, "what did we do yesterday?")

    assert (found.text, found.day) == ("Paint the fence", f"{noon - timedelta(days=1):%Y-%m-%d}")
    assert "session a, message 1" in found.source


def test_a_list_of_a_time_says_how_many_conversations_it_leaves_out(store):
    """Conversations that only asked for a time take no place in it."""
    noon = datetime.now(UTC).replace(hour=12) - timedelta(days=1)
    for number in range(LISTED + 25):
        at, name = (noon + timedelta(minutes=number)).timestamp(), SessionId(f"s{number}")
        text = "What did we do last year?" if number % 2 else f"Paint fence {number}"
        store.create(Session(name, "cli", started=at))
        store.append(name, [NewMessage(Message(Role.USER, text), at, Origin.PERSON)])
    for number in range(5):
        at, name = (noon - timedelta(minutes=1 + number)).timestamp(), SessionId(f"t{number}")
        store.create(Session(name, "cli", started=at))
        store.append(name, [NewMessage(Message(Role.USER, f"Early {number}"), at, Origin.PERSON)])

    found = look_up(store, "what did we do yesterday?")

    assert len(found) == LISTED
    assert [each.more for each in found if each.more] == [3]


def test_a_name_is_told_by_what_names_the_thing(store):
    """Another name is not an answer; a name may be given without a word for it, and no cat is a dog."""
    said = ["our dog Rex chewed my headphones", "my sister is called Paula", "My name is Tomasz"]
    store.create(Session(SessionId("s"), "cli", started=1.0))
    store.append(SessionId("s"), [NewMessage(Message(Role.USER, text), 1.0, Origin.PERSON) for text in said])

    assert [found.text for found in look_up(store, "what is the name of my dog?")] == [said[0]]
    assert [found.text for found in look_up(store, "what is my pet called?")] == [said[0]]
    assert look_up(store, "what is my cat called?") == []


def test_what_was_said_is_found_behind_conversations_that_only_ask(store):
    """A person who asked many questions still gets what is known."""
    for number in range(30):
        text, name = "I live in Leipzig" if number == 0 else "where do I live?", SessionId(f"s{number}")
        store.create(Session(name, "cli", started=float(number)))
        store.append(name, [NewMessage(Message(Role.USER, text), float(number), Origin.PERSON)])

    assert [found.text for found in list_said(store)] == ["I live in Leipzig"]


def test_what_was_talked_about_last_is_found_behind_questions_about_a_time(store):
    """They tell nothing, however many came after it."""
    for number in range(10):
        text, name = "Paint the fence" if number == 0 else "What did we do last year?", SessionId(f"s{number}")
        store.create(Session(name, "cli", started=float(number)))
        store.append(name, [NewMessage(Message(Role.USER, text), float(number), Origin.PERSON)])

    assert [found.text for found in look_up(store, "what did we talk about last time?")] == ["Paint the fence"]
