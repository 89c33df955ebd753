"""Import from other programs: a preview, the import itself with its report, and watching."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kept.app.caller import Scope
from kept.core.clock import iso
from kept.core.errors import Reason
from kept.core.events import Progressed
from kept.core.text import dumps
from kept.operations.capture import capture_file, open_capture
from kept.operations.import_sources import ImportChoices, exists, read_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kept.app.caller import Caller
    from kept.core.text import JSON
    from kept.importers.capture import Capture
    from kept.importers.captures import Tally
    from kept.operations.import_assets import AssetImport, AssetTally
    from kept.operations.import_sources import FoundSource

_LISTED = 1_000
_DERIVED = ".sqlite"
"""Codex's database follows its rollouts, which are watched themselves; it would be copied at every turn."""
_BROKEN = frozenset(("broken line", "unknown row", "cannot be read"))


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did, or with `is_preview` would do."""

    source: str
    import_id: str | None
    """None for a preview, and where nothing was new."""
    sessions: dict[str, int]
    """How many conversations are new, updated, unchanged or skipped."""
    messages: dict[str, int]
    replaced: int
    """Messages that took the place of an incomplete form."""
    left: dict[str, int]
    """How many rows were left out, by reason."""
    conflicts: tuple[tuple[str, str], ...]
    """What was changed on both sides, and stays as it is here."""
    problems: tuple[tuple[str, str], ...]
    """Where something could not be read, and why."""
    assets: AssetTally
    is_preview: bool
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
                entries["added"] + entries["archived"], self.assets.merged,
                self.assets.present + entries["held"] + entries["blocked"], self.assets.entry_conflicts,
            )),
            ("skills", (
                skills["added"], skills["updated"], skills["unchanged"] + skills["blocked"], skills["conflicts"],
            )),
        ]  # fmt: skip
        return rows + [
            (name, (counts["added"], counts["updated"], counts["unchanged"], counts["conflicts"]))
            for name, counts in self.assets.others.items()
        ]

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
            "leftovers": _list_pairs(self.assets.left),
            "warnings": list(self.assets.cautions),
            "problems": _list_pairs(self.problems),
            "report": None if self.report is None else str(self.report),
        }


def _list_pairs(pairs: Sequence[tuple[str, str]]) -> list[JSON]:
    return [{"where": where, "what": what} for where, what in pairs[:_LISTED]]


@dataclass(slots=True)
class _Course:
    """One run over the transcripts of a source."""

    task: str
    total: int
    tell: Callable[[Progressed], None]
    done: int = 0
    unchanged: int = 0
    """Transcripts that hold nothing new since they were last read."""
    problems: list[tuple[str, str]] = field(default_factory=list)

    def advance(self, path: Path) -> None:
        self.done += read_stamp(path)[1]
        self.tell(Progressed(self.task, min(self.done, self.total), self.total))


def preview_import(caller: Caller, found: FoundSource, choices: ImportChoices | None = None) -> ImportReport:
    """Return what an import would store; nothing is changed."""
    from kept.importers.capture import Purpose

    chosen = choices or ImportChoices()
    capture = open_capture(caller, found.source, is_preview=True, purpose=Purpose(overwrite=chosen.overwrite))
    course = _capture_all(caller, found, capture, "reading")
    assets = _open_assets(caller, found, chosen, import_id="", number=0, folder=caller.space.home.migration)
    assets = replace(assets, is_preview=True)
    assets.run(found.assets)
    return _report(found, capture.tally, course, assets.tally, import_id=None)


def run_import(caller: Caller, found: FoundSource, choices: ImportChoices | None = None) -> ImportReport:
    """Store everything of a source once; if anything was new, leave a report in the home."""
    from kept.core.ids import new_group_id
    from kept.importers.capture import Purpose
    from kept.importers.journal import Journal
    from kept.operations.capture_limits import prune_captures

    caller.require(Scope.WRITE)
    chosen, journal = choices or ImportChoices(), Journal(caller.user)
    moment, import_id = caller.app.clock.now(), new_group_id()
    with caller.app.database.writing() as unit:
        number = journal.begin(unit, import_id, found.source, now=moment.timestamp())
    purpose = Purpose(number, chosen.overwrite)
    capture = open_capture(caller, found.source, purpose=purpose)
    course = _capture_all(caller, found, capture, "importing")
    folder = caller.space.home.migration / found.source / f"{moment:%Y%m%d-%H%M%S}-{import_id}"
    assets = _open_assets(caller, found, chosen, import_id=import_id, number=number, folder=folder)
    assets.run(found.assets)
    report = _report(found, capture.tally, course, assets.tally, import_id=import_id)
    if report.is_empty and not report.replaced and not report.problems:
        with caller.app.database.writing() as unit:
            journal.discard(unit, number)
        return replace(report, import_id=None)
    report = replace(report, report=_write_report(caller, report, folder))
    counts = {name: report.as_json()[name] for name in ("sessions", "messages", "entries", "skills")}
    with caller.app.database.writing() as unit:
        now = caller.app.clock.now().timestamp()
        journal.finish(unit, number, counts=counts, folder=str(folder), now=now)
    prune_captures(caller, is_due=False)
    return report


def _capture_all(caller: Caller, found: FoundSource, capture: Capture, verb: str) -> _Course:
    """Capture every transcript; one that cannot be read is a problem, not the end."""
    from kept.importers.port import START, Unusable, find_source

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
        course.advance(path)
    return course


def _open_assets(
    caller: Caller, found: FoundSource, chosen: ImportChoices, *, import_id: str, number: int, folder: Path
) -> AssetImport:
    from kept.importers.journal import Journal
    from kept.operations.import_assets import AssetImport, group_parts

    with caller.app.database.reading() as unit:
        known = group_parts(Journal(caller.user).parts(unit, found.source))
    return AssetImport(
        caller, found.source, import_id, number, folder, known, chosen.overwrite, chosen.skill_conflict
    )  # fmt: skip


def _report(
    found: FoundSource, tally: Tally, course: _Course, assets: AssetTally, *, import_id: str | None
) -> ImportReport:
    problems = [*course.problems, *tally.problems, *assets.problems]
    problems += [("transcripts", f"{count} times: {why}") for why, count in tally.left.items() if why in _BROKEN]
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
    left = dict(sorted(tally.left.items()))
    return ImportReport(
        found.source, import_id, sessions, messages, tally.replaced, left, conflicts, tuple(problems), assets,
        is_preview=import_id is None,
    )  # fmt: skip


def _write_report(caller: Caller, report: ImportReport, folder: Path) -> Path:
    """Write the report, and the entries that did not fit their pages."""
    from kept.storage.files import make_folder, write_atomically

    make_folder(folder)
    if report.assets.overflow:
        lines = [f"## {name}\n\n{text}\n" for name, text in report.assets.overflow]
        head = "# Entries that did not fit their page; `kept memory search` finds them in the archive\n"
        write_atomically(folder / "overflow.md", "\n".join([head, *lines]).encode())
    path = folder / "report.json"
    value: dict[str, Any] = {**report.as_json(), "finished": iso(caller.app.clock.now()), "report": str(path)}
    write_atomically(path, f"{dumps(value, indent=2)}\n".encode())
    return path


class Watch:
    """Follows the transcripts of some sources, and captures what changes as one import."""

    def __init__(self, caller: Caller, names: Sequence[str], place: Path | None) -> None:
        from kept.importers.port import find_source

        caller.require(Scope.WRITE)
        self._caller = caller
        self._sources = [source for name in names if (source := find_source(name)) is not None]
        self._place = place
        self._stamps: dict[Path, tuple[float, int]] = {}

    def step(self) -> list[tuple[str, Path, int]]:
        """Capture every transcript that changed since the last step; return client, path and messages added."""
        from kept.operations.capture import Captured, capture_transcript

        added = []
        for source in self._sources:
            roots = source.find_roots(self._caller.app.environ) if self._place is None else [self._place]
            for path in (one for root in roots if exists(root) for one in source.list_transcripts(root)):
                stamp = read_stamp(path)
                if self._stamps.get(path) == stamp or path.suffix == _DERIVED:
                    continue
                done = capture_transcript(self._caller, source.client, path)
                if isinstance(done, Captured) or done.reason is Reason.INVALID:
                    self._stamps[path] = stamp  # what could not be stored now is tried again at the next step
                if isinstance(done, Captured) and done.added:
                    added.append((source.client, path, done.added))
        return added
