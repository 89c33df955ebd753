"""The context engine: decides when a conversation is made smaller, and makes it smaller.

Who calls it does this, in this order (spec: Boundaries); messages of a turn that still runs are
appended to the store first, because a compaction names messages by their ids:

    rows = pruned_as_marked(store.context(session_id), store.noted(session_id, "pruned"))
    if engine.should_compress(usage.prompt_tokens):          # real tokens; before a turn: …_preflight(rows)
        if not store.lease(…): go on without                 # one compaction per session, all processes
        text = providers.on_pre_compress(messages) if engine.writes_summary(rows, …) else ""
        match engine.compress(rows, current_tokens=…, memory_context=text):
            case Compaction() as done:
                new = store.compact(session_id, done.placed(timestamp=…, child=new id or None))
                prompt rebuilt with fresh memory, then with_note(prompt); store.set_system_prompt(new, …)
                providers.on_session_switch(new, parent=session_id, reset=False, reason="compression")
                store.note(new, "pruned", None)
            case Pruned() as small:
                store.note(session_id, "pruned", small.mark)  # same session, no hook
            case Unchanged(reason=why):
                pass
        store.note(session_id, "context", engine.state())    # cool-down and streaks survive a restart
        tell the person outcome.note, when it is not empty
        store.release(…)
    request messages = sent(rows, read and pruned as above)  # pure; always valid for both APIs

An engine's session id is that of the conversation's first session, so that its state and its tree
outlive child sessions. Hygiene is the same call before the turn, with `force=True` when it was the
number of messages that asked for it; an overflow that an endpoint reports is `force=True` too, and
when `engine.overflow(rows)` is not None afterwards, that error ends the turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from kept.context.boundaries import Count, Measured, measure, plan_cut
from kept.context.outcome import Outcome, Unchanged, Why
from kept.context.repair import last_user
from kept.context.settings import CompressionSettings
from kept.context.transcript import Redact
from kept.context.window import Backoff, Limits, Window, limits, load_backoff
from kept.core.errors import ContextOverflow
from kept.core.ids import MessageId, SessionId
from kept.core.messages import StoredMessage, Usage
from kept.core.ports import Clock, Completes, NodeStore
from kept.core.text import JSON
from kept.core.tools import Tool, ToolContext, ToolSchema

Originals = Callable[[Sequence[MessageId]], Sequence[StoredMessage]]
"""Reads messages back by their ids, compacted ones included; ids that are gone are left out."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What an engine works with."""

    window: Window
    count: Count
    """Tokens of one message, by estimate."""
    clock: Clock
    redact: Redact
    settings: CompressionSettings = CompressionSettings()  # noqa: RUF009 - frozen
    model: Completes | None = None
    """The summary model; None writes summaries by rule."""
    nodes: NodeStore | None = None
    originals: Originals | None = None
    deadline_seconds: float = 180.0
    """How long one call of the summary model may take."""
    given_up: Callable[[], bool] = lambda: False
    """Whether whoever asked for the compaction has stopped waiting for it."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a compaction would do now."""

    covered: Sequence[StoredMessage]
    kept: int
    tokens_before: int
    tokens_at_most: int
    strictness: int


