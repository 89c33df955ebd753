"""The outbox: a durable queue of writes to providers, strictly in order for each of them."""

import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

from kept.core.ids import random_hex
from kept.core.ports import Clock, UnitOfWork
from kept.core.text import JSON, dumps
from kept.storage.files import is_alive
from kept.storage.sql import statements
from kept.storage.sqlite import Database

log = logging.getLogger(__name__)

Hook = Literal["sync_turn", "on_memory_write", "on_delegation", "on_session_end"]

_SQL = statements("kept.providers", "outbox.sql")
_MAX_ERROR_CHARS = 300


NEVER = 1e15
"""The next attempt of a write that is set aside: later than any moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Something that a provider is to be told; the same key is never queued twice at once."""

    hook: Hook
    session_id: str
    idempotency_key: str
    payload: Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class Item:
    """A write that waits."""

    id: int
    provider: str
    session_id: str
    hook: str
    payload: Mapping[str, JSON] = field(repr=False)
    idempotency_key: str
    created: float
    attempts: int
    not_before: float
    """Epoch seconds of the next attempt."""
    last_error: str | None

    @property
    def is_refused(self) -> bool:
        """Whether the provider said that it will never take it."""
        return self.not_before >= NEVER


@dataclass(frozen=True, slots=True)
class Lane:
    """How the queue of one provider stands."""

    provider: str
    waiting: int
    oldest: float | None
    delivered: int
    dropped: int
    refused: int = 0
    """Writes that the provider will never take; they are kept aside and hold nothing up."""


