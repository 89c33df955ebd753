"""The curator: unused skills become stale, then archived, and active again when they are used."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.clock import iso
from wellkept.core.errors import Busy, Refused
from wellkept.core.values import JsonStruct, asdict
from wellkept.skills.changes import Author, Changed
from wellkept.skills.curator.backup import CURATOR_FOLDER, Backups, RollbackResult
from wellkept.skills.editor import SkillEditor
from wellkept.skills.hub.sources import LockFile
from wellkept.skills.roots import MAIN
from wellkept.skills.settings import CuratorSettings
from wellkept.skills.usage import Stats, Status, Use
from wellkept.storage.files import make_folder, read_bytes, write_atomically
from wellkept.storage.locks import hold_lock

KEPT = 50


class Move(JsonStruct, frozen=True):
    """One skill that changes its state."""

    name: str
    was: Status
    becomes: Status
    idle_days: float


class Report(JsonStruct, frozen=True):
    """What a run did, or would do."""

    time: str
    moves: tuple[Move, ...]
    flagged: tuple[str, ...] = ()
    """Skills whose newest version fails more often than the one before."""
    dry_run: bool = False
    backup: str | None = None
    failed: tuple[str, ...] = ()

    def as_text(self) -> str:
        """Render the report for a person."""
        lines = [f"Curator, {self.time}{' (dry run, nothing was changed)' if self.dry_run else ''}"]
        lines += [
            f"  {move.name}: {move.was} → {move.becomes} ({move.idle_days:g} days without use)" for move in self.moves
        ]
        lines += [] if self.moves else ["  nothing to do"]
        lines += [f"  worse than before: {name} (kept skills stats; kept skills undo {name})" for name in self.flagged]
        lines += [f"  failed: {text}" for text in self.failed]
        lines += [f"  backup: {self.backup} (kept curator rollback)"] if self.backup else []
        return "\n".join(lines)


def write(folder: Path, report: Report) -> Report:
    """Save the report, drop the oldest ones over the limit, and return it."""
    reports = folder / "reports"
    make_folder(reports)
    stamp = report.time.replace(":", "").replace("-", "")
    write_atomically(reports / f"{stamp}.json", json.dumps(report.as_json(), indent=1, ensure_ascii=False).encode())
    for old in sorted(reports.glob("*.json"))[:-KEPT]:
        old.unlink(missing_ok=True)
    return report


def newest(folder: Path) -> Report | None:
    """Return the newest report that can be read."""
    for path in sorted((folder / "reports").glob("*.json"), reverse=True):
        try:
            return msgspec.json.decode(read_bytes(path) or b"", type=Report)
        except ValueError:
            continue
    return None


_DAY = timedelta(days=1)


class Candidate(Struct, frozen=True):
    """A skill that may change its state, with the facts that decide."""

    name: str
    use: Use
    since: datetime
    """When it was last used, or created."""


class State(Struct, frozen=True):
    """The curator's own state between runs."""

    last_run_at: str | None = None
    paused: bool = False


def decide(known: Sequence[Candidate], now: datetime, settings: CuratorSettings) -> list[Move]:
    """Return which skills change their state at `now`; pure, so that tests can simulate years."""
    moves = []
    for item in known:
        idle = (now - item.since) / _DAY
        becomes = Status.ACTIVE
        if idle >= settings.archive_days:
            becomes = Status.ARCHIVED
        elif idle >= settings.stale_days:
            becomes = Status.STALE
        if becomes is not item.use.state:
            moves.append(Move(item.name, item.use.state, becomes, round(idle, 1)))
    return moves


