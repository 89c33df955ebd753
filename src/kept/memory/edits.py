"""Edits of a page as they are asked for, and steps as they were applied."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias, assert_never


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
