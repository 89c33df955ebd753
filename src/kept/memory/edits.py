"""Edits of a page as they are asked for, and steps as they were applied."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias, assert_never

from kept.core.ids import OWNER, LedgerId, SessionId, UserId, new_group_id


class Target(StrEnum):
    """Which page."""

    MEMORY = "memory"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Add:
    """Put `text` at the end of the page."""

    text: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Put `text` in the place of the one entry that holds `needle`."""

    needle: str
    text: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the one entry that holds `needle` off the page."""

    needle: str


Edit: TypeAlias = Add | Replace | Remove
Action: TypeAlias = Literal["add", "replace", "remove", "archive"]


@dataclass(frozen=True, slots=True)
class Step:
    """One applied change: the entry before, the entry after, and where it stood.

    `archive` keeps text that was never on the page, or no longer fits it; it changes no entry.
    """

    action: Action
    before: str | None
    after: str | None
    position: int

    def applied(self, entries: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the entries after this step, or None when it does not fit them."""
        match self.action:
            case "add":
                if self.after is None or self.after in entries:
                    return None
                return (*entries[: self.position], self.after, *entries[self.position :])
            case "remove":
                place = _place(entries, self.before, self.position)
                return None if place is None else (*entries[:place], *entries[place + 1 :])
            case "replace":
                place = _place(entries, self.before, self.position)
                if place is None or self.after is None or self.after in entries:
                    return None
                return (*entries[:place], self.after, *entries[place + 1 :])
            case "archive":
                return entries
            case _:
                assert_never(self.action)

    def inverse(self) -> "Step":
        """Return the step that takes this one back."""
        match self.action:
            case "add":
                return Step("remove", self.after, None, self.position)
            case "remove":
                return Step("add", None, self.before, self.position)
            case "replace":
                return Step("replace", self.after, self.before, self.position)
            case "archive":
                return self
            case _:
                assert_never(self.action)


def _place(entries: tuple[str, ...], text: str | None, hint: int) -> int | None:
    if 0 <= hint < len(entries) and entries[hint] == text:
        return hint
    return entries.index(text) if text in entries else None


def steps_between(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[Step, ...]:
    """Return steps that lead from `old` to `new`, in an order in which they can be applied."""
    steps = []
    working = list(old)
    for entry in old:
        if entry not in new:
            place = working.index(entry)
            steps.append(Step("remove", entry, None, place))
            del working[place]
    for place, entry in enumerate(new):
        if place < len(working) and working[place] == entry:
            continue
        if entry in working:
            current = working.index(entry)
            steps.append(Step("remove", entry, None, current))
            del working[current]
        steps.append(Step("add", None, entry, place))
        working.insert(place, entry)
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class Author:
    """Who makes an edit, in which session, as part of what, and why."""

    origin: str = "user"
    session_id: SessionId | None = None
    user_id: UserId = OWNER
    group_id: str = field(default_factory=new_group_id)
    reason: str | None = None
    allow: frozenset[str] = frozenset()
    """Rules of the scanner that a person lets pass for this text."""


@dataclass(frozen=True, slots=True)
class Entered:
    """One row of the ledger."""

    id: LedgerId
    write_id: int
    group_id: str
    time: float
    target: Target
    step: Step
    origin: str
    session_id: SessionId | None
    user_id: UserId
    reason: str | None
    allowed: frozenset[str]
    undoes: LedgerId | None
    page_before: str
    page_after: str
    page_stamp: int | None
    """When the page's file had last been written as this row was entered; None where that is not known."""

    def never_came(self, page: str, stamp: int) -> bool:
        """Whether the page with this hash and stamp is the one from before this row, and untouched since."""
        if page != self.page_before or page == self.page_after:
            return False
        return self.page_stamp is None or self.page_stamp == stamp


@dataclass(frozen=True, slots=True)
class Change:
    """What one write does to a page: the entries after it and the steps that lead there."""

    entries: tuple[str, ...]
    steps: tuple[Step, ...]
    message: str = "Done."
    """What to tell about it."""
    overflow: tuple[Step, ...] = ()
    """Steps after those, which only make room for them."""
    undoes: tuple[LedgerId, ...] = ()
    """One row per step where the write takes rows back."""
    is_only_copy: bool = False
    """Whether the rows will hold the only copy of a text: without them the write must not happen."""

    def with_origins(self, author: Author) -> list[tuple[Step, str]]:
        """Return every step in order, each with its origin."""
        return [*((step, author.origin) for step in self.steps), *((step, "overflow") for step in self.overflow)]


def undone(rows: Sequence[Entered]) -> set[LedgerId]:
    """Return the ids of rows that are taken back at present; an undone undo counts as never made."""
    gone: set[LedgerId] = set()
    for row in reversed(rows):
        if row.undoes is not None and row.id not in gone:
            gone.add(row.undoes)
    return gone


def replayed(rows: Iterable[Entered]) -> tuple[str, ...]:
    """Return the page that the rows of one page build; a row that does not fit is passed over."""
    entries: tuple[str, ...] = ()
    for row in rows:
        following = row.step.applied(entries)
        entries = entries if following is None else following
    return entries
