"""Import from other programs: what is on this machine, a preview, the import itself, and watching."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kept.app.caller import Scope
from kept.core.errors import Reason, Refused
from kept.core.events import Progressed
from kept.operations.capture import capture_file, open_capture
from kept.operations.import_report import ImportReport, write_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kept.app.caller import Caller
    from kept.core.text import JSON
    from kept.importers.assets import Asset
    from kept.importers.capture import Capture
    from kept.importers.captures import Tally
    from kept.importers.port import Source
    from kept.operations.import_assets import AssetImport, AssetTally

ALL = "all"
_DERIVED = ("codex", ".sqlite")
"""Codex's database follows its rollouts, which are watched themselves; it would be copied at every turn."""
_BROKEN = frozenset(("broken line", "unknown row", "cannot be read"))


SKILL_CONFLICTS = ("skip", "overwrite", "rename")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportChoices:
    """How an import is to be made."""

    overwrite: bool = False
    """Whether what was changed on both sides is replaced by what the source has."""
    skill_conflict: str = "skip"
    """What happens to a skill whose name is taken: `skip`, `overwrite` or `rename`."""
    with_backup: bool = True
    """Whether the home is backed up before anything is stored."""


@dataclass(frozen=True, slots=True)
class FoundSource:
    """What one program has on this machine."""

    source: str
    places: tuple[Path, ...]
    """Where it was looked for."""
    transcripts: tuple[Path, ...] = ()
    total_bytes: int = 0
    new: int = 0
    """How many transcripts were never read, or changed since."""
    assets: tuple[Asset, ...] = ()
    memory_files: int = 0
    new_memory_files: int = 0
    skills: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to import."""
        return not (self.transcripts or self.assets)

    @property
    def has_news(self) -> bool:
        """Whether something was not read yet, as far as that is known without reading it."""
        return bool(self.new or self.new_memory_files or len(self.assets) > self.memory_files)

    def as_json(self) -> dict[str, JSON]:
        """Return the places and the counts."""
        return {
            "source": self.source,
            "places": [str(place) for place in self.places],
            "transcripts": len(self.transcripts),
            "bytes": self.total_bytes,
            "new": self.new,
            "memory_files": self.memory_files,
            "new_memory_files": self.new_memory_files,
            "skills": self.skills,
        }


@dataclass(frozen=True, slots=True)
class FoundSources:
    """What was found of all programs that can be imported."""

    sources: tuple[FoundSource, ...]

    def as_json(self) -> list[JSON]:
        """Return one object per source."""
        return [found.as_json() for found in self.sources]


def find_sources(
    caller: Caller,
    name: str = ALL,
    place: Path | None = None,
    *,
    since: float = 0.0,
    options: Mapping[str, str] | None = None,
    choices: ImportChoices | None = None,
) -> FoundSources | Refused:
    """Return what is on this machine, of one program or of all; `place` replaces the usual ones.

    With `since`, only transcripts that changed at that moment or later. `options` are those of `Source.options`.
    """
    from kept.importers.port import SOURCES, find_source

    if choices is not None and choices.skill_conflict not in SKILL_CONFLICTS:
        wrong = f"--skill-conflict cannot be {choices.skill_conflict!r}"
        return Refused(Reason.INVALID, wrong, f"use one of: {', '.join(SKILL_CONFLICTS)}")
    if place is not None and name != ALL and not exists(place):
        return Refused(Reason.NO_MATCH, f"there is nothing at {str(place)!r}", "give an existing place with --source")
    found = []
    for each in SOURCES if name == ALL else (name,):
        source = find_source(each)
        if source is None:
            return Refused(
                Reason.INVALID, f"there is no importer {each!r}", f"use one of: {', '.join((*SOURCES, ALL))}"
            )
        chosen = _choose_options(source, options or {}, is_strict=name != ALL)
        if isinstance(chosen, Refused):
            return chosen
        if place is None and not source.find_roots(caller.app.environ):
            if name == ALL:
                continue
            remedy = f"kept import {each} --source FILE"
            return Refused(Reason.INVALID, f"{each} is an export, which has no usual place", remedy)
        found.append(_find_source(caller, source, place, since=since, options=chosen))
    return FoundSources(tuple(found))


def _choose_options(source: Source, given: Mapping[str, str], *, is_strict: bool) -> dict[str, str] | Refused:
    """Return the options of a source with its defaults; with `is_strict`, refuse those that it does not know."""
    known = {option.name: option for option in source.options}
    strange = [name for name in given if name not in known]
    if strange and is_strict:
        return Refused(Reason.INVALID, f"{source.client} has no option --{strange[0]}", "leave it out")
    for name, value in given.items():
        choices = known[name].choices if name in known else ()
        if choices and value not in choices:
            return Refused(Reason.INVALID, f"--{name} cannot be {value!r}", f"use one of: {', '.join(choices)}")
    return {name: given.get(name, option.default) for name, option in known.items()}


def _find_source(
    caller: Caller, source: Source, place: Path | None, *, since: float, options: Mapping[str, str]
) -> FoundSource:
    from kept.importers.assets import MemoryFile, SkillFolder
    from kept.importers.captures import Captures
    from kept.importers.journal import Journal
    from kept.importers.port import Request
    from kept.operations.import_assets import group_parts
    from kept.operations.import_memory import count_new_files

    roots = source.find_roots(caller.app.environ) if place is None else [place]
    there = [root for root in roots if exists(root)]
    paths = [path for root in there for path in source.list_transcripts(root) if read_stamp(path)[0] >= since]
    request = Request(caller.app.environ, caller.app.home.path, options)
    assets = tuple(asset for root in there for asset in source.list_assets(root, request))
    files = [asset for asset in assets if isinstance(asset, MemoryFile)]
    with caller.app.database.reading() as unit:
        read = Captures(caller.user, source.client).read_times(unit)
        known = group_parts(Journal(caller.user).parts(unit, source.client))
    stamps = {path: read_stamp(path) for path in paths}
    return FoundSource(
        source.client,
        tuple(roots),
        tuple(paths),
        sum(size for _, size in stamps.values()),
        sum(changed > read.get(str(path.absolute()), 0.0) for path, (changed, _) in stamps.items()),
        assets,
        len(files),
        count_new_files(files, known),
        sum(isinstance(asset, SkillFolder) for asset in assets),
    )


def exists(path: Path) -> bool:
    """Whether there is something that this user may see."""
    try:
        return path.exists()
    except OSError:  # in a folder that this user may not read
        return False


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


def run_import(caller: Caller, found: FoundSource, choices: ImportChoices | None = None) -> ImportReport | Refused:
    """Back up the home, then store everything of a source once; if anything was new, leave a report in the home."""
    from kept.core.ids import new_group_id
    from kept.importers.capture import Purpose
    from kept.importers.journal import Journal
    from kept.operations.capture_limits import prune_captures

    caller.require(Scope.WRITE)
    chosen, journal = choices or ImportChoices(), Journal(caller.user)
    moment, import_id = caller.app.clock.now(), new_group_id()
    if chosen.with_backup and found.has_news and _has_something(caller):
        kept = _back_up(caller, found.source)
        if isinstance(kept, Refused):
            return kept
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
    report = replace(report, report=write_report(caller, report, folder))
    counts = {name: report.as_json()[name] for name in ("sessions", "messages", "entries", "skills")}
    with caller.app.database.writing() as unit:
        now = caller.app.clock.now().timestamp()
        journal.finish(unit, number, counts=counts, folder=str(folder), now=now)
    prune_captures(caller, is_due=False)
    return report


def _has_something(caller: Caller) -> bool:
    """Whether the home holds anything that could be lost."""
    home = caller.space.home
    return caller.space.sessions.totals()[0] > 0 or home.memories.exists() or home.skills.exists()


def _back_up(caller: Caller, source: str) -> Refused | None:
    from kept.operations.backup import back_up_before

    made = back_up_before(caller, f"import-{source}")
    if not isinstance(made, Refused):
        return None
    return Refused(made.reason, f"the backup before the import failed: {made.error}", f"{made.remedy}, or --no-backup")


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
                if self._stamps.get(path) == stamp or (source.client, path.suffix) == _DERIVED:
                    continue
                done = capture_transcript(self._caller, source.client, path)
                if isinstance(done, Captured) or done.reason is Reason.INVALID:
                    self._stamps[path] = stamp  # what could not be stored now is tried again at the next step
                if isinstance(done, Captured) and done.added:
                    added.append((source.client, path, done.added))
        return added
