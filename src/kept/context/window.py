"""The model's window, and the token limits that follow from it."""

from dataclasses import dataclass

from kept.context.settings import CompressionSettings

SUMMARY_SHARE = 0.05
SUMMARY_CEILING = 12_000
HYGIENE_RATIO = 0.85
"""The share of the window beyond which a compaction cannot wait for a better moment."""


@dataclass(frozen=True, slots=True)
class Window:
    """How much a model takes, and how much of it is spoken for."""

    context_length: int
    overhead_tokens: int = 0
    """The system prompt and the tool schemas, which no compaction makes smaller."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers that a compaction works with, in tokens and messages."""

    context_length: int
    overhead: int
    threshold: int
    tail: int
    summary_cap: int
    protect_first: int
    protect_last: int

    @property
    def urgent(self) -> int:
        """Return the tokens from which on waiting risks an overflow."""
        return int(self.context_length * HYGIENE_RATIO)


def limits(window: Window, settings: CompressionSettings) -> Limits:
    """Return the limits of `window`: for 200,000 tokens 100,000, a tail of 20,000, a summary of 10,000."""
    threshold = int(window.context_length * settings.threshold)
    return Limits(
        context_length=window.context_length,
        overhead=window.overhead_tokens,
        threshold=threshold,
        tail=int(threshold * settings.target_ratio),
        summary_cap=min(int(window.context_length * SUMMARY_SHARE), SUMMARY_CEILING),
        protect_first=settings.protect_first_n,
        protect_last=settings.protect_last_n,
    )
