"""Undo and restore: new edits that reverse earlier ones, or put an archived text back."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from wellkept.core.errors import NotFound, Reason, Refused, UsageError
from wellkept.core.ids import LedgerId
from wellkept.core.text import JSON
from wellkept.memory.edits import Add, Author, Change, EditRecord, Step, Target, undone_ids
from wellkept.memory.history import History, targets
from wellkept.memory.page import Page, preview
from wellkept.memory.store import MemoryStore, Outcome


class Undone(Struct, frozen=True):
    """What an undo did, one outcome per page."""

    outcomes: tuple[Outcome, ...]
    group_id: str
    """Undoing this group brings the edits back."""

    @property
    def ledger_ids(self) -> list[LedgerId]:
        """Return the ids of the undo's own rows."""
        return [number for outcome in self.outcomes for number in outcome.ledger_ids]

    @property
    def redo_command(self) -> str:
        """Return the command that brings the edits back; `undo` without an id would undo one edit more."""
        ids = self.ledger_ids
        if len(ids) == 1:
            return f"kept memory undo {ids[0]}"
        return f"kept memory undo --review {self.group_id}" if ids else ""

    def as_json(self) -> dict[str, JSON]:
        """Return the result as `kept memory undo --json` prints it."""
        return {"success": True, "undone": [outcome.as_json() for outcome in self.outcomes]}


def undo(
    store: MemoryStore,
    *,
    ledger_id: int | None = None,
    group_id: str | None = None,
    target: Target | None = None,
) -> Undone | Refused:
    """Undo one row, one group, or the newest group that is not undone yet.

    Edits by hand are undone only by their id: kept promised to undo its own, and after a loss of the ledger the whole
    page looks like one edit by hand. Undoing an undo brings the edit back. Refused, with the reason, when the page has
    changed since, or a text of an edit was forgotten.
    """
    _record_outside_edits(store, target)
    rows = choose_edits(store, ledger_id, group_id, target)
    if isinstance(rows, Refused):
        return rows
    rest = _describe_rest_of_group(store, rows[0]) if ledger_id is not None else ""
    author = Author(origin="undo")
    by_page = {page: of_page for page in store.targets if (of_page := [row for row in rows if row.target is page])}
    # try every page before writing one, so that a group over both pages is undone as a whole or not at all
    for page, of_page in by_page.items():
        change = _reverse(of_page, store.page(page))
        if isinstance(change, Refused):
            return change
    outcomes = []
    for page, of_page in by_page.items():
        result = store.write(page, partial(_reverse, of_page, rest=rest), author)
        if isinstance(result, Refused):
            return result
        outcomes.append(result)
    return Undone(tuple(outcomes), author.group_id)


def restore(store: MemoryStore, ledger_id: int, *, target: Target | None = None) -> Outcome | Refused:
    """Add the text that an edit removed again; scanner rules that a person allowed for it stay allowed."""
    row = History(store).row(ledger_id, target)
    if row.step.is_forgotten:
        return _refuse_forgotten(row, "restored")
    if row.step.before is None:
        raise UsageError(f"edit {row.id} removed nothing", "`kept memory search WORD` lists what can be restored")
    allow = store.allowed_rules(row.target, row.step.before)
    author = Author(reason=f"restored from edit {row.id}", allow=allow)
    return store.apply(row.target, Add(row.step.before), author)


def _record_outside_edits(store: MemoryStore, target: Target | None) -> None:
    """Record edits made by hand in the ledger, so that the log lists them with an id."""
    for page in targets(store, target):
        store.write(page, lambda known: Change(known.entries, ()), Author(origin="undo"))


