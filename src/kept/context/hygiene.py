"""Hygiene: whether a session outgrew its window between turns and is compacted before the next."""

from kept.context.settings import CompressionSettings
from kept.context.window import HYGIENE_RATIO

MOST_MESSAGES = 5_000
LEAST_MESSAGES = 4


def needs_hygiene(
    settings: CompressionSettings,
    *,
    message_count: int,
    context_length: int,
    estimated_tokens: int,
    reported_tokens: int | None = None,
) -> bool:
    """Whether to compact now: at 0.85 of the window or 5,000 messages.

    The size that the endpoint reported for the last turn counts first, the estimate otherwise.
    """
    if not settings.enabled or message_count < LEAST_MESSAGES:
        return False
    tokens = reported_tokens or estimated_tokens
    return tokens >= context_length * HYGIENE_RATIO or message_count >= MOST_MESSAGES
