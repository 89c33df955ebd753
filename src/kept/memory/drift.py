"""Drift: a page that was changed from outside in a way that writing it back would damage."""

from collections.abc import Collection, Sequence

from kept.memory.page import has_delimiter_line


def drifted(entries: Sequence[str], limit: int, known: Collection[str]) -> str | None:
    """Return what is wrong with a page that was just read, None when it can be written back safely.

    Cosmetic differences (white space, blank entries, duplicates, line ends) are no drift: reading
    has normalised them. `known` holds the entries that the ledger wrote itself.
    """
    for number, entry in enumerate(entries, start=1):
        if has_delimiter_line(entry):
            return f"entry {number} has a line of '§' that is no clean delimiter"
        if len(entry) > limit and entry not in known:
            return f"entry {number} is longer than the whole page may be ({len(entry):,} of {limit:,} characters)"
    return None
