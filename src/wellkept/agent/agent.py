"""The agent: opens, resumes, branches and closes conversations, and answers in them."""

import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
from msgspec import Struct
from msgspec.structs import replace

from wellkept.agent.compaction import CompactionRequest
from wellkept.agent.conversation import Conversation
from wellkept.agent.dependencies import Parts
from wellkept.agent.offload import offload
from wellkept.agent.record import Record
from wellkept.agent.review import Review, review
from wellkept.agent.system_prompt import list_prompt_sources
from wellkept.agent.titles import ask_for_title
from wellkept.agent.toolbox import Approve, deny
from wellkept.agent.turn import Answer, build_user_message, take_turn
from wellkept.agent.without_model.dialogue import Actions
from wellkept.context.engine import Outcome, Unchanged, Why
from wellkept.context.messages import last_question
from wellkept.core.errors import Busy, KeptError, NotFound, StorageError, UsageError
from wellkept.core.events import Warned
from wellkept.core.ids import OWNER, MessageId, SessionId, SourceName, UserId, new_session_id, random_hex
from wellkept.core.messages import ImagePart, Link, Message, NewMessage, Origin, Role, Session
from wellkept.core.provenance import UNSTATED, Stated, find_prompt_source
from wellkept.core.tools import ToolSchema
from wellkept.providers.base import ChatContext
from wellkept.providers.content import plain_messages
from wellkept.security.taint import Surroundings
from wellkept.storage.files import find_project

if TYPE_CHECKING:
    from wellkept.storage.leases import Lease

log = logging.getLogger(__name__)

LEAD_SECONDS = 120.0
"""How long a turn waits for one of the same conversation in another process."""
LOOK_SECONDS = 0.25
"""How often to check whether the other process has finished."""
PATIENCE_SECONDS = 1.0
"""After waiting this long, tell the person why."""


class Opening(Struct, frozen=True, kw_only=True):
    """How to open a conversation."""

    resume: SessionId | None = None
    """A session to resume; for a compacted one, the newest session of its chain is opened."""
    platform: str = "cli"
    user_id: UserId = OWNER
    system_message: str | None = None
    incognito: bool = False
    source: str | None = None
    parent: SessionId | None = None
    approve: Approve = deny
    session_id: SessionId | None = None
    """The id of a new session; None generates one."""
    actions: Actions | None = None
    """What the assistant without a model may do for the person; None: only changes to the pages."""
    chat: ChatContext = ChatContext()
    """The chat on a platform, for providers."""
    speaker: SourceName | None = None
    """The source of the messages, if nobody knows that the person wrote them."""
    defers_plugins: bool = False
    """Whether plugins are loaded with the first turn, after its message is stored; else before the first turn."""


