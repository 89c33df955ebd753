"""Import: conversations are captured, everything else is applied, and a report says what was created or left out."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.connect.capture import capture_file, capture_files, open_capture, prune_captures
from wellkept.core.clock import iso
from wellkept.core.errors import Refused, StorageError
from wellkept.core.events import Progressed
from wellkept.core.ids import new_group_id
from wellkept.core.text import JSON, dumps
from wellkept.imports.sources import FoundSource, ImportChoices, exists, read_stamp
from wellkept.storage.files import make_folder, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from wellkept.formats.port import Source
    from wellkept.imports.assets import AssetImport, AssetTally
    from wellkept.imports.capture import Capture
    from wellkept.imports.record import Tally

_LISTED = 1_000


class ImportReport(Struct, frozen=True):
    """What an import did, or with `is_preview` would do."""

    source: str
    import_id: str | None
    """None for a preview, and where nothing was new."""
    sessions: dict[str, int]
    """How many conversations are new, updated, unchanged or skipped."""
    messages: dict[str, int]
    replaced: int
    """Messages that replaced an incomplete form."""
    left: dict[str, int]
    """How many rows were left out, by reason."""
    unknown: dict[str, int]
    """How many parts of the transcripts the reader does not know, by kind; they are not stored."""
    conflicts: tuple[tuple[str, str], ...]
    """What was changed on both sides, and stays as it is here."""
    problems: tuple[tuple[str, str], ...]
    """Where something could not be read, and why."""
    assets: AssetTally
    is_preview: bool
    is_complete: bool = True
    """Whether every transcript was read and understood as a whole; what was not is in `problems`."""
    report: Path | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is new."""
        return not (self.sessions["new"] + self.sessions["updated"]) and self.assets.is_empty

    def rows(self) -> list[tuple[str, tuple[int, int, int, int]]]:
        """Return the table of the preview: what is created, merged, skipped and in conflict."""
        sessions, entries, skills = self.sessions, self.assets.entries, self.assets.skills
        messages = len(self.conflicts) - len(self.assets.conflicts)
        told = sum(count for name, count in self.messages.items() if name != "tool_calls")
        rows = [
            ("conversations", (sessions["new"], sessions["updated"], sessions["unchanged"] + sessions["skipped"], 0)),
            ("messages", (told, self.replaced, sum(self.left.values()), messages)),
            ("entries", (
                entries["added"], self.assets.merged,
                self.assets.present + entries["held"] + entries["blocked"], self.assets.entry_conflicts,
            )),
            *([("archived", (entries["archived"], 0, 0, 0))] if entries["archived"] else []),
            ("skills", (
                skills["added"], skills["updated"], skills["unchanged"] + skills["blocked"], skills["conflicts"],
            )),
        ]  # fmt: skip
        return rows + [
            (name, (counts["added"], counts["updated"], counts["unchanged"], counts["conflicts"]))
            for name, counts in self.assets.others.items()
        ]

    @property
    def is_refused(self) -> bool:
        """Whether nothing could be read: the file is not an export, or cannot be trusted."""
        is_read = self.sessions["unchanged"] or self.left or self.assets.present
        return bool(self.problems) and self.is_empty and not is_read

    def as_json(self) -> dict[str, JSON]:
        """Return the counts, conflicts and problems, and the file with the report."""
        return {
            "source": self.source,
            "import_id": self.import_id,
            "dry_run": self.is_preview,
            "sessions": dict(self.sessions),
            "messages": dict(self.messages),
            "entries": dict(self.assets.entries),
            "skills": dict(self.assets.skills),
            **{name: dict(counts) for name, counts in self.assets.others.items()},
            "conflicts": _list_pairs(self.conflicts),
            "left_out": dict(self.left),
            "unknown": dict(self.unknown),
            "complete": self.is_complete,
            "leftovers": _list_pairs(self.assets.left),
            "warnings": list(self.assets.cautions),
            "problems": _list_pairs(self.problems),
            "report": None if self.report is None else str(self.report),
        }


