"""Models built from settings: retries, fallbacks, auxiliary tasks, markers, windows."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from wellkept.core.errors import ModelBusy, ModelRefused, UsageError
from wellkept.core.events import ModelCalled
from wellkept.core.messages import ChatRequest, ChatResponse, Message, Role, Usage
from wellkept.llm.endpoints import Endpoint
from wellkept.llm.models import Configured, Models, caching_for
from wellkept.llm.retry import AuxiliaryModel, close
from wellkept.llm.scripted import Says, ScriptedModel
from wellkept.llm.settings import AuxiliarySettings, AuxiliaryTask, ModelSettings, PromptCachingSettings
from wellkept.testing.loopback import Status
from wellkept.testing.loopback_servers import LoopbackAnthropic, LoopbackOpenAI

ASK = ChatRequest("system", (Message(Role.USER, "hi"),))


def made(environment, *, told=None, auxiliary=None, caching=None, **model) -> Models:
    configured = Configured(
        ModelSettings(**model), auxiliary or AuxiliarySettings(), caching or PromptCachingSettings()
    )
    sink = (lambda event: None) if told is None else told.append
    return Models(configured, environment, sink=sink, probe_servers=dict)


def answer(model) -> ChatResponse:
    async def collect():
        try:
            return [delta async for delta in model.stream(ASK)][-1]
        finally:
            await close(model)

    return asyncio.run(collect())


def test_a_chat_model_retries_through_the_real_sdk():
    """A 529 and a 429 with retry-after, then an answer: the person sees the answer."""
    with LoopbackAnthropic([Status(529), Status(429, retry_after="0.05"), "here"]) as server:
        models = made(server.environment, default="anthropic/claude-x")

        assert answer(models.chat()).message.text == "here"
        assert len(server.requests) == 3


def test_the_fallback_of_another_vendor_answers():
    """When one vendor is down the next one in the list answers, with its own format."""
    with LoopbackAnthropic([Status(500)] * 2) as down, LoopbackOpenAI(["from the other"]) as up:
        environment = {**down.environment, **up.environment}
        models = made(environment, default="anthropic/claude-x", fallbacks=["openai/gpt-x"], retries=1)

        response = answer(models.chat())

    assert (response.message.text, response.model) == ("from the other", "openai/gpt-x")


def test_nothing_configured_is_no_model():
    """Without key, server or file there is no model, and no auxiliary task is done."""
    models = made({})

    assert models.chat() is None
    assert models.auxiliary("title", None) is None
    assert models.chat("extractive") is None


def test_a_wish_for_this_once():
    """A name given by the person wins over the configuration."""
    with LoopbackOpenAI(["x"]) as server:
        models = made(server.environment, default="anthropic/claude-x")

        assert answer(models.chat("openai/gpt-x")).model == "openai/gpt-x"


def test_an_unknown_name_and_a_missing_key_are_told_at_once():
    """Both are clear before anything is sent."""
    with pytest.raises(UsageError):
        made({}).chat("nobody/model")
    with pytest.raises(ModelRefused, match="OPENROUTER_API_KEY"):
        made({}).chat("openrouter/x/y")


def test_the_window_can_be_set():
    """The configured window holds for the main model, the known one for its fallbacks."""
    environment = {"ANTHROPIC_API_KEY": "k"}

    assert made(environment, context_length=5000).chat().context_length == 5000
    assert made(environment).chat("anthropic/claude-haiku-4-5").context_length == 200_000


def test_markers_go_to_claude_only():
    """Claude at Anthropic's API gets markers in the right places; other models get none."""
    with LoopbackAnthropic(["a", "b"]) as server:
        answer(made(server.environment).chat("anthropic/claude-x"))
        answer(made(server.environment).chat("anthropic/other"))
        claude, other = server.bodies

    assert claude["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert claude["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(other)


@pytest.mark.parametrize(
    ("endpoint", "model", "on"),
    [
        (Endpoint("anthropic", "https://api.anthropic.com"), "claude-x", True),
        (Endpoint("anthropic", "http://127.0.0.1:1"), "claude-x", True),
        (Endpoint("openrouter", "https://openrouter.ai/api/v1"), "anthropic/claude-x", True),
        (Endpoint("openrouter", "https://openrouter.ai/api/v1"), "openai/gpt-x", False),
        (Endpoint("openai", "https://api.openai.com/v1"), "gpt-x", False),
        (Endpoint("openai", "http://127.0.0.1:1/v1"), "claude-x", False),
    ],
)
def test_when_markers_are_on(endpoint: Endpoint, model: str, on: bool):
    """By itself caching is on for Claude models where markers are understood; a setting decides otherwise."""
    settings = PromptCachingSettings()

    assert caching_for(endpoint, model, settings=settings, configured=False).on is on
    for wish in (True, False):
        assert caching_for(endpoint, model, settings=replace(settings, enabled=wish), configured=False).on is wish


def test_the_status_line():
    """The line says who, through what, and for how long."""
    caching = made({"OPENROUTER_API_KEY": "k"}).caching("openrouter/anthropic/claude-x")

    assert caching.status_line == "Prompt caching: ENABLED (Claude via OpenRouter, 5m TTL)"


def test_an_auxiliary_task_uses_the_main_model_by_default():
    """By itself the main model does the auxiliary task, and its usage is told under the task's name."""
    told: list[object] = []
    main = ScriptedModel([Says("A title", usage=Usage(7, 2))])

    text = made({}, told=told).auxiliary("title", main).complete("Name it.", "a talk", max_output_tokens=20)

    assert text == "A title"
    assert [(event.task, event.usage) for event in told if isinstance(event, ModelCalled)] == [("title", Usage(7, 2))]
    assert main.requests[0].max_output_tokens == 20


def test_a_cheaper_model_for_an_auxiliary_task():
    """`auxiliary.<task>` names another provider, model, address and time-out."""
    with LoopbackOpenAI(["summary"]) as server:
        task = AuxiliaryTask(provider="openai", model="small", base_url=server.base_url)
        models = made({"OPENAI_API_KEY": server.api_key}, auxiliary=AuxiliarySettings(compression=task))

        auxiliary_model = models.auxiliary("compression", ScriptedModel([]))
        assert auxiliary_model.complete("s", "p", max_output_tokens=5) == "summary"

    assert auxiliary_model.name == "openai/small"
    assert server.bodies[0]["model"] == "small"


def test_only_the_model_of_an_auxiliary_task_can_be_changed():
    """With `auto` and a model name, the main model's provider serves that model."""
    auxiliary = AuxiliarySettings(title=AuxiliaryTask(model="claude-haiku-4-5"))
    main = ScriptedModel([], name="anthropic/claude-opus-5")

    auxiliary_model = made({"ANTHROPIC_API_KEY": "k"}, auxiliary=auxiliary).auxiliary("title", main)

    assert auxiliary_model.name == "anthropic/claude-haiku-4-5"


def test_an_auxiliary_task_can_run_inside_a_running_loop():
    """Synchronous code that is called from async code may still ask."""

    async def inside() -> str:
        return AuxiliaryModel(ScriptedModel(["yes"]), task="t", sink=lambda event: None).complete(
            "", "?", max_output_tokens=9
        )

    assert asyncio.run(inside()) == "yes"


def test_an_auxiliary_task_carries_its_error_out_of_the_thread():
    """An error inside a running loop reaches the caller as itself."""

    async def inside() -> None:
        auxiliary_model = AuxiliaryModel(ScriptedModel([ModelBusy("busy")]), task="t", sink=lambda event: None)
        auxiliary_model.complete("", "?", max_output_tokens=9)

    with pytest.raises(ModelBusy):
        asyncio.run(inside())


def test_an_auxiliary_task_that_was_used_up_by_thinking_gets_more_tokens():
    """A tiny limit that thinking ate is raised once, so that a title is not empty."""
    model = ScriptedModel([Says("", stop_reason="length"), "Title"])

    assert AuxiliaryModel(model, task="t", sink=lambda event: None).complete("", "?", max_output_tokens=9) == "Title"
    assert model.requests[1].max_output_tokens > 1000


def test_a_scripted_file_can_be_named(tmp_path):
    """`scripted/PATH` answers from a JSON file, step by step, also in another process."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps([{"tool_calls": [{"name": "memory", "arguments": {"a": 1}}]}, "done"]))
    model = made({}).bare(f"scripted/{path}")

    assert answer(model).message.tool_calls[0].arguments == '{"a": 1}'
    with pytest.raises(UsageError, match="cannot be read"):
        made({}).bare(f"scripted/{tmp_path}/none.json")


def test_sdks_are_not_imported_before_they_are_used():
    """Importing and building a model loads neither SDK nor HTTP client."""
    code = (
        "import sys\n"
        "from wellkept.llm.models import Models, Configured\n"
        "models = Models(Configured(), {'ANTHROPIC_API_KEY': 'k'}, sink=print)\n"
        "models.chat()\n"
        "print([name for name in ('openai', 'anthropic', 'httpx2', 'pydantic') if name in sys.modules])\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)

    assert out.stdout.strip() == "[]"


def test_warming_imports_in_a_thread():
    """The SDK of the chosen model is loaded beside the person's typing."""
    thread = made({}).preload("anthropic/claude-x")
    thread.join(30)

    assert thread.daemon
    assert "anthropic" in sys.modules


FIRST_REQUEST = """
import asyncio, sys, threading
from wellkept.core.messages import ChatRequest
from wellkept.core.messages import Message, Role
from wellkept.llm.models import Configured, Models
from wellkept.testing.loopback_servers import {server}

class Watches:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            print("imported by", "the loop" if threading.current_thread() is threading.main_thread() else "a thread")

sys.meta_path.insert(0, Watches())

async def ask():
    with {server}(["hello"]) as server:
        models = Models(Configured(), server.environment, sink=print)
        request = ChatRequest("", (Message(Role.USER, "hi"),))
        assert [delta async for delta in models.bare("{module}/claude-x").stream(request)]

asyncio.run(ask())
"""


@pytest.mark.parametrize(("module", "server"), [("openai", "LoopbackOpenAI"), ("anthropic", "LoopbackAnthropic")])
def test_the_first_request_does_not_hold_up_the_loop(module, server):
    """An SDK takes a second to import: that is done in a thread, and streaming and Ctrl-C continue meanwhile."""
    code = FIRST_REQUEST.format(module=module, server=server)

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said == "imported by a thread\n"
