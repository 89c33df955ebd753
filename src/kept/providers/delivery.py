"""The courier: takes one provider's writes from the outbox and delivers them in order."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping

from kept.core.text import JSON
from kept.core.threads import start_thread
from kept.providers.guard import Answered, GuardedProvider, Outcome
from kept.providers.outbox import Item, Outbox, new_holder

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 300.0
_LOOK_AGAIN_SECONDS = 30.0
_LEASE_MARGIN_SECONDS = 30.0
_HELD_SECONDS = 2.0
_PAUSED_SECONDS = 5.0


class DeliveryWorker:
    """A daemon thread that drains one lane; delivered means that the hook returned without raising."""

    def __init__(
        self,
        guarded: GuardedProvider,
        outbox: Outbox,
        *,
        lane: str,
        timeout_seconds: float,
        prepare: Callable[[], bool],
    ) -> None:
        self._guard = guarded
        self._lane = lane
        self._holder = new_holder()
        self._outbox = outbox
        self._timeout_seconds = timeout_seconds
        self._prepare = prepare
        self._changed = threading.Condition()
        self._woken = False
        self._stopping = False
        self._stuck = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Look at the queue now; the thread begins with the first call."""
        with self._changed:
            self._woken = True
            self._stuck = False
            self._changed.notify_all()
            if self._thread is None and not self._stopping:
                self._thread = start_thread(self._run, name=f"kept-outbox-{self._lane}")

    def wait_for(self, session_id: str, *, seconds: float) -> bool:
        """Wait until nothing of the session waits, for a while, and not when the head cannot go out now."""
        deadline = time.monotonic() + seconds
        while self._outbox.waiting(self._lane, session_id):
            with self._changed:
                left = deadline - time.monotonic()
                if left <= 0 or self._stuck or self._thread is None:
                    return False
                self._changed.wait(min(left, 0.2))
        return True

    def stop(self) -> None:
        """End the thread after the delivery that is under way, and let other processes drain the lane."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(0.5)

    def _run(self) -> None:
        while not self._stopping:
            try:
                pause = self._step()
            except Exception:  # background task: the queue is durable, so the next look goes on where this one broke
                level = logging.DEBUG if self._stopping else logging.WARNING
                log.log(level, "the outbox of %s cannot be used", self._lane, exc_info=True)
                pause = _LOOK_AGAIN_SECONDS
            with self._changed:
                self._stuck = pause > 0 and not self._woken
                self._changed.notify_all()
                if pause and not self._woken and not self._stopping:
                    self._changed.wait(pause)
                self._woken = False
        self._release_lane()

    def _step(self) -> float:
        """Deliver the head if it is due; return how long to wait before the next look."""
        head = self._outbox.head(self._lane)
        if head is None:
            return _LOOK_AGAIN_SECONDS
        if not self._guard.ready and not self._prepare():
            return _LOOK_AGAIN_SECONDS
        held_seconds = self._timeout_seconds + _LEASE_MARGIN_SECONDS
        item = self._outbox.take(self._lane, holder=self._holder, seconds=held_seconds)
        if item is None:
            due_in = head.not_before - self._outbox.now()
            return min(_LOOK_AGAIN_SECONDS, due_in) if due_in > 0 else _HELD_SECONDS
        return self._record_outcome(item, self._deliver(item))

    def _record_outcome(self, item: Item, outcome: Outcome) -> float:
        match outcome:
            case Answered():
                self._outbox.delivered(item)
                return 0.0
            case failed if not failed.attempted:
                return _PAUSED_SECONDS
            case failed if failed.permanent:
                self._outbox.refused(item, failed.error)
                return 0.0
            case failed:
                delay = _retry_delay(item.attempts)
                self._outbox.failed(item, failed.error, retry_after_seconds=delay)
                return delay

    def _deliver(self, item: Item) -> Outcome:
        args, keywords = _arguments(item)
        return self._guard.call(
            item.hook, *args, session_id=item.session_id, timeout_seconds=self._timeout_seconds, **keywords
        )

    def _release_lane(self) -> None:
        try:
            self._outbox.release(self._lane, holder=self._holder)
        except Exception:  # background task: the database may be closed already
            log.debug("the lease of %s was not given back; it runs out", self._lane, exc_info=True)


def _retry_delay(attempts: int) -> float:
    longest = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(attempts, 20))
    return longest * random.uniform(0.75, 1.0)


def _arguments(item: Item) -> tuple[tuple[JSON, ...], Mapping[str, JSON]]:
    """Return the positional and keyword arguments that the item's hook is called with."""
    told = item.payload
    key: Mapping[str, JSON] = {"idempotency_key": item.idempotency_key}
    match item.hook:
        case "sync_turn":
            return (told["user"], told["assistant"]), {"messages": told["messages"], **key}
        case "on_memory_write":
            return (told["action"], told["target"], told["content"]), {"metadata": told["metadata"], **key}
        case "on_delegation":
            return (told["task"], told["result"]), {"child_session_id": told["child_session_id"], **key}
        case "on_session_end":
            return (told["messages"],), key
        case unknown:
            raise AssertionError(unknown)
