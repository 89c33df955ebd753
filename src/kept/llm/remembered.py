"""Counts of texts that are remembered without the texts: a history that is sent again is not counted again."""

from collections.abc import Callable
from functools import update_wrapper

MOST = 8_192
"""How many texts keep their count."""


class Remembered:
    """A function that counts texts, with a memory of its answers.

    A text is known by its hash of 64 bits, so that a conversation of days keeps no text alive here.
    When the memory is full it begins anew: what is still sent is counted once more.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._known: dict[int, int] = {}
        update_wrapper(self, count)

    def __call__(self, text: str) -> int:
        """Return the count of `text`."""
        key = hash(text)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST:
                self.forget()
            found = self._known[key] = self._count(text)
        return found

    def forget(self) -> None:
        """Begin anew."""
        self._known.clear()
