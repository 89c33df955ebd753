"""The record of provider calls: whom, what kind, when, how long, with what outcome; never any text."""

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from typing import TypeAlias

from kept.core.errors import StorageError
from kept.core.ports import Clock
from kept.core.threads import start_thread
from kept.storage.sql import statements
from kept.storage.sqlite import Database

log = logging.getLogger(__name__)

_SQL = statements("kept.providers", "audit.sql")
_FLUSH_SECONDS = 12.0
"""Longer than the database waits for another writer: what was handed over is written, however busy the machine is."""
_BATCH = 500
_SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Health:
    """How a provider has been; times are epoch seconds."""

    failures: int = 0
    """Failures since the last success."""
    paused_until: float = 0.0
    last_error: str | None = None
    last_error_at: float | None = None
    last_success_at: float | None = None


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a hook or tool."""

    session_id: str
    provider: str
    call: str
    started: float
    seconds: float
    outcome: str
    """`ok`, `raised Type`, `timeout`, `garbage` or `too large`."""
    bytes_out: int
    bytes_in: int


@dataclass(frozen=True, slots=True)
class ProviderStats:
    """What the calls of one provider add up to."""

    provider: str
    calls: int
    failures: int
    recalls: int
    hits: int
    """Recalls that brought text."""
    recall_p50_ms: float
    recall_p95_ms: float
    bytes_out: int
    bytes_in: int
    recalled_tokens: int
    """What its recalled text cost in the prompts, estimated at four bytes per token."""


_Entry: TypeAlias = CallRecord | tuple[str, Health] | threading.Event | None
"""What the writer is given: a record, a state of health, someone who waits, or the end."""


class Audit:
    """Keeps call records and the health of providers in the shared database.

    Records are handed over at once and written by one daemon thread, so that neither a turn nor a
    provider's thread waits for the disk.
    """

    def __init__(self, database: Database, *, clock: Clock, keep_days: int = 90) -> None:
        self._database = database
        self._keep_days = keep_days
        self._clock = clock
        self._inbox: SimpleQueue[_Entry] = SimpleQueue()
        self._writer: threading.Thread | None = None
        self._is_closed = False
        self._guard = threading.Lock()

    def add(self, record: CallRecord, health: Health) -> None:
        """Keep a record, and how its provider is after it; a call that ends after `close` leaves none."""
        with self._guard:
            if self._is_closed:
                return
            self._inbox.put(record)
            self._inbox.put((record.provider, health))
            if self._writer is None:
                self._writer = start_thread(self._write_all, name="kept-audit")

    def flush(self) -> None:
        """Wait until everything handed over is written, unless the database refuses."""
        if self._writer is not None:
            written = threading.Event()
            self._inbox.put(written)
            written.wait(_FLUSH_SECONDS)

    def close(self) -> None:
        """Write what was handed over and take no more; comes before the database is closed."""
        with self._guard:
            self._is_closed = True
            self._inbox.put(None)
        if self._writer is not None:
            self._writer.join(_FLUSH_SECONDS)

    def of_session(self, session_id: str) -> list[CallRecord]:
        """Return the calls of one session, oldest first."""
        with self._database.reading() as unit:
            rows = unit.execute(_SQL.of_session, {"session_id": session_id})
            return [CallRecord(*row) for row in rows]

    def health(self, provider: str) -> Health:
        """Return how `provider` was when it was last called, in whatever process."""
        with self._database.reading() as unit:
            for row in unit.execute(_SQL.health, {"provider": provider}):
                return Health(*row)
        return Health()

    def stats(self, *, days: float) -> list[ProviderStats]:
        """Return what the calls of the last days add up to, one line per provider."""
        since = self._clock.now().timestamp() - days * _SECONDS_PER_DAY
        by_provider: dict[str, list[tuple[object, ...]]] = {}
        with self._database.reading() as unit:
            for provider, *rest in unit.execute(_SQL.since, {"since": since}):
                by_provider.setdefault(str(provider), []).append(tuple(rest))
        return [_summarize(provider, rows) for provider, rows in sorted(by_provider.items())]

    def prune(self) -> None:
        """Forget records that are older than they are kept."""
        with self._database.writing() as unit:
            unit.execute(_SQL.prune, {"before": self._clock.now().timestamp() - self._keep_days * _SECONDS_PER_DAY})

    def resume(self, provider: str | None = None) -> None:
        """End the pause of a provider, or of all: a person says that it is well again."""
        with self._database.writing() as unit:
            unit.execute(_SQL.resume, {"provider": provider})

    def forget(self, session_id: str) -> int:
        """Delete the records of a session; return how many."""
        with self._database.writing() as unit:
            return len(list(unit.execute(_SQL.forget, {"session_id": session_id})))

    def _write_all(self) -> None:
        try:
            self.prune()
        except StorageError:
            log.warning("old provider calls could not be forgotten", exc_info=True)
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
        """Wait for something to write, and take what else is there."""
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
                    unit.execute(_SQL.add, asdict(each))
                elif isinstance(each, tuple):
                    newest[each[0]] = each[1]
            for provider, health in newest.items():
                unit.execute(_SQL.set_health, {"provider": provider, **asdict(health)})


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
        recall_p50_ms=_at(seconds, 0.50) * 1000,
        recall_p95_ms=_at(seconds, 0.95) * 1000,
        bytes_out=int(sum(_amount(call["bytes_out"]) for call in calls)),
        bytes_in=int(sum(_amount(call["bytes_in"]) for call in calls)),
        recalled_tokens=int(recalled / 4),
    )


def _amount(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
