"""What an import of conversations did, line by line."""

from dataclasses import dataclass, field

from kept.core.text import JSON

MOST_REPORTED = 200


@dataclass(slots=True)
class ImportReport:
    """What an import did; `problems` names the first bad lines by number."""

    lines: int = 0
    sessions: int = 0
    messages: int = 0
    known: int = 0
    forgotten: int = 0
    bad: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, number: int, why: str) -> None:
        """Count a bad line."""
        self.bad += 1
        if len(self.problems) < MOST_REPORTED:
            self.problems.append((number, why))

    def as_json(self) -> dict[str, JSON]:
        """Return the report for programs."""
        return {
            "lines": self.lines,
            "sessions": self.sessions,
            "messages": self.messages,
            "known": self.known,
            "forgotten": self.forgotten,
            "bad": self.bad,
            "problems": [{"line": number, "error": why} for number, why in self.problems],
        }
