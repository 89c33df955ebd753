"""The model's window, and the token limits that follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kept.context.settings import CompressionSettings
from kept.core.text import JSON

SUMMARY_SHARE = 0.05
SUMMARY_CEILING = 12_000
URGENT_SHARE = 0.85
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
        return int(self.context_length * URGENT_SHARE)


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


COOL_DOWNS = (60.0, 300.0, 900.0)
INEFFECTIVE_SHARE = 0.10
MOST_INEFFECTIVE = 2


@dataclass(frozen=True, slots=True)
class Backoff:
    """How the last compactions went."""

    failures: int = 0
    """Compactions in a row that the summary model's outage stopped."""
    cool_until: float = 0.0
    """Epoch seconds before which no automatic compaction asks the model again."""
    ineffective: int = 0
    """Automatic compactions in a row that saved less than a tenth."""
    by_rule: int = 0
    """Summaries in a row that had to be written by rule."""

    @property
    def is_stopped(self) -> bool:
        """Whether compacting has shown that it does not help for now."""
        return self.ineffective >= MOST_INEFFECTIVE

    def is_cooling(self, now: float) -> bool:
        """Whether the summary model is left alone at `now`."""
        return now < self.cool_until

    def after_outage(self, now: float) -> "Backoff":
        """Return the pace once the model was out of reach: 60, 300, then 900 seconds of rest."""
        wait = COOL_DOWNS[min(self.failures, len(COOL_DOWNS) - 1)]
        return replace(self, failures=self.failures + 1, cool_until=now + wait)

    def after_compaction(self, saved_share: float, *, automatic: bool, by_rule: bool) -> "Backoff":
        """Return the pace once a compaction ended."""
        poor = automatic and saved_share < INEFFECTIVE_SHARE
        return replace(
            self,
            failures=self.failures if by_rule else 0,
            cool_until=self.cool_until if by_rule else 0.0,
            ineffective=self.ineffective + 1 if poor else 0,
            by_rule=self.by_rule + 1 if by_rule else 0,
        )

    def after_reading(self, prompt_tokens: int, threshold: int) -> "Backoff":
        """Return the pace once an endpoint reported a prompt of that size.

        A stop ends when the size falls clearly below the threshold; just below it the next turn
        would begin the same again.
        """
        has_fallen = 0 < prompt_tokens < threshold * (1 - INEFFECTIVE_SHARE)
        return replace(self, ineffective=0) if self.is_stopped and has_fallen else self

    def as_json(self) -> dict[str, JSON]:
        """Return what a later process needs to know."""
        return {
            "failures": self.failures,
            "cool_until": self.cool_until,
            "ineffective": self.ineffective,
            "by_rule": self.by_rule,
        }


def load_backoff(value: JSON) -> Backoff:
    """Return the pace that `as_json` wrote; what cannot be read counts as a fresh start."""
    if not isinstance(value, Mapping):
        return Backoff()

    def number(key: str) -> float:
        found = value.get(key)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else 0.0

    return Backoff(int(number("failures")), number("cool_until"), int(number("ineffective")), int(number("by_rule")))


MOST_MESSAGES = 5_000
LEAST_MESSAGES = 4


def needs_hygiene(
    message_count: int, *, tokens: int, context_length: int, enabled: bool = True, reported_tokens: int | None = None
) -> bool:
    """Whether to compact now: at 0.85 of the window or 5,000 messages, with at least four messages.

    What the endpoint reported for the last turn counts first, the estimate `tokens` otherwise.
    """
    if not enabled or message_count < LEAST_MESSAGES:
        return False
    return (reported_tokens or tokens) >= context_length * URGENT_SHARE or message_count >= MOST_MESSAGES
