"""The delivery worker: takes one provider's writes from the outbox and delivers them in order."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping

from wellkept.core.text import JSON
from wellkept.core.threads import start_thread
from wellkept.providers.guard import Answered, GuardedProvider, Outcome
from wellkept.providers.outbox import Item, Outbox
from wellkept.storage.leases import new_holder

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 300.0
_LEAST_JITTER = 0.75
"""Delays are shortened by up to a quarter, so that processes that failed together do not retry together."""
_POLL_SECONDS = 30.0
"""How often an idle worker looks for writes that another process queued."""
_LEASE_MARGIN_SECONDS = 30.0
"""How much longer than one delivery the lease of a lane lasts."""
_HELD_SECONDS = 2.0
"""How long to wait when another worker holds the lane."""
_PAUSED_SECONDS = 5.0
"""How long to wait when the provider is paused or an earlier call hangs; no attempt is counted."""


class DeliveryWorker:
    """A daemon thread that drains one lane; a write is delivered when its hook returns without raising."""

    def __init__(
        self,
        guard: GuardedProvider,
        outbox: Outbox,
        *,
        timeout_seconds: float,
        prepare: Callable[[], bool],
    ) -> None:
        self._guard = guard
        self._provider = guard.name
        self._holder = new_holder()
        self._outbox = outbox
        self._timeout_seconds = timeout_seconds
        self._prepare = prepare
        self._changed = threading.Condition()
        self._woken = False
        self._stopping = False
        self._stuck = False
        self._holds_lane = False
        self._thread: threading.Thread | None = None
        self._next_query: tuple[str, str] | None = None

    def wake(self) -> None:
        """Check the queue now; the first call starts the thread."""
        with self._changed:
            self._woken = True
            self._stuck = False
            self._changed.notify_all()
            if self._thread is None and not self._stopping:
                self._thread = start_thread(self._run, name=f"kept-outbox-{self._provider}")

    def warm_recall(self, session_id: str, query: str) -> None:
        """Let the provider prepare its next recall once everything that is queued for it is delivered.

        Only the newest query counts, and none after `stop`.
        """
        with self._changed:
            self._next_query = (session_id, query)
        self.wake()

    def wait_for(self, session_id: str, *, seconds: float) -> bool:
        """Wait until no write of the session is queued; give up early if the head cannot be delivered now."""
        deadline = time.monotonic() + seconds
        while self._outbox.waiting(self._provider, session_id):
            with self._changed:
                left = deadline - time.monotonic()
                if left <= 0 or self._stuck or self._thread is None:
                    return False
                self._changed.wait(min(left, 0.2))
        return True

    def stop(self) -> None:
        """End the thread after the current delivery, and let other processes drain the lane."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(0.5)

    def _run(self) -> None:
        while not self._stopping:
            try:
                pause = self._step()
            except Exception:  # background task: the queue is durable, so the next step continues where this one broke
                level = logging.DEBUG if self._stopping else logging.WARNING
                log.log(level, "the outbox of %s cannot be used", self._provider, exc_info=True)
                pause = _POLL_SECONDS
            with self._changed:
                self._stuck = pause > 0 and not self._woken
                self._changed.notify_all()
                if pause and not self._woken and not self._stopping:
                    self._changed.wait(pause)
                self._woken = False
        self._release_lane()

    def _step(self) -> float:
        """Deliver the head if it is due; return how many seconds to wait before the next step."""
        query = self._next_query  # before the queue: the turn of a query that comes later may not be delivered yet
        head = self._outbox.head(self._provider)
        if head is None:
            if self._holds_lane:  # otherwise another conversation would wait until the lease expires
                self._release_lane()
            self._queue_prefetch(query)
            return _POLL_SECONDS
        if not self._guard.ready and not self._prepare():
            return _POLL_SECONDS
        lease_seconds = self._timeout_seconds + _LEASE_MARGIN_SECONDS
        item = self._outbox.take(self._provider, holder=self._holder, seconds=lease_seconds)
        if item is None:
            due_in = head.not_before - self._outbox.now()
            return min(_POLL_SECONDS, due_in) if due_in > 0 else _HELD_SECONDS
        self._holds_lane = True
        return self._record_outcome(item, self._deliver(item))

    def _queue_prefetch(self, query: tuple[str, str] | None) -> None:
        with self._changed:
            if query is None or query is not self._next_query or self._stopping:
                return
            self._next_query = None
        session_id, text = query
        self._guard.call("queue_prefetch", text, session_id=session_id, timeout_seconds=self._timeout_seconds)

    def _deliver(self, item: Item) -> Outcome:
        args, keywords = _arguments(item)
        return self._guard.call(
            item.hook, *args, session_id=item.session_id, timeout_seconds=self._timeout_seconds, **keywords
        )

    def _record_outcome(self, item: Item, outcome: Outcome) -> float:
        """Update the queue after a delivery; return how many seconds to wait before the next step."""
        match outcome:
            case Answered():
                self._outbox.mark_delivered(item)
                return 0.0
            case failed if not failed.attempted:
                return _PAUSED_SECONDS
            case failed if failed.permanent:
                self._outbox.set_aside(item, failed.error)
                return 0.0
            case failed:
                delay = retry_delay(item.attempts)
                self._outbox.mark_failed(item, failed.error, retry_after_seconds=delay)
                return delay

    def _release_lane(self) -> None:
        self._holds_lane = False
        try:
            self._outbox.release(self._provider, holder=self._holder)
        except Exception:  # background task: the database may be closed already
            log.debug("the lease of %s was not released; it expires by itself", self._provider, exc_info=True)


def retry_delay(attempts: int) -> float:
    """Return how many seconds to wait after one more failure: 1, 2, 4 … up to 300, less jitter."""
    longest = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(attempts, 20))
    return longest * random.uniform(_LEAST_JITTER, 1.0)


def _arguments(item: Item) -> tuple[tuple[JSON, ...], Mapping[str, JSON]]:
    """Return the positional and keyword arguments for the item's hook."""
    payload = item.payload
    key: Mapping[str, JSON] = {"idempotency_key": item.idempotency_key}
    match item.hook:
        case "sync_turn":
            return (payload["user"], payload["assistant"]), {"messages": payload["messages"], **key}
        case "on_memory_write":
            content = (payload["action"], payload["target"], payload["content"])
            return content, {"metadata": payload["metadata"], **key}
        case "on_delegation":
            return (payload["task"], payload["result"]), {"child_session_id": payload["child_session_id"], **key}
        case "on_session_end":
            return (payload["messages"],), key
        case unknown:
            raise AssertionError(unknown)
