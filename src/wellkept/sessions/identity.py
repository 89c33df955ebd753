"""Which lines of an import are stored already, and under which ids."""

from msgspec import Struct, field

from wellkept.core.ids import MessageId
from wellkept.sessions.records import Print

THIS_IMPORT = MessageId(0)
"""Stands for the id of a message that the same import has just read and not stored yet."""


class Stored(Struct):
    """The messages of one session, and the position of an import in it.

    A line with an external id is stored if the id is. Any other line is stored if the message at its position has its
    role and content, or if the store has the same message with the same time at least as often as the import.
    """

    external: dict[str, MessageId] = field(default_factory=dict)
    order: list[tuple[Print, MessageId]] = field(default_factory=list)
    moments: dict[tuple[Print, float], list[MessageId]] = field(default_factory=dict)
    _place: int = 0
    _seen: dict[tuple[Print, float], int] = field(default_factory=dict)

    def remember(self, message_id: MessageId, external_id: str | None, *, mark: Print, moment: float) -> None:
        """Add a message that the store holds."""
        if external_id is not None:
            self.external[external_id] = message_id
        self.order.append((mark, message_id))
        self.moments.setdefault((mark, moment), []).append(message_id)

    def find(self, external_id: str | None, mark: Print, moment: float) -> MessageId | None:
        """Return the id under which the next line is stored, or None if it is new."""
        place, self._place = self._place, self._place + 1
        seen = self._seen.get((mark, moment), 0)
        self._seen[mark, moment] = seen + 1
        if external_id is not None:
            return self.external.get(external_id)
        if place < len(self.order) and self.order[place][0] == mark:
            return self.order[place][1]
        same = self.moments.get((mark, moment), [])
        return same[seen] if seen < len(same) else None
