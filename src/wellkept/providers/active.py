"""The active providers of one agent: each with its guard, tools and delivery worker, all called at once."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from wellkept.core.ports import Clock, EventSink
from wellkept.core.text import JSON
from wellkept.core.threads import start_thread
from wellkept.core.tools import Tool, ToolContext
from wellkept.providers.base import LedgerReader, StartContext
from wellkept.providers.content import failure, tool_answer, tool_schemas
from wellkept.providers.guard import Answered, Failed, GuardedProvider, Outcome
from wellkept.providers.hooks import WorkerThreads
from wellkept.providers.outbox import Item, Outbox
from wellkept.providers.settings import ProviderSettings
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


_GRACE_SECONDS = 0.25
"""Extra time beyond a call's own time-out, so that the call itself can report the time-out."""


class ManagerContext(Struct, frozen=True, kw_only=True):
    """The user that the providers work for, and what the manager needs."""

    start: StartContext
    clock: Clock
    sink: EventSink
    ledger: LedgerReader | None = None
    """The ledger whose writes are mirrored; None mirrors nothing."""
    several: bool = False
    """Whether the configuration lists several external providers to use together."""
    reserved_tools: frozenset[str] = frozenset()
    """Tool names that providers must not use."""


class RegisteredProvider:
    """A provider in use."""

    def __init__(
        self, guard: GuardedProvider, outbox: Outbox, *, context: StartContext, settings: ProviderSettings
    ) -> None:
        self.guard = guard
        self.name = guard.name
        self.session_id = ""
        self.tools: list[Tool] = []
        self.problem: str | None = None
        """Why it is not in use."""
        self._is_asked = False
        self._is_available = False
        self.can_run = True
        """Whether a write that is queued now can be delivered: not if the provider says that it is not available."""
        self._start_lock = threading.Lock()
        self._is_starting = False
        """Whether a start that took longer than its limit may still end."""
        self.is_stopped = False
        """Whether it was shut down; a start that ends later changes nothing."""
        self._turn = 0
        self._context = context
        self._settings = settings
        self.worker = DeliveryWorker(
            guard, outbox, timeout_seconds=settings.delivery_timeout_seconds, prepare=self._initialize
        )

    def start(self) -> None:
        """Initialise the provider and ask for its tools; a failure is stored in `problem`."""
        self._initialize()

    def _is_usable(self) -> bool:
        """Whether the provider says that it is available; it is asked once."""
        if not self._is_asked:
            self._is_asked = True
            match self._declare_call("is_available"):
                case Answered(True):
                    self._is_available = True
                case Answered():
                    self.can_run = False
                    self.problem = "it is not available: its configuration or its package is missing"
                case Failed(error):
                    self.problem = error
        return self._is_available

    def call(self, hook: str, *args: object, timeout_seconds: float | None = None) -> Outcome:
        """Call a hook for the current session and wait for it."""
        seconds = self._settings.start_timeout_seconds if timeout_seconds is None else timeout_seconds
        return self.guard.call(hook, *args, session_id=self.session_id, timeout_seconds=seconds)

    def _declare_call(self, hook: str) -> Outcome:
        """Call a hook before `initialize`; a provider whose settings decide gets the home."""
        return self.guard.call(
            hook,
            session_id=self.session_id,
            timeout_seconds=self._settings.start_timeout_seconds,
            kept_home=self._context.kept_home,
        )

    def recall(self, query: str, *, turn: int, context: Mapping[str, JSON], deadline: float) -> str:
        """Announce the turn and return what is recalled for it, both before `deadline` (monotonic)."""
        known = {"platform": self._context.platform, **context}
        self._turn = turn = max(turn, self._turn + 1)  # a resumed or shortened conversation must not count back
        self.guard.call(
            "on_turn_start", turn, query, session_id=self.session_id, timeout_seconds=_seconds_until(deadline), **known
        )
        outcome = self.guard.call(
            "prefetch", query, session_id=self.session_id, expects=str, timeout_seconds=_seconds_until(deadline)
        )
        return str(outcome.value or "") if isinstance(outcome, Answered) else ""

    def restart_count(self) -> None:
        """Count turns from the first one again, for a new conversation."""
        self._turn = 0

    def _initialize(self) -> bool:
        """Initialise the provider unless that was done; return whether it is ready.

        The conversation and the delivery of queued writes both ask for it, from different threads.
        """
        with self._start_lock:
            if not self.guard.ready and not self._is_starting and self._is_usable():
                self._begin_start()
            return self.guard.ready

    def _begin_start(self) -> None:
        seconds = self._settings.start_timeout_seconds
        keywords: dict[str, Any] = self._context.keywords()
        pending = self.guard.begin("initialize", self.session_id, session_id=self.session_id, **keywords)
        match pending.wait(seconds):
            case Answered():
                self._adopt()
            case Failed(error, attempted):
                self.problem = error if attempted or self.problem is None else self.problem
                self._is_starting = attempted
                pending.when_done(self._adopt_late)

    def _adopt(self) -> None:
        """Use the provider from now on; its tools are asked for here, because they may depend on its start."""
        self.guard.ready, self.problem = True, None
        self.tools = self._fetch_tools()

    def _adopt_late(self, raised: BaseException | None) -> None:
        """Use a provider whose start took longer than its limit; its tools are offered in the next conversation."""
        if raised is None and not self.guard.ready and not self.is_stopped:
            log.info("provider %s started after its limit; it is used from now on", self.name)
            self._adopt()
            self.worker.wake()
        self._is_starting = False

    def _fetch_tools(self) -> list[Tool]:
        match self._declare_call("get_tool_schemas"):
            case Answered(declared):
                usable = tool_schemas(self.name, declared)
                return [Tool(schema, partial(self._run_tool, schema.name)) for schema in usable]
            case Failed(error):
                log.warning("provider %s has no tools: %s", self.name, error)
                return []

    def _run_tool(self, name: str, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        if not self.guard.ready:
            return failure(f"{self.name} is not in use: {self.problem or 'it was not started'}")
        outcome = self.guard.call(
            "handle_tool_call",
            name,
            dict(arguments),
            session_id=context.session_id or self.session_id,
            timeout_seconds=self._settings.tool_timeout_seconds,
            user_id=self._context.user_id,  # the user it was started for, even if the tool call names another
            platform=context.platform,
            kept_home=self._context.kept_home,
            hermes_home=self._context.kept_home,
        )
        match outcome:
            case Answered(text):
                return tool_answer(self.name, text)
            case Failed(error):
                return failure(f"{self.name}: {error}")


class Registry:
    """The providers of one agent, in the order in which they were registered."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.threads = WorkerThreads("kept-provider")
        self.session_id = ""
        self._settings = settings
        self._providers: list[RegisteredProvider] = []

    def __iter__(self) -> Iterator[RegisteredProvider]:
        return iter(self._providers)

    @property
    def names(self) -> list[str]:
        """Return the names of all providers."""
        return [provider.name for provider in self._providers]

    def add(self, provider: RegisteredProvider) -> None:
        """Add a provider."""
        self._providers.append(provider)

    def enter_session(self, session_id: str) -> None:
        """Use `session_id` for all further calls."""
        self.session_id = session_id
        for provider in self._providers:
            provider.session_id = session_id

    def ready(self, *hooks: str) -> list[RegisteredProvider]:
        """Return the started providers that offer one of `hooks`; without hooks all started ones."""
        offering = (provider for provider in self._providers if not hooks or any(map(provider.guard.offers, hooks)))
        return [each for each in offering if each.guard.ready]

    def start_all(self, work: Callable[[RegisteredProvider], None]) -> None:
        """Run `work` for all providers at once; one that exceeds the start time-out is left behind."""
        jobs = [(provider, self.threads.submit(partial(work, provider))) for provider in self._providers]
        seconds = self._settings.start_timeout_seconds
        deadline = time.monotonic() + seconds + _GRACE_SECONDS
        for each, job in jobs:
            if not job.wait(deadline - time.monotonic()):
                each.problem = f"it did not answer within {seconds:g} s"

    def call_all(
        self, hook: str, *args: object, session_id: str | None = None, expects: type = object, **keywords: Any
    ) -> list[Outcome]:
        """Call a hook of all ready providers at once; return the outcomes in order, within the prefetch time-out."""
        session = self.session_id if session_id is None else session_id
        pending = [
            each.guard.begin(hook, *args, session_id=session, expects=expects, **keywords) for each in self.ready()
        ]
        return [call.wait(self._settings.prefetch_timeout_seconds) for call in pending]

    def ask_all(self, question: str, *, session_id: str | None = None) -> list[Outcome]:
        """Ask all ready providers at once, with `recall` where they offer it, else with `prefetch`."""
        session = self.session_id if session_id is None else session_id
        hooks = [(each, "recall" if each.guard.offers("recall") else "prefetch") for each in self.ready()]
        pending = [each.guard.begin(hook, question, session_id=session, expects=str) for each, hook in hooks]
        return [call.wait(self._settings.prefetch_timeout_seconds) for call in pending]

    def recall(self, query: str, *, turn: int, context: Mapping[str, JSON]) -> list[str]:
        """Announce the turn to all providers at once; return what they recall within the prefetch time-out."""
        deadline = time.monotonic() + self._settings.prefetch_timeout_seconds
        jobs = [
            self.threads.submit(partial(each.recall, query, turn=turn, context=context, deadline=deadline))
            for each in self.ready("on_turn_start", "prefetch")
        ]
        return [str(job.result or "") for job in jobs if job.wait(deadline + _GRACE_SECONDS - time.monotonic())]

    def remove_taken_tools(self, taken: set[str]) -> None:
        """Remove tools whose names are in `taken` or belong to a provider registered earlier."""
        for provider in self._providers:
            free = []
            for tool in provider.tools:
                if tool.schema.name in taken:
                    log.warning("provider %s: the tool name %r is taken", provider.name, tool.schema.name)
                else:
                    taken.add(tool.schema.name)
                    free.append(tool)
            provider.tools = free


def _seconds_until(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
