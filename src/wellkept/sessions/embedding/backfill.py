"""The background work on vectors: passages, the thread that embeds messages, and models that may be slow or gone."""

import logging
import math
import re
import threading
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
log = logging.getLogger(__name__)
SETTLE_SECONDS = 0.3
"""Wait after a wake-up, so that a turn is stored completely before its vectors are computed."""
RETRY_SECONDS = 60.0
CLOSE_SECONDS = 5.0
MAX_PASSAGES = 12
"""Per message; the sentences of a longer one are joined into runs of similar length."""
MAX_CHARACTERS = 4_000
_SHORT = 12
"""A passage of at most this many characters means nothing by itself."""
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


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
            if self._timeout_seconds is None:
                vector = self._model().embed([text])[0]
            else:
                vector = self._call_in_thread(text, self._timeout_seconds)
        except KeptError as error:
            self._cooldown_until = self._clock() + COOLDOWN_SECONDS
            if not self._has_warned:
                self._has_warned = True
                self._sink(Warned(f"search uses words only: {error.message}", error.remedy or _REMEDY))
            return None
        self._has_warned = False
        self._cache[text] = vector
        if len(self._cache) > _CACHED:
            self._cache.popitem(last=False)
        return vector

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


def passages(text: str) -> list[str]:
    """Return the passages of `text` that get a vector each, none for a blank text.

    They are its sentences: one sentence answers a question, and the vector of a whole message would blur it.
    """
    whole = text[:MAX_CHARACTERS].strip()
    sentences = [part.strip() for part in _END.split(whole)]
    long = [part for part in sentences if len(part) > _SHORT]
    if not long:
        return [whole] if whole else []
    return long if len(long) <= MAX_PASSAGES else _join(long)


def _join(sentences: list[str]) -> list[str]:
    """Join neighbours into at most `MAX_PASSAGES` runs of about the same length."""
    total = sum(map(len, sentences))
    runs: list[str] = []
    run: list[str] = []
    characters = 0
    for sentence in sentences:
        run.append(sentence)
        characters += len(sentence)
        if characters * MAX_PASSAGES >= total * (len(runs) + 1):
            runs.append(" ".join(run))
            run = []
    if run:
        runs.append(" ".join(run))
    return runs


class Backfill:
    """A thread that calls `step` until it returns False, each time it is woken; it retries after a failure."""

    def __init__(self, step: Callable[[], bool]) -> None:
        self._step = step
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._has_work = threading.Event()
        """There are messages that no step has seen yet."""
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Request a run soon; return at once."""
        self._has_work.set()
        self._woken.set()
        if self._thread is None:
            with self._guard:
                if self._thread is None and not self._stopping.is_set():
                    self._thread = start_thread(self._run, name="kept-vectors")

    def close(self) -> None:
        """Wait briefly for the vectors of the newest messages; the next process computes the rest."""
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.wait()
            self._stopping.wait(SETTLE_SECONDS)
            self._woken.clear()
            if self._stopping.is_set() and not self._has_work.is_set():
                return
            self._has_work.clear()
            if not self._work():
                self._stopping.wait(RETRY_SECONDS)
                self._woken.set()

    def _work(self) -> bool:
        """Call `step` until nothing is left, once when stopping; return False after a failure."""
        try:
            while self._step() and not self._stopping.is_set():
                pass
        except KeptError as error:
            log.warning("vectors of new messages wait: %s", error)
            return False
        except Exception:  # background task: a failure must not affect the chat
            log.warning("vectors of new messages could not be computed", exc_info=True)
            return False
        return True