def _list_pairs(pairs: Sequence[tuple[str, str]]) -> list[JSON]:
    return [{"where": where, "what": what} for where, what in pairs[:_LISTED]]


def write_report(caller: Caller, report: ImportReport, folder: Path) -> Path:
    """Write the report, and the entries that did not fit their pages."""
    make_folder(folder)
    if report.assets.overflow:
        lines = [f"## {name}\n\n{text}\n" for name, text in report.assets.overflow]
        head = "# Entries that did not fit their page; `kept memory search` finds them in the archive\n"
        write_atomically(folder / "overflow.md", "\n".join([head, *lines]).encode())
    path = folder / "report.json"
    value: dict[str, Any] = {**report.as_json(), "finished": iso(caller.app.clock.now()), "report": str(path)}
    write_atomically(path, f"{dumps(value, indent=2)}\n".encode())
    return path


log = logging.getLogger(__name__)

_GATEWAY_SECONDS = 0.5
_GATEWAY_BYTES = 10_000
_DERIVED = ("codex", ".sqlite")
"""Codex's database follows its rollouts, which are watched themselves; it would be copied at every turn."""
_BROKEN = frozenset(("broken line", "cannot be read"))


class _Course(Struct):
    """One run over the transcripts of a source."""

    task: str
    total: int
    tell: Callable[[Progressed], None]
    done: int = 0
    unchanged: int = 0
    """Transcripts with nothing new since they were last read."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    first: dict[str, str] = field(default_factory=dict)
    """The first transcript in which something of each kind was not understood."""

    def advance(self, path: Path) -> None:
        self.done += read_stamp(path)[1]
        self.tell(Progressed(self.task, min(self.done, self.total), self.total))


def preview_import(caller: Caller, found: FoundSource, choices: ImportChoices | None = None) -> ImportReport:
    """Return what an import would store; nothing is changed."""
    from wellkept.imports.capture import Purpose

    chosen = choices or ImportChoices()
    capture = open_capture(caller, found.source, is_preview=True, purpose=Purpose(overwrite=chosen.overwrite))
    course = _capture_all(caller, found, capture, "reading")
    assets = _open_assets(caller, found, chosen, import_id="", number=0, folder=caller.space.home.migration)
    assets = replace(assets, is_preview=True)
    assets.run(found.assets)
    _warn_of_gateway(caller, assets)
    return _report(found, capture.tally, course, assets.tally, import_id=None)


def run_import(caller: Caller, found: FoundSource, choices: ImportChoices | None = None) -> ImportReport | Refused:
    """Back up the home, then store everything of a source once; if anything was new, leave a report in the home."""
    from wellkept.imports.capture import Purpose
    from wellkept.imports.record import Journal

    caller.require(Scope.WRITE)
    chosen, journal = choices or ImportChoices(), Journal(caller.user)
    moment, import_id = caller.app.clock.now(), new_group_id()
    if chosen.with_backup and found.has_news and _has_something(caller):
        kept = _back_up(caller, found.source)
        if isinstance(kept, Refused):
            return kept
    with caller.database.writing() as unit:
        number = journal.begin(unit, import_id, found.source, now=moment.timestamp())
    purpose = Purpose(number, chosen.overwrite)
    capture = open_capture(caller, found.source, purpose=purpose)
    course = _capture_all(caller, found, capture, "importing")
    folder = caller.space.home.migration / found.source / f"{moment:%Y%m%d-%H%M%S}-{import_id}"
    assets = _open_assets(caller, found, chosen, import_id=import_id, number=number, folder=folder)
    assets.run(found.assets)
    _warn_of_gateway(caller, assets)
    report = _report(found, capture.tally, course, assets.tally, import_id=import_id)
    if report.is_empty and not report.replaced and not report.problems:
        with caller.database.writing() as unit:
            journal.discard(unit, number)
        return replace(report, import_id=None)
    report = replace(report, report=write_report(caller, report, folder))
    with caller.database.writing() as unit:
        now = caller.app.clock.now().timestamp()
        journal.finish(unit, number, counts=_count(report), folder=str(folder), now=now)
    prune_captures(caller, is_due=False)
    return report


def _warn_of_gateway(caller: Caller, assets: AssetImport) -> None:
    """Add a warning if memory or settings are imported while the gateway of this machine runs."""
    tally = assets.tally
    if tally.is_empty:
        return
    port = _find_gateway(caller)
    if port is not None:
        text = f"a gateway of kept answers on port {port}: restart it, so that its conversations use what is imported"
        tally.cautions.append(text)


def _find_gateway(caller: Caller) -> int | None:
    """Return the port on which a gateway of kept answers on this machine, or None."""
    from http.client import HTTPConnection, HTTPException

    port = caller.app.settings.serve.port
    connection = HTTPConnection("127.0.0.1", port, timeout=_GATEWAY_SECONDS)
    try:
        connection.request("GET", "/healthz")
        value = json.loads(connection.getresponse().read(_GATEWAY_BYTES))
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return port if isinstance(value, dict) and value.get("ok") is True and "version" in value else None


def _has_something(caller: Caller) -> bool:
    """Whether the home contains anything that could be lost."""
    home = caller.space.home
    return caller.space.sessions.totals()[0] > 0 or home.memories.exists() or home.skills.exists()


def _back_up(caller: Caller, source: str) -> Refused | None:
    from wellkept.backup.backup import back_up_before

    made = back_up_before(caller, f"import-{source}")
    if not isinstance(made, Refused):
        return None
    return Refused(made.reason, f"the backup before the import failed: {made.error}", f"{made.remedy}, or --no-backup")


def _capture_all(caller: Caller, found: FoundSource, capture: Capture, verb: str) -> _Course:
    """Capture every transcript; one that cannot be read is a problem, not the end."""
    from wellkept.formats.port import START, Unusable, find_source

    source = find_source(found.source)
    assert source is not None
    course = _Course(f"{verb} {found.source}", max(1, found.total_bytes), caller.space.listeners)
    for path in found.transcripts:
        was_read = capture.read_position(str(path.absolute())) != START
        before = len(capture.tally.sessions)
        try:
            capture_file(capture, source, path)
            course.unchanged += was_read and len(capture.tally.sessions) == before
        except Unusable as error:
            course.problems.append((str(path), error.message))
        for kind in (*_BROKEN, *capture.tally.unknown):
            if kind in capture.tally.left or kind in capture.tally.unknown:
                course.first.setdefault(kind, str(path))
        course.advance(path)
    return course


def _open_assets(
    caller: Caller, found: FoundSource, chosen: ImportChoices, *, import_id: str, number: int, folder: Path
) -> AssetImport:
    from wellkept.imports.assets import AssetImport, group_parts
    from wellkept.imports.record import Journal

    with caller.database.reading() as unit:
        known = group_parts(Journal(caller.user).parts(unit, found.source))
    return AssetImport(
        caller, found.source, import_id, number, folder, known, chosen.overwrite, chosen.skill_conflict
    )  # fmt: skip


def _report(
    found: FoundSource, tally: Tally, course: _Course, assets: AssetTally, *, import_id: str | None
) -> ImportReport:
    unread = [*course.problems, *tally.problems]
    kinds = {why: count for why, count in tally.left.items() if why in _BROKEN}
    kinds |= {f"unknown {kind}": count for kind, count in sorted(tally.unknown.items())}
    for what, count in kinds.items():
        where = course.first.get(what.removeprefix("unknown "), "transcripts")
        unread.append((where, f"{what} ({count} in all)" if count > 1 else what))
    known = len(set(tally.sessions) - tally.created - tally.grown)
    sessions = {
        "new": len(tally.created),
        "updated": len(tally.grown - tally.created),
        "unchanged": known + course.unchanged,
        "skipped": len(course.problems) + tally.left.get("excluded project", 0),
    }
    roles = tally.roles
    messages = {
        "user": roles.get("user", 0),
        "assistant": roles.get("assistant", 0),
        "tool_calls": tally.tool_calls,
        "tool_results": roles.get("tool", 0),
    }
    conflicts = (*tally.conflicts, *assets.conflicts)
    left, unknown = dict(sorted(tally.left.items())), dict(sorted(tally.unknown.items()))
    return ImportReport(
        found.source, import_id, sessions, messages, tally.replaced, left, unknown, conflicts,
        (*unread, *assets.problems), assets, is_preview=import_id is None, is_complete=not unread,
    )  # fmt: skip


class Watch:
    """Follows the transcripts of some sources; what it stores is one import per source, which can be undone."""

    def __init__(self, caller: Caller, names: Sequence[str], place: Path | None) -> None:
        from wellkept.formats.port import find_source
        from wellkept.imports.record import Journal

        caller.require(Scope.WRITE)
        self._caller = caller
        self._journal = Journal(caller.user)
        self._sources = [source for name in names if (source := find_source(name)) is not None]
        self._place = place
        self._stamps: dict[Path, tuple[float, int]] = {}
        self._captures: dict[str, tuple[int, Capture]] = {}
        """The number of the running import of each source, and its capture."""

    def step(self) -> list[tuple[str, Path, int]]:
        """Capture every transcript that changed since the last step; return client, path and messages added."""
        added = [
            one for source in self._sources if (paths := self._changes(source)) for one in self._follow(source, paths)
        ]
        if added:
            prune_captures(self._caller)
        return added

    def _changes(self, source: Source) -> list[Path]:
        roots = source.find_roots(self._caller.app.environ) if self._place is None else [self._place]
        found = (path for root in roots if exists(root) for path in source.list_transcripts(root))
        watched = (path for path in found if (source.client, path.suffix) != _DERIVED)
        return [path for path in watched if self._stamps.get(path) != read_stamp(path)]

    def _follow(self, source: Source, paths: Sequence[Path]) -> list[tuple[str, Path, int]]:
        from wellkept.formats.port import Unusable

        number, capture = self._open(source.client)
        added = []
        for path in paths:
            stamp, before = read_stamp(path), capture.tally.added
            try:
                capture_files(capture, source, path, None)
            except Unusable as error:
                log.warning("%s", error)
            except StorageError as error:
                log.warning("%s: cannot be stored now, will be retried: %s", path, error)
                continue
            self._stamps[path] = stamp
            if capture.tally.added > before:
                added.append((source.client, path, capture.tally.added - before))
        self._note(source.client, number, capture)
        return added

    def _open(self, client: str) -> tuple[int, Capture]:
        """Return the running import of a source; a new one at the first change, and after an undo."""
        from wellkept.imports.capture import Purpose

        database = self._caller.database
        if client in self._captures:
            with database.reading() as unit:
                runs = {run.number for run in self._journal.runs(unit) if run.undone is None}
            if self._captures[client][0] in runs:
                return self._captures[client]
        with database.writing() as unit:
            now = self._caller.app.clock.now().timestamp()
            number = self._journal.begin(unit, new_group_id(), client, now=now)
        self._captures[client] = number, open_capture(self._caller, client, purpose=Purpose(number))
        return self._captures[client]

    def _note(self, client: str, number: int, capture: Capture) -> None:
        """Record what the import stored so far; one that stored nothing leaves no trace."""
        from wellkept.imports.assets import AssetTally

        if not (capture.tally.added or capture.tally.replaced):
            del self._captures[client]
            with self._caller.database.writing() as unit:
                self._journal.discard(unit, number)
            return
        course = _Course(client, 1, self._caller.space.listeners)
        report = _report(FoundSource(client, ()), capture.tally, course, AssetTally(), import_id=client)
        with self._caller.database.writing() as unit:
            now = self._caller.app.clock.now().timestamp()
            self._journal.finish(unit, number, counts=_count(report), folder=None, now=now)


def _count(report: ImportReport) -> dict[str, JSON]:
    """Return the counts that the record of imports keeps."""
    return {name: report.as_json()[name] for name in ("sessions", "messages", "entries", "skills")}
