"""The background work on vectors: the passages of a message, and the thread that embeds new messages."""

import logging
import re
import threading
from collections.abc import Callable

from wellkept.core.errors import KeptError
from wellkept.core.threads import start_thread

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
    done = 0
    for sentence in sentences:
        run.append(sentence)
        done += len(sentence)
        if done * MAX_PASSAGES >= total * (len(runs) + 1):
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