class ContextEngine:
    """The base of every engine, with defaults for all but `compress`.

    Inherited rather than a Protocol because plugins get the defaults and only write what differs.
    One engine serves one conversation; `prepare` is called before anything else.
    """

    name: ClassVar[str] = ""
    """The word that `context.engine` names it by."""
    description: ClassVar[str] = ""

    setup: Setup
    backoff: Backoff = Backoff()
    session_id: SessionId | None = None
    last_prompt_tokens: int = 0

    def prepare(self, setup: Setup) -> None:
        """Take what the engine works with."""
        self.setup = setup

    @property
    def limits(self) -> Limits:
        """Return the token limits of the present window."""
        return limits(self.setup.window, self.setup.settings)

    def should_compress(self, prompt_tokens: int) -> bool:
        """Whether a request of this size is reason to compress now."""
        if not self.setup.settings.enabled or prompt_tokens < self.limits.threshold:
            return False
        return self._rests(prompt_tokens) is None

    def should_compress_preflight(self, rows: Sequence[StoredMessage]) -> bool:
        """Whether the estimate is reason to compress before a turn."""
        return self.should_compress(self.measure(rows).total)

    def has_content_to_compress(self, rows: Sequence[StoredMessage]) -> bool:
        """Whether anything lies between the protected head and tail."""
        held = self.measure(rows)
        return plan_cut(held.messages, held.sizes, limits=self.limits) is not None

    def preview(self, rows: Sequence[StoredMessage], current_tokens: int | None = None) -> Preview | None:
        """Return what a forced compaction would do, None when nothing; asks no model and changes nothing."""
        held = self.measure(rows, current_tokens)
        plan = plan_cut(held.messages, held.sizes, limits=self.limits)
        if plan is None:
            return None
        covered = [held.rows[place] for place in plan.covered]
        return Preview(covered, len(plan.head) + len(plan.tail), held.total, plan.predicted, plan.strictness)

    def compress(
        self,
        rows: Sequence[StoredMessage],
        *,
        current_tokens: int | None = None,
        focus_topic: str = "",
        force: bool = False,
        memory_context: str = "",
    ) -> Outcome:
        """Return the smaller context, or the unchanged one with the reason; stores nothing.

        `current_tokens` is what the endpoint reported for the last request. `force` is a person's
        wish or an overflow: it overrides the threshold, cool-downs and earlier poor results.
        """
        raise NotImplementedError

    def writes_summary(
        self, rows: Sequence[StoredMessage], *, current_tokens: int | None = None, force: bool = False
    ) -> bool:
        """Whether `compress` would let messages leave the context now; only then providers are asked first."""
        del rows, current_tokens, force
        return True

    def update_from_response(self, usage: Usage) -> None:
        """Hear what the endpoint reported for a request."""
        self.last_prompt_tokens = usage.prompt_tokens
        self.backoff = self.backoff.after_reading(usage.prompt_tokens, self.limits.threshold)

    def update_model(self, window: Window, model: Completes | None = None) -> None:
        """Hear that the conversation goes on with another model, or with other tools in its prompt."""
        self.setup = replace(self.setup, window=window, model=model or self.setup.model)

    def on_session_start(self, session_id: SessionId, *, state: JSON = None) -> None:
        """Begin or resume a conversation; `state` is what `state()` gave when it was last left."""
        self.session_id = session_id
        self.backoff = load_backoff(state)

    def on_session_end(self, session_id: SessionId, rows: Sequence[StoredMessage]) -> None:
        """Hear that the conversation ended."""

    def on_session_reset(self) -> None:
        """Forget what belongs to the conversation so far."""
        self.backoff, self.last_prompt_tokens = Backoff(), 0

    def get_tool_schemas(self) -> Sequence[ToolSchema]:
        """Return the tools that the engine brings to the agent."""
        return ()

    def handle_tool_call(self, name: str, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Answer a call of one of the engine's tools."""
        del arguments, context
        return {"success": False, "error": f"the engine has no tool {name!r}"}

    def tools(self) -> list[Tool]:
        """Return the engine's tools, ready to be called."""
        return [Tool(schema, partial(self.handle_tool_call, schema.name)) for schema in self.get_tool_schemas()]

    def get_status(self) -> Mapping[str, JSON]:
        """Return what `kept context status` shows."""
        now = self.setup.clock.now().timestamp()
        return {
            "engine": self.name,
            "context_length": self.limits.context_length,
            "threshold_tokens": self.limits.threshold,
            "tail_tokens": self.limits.tail,
            "summary_tokens": self.limits.summary_cap,
            "last_prompt_tokens": self.last_prompt_tokens,
            "cooling_seconds": max(0, round(self.backoff.cool_until - now)),
            "paused": self.backoff.is_stopped,
        }

    def state(self) -> JSON:
        """Return what must survive a restart; the caller stores it with the session."""
        return self.backoff.as_json()

    def measure(self, rows: Sequence[StoredMessage], current_tokens: int | None = None) -> Measured:
        """Return `rows` with their sizes."""
        return measure(rows, self.setup.count, limits=self.limits, current_tokens=current_tokens)

    measured = measure
    """Deprecated name of `measure`, for engines that call it."""

    def overflow(self, rows: Sequence[StoredMessage]) -> ContextOverflow | None:
        """Return the error that no compaction can avert: what must be sent exceeds the window."""
        held = self.measure(rows)
        place = last_user(held.messages)
        needed = held.overhead + (held.sizes[place] if place is not None else 0)
        if needed <= self.limits.context_length:
            return None
        return ContextOverflow(
            f"the system prompt and tools ({held.overhead:,} tokens) and the last message "
            f"({needed - held.overhead:,}) exceed the window of {self.limits.context_length:,} tokens",
            "shorten the message, load fewer toolsets, or choose a model with a larger window",
        )

    def _rests(self, tokens: int) -> Why | None:
        """Return why an automatic compaction waits; near the end of the window nothing waits."""
        if tokens >= self.limits.urgent:
            return None
        if self.backoff.is_stopped:
            return Why.INEFFECTIVE
        return Why.COOLING_DOWN if self.backoff.is_cooling(self.setup.clock.now().timestamp()) else None

    def _why_not_now(self, held: Measured) -> Unchanged | None:
        """Return why an automatic compaction of these rows is not due."""
        if not self.setup.settings.enabled:
            return Unchanged(tuple(held.messages), Why.DISABLED)
        if held.total < self.limits.threshold:
            return Unchanged(tuple(held.messages), Why.BELOW_THRESHOLD)
        if self._rests(held.total) is Why.INEFFECTIVE:
            return Unchanged(tuple(held.messages), Why.INEFFECTIVE)
        return None
