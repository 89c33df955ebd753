"""The agent: a conversation that can be opened, talked with, left, taken up again and branched."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kept.agent.act import Approve, deny
from kept.agent.answer import Answer
from kept.agent.compact import Squeeze
from kept.agent.conversation import Live
from kept.agent.offload import offload
from kept.agent.parts import Parts
from kept.agent.project import project_root
from kept.agent.record import Record
from kept.agent.review import Review, review
from kept.agent.title import named_by
from kept.agent.turn import take_turn
from kept.context.outcome import Outcome, Unchanged, Why
from kept.core.errors import KeptError, NotFound, UsageError
from kept.core.ids import OWNER, MessageId, SessionId, UserId, new_session_id
from kept.core.messages import Link, Role, Session
from kept.providers.content import plain_messages

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a conversation is opened."""

    resume: SessionId | None = None
    """An earlier session; of a compacted one the end of its chain is opened."""
    platform: str = "cli"
    user_id: UserId = OWNER
    system_message: str | None = None
    incognito: bool = False
    source: str | None = None
    parent: SessionId | None = None
    approve: Approve = deny


class Agent:
    """Talks with one person; the same object goes from one conversation to the next."""

    def __init__(self, parts: Parts, opening: Opening) -> None:
        self.parts = parts
        self.opening = opening
        self.when_closed: Callable[[], None] = lambda: None
        """Lets go of what was opened for this agent alone."""
        self.live = self._resumed(opening.resume) if opening.resume is not None else self._fresh()
        if parts.providers is not None and not opening.incognito:
            parts.providers.start(self.live.record.session.id)
        self.live.begin()

    @property
    def session(self) -> Session:
        """Return the session of this moment."""
        return self.live.record.session

    async def turn(self, text: str) -> Answer:
        """Answer one message."""
        return await take_turn(self.live, text)

    def interrupt(self) -> None:
        """Stop the running turn."""
        self.live.interrupt()

    def review_due(self) -> tuple[bool, bool]:
        """Return whether memory and skills are to be reviewed after the last turn."""
        live, turn = self.live, self.live.last_turn
        if turn is None or turn.interrupted or live.incognito or self.parts.model is None:
            return (False, False)
        tools, memory = self.parts.toolbox.tools, self.parts.memory
        memory_due = "memory" in tools and memory is not None and live.nudges.memory_due(memory.settings.nudge_interval)
        failed = bool(live.skills_used) and any(not call.ok for call in turn.calls)
        skills_due = "skill_manage" in tools and live.nudges.skills_due(
            self.parts.skill_interval, calls=len(turn.calls), corrected=failed or live.skill_corrected
        )
        return (memory_due, skills_due)

    async def review(self) -> Review | None:
        """Run the review that is due; returns None when none is, or when it failed."""
        memory, skills = self.review_due()
        if not (memory or skills) or not self.parts.review.enabled:
            return None
        live = self.live
        done = await review(live, memory=memory, skills=skills)
        if done is not None:
            live.nudges = live.nudges.reviewed(memory=memory, skills=skills)
            live.record.note(live.root, "nudges", live.nudges.as_json())
            if self.parts.providers is not None:
                self.parts.providers.writes.mirror_soon()
        return done

    def title_due(self) -> bool:
        """Whether a model should name this session, which has only its first words as a name."""
        live = self.live
        return self.parts.titler is not None and live.turns == 1 and live.record.exists and not live.incognito

    async def after_turn(self) -> None:
        """Do what may be done behind the person's back: name the session, review the conversation."""
        if self.title_due():
            await offload(self._name)
        await self.review()

    def _name(self) -> None:
        assert self.parts.titler is not None and self.parts.sessions is not None  # noqa: PT018 - one condition
        try:
            title = named_by(self.parts.titler, self.live.record.rows)
            if title:
                self.parts.sessions.rename(self.session.id, title)
        except KeptError:
            log.info("the session keeps its first words as a title", exc_info=True)

    async def compress(self, focus: str = "") -> Outcome:
        """Compact now, because the person asks for it; interrupted, all stays as it was."""
        with self.live.interruptible() as scope:
            outcome = await offload(self.live.compact, Squeeze(focus=focus, force=True))
        return Unchanged((), Why.GIVEN_UP) if scope.cancelled_caught else outcome

    def new(self, reason: Literal["new", "reset"] = "new") -> None:
        """Leave this conversation and begin another."""
        self._end(reason)
        if self.parts.engine is not None:
            self.parts.engine.on_session_reset()
        self.live = self._fresh()
        if self.parts.providers is not None:
            self.parts.providers.switch_session(self.session.id, reason)
        self.live.begin()

    def resume(self, session_id: SessionId) -> None:
        """Leave this conversation and take up another."""
        self.live = self._resumed(session_id)
        if self.parts.providers is not None:
            self.parts.providers.switch_session(self.session.id, "resume")
        self.live.begin()

    def branch(self) -> SessionId:
        """Go on in a branch; the conversation so far stays as it is."""
        store, origin = self.parts.sessions, self.session
        if store is None or not self.live.record.exists:
            raise UsageError("there is nothing to branch from yet", "say something first")
        now = self.parts.clock.now()
        new = replace(origin, id=new_session_id(now), started=now.timestamp(), title=None, link=Link.BRANCH)
        store.branch(origin.id, at=None, new=replace(new, parent_session_id=origin.id))
        if self.live.record.prompt is not None:
            store.set_system_prompt(new.id, self.live.record.prompt)
        self.live = self._resumed(new.id)
        if self.parts.providers is not None:
            self.parts.providers.switch_session(new.id, "branch", parent=origin.id)
        self.live.begin()
        return new.id

    def undo(self) -> str | None:
        """Take back the last exchange; return what the person had said, None when there is nothing."""
        rows = self.live.record.rows
        place = next((i for i in range(len(rows) - 1, -1, -1) if rows[i].message.role is Role.USER), None)
        if place is None:
            return None
        said = rows[place].message.text
        if self.parts.sessions is not None and self.live.record.exists and rows[place].id > 0:
            self.parts.sessions.rewind(self.session.id, MessageId(rows[place].id))
        del rows[place:]
        return said

    def use_parts(self, parts: Parts) -> None:
        """Go on with other parts, those of another model; the prompt is built anew."""
        self.parts = self.live.parts = parts
        self.live.record.prompt = None
        self.live.begin_engine()

    def close(self) -> None:
        """End the conversation: providers are told, waited for a little, and shut down."""
        try:
            self._end("exit")
            if self.parts.providers is not None and not self.live.incognito:
                self.parts.providers.shutdown()
        finally:
            self.when_closed()

    def _end(self, reason: str) -> None:
        """End the session: the store, the providers and the engine hear of it, in this order."""
        live, record = self.live, self.live.record
        if self.parts.sessions is not None and record.exists:
            self.parts.sessions.end(record.session.id, reason)
        if self.parts.providers is not None and record.rows and not live.incognito:
            messages = plain_messages([row.message for row in record.rows])
            self.parts.providers.writes.queue_session_end(record.session.id, messages)
        if self.parts.engine is not None:
            self.parts.engine.on_session_end(live.root, record.rows)

    def _fresh(self) -> Live:
        now = self.parts.clock.now()
        how = self.opening
        session = Session(
            id=new_session_id(now),
            source=how.source or how.platform,
            started=now.timestamp(),
            user_id=how.user_id,
            project=str(project_root(Path(self.parts.folder))),
            model=self.parts.model.name if self.parts.model is not None else None,
            parent_session_id=how.parent,
            link=Link.DELEGATE if how.parent is not None else None,
        )
        store = None if how.incognito else self.parts.sessions
        return self._live(Record(session, store, self.parts.sink), root=session.id)

    def _resumed(self, session_id: SessionId) -> Live:
        store = self.parts.sessions
        if store is None:
            raise UsageError("sessions cannot be read now, so none can be resumed", "run `kept doctor`")
        if store.session(session_id) is None:
            raise NotFound(f"there is no session {session_id!r}", "`kept sessions list` shows the recent ones")
        tip = store.tip(session_id)
        session = store.session(tip)
        assert session is not None
        store.reopen(tip)
        record = Record(session, store, self.parts.sink, prompt=store.system_prompt(tip), exists=True)
        record.rows = store.context(tip)
        live = self._live(record, root=self._root(session))
        live.turns = sum(1 for row in record.rows if row.message.role is Role.USER)
        if (
            self.parts.model is not None
            and record.prompt is not None
            and not _fits(record.prompt, self.parts.model.name)
        ):
            record.prompt = None
        return live

    def _root(self, session: Session) -> SessionId:
        """Return the first session of the chain of compressions."""
        store = self.parts.sessions
        seen: set[SessionId] = set()
        while session.link is Link.COMPRESSION and session.parent_session_id and session.id not in seen:
            seen.add(session.id)
            parent = store.session(session.parent_session_id) if store is not None else None
            if parent is None:
                break
            session = parent
        return session.id

    def _live(self, record: Record, *, root: SessionId) -> Live:
        how = self.opening
        return Live(
            self.parts, record, root, platform=how.platform, user_id=how.user_id, system_message=how.system_message,
            incognito=how.incognito, approve=how.approve,
        )  # fmt: skip


def _fits(prompt: str, model: str) -> bool:
    """Whether a stored prompt was built for this model; another model gets a prompt of its own."""
    named = re.search(r"^Conversation id: \S+\nModel: (.*)$", prompt, re.MULTILINE)
    return named is not None and named[1] == model
