"""A live conversation: the state that outlasts its turns."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from kept.agent.answer import SavedEntry
from kept.agent.compact import CompactionRequest, compact
from kept.agent.offload import offload
from kept.agent.parts import Parts
from kept.agent.prompting import FrozenPages, build_session_prompt, freeze_pages, load_frozen_pages, page_changes
from kept.agent.record import Record
from kept.agent.review import Nudges, load_nudges
from kept.agent.statements import is_correction
from kept.agent.title import first_words
from kept.agent.tool_calls import Approve, deny
from kept.agent.turn import Turn
from kept.context.outcome import Outcome, Unchanged
from kept.context.prune import prune_as_marked
from kept.context.sections import is_summary, with_note
from kept.context.window import Window
from kept.core.errors import ContextOverflow, StorageError
from kept.core.events import Event, MemoryStaged, MemoryWritten
from kept.core.ids import OWNER, SessionId, UserId
from kept.core.messages import ChatRequest, ChatResponse, NewMessage, StoredMessage, Usage
from kept.core.ports import EventSink
from kept.llm.tokens import Calibration, request_tokens, text_tokens, tool_tokens

NEW_CONVERSATION = "begin a new conversation: /new in a chat, no --resume in `kept run`; this one stays searchable"
RECALLED_TEXTS = 500


@dataclass(slots=True)
class Conversation:
    """One conversation while it is open: its record, its frozen prompt, its counters."""

    parts: Parts
    record: Record
    root: SessionId
    """The first session of the lineage: its id stands in the prompt, and its notes outlive compactions."""
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
    """What was recalled lately: a review must not save it as new."""
    last_turn: Turn | None = None
    last_prompt_tokens: int = 0
    current: Turn | None = None
    skills_used: list[str] = field(default_factory=list)
    """Skills that the last turn used."""
    skill_corrected: bool = False
    review_sink: EventSink | None = None
    """Hears what the running review writes."""
    _scope: anyio.CancelScope | None = None

    def now(self) -> float:
        """Return the present in epoch seconds."""
        return self.parts.clock.now().timestamp()

    @property
    def prompt(self) -> str:
        """The system prompt, built once and reused verbatim."""
        if self.record.prompt is None:
            self.record.set_prompt(self.rebuild_prompt())
        assert self.record.prompt is not None
        return self.record.prompt

    def rebuild_prompt(self) -> str:
        """Return the prompt with a fresh snapshot; from here on changes of the pages are told against it."""
        self.frozen = freeze_pages(self.parts)
        started = self.record.session.started if self.root == self.record.session.id else self._root_started()
        prompt = build_session_prompt(
            self.parts,
            root=self.root,
            started=started,
            system_message=self.system_message,
            platform=self.platform,
        )
        return with_note(prompt) if any(is_summary(row.message) for row in self.record.rows) else prompt

    def _root_started(self) -> float:
        root = self.parts.sessions.session(self.root) if self.parts.sessions is not None else None
        return root.started if root is not None else self.record.session.started

    def begin(self) -> None:
        """Take up what the conversation was left with."""
        self.lineage |= {self.root, self.record.session.id}
        self.nudges = load_nudges(self.record.noted(self.root, "nudges"))
        left_with = self.record.noted(self.root, "frozen")
        self.frozen = load_frozen_pages(left_with, self.parts)
        if isinstance(left_with, Mapping) and left_with.get("tools", list(self._tools)) != list(self._tools):
            self.record.prompt = None  # it speaks of tools that are gone, or not of new ones
        ratio = self.record.noted(self.root, "calibration")
        self.parts.gauge.calibration = Calibration(float(ratio) if isinstance(ratio, int | float) else 1.0)
        self.record.pruning = self.record.noted(self.record.session.id, "pruned")
        self.begin_engine()

    @property
    def _tools(self) -> tuple[str, ...]:
        return tuple(self.parts.toolbox.tools)

    def begin_engine(self) -> None:
        """Start the context engine with what it was left with."""
        if self.parts.engine is not None:
            state = self.record.noted(self.root, "context")
            self.parts.engine.on_session_start(self.root, state=state)
            # a conversation without a word yet gets its prompt with the first one: a chat is ready sooner
            if self.record.rows:
                self.fit_engine()

    def fit_engine(self) -> None:
        """Tell the engine how much of the window is spoken for."""
        if self.parts.engine is None or self.parts.model is None:
            return
        overhead = text_tokens(self.prompt) + tool_tokens(self.parts.toolbox.schemas)
        window = Window(self.parts.model.context_length, self.parts.gauge.calibration.apply(overhead))
        self.parts.engine.update_model(window)

    def begin_turn(self, text: str) -> str:
        """Begin a turn: prepare the prompt, count the turn, and return what changed on the pages meanwhile."""
        if self.parts.model is not None:
            first = self.record.prompt is None
            _ = self.prompt
            if first:
                self.fit_engine()
        self._count_correction(text)
        self.turns += 1
        if self.frozen is None or self.incognito:
            return ""
        return page_changes(self.parts, self.frozen, frozenset(self.lineage)) or ""

    def recall(self, text: str) -> str:
        """Return what the providers recall for this message; changes nothing, so that nobody need wait for it."""
        if self.parts.providers is None or self.incognito or self.parts.model is None:
            return ""
        return self.parts.providers.recall(text, session_id=self.record.session.id, turn=self.turns)

    def _count_correction(self, text: str) -> None:
        """Count a correction against the skills that the turn before had used."""
        self.skill_corrected = bool(self.skills_used) and is_correction(text)
        if self.skill_corrected and self.parts.skills is not None:
            self.parts.skills.record_correction(self.record.session.id, self.turns)

    @contextmanager
    def interruptible(self) -> Iterator[anyio.CancelScope]:
        """Give the scope that `interrupt` cancels."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                yield scope
            finally:
                self._scope = None

    def interrupt(self) -> None:
        """Stop the running turn; what was said so far is kept."""
        if self._scope is not None:
            self._scope.cancel()

    def record_write(self, event: Event) -> None:
        """Take down what this conversation's turn or review wrote to the pages."""
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
        """Return the messages as requests show them: with old tool output made small."""
        return prune_as_marked(self.record.rows, self.record.pruning)

    def should_compact(self, prompt_tokens: int) -> bool:
        """Whether the size of the last request is reason to compact now."""
        return self.parts.engine is not None and self.parts.engine.should_compress(prompt_tokens)

    def compact(self, request: CompactionRequest) -> Outcome:
        """Make the conversation smaller; the originals stay in the store."""
        before = self.record.prompt
        outcome = compact(self.parts, self.record, self.root, rebuild=self.rebuild_prompt, request=request)
        if not isinstance(outcome, Unchanged):
            self.lineage.add(self.record.session.id)
            self._store_frozen()
            self.fit_engine()
        elif self.record.prompt != before:
            self._follow_compaction()
        return outcome

    def store_message(self, message: NewMessage) -> None:
        """Keep a person's message, where another process has moved the conversation to if it did."""
        self.record.add([message])
        if self.record.session.id not in self.lineage:
            self._follow_compaction()

    def _follow_compaction(self) -> None:
        """Go on with what another process made of the conversation when it compacted it."""
        self.lineage.add(self.record.session.id)
        self.frozen = load_frozen_pages(self.record.noted(self.root, "frozen"), self.parts)
        self.fit_engine()
        if self.parts.providers is not None:
            self.parts.providers.switch_session(self.record.session.id, "compression")

    async def preflight(self) -> None:
        """Compact before a call when the estimate says that it would cross the threshold."""
        engine = self.parts.engine
        if engine is not None and engine.should_compress_preflight(self.rows_sent):
            await offload(self.compact, CompactionRequest())

    def explain_overflow(self, error: ContextOverflow) -> ContextOverflow:
        """Return the error to show when compaction cannot help."""
        if not self.parts.compression.enabled:
            return ContextOverflow(error.message, "compact it with /compress, or set compression.enabled to true")
        found = self.parts.engine.overflow(self.record.rows) if self.parts.engine is not None else None
        return found or ContextOverflow(error.message, NEW_CONVERSATION)

    def count_call(self, response: ChatResponse, asked: ChatRequest) -> None:
        """Take note of what a model call took."""
        usage = response.usage
        estimated = request_tokens(asked)
        # an endpoint that reports nothing leaves the estimate as the only reading
        self.last_prompt_tokens = usage.prompt_tokens or self.parts.gauge.calibration.apply(estimated)
        if usage.prompt_tokens:
            self.parts.gauge.learn(estimated=estimated, reported=usage.prompt_tokens)
        if self.parts.engine is not None:
            self.parts.engine.update_from_response(usage)
        self.count_usage("main", response.model, response.usage)

    def count_usage(self, task: str, model: str, usage: Usage) -> None:
        """Count one model call that was made for this conversation."""
        if self.parts.sessions is None or not self.record.exists:
            return
        cost = self.parts.cost_of(model, usage)
        try:
            self.parts.sessions.add_usage(self.record.session.id, task=task, model=model, usage=usage, cost=cost)
        except StorageError:
            return  # the record has said already that nothing can be stored

    def finish_turn(self, turn: Turn) -> None:
        """Move the counters on and keep them."""
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
        """Give the session a title from its first words."""
        if self.parts.sessions is None or not self.record.exists or self.turns != 1 or self.record.session.title:
            return
        title = first_words(turn.text)
        try:
            if title:
                self.parts.sessions.rename(self.record.session.id, title)
        except StorageError:
            return
