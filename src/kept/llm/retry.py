"""A model that is tried again when its endpoint is overloaded, out of reach or too slow."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import anyio

from kept.core.chat import ChatRequest, Delta, Restarted, TextDelta
from kept.core.errors import ModelBusy
from kept.core.events import Warned
from kept.core.ports import ChatModel, EventSink


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


class RetryingModel:
    """Wraps a model with a policy.

    A stream that fails is started again; if text of it was shown, the reader is told first that the
    answer begins anew.
    """

    def __init__(
        self,
        model: ChatModel,
        policy: RetryPolicy,
        *,
        sink: EventSink,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = model.name
        self.context_length = model.context_length
        self._model = model
        self._policy = policy
        self._sink = sink
        self._sleep = sleep
        self._chance = chance

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Send `request`, again where that may help."""
        attempt = 0
        while True:
            shown = False
            stream = self._model.stream(request)
            try:
                async for delta in stream:
                    shown = shown or isinstance(delta, TextDelta)
                    yield delta
                return  # noqa: TRY300 - an `else` between the handlers would hide the end of the loop
            except ModelBusy as error:
                wait = self._policy.wait(attempt, error, chance=self._chance())
                if wait is None:
                    raise
                attempt += 1
                again = f"trying again in {wait:.1f} s, {attempt} of {self._policy.retries}"
                self._sink(Warned(f"{error.message}; {again}"))
                if shown:
                    yield Restarted()
                await self._sleep(wait)
            finally:
                await closed(stream)

    async def aclose(self) -> None:
        """Close the model's connections."""
        await close(self._model)


async def closed(stream: AsyncIterator[Delta]) -> None:
    """Close an answer that is not read on, so that its connection is freed now."""
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()


async def close(model: ChatModel) -> None:
    """Close what `model` holds open in the running event loop, if it holds anything."""
    aclose = getattr(model, "aclose", None)
    if aclose is not None:
        await aclose()
