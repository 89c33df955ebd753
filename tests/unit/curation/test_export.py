"""Everything of one user, written out."""

import json

import pytest

from kept.app import open_app
from kept.core.ids import OWNER, UserId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.curation.export import export_user
from kept.memory.approval import Approvals
from kept.memory.edits import Add, Author, Target
from kept.memory.store import MemoryStore
from kept.sessions.sqlite.store import SqliteSessionStore


@pytest.fixture
def app(tmp_path):
    """A home with a conversation, a page entry and a waiting write of the owner and of Ann.

    Homes from before users had folders of their own hold such rows in one ledger.
    """
    kept = open_app(str(tmp_path / "home"), environ={})
    for user in (OWNER, UserId("ann")):
        memory = MemoryStore(kept.home.memories, user=user, clock=kept.clock)
        approvals = Approvals(kept.home.pending / "memory", memory)
        sessions = kept.sessions.for_user(user)
        sessions.create(Session(id=f"s-{user}", source="cli", started=1.0))
        sessions.append(f"s-{user}", [NewMessage(Message(Role.USER, f"words of {user}"), 2.0, Origin.PERSON)])
        memory.apply("memory", Add(f"a fact of {user}"))
        approvals.stage(Target.USER, (Add(f"a wish of {user}"),), Author(), why="said in passing")
        memory.close()
    yield kept
    kept.close()


def lines_of(app, user):
    return list(export_user(app.sessions, app.memory, app.approvals, user=user))


def test_another_user_gets_their_own_and_nothing_else(app):
    """Conversation, entries, edits and waiting writes of that user, no word of anybody else."""
    lines = lines_of(app, "ann")
    text = json.dumps(lines)

    assert [line.get("type", "message") for line in lines] == ["session", "message", "page", "edit", "pending"]
    assert "words of ann" in text
    assert "a fact of ann" in text
    assert "a wish of ann" in text
    assert "of owner" not in text


def test_the_owner_gets_the_whole_pages(app):
    """The pages of a home are its owner's, whoever wrote on them."""
    pages = [line for line in lines_of(app, OWNER) if line.get("type") == "page"]

    assert pages == [{"type": "page", "target": "memory", "entries": ["a fact of owner", "a fact of ann"]}]


def test_an_unknown_user_has_nothing(app):
    """No line at all."""
    assert lines_of(app, "nobody") == []


def test_import_takes_the_conversations_back(app, tmp_path):
    """The lines that are no conversation are passed over in silence."""
    store = SqliteSessionStore(tmp_path / "other")

    report = store.transfer.imported(json.dumps(line).encode() for line in lines_of(app, "ann"))

    assert (report.sessions, report.messages, report.bad) == (1, 1, 0)
    store.close()
