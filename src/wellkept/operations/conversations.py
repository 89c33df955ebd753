"""Conversations with the agent: choose a session, open it, report its window and compact it."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.core.agency import refuse_decision
from wellkept.core.errors import KeptError, NotFound, Reason, Refused, StorageError, UsageError
from wellkept.core.events import Warned
from wellkept.core.messages import Link, Origin, StoredMessage
from wellkept.core.ports import ignore
from wellkept.core.provenance import Kind, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from wellkept.agent.agent import Agent
    from wellkept.agent.toolbox import Approve
    from wellkept.agent.without_model.dialogue import Forgettable
    from wellkept.context.engine import ContextEngine, Preview
    from wellkept.core.ids import SessionId
    from wellkept.core.text import JSON
    from wellkept.forgetting.forget import ForgetProposal
    from wellkept.memory.approval import Rejected
    from wellkept.memory.history import Undone
    from wellkept.memory.store import Outcome
    from wellkept.providers.base import ChatContext
    from wellkept.skills.curator.curator import Curator


log = logging.getLogger(__name__)

CURATOR_WAIT_SECONDS = 10.0
"""How long the end of a conversation waits for the curator; an interrupted run is repeated next time."""


def choose_session(caller: Caller, name: str | None, *, newest: bool, incognito: bool) -> SessionId | None:
    """Return the session to continue, by id, beginning of an id or title, or the newest; None for a new one."""
    if incognito and (name or newest):
        raise UsageError("an incognito conversation cannot continue an earlier one", "omit --incognito, or the session")
    if name:
        return caller.space.sessions.resolve(name)
    return _find_latest(caller) if newest else None


def _find_latest(caller: Caller) -> SessionId:
    for source in ("cli", "chat"):
        recent = caller.space.sessions.recent(limit=1, source=source)
        if recent:
            return recent[0].id
    raise NotFound("there is no session to continue", "start one with `kept chat`")


def open_conversation(  # noqa: PLR0913 - one keyword per choice
    caller: Caller,
    *,
    resume: SessionId | None = None,
    incognito: bool = False,
    approve: Approve,
    model_name: str | None = None,
    platform: str = "cli",
    system_message: str | None = None,
    has_message: bool = False,
    chat: ChatContext | None = None,
) -> Agent:
    """Open a conversation for the caller; its events go to the caller's sink.

    With a message, plugins are loaded after it is stored; without one they are loaded now, so that errors appear early.
    """
    from wellkept.agent.agent import Opening
    from wellkept.providers.base import ChatContext

    opening = Opening(
        resume=resume,
        platform=platform,
        system_message=system_message,
        incognito=incognito,
        approve=approve,
        actions=AssistantActions(caller),
        chat=chat or ChatContext(),
        speaker=None if Scope.SPEAK in caller.scopes else Source(Kind.AGENT, platform).stored,
        defers_plugins=has_message,
    )
    sink = None if caller.sink is ignore else caller.sink
    return caller.space.agent(opening, model_name=model_name, sink=sink)


class AssistantActions(Struct, frozen=True):
    """Carries out what a person says to the assistant without a model; implements `agent.dialogue.Actions`."""

    caller: Caller

    def approve(self, pending_id: str) -> Outcome | Refused:
        """Save what was proposed."""
        from wellkept.operations.memory import approve

        if self.caller.why_no_person:
            return refuse_decision(self.caller.why_no_person, f"`kept memory approve {pending_id}`").as_refused()
        return approve(self.caller, pending_id)

    def reject(self, pending_id: str) -> Rejected | Refused:
        """Drop what was proposed."""
        from wellkept.operations.memory import reject

        if self.caller.why_no_person:
            return refuse_decision(self.caller.why_no_person, f"`kept memory reject {pending_id}`").as_refused()
        return reject(self.caller, pending_id)

    def undo(self, ledger_id: int) -> Undone | Refused:
        """Undo one change of a page."""
        from wellkept.operations.memory import undo

        return undo(self.caller, ledger_id=ledger_id)

    def plan_forgetting(self, texts: Sequence[str] | None) -> Forgettable | Refused:
        """Return what forgetting these texts, or everything, would remove."""
        self.caller.require_person("`kept forget`")
        plans = []
        for plan in self._plan(texts):
            if isinstance(plan, Refused):
                return plan
            plans.append(plan)
        return _count(plans)

    def forget(self, texts: Sequence[str] | None) -> Forgettable | Refused:
        """Permanently remove these texts, or everything; plans again, because the dialogue now contains them too."""
        from wellkept.forgetting.forget import forget

        plans, is_complete = [], True
        for text in [None] if texts is None else texts:
            (plan,) = self._plan(None if text is None else [text])
            if isinstance(plan, Refused):
                if texts is None or len(texts) == 1:
                    return plan
                continue  # it was removed with another text that contains it
            plans.append(plan)
            is_complete = forget(self.caller, plan).is_complete and is_complete
        return replace(_count(plans), is_complete=is_complete)

    def _plan(self, texts: Sequence[str] | None) -> list[ForgetProposal | Refused]:
        from wellkept.forgetting.forget import plan_forget_user, plan_forget_words

        if texts is None:
            return [plan_forget_user(self.caller)]
        return [plan_forget_words(self.caller, text) for text in texts]


def _count(proposals: Sequence[ForgetProposal]) -> Forgettable:
    from wellkept.agent.without_model.dialogue import Forgettable

    plans = [proposal.plan for proposal in proposals]
    return Forgettable(
        entries=len({entry for plan in plans for entry in plan.entries}),
        waiting=len({pending.id for plan in plans for pending in plan.pending}),
        messages=sum(plan.sessions.message_count for plan in plans),
        sessions=sum(len(plan.sessions.sessions) for plan in plans),
    )


def use_model(caller: Caller, agent: Agent, name: str) -> None:
    """Change the model of a conversation."""
    caller.require(Scope.WRITE)
    caller.space.agents.use_model(agent, name)


def find_history(caller: Caller) -> Path:
    """Return the file with the input history of chats."""
    return caller.space.home.chat_history


@contextmanager
def run_curator_after(caller: Caller, *, incognito: bool = False) -> Iterator[None]:
    """Run the curator after the conversation if it was due before it.

    Decided first, because the conversation itself is activity. Run last, because the conversation may use a skill
    that was about to be archived, and the catalogue must not change meanwhile.
    """
    curator = None if incognito else _find_due_curator(caller)
    yield
    if curator is not None:
        running = threading.Thread(target=_run_curator, args=(caller, curator), name="curator", daemon=True)
        running.start()
        running.join(CURATOR_WAIT_SECONDS)


def run_due_curator(caller: Caller) -> None:
    """Archive skills that were not used for long, if that is due now."""
    curator = _find_due_curator(caller)
    if curator is not None:
        _run_curator(caller, curator)


def _find_due_curator(caller: Caller) -> Curator | None:
    settings = caller.app.settings.curator
    if not settings.enabled or not caller.space.home.skills.is_dir():
        return None
    from wellkept.skills.curator.curator import Curator

    curator = Curator(caller.space.skill_tools.editor, settings)
    return curator if curator.due(_last_active(caller)) else None


def _last_active(caller: Caller) -> datetime | None:
    store = caller.space.sessions_or_none()
    try:
        newest = store.recent(limit=1) if store is not None else []
    except StorageError:
        return None
    moments = [session.last_active or session.started for session in newest]
    return datetime.fromtimestamp(moments[0], UTC) if moments else None


def _run_curator(caller: Caller, curator: Curator) -> None:
    try:
        report = curator.run_if_due()
    except (KeptError, OSError, ValueError):
        # the next conversation repeats a failed run; this one must not fail with it
        log.warning("the curator could not run", exc_info=True)
        return
    archived = [move.name for move in report.moves if move.becomes == "archived"] if report is not None else []
    if archived:
        caller.space.listeners(
            Warned(
                f"archived because they were unused: {', '.join(archived)}",
                "kept curator report; undo: rollback",
            )
        )


NO_MODEL = Refused(
    Reason.UNAVAILABLE,
    "no model is configured, so there is no window to fit",
    "choose one with `kept model set NAME`",
)


class EngineList(Struct, frozen=True):
    """The context engines that can be used, and the configured one."""

    engines: tuple[tuple[str, str, str], ...]
    """Name, source and description of each."""
    used: str

    def as_json(self) -> list[JSON]:
        """Return one object per engine."""
        return [
            {"name": name, "source": source, "in_use": name == self.used} for name, source, _description in self.engines
        ]


def list_engines(caller: Caller) -> EngineList:
    """Return the context engines."""
    from wellkept.context import plugins

    engines = plugins.list_engines(caller.app.home.path)
    return EngineList(
        tuple((engine.name, engine.source, engine.description) for engine in engines),
        caller.app.settings.context.engine,
    )


class WindowStatus(Struct, frozen=True):
    """The limits of the window and, for a session, how full it is."""

    figures: dict[str, JSON]

    def as_json(self) -> dict[str, JSON]:
        """Return the figures."""
        return dict(self.figures)


def report_window(caller: Caller, name: str | None = None) -> WindowStatus | Refused:
    """Return the limits of the configured engine, and for a session how far it fills them."""
    ready = _open_engine(caller)
    if isinstance(ready, Refused):
        return ready
    engine, model = ready
    figures: dict[str, JSON] = {"model": model, "enabled": caller.app.settings.compression.enabled}
    if name is None:
        return WindowStatus({**figures, **engine.get_status()})
    tip, rows = _load_session(caller, engine, name)
    figures |= {**engine.get_status(), "session_id": tip, "messages": len(rows)}
    figures |= {"estimated_tokens": engine.measured(rows).total, "compactions": _count_compactions(caller, tip)}
    return WindowStatus(figures)


class CompactionPreview(Struct, frozen=True):
    """What a compaction of a session would cover; `preview` is None when there is nothing to cover."""

    session_id: SessionId
    messages: int
    preview: Preview | None

    def as_json(self) -> dict[str, JSON]:
        """Return what would be covered, and the tokens before and after."""
        answer: dict[str, JSON] = {"session_id": self.session_id, "messages": self.messages, "covered": []}
        if self.preview is not None:
            answer |= {
                "covered": [int(row.id) for row in self.preview.covered],
                "kept": self.preview.kept,
                "tokens_before": self.preview.tokens_before,
                "tokens_at_most": self.preview.tokens_at_most,
            }
        return answer

    def describe(self) -> str:
        """Return in words what a compaction would do."""
        if self.preview is None:
            return f"{self.messages} messages; none between the protected head and tail"
        covered = self.preview.covered
        shown = ", ".join(f"#{row.id}" for row in covered[:8]) + (" …" if len(covered) > 8 else "")
        return (
            f"{len(covered)} of {self.messages} messages would be summarised: {shown}\n"
            f"about {self.preview.tokens_before:,} tokens would become at most {self.preview.tokens_at_most:,}"
        )


def preview_session(caller: Caller, name: str) -> CompactionPreview | Refused:
    """Return what a compaction of a stored session would do, without doing it."""
    ready = _open_engine(caller)
    if isinstance(ready, Refused):
        return ready
    engine, _ = ready
    session_id, rows = _load_session(caller, engine, name)
    return CompactionPreview(session_id, len(rows), engine.preview(rows))


class CompressedSession(Struct, frozen=True):
    """How a compaction went; `why` says why nothing was changed, None when something was."""

    session_id: SessionId
    tokens_before: int = 0
    tokens_after: int = 0
    reason: str | None = None
    note: str = ""

    @property
    def why(self) -> str | None:
        """Return in words why nothing was changed."""
        return None if self.reason is None else self.note or self.reason.replace("_", " ")

    @property
    def failed(self) -> bool:
        """Whether a compaction was needed and could not be made."""
        return self.reason is not None and bool(self.note)

    def as_json(self) -> dict[str, JSON]:
        """Return the outcome."""
        answer: dict[str, JSON] = {"session_id": self.session_id, "changed": self.reason is None}
        if self.reason is not None:
            return {**answer, "reason": self.reason}
        return {**answer, "tokens_before": self.tokens_before, "tokens_after": self.tokens_after}


def compress_session(caller: Caller, name: str, *, focus: str = "") -> CompressedSession | Refused:
    """Summarise the older part of a session; every message stays stored and searchable."""
    import anyio

    from wellkept.agent.agent import Opening
    from wellkept.context.engine import Unchanged

    caller.require(Scope.WRITE)
    agent = caller.space.agent(Opening(resume=caller.space.sessions.resolve(name)))
    if agent.parts.engine is None:
        return NO_MODEL
    try:
        outcome = anyio.run(agent.compress, focus)
    finally:
        if agent.parts.providers is not None:
            agent.parts.providers.shutdown()
    if isinstance(outcome, Unchanged):
        return CompressedSession(agent.session.id, reason=outcome.reason.value, note=outcome.note)
    return CompressedSession(agent.session.id, outcome.tokens_before, outcome.tokens_after)


def _open_engine(caller: Caller) -> tuple[ContextEngine, str] | Refused:
    """Return the configured engine for the configured model, and that model's name."""
    from wellkept.llm.tokens import message_tokens

    space = caller.space
    model = caller.app.models.chat(sink=space.listeners)
    if model is None:
        return NO_MODEL
    return space.agents.engine(model, space.sessions, count=message_tokens), model.name


