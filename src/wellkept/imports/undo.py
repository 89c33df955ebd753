"""Past imports, and undoing one: conversations, entries, skills and everything else that it added."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import iso_moment
from wellkept.core.errors import KeptError, Reason, Refused
from wellkept.core.events import Progressed
from wellkept.core.ids import SessionId
from wellkept.core.regular_files import explain_errors, load_bytes
from wellkept.core.text import JSON, dumps
from wellkept.imports.assets import is_unchanged, mark_text, remove_skill
from wellkept.imports.record import ImportRun, Journal, Part
from wellkept.storage.files import read_bytes, write_atomically

_STEP = 1_000
"""How many messages one transaction removes, so that others can write in between."""


class ImportList(Struct, frozen=True):
    """The imports of one user, the newest first."""

    runs: tuple[ImportRun, ...]

    def as_json(self) -> list[JSON]:
        """Return one object per import."""
        return [run.as_json() for run in self.runs]


def list_imports(caller: Caller) -> ImportList:
    """Return the imports that were made, the newest first."""
    with caller.database.reading() as unit:
        return ImportList(tuple(Journal(caller.user).runs(unit)))


class UndoneImport(Struct):
    """What undoing an import removed, or with `is_preview` would remove."""

    import_id: str
    source: str
    is_preview: bool
    sessions: int = 0
    messages: int = 0
    entries: int = 0
    skills: int = 0
    others: int = 0
    """Settings, secrets and documents."""
    kept: list[tuple[str, str]] = field(default_factory=list)
    """Items that were changed here since the import, and stay."""

    def as_json(self) -> dict[str, JSON]:
        """Return the counts, and what stays."""
        return {
            "import_id": self.import_id,
            "source": self.source,
            "dry_run": self.is_preview,
            "sessions": self.sessions,
            "messages": self.messages,
            "entries": self.entries,
            "skills": self.skills,
            "others": self.others,
            "kept": [{"where": where, "what": what} for where, what in self.kept],
        }


def undo_import(caller: Caller, import_id: str, *, is_preview: bool = False) -> UndoneImport | Refused:
    """Remove everything that an import added and nobody has changed since.

    An interrupted undo is repeated from the start; completed steps find nothing to do.
    """
    if not is_preview:
        caller.require_person(f"`kept import undo {import_id}`")
        caller.require(Scope.WRITE)
    run = _find_run(caller, import_id)
    if isinstance(run, Refused):
        return run
    result = UndoneImport(run.id, run.source, is_preview)
    refused = _undo_entries(caller, run, result)
    if refused is not None:
        return refused
    _undo_parts(caller, run, result)
    _undo_conversations(caller, run, result)
    if not is_preview:
        _remove_leftovers(run)
        with caller.database.writing() as unit:
            journal = Journal(caller.user)
            journal.drop_parts(unit, run.number)
            journal.set_undone(unit, run.number, now=caller.app.clock.now().timestamp())
    return result


def _find_run(caller: Caller, import_id: str) -> ImportRun | Refused:
    """Return the import with this id, or the only one whose id begins with it."""
    runs = [run for run in list_imports(caller).runs if import_id and run.id.startswith(import_id)]
    exact = [run for run in runs if run.id == import_id] or runs
    if len(exact) != 1:
        what = "several imports begin with" if exact else "there is no import"
        return Refused(Reason.NO_MATCH, f"{what} {import_id!r}", "`kept import list` shows the ids")
    (run,) = exact
    if run.undone is not None:
        moment = iso_moment(run.undone)
        remedy = f"`kept import {run.source}` imports it again"
        return Refused(Reason.MOVED_ON, f"the import {run.id} was undone already, at {moment}", remedy)
    return run


# entries


def _undo_entries(caller: Caller, run: ImportRun, result: UndoneImport) -> Refused | None:
    from wellkept.memory.merge import count_reversible, undo_group

    base = caller.space.memory.for_project(None)
    seen = 0
    for store in (base, *base.projects()):
        undone = count_reversible(store, run.id) if result.is_preview else undo_group(store, run.id)
        if isinstance(undone, Refused):
            return undone
        # a preview finds the rows of the common pages in the store of each project again
        counted = seen if result.is_preview and store is not base else 0
        result.entries += undone.undone - counted
        kept = undone.kept if store is base or not result.is_preview else ()
        result.kept += [("memory", f"changed since: {text}") for text in kept]
        seen = undone.undone if store is base else seen
    if not result.is_preview:
        with caller.database.reading() as unit:
            parts = Journal(caller.user).parts(unit, run.source)
        held = {part.mark for part in parts if part.state == "held" and part.import_number == run.number}
        approvals = caller.space.approvals.for_store(base)
        for pending in approvals.waiting() if held else ():
            if pending.origin == "import" and {mark_text(text) for text in pending.texts} <= held:
                approvals.discard(pending.id)
    return None


# skills, settings, secrets, documents


def _undo_parts(caller: Caller, run: ImportRun, result: UndoneImport) -> None:
    with caller.database.reading() as unit:
        parts = Journal(caller.user).parts(unit, run.source)
    for part in (one for one in parts if one.import_number == run.number and one.kind not in {"entry", "leftover"}):
        try:
            is_gone = (
                _undo_skill(caller, part, result) if part.kind == "skill" else _undo_value(caller, run, part, result)
            )
        except KeptError as error:
            result.kept.append((f"{part.kind} {part.name}", error.message))
            continue
        if not is_gone:
            result.kept.append((f"{part.kind} {part.name}", "changed since"))


def _undo_skill(caller: Caller, part: Part, result: UndoneImport) -> bool:
    if not is_unchanged(caller, part):
        return False
    if not result.is_preview and remove_skill(caller, part) is not None:
        return False
    result.skills += 1
    return True


def _undo_value(caller: Caller, run: ImportRun, part: Part, result: UndoneImport) -> bool:
    """Remove a setting, secret or document that is as the import left it; return whether it is gone."""
    current = _read_value(caller, part)
    if current is None or mark_text(current) != part.mark:
        return current is None
    copy = Path(run.folder or "") / "before" / Path(part.name).name
    if part.state != "added" and not (part.kind == "document" and copy.is_file()):
        return False  # what it replaced is not stored
    if not result.is_preview:
        _remove_value(caller, part, copy if part.state != "added" else None)
    result.others += 1
    return True


def _read_value(caller: Caller, part: Part) -> str | None:
    from wellkept.config.settings import find_value, read_secrets

    match part.kind:
        case "setting":
            value = find_value(caller.app.home.config_file, part.name)
            return None if value is None else dumps(value)
        case "secret":
            return read_secrets(caller.app.home.env_file).get(part.name)
        case _:
            raw = read_bytes(Path(part.name))
            return None if raw is None else raw.decode("utf-8", "replace")


def _remove_value(caller: Caller, part: Part, copy: Path | None) -> None:
    from wellkept.config.settings import unset_secret, unset_value

    caller.require(Scope.ADMIN)
    match part.kind:
        case "setting":
            unset_value(caller.app.home, part.name, why_no_person=caller.why_no_person)
        case "secret":
            unset_secret(caller.app.home.env_file, part.name)
        case _:
            with explain_errors("restore", Path(part.name)):
                if copy is not None:
                    write_atomically(Path(part.name), load_bytes(copy))
                else:
                    Path(part.name).unlink(missing_ok=True)


def _remove_leftovers(run: ImportRun) -> None:
    """Remove the texts that the import left in its folder; the report with the counts stays."""
    if run.folder is None:
        return
    folder = Path(run.folder)
    for name in ("archive", "before"):
        shutil.rmtree(folder / name, ignore_errors=True)
    with suppress(OSError):
        (folder / "overflow.md").unlink(missing_ok=True)


# conversations


def _undo_conversations(caller: Caller, run: ImportRun, result: UndoneImport) -> None:
    journal, database = Journal(caller.user), caller.database
    with database.reading() as unit:
        total = journal.count_messages(unit, run.number)
        created = journal.sessions(unit, run.number)
    if result.is_preview:
        result.messages, result.sessions = total, len(created)
        return
    transfer = caller.space.sessions.transfer
    after = b""
    while True:
        with database.writing() as unit:
            ids, after = journal.take_messages(unit, run.number, after=after, limit=_STEP)
            transfer.undo_import(ids, unit=unit)
        result.messages += len(ids)
        caller.space.listeners(Progressed(f"undoing {run.source}", min(result.messages, total), max(1, total)))
        if len(ids) < _STEP:
            break
    result.messages = min(result.messages, total)
    gone = _undo_sessions(caller, run, created)
    result.sessions = len(gone)
    stay = [session_id for session_id in created if session_id not in gone]
    result.kept += [(f"session {session_id}", "has messages that the import did not add") for session_id in stay]


def _undo_sessions(caller: Caller, run: ImportRun, created: list[SessionId]) -> set[SessionId]:
    """Remove sessions that are empty now and their usage; reset positions, so that transcripts can be read again."""
    journal = Journal(caller.user)
    with caller.database.writing() as unit:
        usage = journal.take_usage(unit, run.number)
        gone = caller.space.sessions.transfer.undo_import((), sessions=created, usage=usage, unit=unit)
        journal.release(unit, run.source, gone)
    return set(gone)
