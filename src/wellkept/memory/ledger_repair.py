"""Repair of a damaged row of the ledger: the text that was written, proven by the checksum."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from wellkept.core.ids import LedgerId
from wellkept.core.ports import UnitOfWork
from wellkept.memory.edits import LedgerRepair, Target, page_of
from wellkept.memory.ledger import LedgerRow, Values

_MOST_BYTES = 4_096
"""Texts up to this length are searched for a flipped bit; entries are shorter, and the search grows with the square."""


def rebuild_rows(unit: UnitOfWork, sql: Any, texts: Iterable[str]) -> LedgerRepair:
    """Rebuild the damaged rows where their checksum proves the text, and mark the others as damaged for good."""
    rebuilt, marked = list[LedgerId](), list[LedgerId]()
    found: Iterable[Values] = unit.execute(sql.whole, (0,))
    rows = [LedgerRow(*row) for row in found]
    whole = [row for row in rows if not row.is_damaged]
    known = dict.fromkeys([*texts, *(text for row in whole for text in (row.before, row.after) if text)])
    for row in rows:
        if row.is_damaged:
            raw: Iterable[Values] = unit.execute(sql.raw_texts, (row.id,))
            again = rebuild(row, next(iter(raw)), list(known))
            unit.execute(sql.set_row, (again or report_damage(row).with_checksum())._asdict())
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


def report_damage(row: LedgerRow) -> LedgerRow:
    """Return a damaged row in the form of an archived text that says so, with every column in its type."""
    texts = [_text(text) for text in (row.before, row.after) if text is not None]
    return LedgerRow(
        id=row.id,
        write_id=_number(row.write_id),
        group_id=_text(row.group_id),
        time=float(row.time) if isinstance(row.time, float | int) else 0.0,
        target=row.target if page_of(row.target) is not None else Target.MEMORY.value,
        action="archive",
        before=f"[damaged: {' → '.join(texts)}]",
        after=None,
        position=-1,
        origin=_text(row.origin),
        session_id=None if row.session_id is None else _text(row.session_id),
        user_id=_text(row.user_id),
        reason="damaged on the disk",
        allowed=None,
        # an undo names an earlier edit
        undoes=row.undoes if isinstance(row.undoes, int) and 0 < row.undoes < row.id else None,
        page_before=_text(row.page_before),
        page_after=_text(row.page_after),
        page_stamp=row.page_stamp if isinstance(row.page_stamp, int) else None,
        source=None if row.source is None else _text(row.source),
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
