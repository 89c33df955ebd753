"""Writes to the providers: queued in the outbox with what they tell of, delivered in the background."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kept.core.errors import KeptError
from kept.core.ids import OWNER
from kept.core.ports import UnitOfWork
from kept.core.text import JSON
from kept.providers.base import LedgerReader, LedgerRow, Messages
from kept.providers.content import clean_messages, clean_text
from kept.providers.outbox import Hook, Outbox, Write
from kept.providers.registry import ManagerContext, Registry
from kept.security.secrets import redact

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

    def __init__(self, members: Registry, outbox: Outbox, *, surroundings: ManagerContext) -> None:
        self._registry = members
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
        self.mirror_soon()
        self.wake()
        if not turn.counts:
            return
        query = clean_text(turn.user)
        for each in self._registry.ready("queue_prefetch"):
            self._registry.threads.submit(partial(each.ask, "queue_prefetch", query))

    def queue_delegation(self, task: str, result: str, *, session_id: str, child_session_id: str) -> None:
        """Queue what a sub-agent did."""
        payload = {"task": clean_text(task), "result": clean_text(result), "child_session_id": child_session_id}
        with self._outbox.unit() as unit:
            self._queue("on_delegation", session_id, f"delegation:{child_session_id}", payload=payload, unit=unit)
        self.wake()

    def queue_session_end(self, session_id: str, messages: Messages) -> None:
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
        lanes = [each.lane for each in self._registry if each.guard.offers("on_memory_write")]
        try:
            self._mirror.catch_up(lanes, user_id=self._around.context.user_id)
        except KeptError:
            log.warning("memory writes could not be queued for providers; the next call does it", exc_info=True)
        self.wake()

    def mirror_soon(self) -> None:
        """Mirror what was just written to the pages; returns at once."""
        self._registry.threads.submit(self.mirror)

    def wake(self) -> None:
        """Let every courier look at its queue now."""
        for each in self._registry if self._are_on else ():
            each.worker.wake()

    def wait_for(self, *session_ids: str, seconds: float) -> None:
        """Wait a little for the writes of sessions; the empty id is that of writes outside any session."""
        deadline = time.monotonic() + seconds
        for each in self._registry if self._are_on else ():
            each.worker.wake()
            for session_id in session_ids:
                each.worker.wait_for(session_id, seconds=deadline - time.monotonic())

    def _queue(self, hook: Hook, session_id: str, key: str, *, payload: Mapping[str, JSON], unit: UnitOfWork) -> None:
        if not self._are_on:
            return
        write = Write(hook=hook, session_id=session_id, idempotency_key=key, payload=payload)
        for each in self._registry:
            if each.guard.offers(hook):
                self._outbox.enqueue(unit, each.lane, [write])


class Mirror:
    """Queues what the ledger holds beyond each provider's cursor; queue and cursor commit together."""

    def __init__(self, outbox: Outbox, ledger: LedgerReader) -> None:
        self._outbox = outbox
        self._ledger = ledger

    def catch_up(self, lanes: Iterable[str], *, user_id: str) -> None:
        """Bring every lane of `user_id` up to the end of the ledger, whichever process wrote it.

        A provider that is met for the first time gets the entries that stand on the pages now, not
        the ones that were removed before it came.
        """
        for lane in lanes:
            if not self._is_behind(lane):
                continue
            with self._outbox.unit() as unit:
                cursor = self._outbox.cursor(unit, lane)
                rows = self._ledger.since(cursor or 0)
                if cursor is None or rows:
                    own = [row for row in rows if (row.user_id or OWNER) == user_id]
                    writes = [_write(row) for row in (current_entries(own) if cursor is None else own)]
                    self._outbox.enqueue(unit, lane, writes)
                    self._outbox.set_cursor(unit, lane, rows[-1].ledger_id if rows else 0)

    def _is_behind(self, lane: str) -> bool:
        cursor = self._outbox.cursor_of(lane)
        return cursor is None or bool(self._ledger.since(cursor))


def current_entries(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """Return the rows whose entries are still there at the end, each as an add."""
    alive: dict[tuple[str | None, str, str], LedgerRow] = {}
    for row in rows:
        if row.before is not None:
            alive.pop((row.user_id, row.target, row.before), None)
        if row.after is not None:
            alive[row.user_id, row.target, row.after] = row
    return [replace(row, action="add", before=None) for row in alive.values()]


def _write(row: LedgerRow) -> Write:
    content = (row.before if row.action == "remove" else row.after) or ""
    metadata: Mapping[str, JSON] = {
        "ledger_id": row.ledger_id,
        "origin": row.origin,
        "session_id": row.session_id,
        "user_id": row.user_id,
        "platform": row.platform,
        "tool_name": row.tool_name,
        "before": None if row.before is None else redact(row.before),
    }
    told: Mapping[str, JSON] = {"action": row.action, "target": row.target, "content": redact(content)}
    return Write(
        hook="on_memory_write",
        session_id=row.session_id or "",
        idempotency_key=f"ledger:{row.ledger_id}",
        payload={**told, "metadata": metadata},
    )
