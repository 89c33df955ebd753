"""What every chat model does, whichever adapter is behind it: the real SDKs against real loopback servers."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wellkept.core.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused
from wellkept.core.messages import (
    ChatRequest,
    ChatResponse,
    Delta,
    Message,
    ReasoningDelta,
    Role,
    TextDelta,
    ToolCall,
    Usage,
)
from wellkept.core.ports import ChatModel
from wellkept.core.tools import ToolSchema
from wellkept.llm.anthropic import AnthropicModel
from wellkept.llm.endpoints import Endpoint, Sending
from wellkept.llm.openai import OpenAIModel
from wellkept.llm.scripted import Says, ScriptedModel, call
from wellkept.testing.loopback import API_KEY, Drops, FailsMidway, Hangs, Loopback, Overflows, Raw, Status
from wellkept.testing.loopback_servers import LoopbackAnthropic, LoopbackOpenAI

TOOL = ToolSchema("memory", "Keep a fact.", {"type": "object", "properties": {"text": {"type": "string"}}}, "memory")
HELLO = ChatRequest("You are kept.", (Message(Role.USER, "hello"),), (TOOL,))
TWO_CALLS = Says(
    "I will look. Ünïcödé 你好 🎉",
    (call("memory", text='quotes " and \\ and\nlines'), call("memory", text="你好"), call("memory")),
    thinking="Let me think about it.",
    usage=Usage(11, 22, 33, 44),
)


@dataclass
class Served:
    """A model and the server behind it."""

    model: ChatModel
    server: Loopback


def openai_model(script, **sending) -> tuple[ChatModel, Loopback]:
    server = LoopbackOpenAI(script)
    endpoint = Endpoint("openai", server.base_url, API_KEY, "OPENAI_API_KEY")
    return OpenAIModel(endpoint, "loopback-model", context_length=1000, sending=Sending(**sending)), server


def anthropic_model(script, **sending) -> tuple[ChatModel, Loopback]:
    server = LoopbackAnthropic(script)
    endpoint = Endpoint("anthropic", server.base_url, API_KEY, "ANTHROPIC_API_KEY")
    return AnthropicModel(endpoint, "loopback-model", context_length=1000, sending=Sending(**sending)), server


MAKERS = {"openai": openai_model, "anthropic": anthropic_model}
Serve = Callable[..., Served]


@pytest.fixture(params=sorted(MAKERS))
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(*script, **sending) -> Served:
            model, server = MAKERS[request.param](script[0] if callable(script[0]) else script, **sending)
            stack.enter_context(server)
            return Served(model, server)

        yield start


@pytest.fixture(params=[*sorted(MAKERS), "scripted"])
def any_model(request: pytest.FixtureRequest) -> Iterator[Callable[..., ChatModel]]:
    with ExitStack() as stack:

        def start(*script) -> ChatModel:
            if request.param == "scripted":
                return ScriptedModel(script)
            model, server = MAKERS[request.param](script)
            stack.enter_context(server)
            return model

        yield start


def deltas_of(model: ChatModel, request: ChatRequest = HELLO) -> list[Delta]:
    async def collect() -> list[Delta]:
        try:
            return [delta async for delta in model.stream(request)]
        finally:
            if hasattr(model, "aclose"):
                await model.aclose()

    return asyncio.run(collect())


def answer_of(model: ChatModel, request: ChatRequest = HELLO) -> ChatResponse:
    last = deltas_of(model, request)[-1]
    assert isinstance(last, ChatResponse)
    return last


def test_text_arrives_in_pieces_and_whole_at_the_end(any_model):
    """The pieces of a stream, joined, are the text of the response, which comes last."""
    deltas = deltas_of(any_model(Says("A somewhat longer answer, in 你好 pieces.")))

    shown = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert len(shown) > 1
    assert isinstance(deltas[-1], ChatResponse)
    assert "".join(shown) == deltas[-1].message.content == "A somewhat longer answer, in 你好 pieces."
    assert deltas[-1].stop_reason == "end"


def test_several_calls_in_one_answer_keep_their_arguments(any_model):
    """Three calls of one answer come back with their own ids, names and arguments."""
    response = answer_of(any_model(TWO_CALLS))

    calls = response.message.tool_calls
    assert [one.name for one in calls] == ["memory"] * 3
    assert len({one.id for one in calls}) == 3
    assert [json.loads(one.arguments) for one in calls] == [
        {"text": 'quotes " and \\ and\nlines'},
        {"text": "你好"},
        {},
    ]
    assert response.stop_reason == "tool_calls"
    assert response.message.text == TWO_CALLS.text


def test_usage_counts_uncached_input_apart(any_model):
    """Input read from and written to the cache is not counted as plain input."""
    assert answer_of(any_model(TWO_CALLS)).usage == Usage(11, 22, 33, 44)


def test_thinking_is_separate_from_text(any_model):
    """Thinking is streamed as such and never becomes part of the text."""
    deltas = deltas_of(any_model(Says("Yes.", thinking="Is it so? It is.")))

    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == "Is it so? It is."
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "Yes."


def test_several_rounds_of_calls(any_model):
    """Results go back, more calls come, and the last answer is text."""
    model = any_model(
        Says("", (call("memory", text="a"), call("memory", text="b"))), Says("", (call("memory", text="c"),)), "Done."
    )
    history: tuple[Message, ...] = HELLO.messages
    for _ in range(3):
        response = answer_of(model, ChatRequest(HELLO.system, history, HELLO.tools))
        results = tuple(
            Message(Role.TOOL, '{"success": true}', tool_call_id=one.id, tool_name=one.name)
            for one in response.message.tool_calls
        )
        history = (*history, response.message, *results)

    assert history[-1].text == "Done."
    assert sum(len(message.tool_calls) for message in history) == 3


def test_the_answer_names_the_model(any_model):
    """The response carries the name by which the configuration knows the model."""
    model = any_model("hi")

    assert answer_of(model).model == model.name


@given(cuts=st.lists(st.integers(1, 150), min_size=1, max_size=8), piece_length=st.integers(1, 30))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_any_chunk_boundary(maker: str, cuts: list[int], piece_length: int):
    """Wherever the bytes of a stream are cut, the answer is the same."""
    says = Says(TWO_CALLS.text, TWO_CALLS.tool_calls, TWO_CALLS.thinking, TWO_CALLS.usage, piece_length=piece_length)
    model, server = MAKERS[maker]([says, TWO_CALLS])

    def cut(body: bytes) -> Iterator[bytes]:
        start, turn = 0, 0
        while start < len(body):
            length = cuts[turn % len(cuts)]
            yield body[start : start + length]
            start, turn = start + length, turn + 1

    with server:
        server.cut = cut
        cut_up = answer_of(model)
        server.cut = None
        whole = answer_of(model)

    assert [(one.name, one.arguments) for one in cut_up.message.tool_calls] == [
        (one.name, one.arguments) for one in whole.message.tool_calls
    ]
    assert cut_up.message.content == whole.message.content
    assert cut_up.message.reasoning == whole.message.reasoning
    assert cut_up.usage == whole.usage


REFUSALS = {
    401: ["_API_KEY", "kept model test"],
    403: ["_API_KEY", "loopback-model"],
    404: ["kept model list", "loopback-model"],
    400: ["not a good request"],
    422: ["not a good request"],
}


@pytest.mark.parametrize("status", sorted(REFUSALS))
def test_a_refusal_says_what_to_do_next(serve, status: int):
    """A 4xx is a ModelRefused in one line that names the next step and never the key."""
    served = serve(Status(status, f"not a good request, key {API_KEY}"))

    with pytest.raises(ModelRefused) as caught:
        answer_of(served.model)

    line = str(caught.value)
    assert all(word in line for word in REFUSALS[status])
    assert "\n" not in line
    assert API_KEY not in line


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_an_overload_may_be_tried_again(serve, status: int):
    """429, 5xx and 529 are a ModelBusy, with the server's wish to wait."""
    served = serve(Status(status, "slow down", retry_after="7"))

    with pytest.raises(ModelBusy) as caught:
        answer_of(served.model)

    assert caught.value.retry_after_seconds == 7
    assert str(status) in str(caught.value)


