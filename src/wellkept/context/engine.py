"""The context engine: decides when a conversation is compacted, and compacts it.

The caller stores the messages of a running turn first, because a compaction names messages by their
ids, and then does this, in this order:

    rows = prune_as_marked(store.context(session_id), store.noted(session_id, "pruned"))
    if engine.should_compress(usage.prompt_tokens):           # before a turn: should_compress_preflight(rows)
        if not store.lease(…): skip                           # one compaction per conversation, in all processes
        text = providers.on_pre_compress(messages) if engine.writes_summary(rows, …) else ""
        match engine.compress(rows, current_tokens=…, memory_context=text):
            case Compaction() as done:
                renew the lease, and follow a compaction that another process has made meanwhile
                new = store.compact(session_id, done.into_session(timestamp=…, child=new id or None))
                rebuild the prompt with fresh memory and with_note(prompt); store.set_system_prompt(new, …)
                providers.on_session_switch(new, parent=session_id, reset=False, reason="compression")
                store.note(new, "pruned", None)
            case Pruned() as small:
                store.note(session_id, "pruned", small.mark)  # same session, no hook
            case Unchanged():
                pass
        store.note(session_id, "context", engine.state())     # cooldown and counters survive a restart
        show outcome.note to the user when it is not empty
        store.release(…)
    messages of the next request = request_messages(rows, read and pruned as above)

An engine's session id is that of the conversation's first session, so that its state and its tree
survive child sessions. An overflow that an endpoint reports is compacted with `force=True`; when
`engine.overflow(rows)` is not None afterwards, that error ends the turn.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import ClassVar, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wellkept.context.boundaries import (
    Backoff,
    Count,
    Limits,
    Measured,
    Window,
    limits,
    load_backoff,
    measure,
    plan_cut,
)
from wellkept.context.messages import last_user
from wellkept.context.settings import CompressionSettings
from wellkept.context.summary import Redact
from wellkept.core.errors import ContextOverflow
from wellkept.core.ids import MessageId, SessionId, SourceName
from wellkept.core.messages import Message, StoredMessage, Usage
from wellkept.core.ports import Clock, Completes, NodeStore
from wellkept.core.text import JSON
from wellkept.core.tools import Tool, ToolContext, ToolSchema


class Why(StrEnum):
    """Why nothing was changed."""

    BELOW_THRESHOLD = "below_threshold"
    DISABLED = "disabled"
    NOTHING_TO_COMPRESS = "nothing_to_compress"
    NOT_SHORTER = "not_shorter"
    COOLING_DOWN = "cooling_down"
    INEFFECTIVE = "ineffective"
    MODEL_UNREACHABLE = "model_unreachable"
    GIVEN_UP = "given_up"


class Compaction(Struct, frozen=True):
    """Older messages are replaced by a summary; implements `core.ports.Compacting`."""

    messages: tuple[Message, ...]
    """The next request's messages, valid for every API: head, summary, tail."""
    summary: Message
    covered: Sequence[MessageId]
    """Messages that leave the context; they stay in the store, readable and searchable."""
    kept_head: Sequence[MessageId]
    kept_tail: Sequence[MessageId]
    """In order, but not always contiguous: the last user message may precede covered messages."""
    tokens_before: int
    tokens_after: int
    strictness: int = 1
    """Which of the three passes succeeded."""
    by_rule: bool = False
    note: str = ""
    """A note for the user; empty when the user has already seen it."""
    in_place: bool = False
    new_session_id: SessionId | None = None
    timestamp: float = 0.0
    source: SourceName | None = None
    """The least trusted source of what the summary covers; set by the agent, not by the engine."""

    @property
    def saved(self) -> int:
        """The number of tokens saved."""
        return self.tokens_before - self.tokens_after

    def into_session(self, *, timestamp: float, child: SessionId | None) -> "Compaction":
        """Return the compaction with its target session: `child`, or the same session when None."""
        return replace(self, in_place=child is None, new_session_id=child, timestamp=timestamp)


class Pruned(Struct, frozen=True):
    """Old tool output and images are shortened in requests; stored rows do not change.

    Store `mark` with the session and pass it to `prune.prune_as_marked` for every request, so that
    the pruned prefix stays the same; a later compaction resets the mark to None.
    """

    messages: tuple[Message, ...]
    through: MessageId
    head: int
    tokens_before: int
    tokens_after: int
    note: str = ""

    @property
    def saved(self) -> int:
        """The number of tokens saved."""
        return self.tokens_before - self.tokens_after

    @property
    def mark(self) -> dict[str, JSON]:
        """The value that reproduces this pruning."""
        return {"head": self.head, "through": int(self.through)}


class Unchanged(Struct, frozen=True):
    """Nothing was done; the messages are the given ones."""

    messages: tuple[Message, ...]
    reason: Why
    note: str = ""
    """A note for the user; empty when there is nothing new to report."""

    @property
    def saved(self) -> int:
        """Zero."""
        return 0


Outcome: TypeAlias = Compaction | Pruned | Unchanged


Originals = Callable[[Sequence[MessageId]], Sequence[StoredMessage]]
"""Reads messages by id, including compacted ones; unknown ids are left out."""


class Setup(Struct, frozen=True):
    """What an engine works with."""

    window: Window
    count: Count
    """Estimates the tokens of one message."""
    clock: Clock
    redact: Redact
    settings: CompressionSettings = CompressionSettings()
    model: Completes | None = None
    """The summary model; None writes summaries by rule."""
    nodes: NodeStore | None = None
    originals: Originals | None = None
    deadline_seconds: float = 180.0
    """How long one call of the summary model may take."""
    given_up: Callable[[], bool] = lambda: False
    """Whether the caller of the compaction was cancelled."""


