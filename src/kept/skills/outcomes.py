"""How turns went in which a skill was used, by version of the skill."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kept.core.clock import iso
from kept.core.ports import Clock
from kept.storage.files import explained, read_bytes, write_atomically
from kept.storage.locks import locked

OUTCOMES_FILE = ".outcomes.jsonl"
MOST_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Outcome:
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
        """Tell whether the turn went badly: a tool failed, it did not finish, or the person corrected it."""
        return self.tool_errors > 0 or not self.finished or self.corrected


@dataclass(frozen=True, slots=True)
class VersionRate:
    """How often turns with one version went badly."""

    version: str
    uses: int
    failures: int

    @property
    def rate(self) -> float:
        """Return the share of turns that went badly."""
        return self.failures / self.uses if self.uses else 0.0


@dataclass(frozen=True, slots=True)
class Stats:
    """The record of one skill, the version used last at the end."""

    skill: str
    versions: tuple[VersionRate, ...]
    flagged: str | None = None
    """The newest version, when it goes badly more often than the one before."""


class OutcomeLog:
    """The rows of every turn's end; an append that was cut short costs one row, not the file."""

    def __init__(self, home: Path, clock: Clock, *, timeout_seconds: float = 10.0) -> None:
        self._file = home / OUTCOMES_FILE
        self._clock = clock
        self._timeout = timeout_seconds

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Append one row for each skill that a turn used."""
        now = iso(self._clock.now())
        self._append([asdict(replace(outcome, time=outcome.time or now)) for outcome in outcomes])

    def correct(self, session_id: str, turn: int) -> None:
        """Note that the person corrected what the agent did in `turn`."""
        self._append([{"corrects": turn, "session_id": session_id}])

    def rows(self) -> list[Outcome]:
        """Return every outcome in order, with later corrections worked in."""
        raw = list(self._raw())
        marks = {(row["session_id"], row["corrects"]) for row in raw if "corrects" in row}
        found = [Outcome(**row) for row in raw if "corrects" not in row]  # type: ignore[arg-type] # rows of exactly these fields
        return [replace(item, corrected=True) if (item.session_id, item.turn) in marks else item for item in found]

    def stats(self, *, min_uses: int = 3) -> dict[str, Stats]:
        """Return the record of every skill by name; a newest version that is worse than the last is flagged."""
        by_skill: dict[str, dict[str, list[bool]]] = {}
        for outcome in self.rows():
            versions = by_skill.setdefault(outcome.skill, {})
            # a version that came back through an undo is the newest again
            failed = versions.pop(outcome.version, [])
            failed.append(outcome.failed)
            versions[outcome.version] = failed
        return {skill: _stats(skill, versions, min_uses) for skill, versions in sorted(by_skill.items())}

    def trim(self, *, most: int = MOST_ROWS) -> None:
        """Drop the oldest rows beyond `most`."""
        with locked(self._file.with_name(f"{OUTCOMES_FILE}.lock"), timeout_seconds=self._timeout):
            rows = [asdict(row) for row in self.rows()]
            if len(rows) > most:
                write_atomically(self._file, "".join(json.dumps(row) + "\n" for row in rows[-most:]).encode())

    def _append(self, rows: Sequence[dict[str, object]]) -> None:
        if not rows:
            return
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        lock = locked(self._file.with_name(f"{OUTCOMES_FILE}.lock"), timeout_seconds=self._timeout)
        with lock, explained("append to", self._file):
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    text = "\n" + text  # the writer before was killed in the middle of its row
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)

    def _raw(self) -> Iterator[dict[str, object]]:
        names = set(Outcome.__dataclass_fields__)
        for line in (read_bytes(self._file) or b"").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and (set(row) == names or set(row) == {"corrects", "session_id"}):
                yield row


def _stats(skill: str, versions: dict[str, list[bool]], min_uses: int) -> Stats:
    rates = tuple(VersionRate(version, len(failed), sum(failed)) for version, failed in versions.items())
    flagged = None
    if len(rates) > 1:
        before, newest = rates[-2], rates[-1]
        if min(before.uses, newest.uses) >= min_uses and newest.rate > before.rate:
            flagged = newest.version
    return Stats(skill, rates, flagged)
