"""The record of one user's provider calls: who, what, when, how long and the outcome; never any text."""

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

from msgspec import Struct

from wellkept.core.errors import StorageError
from wellkept.core.ids import UserId
from wellkept.core.ports import Clock, Database
from wellkept.core.threads import start_thread
from wellkept.core.values import asdict
from wellkept.providers.outbox import lane_name
from wellkept.storage.connections import statements

log = logging.getLogger(__name__)

_SQL = statements("wellkept.providers", "audit.sql")
_FLUSH_SECONDS = 12.0
"""Longer than the database waits for another writer, so that records survive a busy machine."""
_BATCH = 500
_SECONDS_PER_DAY = 86_400
_BYTES_PER_TOKEN = 4
SWALLOWED = "swallowed"
"""The outcome of a call that returned while the plugin logged a warning or an error."""


class Health(Struct, frozen=True):
    """The recent successes and failures of a provider; times are epoch seconds."""

    failures: int = 0
    """Failures since the last success."""
    paused_until: float = 0.0
    last_error: str | None = None
    last_error_at: float | None = None
    last_success_at: float | None = None


class CallRecord(Struct, frozen=True):
    """One call of a hook or tool."""

    session_id: str
    provider: str
    call: str
    started: float
    seconds: float
    outcome: str
    """`ok`, `swallowed` (it returned and logged an error), `raised Type`, `refused`, `timeout` or `garbage`."""
    bytes_out: int
    bytes_in: int


class ProviderStats(Struct, frozen=True):
    """Totals over the calls of one provider."""

    provider: str
    calls: int
    failures: int
    recalls: int
    hits: int
    """Recalls that returned text."""
    recall_p50_ms: float
    recall_p95_ms: float
    bytes_out: int
    bytes_in: int
    recalled_tokens: int
    """The estimated cost of recalled text in prompts, at four bytes per token."""


_Entry: TypeAlias = CallRecord | tuple[str, Health] | threading.Event | None
"""An entry for the writer thread: a record, a provider's health, a waiting `flush`, or the end."""


