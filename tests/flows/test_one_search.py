"""One search: every surface gives the same conversations for the same question."""

import json
import re

import pytest

from wellkept.app import open_app
from wellkept.core.ids import SessionId
from wellkept.core.messages import Link, Message, NewMessage, Origin, Role, Session

QUESTIONS = ["which port does the staging database use?", "staging database", '"staging database"', "stag*", "violin"]


@pytest.fixture
def talked(home):
    """A conversation that was compacted twice, so that it is three sessions, and four other conversations."""
    app = open_app(str(home), environ={})
    store = app.owner.sessions
    said = {
        "chain-1": (None, "The staging database runs on heron, port 5433."),
        "chain-2": ("chain-1", "The staging database moved: the port of staging is 5434 now."),
        "chain-3": ("chain-2", "We checked the staging database and its port once more."),
        "other-1": (None, "Our staging database had no backup last week."),
        "other-2": (None, "Which port does the printer use? It is not a database."),
        "other-3": (None, "The staging area of the theatre is small."),
        "music": (None, "My violin lesson is on Tuesday."),
    }
    for number, (name, (parent, text)) in enumerate(said.items()):
        link = Link.COMPRESSION if parent else None
        session = Session(
            id=SessionId(name), source="cli", started=1_700_000_000.0 + number * 86_400,
            parent_session_id=SessionId(parent) if parent else None, link=link,
        )  # fmt: skip
        store.create(session)
        store.append(session.id, [NewMessage(Message(Role.USER, text), session.started, Origin.PERSON)])
    app.close()
    return said


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_surface_gives_the_same_conversations(kept, talked, question):
    """The command, its JSON, a batch, the tool and /search list the same sessions in the same order."""
    shown = re.findall(r"  (chain-\d|other-\d|music) \[\d+\]", kept("sessions", "search", question).out)
    as_json = kept("sessions", "search", question, "--json").json
    batch = json.loads(kept("sessions", "search", "--batch", "-", stdin=f"{question}\n").out)
    tool = kept("tool", "session_search", json.dumps({"query": question, "limit": 10})).json
    slash = re.findall(r"  (chain-\d|other-\d|music) \[\d+\]", kept("chat", stdin=f"/search {question}\n").out)

    ids = [one["session_id"] for one in as_json["sessions"]]
    assert ids
    assert shown == ids
    assert [one["session_id"] for one in batch["sessions"]] == ids
    assert [one["session_id"] for one in tool["results"]] == ids
    assert slash == ids


def test_the_sessions_of_one_conversation_count_once(kept, talked):
    """All three sessions of the compacted conversation match; the answer has one of them."""
    ids = [one["session_id"] for one in kept("sessions", "search", "staging database", "--json").json["sessions"]]

    assert sum(one.startswith("chain") for one in ids) == 1
    assert "other-1" in ids


@pytest.mark.parametrize(
    ("filler", "said", "questions"),
    [
        ("das ist etwas anderes; ", "Die Häuser am See sind verkauft", ["Haus", "Wann wurde das Haus verkauft?"]),
        ("eso no es lo que yo quiero; ", "Las canciones eran largas", ["canción", "¿Cómo era la canción?"]),
        ("das ist etwas anderes; ", "Schränke sind aus Holz", ["Schrank AND Hölzer", "Schrank OR Boot"]),
    ],
)
def test_a_word_is_found_and_shown_in_another_form(kept, home, filler, said, questions):
    """In German and Spanish, as a keyword, in a question and in a condition; the passage is the one with the form."""
    app = open_app(str(home), environ={})
    store = app.owner.sessions
    for number, text in enumerate([f"{filler * 80}{said}. {filler * 80}", "Nothing of this kind was said here."]):
        session = Session(id=SessionId(f"s{number}"), source="cli", started=1_700_000_000.0 + number)
        store.create(session)
        store.append(session.id, [NewMessage(Message(Role.USER, text), session.started, Origin.PERSON)])
    app.close()

    answers = [kept("sessions", "search", question, "--json").json["sessions"] for question in questions]
    shown = [kept("sessions", "search", question).out for question in questions]

    assert [[one["session_id"] for one in answer] for answer in answers] == [["s0"]] * len(questions)
    assert all(said in " ".join(text.split()) for text in shown)
