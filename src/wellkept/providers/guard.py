"""A provider behind a guard: every call has a deadline, is counted and recorded, and never raises."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import ProviderError
from wellkept.core.ports import Clock
from wellkept.core.threads import Job
from wellkept.providers.audit import SWALLOWED, Audit, CallRecord, Health
from wellkept.providers.base import MemoryProvider
from wellkept.providers.hooks import WorkerThreads, call_hook, listen, overrides
from wellkept.security.fence import looks_fenced
from wellkept.security.secrets import redact

log = logging.getLogger(__name__)

REQUIRED_HOOKS = frozenset({"initialize", "get_tool_schemas", "handle_tool_call", "is_available"})

_TURN_HOOKS = frozenset({"system_prompt_block", "on_turn_start", "prefetch", "on_pre_compress", "on_session_switch"})
"""Hooks that a turn waits for. While one of them hangs none is called, so that a turn waits for one time-out only."""
_LOCAL_HOOKS = frozenset({"is_available", "get_tool_schemas", "get_config_schema"})
"""Hooks that need no back end: that they return says nothing about it."""
_MAX_ERROR_CHARS = 200


class Breaker:
    """A circuit breaker: pauses a provider after several failures in a row. Safe to use from several threads.

    After the pause a single failure starts the next one; a success resets the count.
    """

    def __init__(self, health: Health, *, limit: int, pause_seconds: float) -> None:
        self._health = health
        self._limit = limit
        self._pause_seconds = pause_seconds
        self._lock = threading.Lock()

    @property
    def health(self) -> Health:
        """Return the successes and failures so far."""
        return self._health

    def is_open(self, now: float) -> bool:
        """Whether the provider is paused."""
        return now < self._health.paused_until

    def record_success(self, now: float) -> None:
        """Count a success."""
        with self._lock:
            self._health = replace(self._health, failures=0, paused_until=0.0, last_success_at=now)

    def record_complaint(self, now: float, error: str) -> None:
        """Keep what a plugin logged as its last error; nothing is counted, because the call returned."""
        with self._lock:
            self._health = replace(self._health, last_error=error, last_error_at=now)

    def record_failure(self, now: float, error: str) -> bool:
        """Count a failure; return whether it starts a pause."""
        with self._lock:
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


class Answered(Struct, frozen=True):
    """The call returned."""

    value: Any


class Failed(Struct, frozen=True):
    """The call raised or timed out, or was not made because the provider is paused or an earlier call hangs."""

    error: str
    attempted: bool = True
    permanent: bool = False
    """Whether the provider said that retrying is useless."""


Outcome: TypeAlias = Answered | Failed


class PendingCall:
    """A call that is running."""

    def __init__(self, finish: Callable[[float], Outcome], job: Job[object] | None = None) -> None:
        self._finish = finish
        self._job = job

    def wait(self, timeout_seconds: float) -> Outcome:
        """Wait for the outcome; after the time-out it is a failure, and a late answer is dropped."""
        return self._finish(timeout_seconds)

    def when_done(self, follow: Callable[[BaseException | None], object]) -> None:
        """Call `follow` with what was raised, or None, when the call ends after all; never if it was not made."""
        job = self._job
        if job is not None:
            job.when_done(lambda: follow(job.error))


class GuardedProvider:
    """One registered provider with its circuit breaker."""

    def __init__(
        self,
        provider: MemoryProvider,
        *,
        name: str,
        breaker: Breaker,
        threads: WorkerThreads,
        audit: Audit,
        clock: Clock,
    ) -> None:
        self.provider = provider
        self.name = name
        self.breaker = breaker
        self.ready = False
        """Whether `initialize` succeeded."""
        self._threads = threads
        self._audit = audit
        self._clock = clock
        self._hanging: dict[str, Job[object]] = {}
        self._lock = threading.Lock()
        self._running = 0
        self._logged: list[str] = []
        self._last_call = "log"
        listen(provider, self._record_logged)

    def offers(self, hook: str) -> bool:
        """Whether calling `hook` can have any effect."""
        return hook in REQUIRED_HOOKS or overrides(self.provider, hook)

    def begin(self, hook: str, *args: Any, session_id: str, expects: type = object, **keywords: Any) -> PendingCall:
        """Start a call in another thread; an answer that is neither None nor an instance of `expects` is a failure."""
        if not self.offers(hook):
            return PendingCall(lambda _: Answered(None))
        now = self._now()
        if self.breaker.is_open(now):
            return PendingCall(lambda _: Failed(f"{self.name} is paused after repeated failures", attempted=False))
        if self._is_blocked(hook):
            return PendingCall(lambda _: Failed(f"{self.name}: an earlier call still hangs", attempted=False))
        record = CallRecord(session_id, self.name, hook, now, 0.0, "ok", _size((args, keywords)), 0)
        with self._lock:
            self._running += 1
            self._last_call = hook
        started = time.monotonic()
        job = self._threads.submit(lambda: call_hook(self.provider, hook, args, {"session_id": session_id, **keywords}))
        return PendingCall(lambda timeout: self._finish(job, record, started, timeout=timeout, expects=expects), job)

    def call(self, hook: str, *args: Any, session_id: str, timeout_seconds: float, **keywords: Any) -> Outcome:
        """Make a call and wait for its outcome."""
        return self.begin(hook, *args, session_id=session_id, **keywords).wait(timeout_seconds)

    def _finish(
        self, job: Job[object], record: CallRecord, started: float, *, timeout: float, expects: type
    ) -> Outcome:
        in_time = job.wait(timeout - (time.monotonic() - started))
        with self._lock:
            self._running -= 1
        timed = replace(record, seconds=time.monotonic() - started)
        if not in_time:
            self._hanging[record.call] = job
            error = f"{record.call} took longer than {round(timeout, 1):g} s"
            return self._fail(replace(timed, outcome="timeout"), error)
        if job.error is not None:
            return self._fail_with(job.error, timed)
        if job.result is not None and not isinstance(job.result, expects):
            error = f"{record.call} returned {type(job.result).__name__}, not {expects.__name__}"
            return self._fail(replace(timed, outcome="garbage"), error)
        if isinstance(job.result, str) and expects is str and looks_fenced(job.result):
            log.warning("provider %s: %s returned its own fence, which was removed", self.name, record.call)
        self._succeed(replace(timed, bytes_in=_size(job.result)))
        return Answered(job.result)

    def _succeed(self, record: CallRecord) -> None:
        """Record a call that returned; what the plugin logged meanwhile shows that it may have swallowed an error."""
        if record.call not in _LOCAL_HOOKS:
            self.breaker.record_success(self._now())
        with self._lock:
            logged, self._logged = self._logged, []
        if logged:
            self.breaker.record_complaint(self._now(), f"{record.call} returned, but the plugin logged: {logged[0]}")
            record = replace(record, outcome=SWALLOWED)
        self._audit.add(record, self.breaker.health)

    def _record_logged(self, line: str) -> None:
        """Record a warning or an error that the plugin logged, during the running call or after the last one."""
        line = line[:_MAX_ERROR_CHARS]
        with self._lock:
            if self._running:
                self._logged.append(line)
                return
        self.breaker.record_complaint(self._now(), f"after {self._last_call} the plugin logged: {line}")
        record = CallRecord("", self.name, self._last_call, self._now(), 0.0, SWALLOWED, 0, 0)
        self._audit.add(record, self.breaker.health)

    def _fail_with(self, raised: BaseException, record: CallRecord) -> Failed:
        # an error from the process of a plugin arrives as PeerError; without a kind, that process is gone
        kind = str(getattr(raised, "kind", type(raised).__name__)) or "its process"
        gone = isinstance(raised, ProviderError) and getattr(raised, "kind", None) == ""
        error = (
            f"{record.call}: {_first_line(raised)}" if gone else f"{record.call} raised {kind}: {_first_line(raised)}"
        )
        if getattr(raised, "permanent", False) is not True:
            return self._fail(replace(record, outcome=f"raised {kind}"), error, cause=raised)
        # the provider works and rejects this one write, so the breaker has nothing to count
        log.warning("provider %s: %s", self.name, error, exc_info=raised)
        self._audit.add(replace(record, outcome="refused"), self.breaker.health)
        return Failed(error, permanent=True)

    def _fail(self, record: CallRecord, error: str, *, cause: BaseException | None = None) -> Failed:
        log.warning("provider %s: %s", self.name, error, exc_info=cause)
        if self.breaker.record_failure(self._now(), error):
            log.warning("provider %s is paused: %s", self.name, error)
        self._audit.add(record, self.breaker.health)
        return Failed(error)

    @property
    def hangs(self) -> bool:
        """Whether a call that timed out has not ended yet."""
        for name, job in list(self._hanging.items()):
            if job.wait(0):
                self._hanging.pop(name, None)
        return bool(self._hanging)

    def _is_blocked(self, hook: str) -> bool:
        if not self.hangs:
            return False
        return hook in self._hanging or (hook in _TURN_HOOKS and bool(_TURN_HOOKS & self._hanging.keys()))

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return redact(lines[0][:_MAX_ERROR_CHARS]) if lines else ""


def _size(value: object) -> int:
    """Return the approximate number of bytes of `value` as JSON text; strings are counted exactly."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, tuple | list):
        return sum(_size(each) for each in value)
    if isinstance(value, Mapping):
        return sum(_size(each) for each in value.values())
    return len(json.dumps(value, default=str))
