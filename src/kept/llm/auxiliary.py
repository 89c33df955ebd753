"""Auxiliary model calls (summaries, reviews, titles): synchronous, without streaming."""

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

EXTRA_THINKING_TOKENS = 4_096
"""Added to the output limit when thinking used up the whole limit before any text."""

T = TypeVar("T")


class AuxiliaryModel:
    """A chat model as `core.ports.Completes`; reports its calls to the sink under `task`."""

    def __init__(self, model: ChatModel, *, task: str, sink: EventSink) -> None:
        self.name = model.name
        self.context_length = model.context_length
        self._model = model
        self._task = task
        self._sink = sink

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        """Return the answer to `prompt`, or raise a ModelError."""
        request = ChatRequest(system, (Message(Role.USER, prompt),), max_output_tokens=max_output_tokens)
        response = self._ask(request)
        if response.stop_reason == "length" and not response.message.text.strip():
            response = self._ask(replace(request, max_output_tokens=max_output_tokens + EXTRA_THINKING_TOKENS))
        return response.message.text

    def _ask(self, request: ChatRequest) -> ChatResponse:
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
    """Run `work` in its own event loop, also when the caller already runs in one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="kept-auxiliary") as pool:
        return pool.submit(asyncio.run, work).result()
