"""Facts about a project: the entries of its page checked against its files and git, and proposals to retire some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wellkept.app.caller import Scope
from wellkept.core.errors import KeptError, Refused, UsageError
from wellkept.core.values import JsonStruct
from wellkept.memory.page import Author, Remove, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from wellkept.app.caller import Caller
    from wellkept.core.text import JSON
    from wellkept.memory.approval import Pending
    from wellkept.memory.store import MemoryStore
    from wellkept.projectfacts.check import Finding
    from wellkept.projectfacts.remembered import Remembered

_MOST_PROPOSALS = 5
"""The most that one run proposes to retire."""
_MOST_PROJECTS = 20
_RECENT_SESSIONS = 200


class CheckedEntry(JsonStruct, frozen=True):
    """An entry as a model may see it, and what could be said about it, the gravest first."""

    text: str
    findings: tuple[Finding, ...]
    entry: str = ""
    """The entry as it is stored; not in JSON."""

    @property
    def verdict(self) -> str | None:
        """The gravest verdict, None if nothing could be said."""
        return self.findings[0].verdict.value if self.findings else None

    @property
    def is_gone(self) -> bool:
        """Whether everything that it names is gone, by commits."""
        from wellkept.projectfacts.check import Verdict

        return bool(self.findings) and all(
            finding.verdict is Verdict.GONE and finding.is_committed for finding in self.findings
        )

    def as_json(self) -> dict[str, JSON]:
        """Return the entry with its findings."""
        return {"text": self.text, "verdict": self.verdict, "findings": [one.as_json() for one in self.findings]}


class CheckedProject(JsonStruct, frozen=True):
    """The page of a project, entry by entry."""

    project: str
    entries: tuple[CheckedEntry, ...]
    proposed: tuple[Pending, ...] = ()
    """What was proposed for retirement by this check."""

    def as_json(self) -> dict[str, JSON]:
        """Return the entries, and the ids of the proposals."""
        return {
            "project": self.project,
            "entries": [one.as_json() for one in self.entries],
            "proposed": [one.id for one in self.proposed],
        }


def check_project(caller: Caller, project: str | None = None) -> CheckedProject:
    """Return what the project confirms of its page; reads only, and only below the project's folder.

    `project` is a folder in the project; without it, the one that this process works in.
    """
    root, store = _find_project(caller, project)
    return _check(store, root)[0]


def _find_project(caller: Caller, project: str | None) -> tuple[Path, MemoryStore]:
    folder = str(caller.app.folder) if project is None else project
    root, store = caller.space.project_of(folder), caller.space.memory_in(folder)
    if root is None:
        raise UsageError("there is no project here", "run it in the folder of a project, or name one with --project")
    return root, store


def _check(store: MemoryStore, root: Path) -> tuple[CheckedProject, Remembered | None]:
    from wellkept.projectfacts.check import check_entries

    entries = store.entries(Target.PROJECT)
    checked = check_entries(root, store.changed_times(Target.PROJECT, entries))
    masked = store.mask(Target.PROJECT, entries, is_page=True)
    found = tuple(
        CheckedEntry(text, checked.findings.get(entry, ()), entry) for entry, text in zip(entries, masked, strict=True)
    )
    return CheckedProject(str(root), found), checked.remembered if entries else None


def find_facts(caller: Caller) -> Mapping[str, tuple[Finding, ...]]:
    """Return what can quickly be said about the entries of this project's page, for a page that shows them."""
    from wellkept.projectfacts.check import SHOWN, check_entries

    root, store = caller.space.project_of(str(caller.app.folder)), caller.space.memory
    if root is None or not caller.app.settings.memory.check_project or not store.is_enabled(Target.PROJECT):
        return {}
    try:
        entries = store.entries(Target.PROJECT)
    except KeptError:
        return {}  # an unreadable page is reported by whatever shows it
    return check_entries(root, store.changed_times(Target.PROJECT, entries), SHOWN).findings


def note_entries(caller: Caller, entries: Sequence[str]) -> Mapping[str, str]:
    """Return short notes for a model on the entries of this project's page that the project no longer confirms."""
    return caller.space.memory.note_facts(entries)


def propose_retirements(caller: Caller, project: str | None = None) -> CheckedProject:
    """Check a project's page, and propose to remove each entry of which all is gone; a person decides.

    What was once decided, or has expired, is not proposed again.
    """
    caller.require(Scope.WRITE)
    root, store = _find_project(caller, project)
    checked, remembered = _check(store, root)
    if remembered is not None and store.project is not None:
        documents, name = caller.space.fact_documents(store.project)
        documents.write(name, remembered.dump())
    approvals = caller.space.approvals.for_store(store)
    waiting = {one.edits for one in approvals.waiting(Target.PROJECT) if one.project == store.project}
    decided = _list_decided(store)
    proposed: list[Pending] = []
    for one in checked.entries:
        edits = (Remove(one.entry),)
        if not one.is_gone or one.entry in decided or edits in waiting or len(proposed) == _MOST_PROPOSALS:
            continue
        if isinstance(store.dry_run(Target.PROJECT, edits, Author()), Refused):
            continue  # another entry contains it
        names = ", ".join(finding.claim for finding in one.findings)
        author = Author(origin="background_review", session_id=caller.session_id)
        proposed.append(approvals.stage(Target.PROJECT, edits, author, why=f"gone from the project: {names}"))
    return CheckedProject(checked.project, checked.entries, tuple(proposed))


def _list_decided(store: MemoryStore) -> set[str]:
    """Return the entries that a person wanted to keep when their removal was proposed."""
    rows = store.ledger.rows(Target.PROJECT)
    return {row.step.before for row in rows if row.step.action == "archive" and row.step.before is not None}


def propose_recent_retirements(caller: Caller) -> None:
    """Check the pages of the projects of the last sessions; part of idle work."""
    settings = caller.app.settings
    if not settings.memory.check_project or not settings.review.enabled or not caller.space.memory.pages.projects():
        return
    sessions = caller.space.sessions.recent(limit=_RECENT_SESSIONS)
    folders = list(dict.fromkeys([str(caller.app.folder), *(one.project for one in sessions if one.project)]))
    for folder in folders[:_MOST_PROJECTS]:
        root = caller.space.project_of(folder)
        if root is None or not root.is_dir():
            continue
        try:
            propose_retirements(caller, folder)
        except KeptError:
            continue  # a page that cannot be read is reported by whatever shows it
