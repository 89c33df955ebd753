"""Writes to the providers: queued in the outbox with the data they report, delivered in the background."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import KeptError
from wellkept.core.ids import OWNER, UserId
from wellkept.core.ports import UnitOfWork
from wellkept.core.text import JSON
from wellkept.providers.active import ManagerContext, Registry
from wellkept.providers.base import LedgerReader, LedgerRow, Messages
from wellkept.providers.content import clean_messages, clean_text
from wellkept.providers.outbox import Hook, Outbox, Write
from wellkept.security.secrets import redact

log = logging.getLogger(__name__)


class FinishedTurn(Struct, frozen=True, kw_only=True):
    """A turn that ended; it is reported to providers unless it was interrupted or has no answer."""

    session_id: str
    key: str
    """Distinguishes this turn from all others of its session; for example the id of its last message."""
    user: str
    assistant: str
    messages: Messages = ()
    """The messages of this turn."""
    interrupted: bool = False

    @property
    def is_reported(self) -> bool:
        """Whether it is reported to providers."""
        return not self.interrupted and bool(self.assistant.strip())


class Writes:
    """Queues and delivers writes; does nothing unless the agent runs in the primary context."""

    def __init__(self, registry: Registry, outbox: Outbox, *, context: ManagerContext) -> None:
        self._registry = registry
        self._outbox = outbox
        self._clock = context.clock
        self._enabled = context.start.agent_context == "primary"
        self._mirror = None if context.ledger is None else Mirror(outbox, context.ledger)

    def queue_turn(self, unit: UnitOfWork, turn: FinishedTurn) -> None:
        """Queue a finished turn in the unit of work that stores it."""
        if turn.is_reported:
            payload: Mapping[str, JSON] = {
                "user": clean_text(turn.user),
                "assistant": clean_text(turn.assistant),
                "messages": clean_messages(turn.messages),
            }
            key = f"turn:{turn.session_id}:{turn.key}"
            self._queue("sync_turn", turn.session_id, key, payload=payload, unit=unit)

    def after_turn(self, turn: FinishedTurn) -> None:
        """Deliver what the turn queued and, if it is reported, warm the next recall; returns at once."""
        self.mirror_soon()
        self.wake()
        if not turn.is_reported:
            return
        query = clean_text(turn.user)
        for each in self._registry.ready("queue_prefetch"):
            each.worker.warm_recall(turn.session_id, query)

    def queue_delegation(self, task: str, result: str, *, session_id: str, child_session_id: str) -> None:
        """Queue the result of a sub-agent."""
        payload = {"task": clean_text(task), "result": clean_text(result), "child_session_id": child_session_id}
        with self._outbox.unit() as unit:
            self._queue("on_delegation", session_id, f"delegation:{child_session_id}", payload=payload, unit=unit)
        self.wake()

    def queue_session_end(self, session_id: str, messages: Messages) -> None:
        """Queue the end of a session; nothing is shut down."""
        key = f"end:{session_id}:{self._clock.now().timestamp():.6f}"
        payload: Mapping[str, JSON] = {"messages": clean_messages(messages)}
        with self._outbox.unit() as unit:
            self._queue("on_session_end", session_id, key, payload=payload, unit=unit)
        self.wake()

    def mirror(self) -> None:
        """Queue every write to the pages that is not queued yet, whichever process made it."""
        if self._mirror is None or not self._enabled:
            return
        names = [each.name for each in self._registry if each.can_run and each.guard.offers("on_memory_write")]
        try:
            self._mirror.catch_up(names)
        except KeptError:
            log.warning("memory writes could not be queued for providers; the next call does it", exc_info=True)
        self.wake()

    def mirror_soon(self) -> None:
        """Run `mirror` in the background; returns at once."""
        self._registry.threads.submit(self.mirror)

    def wake(self) -> None:
        """Let every delivery worker check its queue now."""
        for each in self._registry if self._enabled else ():
            each.worker.wake()

    def wait_for(self, *session_ids: str, seconds: float) -> None:
        """Wait up to `seconds` for the writes of sessions; the empty id stands for writes outside any session."""
        deadline = time.monotonic() + seconds
        for each in self._registry if self._enabled else ():
            each.worker.wake()
            for session_id in session_ids:
                each.worker.wait_for(session_id, seconds=deadline - time.monotonic())

    def _queue(self, hook: Hook, session_id: str, key: str, *, payload: Mapping[str, JSON], unit: UnitOfWork) -> None:
        if not self._enabled:
            return
        write = Write(hook=hook, session_id=session_id, idempotency_key=key, payload=payload)
        for each in self._registry:
            if each.can_run and each.guard.offers(hook):
                self._outbox.enqueue(unit, each.name, [write])


class Mirror:
    """Queues the ledger rows of the outbox's user beyond each provider's cursor; rows and cursor commit together."""

    def __init__(self, outbox: Outbox, ledger: LedgerReader) -> None:
        self._outbox = outbox
        self._ledger = ledger

    def catch_up(self, providers: Iterable[str]) -> None:
        """Bring the lane of each provider up to the end of the ledger.

        A new provider gets the entries that are on the pages now, not those that were removed earlier.
        """
        user = self._outbox.user
        for provider in providers:
            if not self._is_behind(provider):
                continue
            with self._outbox.unit() as unit:
                # read again under the write lock: another process may have caught up meanwhile
                cursor = self._outbox.cursor(unit, provider)
                rows = self._ledger.since(cursor or 0)
                if cursor is None or rows:
                    own = [row for row in rows if (row.user_id or OWNER) == user]
                    queued = current_entries(own) if cursor is None else own
                    writes = [_memory_write(row, user) for row in queued if not _is_forgotten(row)]
                    self._outbox.enqueue(unit, provider, writes)
                    self._outbox.set_cursor(unit, provider, rows[-1].ledger_id if rows else 0)

    def _is_behind(self, provider: str) -> bool:
        cursor = self._outbox.cursor_of(provider)
        return cursor is None or bool(self._ledger.since(cursor))


def current_entries(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """Return the rows whose entries are still on the pages after the last row, each as an add."""
    current: dict[tuple[str, str | None, str], LedgerRow] = {}
    for row in rows:
        if row.before is not None:
            current.pop((row.target, row.project, row.before), None)
        if row.after is not None:
            current[row.target, row.project, row.after] = row
    return [replace(row, action="add", before=None) for row in current.values()]


def _is_forgotten(row: LedgerRow) -> bool:
    """Whether forget blanked the text: the provider was told separately, and there is nothing left to mirror."""
    return not ((row.before if row.action == "remove" else row.after) or "").strip()


def _memory_write(row: LedgerRow, user: UserId) -> Write:
    content = (row.before if row.action == "remove" else row.after) or ""
    metadata: Mapping[str, JSON] = {
        "ledger_id": row.ledger_id,
        "origin": row.origin,
        "session_id": row.session_id,
        "user_id": row.user_id,
        "platform": row.platform,
        "tool_name": row.tool_name,
        "before": None if row.before is None else redact(row.before),
        **({} if row.project is None else {"project": row.project}),
        **({} if row.source is None else {"source": row.source}),
    }
    step: Mapping[str, JSON] = {"action": row.action, "target": row.target, "content": redact(content)}
    # each user has a separate ledger, so the ids of two users can be equal
    number = str(row.ledger_id) if user == OWNER else f"{user}:{row.ledger_id}"
    return Write(
        hook="on_memory_write",
        session_id=row.session_id or "",
        idempotency_key=f"ledger:{number}",
        payload={**step, "metadata": metadata},
    )
