"""The JSON files that older versions of Hermes wrote, one for each session."""

import json
import time

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a JSON session into a home of Hermes."""

    def write(*messages, name="20260101_090000_aaaaaa", **values):
        path = tmp_path / "hermes" / "sessions" / f"session_{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        given = {"session_id": name, "model": "old-model", "platform": "cli", "session_start": "2026-01-01T09:00:00"}
        path.write_text(json.dumps({**given, "system_prompt": "You are", "messages": list(messages), **values}))
        return path.parent.parent

    return write


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture
def zone(monkeypatch):
    """A machine two hours east of UTC."""
    monkeypatch.setenv("TZ", "XXX-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_times_without_a_zone_are_those_of_this_machine(write, run, sessions, zone):
    """Nine o'clock two hours east of UTC is seven o'clock in UTC."""
    del zone
    run(write(user("Good morning"), {"role": "assistant", "content": "Hello"}))
    ((session, messages),) = sessions()

    assert session.model == "old-model"
    assert [one.message.text for one in messages] == ["Good morning", "Hello"]
    assert messages[0].timestamp == 1_767_250_800.0


def test_a_file_that_grew_adds_only_what_is_new(write, run, spoken):
    """Its messages have no ids, so what they say and how often identifies them."""
    run(write(user("continue"), user("continue")))
    again = run(write(user("continue"), user("continue")))
    run(write(user("continue"), user("continue"), user("continue"), user("stop")))

    assert again.messages["user"] == 0
    assert [text for _, text in spoken()] == ["continue", "continue", "continue", "stop"]


def test_a_session_that_the_database_has_is_not_stored_twice(write, hermes, run, spoken):
    """The files were written beside the database for a while."""
    hermes.session("20260101_090000_aaaaaa")
    hermes.say("user", "continue", "20260101_090000_aaaaaa")
    write(user("continue"))
    report = run(write(user("Only here"), name="20260102_090000_bbbbbb"))

    assert sorted(text for _, text in spoken()) == ["Only here", "continue"]
    assert report.left == {"stored in the database": 1}


def test_broken_files_are_named_and_the_rest_is_read(write, run, spoken):
    """Cut off, no object, no messages, messages of unknown shape."""
    home = write(user("Good"), 7, {"role": 3}, {"role": "user", "content": {"odd": 1}}, None)
    for name, content in (("cut", '{"messages": [{"ro'), ("list", "[1, 2]"), ("other", '{"messages": "none"}')):
        (home / "sessions" / f"session_{name}.json").write_text(content)
    report = run(home)

    assert [text for _, text in spoken()] == ["Good"]
    assert len(report.problems) == 4
    assert report.unknown == {"row '3'": 1}
