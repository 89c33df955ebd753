"""A clock for tests."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(slots=True)
class FixedClock:
    """A clock that stands still until it is moved."""

    moment: datetime = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
    step: timedelta = timedelta()
    """How far it moves by itself each time it is asked: with some, no two moments are the same."""

    def now(self) -> datetime:
        """Return the moment it stands at."""
        self.moment += self.step
        return self.moment

    def forward(self, **span: float) -> None:
        """Move on by `span`, named as `timedelta` names it: `days=3`."""
        self.moment += timedelta(**span)
