"""Taking edits back: a new edit that reverses a whole group or a single row, or puts an archived text back."""

from collections.abc import Sequence
from functools import partial

from kept.core.errors import NotFound, Reason, Refused, UsageError
from kept.memory.edits import Add, Author, Change, Entered, Step, Target, undone
from kept.memory.history import History
from kept.memory.page import Page, preview
from kept.memory.store import MemoryStore, Outcome


def undo(
    store: MemoryStore,
    *,
    ledger_id: int | None = None,
    group_id: str | None = None,
    target: Target | None = None,
) -> list[Outcome] | Refused:
    """Take back one row, one group, or the newest group not yet undone; return one outcome per page.

    Taking back an undo brings the edit back. Refused, with the reason, when the page has moved on.
    """
    _settle(store, target)
    rows = _chosen(store, ledger_id, group_id, target)
    if isinstance(rows, Refused):
        return rows
    rest = _rest_of_group(store, rows[0]) if ledger_id is not None else ""
    author = Author(origin="undo")
    by_page = {page: of_page for page in Target if (of_page := [row for row in rows if row.target is page])}
    for page, of_page in by_page.items():  # tried first, so that a group over both pages is undone whole or not at all
        refused = _reversed(of_page, store.page(page))
        if isinstance(refused, Refused):
            return refused
    outcomes = []
    for page, of_page in by_page.items():
        result = store.write(page, partial(_reversed, of_page, rest=rest), author)
        if isinstance(result, Refused):
            return result
        outcomes.append(result)
    return outcomes


def restore(store: MemoryStore, row: Entered) -> Outcome | Refused:
    """Add the text that a row took away once more; rules that a person let pass for it pass again."""
    if row.step.before is None:
        raise UsageError(f"edit {row.id} removed nothing", "`kept memory search WORD` lists what can be restored")
    allow = store.allowed(row.target, row.step.before)
    author = Author(reason=f"restored from edit {row.id}", allow=allow)
    return store.apply(row.target, Add(row.step.before), author)


def _settle(store: MemoryStore, target: Target | None) -> None:
    """Let the ledger know of edits by hand, so that they count as the newest, as they are."""
    for page in Target if target is None else (target,):
        store.write(page, lambda known: Change(known.entries, ()), Author(origin="undo"))


def _chosen(
    store: MemoryStore, ledger_id: int | None, group_id: str | None, target: Target | None
) -> list[Entered] | Refused:
    history = History(store)
    rows = history.rows()
    gone = undone(rows)
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
        if row.undoes is None and row.id not in gone and row.step.action != "archive" and target in (None, row.target)
    ]
    if not open_rows:
        return Refused(Reason.NO_MATCH, "There is no edit left to undo.", "`kept memory log` lists the edits.")
    return [row for row in open_rows if row.group_id == open_rows[-1].group_id]


def _rest_of_group(store: MemoryStore, taken: Entered) -> str:
    """Return what else was written together with the one row that is taken back, and how to take that back too."""
    rows = History(store).rows()
    known = undone(rows) | {taken.id}
    others = [row.id for row in rows if row.group_id == taken.group_id and row.id not in known]
    if not others:
        return ""
    return f" alone; {_edits(others)} of the same batch stay (them too: kept memory undo --review {taken.group_id})"


def _reversed(rows: Sequence[Entered], page: Page, *, rest: str = "") -> Change | Refused:
    entries, steps, undoes = page.entries, list[Step](), []
    for row in reversed(rows):
        step = row.step.inverse()
        following = step.applied(entries)
        if following is None:
            return _moved_on(row, step, entries)
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


def _moved_on(row: Entered, step: Step, entries: tuple[str, ...]) -> Refused:
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
