"""The outbox: a durable queue of one user's writes to providers, in strict order for each provider."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

from msgspec import Struct

from wellkept.core.ids import OWNER, UserId
from wellkept.core.ports import Clock, Database, UnitOfWork
from wellkept.core.text import JSON, dumps
from wellkept.core.values import hide
from wellkept.storage.connections import statements
from wellkept.storage.leases import is_held

log = logging.getLogger(__name__)

Hook = Literal["sync_turn", "on_memory_write", "on_delegation", "on_session_end"]

NEVER = 1e15
"""The next attempt, in epoch seconds, of a write that was set aside: later than any real moment."""

_SQL = statements("wellkept.providers", "outbox.sql")
_MAX_ERROR_CHARS = 300


class Write(Struct, frozen=True, kw_only=True):
    """A call of a hook that is to be delivered; a key that is already queued is not queued again."""

    hook: Hook
    session_id: str
    idempotency_key: str
    payload: Mapping[str, JSON]


class Item(Struct, frozen=True):
    """A queued write."""

    id: int
    provider: str
    session_id: str
    hook: str
    payload: Mapping[str, JSON]
    idempotency_key: str
    created: float
    attempts: int
    not_before: float
    """Epoch seconds of the next attempt."""
    last_error: str | None

    __repr__ = hide("payload")

    @property
    def is_refused(self) -> bool:
        """Whether the provider said that it will never accept this write."""
        return self.not_before >= NEVER


class Lane(Struct, frozen=True):
    """The state of one provider's queue."""

    provider: str
    waiting: int = 0
    oldest: float | None = None
    delivered: int = 0
    dropped: int = 0
    refused: int = 0
    """Writes that the provider will never accept; they are set aside and block nothing."""


def lane_name(provider: str, user: UserId) -> str:
    """Return the name under which a user's queue for a provider is stored.

    The owner's lanes carry the plain provider name, as they did before there were other users.
    """
    return provider if user == OWNER else f"{provider}/{user}"


