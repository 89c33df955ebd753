"""Several models in order: the next one answers while the one before is overloaded or out of reach."""

import time
from collections.abc import AsyncIterator, Callable, Sequence

from kept.core.chat import ChatRequest, Delta, Restarted, TextDelta
from kept.core.errors import ModelBusy
from kept.core.events import Warned
from kept.core.ports import ChatModel, EventSink
from kept.llm.retry import close, closed

REST_SECONDS = 60.0
"""How long a model that failed is passed over, so that not every turn waits for its retries."""


class FallbackModel:
    """The first model that answers; refusals and overflows are about the request, so they are raised."""

    def __init__(
        self, models: Sequence[ChatModel], *, sink: EventSink, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = models[0].name
        self.context_length = models[0].context_length
        self._models = tuple(models)
        self._sink = sink
        self._now = now
        self._resting: dict[str, float] = {}

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Send `request` to the first model that is not resting, then to the next, until one answers."""
        ready = [model for model in self._models if self._resting.get(model.name, 0.0) <= self._now()]
        order = ready or list(self._models)
        for place, model in enumerate(order):
            shown = False
            stream = model.stream(request)
            try:
                async for delta in stream:
                    shown = shown or isinstance(delta, TextDelta)
                    yield delta
                return  # noqa: TRY300 - an `else` between the handlers would hide the end of the loop
            except ModelBusy as error:
                self._resting[model.name] = self._now() + REST_SECONDS
                if place + 1 == len(order):
                    raise
                if shown:
                    yield Restarted()
                self._sink(Warned(f"{error.message}; {order[place + 1].name} answers instead"))
            finally:
                await closed(stream)

    async def aclose(self) -> None:
        """Close every model's connections."""
        for model in self._models:
            await close(model)
