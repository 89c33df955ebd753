"""A deadline around a summary model, so that one that hangs cannot hold the conversation."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kept.core.errors import GivenUp, KeptError, ModelBusy, ModelError
from kept.core.ports import Completes

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
"""How soon it is noticed that nobody waits any more."""


@dataclass(slots=True)
class _Reply:
    text: str | None = None
    error: KeptError | None = None
    done: threading.Event = field(default_factory=threading.Event)


class WithDeadline:
    """A model whose answer is waited for so long and no longer, and only while `given_up` says no.

    The call runs in a daemon thread: a late answer is thrown away and never holds the exit.
    """

    def __init__(self, model: Completes, seconds: float, *, given_up: Callable[[], bool]) -> None:
        self.name = model.name
        self.context_length = model.context_length
        self._model = model
        self._seconds = seconds
        self._given_up = given_up

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        """Return the answer; raise ModelBusy when none came in time, GivenUp when nobody waits for it."""
        self._check()
        reply = _Reply()

        def ask() -> None:
            try:
                reply.text = self._model.complete(system, prompt, max_output_tokens=max_output_tokens)
            except KeptError as error:
                reply.error = error
            except Exception:  # background task: nobody above this thread could hear it
                log.warning("summary model %r failed", self.name, exc_info=True)
            finally:
                reply.done.set()

        threading.Thread(target=ask, name="kept-summary", daemon=True).start()
        deadline = time.monotonic() + self._seconds
        while not reply.done.wait(min(LOOK_SECONDS, max(0.0, deadline - time.monotonic()))):
            self._check()
            if time.monotonic() >= deadline:
                raise ModelBusy(f"{self.name!r} did not answer within {self._seconds:g} s")
        if reply.error is not None:
            raise reply.error
        if reply.text is None:
            raise ModelError(f"{self.name!r} ended without an answer", "see the log for its error")
        return reply.text

    def _check(self) -> None:
        if self._given_up():
            raise GivenUp("nobody waits for the summary any more")