def test_a_used_up_quota_is_not_an_overload():
    """A 429 that says the account is empty is refused: waiting does not fill it."""
    model, server = openai_model([Status(429, "You exceeded your current quota", kind="insufficient_quota")])

    with server, pytest.raises(ModelRefused, match="no credit left"):
        answer_of(model)


def test_an_oversized_request_is_an_overflow(serve):
    """Each vendor's own refusal of an oversized request is a ContextOverflow."""
    with pytest.raises(ContextOverflow):
        answer_of(serve(Overflows()).model)


@pytest.mark.parametrize("after", [0, 1, 2, 4, 7])
def test_a_dropped_connection_is_noticed(serve, after: int):
    """An answer whose connection is cut is never taken for a whole one."""
    with pytest.raises(ModelBusy):
        answer_of(serve(Drops(TWO_CALLS, after)).model)


def test_a_stream_that_stops_early_but_cleanly_is_noticed(serve):
    """A stream that ends in good order but without its end mark is not a whole answer."""
    served = serve("x")
    events = served.server.dialect.events(TWO_CALLS, model="m")
    served.server._script = iter([Raw(b"".join(events[:4]))])

    with pytest.raises(ModelBusy, match="was cut off"):
        answer_of(served.model)


def test_an_empty_stream_is_noticed(serve):
    """No events at all is an error that may be tried again."""
    with pytest.raises(ModelBusy, match="empty stream"):
        answer_of(serve(Raw()).model)


