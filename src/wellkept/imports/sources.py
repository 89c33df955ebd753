"""Sources on this machine that can be imported, and the choices for an import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.core.errors import Reason, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from wellkept.app.caller import Caller
    from wellkept.core.text import JSON
    from wellkept.formats.port import Asset, Source

ALL = "all"
SKILL_CONFLICTS = ("skip", "overwrite", "rename")


class ImportChoices(Struct, frozen=True, kw_only=True):
    """The choices for an import."""

    overwrite: bool = False
    """Whether the source's version replaces what was changed on both sides."""
    skill_conflict: str = "skip"
    """What happens to a skill whose name is taken: `skip`, `overwrite` or `rename`."""
    with_backup: bool = True
    """Whether the home is backed up before anything is stored."""


class FoundSource(Struct, frozen=True):
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
        """Whether there is something new, as far as that is known without reading it."""
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


class FoundSources(Struct, frozen=True):
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

    With `since`, only transcripts that changed then or later. `options` are those of `Source.options`.
    """
    from wellkept.formats.port import SOURCES, find_source

    if choices is not None and choices.skill_conflict not in SKILL_CONFLICTS:
        wrong = f"--skill-conflict cannot be {choices.skill_conflict!r}"
        return Refused(Reason.INVALID, wrong, f"use one of: {', '.join(SKILL_CONFLICTS)}")
    if place is not None and name != ALL and not exists(place):
        return Refused(Reason.NO_MATCH, f"there is nothing at {str(place)!r}", "give an existing place with --source")
    sources = []
    for client in SOURCES if name == ALL else (name,):
        source = find_source(client)
        if source is None:
            return Refused(
                Reason.INVALID, f"there is no importer {client!r}", f"use one of: {', '.join((*SOURCES, ALL))}"
            )
        chosen = _choose_options(source, options or {}, is_strict=name != ALL)
        if isinstance(chosen, Refused):
            return chosen
        if place is None and not source.find_roots(caller.app.environ):
            if name == ALL:
                continue
            remedy = f"kept import {client} --source FILE"
            return Refused(Reason.INVALID, f"{client} is an export, which has no usual place", remedy)
        sources.append(_find_source(caller, source, place, since=since, options=chosen))
    return FoundSources(tuple(sources))


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
    from wellkept.formats.port import MemoryFile, Request, SkillFolder
    from wellkept.imports.assets import group_parts
    from wellkept.imports.memory import count_new_files
    from wellkept.imports.record import Captures, Journal

    roots = source.find_roots(caller.app.environ) if place is None else [place]
    there = [root for root in roots if exists(root)]
    paths = [path for root in there for path in source.list_transcripts(root) if read_stamp(path)[0] >= since]
    request = Request(caller.app.environ, caller.app.home.path, options)
    assets = tuple(asset for root in there for asset in source.list_assets(root, request))
    files = [asset for asset in assets if isinstance(asset, MemoryFile)]
    with caller.database.reading() as unit:
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
