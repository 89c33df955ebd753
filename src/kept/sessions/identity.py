"""Which message of an import is stored already."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

Print: TypeAlias = bytes
"""A short hash of role and content; 96 bits are enough for one session."""


def fingerprint(role: str, content: str, parts: str | None, tool_calls: str | None) -> Print:
    """Return the hash that stands for a message's role and content."""
    whole = "\0".join((role, content, parts or "", tool_calls or ""))
    return hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=12).digest()


@dataclass(slots=True)
class Stored:
    """What one session holds, and how far the lines of one import have walked through it.

    A line with an external id is known by it. Any other is known when the message at its place has its role and
    content, or when the same words were said at the same moment as often as the import says them.
    """

    external: set[str] = field(default_factory=set)
    order: list[Print] = field(default_factory=list)
    moments: Counter[tuple[Print, float]] = field(default_factory=Counter)
    _place: int = 0
    _met: Counter[tuple[Print, float]] = field(default_factory=Counter)

    def remember(self, external_id: str | None, mark: Print, moment: float) -> None:
        """Take note of a message that the store holds."""
        if external_id is not None:
            self.external.add(external_id)
        self.order.append(mark)
        self.moments[mark, moment] += 1

    def holds(self, external_id: str | None, mark: Print, moment: float) -> bool:
        """Whether the next line is stored already."""
        place, self._place = self._place, self._place + 1
        self._met[mark, moment] += 1
        if external_id is not None:
            return external_id in self.external
        if place < len(self.order) and self.order[place] == mark:
            return True
        return self._met[mark, moment] <= self.moments[mark, moment]
