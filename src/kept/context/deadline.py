"""A deadline around a summary model, so that one that hangs cannot hold the conversation."""

import logging
import time
from collections.abc import Callable
from functools import partial

from kept.core.errors import GivenUp, KeptError, ModelBusy, ModelError
from kept.core.ports import Completes
from kept.core.threads import start_job

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
"""How soon it is noticed that nobody waits any more."""


class WithDeadline:
    """A model whose answer is waited for so long and no longer, and only while `given_up` says no.

    A late answer is thrown away and never holds the exit.
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
        ask = partial(self._model.complete, system, prompt, max_output_tokens=max_output_tokens)
        job = start_job(ask, name="kept-summary")
        deadline = time.monotonic() + self._seconds
        while not job.wait(min(LOOK_SECONDS, deadline - time.monotonic())):
            self._check()
            if time.monotonic() >= deadline:
                raise ModelBusy(f"{self.name!r} did not answer within {self._seconds:g} s")
        if job.error is not None and not isinstance(job.error, KeptError):
            log.warning("summary model %r failed", self.name, exc_info=job.error)
            raise ModelError(f"{self.name!r} ended without an answer", "see the log for its error") from job.error
        return job.value()

    def _check(self) -> None:
        if self._given_up():
            raise GivenUp("nobody waits for the summary any more")
