"""Writes to the providers: queued in the outbox with what they tell of, delivered in the background."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kept.core.errors import KeptError
from kept.core.ports import UnitOfWork
from kept.core.text import JSON
from kept.providers.base import Messages
from kept.providers.conversation import clean_messages, clean_text
from kept.providers.members import Members
from kept.providers.mirror import Mirror
from kept.providers.outbox import Hook, Outbox, Write
from kept.providers.surroundings import Surroundings

log = logging.getLogger(__name__)


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


class Writes:
    """What the members are told; nothing, unless the agent is the primary one."""

    def __init__(self, members: Members, outbox: Outbox, *, surroundings: Surroundings) -> None:
        self._members = members
        self._outbox = outbox
        self._around = surroundings
        self._are_on = surroundings.context.agent_context == "primary"
        self._mirror = None if surroundings.ledger is None else Mirror(outbox, surroundings.ledger)

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
        self.memory_written()
        self.wake()
        if not turn.counts:
            return
        query = clean_text(turn.user)
        for each in self._members.ready("queue_prefetch"):
            self._members.crew.submit(partial(each.ask, "queue_prefetch", query))

    def delegated(self, task: str, result: str, *, session_id: str, child_session_id: str) -> None:
        """Queue what a sub-agent did."""
        payload = {"task": clean_text(task), "result": clean_text(result), "child_session_id": child_session_id}
        with self._outbox.unit() as unit:
            self._queue("on_delegation", session_id, f"delegation:{child_session_id}", payload=payload, unit=unit)
        self.wake()

    def commit(self, session_id: str, messages: Messages) -> None:
        """Queue the end of a session, without shutting anything down."""
        key = f"end:{session_id}:{self._around.clock.now().timestamp():.6f}"
        payload: Mapping[str, JSON] = {"messages": clean_messages(messages)}
        with self._outbox.unit() as unit:
            self._queue("on_session_end", session_id, key, payload=payload, unit=unit)
        self.wake()

    def mirror(self) -> None:
        """Queue every write to the pages that the providers were not told of yet, from whatever process."""
        if self._mirror is None or not self._are_on:
            return
        lanes = [each.lane for each in self._members if each.guarded.offers("on_memory_write")]
        try:
            self._mirror.catch_up(lanes, user_id=self._around.context.user_id)
        except KeptError:
            log.warning("memory writes could not be queued for providers; the next call does it", exc_info=True)
        self.wake()

    def memory_written(self) -> None:
        """Mirror what was just written to the pages; returns at once."""
        self._members.crew.submit(self.mirror)

    def wake(self) -> None:
        """Let every courier look at its queue now."""
        for each in self._members if self._are_on else ():
            each.courier.wake()

    def wait_for(self, *session_ids: str, seconds: float) -> None:
        """Wait a little for the writes of sessions; the empty id is that of writes outside any session."""
        deadline = time.monotonic() + seconds
        for each in self._members if self._are_on else ():
            each.courier.wake()
            for session_id in session_ids:
                each.courier.wait_for(session_id, seconds=deadline - time.monotonic())

    def _queue(self, hook: Hook, session_id: str, key: str, *, payload: Mapping[str, JSON], unit: UnitOfWork) -> None:
        if not self._are_on:
            return
        write = Write(hook=hook, session_id=session_id, idempotency_key=key, payload=payload)
        for each in self._members:
            if each.guarded.offers(hook):
                self._outbox.enqueue(unit, each.lane, [write])
