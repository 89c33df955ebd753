"""The manager: starts the chosen providers, asks them, tells them, and keeps a turn safe from all of them."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kept.core.errors import KeptError
from kept.core.events import Warned
from kept.core.jsontypes import JSON
from kept.core.ports import Clock, EventSink, UnitOfWork
from kept.core.tools import Tool, ToolContext
from kept.providers.audit import Audit
from kept.providers.base import BUILTIN, LedgerReader, MemoryProvider, Messages, StartContext
from kept.providers.breaker import Breaker, Health
from kept.providers.conversation import clean_messages, clean_text
from kept.providers.crew import Crew
from kept.providers.guarded import Answered, Failed, Guarded
from kept.providers.member import Member, without_taken
from kept.providers.merge import merged
from kept.providers.mirror import Mirror
from kept.providers.outbox import Hook, Outbox, Write
from kept.providers.settings import ProviderSettings
from kept.providers.toolbox import RECALL_SCHEMA, RECALL_TOOL, failure, is_search
from kept.security.fence import sanitize_context, unwrapped

log = logging.getLogger(__name__)

_GRACE_SECONDS = 0.25
_MAX_BLOCK_CHARS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a manager works in."""

    context: StartContext
    clock: Clock
    sink: EventSink
    ledger: LedgerReader | None = None
    """The ledger whose writes are mirrored; None mirrors nothing."""
    several: bool = False
    """Whether more than one external provider was asked for, by a list in the configuration."""
    reserved_tools: frozenset[str] = frozenset()
    """Names of tools that no provider may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTurn:
    """A turn that may be told to providers; an interrupted one, or one without an answer, never is."""

    session_id: str
    key: str
    """Distinguishes this turn from every other of its session; the id of its last message, for example."""
    user: str
    assistant: str
    messages: Messages = ()
    """The messages of this turn."""
    interrupted: bool = False

    @property
    def counts(self) -> bool:
        """Whether providers are told of it."""
        return not self.interrupted and bool(self.assistant.strip())


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """How a registered provider stands."""

    name: str
    ready: bool
    health: Health
    waiting: int
    problem: str | None = None


class ProviderManager:
    """The providers of one agent in one session after another."""

    def __init__(self, outbox: Outbox, audit: Audit, *, surroundings: Surroundings, settings: ProviderSettings) -> None:
        self._outbox = outbox
        self._audit = audit
        self._around = surroundings
        self._settings = settings
        self._crew = Crew("kept-provider")
        self._members: list[Member] = []
        self._mirror = None if surroundings.ledger is None else Mirror(outbox, surroundings.ledger)
        self._session_id = ""
        self._is_started = False
        self._is_shut = False

    def register(self, provider: MemoryProvider) -> bool:
        """Take a provider in; False, with a warning, when its place or its name is taken."""
        name = provider.name
        taken = self.providers
        external = [each for each in taken if each != BUILTIN]
        if name in taken or (name != BUILTIN and external and not self._around.several):
            self._warn(
                f"the memory provider {name!r} was not registered beside {external}",
                "one external provider is used at a time; memory.provider may list several to use together",
            )
            return False
        breaker = Breaker(
            self._audit.health(name),
            limit=self._settings.breaker_failures,
            pause_seconds=self._settings.breaker_pause_seconds,
        )
        around = self._around
        guarded = Guarded(provider, breaker=breaker, crew=self._crew, audit=self._audit, clock=around.clock)
        self._members.append(Member(guarded, self._outbox, context=around.context, settings=self._settings))
        return True

    def start(self, session_id: str) -> None:
        """Initialise every provider at once, and begin to deliver what still waits for them."""
        self._is_started = True
        self._enter(session_id)
        self._all_at_once(lambda each: each.bring_up)
        for each in self._members:
            if each.problem:
                what = f"the memory provider {each.name!r} is not in use: {each.problem}"
                self._warn(what, "`kept providers status` says more")
        self.mirror()
        self._wake()

    def start_for_tools(self, session_id: str) -> None:
        """Start, unless that was done, and let what waits arrive first: for a single call outside a conversation."""
        if not self._is_started:
            self.start(session_id)
            self._wait_for("")

    @property
    def providers(self) -> list[str]:
        """Return the names of the registered providers, in order."""
        return [each.name for each in self._members]

    def status(self) -> list[ProviderStatus]:
        """Return how every registered provider stands."""
        waiting = {lane.provider: lane.waiting for lane in self._outbox.lanes()}
        return [
            ProviderStatus(
                name=each.name,
                ready=each.guarded.ready,
                health=each.guarded.breaker.health,
                waiting=waiting.get(each.lane, 0),
                problem=each.problem,
            )
            for each in self._members
        ]

    def tools(self) -> Sequence[Tool]:
        """Return the providers' tools; with several providers one neutral search stands for theirs.

        May be asked before `start`, so that a prompt can be built for a session that does not exist yet.
        """
        self._all_at_once(lambda each: each.declare)
        without_taken(self._members, {*self._around.reserved_tools, RECALL_TOOL})
        tools = [tool for each in self._members for tool in each.tools]
        if not self._around.several or not tools:
            return tools
        own = [tool for tool in tools if not is_search(tool.schema)]
        return [Tool(RECALL_SCHEMA, self._recall_tool), *own]

    def system_prompt_block(self) -> str:
        """Return what the providers put into the system prompt."""
        texts = self._texts("system_prompt_block")
        return "\n\n".join(text.strip()[:_MAX_BLOCK_CHARS] for text in texts if text.strip())

    def recall(self, message: str, *, session_id: str, turn: int, context: Mapping[str, JSON] | None = None) -> str:
        """Begin the turn for every provider and return what they recall, merged under one budget.

        Waits no longer than the prefetch time-out, and drops what comes after a session switch.
        """
        hooks = ("on_turn_start", "prefetch")
        asked = [each for each in self._ready() if any(each.guarded.offers(hook) for hook in hooks)]
        query = sanitize_context(message)
        deadline = time.monotonic() + self._settings.prefetch_timeout_seconds
        jobs = [
            self._crew.submit(partial(each.recalled, query, turn=turn, context=context or {}, deadline=deadline))
            for each in asked
        ]
        texts = [str(job.result or "") for job in jobs if job.wait(deadline + _GRACE_SECONDS - time.monotonic())]
        return self._merged(texts) if session_id == self._session_id else ""

    def pre_compress(self, messages: Messages) -> str:
        """Let every provider save what matters before a compaction; return their words for the summary."""
        texts = self._texts("on_pre_compress", clean_messages(messages))
        return self._merged(texts)

    def queue_turn(self, unit: UnitOfWork, turn: FinishedTurn) -> None:
        """Queue a finished turn inside the unit of work that stores it."""
        if turn.counts:
            payload: Mapping[str, JSON] = {
                "user": clean_text(turn.user),
                "assistant": clean_text(turn.assistant),
                "messages": clean_messages(turn.messages),
            }
            key = f"turn:{turn.session_id}:{turn.key}"
            self._queue("sync_turn", turn.session_id, key, payload=payload, unit=unit)

    def after_turn(self, turn: FinishedTurn) -> None:
        """Deliver what the turn queued and, when it was finished, warm the next recall; returns at once."""
        self._crew.submit(self.mirror)
        self._wake()
        if not turn.counts:
            return
        query = clean_text(turn.user)
        for each in self._ready():
            if each.guarded.offers("queue_prefetch"):
                self._crew.submit(partial(each.ask, "queue_prefetch", query))

    def queue_delegation(
        self, unit: UnitOfWork, *, session_id: str, child_session_id: str, task: str, result: str
    ) -> None:
        """Queue what a sub-agent did."""
        payload = {
            "task": clean_text(task),
            "result": clean_text(result),
            "child_session_id": child_session_id,
        }
        self._queue("on_delegation", session_id, f"delegation:{child_session_id}", payload=payload, unit=unit)

    def delegated(self, task: str, result: str, *, session_id: str, child_session_id: str) -> None:
        """Queue what a sub-agent did, in a unit of work of its own."""
        with self._outbox.unit() as unit:
            self.queue_delegation(
                unit, session_id=session_id, child_session_id=child_session_id, task=task, result=result
            )
        self._wake()

    def memory_written(self) -> None:
        """Mirror what was just written to the pages; returns at once."""
        self._crew.submit(self.mirror)

    def mirror(self) -> None:
        """Queue every write to the pages that the providers were not told of yet, from whatever process."""
        if self._mirror is None or not self._writes:
            return
        lanes = [each.lane for each in self._members if each.guarded.offers("on_memory_write")]
        try:
            self._mirror.catch_up(lanes, user_id=self._around.context.user_id)
        except KeptError:
            log.warning("memory writes could not be queued for providers; the next call does it", exc_info=True)
        self._wake()

    def commit(self, session_id: str, messages: Messages) -> None:
        """Queue the end of a session, without shutting anything down."""
        key = f"end:{session_id}:{self._around.clock.now().timestamp():.6f}"
        with self._outbox.unit() as unit:
            payload: Mapping[str, JSON] = {"messages": clean_messages(messages)}
            self._queue("on_session_end", session_id, key, payload=payload, unit=unit)
        self._wake()

    def begun_anew(self, new_id: str, *, reason: str = "new") -> None:
        """Hear of `/new` or `/reset`; `commit` was called for the session that is left."""
        self._switch(new_id, parent=self._session_id, reset=True, reason=reason)

    def resumed(self, new_id: str) -> None:
        """Hear of `/resume`; the parent is the session that is left."""
        self._switch(new_id, parent=self._session_id, reset=False, reason="resume")

    def branched(self, new_id: str, *, origin: str) -> None:
        """Hear of `/branch`."""
        self._switch(new_id, parent=origin, reset=False, reason="branch")

    def compacted(self, new_id: str) -> None:
        """Hear that the conversation goes on compacted, in a child session or under the same id.

        Before it: `pre_compress`, and for a child session `commit`.
        """
        self._switch(new_id, parent=self._session_id, reset=False, reason="compression")

    def leave(self, session_id: str, messages: Messages, *, engine_end: Callable[[], None] | None = None) -> None:
        """End the session and shut down: exit, or expiry by a reset policy."""
        self.commit(session_id, messages)
        if engine_end is not None:
            engine_end()
        self.shutdown()

    def shutdown(self) -> None:
        """Wait a little for what is queued, then close every provider, the last one first."""
        if self._is_shut:
            return
        self._is_shut = True
        if self._members:
            self.mirror()
        self._wait_for(self._session_id, "")
        for each in reversed(self._members):
            each.courier.stop()
            if each.guarded.ready:
                each.ask("shutdown", timeout_seconds=max(1.0, self._settings.switch_wait_seconds))
        self._audit.flush()

    def close(self) -> None:
        """Shut down if that was not done, and end the record of calls; comes before the database is closed."""
        self.shutdown()
        self._crew.close()
        self._audit.close()

    @property
    def _writes(self) -> bool:
        return self._around.context.agent_context == "primary"

    def _ready(self) -> list[Member]:
        return [each for each in self._members if each.guarded.ready]

    def _recall_tool(self, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            return failure("give `query`: what to look for, in plain words")
        pending = [
            each.guarded.begin("prefetch", query, session_id=context.session_id or self._session_id, expects=str)
            for each in self._ready()
        ]
        outcomes = [call.wait(self._settings.prefetch_timeout_seconds) for call in pending]
        texts = [str(outcome.value or "") for outcome in outcomes if isinstance(outcome, Answered)]
        failed = [outcome.error for outcome in outcomes if isinstance(outcome, Failed)]
        return {"success": True, "recalled": self._merged(texts), **({"failed": failed} if failed else {})}

    def _merged(self, texts: Sequence[str]) -> str:
        limit = self._settings.recall_max_chars
        if any(len(text) > limit for text in texts):
            log.warning("recalled text was cut to %d characters", limit)
        return merged([unwrapped(text[: 2 * limit]) for text in texts], max_chars=limit).strip()

    def _texts(self, hook: str, *args: object) -> list[str]:
        deadline = time.monotonic() + self._settings.prefetch_timeout_seconds
        pending = [each.guarded.begin(hook, *args, session_id=self._session_id, expects=str) for each in self._ready()]
        outcomes = [call.wait(deadline - time.monotonic()) for call in pending]
        answers = [str(outcome.value or "") for outcome in outcomes if isinstance(outcome, Answered)]
        return [unwrapped(answer[: 4 * _MAX_BLOCK_CHARS]) for answer in answers]

    def _queue(self, hook: Hook, session_id: str, key: str, *, payload: Mapping[str, JSON], unit: UnitOfWork) -> None:
        if not self._writes:
            return
        write = Write(hook=hook, session_id=session_id, idempotency_key=key, payload=payload)
        for each in self._members:
            if each.guarded.offers(hook):
                self._outbox.enqueue(unit, each.lane, [write])

    def _switch(self, new_id: str, *, parent: str, reset: bool, reason: str) -> None:
        left = self._session_id
        self._enter(new_id)
        if left != new_id:
            self._wait_for(left)
        told: dict[str, Any] = {"parent_session_id": parent, "reset": reset, "reason": reason}
        pending = [each.guarded.begin("on_session_switch", new_id, session_id=new_id, **told) for each in self._ready()]
        deadline = time.monotonic() + self._settings.prefetch_timeout_seconds
        for call in pending:
            call.wait(deadline - time.monotonic())

    def _all_at_once(self, work: Callable[[Member], Callable[[], None]]) -> None:
        jobs = [(each, self._crew.submit(work(each))) for each in self._members]
        deadline = time.monotonic() + self._settings.start_timeout_seconds + _GRACE_SECONDS
        for each, job in jobs:
            if not job.wait(deadline - time.monotonic()):
                each.problem = f"it did not answer within {self._settings.start_timeout_seconds:g} s"

    def _enter(self, session_id: str) -> None:
        self._session_id = session_id
        for each in self._members:
            each.session_id = session_id

    def _wait_for(self, *session_ids: str) -> None:
        """Wait a little for the writes of sessions; the empty id is that of writes outside any session."""
        deadline = time.monotonic() + self._settings.switch_wait_seconds
        for each in self._members if self._writes else ():
            each.courier.wake()
            for session_id in session_ids:
                each.courier.wait_for(session_id, seconds=deadline - time.monotonic())

    def _wake(self) -> None:
        if self._writes:
            for each in self._members:
                each.courier.wake()

    def _warn(self, message: str, remedy: str) -> None:
        log.warning("%s; %s", message, remedy)
        self._around.sink(Warned(message, remedy))
