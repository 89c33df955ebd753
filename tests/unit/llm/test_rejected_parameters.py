"""Parameters that a model does not take are left out or named as it wants them; the chat continues."""

import asyncio

import pytest

from wellkept.core.errors import ModelRefused
from wellkept.core.events import Warned
from wellkept.core.messages import ChatRequest, ChatResponse, Message, Role
from wellkept.llm.models import Configured, Models
from wellkept.llm.settings import ModelSettings
from wellkept.testing.loopback import Status
from wellkept.testing.loopback_servers import LoopbackAnthropic, LoopbackOpenAI

ASK = ChatRequest("", (Message(Role.USER, "hi"),), max_output_tokens=50)
NO_MAX_TOKENS = Status(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    kind="unsupported_parameter",
)
NO_TEMPERATURE = Status(
    400,
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
    kind="unsupported_value",
)


def asked(server, name, *, times=1, told=None, **settings):
    """Ask the model so often and return its last answer."""
    sink = (lambda _event: None) if told is None else told.append
    configured = Configured(ModelSettings(**settings))
    model = Models(configured, server.environment, sink=sink).bare(name)

    async def ask():
        for _ in range(times):
            answer = [delta async for delta in model.stream(ASK)][-1]
        assert isinstance(answer, ChatResponse)
        return answer.message.text

    return asyncio.run(ask())


def test_a_limit_is_sent_under_the_name_that_the_model_takes():
    """Models from gpt-5 on, wherever they are served, refuse the older name; it is learned once."""
    with LoopbackOpenAI([NO_MAX_TOKENS, "one", "two"]) as server:
        assert asked(server, "openai/gpt-5", times=2) == "two"
        sent = [{name: body[name] for name in body if name.startswith("max_")} for body in server.bodies]

    assert sent == [{"max_tokens": 50}, {"max_completion_tokens": 50}, {"max_completion_tokens": 50}]


@pytest.mark.parametrize(
    ("loopback", "name", "refusal"),
    [
        (LoopbackOpenAI, "openai/gpt-5", NO_TEMPERATURE),
        (LoopbackAnthropic, "anthropic/claude-x", Status(400, "temperature: Extra inputs are not permitted")),
        (LoopbackAnthropic, "anthropic/claude-x", Status(400, "`temperature` is deprecated for this model.")),
    ],
)
def test_a_temperature_that_is_refused_is_left_out_and_said(loopback, name, refusal):
    """The setting stays; the model is asked without it, and the person hears so once."""
    told = []
    with loopback([refusal, "one", "two"]) as server:
        assert asked(server, name, times=2, told=told, temperature=0.2) == "two"
        sent = ["temperature" in body for body in server.bodies]

    assert sent == [True, False, False]
    assert [type(event) for event in told] == [Warned]


def test_both_names_and_the_temperature_may_be_refused():
    """A server that takes none of them is still spoken to."""
    neither = Status(400, "Unrecognized request argument supplied: max_completion_tokens")
    with LoopbackOpenAI([NO_TEMPERATURE, NO_MAX_TOKENS, neither, "fine"]) as server:
        assert asked(server, "openai/gpt-5", temperature=0.2) == "fine"
        assert not {"max_tokens", "max_completion_tokens", "temperature"} & set(server.bodies[-1])


def test_what_the_person_put_into_the_request_is_never_left_out():
    """Request options are sent as they are; a model that refuses them says so."""
    refusal = Status(400, "Unsupported value: 'reasoning_effort' does not support 'low' with this model.")
    with LoopbackOpenAI([refusal]) as server, pytest.raises(ModelRefused, match="reasoning_effort"):
        asked(server, "openai/gpt-5", request_options={"reasoning_effort": "low"})


def test_another_bad_request_is_an_error_at_once():
    """Only a refusal of a parameter is answered by sending again."""
    with LoopbackOpenAI([Status(400, "Invalid 'messages': empty temperature of the array")]) as server:
        with pytest.raises(ModelRefused, match="Invalid 'messages'"):
            asked(server, "openai/gpt-5", temperature=0.2)
        assert len(server.bodies) == 1
