"""Import of conversations from other programs: what is on this machine, a preview, the import itself, and watching."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kept.app.caller import Scope
from kept.core.clock import iso
from kept.core.errors import Reason, Refused
from kept.core.events import Progressed
from kept.core.text import dumps
from kept.operations.capture import capture_file, open_capture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kept.app.caller import Caller
    from kept.core.text import JSON
    from kept.importers.capture import Capture
    from kept.importers.captures import Tally
    from kept.importers.port import Source

ALL = "all"
_PROBLEMS_LISTED = 1_000
_DERIVED = ".sqlite"
"""Codex's database follows its rollouts, which are watched themselves; it would be copied at every turn."""


@dataclass(frozen=True, slots=True)
class FoundSource:
    """The history of one program on this machine."""

    source: str
    places: tuple[Path, ...]
    """Where it was looked for."""
    transcripts: tuple[Path, ...]
    total_bytes: int
    new: int
    """How many transcripts were never read, or changed since."""

    def as_json(self) -> dict[str, JSON]:
        """Return the places and the counts."""
        return {
            "source": self.source,
            "places": [str(place) for place in self.places],
            "transcripts": len(self.transcripts),
            "bytes": self.total_bytes,
            "new": self.new,
        }


@dataclass(frozen=True, slots=True)
class FoundSources:
    """What was found of all programs that can be imported."""

    sources: tuple[FoundSource, ...]

    def as_json(self) -> list[JSON]:
        """Return one object per source."""
        return [found.as_json() for found in self.sources]


def find_sources(
    caller: Caller, name: str = ALL, place: Path | None = None, *, since: float = 0.0
) -> FoundSources | Refused:
    """Return the histories on this machine, of one program or of all; `place` replaces the usual ones.

    With `since`, only transcripts that changed at that moment or later.
    """
    from kept.importers.port import SOURCES, find_source

    names = tuple(SOURCES) if name == ALL else (name,)
    found = []
    for each in names:
        reader = find_source(each)
        if reader is None:
            return Refused(
                Reason.INVALID, f"there is no importer {each!r}", f"use one of: {', '.join((*SOURCES, ALL))}"
            )
        found.append(_find_source(caller, reader, place, since))
    return FoundSources(tuple(found))


def _find_source(caller: Caller, reader: Source, place: Path | None, since: float) -> FoundSource:
    from kept.importers.captures import Captures

    roots = reader.find_roots(caller.app.environ) if place is None else [place]
    listed = (path for root in roots if root.exists() for path in reader.list_transcripts(root))
    paths = [path for path in listed if read_stamp(path)[0] >= since]
    sizes, changed = 0, 0
    with caller.app.database.reading() as unit:
        read = Captures(caller.user, reader.client).read_times(unit)
    for path in paths:
        stamp = read_stamp(path)
        sizes += stamp[1]
        changed += stamp[0] > read.get(str(path.absolute()), 0.0)
    return FoundSource(reader.client, tuple(roots), tuple(paths), sizes, changed)