class Outbox:
    """The queues of one user; any process may add to them, and one worker at a time drains a lane.

    Every read and write is limited to the rows of `user`. Delivering for several users takes one outbox each.
    """

    def __init__(self, database: Database, *, user: UserId, clock: Clock, limit: int = 10_000) -> None:
        self.user = user
        self._database = database
        self._clock = clock
        self._limit = limit

    def now(self) -> float:
        return self._clock.now().timestamp()

    def unit(self) -> AbstractContextManager[UnitOfWork]:
        """Open a unit of work on the queue's database, or join the one that is open on this thread."""
        return self._database.writing()

    def enqueue(self, unit: UnitOfWork, provider: str, writes: Sequence[Write]) -> None:
        """Add `writes` in the caller's unit of work, so that they commit together with what they report."""
        self._run(unit, _SQL.make_lane, provider)
        for write in writes:
            self._run(
                unit,
                _SQL.enqueue,
                provider,
                session_id=write.session_id,
                hook=write.hook,
                payload=dumps(write.payload),
                idempotency_key=write.idempotency_key,
                created=self.now(),
            )
        self._enforce_limit(unit, provider)

    def add(self, provider: str, writes: Sequence[Write]) -> None:
        """Add `writes` in a new unit of work, or in the one that is open on this thread."""
        with self._database.writing() as unit:
            self.enqueue(unit, provider, writes)

    def take(self, provider: str, *, holder: str, seconds: float) -> Item | None:
        """Lease the lane for `seconds` and return its oldest write, if it is due and nobody else holds the lane."""
        head = self.head(provider)
        if head is None or head.not_before > self.now():
            return None  # checked without a write transaction first: an idle worker must not lock the database
        with self._database.writing() as unit:
            if not self._lease(unit, provider, holder=holder, seconds=seconds):
                return None
            return self._head(unit, provider)

    def release(self, provider: str, *, holder: str) -> None:
        """Give the lease back, so that another worker can drain the lane."""
        with self._database.writing() as unit:
            self._run(unit, _SQL.release, provider, holder=holder)

    def mark_delivered(self, item: Item) -> None:
        """Remove a delivered write from the queue and count it."""
        with self._database.writing() as unit:
            if self._run(unit, _SQL.delete, id=item.id):
                self._run(unit, _SQL.count_delivered, item.provider)

    def mark_failed(self, item: Item, error: str, *, retry_after_seconds: float) -> None:
        """Keep a write for a later attempt; the writes behind it wait too."""
        with self._database.writing() as unit:
            not_before = self.now() + retry_after_seconds
            self._run(unit, _SQL.postpone, id=item.id, not_before=not_before, error=error[:_MAX_ERROR_CHARS])

    def set_aside(self, item: Item, error: str) -> None:
        """Keep a write that the provider will never accept, without blocking the ones behind it.

        It stays listed, so that a person can retry or drop it.
        """
        with self._database.writing() as unit:
            self._run(unit, _SQL.postpone, id=item.id, not_before=NEVER, error=error[:_MAX_ERROR_CHARS])
        log.warning("provider %s rejected write %d permanently: %s", item.provider, item.id, error)

    def head(self, provider: str) -> Item | None:
        """Return the write that is delivered next."""
        with self._database.reading() as unit:
            return self._head(unit, provider)

    def items(self, provider: str | None = None, *, limit: int = 100) -> list[Item]:
        """Return the queued writes in order, of one provider or of all."""
        with self._database.reading() as unit:
            return [_item(row) for row in self._run(unit, _SQL.items, provider, limit=limit)]

    def waiting(self, provider: str, session_id: str) -> int:
        """Return how many writes of one session are queued."""
        with self._database.reading() as unit:
            rows = self._run(unit, _SQL.waiting_of_session, provider, session_id=session_id, never=NEVER)
            return _number(rows)

    def lanes(self) -> list[Lane]:
        """Return the state of every queue, also of providers that are no longer in use."""
        with self._database.reading() as unit:
            return [
                Lane(_provider(lane), *counts)  # type: ignore[arg-type] # columns as in Lane
                for lane, *counts in self._run(unit, _SQL.lanes, never=NEVER)
            ]

    def retry(self, *, provider: str | None = None, item_id: int | None = None) -> int:
        """Make queued writes due now; return how many."""
        with self._database.writing() as unit:
            return len(self._run(unit, _SQL.retry, provider, id=item_id))

    def drop(self, *, provider: str | None = None, item_id: int | None = None) -> int:
        """Remove undelivered writes and count them as dropped; return how many."""
        with self._database.writing() as unit:
            dropped = [_provider(lane) for (lane,) in self._run(unit, _SQL.drop, provider, id=item_id)]
            for name, count in Counter(dropped).items():
                self._run(unit, _SQL.count_dropped, name, count=count)
            return len(dropped)

    def forget(self, unit: UnitOfWork, session_id: str) -> int:
        """Delete the queued writes of a session that is being forgotten; return how many."""
        return len(self._run(unit, _SQL.forget, session_id=session_id))

    def cursor(self, unit: UnitOfWork, provider: str) -> int | None:
        """Return the last ledger id that was queued for `provider`, or None if there is none yet."""
        for (value,) in self._run(unit, _SQL.cursor, provider):
            return value if isinstance(value, int) else None
        return None

    def cursor_of(self, provider: str) -> int | None:
        """Return the same as `cursor`, without a unit of work."""
        with self._database.reading() as unit:
            return self.cursor(unit, provider)

    def set_cursor(self, unit: UnitOfWork, provider: str, ledger_id: int) -> None:
        """Store the last ledger id that was queued for `provider`."""
        self._run(unit, _SQL.make_lane, provider)
        self._run(unit, _SQL.set_cursor, provider, ledger_id=ledger_id)

    def _head(self, unit: UnitOfWork, provider: str) -> Item | None:
        rows = self._run(unit, _SQL.head, provider, never=NEVER)
        return _item(rows[0]) if rows else None

    def _enforce_limit(self, unit: UnitOfWork, provider: str) -> None:
        over = _number(self._run(unit, _SQL.count, provider)) - self._limit
        if over <= 0:
            return
        self._run(unit, _SQL.drop_oldest, provider, count=over)
        self._run(unit, _SQL.count_dropped, provider, count=over)
        log.warning("the outbox of %s is full: its %d oldest writes were dropped", provider, over)

    def _lease(self, unit: UnitOfWork, provider: str, *, holder: str, seconds: float) -> bool:
        now = self.now()
        lanes = self._run(unit, _SQL.lease, provider)
        if not lanes and self._run(unit, _SQL.cursor, provider):
            return False  # somebody adds to the lane at this moment, which PostgreSQL does not wait for
        for other, ends in lanes:
            assert isinstance(ends, float | int)
            if isinstance(other, str) and other != holder and is_held(other, ends, now=now, seconds=seconds):
                return False
        self._run(unit, _SQL.set_lease, provider, holder=holder, until=now + seconds)
        return True

    def _run(
        self, unit: UnitOfWork, sql: str, provider: str | None = None, **bindings: object
    ) -> list[tuple[object, ...]]:
        """Run a statement for this user; `provider` becomes the name of this user's lane."""
        lane = None if provider is None else lane_name(provider, self.user)
        named = {"user": self.user, "lane": lane, **bindings}
        return list(unit.execute(sql, named))


def _number(rows: Sequence[tuple[object, ...]]) -> int:
    value = rows[0][0]
    assert isinstance(value, int)
    return value


def _provider(lane: object) -> str:
    return str(lane).partition("/")[0]


def _item(row: tuple[object, ...]) -> Item:
    identity, lane, session_id, hook, payload, *rest = row
    assert isinstance(payload, str)
    return Item(identity, _provider(lane), session_id, hook, json.loads(payload), *rest)  # type: ignore[arg-type] # columns as in Item
