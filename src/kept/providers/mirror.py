"""The mirror: turns the ledger of curated memory into writes for each provider, each of them once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kept.core.ids import OWNER
from kept.core.text import JSON
from kept.providers.base import LedgerReader, LedgerRow
from kept.providers.outbox import Outbox, Write
from kept.security.secrets import redact


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
                    writes = [_write(row) for row in (standing(own) if cursor is None else own)]
                    self._outbox.enqueue(unit, lane, writes)
                    self._outbox.set_cursor(unit, lane, rows[-1].ledger_id if rows else 0)

    def _is_behind(self, lane: str) -> bool:
        cursor = self._outbox.cursor_of(lane)
        return cursor is None or bool(self._ledger.since(cursor))


def standing(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
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