class Audit:
    """Stores call records and the health of providers for one user.

    One daemon thread writes them, so that neither a turn nor a provider's thread waits for the disk.
    """

    def __init__(self, database: Database, *, user: UserId, clock: Clock, keep_days: int = 90) -> None:
        self.user = user
        self._database = database
        self._keep_days = keep_days
        self._clock = clock
        self._inbox: SimpleQueue[_Entry] = SimpleQueue()
        self._writer: threading.Thread | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def add(self, record: CallRecord, health: Health) -> None:
        """Store a record and the provider's health after the call; a call that ends after `close` leaves none."""
        with self._lock:
            if self._is_closed:
                return
            self._inbox.put(record)
            self._inbox.put((record.provider, health))
            if self._writer is None:
                self._writer = start_thread(self._write_all, name="kept-audit")

    def flush(self) -> None:
        """Wait until everything added so far is written, unless the database refuses."""
        if self._writer is not None:
            written = threading.Event()
            self._inbox.put(written)
            written.wait(_FLUSH_SECONDS)

    def close(self) -> None:
        """Write what was added and accept no more; call it before the database is closed."""
        with self._lock:
            self._is_closed = True
            self._inbox.put(None)
        if self._writer is not None:
            self._writer.join(_FLUSH_SECONDS)

    def of_session(self, session_id: str) -> list[CallRecord]:
        """Return the calls of one session, oldest first."""
        with self._database.reading() as unit:
            rows = unit.execute(_SQL.of_session, {"user": self.user, "session_id": session_id})
            return [CallRecord(*row) for row in rows]  # type: ignore[arg-type] # columns as in CallRecord

    def health(self, provider: str) -> Health:
        """Return the health of `provider` after its last call, in whichever process that was."""
        with self._database.reading() as unit:
            for row in unit.execute(_SQL.health, {"user": self.user, "lane": lane_name(provider, self.user)}):
                return Health(*row)  # type: ignore[arg-type] # columns as in Health
        return Health()

    def count_swallowed(self, provider: str, *, days: float = 1.0) -> int:
        """Return how many calls of the last days returned although the plugin logged an error."""
        since = self._clock.now().timestamp() - days * _SECONDS_PER_DAY
        bindings = {"user": self.user, "provider": provider, "since": since, "outcome": SWALLOWED}
        with self._database.reading() as unit:
            return int(_amount(next(iter(unit.execute(_SQL.count_outcome, bindings)))[0]))

    def stats(self, *, days: float) -> list[ProviderStats]:
        """Return totals over the last `days`, one line per provider."""
        since = self._clock.now().timestamp() - days * _SECONDS_PER_DAY
        by_provider: dict[str, list[tuple[object, ...]]] = {}
        with self._database.reading() as unit:
            for provider, *rest in unit.execute(_SQL.since, {"user": self.user, "since": since}):
                by_provider.setdefault(str(provider), []).append(tuple(rest))
        return [_summarize(provider, rows) for provider, rows in sorted(by_provider.items())]

    def prune(self) -> None:
        """Delete expired records; this is maintenance of the whole file, for all users."""
        with self._database.writing() as unit:
            unit.execute(_SQL.prune, {"before": self._clock.now().timestamp() - self._keep_days * _SECONDS_PER_DAY})

    def resume(self, provider: str | None = None) -> None:
        """End the pause of a provider, or of all, because a person says that it works again."""
        lane = None if provider is None else lane_name(provider, self.user)
        with self._database.writing() as unit:
            unit.execute(_SQL.resume, {"user": self.user, "lane": lane})

    def forget(self, session_id: str) -> int:
        """Delete the records of a session; return how many."""
        with self._database.writing() as unit:
            return len(list(unit.execute(_SQL.forget, {"user": self.user, "session_id": session_id})))

    def _write_all(self) -> None:
        try:
            self.prune()
        except StorageError:
            log.warning("expired provider calls could not be deleted", exc_info=True)
        while True:
            batch = self._next_batch()
            try:
                self._write(batch)
            except StorageError:
                log.warning("provider calls could not be recorded", exc_info=True)
            for each in batch:
                if isinstance(each, threading.Event):
                    each.set()
            if None in batch:
                return

    def _next_batch(self) -> list[_Entry]:
        """Wait for an entry, and return it with all that are queued behind it."""
        batch = [self._inbox.get()]
        with suppress(Empty):
            while len(batch) < _BATCH:
                batch.append(self._inbox.get_nowait())
        return batch

    def _write(self, batch: list[_Entry]) -> None:
        newest: dict[str, Health] = {}
        with self._database.writing() as unit:
            for each in batch:
                if isinstance(each, CallRecord):
                    unit.execute(_SQL.add, {"user": self.user, **asdict(each)})
                elif isinstance(each, tuple):
                    newest[each[0]] = each[1]
            for provider, health in newest.items():
                named = {"user": self.user, "lane": lane_name(provider, self.user)}
                unit.execute(_SQL.set_health, {**named, **asdict(health)})


def _summarize(provider: str, rows: list[tuple[object, ...]]) -> ProviderStats:
    calls: list[Mapping[str, object]] = [
        dict(zip(("call", "seconds", "outcome", "bytes_out", "bytes_in"), row, strict=True)) for row in rows
    ]
    recalls = [call for call in calls if call["call"] in {"prefetch", "recall"}]
    seconds = sorted(_amount(call["seconds"]) for call in recalls)
    recalled = sum(_amount(call["bytes_in"]) for call in recalls)
    return ProviderStats(
        provider=provider,
        calls=len(calls),
        failures=sum(call["outcome"] != "ok" for call in calls),
        recalls=len(recalls),
        hits=sum(_amount(call["bytes_in"]) > 0 for call in recalls),
        recall_p50_ms=_percentile(seconds, 0.50) * 1000,
        recall_p95_ms=_percentile(seconds, 0.95) * 1000,
        bytes_out=int(sum(_amount(call["bytes_out"]) for call in calls)),
        bytes_in=int(sum(_amount(call["bytes_in"]) for call in calls)),
        recalled_tokens=int(recalled / _BYTES_PER_TOKEN),
    )


def _amount(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
