"""Hygiene: whether a session outgrew its window between turns and is compacted before the next."""

from kept.context.window import HYGIENE_RATIO

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
    return (reported_tokens or tokens) >= context_length * HYGIENE_RATIO or message_count >= MOST_MESSAGES
