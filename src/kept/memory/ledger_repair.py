"""Repair of a damaged row of the ledger: the text that was written, proven by the checksum."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kept.core.ids import LedgerId
from kept.memory.edits import LedgerRepair
from kept.memory.ledger import LedgerRow
from kept.storage.sqlite import Connection

_MOST_BYTES = 4_096
"""Texts up to this length are searched for a flipped bit; entries are shorter, and the search grows with the square."""


def rebuild_rows(connection: Connection, sql: Any, texts: Iterable[str]) -> LedgerRepair:
    """Rebuild the damaged rows where their checksum proves the text, and mark the others as damaged for good."""
    rebuilt, marked = list[LedgerId](), list[LedgerId]()
    rows = [LedgerRow._make(row) for row in connection.execute(sql.whole, (0,))]
    whole = [row for row in rows if not row.is_damaged]
    known = dict.fromkeys([*texts, *(text for row in whole for text in (row.before, row.after) if text)])
    for row in rows:
        if row.is_damaged:
            ((before, after),) = connection.execute(sql.raw_texts, (row.id,))
            again = rebuild(row, (before, after), list(known))
            connection.execute(sql.set_row, (again or row.as_damage_report().with_checksum())._asdict())
            (marked if again is None else rebuilt).append(LedgerId(row.id))
    return LedgerRepair(tuple(rebuilt), tuple(marked))


def rebuild(row: LedgerRow, raw: Sequence[bytes | None], texts: Sequence[str]) -> LedgerRow | None:
    """Return the row as it was written, proven by its checksum, or None.

    One of its texts is another known text, or differs from what was written by one bit; `raw` are the bytes of
    `before` and `after` as they are stored now.
    """
    if row.checksum is None:
        return None
    before, after = raw
    for candidate in (
        *(row._replace(before=text) for text in _possible(before, texts)),
        *(row._replace(after=text) for text in _possible(after, texts)),
    ):
        if candidate.with_checksum().checksum == row.checksum:
            return candidate
    return None


def _possible(data: bytes | None, texts: Sequence[str]) -> Iterator[str]:
    """Yield known texts, then every text that differs from `data` by one bit."""
    if data is None:
        return
    yield from texts
    if len(data) > _MOST_BYTES:
        return
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            try:
                yield changed.decode()
            except UnicodeDecodeError:
                continue
