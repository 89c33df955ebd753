"""A member: one registered provider with its guard, its lane of the outbox and its tools."""

import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial

from kept.core.ids import OWNER
from kept.core.text import JSON
from kept.core.tools import Tool, ToolContext
from kept.providers.base import StartContext
from kept.providers.courier import Courier
from kept.providers.guarded import Answered, Failed, Guarded, Outcome
from kept.providers.outbox import Outbox
from kept.providers.settings import ProviderSettings
from kept.providers.toolbox import failure, tool_answer, tool_schemas

log = logging.getLogger(__name__)


class Member:
    """A provider in use."""

    def __init__(self, guarded: Guarded, outbox: Outbox, *, context: StartContext, settings: ProviderSettings) -> None:
        self.guarded = guarded
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
        self.courier = Courier(
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

    def bring_up(self) -> None:
        """Initialise the provider; what went wrong is kept as `problem`."""
        self.declare()
        if self.problem is None and not self._is_initialised():
            self.tools = []

    def ask(self, hook: str, *args: object, timeout_seconds: float | None = None) -> Outcome:
        """Call a hook for the present session and wait for it."""
        seconds = self._settings.start_timeout_seconds if timeout_seconds is None else timeout_seconds
        return self.guarded.call(hook, *args, session_id=self.session_id, timeout_seconds=seconds)

    def recalled(self, query: str, *, turn: int, context: Mapping[str, JSON], deadline: float) -> str:
        """Begin the turn and return what is recalled for it, both before `deadline` (monotonic)."""
        known = {"platform": self._context.platform, **context}
        self.guarded.call(
            "on_turn_start", turn, query, session_id=self.session_id, timeout_seconds=_left(deadline), **known
        )
        outcome = self.guarded.call(
            "prefetch", query, session_id=self.session_id, expects=str, timeout_seconds=_left(deadline)
        )
        return str(outcome.value or "") if isinstance(outcome, Answered) else ""

    def _is_initialised(self) -> bool:
        self.declare()
        if not self.guarded.ready and self._is_available:
            outcome = self.guarded.call(
                "initialize",
                self.session_id,
                session_id=self.session_id,
                timeout_seconds=self._settings.start_timeout_seconds,
                **self._context.keywords(),
            )
            self.guarded.ready = isinstance(outcome, Answered)
            self.problem = outcome.error if isinstance(outcome, Failed) else None
        return self.guarded.ready

    def _declared_tools(self) -> list[Tool]:
        match self.ask("get_tool_schemas"):
            case Answered(declared):
                found = tool_schemas(self.name, declared)
                return [Tool(schema, partial(self._run_tool, schema.name)) for schema in found]
            case Failed(error):
                log.warning("provider %s brings no tools: %s", self.name, error)
                return []

    def _run_tool(self, name: str, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        if not self.guarded.ready:
            return failure(f"{self.name} is not in use: {self.problem or 'it was not started'}")
        outcome = self.guarded.call(
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


def without_taken(members: Iterable[Member], taken: set[str]) -> None:
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
