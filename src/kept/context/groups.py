"""Groups: the runs of messages that only make sense together."""

from collections.abc import Sequence

from kept.context.repair import is_empty
from kept.core.messages import Message, Role


def groups(messages: Sequence[Message]) -> list[range]:
    """Return the places of each group in order: a call with its results, or one message alone."""
    found: list[range] = []
    place = 0
    while place < len(messages):
        end = place + 1
        if messages[place].role is Role.ASSISTANT and messages[place].tool_calls:
            while end < len(messages) and messages[end].role is Role.TOOL:
                end += 1
        found.append(range(place, end))
        place = end
    return found


def last_user(messages: Sequence[Message]) -> int | None:
    """Return the place of the last user message that says or shows something, or None."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role is Role.USER and not is_empty(messages[place]):
            return place
    return None