def read_stamp(path: Path) -> tuple[float, int]:
    """Return the time of the last change of a transcript and its bytes, those of a write-ahead log included."""
    moment, size = 0.0, 0
    for one in (path, path.with_name(f"{path.name}-wal")):
        try:
            found = one.stat()
        except OSError:
            continue
        moment, size = max(moment, found.st_mtime), size + found.st_size
    return moment, size


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did, or with `is_preview` would do."""

    source: str
    import_id: str
    sessions: dict[str, int]
    """How many conversations are new, updated, unchanged or skipped."""
    messages: dict[str, int]
    conflicts: int
    """Messages that the source changed after they were stored, and that stay as they are."""
    left: dict[str, int]
    """How many rows were left out, by reason."""
    problems: tuple[tuple[str, str], ...]
    """Where something could not be read, and why."""
    is_preview: bool
    report: Path | None = None

    def as_json(self) -> dict[str, JSON]:
        """Return the counts, the problems and the file with the report."""
        return {
            "source": self.source,
            "import_id": self.import_id,
            "dry_run": self.is_preview,
            "sessions": dict(self.sessions),
            "messages": dict(self.messages),
            "conflicts": self.conflicts,
            "left_out": dict(self.left),
            "entries": {"added": 0, "archived": 0, "held": 0, "blocked": 0},
            "skills": {},
            "problems": [{"where": where, "what": what} for where, what in self.problems[:_PROBLEMS_LISTED]],
            "report": None if self.report is None else str(self.report),
        }


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


def preview_import(caller: Caller, found: FoundSource) -> ImportReport:
    """Return what an import would store; nothing is changed."""
    return _import(caller, found, is_preview=True)


def run_import(caller: Caller, found: FoundSource) -> ImportReport:
    """Store every conversation of a source once; if anything was new, leave a report in the home."""
    from kept.operations.capture_limits import prune_captures

    caller.require(Scope.WRITE)
    report = _import(caller, found, is_preview=False)
    prune_captures(caller, is_due=False)
    return report


def _import(caller: Caller, found: FoundSource, *, is_preview: bool) -> ImportReport:
    from kept.importers.port import START, Unusable, find_source

    reader = find_source(found.source)
    assert reader is not None
    capture = open_capture(caller, found.source, is_preview=is_preview)
    verb = "reading" if is_preview else "importing"
    course = _Course(f"{verb} {found.source}", max(1, found.total_bytes), caller.space.listeners)
    for path in found.transcripts:
        was_read = capture.read_position(str(path.absolute())) != START
        before = len(capture.tally.sessions)
        try:
            capture_file(capture, reader, path)
            course.unchanged += was_read and len(capture.tally.sessions) == before
        except Unusable as error:
            course.problems.append((str(path), error.message))
        course.advance(path)
    return _report(caller, found, capture, course, is_preview=is_preview)


def _report(caller: Caller, found: FoundSource, capture: Capture, course: _Course, *, is_preview: bool) -> ImportReport:
    from dataclasses import replace

    from kept.core.ids import new_group_id

    tally = capture.tally
    problems = [*course.problems, *tally.problems]
    problems += [("transcripts", f"{count} times: {why}") for why, count in tally.left.items() if why in _BROKEN]
    report = ImportReport(
        found.source,
        "" if is_preview else new_group_id(),
        _count_sessions(tally, course),
        _count_messages(tally),
        tally.conflicts,
        dict(sorted(tally.left.items())),
        tuple(problems),
        is_preview,
    )
    if is_preview or not (tally.grown or problems):
        return report
    return replace(report, report=_write_report(caller, report))


_BROKEN = frozenset(("broken line", "unknown row", "cannot be read"))


def _count_sessions(tally: Tally, course: _Course) -> dict[str, int]:
    known = len(set(tally.sessions) - tally.created - tally.grown)
    return {
        "new": len(tally.created),
        "updated": len(tally.grown - tally.created),
        "unchanged": known + course.unchanged,
        "skipped": len(course.problems) + tally.left.get("excluded project", 0),
    }


def _count_messages(tally: Tally) -> dict[str, int]:
    roles = tally.roles
    return {
        "user": roles.get("user", 0),
        "assistant": roles.get("assistant", 0),
        "tool_calls": tally.tool_calls,
        "tool_results": roles.get("tool", 0),
    }


def _write_report(caller: Caller, report: ImportReport) -> Path:
    from kept.storage.files import make_folder, write_atomically

    moment = caller.app.clock.now()
    folder = caller.space.home.migration / report.source / f"{moment:%Y%m%d-%H%M%S}-{report.import_id}"
    make_folder(folder)
    path = folder / "report.json"
    value = {**report.as_json(), "finished": iso(moment), "report": str(path)}
    write_atomically(path, f"{dumps(value, indent=2)}\n".encode())
    return path


class Watch:
    """Follows the transcripts of some sources, and captures what changes."""

    def __init__(self, caller: Caller, names: Sequence[str], place: Path | None) -> None:
        from kept.importers.port import find_source

        caller.require(Scope.WRITE)
        self._caller = caller
        self._readers = [reader for name in names if (reader := find_source(name)) is not None]
        self._place = place
        self._stamps: dict[Path, tuple[float, int]] = {}

    def step(self) -> list[tuple[str, Path, int]]:
        """Capture every transcript that changed since the last step; return client, path and messages added."""
        from kept.operations.capture import Captured, capture_transcript

        added = []
        for reader in self._readers:
            roots = reader.find_roots(self._caller.app.environ) if self._place is None else [self._place]
            for path in (one for root in roots if root.exists() for one in reader.list_transcripts(root)):
                stamp = read_stamp(path)
                if self._stamps.get(path) == stamp or path.suffix == _DERIVED:
                    continue
                done = capture_transcript(self._caller, reader.client, path)
                if isinstance(done, Captured) or done.reason is Reason.INVALID:
                    self._stamps[path] = stamp  # what could not be stored now is tried again at the next step
                if isinstance(done, Captured) and done.added:
                    added.append((reader.client, path, done.added))
        return added
