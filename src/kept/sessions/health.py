"""A store's health: what is wrong with it, and what a repair did about it."""

from dataclasses import dataclass, field
from pathlib import Path

from kept.core.text import JSON


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, and what to do about it."""

    what: str
    remedy: str


@dataclass(slots=True)
class Salvaged:
    """How many rows of each table were brought over, and how many could not be read."""

    rows: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    unnamed_sessions: int = 0
    """Sessions whose own row was lost; their messages stand under a row made anew."""

    def as_json(self) -> dict[str, JSON]:
        """Return the outcome for programs."""
        return {"rows": dict(self.rows), "lost": dict(self.lost), "unnamed_sessions": self.unnamed_sessions}


@dataclass(slots=True)
class Repaired:
    """What was wrong, what was done, and what is still wrong."""

    found: list[Finding] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    salvaged: Salvaged | None = None
    put_aside: Path | None = None

    def as_json(self) -> dict[str, JSON]:
        """Return the outcome for programs."""
        return {
            "found": [finding.what for finding in self.found],
            "done": list(self.done),
            "left": [finding.what for finding in self.left],
            "salvaged": None if self.salvaged is None else self.salvaged.as_json(),
            "put_aside": None if self.put_aside is None else str(self.put_aside),
        }