class Preview(Struct, frozen=True):
    """What a compaction would do now."""

    covered: Sequence[StoredMessage]
    kept: int
    tokens_before: int
    tokens_at_most: int
    strictness: int


class ContextEngine:
    """The base class of every engine, with defaults for everything but `compress`.

    A base class instead of a Protocol, so that plugins inherit the defaults.
    One engine serves one conversation; `prepare` is called before anything else.
    """

    name: ClassVar[str] = ""
    """The name for the setting `context.engine`."""
    description: ClassVar[str] = ""

    setup: Setup
    backoff: Backoff = Backoff()
    session_id: SessionId | None = None
    last_prompt_tokens: int = 0

    def prepare(self, setup: Setup) -> None:
        """Set what the engine works with."""
        self.setup = setup

    @property
    def limits(self) -> Limits:
        """The token limits of the current window."""
        return limits(self.setup.window, self.setup.settings)

    def should_compress(self, prompt_tokens: int) -> bool:
        """Whether to compress after a request of this size."""
        if not self.setup.settings.enabled or prompt_tokens < self.limits.threshold:
            return False
        return self._rests(prompt_tokens) is None

    def should_compress_preflight(self, rows: Sequence[StoredMessage]) -> bool:
        """Whether to compress before a turn, by estimate."""
        return self.should_compress(self.measure(rows).total)

    def has_content_to_compress(self, rows: Sequence[StoredMessage]) -> bool:
        """Whether anything lies between the protected head and tail."""
        measured = self.measure(rows)
        return plan_cut(measured.messages, measured.sizes, limits=self.limits) is not None

    def preview(self, rows: Sequence[StoredMessage], current_tokens: int | None = None) -> Preview | None:
        """Return what a forced compaction would do, or None; calls no model and changes nothing."""
        measured = self.measure(rows, current_tokens)
        plan = plan_cut(measured.messages, measured.sizes, limits=self.limits)
        if plan is None:
            return None
        covered = [measured.rows[index] for index in plan.covered]
        return Preview(covered, len(plan.head) + len(plan.tail), measured.total, plan.predicted, plan.strictness)

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

        `current_tokens` is what the endpoint reported for the last request. `force` (a user's request
        or an overflow) overrides the threshold, cooldowns and pauses.
        """
        raise NotImplementedError

    def writes_summary(
        self, rows: Sequence[StoredMessage], *, current_tokens: int | None = None, force: bool = False
    ) -> bool:
        """Whether `compress` would remove messages from the context; only then providers are called first."""
        del rows, current_tokens, force
        return True

    def update_from_response(self, usage: Usage) -> None:
        """Record what the endpoint reported for a request."""
        self.last_prompt_tokens = usage.prompt_tokens
        self.backoff = self.backoff.after_reading(usage.prompt_tokens, self.limits.threshold)

    def update_model(self, window: Window, model: Completes | None = None) -> None:
        """Switch to another window and model, or to other tools in the prompt."""
        self.setup = replace(self.setup, window=window, model=model or self.setup.model)

    def on_session_start(self, session_id: SessionId, *, state: JSON = None) -> None:
        """Begin or resume a conversation; `state` is the last stored value of `state()`."""
        self.session_id = session_id
        self.backoff = load_backoff(state)

    def on_session_end(self, session_id: SessionId, rows: Sequence[StoredMessage]) -> None:
        """End the conversation; the default does nothing."""

    def on_session_reset(self) -> None:
        """Reset the state of the conversation."""
        self.backoff, self.last_prompt_tokens = Backoff(), 0

    def get_tool_schemas(self) -> Sequence[ToolSchema]:
        """Return the schemas of the engine's tools."""
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
        """Return the state that must survive a restart; the caller stores it with the session."""
        return self.backoff.as_json()

    def measure(self, rows: Sequence[StoredMessage], current_tokens: int | None = None) -> Measured:
        """Return `rows` with their sizes."""
        return measure(rows, self.setup.count, limits=self.limits, current_tokens=current_tokens)

    measured = measure
    """Deprecated name of `measure`, for engines that call it."""

    def overflow(self, rows: Sequence[StoredMessage]) -> ContextOverflow | None:
        """Return an error when even the smallest possible request exceeds the window."""
        measured = self.measure(rows)
        index = last_user(measured.messages)
        needed = measured.overhead + (measured.sizes[index] if index is not None else 0)
        if needed <= self.limits.context_length:
            return None
        return ContextOverflow(
            f"the system prompt and tools ({measured.overhead:,} tokens) and the last message "
            f"({needed - measured.overhead:,}) exceed the window of {self.limits.context_length:,} tokens",
            "shorten the message, load fewer toolsets, or choose a model with a larger window",
        )

    def _rests(self, tokens: int) -> Why | None:
        """Return why an automatic compaction must wait; near the end of the window it never waits."""
        if tokens >= self.limits.urgent:
            return None
        if self.backoff.is_stopped:
            return Why.INEFFECTIVE
        return Why.COOLING_DOWN if self.backoff.is_cooling(self.setup.clock.now().timestamp()) else None

    def _why_not_now(self, measured: Measured) -> Unchanged | None:
        """Return why an automatic compaction of these rows is not due, or None."""
        if not self.setup.settings.enabled:
            return Unchanged(tuple(measured.messages), Why.DISABLED)
        if measured.total < self.limits.threshold:
            return Unchanged(tuple(measured.messages), Why.BELOW_THRESHOLD)
        if self._rests(measured.total) is Why.INEFFECTIVE:
            return Unchanged(tuple(measured.messages), Why.INEFFECTIVE)
        return None