def _load_session(caller: Caller, engine: ContextEngine, name: str) -> tuple[SessionId, list[StoredMessage]]:
    """Start `engine` on a stored session, and return the session's newest id and its context."""
    from wellkept.agent.dependencies import Gauge
    from wellkept.context.boundaries import Window
    from wellkept.context.messages import prune_as_marked
    from wellkept.llm.tokens import Calibration, text_tokens, tool_tokens

    store = caller.space.sessions
    tip = store.tip(store.resolve(name))
    root = find_root(caller, tip)
    ratio = store.read_note(root, "calibration")
    gauge = Gauge(Calibration(float(ratio) if isinstance(ratio, int | float) else 1.0))
    engine.prepare(replace(engine.setup, count=gauge.count))
    schemas = [tool.schema for tool in (*caller.space.tools().values(), *engine.tools())]
    overhead = text_tokens(store.system_prompt(tip) or "") + tool_tokens(schemas)
    engine.update_model(Window(engine.limits.context_length, gauge.calibration.apply(overhead)))
    engine.on_session_start(root, state=store.read_note(root, "context"))
    return tip, prune_as_marked(store.context(tip), store.read_note(tip, "pruned"))


def _count_compactions(caller: Caller, session_id: SessionId) -> int:
    """Return how often the conversation was compacted, to child sessions and in place."""
    from wellkept.context.summary import is_summary

    store = caller.space.sessions
    rows = (row for one in _find_chain(caller, session_id) for row in store.messages(one))
    return sum(1 for row in rows if row.origin is Origin.SYNTHETIC and is_summary(row.message))


def find_root(caller: Caller, session_id: SessionId) -> SessionId:
    """Return the first session of a conversation, after which its lease is named."""
    return _find_chain(caller, session_id)[-1]


def _find_chain(caller: Caller, session_id: SessionId) -> list[SessionId]:
    """Return the session and those it was compacted from, newest first."""
    chain = [session_id]
    while (session := caller.space.sessions.session(chain[-1])) is not None:
        parent = session.parent_session_id
        if session.link is not Link.COMPRESSION or parent is None or parent in chain:
            break
        chain.append(parent)
    return chain
