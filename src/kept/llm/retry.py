"""Trying again: a model whose endpoint is overloaded, out of reach or too slow is retried, then the next answers."""

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from kept.core.errors import ModelBusy
from kept.core.events import Warned
from kept.core.messages import ChatRequest, Delta, Restarted, TextDelta
from kept.core.ports import ChatModel, EventSink

REST_SECONDS = 60.0
"""How long a model that failed is passed over, so that not every turn waits for its retries."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after how long."""

    retries: int = 4
    first_seconds: float = 0.5
    longest_seconds: float = 30.0
    retry_after_limit_seconds: float = 60.0
    """A server that asks for a longer wait is not waited for: an earlier attempt would only be refused."""

    def wait(self, attempt: int, error: ModelBusy, *, chance: float) -> float | None:
        """Return how long to wait after failed attempt number `attempt` (from 0), or None to give up.

        Waits double each time and are spread by `chance` (0 to 1), so that clients do not return all at once.
        """
        if attempt >= self.retries:
            return None
        asked = error.retry_after_seconds
        if asked is not None:
            return None if asked > self.retry_after_limit_seconds else asked
        longest = min(self.longest_seconds, self.first_seconds * 2.0**attempt)
        return longest * (0.5 + chance / 2)


@dataclass(frozen=True, slots=True)
class _Try:
    """Who is asked next, for which time, and after how long."""

    model: ChatModel
    attempt: int = 0
    wait_seconds: float = 0.0


class RetryingModel:
    """Models in order: each is tried again as the policy says, then the next one answers in its place.

    Refusals and overflows are about the request, so they are raised. An answer that fails is begun anew; if
    text of it was shown, the reader is told first.
    """

    def __init__(
        self,
        models: Sequence[ChatModel],
        policy: RetryPolicy,
        *,
        sink: EventSink,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        chance: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = models[0].name
        self.context_length = models[0].context_length
        self._models = tuple(models)
        self._policy = policy
        self._sink = sink
        self._sleep = sleep
        self._chance = chance
        self._now = now
        self._resting: dict[str, float] = {}

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Send `request` to the first model that is not resting, again where that may help, then to the next."""
        ready = [model for model in self._models if self._resting.get(model.name, 0.0) <= self._now()]
        first, *others = ready or self._models
        turn = _Try(first)
        while True:
            shown = False
            stream = turn.model.stream(request)
            try:
                async for delta in stream:
                    shown = shown or isinstance(delta, TextDelta)
                    yield delta
                return  # noqa: TRY300 - an `else` between the handlers would hide the end of the loop
            except ModelBusy as error:
                following = self._following(turn, others, error)
                if following is None:
                    raise
                turn = following
            finally:
                await close(stream)
            if shown:
                yield Restarted()
            if turn.wait_seconds:
                await self._sleep(turn.wait_seconds)

    def _following(self, failed: _Try, others: list[ChatModel], error: ModelBusy) -> _Try | None:
        """Decide what comes after a failure, and say it; None when nothing is left to try."""
        wait = self._policy.wait(failed.attempt, error, chance=self._chance())
        if wait is not None:
            number = failed.attempt + 1
            self._sink(Warned(f"{error.message}; trying again in {wait:.1f} s, {number} of {self._policy.retries}"))
            return _Try(failed.model, number, wait)
        self._resting[failed.model.name] = self._now() + REST_SECONDS
        if not others:
            return None
        self._sink(Warned(f"{error.message}; {others[0].name} answers instead"))
        return _Try(others.pop(0))

    async def aclose(self) -> None:
        """Close every model's connections."""
        for model in self._models:
            await close(model)


async def close(held: object) -> None:
    """Close what a model, or an answer that is not read on, holds open in the running event loop."""
    aclose = getattr(held, "aclose", None)
    if aclose is not None:
        await aclose()
