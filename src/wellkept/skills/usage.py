"""Usage of skills: counters in one file, the outcomes of turns in another."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.clock import iso
from wellkept.core.errors import StorageError
from wellkept.core.ports import Clock, Documents
from wellkept.core.values import asdict
from wellkept.storage.documents import FolderDocuments

log = logging.getLogger(__name__)

USAGE_FILE = ".usage.json"


class Status(StrEnum):
    """The lifecycle state of a skill."""

    ACTIVE = "active"
    STALE = "stale"
    ARCHIVED = "archived"


class Use(Struct, frozen=True):
    """The counters of one skill; times are ISO 8601 in UTC, None for never."""

    created_by: str = "person"
    """The origin of the change that created it (`agent`, `person`, `hub`, …); `review` for a background review."""
    created_at: str | None = None
    use_count: int = 0
    view_count: int = 0
    patch_count: int = 0
    last_used_at: str | None = None
    last_viewed_at: str | None = None
    last_patched_at: str | None = None
    state: Status = Status.ACTIVE
    pinned: bool = False
    archived_at: str | None = None

    @property
    def last_active(self) -> str | None:
        """Return when the skill was last used, viewed or changed, else when it was created."""
        moments = [moment for moment in (self.last_used_at, self.last_viewed_at, self.last_patched_at) if moment]
        return max(moments, default=self.created_at)


class UsageFile:
    """The usage counters of one user's skills. Derived data: a lost file starts again from zero."""

    def __init__(self, home: Path | Documents, clock: Clock, *, timeout_seconds: float = 10.0) -> None:
        self._documents = FolderDocuments(home) if isinstance(home, Path) else home
        self._clock = clock
        self._timeout = timeout_seconds

    def read(self) -> dict[str, Use]:
        """Return the usage by name; empty when the file is missing, or damaged, which is logged."""
        return _parse(self.read_raw()) or {}

    def read_raw(self) -> bytes | None:
        """Return the bytes of the file, None if there is none."""
        return self._documents.read(USAGE_FILE)

    def of(self, name: str) -> Use:
        """Return the usage of one skill."""
        return self.read().get(name, Use())

    def record_view(self, name: str, *, used: bool) -> None:
        """Count a view. With `used`, count a use too, which makes a stale skill active again."""
        now = iso(self._clock.now())

        def count(use: Use) -> Use:
            use = replace(use, view_count=use.view_count + 1, last_viewed_at=now, created_at=use.created_at or now)
            if not used:
                return use
            state = Status.ACTIVE if use.state is Status.STALE else use.state
            return replace(use, use_count=use.use_count + 1, last_used_at=now, state=state)

        self.change({name: count})

    def record_patch(self, name: str) -> None:
        """Count a change of the skill."""
        now = iso(self._clock.now())
        self.change(
            {name: lambda use: replace(use, patch_count=use.patch_count + 1, last_patched_at=now, state=Status.ACTIVE)}
        )

    def record_creation(self, name: str, *, by: str) -> None:
        """Start the record of a new skill."""
        now = iso(self._clock.now())
        self.change({name: lambda use: replace(Use(), created_by=by, created_at=now, pinned=use.pinned)})

    def pin(self, name: str, *, pinned: bool) -> None:
        """Protect the skill from the curator, or end the protection."""
        self.change({name: lambda use: replace(use, pinned=pinned)})

    def change(self, edits: Mapping[str, Callable[[Use], Use]]) -> None:
        """Apply `edits` under the lock in one write; raises StorageError when it fails."""
        with self._lock():
            known = _parse(self.read_raw())
            if known is None:
                self._documents.move(USAGE_FILE, f"{USAGE_FILE}.corrupt-{int(self._clock.now().timestamp())}")
                known = {}
            for name, edit in edits.items():
                known[name] = edit(known.get(name, Use()))
            self._write(known)

    def forget(self, name: str) -> None:
        """Drop the record of a skill that was purged."""
        with self._lock():
            known = _parse(self.read_raw())
            if known and known.pop(name, None) is not None:
                self._write(known)

    def replace_all(self, known: Mapping[str, Use]) -> None:
        """Replace the whole file, for a rollback."""
        with self._lock():
            self._write(dict(known))

    def _lock(self) -> AbstractContextManager[None]:
        return self._documents.lock(USAGE_FILE, timeout_seconds=self._timeout)

    def _write(self, known: dict[str, Use]) -> None:
        rows = {name: asdict(use) for name, use in sorted(known.items())}
        self._documents.write(USAGE_FILE, (json.dumps(rows, indent=1, sort_keys=True) + "\n").encode())


def _parse(raw: bytes | None) -> dict[str, Use] | None:
    """Return the records, None for a damaged file; invalid single fields take their default."""
    if raw is None:
        return {}
    try:
        rows = json.loads(raw)
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, dict):
        log.warning("%s is damaged and is read as empty; the next change sets it aside", USAGE_FILE)
        return None
    return {str(name): _use(row) for name, row in rows.items() if isinstance(row, dict)}


def parse_usage(raw: bytes) -> dict[str, Use]:
    """Parse the bytes of a usage file; empty when they are damaged."""
    return _parse(raw) or {}


