"""A row of the ledger as it is stored: its checksum, its record, and what can be done about a damaged one."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from kept.core.ids import LedgerId, SessionId, UserId
from kept.core.text import checksum
from kept.memory.edits import EditRecord, Step, Target

Values: TypeAlias = tuple[Any, ...]

_ACTIONS = frozenset(("add", "replace", "remove", "archive"))
_MOST_BYTES = 4_096
"""Texts up to this length are searched for a flipped bit; entries are shorter, and the search grows with the square."""


PROJECT_PREFIX = "project/"
"""The page of a project is stored as this and its folder, so that rows of one page have one target."""


def target_of(page: Target, project: str | None) -> str:
    """Return the stored name of a page."""
    return f"{PROJECT_PREFIX}{project or ''}" if page is Target.PROJECT else page.value


def _page(target: object) -> Target | None:
    if isinstance(target, str) and target.startswith(PROJECT_PREFIX):
        return Target.PROJECT
    return next((page for page in (Target.MEMORY, Target.USER) if page.value == target), None)


class LedgerRow(NamedTuple):
    """The columns of the selects, in their order."""

    id: int
    write_id: int
    group_id: str
    time: float
    target: str
    action: str
    before: str | None
    after: str | None
    position: int
    origin: str
    session_id: str | None
    user_id: str
    reason: str | None
    allowed: str | None
    undoes: int | None
    page_before: str
    page_after: str
    page_stamp: int | None
    checksum: int | None = None

    def sealed(self) -> "LedgerRow":
        """Return the row with the checksum of its values."""
        return self._replace(checksum=checksum(self[:-1]))

    @property
    def is_damaged(self) -> bool:
        """Whether the row is not as it was written; without a checksum, whether no record can be made of it."""
        return self.is_malformed if self.checksum is None else self.checksum != checksum(self[:-1])

    @property
    def is_malformed(self) -> bool:
        """Whether no record can be made of the row."""
        texts = (self.group_id, self.target, self.action, self.origin, self.user_id, self.page_before, self.page_after)
        optional = (self.before, self.after, self.session_id, self.reason, self.allowed)
        return (
            any(type(text) is not str for text in texts)
            or any(text is not None and type(text) is not str for text in optional)
            or not isinstance(self.write_id, int)
            or not isinstance(self.time, float)
            or not isinstance(self.position, int)
            or _page(self.target) is None
            or self.action not in _ACTIONS
            or _rules(self.allowed) is None
        )

    def record(self) -> EditRecord:
        """Return the edit; a damaged one changes nothing, allows nothing, and holds what can be read."""
        row = self.marked() if self.is_damaged else self
        return EditRecord(
            id=LedgerId(row.id),
            write_id=row.write_id,
            group_id=row.group_id,
            time=row.time,
            target=_page(row.target) or Target.MEMORY,
            step=Step(row.action, row.before, row.after, row.position),  # type: ignore[arg-type]  # one of the actions
            origin=row.origin,
            session_id=SessionId(row.session_id) if row.session_id else None,
            user_id=UserId(row.user_id),
            reason=row.reason,
            allowed=_rules(row.allowed) or frozenset(),
            undoes=LedgerId(row.undoes) if row.undoes else None,
            page_before=row.page_before,
            page_after=row.page_after,
            page_stamp=row.page_stamp,
            is_damaged=self.is_damaged,
            project=row.target.removeprefix(PROJECT_PREFIX) if row.target.startswith(PROJECT_PREFIX) else None,
        )

    def marked(self) -> "LedgerRow":
        """Return a damaged row in the form of an archived text that says so, with every column in its type."""
        texts = [_text(text) for text in (self.before, self.after) if text is not None]
        return LedgerRow(
            id=self.id,
            write_id=_number(self.write_id),
            group_id=_text(self.group_id),
            time=float(self.time) if isinstance(self.time, float | int) else 0.0,
            target=self.target if _page(self.target) is not None else Target.MEMORY.value,
            action="archive",
            before=f"[damaged: {' → '.join(texts)}]",
            after=None,
            position=-1,
            origin=_text(self.origin),
            session_id=None if self.session_id is None else _text(self.session_id),
            user_id=_text(self.user_id),
            reason="damaged on the disk",
            allowed=None,
            # an undo names an earlier edit
            undoes=self.undoes if isinstance(self.undoes, int) and 0 < self.undoes < self.id else None,
            page_before=_text(self.page_before),
            page_after=_text(self.page_after),
            page_stamp=self.page_stamp if isinstance(self.page_stamp, int) else None,
        )

    def rebuilt(self, raw: Sequence[bytes | None], texts: Sequence[str]) -> "LedgerRow | None":
        """Return the row as it was written, proven by its checksum, or None.

        One of its texts is another known text, or differs from what was written by one bit; `raw` are the bytes of
        `before` and `after` as they are stored now.
        """
        if self.checksum is None:
            return None
        before, after = raw
        for candidate in (
            *(self._replace(before=text) for text in _possible(before, texts)),
            *(self._replace(after=text) for text in _possible(after, texts)),
        ):
            if checksum(candidate[:-1]) == self.checksum:
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


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _rules(allowed: str | None) -> frozenset[str] | None:
    if not allowed:
        return frozenset()
    try:
        found = json.loads(allowed)
    except ValueError:
        return None
    return frozenset(map(str, found)) if isinstance(found, list) else None
