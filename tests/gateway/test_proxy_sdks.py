"""The vendors' own SDKs behind the proxy: what they get is what they get from their endpoint."""

import json

import anthropic
import openai
import pytest

from wellkept.core.messages import ToolCall, Usage
from wellkept.llm.scripted import Says
from wellkept.testing.loopback import API_KEY, FailsMidway, Raw, Status
from wellkept.testing.loopback_agents import open_agent_server
from wellkept.testing.loopback_servers import LoopbackAnthropic, LoopbackOpenAI

from .conftest import serve
from .proxied import World

WEATHER = {"name": "weather", "description": "", "input_schema": {"type": "object", "properties": {}}}
FUNCTION = {"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object"}}}
STEPS = {
    "text": Says("hello from the model", usage=Usage(11, 5, 3, 2)),
    "tools": Says("let me see", (ToolCall("call_7", "weather", '{"city": "Leipzig", "days": 2}'),)),
    "thinking": Says("42", thinking="six times seven"),
    "long": Says("a sentence that is said often. " * 40, piece_length=7),
}
ERRORS = {
    "bad request": Status(400, "max_tokens: must be positive"),
    "no credit": Status(401, "the key is not valid"),
    "busy": Status(429, "slow down", retry_after="3"),
    "overloaded": Status(529, "Overloaded"),
    "midway": FailsMidway(Says("half of it"), 3),
}


class Endpoints:
    """Endpoints of the three APIs, and a proxy in front of them."""

    def __init__(self):
        self.step = "noted"
        self.servers = {
            "anthropic": LoopbackAnthropic(lambda _body: self.step),
            "chat": LoopbackOpenAI(lambda _body: self.step),
            "responses": open_agent_server("responses", lambda _body: self.step),
        }

    def clients(self, kind):
        """Return one client that talks to the endpoint, and one that talks to the proxy."""
        make = anthropic.Anthropic if kind == "anthropic" else openai.OpenAI
        end = "" if kind == "anthropic" else "/v1"
        places = (f"{self.servers[kind].url}{end}", f"{self.served.proxy}/{kind}{end}")
        return [make(base_url=place, api_key=API_KEY, max_retries=0, timeout=60) for place in places]


@pytest.fixture
def endpoints(home):
    made = Endpoints()
    with made.servers["anthropic"], made.servers["chat"], made.servers["responses"]:
        environ = {
            "KEPT_SERVE__PROXY__ENABLED": "true",
            "KEPT_SERVE__PROXY__WAIT_MILLISECONDS": "10000",
            "KEPT_SERVE__PROXY__UPSTREAMS": json.dumps({name: one.url for name, one in made.servers.items()}),
        }
        with serve(home, environ) as served:
            made.served = served
            made.world = World(served, None)
            made.world.note("I live in Leipzig")
            yield made


def ask_messages(client, text="how is the weather in Leipzig?"):
    asked = [{"role": "user", "content": text}]
    more = {"tools": [WEATHER], "thinking": {"type": "enabled", "budget_tokens": 1_024}}
    with client.messages.stream(model="loopback-model", max_tokens=9_999, messages=asked, **more) as found:
        events = [event.model_dump() for event in found]
        return events, found.get_final_message().model_dump()


def ask_chat(client, text="how is the weather in Leipzig?"):
    asked = [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]
    options = {"include_usage": True}
    found = client.chat.completions.create(
        model="loopback-model", messages=asked, tools=[FUNCTION], stream=True, stream_options=options
    )
    return [chunk.model_dump() for chunk in found]


def ask_responses(client, text="how is the weather in Leipzig?"):
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}]
    found = client.responses.create(model="loopback-model", input=text, tools=tools, stream=True)
    return [event.model_dump() for event in found]


ASKS = {"anthropic": ask_messages, "chat": ask_chat, "responses": ask_responses}


@pytest.mark.parametrize("kind", ASKS)
def test_answers_tools_and_thinking_are_those_of_the_endpoint(endpoints, kind):
    """Every event that the SDK yields is the same with and without the proxy; the endpoint takes what was added."""
    direct, proxied = endpoints.clients(kind)
    for step in STEPS.values():
        endpoints.step = step
        assert ASKS[kind](proxied) == ASKS[kind](direct)
        given, plain = (received.raw for received in endpoints.servers[kind].requests[-2:])
        assert (b"memory-context" in given, b"memory-context" in plain) == (True, False)


@pytest.mark.parametrize("kind", ASKS)
def test_errors_are_those_of_the_endpoint(endpoints, kind):
    """The SDK raises the same error, with the same text, body and headers."""

    def fail(client):
        with pytest.raises((anthropic.APIError, openai.APIError)) as raised:
            ASKS[kind](client)
        found = raised.value
        headers = {} if getattr(found, "response", None) is None else found.response.headers
        return type(found), str(found), found.body, headers.get("retry-after")

    direct, proxied = endpoints.clients(kind)
    for step in ERRORS.values():
        if kind == "responses" and isinstance(step, FailsMidway):
            continue  # the SDK yields it as an event
        endpoints.step = step
        assert fail(proxied) == fail(direct)
    endpoints.world.settle()


def test_a_whole_answer_and_the_models(endpoints):
    """Without a stream, and for lists, the SDKs see no difference."""
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "loopback-model"}
    body["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "whole"}}]
    endpoints.step = Raw(json.dumps(body).encode(), "application/json")
    direct, proxied = endpoints.clients("chat")
    ask = [{"role": "user", "content": "good morning"}]
    answers = [one.chat.completions.create(model="loopback-model", messages=ask) for one in (direct, proxied)]
    assert answers[0] == answers[1]
    assert [one.id for one in proxied.models.list()] == [one.id for one in direct.models.list()]
    assert endpoints.world.stored() == [[("user", "good morning"), ("assistant", "whole")]]


def test_what_is_told_through_one_sdk_is_known_through_the_other(endpoints):
    """One memory behind both."""
    ask_messages(endpoints.clients("anthropic")[1], "The staging server is called heron")
    endpoints.world.settle()
    ask_chat(endpoints.clients("chat")[1], "what is the staging server called?")
    assert "is called heron" in endpoints.servers["chat"].bodies[-1]["messages"][-1]["content"]
    endpoints.world.settle()
    ask_responses(endpoints.clients("responses")[1], "what is the staging server called?")
    assert "is called heron" in endpoints.servers["responses"].bodies[-1]["input"]


def test_a_loop_of_tools_with_thinking_is_one_conversation(endpoints):
    """The SDK sends signed thinking back; the endpoint accepts it, and calls and results are stored once."""
    _direct, client = endpoints.clients("anthropic")
    endpoints.step = Says("let me see", (ToolCall("call_7", "weather", "{}"),), thinking="I need the weather")
    _events, first = ask_messages(client)
    history = [
        {"role": "user", "content": "how is the weather in Leipzig?"},
        {"role": "assistant", "content": first["content"]},
    ]
    history.append(
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": first["content"][-1]["id"], "content": "rain"}],
        }
    )
    endpoints.step = "it rains"
    list(client.messages.create(model="loopback-model", max_tokens=99, messages=history, tools=[WEATHER], stream=True))
    (talk,) = endpoints.world.stored()
    assert [role for role, _text in talk] == ["user", "assistant", "tool", "assistant"]
    assert talk[1:] == [("assistant", "let me see"), ("tool", "rain"), ("assistant", "it rains")]
