"""Citations: the message ids behind each line of a summary, checked and completed."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kept.core.messages import StoredMessage

_NEXT = r"\s{0,3}[,;–-]\s{0,3}#?\d{1,18}|\s{1,3}(?:to|and)\s{1,3}#?\d{1,18}|\s{1,3}#\d{1,18}"
_BRACKET = re.compile(rf" ?\[\s{{0,3}}#\d{{1,18}}(?:{_NEXT})*\s{{0,3}}\]")
_ID = re.compile(r"\d+")
_WORD = re.compile(r"\w{3,}")
_LONGEST_INDEXED = 4_000


def cited(text: str) -> set[int]:
    """Return every message id that `text` cites."""
    return {int(one) for bracket in _BRACKET.findall(text) for one in _ID.findall(bracket)}


@dataclass(frozen=True, slots=True)
class Sources:
    """The messages that a line may rest on, with an index of their words."""

    allowed: frozenset[int]
    places: Mapping[str, Sequence[int]]
    span: tuple[int, int] | None

    def checked(self, line: str) -> str:
        """Return `line` ending in ids that exist: those it cites, else those whose words it shares."""
        ids = sorted(cited(line) & self.allowed)
        bare = _BRACKET.sub("", line).rstrip()
        return f"{bare} [{self._shown(ids or self._nearest(bare))}]" if ids or self.span else bare

    def _nearest(self, line: str) -> list[int]:
        scores: dict[int, float] = defaultdict(float)
        for word in set(_WORD.findall(line.lower())):
            places = self.places.get(word, ())
            for place in places:
                scores[place] += 1 / len(places)
        best = sorted(scores, key=lambda place: (-scores[place], place))[:2]
        return sorted(place for place in best if scores[place] >= scores[best[0]] / 2)

    def _shown(self, ids: Sequence[int]) -> str:
        if ids:
            return ", ".join(f"#{one}" for one in ids)
        return f"#{self.span[0]}, #{self.span[1]}" if self.span else ""


def sources(rows: Sequence[StoredMessage], *, known: Collection[int] = ()) -> Sources:
    """Return the sources that `rows` are, together with ids `known` from an earlier summary."""
    places: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        for word in set(_WORD.findall(row.message.text[:_LONGEST_INDEXED].lower())):
            places[word].append(row.id)
    ids = [int(row.id) for row in rows]
    return Sources(frozenset({*ids, *known}), places, (min(ids), max(ids)) if ids else None)