class Outbox:
    """The queue in the shared database; many may fill it, and one at a time drains a lane.

    A lane belongs to one provider and one user: what it holds is delivered by a manager that was
    started for that user.
    """

    def __init__(self, database: Database, *, clock: Clock, limit: int = 10_000) -> None:
        self._database = database
        self._clock = clock
        self._limit = limit

    def enqueue(self, unit: UnitOfWork, provider: str, writes: Sequence[Write]) -> None:
        """Add `writes` inside the caller's unit of work, so that they commit with what they tell of."""
        _run(unit, _SQL.make_lane, provider=provider)
        for write in writes:
            _run(
                unit,
                _SQL.enqueue,
                provider=provider,
                session_id=write.session_id,
                hook=write.hook,
                payload=dumps(write.payload),
                idempotency_key=write.idempotency_key,
                created=self.now(),
            )
        self._keep_bounded(unit, provider)

    def add(self, provider: str, writes: Sequence[Write]) -> None:
        """Add `writes` in a unit of work of their own, or in the one that is open on this thread."""
        with self._database.writing() as unit:
            self.enqueue(unit, provider, writes)

    def take(self, provider: str, *, holder: str, seconds: float) -> Item | None:
        """Return the oldest write if it is due and nobody else drains its lane; hold that for `seconds`."""
        head = self.head(provider)
        if head is None or head.not_before > self.now():
            return None
        with self._database.writing() as unit:
            if not self._hold(unit, provider, holder=holder, until=self.now() + seconds):
                return None
            return _first_item(_run(unit, _SQL.head, provider=provider, never=NEVER))

    def release(self, provider: str, *, holder: str) -> None:
        """Let others drain the lane."""
        with self._database.writing() as unit:
            _run(unit, _SQL.release, provider=provider, holder=holder)

    def delivered(self, item: Item) -> None:
        """Take a delivered write out of the queue."""
        with self._database.writing() as unit:
            _run(unit, _SQL.delete, id=item.id)
            _run(unit, _SQL.count_delivered, provider=item.provider)

    def failed(self, item: Item, error: str, *, retry_after_seconds: float) -> None:
        """Keep a write for a later attempt; what is behind it waits too."""
        with self._database.writing() as unit:
            not_before = self.now() + retry_after_seconds
            _run(unit, _SQL.failed, id=item.id, not_before=not_before, error=error[:_MAX_ERROR_CHARS])

    def refused(self, item: Item, error: str) -> None:
        """Set a write aside that will never be taken: what is behind it goes on, and a person may retry or drop it."""
        with self._database.writing() as unit:
            _run(unit, _SQL.failed, id=item.id, not_before=NEVER, error=error[:_MAX_ERROR_CHARS])
        log.warning("provider %s refused write %d for good: %s", item.provider, item.id, error)

    def head(self, provider: str) -> Item | None:
        """Return the write that goes out next."""
        with self._database.reading() as unit:
            return _first_item(_run(unit, _SQL.head, provider=provider, never=NEVER))

    def items(self, provider: str | None = None, *, limit: int = 100) -> list[Item]:
        """Return what waits, in order."""
        with self._database.reading() as unit:
            return [_item(row) for row in _run(unit, _SQL.items, provider=provider, limit=limit)]

    def waiting(self, provider: str, session_id: str) -> int:
        """Return how many writes of one session wait."""
        with self._database.reading() as unit:
            return _number(_run(unit, _SQL.waiting_of_session, provider=provider, session_id=session_id, never=NEVER))

    def lanes(self) -> list[Lane]:
        """Return how the queue of every provider stands."""
        with self._database.reading() as unit:
            return [Lane(*row) for row in _run(unit, _SQL.lanes, never=NEVER)]  # type: ignore[arg-type] # columns as in Lane

    def retry(self, *, provider: str | None = None, item_id: int | None = None) -> int:
        """Make waiting writes due now; return how many."""
        with self._database.writing() as unit:
            return len(_run(unit, _SQL.retry, provider=provider, id=item_id))

    def drop(self, *, provider: str | None = None, item_id: int | None = None) -> int:
        """Take writes out undelivered, and count them; return how many."""
        with self._database.writing() as unit:
            dropped = [str(lane) for (lane,) in _run(unit, _SQL.drop, provider=provider, id=item_id)]
            for lane, count in Counter(dropped).items():
                _run(unit, _SQL.count_dropped, provider=lane, count=count)
            return len(dropped)

    def forget(self, unit: UnitOfWork, session_id: str) -> int:
        """Delete what waits of a session that is being forgotten; return how many."""
        return len(_run(unit, _SQL.forget, session_id=session_id))

    def cursor(self, unit: UnitOfWork, provider: str) -> int | None:
        """Return the last ledger id that was queued for `provider`, None when there was none yet."""
        _run(unit, _SQL.make_lane, provider=provider)
        return _cursor(unit, provider)

    def cursor_of(self, provider: str) -> int | None:
        """Return the same outside a unit of work."""
        with self._database.reading() as unit:
            return _cursor(unit, provider)

    def set_cursor(self, unit: UnitOfWork, provider: str, ledger_id: int) -> None:
        """Remember the last ledger id that was queued for `provider`."""
        _run(unit, _SQL.set_cursor, provider=provider, ledger_id=ledger_id)

    def unit(self) -> AbstractContextManager[UnitOfWork]:
        """Open a unit of work on the queue's database, or join the one that is open on this thread."""
        return self._database.writing()

    def _keep_bounded(self, unit: UnitOfWork, provider: str) -> None:
        over = _number(_run(unit, _SQL.count, provider=provider)) - self._limit
        if over <= 0:
            return
        _run(unit, _SQL.drop_oldest, provider=provider, count=over)
        _run(unit, _SQL.count_dropped, provider=provider, count=over)
        log.warning("the outbox of %s is full: its %d oldest writes were dropped", provider, over)

    def _hold(self, unit: UnitOfWork, provider: str, *, holder: str, until: float) -> bool:
        for other, ends in _run(unit, _SQL.lane, provider=provider):
            assert isinstance(ends, float | int)
            if isinstance(other, str) and other != holder and ends > self.now() and not _has_ended(other):
                return False
        _run(unit, _SQL.lease, provider=provider, holder=holder, until=until)
        return True

    def now(self) -> float:
        """Return the present moment in epoch seconds."""
        return self._clock.now().timestamp()


def new_holder() -> str:
    """Return a name for whoever drains a lane; it tells which process of which machine that is."""
    return f"{socket.gethostname()}:{os.getpid()}:{random_hex(4)}"


def _has_ended(holder: str) -> bool:
    """Whether the holder was a process of this machine that has ended; its lease need not run out first."""
    host, _, rest = holder.rpartition(":")[0].rpartition(":")
    return host == socket.gethostname() and rest.isdigit() and not is_alive(int(rest))


def _cursor(unit: UnitOfWork, provider: str) -> int | None:
    for (value,) in _run(unit, _SQL.cursor, provider=provider):
        return value if isinstance(value, int) else None
    return None


def _run(unit: UnitOfWork, sql: str, **bindings: object) -> list[tuple[object, ...]]:
    return list(unit.execute(sql, bindings))


def _number(rows: Sequence[tuple[object, ...]]) -> int:
    value = rows[0][0]
    assert isinstance(value, int)
    return value


def _first_item(rows: Sequence[tuple[object, ...]]) -> Item | None:
    return _item(rows[0]) if rows else None


def _item(row: tuple[object, ...]) -> Item:
    identity, provider, session_id, hook, payload, *rest = row
    assert isinstance(payload, str)
    return Item(identity, provider, session_id, hook, json.loads(payload), *rest)  # type: ignore[arg-type] # columns as in Item
