"""A whole page at once: written anew by a person, or emptied."""

from kept.core.errors import Reason, Refused
from kept.memory.edits import Add, Target, steps_between
from kept.memory.ledger import Author, Change
from kept.memory.objection import held_rules
from kept.memory.page import Page
from kept.memory.store import MemoryStore, Outcome


def rewrite(
    store: MemoryStore, target: Target, entries: tuple[str, ...], *, before: Page, keep_held: bool = False
) -> Outcome | Refused:
    """Replace the page `before`, as it was handed out, by `entries`; each new one is checked like an added one.

    With `keep_held` a person has said yes to what the scanner only holds.
    """
    new = [Add(entry) for entry in entries if entry not in before.entries]
    author = Author()
    refused = store.checked(target, new, author)
    if keep_held and refused is not None and refused.reason is Reason.HELD:
        passing = held_rules(edit.text for edit in new)
        if isinstance(passing, Refused):
            return passing
        author = Author(allow=passing)
        refused = store.checked(target, new, author)
    if refused is not None:
        return refused

    def decide(live: Page) -> Change | Refused:
        if live.entries != before.entries:
            return Refused(Reason.MOVED_ON, "The page was changed while you edited it.", "edit it again")
        if not live.fits(entries) and entries != live.entries:
            return Refused(Reason.OVER_BUDGET, f"That is longer than {live.limit:,} characters.", "shorten it")
        return Change(entries, steps_between(live.entries, entries), "Page edited.")

    return store.write(target, decide, author)


def empty(store: MemoryStore, target: Target, author: Author) -> Outcome | Refused:
    """Take every entry off a page; each stays in the archive, or nothing is changed.

    Pages that one author empties are one group: one undo brings them all back.
    """

    def decide(live: Page) -> Change:
        message = f"{len(live.entries)} entries archived."
        return Change((), steps_between(live.entries, ()), message, is_only_copy=True)

    return store.write(target, decide, author)
