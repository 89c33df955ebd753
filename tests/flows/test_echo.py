"""What a model repeats of recalled memory, in words, calls and thoughts, stays inside."""

import json
import sqlite3

import pytest

from wellkept.core.messages import Usage
from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback_servers import SIGNATURE, LoopbackAnthropic, LoopbackOpenAI

FACT = "Anna's favourite tea is oolong from Taiwan"
FENCED = f"<memory-context>\n[System note: recalled memory follows.]\n\n- {FACT}\n</memory-context>"
QUESTION = "Which tea is Anna's favourite?"


@pytest.fixture
def recalling(kept):
    """A home in which the fact is recalled."""
    kept("config", "set", "memory.provider", "holographic")
    kept("tool", "fact_store", json.dumps({"action": "add", "content": FACT}))
    return kept


def everything_kept(home):
    """All text of the messages table except copies of requests and signed thoughts."""
    rows = sqlite3.connect(home / "state.db").execute("SELECT content, tool_calls FROM messages").fetchall()
    return json.dumps(rows)


def test_an_echo_that_is_never_closed_is_kept_nowhere(recalling, home):
    """The answer that is stored and printed is the one that was shown: it ends where the echo began."""
    with LoopbackOpenAI([Says(f"I know: <memory-context>{FACT}", piece_length=3)]) as server:
        ran = recalling(
            "run", QUESTION, "--model", "openai/loopback-model", "--json", env=server.environment
        )  # fmt: skip

    assert FACT in json.dumps(server.bodies[0]["messages"][-1]["content"])
    assert ran.json["answer"] == "I know: "
    assert "Taiwan" not in everything_kept(home)


def test_an_echo_in_the_arguments_of_a_call_is_taken_out(recalling, home):
    """Neither the tool nor the transcript gets it; the next request carries the call as it is kept."""
    script = [
        Says(tool_calls=(call("memory", action="add", target="memory", content=f"A note {FENCED}"),)),
        "done",
    ]
    with LoopbackAnthropic(script) as server:
        ran = recalling(
            "run", QUESTION, "--model", "anthropic/claude-loopback", "--json", env=server.environment
        )  # fmt: skip

    assert [each["text"] for each in ran.json["saved"]] == ["A note"]
    assert "Taiwan" not in everything_kept(home)
    assert server.bodies[1]["messages"][1]["content"][-1]["input"]["content"] == "A note "


def test_a_review_never_sees_what_was_recalled(recalling, home):
    """Not in the person's messages, not in thoughts that quote it, and it cannot be saved as new afterwards."""
    script = [
        Says("Oolong.", thinking=f"They gave me {FENCED}"),
        Says("You are welcome.", thinking="Nothing to do."),
        Says(tool_calls=(call("memory", action="add", target="user", content=FACT),)),
        "reviewed",
    ]
    recalling("config", "set", "memory.nudge_interval", "2")
    model = ("--model", "anthropic/claude-loopback")
    with LoopbackAnthropic(script) as server:
        first = recalling("run", QUESTION, *model, "--json", env=server.environment)
        recalling("run", "Thanks", "--resume", first.json["session_id"], *model, env=server.environment)

    assert "Taiwan" in json.dumps(server.bodies[1]["messages"])
    assert "Taiwan" not in json.dumps(server.bodies[2]["messages"])
    assert "Background review" in json.dumps(server.bodies[2]["messages"][-1])
    assert recalling("memory", "show", "--json").json["user"]["entries"] == []


def test_an_export_shows_no_thought_that_quotes_what_was_recalled(recalling, home):
    """Signed thoughts go back to their endpoint unchanged, and into an export only with --raw."""
    thought = f"They gave me {FENCED} so the answer is clear."
    script = [Says("Oolong.", thinking=thought), Says("You are welcome.", thinking="Nothing to do.")]
    model = ("--model", "anthropic/claude-loopback")
    with LoopbackAnthropic(script) as server:
        first = recalling("run", QUESTION, *model, "--json", env=server.environment)
        session = first.json["session_id"]
        recalling("run", "Thanks", "--resume", session, *model, env=server.environment)
    exports = [recalling("sessions", "export", session, *raw).out for raw in ((), ("--raw",))]
    shown = recalling("sessions", "show", session).out + recalling("sessions", "show", session, "--json").out

    block = server.bodies[1]["messages"][1]["content"][0]
    assert (block["thinking"], block["signature"]) == (thought, SIGNATURE)
    assert "Taiwan" not in exports[0] + shown
    assert "so the answer is clear" in exports[0]
    assert "Nothing to do." in exports[0]
    assert "Taiwan" in exports[1]


def test_auxiliary_calls_are_counted(kept):
    """The tokens of a cheaper model that writes a title are counted under that task."""
    with LoopbackOpenAI(lambda _body: Says("A title", usage=Usage(100, 10)), models=("big", "small")) as server:
        kept("config", "set", "auxiliary.title.model", "small")
        kept("run", "hello", "--model", "openai/big", env=server.environment)

    rows = kept("usage", "--by", "task", "--json").json["rows"]
    assert [(row["key"], row["input_tokens"]) for row in rows] == [("main", 100), ("title", 100)]
