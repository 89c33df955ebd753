"""Measure: a context as it is sent, with the tokens of each message."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kept.context.repair import repaired
from kept.context.window import Limits
from kept.core.messages import ImagePart, Message, StoredMessage, TextPart

Count = Callable[[Message], int]

MOST_CORRECTION = 4.0


def as_sent(row: StoredMessage) -> Message:
    """Return the message as the model was sent it: with the exact text where that differed."""
    if row.api_content is None:
        return row.message
    if isinstance(row.message.content, str):
        return replace(row.message, content=row.api_content)
    images = tuple(part for part in row.message.content if isinstance(part, ImagePart))
    return replace(row.message, content=(TextPart(row.api_content), *images))


def sent(rows: Sequence[StoredMessage]) -> tuple[Message, ...]:
    """Return the messages of a request: `rows` as sent, in an order that every API accepts."""
    return repaired([as_sent(row) for row in rows])


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows with their sizes, brought into line with what the endpoint reported."""

    rows: Sequence[StoredMessage]
    messages: Sequence[Message]
    sizes: Sequence[int]
    overhead: int
    correction: float
    count: Count

    @property
    def total(self) -> int:
        """Return the tokens of the whole request."""
        return self.overhead + sum(self.sizes)

    def size(self, message: Message) -> int:
        """Return the tokens of a message that is not among the rows."""
        return int(self.count(message) * self.correction + 0.999)

    def total_of(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a request with these messages in place of the rows."""
        known = {id(one): size for one, size in zip(self.messages, self.sizes, strict=True)}
        return self.overhead + sum(known.get(id(one)) or self.size(one) for one in messages)


def measured(rows: Sequence[StoredMessage], count: Count, *, limits: Limits, current_tokens: int | None) -> Measured:
    """Return `rows` measured; a reported size larger than the estimate scales every message up."""
    messages = [as_sent(row) for row in rows]
    sizes = [count(message) for message in messages]
    guess = limits.overhead + sum(sizes)
    correction = 1.0
    if current_tokens is not None and guess:
        # a reading from before the newest messages is too small, so it never scales down
        correction = min(MOST_CORRECTION, max(1.0, current_tokens / guess))
    if correction > 1.0:
        sizes = [int(size * correction + 0.999) for size in sizes]
    return Measured(rows, messages, sizes, int(limits.overhead * correction), correction, count)
