"""What becomes of whole conversations: those a prune takes, what was removed for good, how far vectors go."""

from dataclasses import dataclass

from kept.core.messages import Session


@dataclass(frozen=True, slots=True)
class Pruned:
    """The sessions that a prune takes, with the bytes of their text."""

    sessions: tuple[Session, ...] = ()
    text_bytes: int = 0


@dataclass(slots=True)
class Removed:
    """What went for good."""

    sessions: int = 0
    messages: int = 0
    blobs: int = 0


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of the messages that can have vectors have them."""

    model: str | None
    covered: int
    waiting: int

    @property
    def share(self) -> float:
        """Return the share from 0 to 1; of no messages all are covered."""
        return self.covered / (self.covered + self.waiting) if self.covered + self.waiting else 1.0
