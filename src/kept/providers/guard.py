"""A provider behind its guard: every call is timed, bounded, counted and recorded, and none can raise."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from kept.core.ports import Clock
from kept.core.threads import Job
from kept.providers.audit import Audit, CallRecord, Health
from kept.providers.base import MemoryProvider
from kept.providers.hooks import WorkerThreads, call_hook, overrides
from kept.security.fence import looks_fenced
from kept.security.secrets import redact

log = logging.getLogger(__name__)

_WAITED_FOR = frozenset({"system_prompt_block", "on_turn_start", "prefetch", "on_pre_compress", "on_session_switch"})
"""Hooks that a turn waits for: while one of them hangs no other is begun, so that one time-out is the longest delay."""
REQUIRED = frozenset({"initialize", "get_tool_schemas", "handle_tool_call", "is_available"})


class Breaker:
    """Counts failures of one provider; safe to use from several threads.

    After the pause one more failure is enough for the next one; a success ends the count.
    """

    def __init__(self, health: Health, *, limit: int, pause_seconds: float) -> None:
        self._health = health
        self._limit = limit
        self._pause_seconds = pause_seconds
        self._guard = threading.Lock()

    @property
    def health(self) -> Health:
        """Return how the provider is."""
        return self._health

    def is_open(self, now: float) -> bool:
        """Tell whether the provider is to be left alone now."""
        return now < self._health.paused_until

    def succeeded(self, now: float) -> None:
        """Count a success."""
        with self._guard:
            self._health = replace(self._health, failures=0, paused_until=0.0, last_success_at=now)

    def failed(self, now: float, error: str) -> bool:
        """Count a failure; True when it begins a pause."""
        with self._guard:
            failures = self._health.failures + 1
            pauses = failures >= self._limit
            self._health = replace(
                self._health,
                failures=failures,
                paused_until=now + self._pause_seconds if pauses else self._health.paused_until,
                last_error=error,
                last_error_at=now,
            )
            return pauses


@dataclass(frozen=True, slots=True)
class Answered:
    """The call returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The call raised, took too long, or was not made because the provider is paused or still hangs."""

    error: str
    attempted: bool = True
    permanent: bool = False
    """Whether the provider said that trying again is of no use."""


Outcome: TypeAlias = Answered | Failed


class Pending:
    """A call under way."""

    def __init__(self, settle: Callable[[float], Outcome]) -> None:
        self._settle = settle

    def wait(self, timeout_seconds: float) -> Outcome:
        """Wait for the outcome; after the time it is a failure, and a late answer is dropped."""
        return self._settle(timeout_seconds)


class GuardedProvider:
    """One registered provider with its breaker."""

    def __init__(
        self, provider: MemoryProvider, *, breaker: Breaker, crew: WorkerThreads, audit: Audit, clock: Clock
    ) -> None:
        self.provider = provider
        self.name = provider.name
        self.breaker = breaker
        self.ready = False
        self._threads = crew
        self._audit = audit
        self._clock = clock
        self._left_behind: dict[str, Job[object]] = {}

    def offers(self, hook: str) -> bool:
        """Tell whether calling `hook` can do anything."""
        return hook in REQUIRED or overrides(self.provider, hook)

    def begin(self, hook: str, *args: Any, session_id: str, expects: type = object, **keywords: Any) -> Pending:
        """Start a call in a thread of its own; an answer that is neither None nor `expects` is a failure."""
        if not self.offers(hook):
            return Pending(lambda _: Answered(None))
        now = self._now()
        if self.breaker.is_open(now):
            return Pending(lambda _: Failed(f"{self.name} is paused after repeated failures", attempted=False))
        if not self._is_free(hook):
            return Pending(lambda _: Failed(f"{self.name}: an earlier call still hangs", attempted=False))
        given = {"session_id": session_id, **keywords}
        out = _size((args, keywords))
        begun = time.monotonic()
        job = self._threads.submit(lambda: call_hook(self.provider, hook, args, given))
        record = CallRecord(session_id, self.name, hook, now, 0.0, "ok", out, 0)
        return Pending(lambda timeout: self._settled(job, record, begun=begun, timeout=timeout, expects=expects))

    def call(self, hook: str, *args: Any, session_id: str, timeout_seconds: float, **keywords: Any) -> Outcome:
        """Make a call and wait for its outcome."""
        return self.begin(hook, *args, session_id=session_id, **keywords).wait(timeout_seconds)

    def _settled(self, job: Job[object], record: CallRecord, *, begun: float, timeout: float, expects: type) -> Outcome:
        in_time = job.wait(timeout - (time.monotonic() - begun))
        timed = replace(record, seconds=time.monotonic() - begun)
        if not in_time:
            self._left_behind[record.call] = job
            return self._failed(
                replace(timed, outcome="timeout"), f"{record.call} took longer than {round(timeout, 1):g} s"
            )
        if job.error is not None:
            kind = type(job.error).__name__
            error = f"{record.call} raised {kind}: {_first_line(job.error)}"
            if getattr(job.error, "permanent", False) is True:
                # it answered: what is wrong is this one write, so the breaker has nothing to count
                log.warning("provider %s: %s", self.name, error, exc_info=job.error)
                self._audit.add(replace(timed, outcome="refused"), self.breaker.health)
                return Failed(error, permanent=True)
            return self._failed(replace(timed, outcome=f"raised {kind}"), error, cause=job.error)
        if job.result is not None and not isinstance(job.result, expects):
            error = f"{record.call} returned {type(job.result).__name__}, not {expects.__name__}"
            return self._failed(replace(timed, outcome="garbage"), error)
        if isinstance(job.result, str) and expects is str and looks_fenced(job.result):
            log.warning("provider %s: %s returned a fence of its own, which was taken off", self.name, record.call)
        self.breaker.succeeded(self._now())
        self._audit.add(replace(timed, bytes_in=_size(job.result)), self.breaker.health)
        return Answered(job.result)

    def _failed(self, record: CallRecord, error: str, *, cause: BaseException | None = None) -> Failed:
        log.warning("provider %s: %s", self.name, error, exc_info=cause)
        self._count(error)
        self._audit.add(record, self.breaker.health)
        return Failed(error)

    def _count(self, error: str) -> None:
        if self.breaker.failed(self._now(), error):
            log.warning("provider %s is paused: %s", self.name, error)

    def _is_free(self, hook: str) -> bool:
        for left, job in list(self._left_behind.items()):
            if job.wait(0):
                self._left_behind.pop(left, None)
        return hook not in self._left_behind and not (hook in _WAITED_FOR and _WAITED_FOR & self._left_behind.keys())

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return redact(lines[0][:200]) if lines else ""


def _size(value: object) -> int:
    """Return roughly how many bytes `value` is as JSON text; strings are counted exactly."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, tuple | list):
        return sum(_size(each) for each in value)
    if isinstance(value, Mapping):
        return sum(_size(each) for each in value.values())
    return len(json.dumps(value, default=str))