@pytest.mark.parametrize(
    "body", [b"<html>hello</html>", b"data: {broken\n\n", b"event: message_start\ndata: {broken\n\n"]
)
def test_garbage_is_noticed(serve, body: bytes):
    """What is not the protocol is an error in one line, not a crash."""
    with pytest.raises(ModelBusy) as caught:
        answer_of(serve(Raw(body)).model)

    assert "\n" not in str(caught.value)


def test_an_error_inside_a_stream_keeps_its_meaning(serve):
    """An overload that is reported after the answer began may be retried."""
    with pytest.raises(ModelBusy):
        answer_of(serve(FailsMidway(TWO_CALLS, 3)).model)


def test_a_silent_server_times_out(serve):
    """Silence longer than the time-out is a ModelBusy that names the setting."""
    with pytest.raises(ModelBusy, match=r"model\.timeout"):
        answer_of(serve(Hangs(0.6), timeout_seconds=0.2).model)


@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_an_unreachable_server_is_named(maker: str):
    """A port where nobody listens is named with its address."""
    model, server = MAKERS[maker]([])
    address = server.url
    server._server.server_close()

    with pytest.raises(ModelBusy, match="cannot be reached") as caught:
        answer_of(model)

    assert address in str(caught.value)


def test_invalid_json_in_arguments_comes_through_and_can_be_sent_back(serve):
    """Broken arguments are handed on byte for byte, and the next request with them is accepted."""
    served = serve(Says("", (ToolCall("", "memory", '{"text": "un'),)), "Sorry.")
    first = answer_of(served.model)
    broken = first.message.tool_calls[0]

    result = Message(Role.TOOL, '{"success": false}', tool_call_id=broken.id, tool_name="memory")
    second = answer_of(served.model, ChatRequest("s", (*HELLO.messages, first.message, result), (TOOL,)))

    assert broken.arguments == '{"text": "un'
    assert second.message.text == "Sorry."


def test_closing_the_iterator_ends_the_request(serve):
    """Closing the stream early closes the connection, so that the server stops working."""
    served = serve(Says("word " * 200, piece_length=5, delay_seconds=0.01))

    async def interrupt() -> None:
        stream = served.model.stream(HELLO)
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.to_thread(served.server.hung_up.wait, 5)
        await served.model.aclose()  # type: ignore[attr-defined]

    asyncio.run(interrupt())

    assert served.server.hung_up.is_set()


def test_cancelling_the_task_ends_the_request(serve):
    """A cancelled task closes the connection too."""
    served = serve(Says("word " * 200, piece_length=5, delay_seconds=0.01))

    async def interrupt() -> None:
        async def read() -> None:
            async for _ in served.model.stream(HELLO):
                pass

        task = asyncio.create_task(read())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(served.server.hung_up.wait, 5)
        await served.model.aclose()

    asyncio.run(interrupt())

    assert served.server.hung_up.is_set()


def test_a_model_serves_one_event_loop_after_another(serve):
    """The same model can be used from a new event loop, as background tasks do."""
    served = serve("one", "two")

    async def ask() -> str:
        try:
            return [delta async for delta in served.model.stream(HELLO)][-1].message.text
        finally:
            await served.model.aclose()

    assert [asyncio.run(ask()), asyncio.run(ask())] == ["one", "two"]


def test_an_error_is_a_model_error_for_the_scripted_model_too():
    """The scripted model raises what its script says, and refuses when the script is over."""
    model = ScriptedModel([ModelBusy("busy")])

    for expected in (ModelBusy, ModelRefused):
        with pytest.raises(ModelError) as caught:
            answer_of(model)
        assert isinstance(caught.value, expected)
