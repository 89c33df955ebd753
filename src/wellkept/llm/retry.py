"""Models with retries and fallbacks, and their synchronous form for auxiliary tasks."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import anyio
from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import ModelBusy
from wellkept.core.events import ModelCalled, Warned
from wellkept.core.messages import ChatRequest, ChatResponse, Delta, Message, Restarted, Role, TextDelta
from wellkept.core.ports import ChatModel, EventSink

COOLDOWN_SECONDS = 60.0
"""How long a failed model is skipped, so that not every turn waits for its retries."""


class RetryPolicy(Struct, frozen=True):
    """How often to retry, and how long to wait."""

    retries: int = 4
    first_seconds: float = 0.5
    longest_seconds: float = 30.0
    retry_after_limit_seconds: float = 60.0
    """Give up if the server requests a longer wait: an earlier attempt would only be rejected."""

    def wait(self, attempt: int, error: ModelBusy, *, jitter: float) -> float | None:
        """Return how long to wait after failed attempt number `attempt` (from 0), or None to give up.

        Waits double each time; `jitter` (0 to 1) spreads them, so that clients do not all return at once.
        """
        if attempt >= self.retries:
            return None
        requested = error.retry_after_seconds
        if requested is not None:
            return None if requested > self.retry_after_limit_seconds else requested
        longest = min(self.longest_seconds, self.first_seconds * 2.0**attempt)
        return longest * (0.5 + jitter / 2)


class _Attempt(Struct, frozen=True):
    """The next model to call, its attempt number, and the wait before it."""

    model: ChatModel
    attempt: int = 0
    wait_seconds: float = 0.0


class RetryingModel:
    """Models in order of preference: each is retried as the policy says, then the next one is used.

    Refusals and overflows concern the request itself, so they are raised. A failed answer starts over; if part of
    it was shown, `Restarted` comes first.
    """

    def __init__(
        self,
        models: Sequence[ChatModel],
        policy: RetryPolicy,
        *,
        sink: EventSink,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        jitter: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = models[0].name
        self.context_length = models[0].context_length
        self._models = tuple(models)
        self._policy = policy
        self._sink = sink
        self._sleep = sleep
        self._jitter = jitter
        self._now = now
        self._cooldown_until: dict[str, float] = {}

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Send `request` to the first model that is not in cooldown, retry, then use the next model."""
        ready = [model for model in self._models if self._cooldown_until.get(model.name, 0.0) <= self._now()]
        first, *others = ready or self._models
        current = _Attempt(first)
        while True:
            shown = False
            stream = current.model.stream(request)
            try:
                async for delta in stream:
                    shown = shown or isinstance(delta, TextDelta)
                    yield delta
                return  # noqa: TRY300 - an `else` clause would hide where the loop ends
            except ModelBusy as error:
                following = self._next_attempt(current, others, error)
                if following is None:
                    raise
                current = following
            finally:
                await close(stream)
            if shown:
                yield Restarted()
            if current.wait_seconds:
                await self._sleep(current.wait_seconds)

    def _next_attempt(self, failed: _Attempt, others: list[ChatModel], error: ModelBusy) -> _Attempt | None:
        """Return the next attempt and announce it, or None if nothing is left to try."""
        wait = self._policy.wait(failed.attempt, error, jitter=self._jitter())
        if wait is not None:
            number = failed.attempt + 1
            self._sink(Warned(f"{error.message}; trying again in {wait:.1f} s, {number} of {self._policy.retries}"))
            return _Attempt(failed.model, number, wait)
        self._cooldown_until[failed.model.name] = self._now() + COOLDOWN_SECONDS
        if not others:
            return None
        self._sink(Warned(f"{error.message}; {others[0].name} answers instead"))
        return _Attempt(others.pop(0))

    async def aclose(self) -> None:
        """Close every model's connections."""
        for model in self._models:
            await close(model)


async def close(held: object) -> None:
    """Close the connections that a model or an unfinished stream holds in the running event loop."""
    aclose = getattr(held, "aclose", None)
    if aclose is not None:
        await aclose()


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
