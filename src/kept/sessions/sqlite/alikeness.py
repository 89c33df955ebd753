"""What the meanings of messages add to a search: their likeness to the question, as lines and as sessions."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from kept.sessions.rank import Line, Weights
from kept.sessions.sqlite.terms import Held
from kept.sessions.text import SPEAKER


class Likeness(Protocol):
    """A question's vector, held against those of the messages."""

    def nearest(self, allowed: Collection[int] | None) -> Mapping[int, float]:
        """Return the messages most like the question, among `allowed` where that is given."""
        ...

    def of(self, ids: Iterable[int]) -> Mapping[int, float]:
        """Return how much each of these messages is like the question."""
        ...


Asks: TypeAlias = Callable[[str], Likeness | None]
"""Makes the vector of a question; None where there is none to be had."""


def without_names(query: str, terms: Sequence[Held]) -> str:
    """Return the question without the names of people who speak: a name is like everything that they say."""
    names = [re.escape(held.text) for held in terms if held.speaking and not held.text.startswith(SPEAKER)]
    if not names:
        return query
    rest = re.sub(rf"\b(?:{'|'.join(names)})\b(?:['’]s\b)?", " ", query, flags=re.IGNORECASE)
    return " ".join(rest.split()) if re.search(r"\w", rest) else query


class Alikeness:
    """The likeness of the lines of one session, in their order."""

    def __init__(self, alike: Mapping[int, float], ids: Sequence[int], weights: Weights) -> None:
        self._alike = alike
        self._ids = ids
        self._place = {number: index for index, number in enumerate(ids)}
        self._weights = weights

    def of(self, line: Line, *, names_people: bool) -> float:
        """Return the likeness of a line: its own, and a share of the more alike of its neighbours."""
        use = self._weights
        place = self._place[line.message_id]
        near = max(self._at(place - 1), self._at(place + 1))
        own = self._at(place) + use.meaning_near * near
        return own if line.spoken or not names_people else use.meaning_other * own

    def _at(self, place: int) -> float:
        return self._alike.get(self._ids[place], 0.0) if 0 <= place < len(self._ids) else 0.0


def of_session(lines: Sequence[Line], weights: Weights) -> float:
    """Return the likeness of a session, from those of its lines."""
    best, second, *_ = *sorted((line.likeness for line in lines), reverse=True)[:2], 0.0, 0.0
    return best + weights.runner_up * second