def choose_edits(
    store: MemoryStore, ledger_id: int | None, group_id: str | None, target: Target | None
) -> list[EditRecord] | Refused:
    """Return the edits that an undo would reverse."""
    history = History(store)
    rows = history.rows()
    gone = undone_ids(rows)
    if ledger_id is not None:
        row = history.row(ledger_id)
        if row.id in gone:
            return Refused(Reason.MOVED_ON, f"Edit {row.id} is undone already.", "Undo the undo's id to bring it back.")
        return [row]
    if group_id is not None:
        group = [row for row in rows if row.group_id == group_id and row.id not in gone]
        if not group:
            raise NotFound(f"there is nothing to undo in {group_id!r}", "`kept memory log` lists the edits")
        return group
    open_rows = [
        row
        for row in rows
        if row.undoes is None
        and row.id not in gone
        and (row.step.action != "archive" or row.is_damaged)
        and row.origin != "outside"
        and target in (None, row.target)
    ]
    if not open_rows:
        return _refuse_nothing_left(store, target)
    return [row for row in open_rows if row.group_id == open_rows[-1].group_id]


def _refuse_nothing_left(store: MemoryStore, target: Target | None) -> Refused:
    if any(store.page(page).entries for page in targets(store, target)):
        return Refused(
            Reason.NO_MATCH,
            "There is no edit of kept left to undo; what is on the page was there before, or was written by hand.",
            "`kept memory log` lists edits by hand, and `kept memory undo ID` undoes one.",
        )
    return Refused(Reason.NO_MATCH, "There is no edit left to undo.", "`kept memory log` lists the edits.")


def _describe_rest_of_group(store: MemoryStore, taken: EditRecord) -> str:
    """Return which edits of the same group stay, and the command that undoes them too."""
    rows = History(store).rows()
    known = undone_ids(rows) | {taken.id}
    others = [row.id for row in rows if row.group_id == taken.group_id and row.id not in known]
    if not others:
        return ""
    command = f"kept memory undo --review {taken.group_id}"
    return f" alone; {_edits(others)} of the same batch stay (to undo them too: {command})"


def _reverse(rows: Sequence[EditRecord], page: Page, *, rest: str = "") -> Change | Refused:
    entries, steps, undoes = page.entries, list[Step](), []
    for row in reversed(rows):
        if row.is_damaged:
            return Refused(
                Reason.MOVED_ON,
                f"Edit {row.id} cannot be undone, because its row in the ledger is damaged.",
                "`kept memory repair` rebuilds or marks it; `kept memory undo ID` undoes another edit.",
            )
        if row.step.is_forgotten:
            return _refuse_forgotten(row, "undone")
        step = row.step.inverse()
        following = step.apply(entries)
        if following is None:
            return _refuse_conflict(row, step, entries)
        place = _actual_place(step, entries, following)
        entries = following
        steps.append(Step(step.action, step.before, step.after, place))
        undoes.append(row.id)
    if not page.fits(entries):
        return Refused(
            Reason.OVER_BUDGET,
            f"Undoing would make the page longer than its limit of {page.limit:,} characters.",
            "Remove an entry first, then undo again.",
        )
    return Change(entries, tuple(steps), f"Undone: {_edits([row.id for row in rows])}{rest}.", undoes=tuple(undoes))


def _actual_place(step: Step, before: tuple[str, ...], after: tuple[str, ...]) -> int:
    if step.action == "add" and step.after is not None:
        return after.index(step.after)
    return before.index(step.before) if step.before is not None else step.position


def _refuse_forgotten(row: EditRecord, action: str) -> Refused:
    return Refused(
        Reason.MOVED_ON,
        f"Edit {row.id} cannot be {action}, because its text was forgotten, which is permanent.",
        "`kept memory log` lists the edits; `kept memory undo ID` undoes another one.",
    )


def _refuse_conflict(row: EditRecord, step: Step, entries: tuple[str, ...]) -> Refused:
    if step.before is not None and step.before not in entries:
        why = f"the entry it wrote is not on the page any more: {preview(step.before)!r}"
    else:
        why = f"the entry it would bring back is there already: {preview(step.after or '')!r}"
    return Refused(
        Reason.MOVED_ON,
        f"Edit {row.id} cannot be undone, because {why}.",
        "See `kept memory log`, undo the later edit first, or edit the page by hand.",
    )


def _edits(numbers: Sequence[int]) -> str:
    return f"edit{'s' if len(numbers) > 1 else ''} {', '.join(str(number) for number in numbers)}"
