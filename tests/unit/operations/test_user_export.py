"""Everything of one user, written out."""

import json
from base64 import b64decode

import pytest

from wellkept.app import open_app
from wellkept.core.errors import UsageError
from wellkept.core.ids import OWNER, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.memory.page import Add, Author, Target
from wellkept.operations.users import check_user_id, export_lines, export_user
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.skills.changes import Author as By
from wellkept.skills.changes import Create


@pytest.fixture
def app(tmp_path):
    """A home with a conversation, a page entry and a pending write of the owner and of Ann."""
    app = open_app(str(tmp_path / "home"), environ={})
    for user in (OWNER, UserId("ann")):
        space = app.space(user)
        space.sessions.create(Session(id=f"s-{user}", source="cli", started=1.0))
        space.sessions.append(f"s-{user}", [NewMessage(Message(Role.USER, f"words of {user}"), 2.0, Origin.PERSON)])
        space.memory.apply("memory", Add(f"a fact of {user}"))
        space.approvals.stage(Target.USER, (Add(f"a wish of {user}"),), Author(), why="said in passing")
    yield app
    app.close()


def lines_of(app, user):
    space = app.space(user)
    return list(export_lines(space.sessions, space.memory, space.approvals))


def test_another_user_gets_their_own_and_nothing_else(app):
    """Conversation, entries, edits and waiting writes of that user, no word of anybody else."""
    lines = lines_of(app, "ann")
    text = json.dumps(lines)

    assert [line.get("type", "message") for line in lines] == ["session", "message", "page", "edit", "pending"]
    assert "words of ann" in text
    assert "a fact of ann" in text
    assert "a wish of ann" in text
    assert "of owner" not in text


def test_the_owner_gets_nothing_of_another_user(app):
    """The owner's export holds the owner's pages alone."""
    text = json.dumps(lines_of(app, OWNER))

    assert "a fact of owner" in text
    assert "ann" not in text


def test_an_unknown_user_has_nothing(app):
    """No line at all."""
    assert lines_of(app, "nobody") == []


def test_import_takes_the_conversations_back(app, tmp_path):
    """Lines that are not part of a conversation are skipped silently."""
    store = SqliteSessionStore(tmp_path / "other")

    report = store.transfer.import_lines(json.dumps(line).encode() for line in lines_of(app, "ann"))

    assert (report.sessions, report.messages, report.bad) == (1, 1, 0)
    store.close()


def test_the_own_skills_are_in_it(app):
    """With every file; those of the owner are not Ann's, and an import passes over them."""
    space = app.space("ann")
    space.skill_tools.editor.apply(
        Create("tea", "---\nname: tea\ndescription: Makes tea well\n---\n\n1. Boil.\n"), By()
    )
    (space.home.skills / "tea" / "assets").mkdir()
    (space.home.skills / "tea" / "assets" / "leaf.png").write_bytes(b"\x89PNG\0\xff")

    lines = list(export_user(app.caller("ann")).lines)
    (skill,) = [line for line in lines if line.get("type") == "skill"]

    assert (skill["name"], skill["folder"], list(skill["files"])) == ("tea", "tea", ["SKILL.md"])
    assert b64decode(skill["binary"]["assets/leaf.png"]) == b"\x89PNG\0\xff"
    assert not [line for line in export_user(app.caller()).lines if line.get("type") == "skill"]
    assert space.sessions.transfer.import_lines([json.dumps(line).encode() for line in lines], source="x").bad == 0


@pytest.mark.parametrize("name", ["", "  ", "nul\0", "line\nbreak", "\ud800", "x" * 300])
def test_an_id_that_no_database_could_store_is_refused(name):
    """A lone surrogate can come in as JSON."""
    with pytest.raises(UsageError, match="cannot be a user id"):
        check_user_id(name)
