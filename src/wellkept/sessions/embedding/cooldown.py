"""Calls to an embedding model that may be slow, busy or gone: a timeout, a cooldown after failures, and retries."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property

from wellkept.core.errors import ContextOverflow, KeptError, ModelBusy, ModelError, ModelRefused
from wellkept.core.events import Warned
from wellkept.core.ports import Embeds, EventSink
from wellkept.core.threads import start_thread
from wellkept.sessions.settings import EmbeddingSettings

COOLDOWN_SECONDS = 60.0
"""A model that failed is not called again for this long."""
RETRIES = 4
MAX_WAIT_SECONDS = 60.0
_CACHED = 256
_REMEDY = "vectors are left out until it answers; `kept doctor` says more"


class CooldownModel:
    """Returns the vector of a question, or None: a search must not fail or hang because of its vectors."""

    def __init__(
        self,
        model: Callable[[], Embeds],
        *,
        timeout_seconds: float | None,
        sink: EventSink,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._timeout_seconds = timeout_seconds
        """None calls the model in this thread: a local model cannot be out of reach."""
        self._sink = sink
        self._clock = clock
        self._cooldown_until = 0.0
        self._has_warned = False
        self._cache: OrderedDict[str, list[float]] = OrderedDict()

    def vector(self, text: str) -> list[float] | None:
        """Return the vector of `text`, or None when the model is not available."""
        cached = self._cache.get(text)
        if cached is not None:
            self._cache.move_to_end(text)
            return cached
        if self._clock() < self._cooldown_until:
            return None
        try:
            vector = self._call(text)
        except KeptError as error:
            self._start_cooldown(error)
            return None
        self._has_warned = False
        self._cache[text] = vector
        if len(self._cache) > _CACHED:
            self._cache.popitem(last=False)
        return vector

    def _call(self, text: str) -> list[float]:
        if self._timeout_seconds is None:
            return self._model().embed([text])[0]
        return self._call_in_thread(text, self._timeout_seconds)

    def _call_in_thread(self, text: str, timeout_seconds: float) -> list[float]:
        """Call the model in a new thread, which is abandoned when the time is over."""
        vectors: list[list[float]] = []
        errors: list[KeptError] = []

        def call() -> None:
            try:
                vectors.append(self._model().embed([text])[0])
            except KeptError as error:
                errors.append(error)

        thread = start_thread(call, name="kept-question")
        thread.join(timeout_seconds)
        if errors:
            raise errors[0]
        if not vectors:
            raise ModelBusy(f"no vector of the question within {timeout_seconds:g} s")
        return vectors[0]

    def _start_cooldown(self, error: KeptError) -> None:
        self._cooldown_until = self._clock() + COOLDOWN_SECONDS
        if not self._has_warned:
            self._has_warned = True
            self._sink(Warned(f"search uses words only: {error.message}", error.remedy or _REMEDY))


class SharedModel:
    """The embedding model of a process, built at its first use: for messages, and for questions with a timeout.

    `model` builds the model for messages, `question` that for questions (the same one with a shorter timeout).
    """

    def __init__(
        self,
        settings: EmbeddingSettings,
        *,
        model: Callable[[], Embeds],
        question: Callable[[], Embeds] | None = None,
        sink: EventSink,
    ) -> None:
        self.settings = settings
        self.sink = sink
        self._make = model
        self._question = question

    @cached_property
    def of_messages(self) -> Embeds:
        """The model; raises UsageError or ModelError where there is none."""
        return self._make()

    @cached_property
    def of_questions(self) -> CooldownModel:
        """The model as questions use it."""
        wait = self.settings.query_timeout if self.settings.provider == "openai" else None
        return CooldownModel(self._question or (lambda: self.of_messages), timeout_seconds=wait, sink=self.sink)


def embed_in_batches(model: Embeds, texts: Sequence[str], *, size: int) -> list[list[float]]:
    """Return one vector per text; a text that the model refuses while it accepts others gets an empty one."""
    return [
        vector for start in range(0, len(texts), size) for vector in _embed_batch(model, texts[start : start + size])
    ]


def _embed_batch(model: Embeds, texts: Sequence[str]) -> list[list[float]]:
    """Embed a batch; one that is refused is tried text by text."""
    try:
        return _embed_with_retries(model, texts)
    except (ModelRefused, ContextOverflow):
        if len(texts) == 1:
            raise
    vectors: list[list[float]] = []
    refusal: ModelError | None = None
    for text in texts:
        try:
            vectors += _embed_with_retries(model, [text])
        except (ModelRefused, ContextOverflow) as error:
            refusal = error
            vectors.append([])
    if refusal is not None and not any(vectors):
        raise refusal  # nothing is accepted: the key or the model's name is wrong, not the texts
    return vectors


def _embed_with_retries(model: Embeds, texts: Sequence[str]) -> list[list[float]]:
    for attempt in range(RETRIES + 1):
        try:
            return model.embed(texts)
        except ModelBusy as error:
            requested = error.retry_after_seconds
            wait = 0.5 * 2.0**attempt if requested is None else requested
            if attempt == RETRIES or not math.isfinite(wait) or wait > MAX_WAIT_SECONDS:
                raise
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")
