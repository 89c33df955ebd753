"""Edits of a page: what a caller asks for, the steps that were applied, and how the ledger records them."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct, field

from wellkept.core.clock import iso_moment
from wellkept.core.ids import LedgerId, SessionId, SourceName, UserId, new_group_id
from wellkept.core.text import JSON


class Target(StrEnum):
    """Which page."""

    MEMORY = "memory"
    USER = "user"
    PROJECT = "project"
    """What holds for one project only; there is one such page per project."""


PROJECT_PREFIX = "project/"
"""The page of a project is stored as this and its folder, so that rows of one page have one target."""


def target_of(page: Target, project: str | None) -> str:
    """Return the stored name of a page."""
    return f"{PROJECT_PREFIX}{project or ''}" if page is Target.PROJECT else page.value


def page_of(target: object) -> Target | None:
    """Return the page of a stored name, None if it names none."""
    if isinstance(target, str) and target.startswith(PROJECT_PREFIX):
        return Target.PROJECT
    return next((page for page in (Target.MEMORY, Target.USER) if page.value == target), None)


class Add(Struct, frozen=True):
    """Append `text` as a new entry."""

    text: str


class Replace(Struct, frozen=True):
    """Replace the one entry that contains `needle` with `text`."""

    needle: str
    text: str


class Remove(Struct, frozen=True):
    """Remove the one entry that contains `needle`."""

    needle: str


Edit: TypeAlias = Add | Replace | Remove
Action: TypeAlias = Literal["add", "replace", "remove", "archive"]


class Step(Struct, frozen=True):
    """One applied change: the entry before, the entry after, and its position.

    `archive` stores a text in the archive that was never on the page or no longer fits; it changes no entry.
    """

    action: Action
    before: str | None
    after: str | None
    position: int

    @property
    def is_forgotten(self) -> bool:
        """Whether a text of it was forgotten: the ledger keeps an empty one in its place, which no entry can be."""
        return "" in (self.before, self.after)

    def apply(self, entries: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the entries after this step, or None when the step does not fit them."""
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
        """Return the step that undoes this one."""
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


class Author(Struct, frozen=True):
    """Where an edit comes from: origin, session, group and reason.

    The user is not part of it: a store belongs to one user, and its ledger records that user.
    """

    origin: str = "user"
    session_id: SessionId | None = None
    group_id: str = field(default_factory=new_group_id)
    """Edits with the same group id (one batch, review or import) are undone together."""
    reason: str | None = None
    allow: frozenset[str] = frozenset()
    """Scanner rules that a person allows for this text."""
    sources: Mapping[str, SourceName] = field(default_factory=dict)
    """By entry: the untrusted source that a model had read before it wrote the entry."""
    source: SourceName | None = None
    """The import that all other entries come from."""
    unrelated: frozenset[str] = frozenset()
    """The entries that repeat nothing of their source."""

    def find_source(self, step: Step) -> SourceName | None:
        """Return where the text of a step came from."""
        text = step.after or (step.before if step.action == "archive" else None)
        return None if text is None else self.sources.get(text, self.source)


class Change(Struct, frozen=True):
    """What one write does to a page: the resulting entries and the steps that lead there."""

    entries: tuple[str, ...]
    steps: tuple[Step, ...]
    message: str = "Done."
    """The message for the answer."""
    overflow: tuple[Step, ...] = ()
    """Further steps that only make room on a full page."""
    undoes: tuple[LedgerId, ...] = ()
    """For an undo: the record that each step undoes."""
    is_only_copy: bool = False
    """Whether the ledger will hold the only copy of a text. The write must fail when the ledger cannot be written."""

    def with_origins(self, author: Author) -> list[tuple[Step, str]]:
        """Return every step in order, each with its origin."""
        return [*((step, author.origin) for step in self.steps), *((step, "overflow") for step in self.overflow)]


