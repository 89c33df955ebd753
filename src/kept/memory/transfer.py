"""Carrying pages in and out: JSON or a page file, checked like any other write."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kept.core.errors import Reason, Refused, UsageError
from kept.core.ids import new_group_id
from kept.memory.edits import Add, Target
from kept.memory.ledger import Author
from kept.memory.objection import named_rules
from kept.memory.page import parse, preview
from kept.memory.store import MemoryStore


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of each text: on the page, already there, in the archive, or refused with the reason."""

    added: tuple[str, ...]
    present: tuple[str, ...]
    archived: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    group_id: str


def read_pages(text: str, target: Target) -> Mapping[Target, tuple[str, ...]]:
    """Return the entries in an export (`{"memory": {"entries": […]}, …}` or lists), or in a page file."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {target: parse(text)}
    if not isinstance(data, dict | list):
        return {target: parse(text)}
    if not isinstance(data, dict) or not any(page in data for page in Target):
        raise UsageError("the file holds neither an export nor a page", "`kept memory export` shows the form")
    pages = {}
    for page in Target:
        entries = data.get(page.value, [])
        if isinstance(entries, dict):
            entries = entries.get("entries", [])
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
            raise UsageError(f"{page.value!r} in the file is no list of texts", "`kept memory export` shows the form")
        pages[page] = tuple(entries)
    return pages


def import_page(store: MemoryStore, target: Target, entries: tuple[str, ...], *, keep_held: bool = False) -> Imported:
    """Add each text that fits and is clean; what does not fit goes to the archive.

    Rules that a person once let pass for a text pass again; with `keep_held` they let pass what is only held.
    """
    author = Author(origin="import", group_id=new_group_id())
    added, present, archived, refused = list[str](), list[str](), list[str](), list[tuple[str, str]]()
    for entry in entries:
        if entry in store.page(target).entries:
            present.append(entry)
            continue
        known = store.allowed(target, entry)
        outcome = store.apply(target, Add(entry), replace(author, allow=known))
        if isinstance(outcome, Refused) and outcome.reason is Reason.HELD and keep_held:
            outcome = store.apply(target, Add(entry), replace(author, allow=known | named_rules(outcome)))
        is_too_much = isinstance(outcome, Refused) and outcome.reason is Reason.OVER_BUDGET
        if is_too_much:
            outcome = store.archive(target, [entry], author)
        if isinstance(outcome, Refused):
            refused.append((preview(entry), outcome.error))
        else:
            (archived if is_too_much else added).append(entry)
    return Imported(tuple(added), tuple(present), tuple(archived), tuple(refused), author.group_id)
