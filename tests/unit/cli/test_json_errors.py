"""With `--json` an error is an answer too, and stdout is never empty."""

import json

import pytest


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("sessions", "show", "nope", "--json"), 2, "there is no session 'nope'"),
        (("sessions", "search", "--json"), 2, "give a query"),
        (("forget", "--session", "nope", "--json"), 2, "there is no session 'nope'"),
        (("memory", "show", "--json", "--nope"), 2, "No such option: --nope"),
        (("providers", "test", "nope", "--json"), 2, "there is no memory provider"),
        (("connect", "nope", "--json"), 2, "there is no client 'nope'"),
        (("curator", "pin", "nope", "--json"), 1, "nope"),
    ],
)
def test_an_error_is_one_json_object(run, arguments, code, error):
    """What is wrong, and the next step."""
    done = run(*arguments)

    assert done.code == code
    answer = json.loads(done.out)
    assert error in answer["error"]
    assert {"error", "next"} <= set(answer)


def test_without_json_stdout_stays_empty(run):
    """The error is on stderr."""
    done = run("sessions", "show", "nope")

    assert (done.out, done.code) == ("", 2)
    assert "there is no session" in done.err


@pytest.mark.parametrize(("command", "answer"), [("pause", {"paused": True}), ("resume", {"paused": False})])
def test_the_curator_answers_as_json(run, command, answer):
    """What it changed, as an object."""
    assert json.loads(run("curator", command, "--json").out) == answer


def test_a_tool_refuses_an_argument_that_it_does_not_have(run):
    """It is named, with those that exist."""
    answer = json.loads(run("tool", "session_search", '{"query": "x", "nonsense": 3}').out)

    assert not answer["success"]
    assert "there is no argument 'nonsense'" in answer["error"]
    assert "role_filter" in answer["remedy"]
