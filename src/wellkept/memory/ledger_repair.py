"""Repair of the ledger: a row as it was written, proven by its checksum, and the rows of a file that is damaged."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from wellkept.core.errors import Unreadable
from wellkept.core.ids import LedgerId
from wellkept.core.ports import UnitOfWork
from wellkept.memory.edits import LedgerRepair, Target, page_of
from wellkept.memory.ledger import LedgerRow, Values
from wellkept.salvage.evidence import insert_row
from wellkept.salvage.shapes import describe_shapes
from wellkept.storage.connections import sql_migrations
from wellkept.storage.files import APPLICATION_ID, resolve_link
from wellkept.storage.foreign import open_copy
from wellkept.storage.sqlite import Database
from wellkept.storage.swap import Replacement, hold_alone

_TABLE = "edits"

_MOST_BYTES = 4_096
"""Texts up to this length are searched for a flipped bit; entries are shorter, and the search grows with the square."""


def salvage(path: Path, *, moment: str) -> tuple[int, str]:
    """Put a file with the rows that can be read in the place of a damaged one, which stays under another name.

    Return how many rows there are, and that name. Raise Busy while another process has the ledger open.
    """
    path = resolve_link(path)
    replacement = Replacement.of(path, moment)
    with hold_alone(path):
        try:
            replacement.begin()
            saved = _copy_rows(path, replacement.fresh)
            replacement.swap()
        except BaseException:
            replacement.abandon()
            raise
    return saved, replacement.aside.name


def _copy_rows(path: Path, fresh: Path) -> int:
    rows: list[dict[str, Any]] = []
    with suppress(Unreadable), open_copy(path, rescue=(_TABLE,)) as tables:  # too damaged to find its table
        names = sorted(tables.columns(_TABLE) & {*LedgerRow._fields, "voided"})
        found = tables.rows(f"SELECT {', '.join(names)} FROM {_TABLE} ORDER BY id")  # noqa: S608 - our names
        rows = [dict(zip(names, row, strict=True)) for row in found]
    target = Database(
        fresh, application_id=APPLICATION_ID, migrations=sql_migrations("wellkept.memory"), durability="full"
    )
    with closing(target) as database:
        database.connection.execute("PRAGMA foreign_keys = OFF")  # an undo names an edit that may be lost
        with database.writing() as unit:
            shape = next(one for one in describe_shapes(unit) if one.table == _TABLE and not one.is_index)
            return sum(insert_row(unit, shape, row) for row in rows)


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
