"""Conversations in the shapes of OpenAI's and Anthropic's APIs, imported with `kept sessions import`."""

import io
import json

import pytest

from wellkept.app import open_app
from wellkept.core.messages import ImagePart, Role, TextPart
from wellkept.operations.sessions import import_sessions

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def caller(home):
    app = open_app(str(home), None)
    yield app.caller()
    app.close()


def run(caller, *values, text=None):
    whole = text if text is not None else "".join(json.dumps(value) + "\n" for value in values)
    return import_sessions(caller, io.BytesIO(whole.encode()), source="import:jsonl").report


def stored(caller, session="s1"):
    return [one.message for one in caller.space.sessions.messages(session)]


OPENAI = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "a pixel"},
    {"role": "assistant", "content": "A pixel.", "reasoning_content": "seen"},
]  # fmt: skip

ANTHROPIC = [
    {"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "document", "title": "plan.pdf", "source": {"type": "base64", "data": "AAAA"}},
        {"type": "text", "text": "What is this?"},
    ]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "look first", "signature": "x"},
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a pixel"}]},
        {"type": "text", "text": "Go on"},
    ]},
]  # fmt: skip


def test_a_conversation_of_openai(caller):
    """Calls, results, images with their bytes; one elsewhere by its address."""
    report = run(
        caller, {"session_id": "s1", "title": "Pixels", "model": "gpt-5", "created": 1_780_000_000, "messages": OPENAI}
    )
    system, prompt, call, result, answer = stored(caller)

    assert (report.messages, report.bad) == (5, 0)
    assert (system.role, system.text) == (Role.SYSTEM, "Be brief.")
    assert prompt.content == (
        TextPart("What is this?"),
        ImagePart("image/png", PIXEL),
        TextPart("[image https://example.com/a.png]"),
    )
    assert [(one.id, one.name, one.arguments) for one in call.tool_calls] == [("call_1", "look", '{"at": 1}')]
    assert (result.role, result.tool_call_id, result.text) == (Role.TOOL, "call_1", "a pixel")
    assert (answer.text, answer.reasoning) == ("A pixel.", "seen")
    session = caller.space.sessions.session("s1")
    assert (session.title, session.model, session.started) == ("Pixels", "gpt-5", 1_780_000_000.0)


def test_a_conversation_of_anthropic(caller):
    """Results that come as the user's are the tool's; what the person said beside them stays the person's."""
    run(caller, {"id": "s1", "created_at": "2026-05-01T10:00:00Z", "system": "Be brief.", "messages": ANTHROPIC})
    _, prompt, answer, result, more = stored(caller)

    assert prompt.content == (ImagePart("image/png", PIXEL), TextPart("[file plan.pdf]"), TextPart("What is this?"))
    assert (answer.text, answer.reasoning, answer.tool_calls[0].arguments) == ("Looking.", "look first", '{"at": 1}')
    assert (result.role, result.tool_call_id, result.text) == (Role.TOOL, "toolu_1", "a pixel")
    assert (more.role, more.text) == (Role.USER, "Go on")


@pytest.mark.parametrize("messages", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
def test_single_messages_as_lines(caller, messages):
    """A line of ours may hold a message in either shape; a second import adds nothing."""
    lines = [{"session_id": "s1", "timestamp": 1_780_000_000 + place, **one} for place, one in enumerate(messages)]
    first, again = run(caller, *lines), run(caller, *lines)

    assert (first.messages, first.bad, again.messages, again.bad) == (len(messages) + (messages is ANTHROPIC), 0, 0, 0)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_array(caller, indent):
    """A list of messages is one conversation; again, and after it has grown, only what is new is added."""
    first = run(caller, text=json.dumps(OPENAI, indent=indent))
    again = run(caller, text=json.dumps(OPENAI, indent=indent))
    grown = run(caller, text=json.dumps([*OPENAI, {"role": "user", "content": "Thanks"}], indent=indent))
    pretty = run(caller, text=json.dumps({"messages": ANTHROPIC, "id": "s2"}, indent=indent))

    assert [one.messages for one in (first, again, grown, pretty)] == [5, 0, 1, 4]
    assert [one.sessions for one in (first, again, grown, pretty)] == [1, 0, 0, 1]


def test_items_of_the_responses_api(caller):
    """Calls and their outputs are items of their own."""
    run(caller, {"id": "s1", "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "seen"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Seen."}]},
    ]})  # fmt: skip
    prompt, call, result, answer = stored(caller)

    assert (prompt.text, call.tool_calls[0].name, result.text, answer.text) == ("Look", "look", "seen", "Seen.")
    assert result.tool_call_id == call.tool_calls[0].id == "c1"


def test_what_is_broken_costs_itself(caller):
    """A message without a role, or one that is not an object, is reported; the others are stored."""
    report = run(
        caller, {"id": "s1", "messages": [{"content": "?"}, 5, {"role": "wizard", "content": "x"}, *OPENAI[1:2]]}
    )

    assert (report.messages, report.bad) == (1, 3)