class EditRecord(Struct, frozen=True):
    """One row of the ledger."""

    id: LedgerId
    write_id: int
    """Shared by all rows of one write."""
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
    """Hash of the page before the write."""
    page_after: str
    """Hash of the page after the write."""
    page_stamp: int | None
    """The page's stamp before the write; None in rows that were written before stamps existed."""
    is_damaged: bool = False
    """Whether the row was damaged on the disk. Its step then changes nothing and holds what can be read."""
    project: str | None = None
    """The folder of the project's page; None for the other pages."""
    source: SourceName | None = None
    """The untrusted source that the author had read before the edit."""

    def was_never_applied(self, page: str, stamp: int) -> bool:
        """Whether the page with this hash and stamp is still the one from before this write."""
        if self.is_damaged or page != self.page_before or page == self.page_after:
            return False
        return self.page_stamp is None or self.page_stamp == stamp

    def as_json(self, *, is_undone: bool = False) -> dict[str, JSON]:
        """Return the record as the log prints it."""
        return {
            "id": self.id,
            "time": iso_moment(self.time),
            "target": self.target.value,
            "action": self.step.action,
            "before": self.step.before,
            "after": self.step.after,
            "origin": self.origin,
            "session_id": self.session_id,
            "user_id": self.user_id,
            "group_id": self.group_id,
            "position": self.step.position,
            "reason": self.reason,
            "allowed": sorted(self.allowed),
            "undoes": self.undoes,
            "undone": is_undone,
            **({"damaged": True} if self.is_damaged else {}),
            **({"project": self.project} if self.project is not None else {}),
            **({"source": self.source} if self.source is not None else {}),
        }


class LedgerRepair(Struct, frozen=True):
    """What happened to damaged rows of the ledger: rebuilt as they were written, or marked as damaged."""

    rebuilt: tuple[LedgerId, ...] = ()
    marked: tuple[LedgerId, ...] = ()
    saved: int = 0
    """How many rows were copied from a damaged file."""
    put_aside: str = ""
    """The name that the damaged file has now; empty if the file was whole."""

    def as_json(self) -> dict[str, JSON]:
        """Return the ids, as `kept memory repair --json` prints them."""
        salvaged: dict[str, JSON] = {"saved": self.saved, "put_aside": self.put_aside} if self.put_aside else {}
        return {"rebuilt": list(self.rebuilt), "marked": list(self.marked), **salvaged}


def undone_ids(records: Sequence[EditRecord]) -> set[LedgerId]:
    """Return the ids of records that are undone at present; an undo that was itself undone does not count."""
    gone: set[LedgerId] = set()
    for record in reversed(records):
        if record.undoes is not None and record.id not in gone:
            gone.add(record.undoes)
    return gone


PERSON = frozenset(("user", "approval"))
"""The origins of edits in which a person wrote or confirmed an entry."""
OF_AGENT = frozenset(("agent", "background_review"))
"""The origins of edits that a model makes."""
_OUTSIDE = ("web:", "file:", "tool:", "provider:", "agent:", "project:", "message:", "outside:")
"""An import runs at a person's command, who chooses what is read; what it brings from elsewhere stays unverified."""


def find_unverified(records: Sequence[EditRecord]) -> dict[str, SourceName]:
    """Return the entries that came from a source and that no person confirmed, each with its source.

    Only a person's edit clears it. Undo, restore, repair and an agent that writes an entry again leave it as it was.
    """
    gone = undone_ids(records)
    found: dict[str, SourceName] = {}
    for record in records:
        entry = record.step.after
        if entry is None:
            continue
        inherited = found.get(record.step.before or "") if record.step.action == "replace" else None
        is_import = record.origin == "import" and not (record.source or "import:").startswith(_OUTSIDE)
        if record.origin in PERSON or is_import:
            if record.id not in gone:
                found.pop(entry, None)
        elif (source := record.source or inherited) is not None:
            found[entry] = source
    return found


def replay(records: Iterable[EditRecord]) -> tuple[str, ...]:
    """Return the entries that the records of one page lead to; a record that does not fit is skipped."""
    entries: tuple[str, ...] = ()
    for record in records:
        following = record.step.apply(entries)
        entries = entries if following is None else following
    return entries
