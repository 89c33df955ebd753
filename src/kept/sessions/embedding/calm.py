"""A model that is asked calmly: for a bounded time, and not again soon after it failed."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from kept.core.errors import KeptError, ModelBusy
from kept.core.events import Warned
from kept.core.ports import Embeds, EventSink

REST_SECONDS = 60.0
"""How long a model that failed is left alone."""
_REMEMBERED = 256
_REMEDY = "vectors are left out until it answers; `kept doctor` says more"


class CalmModel:
    """Gives the vector of one question, or None: a search must not fail or hang because of its vectors."""

    def __init__(
        self,
        model: Callable[[], Embeds],
        *,
        wait_seconds: float | None,
        sink: EventSink,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._wait_seconds = wait_seconds
        """None asks in place: what runs in this process cannot be out of reach."""
        self._sink = sink
        self._clock = clock
        self._rests_until = 0.0
        self._has_warned = False
        self._known: OrderedDict[str, list[float]] = OrderedDict()

    def vector(self, text: str) -> list[float] | None:
        """Return the vector of `text`, or None when the model is not to be had."""
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
            return known
        if self._clock() < self._rests_until:
            return None
        try:
            vector = self._asked(text) if self._wait_seconds is not None else self._model().embed([text])[0]
        except KeptError as error:
            self._rest(error)
            return None
        self._has_warned = False
        self._known[text] = vector
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return vector

    def _asked(self, text: str) -> list[float]:
        """Ask in a thread of its own, which is left behind when the time is over."""
        found: list[list[float]] = []
        failed: list[KeptError] = []

        def ask() -> None:
            try:
                found.append(self._model().embed([text])[0])
            except KeptError as error:
                failed.append(error)

        thread = threading.Thread(target=ask, name="kept-question", daemon=True)
        thread.start()
        thread.join(self._wait_seconds)
        if failed:
            raise failed[0]
        if not found:
            raise ModelBusy(f"no vector of the question within {self._wait_seconds:g} s")
        return found[0]

    def _rest(self, error: KeptError) -> None:
        self._rests_until = self._clock() + REST_SECONDS
        if not self._has_warned:
            self._has_warned = True
            self._sink(Warned(f"search goes by the words alone: {error.message}", error.remedy or _REMEDY))