class Curator:
    """Maintains the skills of one user; never touches pinned, installed or scheduled ones, or other roots."""

    def __init__(
        self, editor: SkillEditor, settings: CuratorSettings | None = None, *, scheduled: Collection[str] = ()
    ) -> None:
        self._editor = editor
        self._library = editor.library
        self._clock = editor.library.clock
        self._settings = settings or CuratorSettings()
        self._scheduled = {*scheduled, *editor.library.settings.pinned_by_schedule}
        self._folder = editor.home / CURATOR_FOLDER
        self.backups = Backups(editor, self._clock, kept=self._settings.backups_kept)

    def state(self) -> State:
        """Return the saved state; a damaged file reads as never run."""
        try:
            return msgspec.json.decode(read_bytes(self._folder / "state.json") or b"{}", type=State)
        except ValueError:
            return State()

    def due(self, last_activity: datetime | None) -> bool:
        """Whether an automatic run should start now: the interval is over and nobody is active."""
        state, now = self.state(), self._clock.now()
        if not self._settings.enabled or state.paused:
            return False
        if last_activity is not None and now - last_activity < timedelta(hours=self._settings.idle_hours):
            return False
        if state.last_run_at is None:
            return True
        return now - datetime.fromisoformat(state.last_run_at) >= timedelta(days=self._settings.interval_days)

    def protected_skills(self) -> dict[str, str]:
        """Return the skills that are never touched, each with the reason."""
        reasons = dict.fromkeys(LockFile(self._editor.home).read(), "hub")
        reasons |= dict.fromkeys(self._scheduled, "schedule")
        reasons |= {name: "pinned" for name, use in self._library.usage.read().items() if use.pinned}
        own = {folder.name for folder in self._library.home_folders()}
        outside = {skill.name: str(skill.root.kind) for skill in self._library.skills() if skill.folder.name not in own}
        return {**outside, **reasons}

    def plan(self) -> list[Move]:
        """Return what a run would do now."""
        usage, protected = self._library.usage.read(), self.protected_skills()
        candidates = []
        for folder in self._library.home_folders():
            if folder.name not in protected:
                use = usage.get(folder.name, Use())
                use = replace(use, state=Status.ACTIVE) if use.state is Status.ARCHIVED else use
                made = datetime.fromtimestamp((folder / MAIN).stat().st_mtime, self._clock.now().tzinfo)
                since = datetime.fromisoformat(use.last_active) if use.last_active else made
                candidates.append(Candidate(folder.name, use, since))
        return decide(candidates, self._clock.now(), self._settings)

    def run_if_due(self) -> Report | None:
        """Run automatically; None when another process has run in the meantime.

        For a skill that was placed by hand, the time without use starts at the first such run,
        however old its file is.
        """
        if not self.due(None):
            return None
        seen, now = self._library.usage.read(), iso(self._clock.now())
        new = [folder.name for folder in self._library.home_folders() if folder.name not in seen]
        if new:
            self._library.usage.change(
                {name: lambda use: replace(use, created_at=use.created_at or now) for name in new}
            )
        return self.run()

    def run(self, *, dry_run: bool = False) -> Report:
        """Back up, apply the moves that are due, and write a report; a dry run only reports."""
        if dry_run:
            return self._report(dry_run=True)
        make_folder(self._folder)
        with hold_lock(self._folder / "run.lock"):
            report = self._report(dry_run=False)
            backup = self.backups.take() if report.moves else None
            failed = [text for move in report.moves if (text := self._apply_move(move)) is not None]
            self._library.outcomes.trim()
            self._remember(replace(self.state(), last_run_at=iso(self._clock.now())))
            return write(self._folder, replace(report, backup=backup, failed=tuple(failed)))

    def _report(self, *, dry_run: bool) -> Report:
        flagged = sorted(stats.skill for stats in self._stats().values() if stats.flagged is not None)
        return Report(iso(self._clock.now()), tuple(self.plan()), tuple(flagged), dry_run=dry_run)

    def _stats(self) -> Mapping[str, Stats]:
        return self._library.outcomes.stats(min_uses=self._library.settings.flag_min_uses)

    def _apply_move(self, move: Move) -> str | None:
        if move.becomes is Status.ARCHIVED:
            reason = f"{move.idle_days:g} days without use"
            result = self._editor.archive(move.name, Author("curator", reason=reason))
            return None if isinstance(result, Changed) else f"{move.name}: {result.error}"
        self._library.usage.change({move.name: lambda use: replace(use, state=move.becomes)})
        return None

    def pause(self, *, paused: bool) -> None:
        """Stop automatic runs, or resume them."""
        self._remember(replace(self.state(), paused=paused))

    def _remember(self, state: State) -> None:
        make_folder(self._folder)
        write_atomically(self._folder / "state.json", json.dumps(asdict(state)).encode())

    def archive(self, name: str) -> Changed | Refused:
        """Archive one skill at the person's request."""
        return self._editor.archive(name, Author("person", reason="archived by hand"))

    def restore(self, name: str) -> Changed | Refused:
        """Restore one skill from the archive."""
        return self._editor.restore(name, Author("person"))

    def roll_back(self, backup: str | None = None) -> RollbackResult:
        """Restore all skills from a backup, by default the newest."""
        with hold_lock(self._folder / "run.lock"):
            return self.backups.roll_back(backup)

    def finish_rollback(self) -> RollbackResult | None:
        """Complete an interrupted rollback; None if there is none, or if another process is completing it."""
        if self.backups.unfinished() is None:
            return None
        try:
            with hold_lock(self._folder / "run.lock", timeout_seconds=0):
                return None if self.backups.unfinished() is None else self.backups.roll_back()
        except Busy:
            return None

    def report(self) -> Report | None:
        """Return the newest report."""
        return newest(self._folder)
