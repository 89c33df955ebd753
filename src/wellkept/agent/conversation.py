"""An open conversation: the state that lives longer than one turn."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import anyio
from msgspec import Struct, field

from wellkept.agent.compaction import CompactionRequest, compact
from wellkept.agent.dependencies import Parts
from wellkept.agent.offload import offload
from wellkept.agent.record import Record
from wellkept.agent.review import Nudges, load_nudges
from wellkept.agent.system_prompt import (
    FrozenPages,
    build_session_prompt,
    freeze_pages,
    load_frozen_pages,
    page_changes,
)
from wellkept.agent.titles import first_words
from wellkept.agent.toolbox import Approve, deny
from wellkept.agent.turn import SavedEntry, Turn
from wellkept.agent.without_model.intents import is_small_talk
from wellkept.agent.without_model.statements import is_correction
from wellkept.context.boundaries import LEAST_MESSAGES, Window, needs_hygiene
from wellkept.context.engine import ContextEngine, Outcome, Unchanged
from wellkept.context.messages import prune_as_marked
from wellkept.context.summary import is_summary, with_note
from wellkept.core.errors import ContextOverflow, StorageError
from wellkept.core.events import Event, MemoryStaged, MemoryWritten
from wellkept.core.ids import OWNER, SessionId, SourceName, UserId
from wellkept.core.messages import ChatRequest, ChatResponse, Message, NewMessage, Origin, Role, StoredMessage, Usage
from wellkept.core.ports import EventSink
from wellkept.core.provenance import find_call_sources, label_recalled
from wellkept.core.text import JSON
from wellkept.core.tools import ToolContext, ToolSchema
from wellkept.llm.tokens import Calibration, request_tokens, text_tokens, tool_tokens

NEW_CONVERSATION = "begin a new conversation: /new in a chat, no --resume in `kept run`; this one stays searchable"
_OPENING = 3
"""A conversation that begins with a greeting gets its title from one of this many first turns."""
RECALLED_TEXTS = 500
"""How many recalled texts are remembered for the review."""


class Conversation(Struct):
    """One open conversation: its messages, its frozen prompt, its compaction and its counters."""

    parts: Parts
    record: Record
    root: SessionId
    """The first session of the lineage. Its id is part of the prompt, and its notes survive compactions."""
    platform: str = "cli"
    user_id: UserId = OWNER
    system_message: str | None = None
    incognito: bool = False
    approve: Approve = deny
    lineage: set[str] = field(default_factory=set)
    nudges: Nudges = field(default_factory=Nudges)
    frozen: FrozenPages | None = None
    turns: int = 0
    recalled_texts: deque[str] = field(default_factory=lambda: deque(maxlen=RECALLED_TEXTS))
    """Recently recalled texts; a review must not save them as new."""
    last_turn: Turn | None = None
    last_prompt_tokens: int = 0
    """The size of the last request; zero after a compaction."""
    has_hygiene: bool = False
    """Whether to compact before a turn near the end of the window, although the threshold is higher."""
    tidied_rows: int = 0
    """How many messages were left after the last such compaction."""
    current: Turn | None = None
    skills_used: list[str] = field(default_factory=list)
    """Names of the skills that the last turn used."""
    skill_corrected: bool = False
    load_plugins: Callable[[], None] | None = None
    """Loads the plugins of a conversation that was opened without them."""
    review_sink: EventSink | None = None
    """Receives the writes of the running review."""
    client_tools: tuple[ToolSchema, ...] = ()
    """Tools that the client runs itself, beside those of the toolbox; the prompt does not depend on them."""
    is_interrupted: bool = False
    """Whether the next turn was interrupted before it began."""
    _scope: anyio.CancelScope | None = None

    def now(self) -> float:
        """Return the current time in epoch seconds."""
        return self.parts.clock.now().timestamp()

    @property
    def prompt(self) -> str:
        """The system prompt, built once and reused verbatim."""
        if self.record.prompt is None:
            self.record.set_prompt(self.rebuild_prompt())
        assert self.record.prompt is not None
        return self.record.prompt

    def rebuild_prompt(self) -> str:
        """Build the prompt with a fresh snapshot of the pages; later page changes are reported relative to it."""
        self.frozen = freeze_pages(self.parts)
        started = self.record.session.started if self.root == self.record.session.id else self._root_started()
        prompt = build_session_prompt(
            self.parts, root=self.root, started=started, system_message=self.system_message, platform=self.platform
        )
        return with_note(prompt) if any(is_summary(row.message) for row in self.record.rows) else prompt

    def _root_started(self) -> float:
        root = self.parts.sessions.session(self.root) if self.parts.sessions is not None else None
        return root.started if root is not None else self.record.session.started

    def begin(self) -> None:
        """Restore the state that was stored with the conversation."""
        self.nudges = load_nudges(self.record.read_note(self.root, "nudges"))
        stored = self.record.read_note(self.root, "frozen")
        self.frozen = load_frozen_pages(stored, self.parts)
        if isinstance(stored, Mapping) and stored.get("tools", list(self._tools)) != list(self._tools):
            self.record.prompt = None  # the tools have changed since it was built
        ratio = self.record.read_note(self.root, "calibration")
        self.parts.gauge.calibration = Calibration(float(ratio) if isinstance(ratio, int | float) else 1.0)
        self.record.pruning = self.record.read_note(self.record.session.id, "pruned")
        self.begin_engine()

    @property
    def all_tools(self) -> tuple[ToolSchema, ...]:
        """The tools that the model may call; a tool of the client is left out if ours has the same name."""
        own = self.parts.toolbox
        return (*own.schemas, *(schema for schema in self.client_tools if schema.name not in own.tools))

    @property
    def _tools(self) -> tuple[str, ...]:
        return tuple(self.parts.toolbox.tools)

    def begin_engine(self) -> None:
        """Start the context engine with its stored state."""
        if self.parts.engine is not None:
            state = self.record.read_note(self.root, "context")
            self.parts.engine.on_session_start(self.root, state=state)
            # without messages the prompt is built with the first one, so that a new chat starts sooner
            if self.record.rows:
                self.fit_engine()

    def fit_engine(self) -> None:
        """Set the context engine to the window that the prompt and the tools leave free."""
        if self.parts.engine is None or self.parts.model is None:
            return
        overhead = text_tokens(self.prompt) + tool_tokens(self.all_tools)
        window = Window(self.parts.model.context_length, self.parts.gauge.calibration.apply(overhead))
        self.parts.engine.update_model(window)

    def begin_turn(self, text: str) -> str:
        """Begin a turn: build the prompt if needed, count the turn, and return a notice of page changes."""
        if self.load_plugins is not None:
            self.load_plugins()
        if self.parts.model is not None:
            first = self.record.prompt is None
            _ = self.prompt
            if first:
                self.fit_engine()
        self.skill_corrected = bool(self.skills_used) and is_correction(text)
        if self.skill_corrected and self.parts.skills is not None:
            self.parts.skills.record_correction(self.record.session.id, self.turns)
        self.turns += 1
        if self.frozen is None or self.incognito:
            return ""
        return page_changes(self.parts, self.frozen, frozenset(self.lineage)) or ""

    def recall(self, text: str) -> str:
        """Return what the providers recall for this message; read-only, so that the call can be abandoned."""
        if self.parts.providers is None or self.incognito or self.parts.model is None:
            return ""
        recalled = self.parts.providers.recall(text, session_id=self.record.session.id, turn=self.turns)
        return label_recalled(recalled, self.parts.providers.providers)

    def build_tool_context(self) -> ToolContext:
        """Return the context of the tool calls in an answer; their own output comes later and does not taint them."""
        before = self.record.read_context()
        return ToolContext(
            session_id=self.record.session.id,
            user_id=self.user_id,
            platform=self.platform,
            turn=self.turns,
            active_message_ids=self.record.ids,
            incognito=self.incognito,
            find_taint=before.find_taint,
            said="\n".join(before.said),
        )

    def find_source(self, message: Message, origin: Origin) -> SourceName | None:
        """Return the source of a message: of tool output, or of what the model writes now."""
        if origin is Origin.TOOL:
            return self._find_output_source(message)
        return self.record.read_context().find_message_taint(message.text)

    def _find_output_source(self, output: Message) -> SourceName | None:
        """Return the source of a tool's output; None for tools that return only what people and the agent wrote.

        It is derived from the arguments of the call (address, file) and the kind of tool, never from the output.
        """
        rows = reversed(self.record.rows)
        calls = (call for row in rows for call in row.message.tool_calls if call.id == output.tool_call_id)
        call = next(calls, None)
        name = output.tool_name or (call.name if call is not None else "")
        tool = self.parts.toolbox.tools.get(name)
        is_provider = tool is not None and tool.schema.toolset == "memory" and name != "memory"
        provider = ", ".join(self.parts.providers.providers) if is_provider and self.parts.providers else ""
        sources = find_call_sources(
            name,
            _read_object(call.arguments if call is not None else ""),
            _read_object(output.text) if tool is not None else None,
            folder=os.path.realpath(self.parts.folder),
            provider=provider or (name if is_provider else ""),
        )
        return sources[0].stored if sources else None

    @contextmanager
    def interruptible(self) -> Iterator[anyio.CancelScope]:
        """Provide the cancel scope that `interrupt` cancels."""
        with anyio.CancelScope() as scope:
            if self.is_interrupted:
                self.is_interrupted = False
                scope.cancel()
            self._scope = scope
            try:
                yield scope
            finally:
                self._scope = None

    def interrupt(self) -> None:
        """Stop the running turn; the partial answer is stored."""
        if self._scope is not None:
            self._scope.cancel()

    def record_write(self, event: Event) -> None:
        """Record a page write of this conversation's turn or review; ignore writes of other conversations."""
        if event.session_id not in self.lineage:
            return  # another conversation of this user, in this process
        match event:
            case MemoryWritten(origin="background_review") | MemoryStaged(origin="background_review"):
                if self.review_sink is not None:
                    self.review_sink(event)
            case MemoryWritten(after=str(after)):
                if self.current is not None and self.parts.model is not None:
                    self.current.saved.append(SavedEntry(event.ledger_id, event.target, after))
            case _:
                return

    @property
    def rows_sent(self) -> list[StoredMessage]:
        """Return the messages as they are sent, with old tool output pruned."""
        return prune_as_marked(self.record.rows, self.record.pruning)

    def should_compact(self, prompt_tokens: int) -> bool:
        """Whether a request of this size calls for a compaction."""
        return self.parts.engine is not None and self.parts.engine.should_compress(prompt_tokens)

    def compact(self, request: CompactionRequest) -> Outcome:
        """Compact the conversation; the original messages stay in the store."""
        before = self.record.prompt
        outcome = compact(self.parts, self.record, self.root, rebuild=self.rebuild_prompt, request=request)
        if not isinstance(outcome, Unchanged):
            self.last_prompt_tokens = 0
            self.lineage.add(self.record.session.id)
            self._store_frozen()
            self.fit_engine()
        elif self.record.prompt != before:
            self._follow_compaction()
        return outcome

    def store_message(self, message: NewMessage) -> None:
        """Store the user's message; follow the conversation if another process has compacted it."""
        self.record.add([message])
        if self.record.session.id not in self.lineage:
            self._follow_compaction()

    def _follow_compaction(self) -> None:
        """Continue in the session to which another process has compacted this conversation."""
        self.lineage.add(self.record.session.id)
        self.frozen = load_frozen_pages(self.record.read_note(self.root, "frozen"), self.parts)
        self.fit_engine()
        if self.parts.providers is not None:
            self.parts.providers.switch_session(self.record.session.id, "compression")

    async def preflight(self) -> None:
        """Compact before a model call when the estimate exceeds the threshold, or when hygiene is due."""
        engine = self.parts.engine
        if engine is None:
            return
        if engine.should_compress_preflight(self.rows_sent):
            await offload(self.compact, CompactionRequest())
        elif self._is_hygiene_due(engine):
            await offload(self.compact, CompactionRequest(force=True))
            self.tidied_rows = len(self.record.rows)

    def _is_hygiene_due(self, engine: ContextEngine) -> bool:
        """Whether the first model call of a turn must compact; repeated only after the conversation has grown."""
        if not self.has_hygiene or self.current is None or self.current.spent.iterations:
            return False
        rows = self.rows_sent
        if len(rows) < self.tidied_rows + LEAST_MESSAGES:
            return False
        return needs_hygiene(
            len(rows),
            tokens=0 if self.last_prompt_tokens else engine.measure(rows).total,
            context_length=engine.limits.context_length,
            enabled=self.parts.compression.enabled,
            reported_tokens=self.last_prompt_tokens or None,
        )

    def explain_overflow(self, error: ContextOverflow) -> ContextOverflow:
        """Return the error to show when compaction cannot help."""
        if not self.parts.compression.enabled:
            return ContextOverflow(error.message, "compact it with /compress, or set compression.enabled to true")
        overflow = self.parts.engine.overflow(self.record.rows) if self.parts.engine is not None else None
        return overflow or ContextOverflow(error.message, NEW_CONVERSATION)

    def count_call(self, response: ChatResponse, request: ChatRequest) -> None:
        """Count a model call and calibrate the token estimate."""
        usage = response.usage
        estimated = request_tokens(request)
        # some endpoints report no usage; then the estimate is the only value
        self.last_prompt_tokens = usage.prompt_tokens or self.parts.gauge.calibration.apply(estimated)
        if usage.prompt_tokens:
            self.parts.gauge.learn(estimated=estimated, reported=usage.prompt_tokens)
        if self.parts.engine is not None:
            self.parts.engine.update_from_response(usage)
        self.count_usage("main", response.model, response.usage)

    def count_usage(self, task: str, model: str, usage: Usage) -> None:
        """Add one model call to the usage of this conversation."""
        if self.parts.sessions is None or not self.record.exists:
            return
        cost = self.parts.cost_of(model, usage)
        try:
            self.parts.sessions.add_usage(self.record.session.id, task=task, model=model, usage=usage, cost=cost)
        except StorageError:
            return  # the record has already warned that nothing can be stored

    def finish_turn(self, turn: Turn) -> None:
        """Update and store the counters."""
        if self.record.session.id not in self.lineage:
            self._follow_compaction()
        self.last_turn = turn
        self._record_skill_use(turn)
        self._store_frozen()
        self._set_title(turn)
        if turn.interrupted or self.incognito:
            return
        used = frozenset(call.name for call in turn.calls)
        self.nudges = self.nudges.after_turn(used=used, iterations=max(0, turn.spent.iterations - 1))
        self.record.note(self.root, "nudges", self.nudges.as_json())
        if self.parts.providers is not None:
            self.record.note(self.root, "turns", self.turns)  # a compacted context has fewer messages than turns
        if turn.spent.usage.prompt_tokens:
            self.record.note(self.root, "calibration", self.parts.gauge.calibration.ratio)

    def _record_skill_use(self, turn: Turn) -> None:
        if self.parts.skills is None or self.incognito:
            return
        errors = sum(1 for call in turn.calls if not call.ok)
        finished = not turn.interrupted and not turn.stopped_by and bool(turn.answer)
        try:
            self.skills_used = self.parts.skills.settle(
                self.record.session.id, turn=self.turns, tool_errors=errors, finished=finished
            )
        except StorageError:
            self.skills_used = []

    def _store_frozen(self) -> None:
        if self.frozen is not None:
            self.record.note(self.root, "frozen", {**self.frozen.as_json(), "tools": list(self._tools)})

    def _set_title(self, turn: Turn) -> None:
        """Give the session a title from its first words, or from the first after a greeting."""
        store, session = self.parts.sessions, self.record.session
        if store is None or not self.record.exists or self.turns > _OPENING or session.title:
            return
        before = [row.message.text for row in self.record.rows[: turn.first_row] if row.message.role is Role.USER]
        title = first_words(turn.text)
        if not title or (before and (is_small_talk(turn.text) or not all(map(is_small_talk, before)))):
            return
        try:
            stored = store.session(session.id) if before else None
            # a person or a model may have named it meanwhile
            if not before or (stored is not None and (stored.title or "").startswith(first_words(before[0]))):
                store.rename(session.id, title)
        except StorageError:
            return


def _read_object(text: str) -> Mapping[str, JSON]:
    """Parse a JSON object; empty for anything else, including truncated text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
