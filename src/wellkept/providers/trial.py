"""The round trip of `kept providers test`: store a sentence, recall it, remove it, and see that it is gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.core.errors import KeptError, ProviderError
from wellkept.core.ids import random_hex
from wellkept.core.threads import start_job
from wellkept.core.values import asdict
from wellkept.providers.config import READY_SECONDS
from wellkept.providers.hooks import call_hook, close_provider, overrides
from wellkept.providers.remote import TRIAL

if TYPE_CHECKING:
    from wellkept.core.text import JSON
    from wellkept.providers.base import MemoryProvider, StartContext

STEP_SECONDS = 60.0
"""How long one call may take; a provider's own limits are shorter."""
RECALL_SECONDS = 45.0
"""How long the recall is repeated: many back ends index in the background."""
PAUSE_SECONDS = 0.5
TARGET = "memory"


class TrialStep(Struct, frozen=True):
    """One step of the round trip."""

    step: str
    ok: bool
    ms: float
    detail: str


class Trial(Struct, frozen=True):
    """What the round trip did."""

    provider: str
    steps: tuple[TrialStep, ...]

    @property
    def ok(self) -> bool:
        """Whether every step succeeded."""
        return all(step.ok for step in self.steps)

    def as_json(self) -> dict[str, JSON]:
        """Return the provider, whether it works, and every step."""
        return {"provider": self.provider, "ok": self.ok, "steps": [asdict(step) for step in self.steps]}


def run_trial(provider: MemoryProvider, context: StartContext) -> Trial:
    """Make a round trip with a sentence that nobody would store; the first step that fails ends it."""
    return _RoundTrip(provider, context).run()


class _Failed(Exception):
    """A step did not do what it should."""


class _RoundTrip:
    def __init__(self, provider: MemoryProvider, context: StartContext) -> None:
        self._provider = provider
        self._context = context
        self._word = f"kestrel{random_hex(4)}"
        self._text = f"The code word of the kept connection test is {self._word}."
        self._steps: list[TrialStep] = []

    def run(self) -> Trial:
        """Run the steps in order; whatever was started is shut down, and whatever was stored is removed."""
        if self._step("available", self._check_available) and self._step("start", self._start):
            if self._step("store", self._store):
                self._step("recall", self._recall)
                if self._step("remove", self._remove):
                    self._step("gone", self._check_gone)
            self._step("stop", self._stop)
        close_provider(self._provider)
        return Trial(self._provider.name, tuple(self._steps))

    def _step(self, name: str, work: Callable[[], str]) -> bool:
        began = time.monotonic()
        job = start_job(work, name="kept-provider-trial")
        limit = STEP_SECONDS + RECALL_SECONDS
        if not job.wait(limit):
            ok, detail = False, f"no answer within {limit:g} s"
        elif job.error is not None:
            ok, detail = False, _describe(job.error)
        else:
            ok, detail = True, job.value()
        self._steps.append(TrialStep(name, ok, round((time.monotonic() - began) * 1_000, 1), detail))
        return ok

    def _check_available(self) -> str:
        if not call_hook(self._provider, "is_available", (), {"kept_home": self._context.kept_home}):
            raise _Failed("its configuration or its package is missing")
        return ""

    def _start(self) -> str:
        call_hook(self._provider, "initialize", (f"trial-{self._word}",), self._context.keywords())
        if overrides(self._provider, "wait_until_ready"):
            call_hook(self._provider, "wait_until_ready", (READY_SECONDS,), {})
        return ""

    def _store(self) -> str:
        if not overrides(self._provider, "on_memory_write"):
            raise _Failed("it takes no writes, so there is nothing to test")
        self._write("add")
        return self._text

    def _recall(self) -> str:
        seconds = self._wait(lambda: self._word in self._recall_text())
        if seconds is None:
            raise _Failed(f"not recalled within {RECALL_SECONDS:g} s")
        return f"found after {seconds:.1f} s"

    def _remove(self) -> str:
        self._write("remove")
        return ""

    def _check_gone(self) -> str:
        seconds = self._wait(lambda: self._word not in self._recall_text())
        if seconds is None:
            raise _Failed("it is still recalled: this back end does not remove single entries")
        return ""

    def _stop(self) -> str:
        if hasattr(self._provider, "shutdown"):
            self._provider.shutdown()
        return ""

    def _write(self, action: str) -> None:
        metadata: dict[str, JSON] = {
            "ledger_id": 1 if action == "add" else 2,  # a provider may skip an id that it has seen
            "origin": TRIAL,
            "session_id": f"trial-{self._word}",
            "user_id": self._context.user_id,
            "platform": self._context.platform,
            "tool_name": "memory",
            "before": self._text if action == "remove" else None,
        }
        call_hook(self._provider, "on_memory_write", (action, TARGET, self._text), {"metadata": metadata})

    def _recall_text(self) -> str:
        found = call_hook(
            self._provider,
            "recall" if overrides(self._provider, "recall") else "prefetch",
            (f"What is the code word of the kept connection test? {self._word}",),
            {"session_id": f"trial-{self._word}"},
        )
        return str(found or "")

    def _wait(self, is_true: Callable[[], bool]) -> float | None:
        """Return after how many seconds `is_true` held, None if it never did."""
        began = time.monotonic()
        while not self._holds(is_true, is_last=time.monotonic() - began > RECALL_SECONDS):
            if time.monotonic() - began > RECALL_SECONDS:
                return None
            time.sleep(PAUSE_SECONDS)
        return time.monotonic() - began

    @staticmethod
    def _holds(is_true: Callable[[], bool], *, is_last: bool) -> bool:
        """Return what `is_true` says; a failure that may pass, such as a slow first start, counts as not yet."""
        try:
            return is_true()
        except ProviderError as error:
            if is_last or getattr(error, "permanent", False):
                raise
            return False


def _describe(error: BaseException) -> str:
    if isinstance(error, KeptError):
        return f"{error.message}; {error.remedy}" if error.remedy else error.message
    return str(error) if isinstance(error, _Failed) else f"{type(error).__name__}: {error}"