def _use(row: Mapping[str, object]) -> Use:
    default = Use()
    values: dict[str, object] = {}
    for name in Use.__struct_fields__:
        value, usual = row.get(name), getattr(default, name)
        if name == "state":
            values["state"] = Status(value) if isinstance(value, str) and value in set(Status) else Status.ACTIVE
        elif type(value) is not type("" if usual is None else usual):
            continue
        elif not name.endswith("_at") or _is_moment(str(value)):
            values[name] = value
    return replace(default, **values)


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def usage_error(error: StorageError) -> str:
    """Return the warning for an answer whose use could not be counted."""
    return f"this use was not counted: {error.message}"


OUTCOMES_FILE = ".outcomes.jsonl"
MOST_ROWS = 20_000


class Outcome(Struct, frozen=True):
    """One turn with one version of a skill."""

    skill: str
    version: str
    session_id: str
    turn: int
    tool_errors: int
    finished: bool
    corrected: bool = False
    """Whether the person corrected the agent in the next message."""
    time: str = ""

    @property
    def failed(self) -> bool:
        """Whether the turn failed: a tool failed, it did not finish, or the person corrected it."""
        return self.tool_errors > 0 or not self.finished or self.corrected


class VersionRate(Struct, frozen=True):
    """How often turns with one version failed."""

    version: str
    uses: int
    failures: int

    @property
    def rate(self) -> float:
        """Return the share of turns that failed."""
        return self.failures / self.uses if self.uses else 0.0


class Stats(Struct, frozen=True):
    """The failure rates of one skill by version, the most recently used version last."""

    skill: str
    versions: tuple[VersionRate, ...]
    flagged: str | None = None
    """The newest version, when it fails more often than the one before."""


class OutcomeLog:
    """One row for each turn and skill; an interrupted append loses one row, not the file."""

    def __init__(self, home: Path | Documents, clock: Clock, *, timeout_seconds: float = 10.0) -> None:
        self._documents = FolderDocuments(home) if isinstance(home, Path) else home
        self._clock = clock
        self._timeout = timeout_seconds

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Append one row for each skill that a turn used."""
        now = iso(self._clock.now())
        self._append([asdict(replace(outcome, time=outcome.time or now)) for outcome in outcomes])

    def correct(self, session_id: str, turn: int) -> None:
        """Record that the person corrected what the agent did in `turn`."""
        self._append([{"corrects": turn, "session_id": session_id}])

    def rows(self) -> list[Outcome]:
        """Return every outcome in order, with later corrections applied."""
        raw = list(self._raw())
        marks = {(row["session_id"], row["corrects"]) for row in raw if "corrects" in row}
        found = [Outcome(**row) for row in raw if "corrects" not in row]  # type: ignore[arg-type] # rows of exactly these fields
        return [replace(item, corrected=True) if (item.session_id, item.turn) in marks else item for item in found]

    def stats(self, *, min_uses: int = 3) -> dict[str, Stats]:
        """Return the failure rates by skill; a newest version that is worse than the one before is flagged."""
        by_skill: dict[str, dict[str, list[bool]]] = {}
        for outcome in self.rows():
            versions = by_skill.setdefault(outcome.skill, {})
            # a version that an undo brought back is the newest again
            failed = versions.pop(outcome.version, [])
            failed.append(outcome.failed)
            versions[outcome.version] = failed
        return {skill: _stats(skill, versions, min_uses) for skill, versions in sorted(by_skill.items())}

    def trim(self, *, most: int = MOST_ROWS) -> None:
        """Drop the oldest rows beyond `most`."""
        with self._lock():
            rows = [asdict(row) for row in self.rows()]
            if len(rows) > most:
                data = "".join(json.dumps(row) + "\n" for row in rows[-most:]).encode()
                self._documents.write(OUTCOMES_FILE, data)

    def _lock(self) -> AbstractContextManager[None]:
        return self._documents.lock(OUTCOMES_FILE, timeout_seconds=self._timeout)

    def _append(self, rows: Sequence[dict[str, object]]) -> None:
        if not rows:
            return
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with self._lock():
            self._documents.append(OUTCOMES_FILE, text.encode())

    def _raw(self) -> Iterator[dict[str, object]]:
        for line in (self._documents.read(OUTCOMES_FILE) or b"").splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict) and _kinds(row) in (_OUTCOME_KINDS, _CORRECTION_KINDS):
                yield row


_OUTCOME_KINDS = {
    "skill": str, "version": str, "session_id": str, "turn": int, "tool_errors": int, "finished": bool,
    "corrected": bool, "time": str,
}  # fmt: skip
_CORRECTION_KINDS = {"corrects": int, "session_id": str}


def _kinds(row: Mapping[str, object]) -> dict[str, type]:
    return {name: type(value) for name, value in row.items()}


def _stats(skill: str, versions: dict[str, list[bool]], min_uses: int) -> Stats:
    rates = tuple(VersionRate(version, len(failed), sum(failed)) for version, failed in versions.items())
    flagged = None
    if len(rates) > 1:
        before, newest = rates[-2], rates[-1]
        if min(before.uses, newest.uses) >= min_uses and newest.rate > before.rate:
            flagged = newest.version
    return Stats(skill, rates, flagged)
