"""Requests on the wire: the same history gives the same bytes, and one message more only extends them."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.messages import ChatRequest, ImagePart, Message, Role, TextPart, ToolCall
from wellkept.core.tools import ToolSchema
from wellkept.llm.anthropic import AnthropicModel
from wellkept.llm.endpoints import Endpoint, Sending
from wellkept.llm.openai import OpenAIModel
from wellkept.llm.prompt_caching import apply_cache_markers
from wellkept.llm.sdk import as_bytes

TOOLS = (
    ToolSchema("memory", "Keep.", {"type": "object", "properties": {"b": {}, "a": {}}}, "memory"),
    ToolSchema("a_tool", "Look.", {"type": "object"}, "memory"),
)


def mark_native(messages):
    return apply_cache_markers(messages, ttl="5m", native=True)


def mark_others(messages):
    return apply_cache_markers(messages, ttl="5m", native=False)


def models() -> dict[str, Any]:
    there = Endpoint("p", "https://example.test/v1")
    own = Endpoint("openai", "https://api.openai.com/v1")
    return {
        "anthropic": AnthropicModel(there, "claude-x", context_length=1, sending=Sending(), mark=mark_native),
        "anthropic unmarked": AnthropicModel(there, "m", context_length=1, sending=Sending()),
        "openai": OpenAIModel(own, "gpt-4o", context_length=1, sending=Sending()),
        "openrouter": OpenAIModel(there, "anthropic/claude-x", context_length=1, sending=Sending(), mark=mark_others),
    }


def without_markers(value: Any) -> Any:
    match value:
        case dict():
            return {key: without_markers(item) for key, item in value.items() if key != "cache_control"}
        case list():
            return [without_markers(item) for item in value]
        case _:
            return value


def markers(value: Any) -> int:
    match value:
        case dict():
            return ("cache_control" in value) + sum(markers(item) for item in value.values())
        case list():
            return sum(markers(item) for item in value)
        case _:
            return 0


words = st.text(min_size=1, max_size=20).filter(str.strip)


@st.composite
def turns(draw: st.DrawFn) -> list[list[Message]]:
    """Conversations as they grow: each item is what is added before the next request."""
    grown: list[list[Message]] = []
    number = 0
    for _ in range(draw(st.integers(1, 5))):
        grown.append([Message(Role.USER, draw(words))])
        for _ in range(draw(st.integers(0, 3))):
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                arguments = draw(st.sampled_from(['{"a": 1}', '{"text": "ü"}', "{broken", "[1]", "{}"]))
                calls.append(ToolCall(f"c{number}", "memory", arguments))
            reasoning = draw(
                st.sampled_from([None, "plain thoughts", '[{"type":"thinking","thinking":"t","signature":"s"}]'])
            )
            said = Message(Role.ASSISTANT, draw(st.text(max_size=9)), tool_calls=tuple(calls), reasoning=reasoning)
            grown.append([said, *(Message(Role.TOOL, draw(words), tool_call_id=one.id) for one in calls)])
        grown.append([Message(Role.ASSISTANT, draw(words))])
    return grown


@pytest.mark.parametrize("kind", sorted(models()))
@given(conversation=turns())
def test_each_request_extends_the_one_before(kind: str, conversation: list[list[Message]]):
    """Without its cache markers, a request is the one before it with messages added at the end."""
    model = models()[kind]
    history: tuple[Message, ...] = ()
    before: dict[str, Any] | None = None
    for added in conversation:
        history = (*history, *added)
        if history[-1].role is Role.ASSISTANT:
            continue
        body = model.body(ChatRequest("system", history, TOOLS))

        plain = without_markers(body)
        assert markers(body) <= 4
        if before is not None:
            count = len(before["messages"])
            assert json.dumps(plain["messages"][:count]) == json.dumps(before["messages"])
            assert {**plain, "messages": 0} == {**before, "messages": 0}
        assert as_bytes(body) == as_bytes(model.body(ChatRequest("system", history, TOOLS)))
        before = plain


@pytest.mark.parametrize("kind", ["anthropic", "anthropic unmarked"])
@given(conversation=turns())
def test_roles_alternate_for_anthropic(kind: str, conversation: list[list[Message]]):
    """Roles alternate, from the user on, and no text is blank."""
    history = tuple(message for added in conversation for message in added)
    body = models()[kind].body(ChatRequest("s", history, TOOLS))

    roles = [message["role"] for message in body["messages"]]
    assert all(first != second for first, second in itertools.pairwise(roles))
    assert roles[0] == "user"
    assert all(part.get("text", "x").strip() for message in body["messages"] for part in message["content"])


def test_tools_keep_their_order():
    """Tools are sent in the order given, with the keys of their schemas in theirs."""
    for model in models().values():
        sent = as_bytes(model.body(ChatRequest("s", (Message(Role.USER, "x"),), TOOLS))).decode()

        assert sent.index('"memory"') < sent.index('"a_tool"')
        assert sent.index('"b":{}') < sent.index('"a":{}')


def test_results_of_one_answer_and_the_next_question_are_one_user_message():
    """Results come first, then what the person said, in one message, as the API wants it."""
    history = (
        Message(Role.USER, "hi"),
        Message(Role.ASSISTANT, "", tool_calls=(ToolCall("a", "t", "{}"), ToolCall("b", "t", "{}"))),
        Message(Role.TOOL, "1", tool_call_id="a"),
        Message(Role.TOOL, "2", tool_call_id="b"),
        Message(Role.USER, "and?"),
    )

    last = models()["anthropic unmarked"].body(ChatRequest("", history))["messages"][-1]

    assert [part["type"] for part in last["content"]] == ["tool_result", "tool_result", "text"]


def test_images_go_to_both_apis():
    """An image is inline base64, in each API's own form."""
    request = ChatRequest("", (Message(Role.USER, (TextPart("see"), ImagePart("image/png", "QUJD"))),))

    native = models()["anthropic unmarked"].body(request)["messages"][0]["content"][1]
    assert native == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    other = models()["openai"].body(request)["messages"][0]["content"][1]
    assert other == {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def test_thinking_blocks_go_back_verbatim_and_plain_thoughts_do_not():
    """Signed blocks are sent back as they came; other models' thoughts are left out."""
    block = {"type": "thinking", "thinking": "t", "signature": "s"}
    signed = Message(Role.ASSISTANT, "x", reasoning=json.dumps([block]))
    plain = Message(Role.ASSISTANT, "x", reasoning="just text")
    model = models()["anthropic unmarked"]

    assert model.body(ChatRequest("", (Message(Role.USER, "q"), signed)))["messages"][1]["content"][0] == block
    assert model.body(ChatRequest("", (Message(Role.USER, "q"), plain)))["messages"][1]["content"] == [
        {"type": "text", "text": "x"}
    ]


def test_openai_only_fields_go_to_openai_only():
    """The cache key, the newer limit field and the switched-off reasoning are sent to OpenAI's own endpoint only."""
    request = ChatRequest("s", (Message(Role.USER, "x"),), TOOLS, max_output_tokens=9, conversation_id="c1")
    own = OpenAIModel(Endpoint("openai", "https://api.openai.com/v1"), "gpt-6-sol", context_length=1, sending=Sending())
    other = OpenAIModel(Endpoint("openai", "http://127.0.0.1:1/v1"), "gpt-6-sol", context_length=1, sending=Sending())

    assert own.body(request)["prompt_cache_key"] == "c1"
    assert own.body(request)["max_completion_tokens"] == 9
    assert own.body(request)["reasoning_effort"] == "none"
    assert {"prompt_cache_key", "max_completion_tokens", "reasoning_effort"}.isdisjoint(other.body(request))
    assert other.body(request)["max_tokens"] == 9


def test_request_options_are_sent_as_they_are():
    """A person's own fields join the request and win over ours."""
    sending = Sending(temperature=0.5, extra={"reasoning_effort": "low", "temperature": 1})
    model = OpenAIModel(Endpoint("openai", "http://127.0.0.1:1/v1"), "m", context_length=1, sending=sending)

    body = model.body(ChatRequest("s", (Message(Role.USER, "x"),)))

    assert body["reasoning_effort"] == "low"
    assert body["temperature"] == 1


def test_half_a_surrogate_pair_can_be_sent():
    """Text that has no UTF-8 form does not end the turn."""
    assert as_bytes({"text": "a\ud800b"}) == b'{"text":"a?b"}'
