"""Errands: short questions to a model, asked from synchronous code and without streaming."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from kept.core.errors import ModelBusy
from kept.core.events import ModelCalled
from kept.core.messages import ChatRequest, ChatResponse, Message, Role
from kept.core.ports import ChatModel, EventSink
from kept.llm.retry import close

THINKING_ROOM = 4_096
"""What is added to the limit when an answer was used up by thinking before it said a word."""

T = TypeVar("T")


class Errand:
    """A chat model as core.ports.Completes; its calls are told to the sink under `task`."""

    def __init__(self, model: ChatModel, *, task: str, sink: EventSink) -> None:
        self.name = model.name
        self.context_length = model.context_length
        self._model = model
        self._task = task
        self._sink = sink

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        """Return the answer to `prompt`, or raise a ModelError."""
        request = ChatRequest(system, (Message(Role.USER, prompt),), max_output_tokens=max_output_tokens)
        response = self._asked(request)
        if response.stop_reason == "length" and not response.message.text.strip():
            response = self._asked(replace(request, max_output_tokens=max_output_tokens + THINKING_ROOM))
        return response.message.text

    def _asked(self, request: ChatRequest) -> ChatResponse:
        started = time.monotonic()
        response = _run(self._answer(request))
        self._sink(ModelCalled(self._task, response.model, response.usage, time.monotonic() - started))
        return response

    async def _answer(self, request: ChatRequest) -> ChatResponse:
        try:
            async for delta in self._model.stream(request):
                if isinstance(delta, ChatResponse):
                    return delta
        finally:
            await close(self._model)
        raise ModelBusy(f"{self.name} ended its answer without a response", "try again")


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end in a loop of its own, wherever the caller stands."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="kept-errand") as pool:
        return pool.submit(asyncio.run, work).result()
