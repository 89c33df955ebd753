"""The model's window, the token limits derived from it, and the backoff of automatic compaction."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from wellkept.context.settings import CompressionSettings
from wellkept.core.text import JSON
from wellkept.core.values import JsonStruct

SUMMARY_SHARE = 0.05
SUMMARY_CEILING = 12_000
"""A summary takes at most this share of the window, and never more than this many tokens."""
URGENT_SHARE = 0.85
"""From this share of the window on, a compaction cannot be postponed."""


class Window(Struct, frozen=True):
    """The size of a model's context, and how much of it is taken."""

    context_length: int
    overhead_tokens: int = 0
    """Tokens of the system prompt and the tool schemas, which compaction cannot reduce."""


class Limits(Struct, frozen=True):
    """The limits of a compaction, in tokens and messages."""

    context_length: int
    overhead: int
    threshold: int
    tail: int
    summary_cap: int
    protect_first: int
    protect_last: int

    @property
    def urgent(self) -> int:
        """The size from which on waiting risks an overflow."""
        return int(self.context_length * URGENT_SHARE)


def limits(window: Window, settings: CompressionSettings) -> Limits:
    """Return the limits of `window`. With 200,000 tokens: threshold 100,000, tail 20,000, summary 10,000."""
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
MAX_INEFFECTIVE = 2
"""After this many compactions in a row that saved less than that share, automatic ones are paused."""


class Backoff(JsonStruct, frozen=True):
    """The results of the last compactions, which decide whether automatic ones must wait."""

    failures: int = 0
    """Consecutive compactions that failed because the summary model was unreachable."""
    cool_until: float = 0.0
    """End of the cooldown in epoch seconds; until then automatic compactions do not call the model."""
    ineffective: int = 0
    """Consecutive automatic compactions that saved less than a tenth."""
    by_rule: int = 0
    """Consecutive summaries that were written by rule."""

    @property
    def is_stopped(self) -> bool:
        """Whether automatic compaction is paused because it saved too little."""
        return self.ineffective >= MAX_INEFFECTIVE

    def is_cooling(self, now: float) -> bool:
        """Whether the cooldown lasts at `now`."""
        return now < self.cool_until

    def after_outage(self, now: float) -> "Backoff":
        """Return the backoff after a failure of the model: a cooldown of 60, 300, then 900 seconds."""
        wait = COOL_DOWNS[min(self.failures, len(COOL_DOWNS) - 1)]
        return replace(self, failures=self.failures + 1, cool_until=now + wait)

    def after_compaction(self, saved_share: float, *, automatic: bool, by_rule: bool) -> "Backoff":
        """Return the backoff after a compaction."""
        poor = automatic and saved_share < INEFFECTIVE_SHARE
        return replace(
            self,
            failures=self.failures if by_rule else 0,
            cool_until=self.cool_until if by_rule else 0.0,
            ineffective=self.ineffective + 1 if poor else 0,
            by_rule=self.by_rule + 1 if by_rule else 0,
        )

    def after_reading(self, prompt_tokens: int, threshold: int) -> "Backoff":
        """Return the backoff after an endpoint reported the size of a prompt.

        A pause ends when the size is clearly below the threshold; just below it, the next turn would
        pause again.
        """
        has_fallen = 0 < prompt_tokens < threshold * (1 - INEFFECTIVE_SHARE)
        return replace(self, ineffective=0) if self.is_stopped and has_fallen else self


def load_backoff(value: JSON) -> Backoff:
    """Return the backoff that `as_json` wrote; invalid values count as zero."""
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
    """Whether to compact before a turn: at 0.85 of the window or 5,000 messages, with at least four messages.

    The size that the endpoint reported for the last turn takes precedence over the estimate `tokens`.
    """
    if not enabled or message_count < LEAST_MESSAGES:
        return False
    return (reported_tokens or tokens) >= context_length * URGENT_SHARE or message_count >= MOST_MESSAGES
