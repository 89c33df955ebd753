"""Counters that say when a review is due."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kept.core.text import JSON

SKILL_CALLS = 5
"""From so many tool calls in one turn on, its procedure may be worth keeping."""


@dataclass(frozen=True, slots=True)
class Nudges:
    """User turns since memory was last written or reviewed, and tool rounds since skills were."""

    turns: int = 0
    iterations: int = 0

    def after_turn(self, *, used: frozenset[str], iterations: int) -> "Nudges":
        """Return the counters after a turn; using a tool resets its counter."""
        turns = 0 if "memory" in used else self.turns + 1
        rounds = 0 if "skill_manage" in used else self.iterations + iterations
        return Nudges(turns, rounds)

    def memory_due(self, interval: int) -> bool:
        """Whether memory is to be reviewed; an interval of 0 switches it off."""
        return interval > 0 and self.turns >= interval

    def skills_due(self, interval: int, *, calls: int, corrected: bool) -> bool:
        """Whether skills are to be reviewed: after much work, a correction, or many rounds."""
        if interval <= 0:
            return False
        return calls >= SKILL_CALLS or corrected or self.iterations >= interval

    def reviewed(self, *, memory: bool, skills: bool) -> "Nudges":
        """Return the counters after a review."""
        return replace(self, turns=0 if memory else self.turns, iterations=0 if skills else self.iterations)

    def as_json(self) -> dict[str, JSON]:
        """Return what is kept with the session."""
        return {"turns": self.turns, "iterations": self.iterations}


def nudges_from(value: JSON) -> Nudges:
    """Return the counters that a session was left with."""
    if not isinstance(value, Mapping):
        return Nudges()
    turns, iterations = value.get("turns"), value.get("iterations")
    return Nudges(turns if isinstance(turns, int) else 0, iterations if isinstance(iterations, int) else 0)
