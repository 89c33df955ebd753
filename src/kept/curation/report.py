"""The report of a run of the curator, as data and as text."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kept.skills.usage import Status
from kept.storage.files import make_folder, read_bytes, write_atomically

KEPT = 50


@dataclass(frozen=True, slots=True)
class Move:
    """One skill that changes its state."""

    name: str
    was: Status
    becomes: Status
    idle_days: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did, or would do."""

    time: str
    moves: tuple[Move, ...]
    flagged: tuple[str, ...] = ()
    """Skills whose newest version goes badly more often than the one before."""
    dry_run: bool = False
    backup: str | None = None
    failed: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        row = asdict(self)
        row["moves"] = [{**move, "was": str(move["was"]), "becomes": str(move["becomes"])} for move in row["moves"]]
        return row

    def as_text(self) -> str:
        """Return the report for a person."""
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
    """Keep the report, dropping the oldest beyond fifty, and return it."""
    reports = folder / "reports"
    make_folder(reports)
    stamp = report.time.replace(":", "").replace("-", "")
    write_atomically(reports / f"{stamp}.json", json.dumps(report.as_json(), indent=1, ensure_ascii=False).encode())
    for old in sorted(reports.glob("*.json"))[:-KEPT]:
        old.unlink(missing_ok=True)
    return report


def newest(folder: Path) -> Report | None:
    """Return the last report that can be read."""
    for path in sorted((folder / "reports").glob("*.json"), reverse=True):
        try:
            return _revived(json.loads(read_bytes(path) or b""))
        except (ValueError, KeyError, TypeError):
            continue
    return None


def _revived(row: Mapping[str, Any]) -> Report:
    moves = [
        Move(move["name"], Status(move["was"]), Status(move["becomes"]), move["idle_days"]) for move in row["moves"]
    ]
    return Report(
        row["time"],
        tuple(moves),
        tuple(row["flagged"]),
        dry_run=row["dry_run"],
        backup=row["backup"],
        failed=tuple(row["failed"]),
    )