class Agent:
    """Holds conversations with one user, one after another."""

    def __init__(self, parts: Parts, opening: Opening) -> None:
        self.parts = parts
        self.opening = opening
        self.when_closed: Callable[[], None] = lambda: None
        """Releases what was opened for this agent alone."""
        self._name = random_hex(4)
        """Its name among the agents of this process, for leases."""
        self._read: tuple[SessionId, float | None, int] | None = None
        """The state of the conversation in the store when this agent last read it."""
        self.conversation = self._open_session(opening.resume) if opening.resume is not None else self._start_session()
        if not opening.defers_plugins:
            self.conversation.begin()

    @property
    def session(self) -> Session:
        """The current session."""
        return self.conversation.record.session

    async def turn(
        self, text: str, images: Sequence[ImagePart] = (), *, loaded: str = "", source: Stated = UNSTATED
    ) -> Answer:
        """Answer one message; `source` is None if the person typed it, `loaded` is the skill they loaded with it."""
        async with self._hold_lease():
            return await take_turn(self.conversation, text, images=images, loaded=loaded, source=source)

    @asynccontextmanager
    async def _hold_lease(self) -> AsyncIterator[None]:
        """Wait until no other process answers in this conversation, and load what it has added."""
        lease: Lease | None = None
        if self.parts.open_lease is not None and self.conversation.record.store is not None:
            with self.conversation.interruptible() as scope:
                lease = await self._take(self.parts.open_lease(self.conversation.root, self._name))
            if scope.cancelled_caught:
                raise Busy("this conversation is in use elsewhere, and the wait was interrupted", "try again later")
        if lease is None:
            yield
            return
        with lease.keep():
            with self.conversation.interruptible() as early, anyio.CancelScope(shield=True):
                if await offload(self._is_behind):
                    await offload(self.resume, self.session.id)
            self.conversation.is_interrupted = scope.cancel_called or early.cancel_called
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await offload(self._mark_as_read)

    async def _take(self, lease: "Lease") -> "Lease | None":
        """Take a lease as soon as no other process has it; None if nothing can be stored now."""
        began = time.monotonic()
        try:
            is_taken = await self._wait_for(lease, began)
        except StorageError as error:
            if time.monotonic() - began > LEAD_SECONDS:
                raise
            log.warning("no lease for the conversation: %s", error)
            return None
        if not is_taken:
            raise Busy("another process is still answering in this conversation", "try again in a moment")
        return lease

    async def _wait_for(self, lease: "Lease", began: float) -> bool:
        """Whether the lease was taken in time; raises StorageError if that cannot be known."""
        is_told = False
        with anyio.CancelScope(shield=True):  # only waiting is interrupted here; the turn stores an interrupt
            is_taken = await offload(lease.take)
        while not is_taken:
            seconds = time.monotonic() - began
            if seconds > LEAD_SECONDS:
                return False
            if seconds > PATIENCE_SECONDS and not is_told:
                is_told = True
                waits = "another process is answering in this conversation, so this message waits"
                self.parts.sink(Warned(waits, "stop waiting with Ctrl-C; /branch continues beside it"))
            await anyio.sleep(LOOK_SECONDS)
            is_taken = await offload(lease.take)
        return True

    def _is_behind(self) -> bool:
        """Whether another process has added to the conversation since this one read it."""
        if self.conversation.record.trouble:
            return False
        state = self._read_state()
        return state is not None and state != self._read

    def _mark_as_read(self) -> None:
        self._read = self._read_state()

    def _read_state(self) -> tuple[SessionId, float | None, int] | None:
        """Return the newest session of the chain, with its time and message count; the last known one if unreadable."""
        store, record = self.parts.sessions, self.conversation.record
        if store is None or not record.exists:
            return None
        try:
            tip = store.session(store.tip(record.session.id))
        except StorageError:
            return self._read
        return None if tip is None else (tip.id, tip.last_active, tip.message_count)

    async def continue_turn(self, results: Sequence[Message]) -> Answer:
        """Continue the last turn after the client has run its own tools."""
        rows = self.conversation.record.rows
        index = last_question(rows)
        text = "" if index is None else rows[index].message.text
        async with self._hold_lease():
            return await take_turn(self.conversation, text, results)

    def add_message(self, text: str, *, source: Stated = UNSTATED) -> None:
        """Add a message of the person that needs no answer; the next turn sees it."""
        conversation = self.conversation
        written_by = find_prompt_source(text, source, conversation.platform) or conversation.parts.speaker
        message = NewMessage(build_user_message(text, ()), conversation.now(), Origin.PERSON, source=written_by)
        conversation.store_message(message)
        self._mark_as_read()

    def offer_client_tools(self, schemas: Sequence[ToolSchema]) -> None:
        """Let the model call tools that the client runs, from the next turn on."""
        if tuple(schemas) != self.conversation.client_tools:
            self.conversation.client_tools = tuple(schemas)
            self._set_surroundings(self.conversation)
            if self.conversation.record.rows:
                self.conversation.fit_engine()

    def interrupt(self) -> None:
        """Stop the running turn."""
        self.conversation.interrupt()

    def review_due(self) -> tuple[bool, bool]:
        """Whether a review of memory and of skills is due."""
        conversation, turn = self.conversation, self.conversation.last_turn
        if turn is None or turn.interrupted or conversation.incognito or self.parts.model is None:
            return (False, False)
        tools, memory = self.parts.toolbox.tools, self.parts.memory
        memory_due = (
            "memory" in tools and memory is not None and conversation.nudges.memory_due(memory.settings.nudge_interval)
        )
        failed = bool(conversation.skills_used) and any(not call.ok for call in turn.calls)
        skills_due = "skill_manage" in tools and conversation.nudges.skills_due(
            self.parts.skill_interval, calls=len(turn.calls), corrected=failed or conversation.skill_corrected
        )
        return (memory_due, skills_due)

    async def review(self) -> Review | None:
        """Run the review that is due; return None when none is due or it failed."""
        memory, skills = self.review_due()
        if not (memory or skills) or not self.parts.review.enabled:
            return None
        conversation = self.conversation
        finished = await review(conversation, memory=memory, skills=skills)
        if finished is not None:
            conversation.nudges = conversation.nudges.after_review(memory=memory, skills=skills)
            conversation.record.note(conversation.root, "nudges", conversation.nudges.as_json())
            if self.parts.providers is not None:
                self.parts.providers.writes.mirror_soon()
        return finished

    def title_due(self) -> bool:
        """Whether a model should title this session, whose title so far is its first words."""
        conversation = self.conversation
        return (
            self.parts.titler is not None
            and conversation.turns == 1
            and conversation.record.exists
            and not conversation.incognito
        )

    async def after_turn(self) -> None:
        """Do the background work of a turn: title the session, review the conversation."""
        if self.title_due():
            await offload(self._set_title)
        await self.review()

    def _set_title(self) -> None:
        assert self.parts.titler is not None and self.parts.sessions is not None  # noqa: PT018 - one condition
        try:
            title = ask_for_title(self.parts.titler, self.conversation.record.rows)
            if title:
                self.parts.sessions.rename(self.session.id, title)
        except KeptError:
            log.info("the model gave no title; the first words remain the title", exc_info=True)

    async def compress(self, focus: str = "") -> Outcome:
        """Compact now, on request; when interrupted, nothing changes.

        It does not wait for a turn in another process: a compaction has a lease of its own, and keeps what is added.
        """
        with self.conversation.interruptible() as scope:
            outcome = await offload(self.conversation.compact, CompactionRequest(focus=focus, force=True))
        if not scope.cancelled_caught and not isinstance(outcome, Unchanged):
            await offload(self._mark_as_read)
        return Unchanged((), Why.GIVEN_UP) if scope.cancelled_caught else outcome

    def new(self, reason: Literal["new", "reset"] = "new") -> None:
        """Leave this conversation and start a new one."""
        self._end(reason)
        if self.parts.engine is not None:
            self.parts.engine.on_session_reset()
        self.opening = replace(self.opening, session_id=None)
        self.conversation = self._start_session()
        if self.parts.providers is not None:
            self.parts.providers.switch_session(self.session.id, reason)
        self.conversation.begin()

    def resume(self, session_id: SessionId) -> None:
        """Leave this conversation and resume another."""
        self.conversation = self._open_session(session_id)
        if self.parts.providers is not None:
            self.parts.providers.switch_session(self.session.id, "resume")
        self.conversation.begin()

    def branch(self) -> SessionId:
        """Continue in a branch; the original conversation stays unchanged."""
        store, origin = self.parts.sessions, self.session
        if store is None or not self.conversation.record.exists:
            raise UsageError("there is nothing to branch from yet", "say something first")
        now = self.parts.clock.now()
        new = replace(origin, id=new_session_id(now), started=now.timestamp(), title=None, link=Link.BRANCH)
        store.branch(origin.id, at=None, new=replace(new, parent_session_id=origin.id))
        if self.conversation.record.prompt is not None:
            store.set_system_prompt(new.id, self.conversation.record.prompt)
        self.conversation = self._open_session(new.id)
        if self.parts.providers is not None:
            self.parts.providers.switch_session(new.id, "branch", parent=origin.id)
        self.conversation.begin()
        return new.id

    async def undo(self) -> str | None:
        """Remove the last exchange and return the user's message, or None when there is none.

        Raises Busy if another process has changed the conversation: nobody here has seen what would be removed.
        """
        last_row = self._last_row
        async with self._hold_lease():
            if self._last_row != last_row:
                raise Busy(
                    "another process has changed this conversation meanwhile, so nothing was undone",
                    "look at it with `kept sessions show`, then undo again",
                )
            return await offload(self._remove_last_exchange)

    @property
    def _last_row(self) -> int | None:
        rows = self.conversation.record.rows
        return rows[-1].id if rows else None

    def _remove_last_exchange(self) -> str | None:
        rows = self.conversation.record.rows
        index = last_question(rows)
        if index is None:
            return None
        question = rows[index]
        if self.parts.sessions is not None and self.conversation.record.exists and question.id > 0:
            self.parts.sessions.rewind(self.session.id, MessageId(question.id))
        del rows[index:]
        return question.message.text

    async def take_up(self, text: str, since: float) -> str | None:
        """Return the stored answer to a message from after `since` whose turn a crash interrupted.

        If there is none, undo the stored part of that turn, so that the conversation does not have the message twice.
        """
        async with self._hold_lease():
            return await offload(self._take_up, text, since)

    def _take_up(self, text: str, since: float) -> str | None:
        rows = self.conversation.record.rows
        index = last_question(rows)
        if index is None or rows[index].message.text != text or rows[index].timestamp < since:
            return None
        if len(rows) > index + 1 and rows[-1].message.role is Role.ASSISTANT and rows[-1].message.text:
            return rows[-1].message.text
        self._remove_last_exchange()
        return None

    def add_plugins(self, parts: Parts) -> None:
        """Continue with parts that include the plugins, which were not loaded when the conversation was opened."""
        self.parts = self.conversation.parts = parts
        self.conversation.load_plugins = None
        self.conversation.begin()

    def use_parts(self, parts: Parts) -> None:
        """Continue with other parts, for example of another model; the prompt is rebuilt."""
        self.parts = self.conversation.parts = parts
        self.conversation.record.prompt = None
        self.conversation.begin_engine()

    def close(self, *, ends: bool = True) -> None:
        """End the conversation; notify the providers, wait briefly for them, and shut them down.

        Without `ends` the conversation goes on later, in another agent: the providers are only shut down.
        """
        try:
            if ends:
                self._end("exit")
            else:
                self.conversation.record.retry()
            if self.parts.providers is not None and not self.conversation.incognito:
                self.parts.providers.shutdown()
        finally:
            self.when_closed()

    def _end(self, reason: str) -> None:
        """End the session in the store, then for the providers, then for the engine."""
        conversation, record = self.conversation, self.conversation.record
        record.retry()
        if self.parts.sessions is not None and record.exists:
            self.parts.sessions.end(record.session.id, reason)
        if self.parts.providers is not None and record.rows and not conversation.incognito:
            messages = plain_messages(record.list_whole_turns())
            self.parts.providers.writes.queue_session_end(record.session.id, messages)
        if self.parts.engine is not None:
            self.parts.engine.on_session_end(conversation.root, record.rows)

    def _start_session(self) -> Conversation:
        now = self.parts.clock.now()
        opening = self.opening
        project = find_project(self.parts.folder)
        if project == Path(self.parts.folder).anchor:  # a server runs at the root folder, which is no project
            project = None
        session = Session(
            id=opening.session_id or new_session_id(now),
            source=opening.source or opening.platform,
            started=now.timestamp(),
            user_id=opening.user_id,
            project=project,
            model=self.parts.model.name if self.parts.model is not None else None,
            parent_session_id=opening.parent,
            link=Link.DELEGATE if opening.parent is not None else None,
        )
        store = None if opening.incognito else self.parts.sessions
        return self._make_conversation(Record(session, store, self.parts.sink), root=session.id)

    def _open_session(self, session_id: SessionId) -> Conversation:
        store = self.parts.sessions
        if store is None:
            raise UsageError("sessions cannot be read now, so none can be resumed", "run `kept doctor`")
        if store.session(session_id) is None:
            raise NotFound(f"there is no session {session_id!r}", "`kept sessions list` shows the recent ones")
        tip = store.tip(session_id)
        session = store.session(tip)
        assert session is not None
        store.reopen(tip)
        self._read = (tip, session.last_active, session.message_count)
        record = Record(session, store, self.parts.sink, prompt=store.system_prompt(tip), exists=True)
        record.rows = store.context(tip)
        conversation = self._make_conversation(record, root=self._find_root(session))
        counted = record.read_note(conversation.root, "turns")
        turns = sum(1 for row in record.rows if row.message.role is Role.USER)
        conversation.turns = max(turns, counted) if isinstance(counted, int) else turns
        if (
            self.parts.model is not None
            and record.prompt is not None
            and not _is_for_model(record.prompt, self.parts.model.name)
        ):
            record.prompt = None
        return conversation

    def _find_root(self, session: Session) -> SessionId:
        """Return the first session of a chain of compactions."""
        store = self.parts.sessions
        seen: set[SessionId] = set()
        while session.link is Link.COMPRESSION and session.parent_session_id and session.id not in seen:
            seen.add(session.id)
            parent = store.session(session.parent_session_id) if store is not None else None
            if parent is None:
                break
            session = parent
        return session.id

    def _make_conversation(self, record: Record, *, root: SessionId) -> Conversation:
        opening = self.opening
        conversation = Conversation(
            self.parts, record, root, platform=opening.platform, user_id=opening.user_id,
            system_message=opening.system_message, incognito=opening.incognito, approve=opening.approve,
            lineage={root, record.session.id},
        )  # fmt: skip
        before: Conversation | None = getattr(self, "conversation", None)
        if before is not None:
            conversation.has_hygiene = before.has_hygiene
            conversation.client_tools = before.client_tools
            conversation.load_plugins = before.load_plugins
        self._set_surroundings(conversation)
        return conversation

    def _set_surroundings(self, conversation: Conversation) -> None:
        """Set how to list the texts of others in the prompt; they are read when a text is first compared with them."""
        opening = self.opening
        # the message of a sub-agent is ours
        system_message = opening.system_message if opening.parent is None else None

        def list_texts() -> list[tuple[SourceName, str]]:
            return list_prompt_sources(self.parts, system_message, opening.platform, conversation.all_tools)

        conversation.record.set_surroundings(Surroundings(list_texts))


def _is_for_model(prompt: str, model: str) -> bool:
    """Whether a stored prompt was built for this model; another model needs a new prompt."""
    named = re.search(r"^Conversation id: \S+\nModel: (.*)$", prompt, re.MULTILINE)
    return named is not None and named[1] == model
