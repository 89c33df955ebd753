"""Import of memory files into the pages: parse, compare with the last import, scan, merge."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.core.errors import KeptError, Reason, Refused, StorageError
from wellkept.core.ids import SourceName
from wellkept.imports.assets import AssetImport, mark_text
from wellkept.imports.record import Part
from wellkept.memory.merge import Fate, Incoming, Merged, check_texts, merge, merge_into, tidy
from wellkept.memory.page import Add, Author, Page, Target
from wellkept.memory.store import MemoryStore, rules_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wellkept.formats.port import MemoryFile

_OURS = frozenset((Fate.ADDED, Fate.REPLACED))
"""Fates of entries that an earlier import put on the page and a later one may change."""


class _File(Struct):
    """A memory file: the changes of its entries compared with the last import."""

    source: MemoryFile
    incoming: list[Incoming] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    parts: list[Part | None] = field(default_factory=list)
    """The record of each entry; None if the merge decides it, in the order of `incoming`."""
    conflicts: int = 0


class _Page(Struct):
    """One page and the files that are merged into it."""

    store: MemoryStore
    target: Target
    files: list[MemoryFile] = field(default_factory=list)


def import_memory(run: AssetImport, files: Sequence[MemoryFile]) -> None:
    """Merge memory files into their pages; a page that cannot be written is reported for its files."""
    for page in _group(run, files):
        try:
            if not run.is_preview:
                run.caller.require_person("`kept import`")
            refused = _import_page(run, page)
        except KeptError as error:
            refused = Refused(Reason.UNAVAILABLE, error.message, error.remedy)
            run.tally.is_incomplete |= isinstance(error, StorageError)
        if refused is not None:
            run.tally.problems += [(file.name, f"{refused.error} {refused.remedy}") for file in page.files]


def _group(run: AssetImport, files: Sequence[MemoryFile]) -> list[_Page]:
    """Return the pages with their files; files of excluded projects are dropped."""
    from wellkept.imports.conversations import is_excluded

    space, settings = run.caller.space, run.caller.app.settings
    home = run.caller.app.environ.get("HOME", "")
    pages: dict[tuple[Target, str | None], _Page] = {}
    for file in files:
        if is_excluded(file.folder, settings.connect.exclude, home):
            continue
        store, target = space.memory.for_project(None), file.target
        if target is Target.PROJECT:
            store = space.memory_in(file.folder)
            target = Target.MEMORY if store.project is None else target  # the person's home folder is not a project
        pages.setdefault((target, store.project), _Page(store, target)).files.append(file)
    return list(pages.values())


def _import_page(run: AssetImport, page: _Page) -> Refused | None:
    live = page.store.page(page.target)
    compared = [_compare(run, file, live) for file in page.files]
    incoming = [one for file in compared for one in file.incoming]
    dropped = [entry for file in compared for entry in file.dropped]
    archived = _list_archived(page) if incoming else frozenset[str]()
    source = SourceName(f"import:{run.source}")
    author = Author(origin="import", group_id=run.import_id, reason=run.source, source=source)
    refused = check_texts(page.store, page.target, [one.text for one in incoming])
    outcome: Merged | Refused | None = page.store.check(page.target, (), author)
    if outcome is None and (run.is_preview or not (incoming or dropped)):
        outcome = merge(live, incoming, dropped=dropped, refused=refused, archived=archived)
    elif outcome is None:
        decide = partial(merge, incoming=incoming, dropped=dropped, refused=refused, archived=archived)
        outcome = merge_into(page.store, page.target, decide, author)
    if isinstance(outcome, Refused):
        return outcome
    _settle(run, page, compared, outcome, refused)
    return None


def _list_archived(page: _Page) -> frozenset[str]:
    from wellkept.memory.history import History

    return frozenset(row.step.before for row in History(page.store).archive(target=page.target) if row.step.before)


def _compare(run: AssetImport, file: MemoryFile, live: Page) -> _File:
    """Return which entries of a file are new, changed or removed."""
    from wellkept.formats.markdown import parse_entries

    found = _File(file)
    pieces = parse_entries(file.text, file.heading) if file.entries is None else file.entries
    texts = list(dict.fromkeys(entry for piece in pieces if (entry := tidy(piece)) is not None))
    known = list(run.known.get(("entry", file.name), ()))
    old, new = [part.mark for part in known], [mark_text(text) for text in texts]
    on_page = {mark_text(entry): entry for entry in live.entries}
    by_mark = {part.mark: part for part in known}
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        gone = [part for part in known[first:last] if part.mark not in new] if tag != "equal" else []
        for number in range(start, end):
            if new[number] in by_mark:
                found.parts.append(by_mark[new[number]])
                continue
            before = gone.pop(0) if gone else None
            _take_entry(run, found, texts[number], before, on_page)
        found.dropped += [on_page[part.mark] for part in gone if part.state in _OURS and part.mark in on_page]
    return found


def _take_entry(run: AssetImport, found: _File, text: str, before: Part | None, on_page: Mapping[str, str]) -> None:
    """Decide what to do with an entry that the last import did not have; `before` is its predecessor there."""
    is_ours = before is not None and before.state in _OURS
    replaces = on_page.get(before.mark) if before is not None and is_ours else None
    if is_ours and replaces is None and mark_text(text) not in on_page and not run.overwrite:
        # somebody changed or removed the entry here, so the source's version must not replace it
        found.conflicts += 1
        found.parts.append(before)
        return
    found.incoming.append(Incoming(text, replaces, found.source.is_archive))
    found.parts.append(None)


def _settle(
    run: AssetImport, page: _Page, compared: Sequence[_File], merged: Merged, refused: Mapping[str, Refused]
) -> None:
    """Count the outcome of every entry, stage held ones for approval, and record it for the next import."""
    fates = iter(merged.fates)
    for file in compared:
        decided = [(one, next(fates)) for one in file.incoming]
        for one, fate in decided:
            _count(run, file.source, one.text, fate)
            if fate is Fate.HELD and not run.is_preview:
                _stage(run, page, one.text, refused[one.text])
        run.tally.merged += len(file.dropped)
        _report(run, file, decided, refused)
        made = iter(
            Part("entry", file.source.name, 0, mark_text(one.text), fate.value, page.target.value, run.number)
            for one, fate in decided
        )
        parts = [next(made) if part is None else part for part in file.parts]
        if decided or file.dropped:
            run.remember("entry", file.source.name, parts)


def _count(run: AssetImport, file: MemoryFile, text: str, fate: Fate) -> None:
    tally = run.tally
    match fate:
        case Fate.REPLACED:
            tally.merged += 1
            tally.entries["added"] += 1
        case Fate.PRESENT:
            tally.present += 1
        case _:
            tally.entries[fate.value] += 1
    if fate is Fate.ARCHIVED:
        tally.overflow.append((file.name, text))


def _report(
    run: AssetImport, file: _File, decided: Sequence[tuple[Incoming, Fate]], refused: Mapping[str, Refused]
) -> None:
    """Name the files of entries that were refused or are in conflict; their texts are never printed."""
    name = file.source.name
    if file.conflicts:
        run.tally.entry_conflicts += file.conflicts
        run.tally.conflicts.append((name, f"entries that were changed here since the last import: {file.conflicts}"))
    for fate, what in ((Fate.BLOCKED, "the scanner refuses"), (Fate.HELD, "waits for approval (kept memory pending)")):
        rules = {rule for one, found in decided if found is fate for rule in rules_in(refused[one.text])}
        count = sum(found is fate for _, found in decided)
        if count:
            run.tally.problems.append((name, f"entries that {what}: {count}, {', '.join(sorted(rules))}"))


def _stage(run: AssetImport, page: _Page, text: str, refused: Refused) -> None:
    approvals = run.caller.space.approvals.for_store(page.store)
    sources = {text: SourceName(f"import:{run.source}")}
    author = Author(origin="import", group_id=run.import_id, sources=sources)
    why = f"imported from {run.source}"
    approvals.stage(page.target, [Add(text)], author, why=why, rules=sorted(rules_in(refused)))


def count_new_files(files: Sequence[MemoryFile], known: Mapping[tuple[str, str], Sequence[Part]]) -> int:
    """Return how many memory files have entries that no import has seen yet."""
    from wellkept.formats.markdown import parse_entries

    count = 0
    for file in files:
        pieces = parse_entries(file.text, file.heading) if file.entries is None else file.entries
        marks = {part.mark for part in known.get(("entry", file.name), ())}
        count += any(mark_text(entry) not in marks for piece in pieces if (entry := tidy(piece)) is not None)
    return count
