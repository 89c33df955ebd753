"""Deciding what a page becomes: edits in order, all or nothing, within its budget."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kept.core.errors import Reason, Refused
from kept.memory.edits import Edit, Step
from kept.memory.ledger import Change
from kept.memory.page import ENTRY_DELIMITER, Page


def changed(
    page: Page,
    edits: Sequence[Edit],
    *,
    oldest_first: Callable[[Sequence[str]], list[str]] | None,
) -> Change | Refused:
    """Return the change that `edits` make, or the refusal of the first that cannot be made.

    With `oldest_first` a page that would overflow moves its entries changed longest ago to the
    archive; without it the whole change is refused.
    """
    now, steps, messages = page, tuple[Step, ...](), list[str]()
    for number, edit in enumerate(edits, start=1):
        result = now.edited(edit)
        if isinstance(result, Refused):
            return in_batch(result, number, len(edits), reason=Reason.BATCH)
        now, steps = result.page, (*steps, *result.steps)
        messages.append(result.message)
    change = Change(now.entries, steps, " ".join(dict.fromkeys(messages)) or "Done.")
    if not steps or page.fits(now.entries):
        return change
    if oldest_first is None:
        return over_budget(page, now.entries)
    return _made_room(page, change, oldest_first)


def _made_room(page: Page, change: Change, oldest_first: Callable[[Sequence[str]], list[str]]) -> Change | Refused:
    new = {step.after for step in change.steps}
    entries, moved = change.entries, list[Step]()
    for entry in oldest_first([entry for entry in change.entries if entry not in new]):
        if page.fits(entries):
            break
        place = entries.index(entry)
        moved.append(Step("remove", entry, None, place))
        entries = (*entries[:place], *entries[place + 1 :])
    if not page.fits(entries):
        return over_budget(page, change.entries)
    return replace(change, entries=entries, overflow=tuple(moved), is_only_copy=True)


def over_budget(page: Page, entries: Sequence[str]) -> Refused:
    """Return the refusal of entries that take more room than the page has."""
    size = len(ENTRY_DELIMITER.join(entries))
    return Refused(
        Reason.OVER_BUDGET,
        f"The page would hold {size:,} characters; its limit is {page.limit:,} (now {page.usage}).",
        "Merge entries with replace, or remove stale entries, then retry.",
    )


def too_long(page: Page, entry: str) -> Refused:
    """Return the refusal of one entry that is longer than a whole page may be."""
    return Refused(
        Reason.OVER_BUDGET,
        f"The entry alone has {len(entry):,} characters; the limit of the page is {page.limit:,} (now {page.usage}).",
        "Say it shorter, or keep only the facts that last.",
    )


def in_batch(refused: Refused, number: int, total: int, *, reason: Reason) -> Refused:
    """Return the refusal of one step as that of its whole batch; a single edit is refused as it is."""
    if total == 1:
        return refused
    return Refused(
        reason,
        f"Step {number} of {total} was refused, so nothing was changed: {refused.error}",
        refused.remedy,
        {**refused.detail, "step": number},
    )
