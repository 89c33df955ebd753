"""The ledger of the pages as external providers read it: the two tiers meet only here."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count

from kept.core.ids import SessionId
from kept.core.ports import SessionStore
from kept.memory.edits import Entered
from kept.memory.store import MemoryStore
from kept.providers.base import LedgerRow

_BATCH = 1_000


class PageLedger:
    """Reads the applied steps of the pages."""

    def __init__(self, store: MemoryStore, sessions: SessionStore | None = None) -> None:
        self._store = store
        self._sessions = sessions

    def since(self, ledger_id: int) -> Sequence[LedgerRow]:
        """Return the steps after `ledger_id` that changed a page, oldest first."""
        if not self._store.has_ledger:
            return []
        platform = cache(self._platform)
        rows = (_row(each) for each in self._entered(ledger_id))
        return [replace(row, platform=platform(row.session_id)) for row in rows if row is not None]

    def _platform(self, session_id: SessionId | None) -> str:
        """Return where the conversation that wrote it was held; nothing for a write outside of one."""
        session = self._sessions.session(session_id) if self._sessions is not None and session_id else None
        return session.source if session is not None else ""

    def _entered(self, ledger_id: int) -> Iterator[Entered]:
        for _ in count():
            batch = self._store.ledger.since(ledger_id, limit=_BATCH)
            yield from batch
            if len(batch) < _BATCH:
                return
            ledger_id = batch[-1].id


def _row(entered: Entered) -> LedgerRow | None:
    action = entered.step.action
    if action == "archive" or not (entered.step.before or entered.step.after):
        return None  # it changed no entry, or its text was forgotten since
    return LedgerRow(
        ledger_id=entered.id,
        action=action,
        target=entered.target.value,
        before=entered.step.before,
        after=entered.step.after,
        origin=entered.origin,
        session_id=entered.session_id,
        user_id=entered.user_id,
    )
