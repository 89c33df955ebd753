"""The surroundings of a manager: whom its providers work for, and what it may use."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kept.core.ids import OWNER
from kept.core.ports import Clock, EventSink
from kept.core.text import JSON
from kept.core.tools import Tool, ToolContext
from kept.providers.base import LedgerReader, StartContext
from kept.providers.content import failure, tool_answer, tool_schemas
from kept.providers.delivery import DeliveryWorker
from kept.providers.guard import Answered, Failed, GuardedProvider, Outcome
from kept.providers.hooks import WorkerThreads
from kept.providers.outbox import Outbox
from kept.providers.settings import ProviderSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerContext:
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


log = logging.getLogger(__name__)


class RegisteredProvider:
    """A provider in use."""

    def __init__(
        self, guarded: GuardedProvider, outbox: Outbox, *, context: StartContext, settings: ProviderSettings
    ) -> None:
        self.guard = guarded
        self.name = guarded.name
        self.lane = self.name if context.user_id == OWNER else f"{self.name}/{context.user_id}"
        self.session_id = ""
        self.tools: list[Tool] = []
        self._is_declared = False
        self._is_available = False
        self.problem: str | None = None
        """Why it is not in use."""
        self._context = context
        self._settings = settings
        self.worker = DeliveryWorker(
            guarded,
            outbox,
            lane=self.lane,
            timeout_seconds=settings.delivery_timeout_seconds,
            prepare=self._is_initialised,
        )

    def declare(self) -> None:
        """Learn, before any session begins, whether the provider can be used and which tools it brings."""
        if self._is_declared:
            return
        self._is_declared = True
        match self.ask("is_available"):
            case Answered(True):
                self._is_available = True
                self.tools = self._declared_tools()
            case Answered():
                self.problem = "it is not available: its configuration or its package is missing"
            case Failed(error):
                self.problem = error

    def start_up(self) -> None:
        """Initialise the provider; what went wrong is kept as `problem`."""
        self.declare()
        if self.problem is None and not self._is_initialised():
            self.tools = []

    def ask(self, hook: str, *args: object, timeout_seconds: float | None = None) -> Outcome:
        """Call a hook for the present session and wait for it."""
        seconds = self._settings.start_timeout_seconds if timeout_seconds is None else timeout_seconds
        return self.guard.call(hook, *args, session_id=self.session_id, timeout_seconds=seconds)

    def recalled(self, query: str, *, turn: int, context: Mapping[str, JSON], deadline: float) -> str:
        """Begin the turn and return what is recalled for it, both before `deadline` (monotonic)."""
        known = {"platform": self._context.platform, **context}
        self.guard.call(
            "on_turn_start", turn, query, session_id=self.session_id, timeout_seconds=_left(deadline), **known
        )
        outcome = self.guard.call(
            "prefetch", query, session_id=self.session_id, expects=str, timeout_seconds=_left(deadline)
        )
        return str(outcome.value or "") if isinstance(outcome, Answered) else ""

    def _is_initialised(self) -> bool:
        self.declare()
        if not self.guard.ready and self._is_available:
            outcome = self.guard.call(
                "initialize",
                self.session_id,
                session_id=self.session_id,
                timeout_seconds=self._settings.start_timeout_seconds,
                **self._context.keywords(),
            )
            self.guard.ready = isinstance(outcome, Answered)
            self.problem = outcome.error if isinstance(outcome, Failed) else None
        return self.guard.ready

    def _declared_tools(self) -> list[Tool]:
        match self.ask("get_tool_schemas"):
            case Answered(declared):
                found = tool_schemas(self.name, declared)
                return [Tool(schema, partial(self._run_tool, schema.name)) for schema in found]
            case Failed(error):
                log.warning("provider %s brings no tools: %s", self.name, error)
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
            user_id=context.user_id,
            platform=context.platform,
            kept_home=self._context.kept_home,
            hermes_home=self._context.kept_home,
        )
        match outcome:
            case Answered(text):
                return tool_answer(self.name, text)
            case Failed(error):
                return failure(f"{self.name}: {error}")


def remove_taken_tools(members: Iterable[RegisteredProvider], taken: set[str]) -> None:
    """Take tools away whose names are taken by an earlier member or are not to be had."""
    for member in members:
        free = []
        for tool in member.tools:
            if tool.schema.name in taken:
                log.warning("provider %s: the tool name %r is taken", member.name, tool.schema.name)
            else:
                taken.add(tool.schema.name)
                free.append(tool)
        member.tools = free


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


_GRACE_SECONDS = 0.25
"""How much longer than a call's own time-out its answer is waited for, so that the call can tell of it."""


class Registry:
    """The providers of one agent, in the order in which they were registered."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.threads = WorkerThreads("kept-provider")
        self.session_id = ""
        self._settings = settings
        self._all: list[RegisteredProvider] = []

    def __iter__(self) -> Iterator[RegisteredProvider]:
        return iter(self._all)

    @property
    def names(self) -> list[str]:
        """Return their names."""
        return [each.name for each in self._all]

    def add(self, member: RegisteredProvider) -> None:
        """Take one in."""
        self._all.append(member)

    def enter(self, session_id: str) -> None:
        """Go on in another session."""
        self.session_id = session_id
        for each in self._all:
            each.session_id = session_id

    def ready(self, *hooks: str) -> list[RegisteredProvider]:
        """Return those that are started and offer one of `hooks`; without hooks all that are started."""
        offering = (each for each in self._all if not hooks or any(map(each.guard.offers, hooks)))
        return [each for each in offering if each.guard.ready]

    def start_all(self, work: Callable[[RegisteredProvider], None]) -> None:
        """Do `work` with each of them at once; one that takes longer than a start may is left behind."""
        jobs = [(each, self.threads.submit(partial(work, each))) for each in self._all]
        seconds = self._settings.start_timeout_seconds
        deadline = time.monotonic() + seconds + _GRACE_SECONDS
        for each, job in jobs:
            if not job.wait(deadline - time.monotonic()):
                each.problem = f"it did not answer within {seconds:g} s"

    def ask_all(
        self, hook: str, *args: object, session_id: str | None = None, expects: type = object, **keywords: Any
    ) -> list[Outcome]:
        """Call a hook of all that are ready at once, and return the outcomes in order, after a turn's time at most."""
        session = self.session_id if session_id is None else session_id
        pending = [
            each.guard.begin(hook, *args, session_id=session, expects=expects, **keywords) for each in self.ready()
        ]
        return [call.wait(self._settings.prefetch_timeout_seconds) for call in pending]

    def recalled(self, query: str, *, turn: int, context: Mapping[str, JSON]) -> list[str]:
        """Begin the turn with all of them at once, and return what each recalls, after a turn's time at most."""
        deadline = time.monotonic() + self._settings.prefetch_timeout_seconds
        jobs = [
            self.threads.submit(partial(each.recalled, query, turn=turn, context=context, deadline=deadline))
            for each in self.ready("on_turn_start", "prefetch")
        ]
        return [str(job.result or "") for job in jobs if job.wait(deadline + _GRACE_SECONDS - time.monotonic())]
