"""Regular expressions that run only near the literals they cannot do without."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

_RUN = re.compile(r"[a-z0-9]+")
_REACH = 400
"""No expression looks further than this from its anchor."""
_DENSE = 4_096
"""A longer stretch has an anchor in nearly every line; no note looks so."""
_LONGEST_STRETCH = 6_000
_DENSE_STRETCHES = 4
"""More of them flood the text; so the time of an expression is bounded, whatever the text."""
_FLOOD = 20_000
_HEAD = 3
_MANY_WORDS = 2_000
_LONGEST_MEMO = 20_000


class Places:
    """Where the anchors that are `present` in a text stand; each is looked for once, whatever needs it."""

    __slots__ = ("_found", "present", "text")

    def __init__(self, text: str, present: frozenset[str]) -> None:
        """Look for nothing yet."""
        self.text = text
        self.present = present
        self._found: dict[str, list[int]] = {}

    def of(self, anchor: str) -> list[int]:
        """Return the places of `anchor`, up to a number that only a flood has."""
        found = self._found.get(anchor)
        if found is None:
            *before, _ = self.text.split(anchor, max(_FLOOD, len(self.text) // _REACH))
            ends = accumulate(map(len, before))
            found = self._found[anchor] = [end + count * len(anchor) for count, end in enumerate(ends)]
        return found


class TextPattern:
    """A regular expression that runs only near one of its literal anchors.

    `a~b && c~d :: expression` asks that one of the second group, too, is within reach of one of the first.
    """

    __slots__ = ("_beside", "_regex", "_within_line", "anchors", "source")

    def __init__(self, line: str) -> None:
        """Read `anchor~anchor :: expression`; nothing is compiled yet."""
        literals, _, self.source = line.partition(" :: ")
        anchors, _, beside = literals.partition(" && ")
        self.anchors = anchors.split("~")
        self._beside = beside.split("~") if beside else []
        self._regex: re.Pattern[str] | None = None
        self._within_line = "[^\\n" in self.source

    def matches(self, places: Places) -> bool | None:
        """Tell whether the expression is found near the anchors that are present.

        None: the anchors flood the text, so that not all of it was tried.
        """
        if places.present.isdisjoint(self.anchors):
            return False
        if self._regex is None:
            self._regex = re.compile(self.source)
        dense = 0
        text = places.text
        near = (
            stretch
            for anchor in self.anchors
            if anchor in places.present
            for stretch in _near(text, places.of(anchor), within_line=self._within_line)
        )
        for start, end in near:
            dense += end - start > _DENSE
            if dense > _DENSE_STRETCHES:
                return None
            if self._beside and not any(text.find(literal, start, end) >= 0 for literal in self._beside):
                continue
            if self._regex.search(text, start, end) is not None:
                return True
        return False


class Anchors:
    """All anchors, found by the words of a text."""

    def __init__(self, anchors: Iterable[str]) -> None:
        """Sort `anchors` by the letters that a word of the text must hold for each, its core."""
        self._bare: list[str] = []
        self._held: dict[str, Sequence[str]] = {}
        self._of_core: dict[str, list[str]] = {}
        self._heads: dict[str, list[str]] = {}
        for anchor in dict.fromkeys(anchors):
            core = max(_RUN.findall(anchor), key=len, default="")
            if len(core) < _HEAD:
                self._bare.append(anchor)
            elif core in self._of_core:
                self._of_core[core].append(anchor)
            else:
                self._of_core[core] = [anchor]
                self._heads.setdefault(core[:_HEAD], []).append(core)

    def among(self, text: str, words: Collection[str], vocabulary: str) -> frozenset[str]:
        """Return the anchors that occur in `text`; its words are `words`, `vocabulary` holds them all."""
        likely = [(core, anchor) for core in self._cores(words, vocabulary) for anchor in self._of_core[core]]
        found = [anchor for core, anchor in likely if anchor == core or anchor in text]
        return frozenset(found + [anchor for anchor in self._bare if anchor in text])

    def _cores(self, words: Collection[str], vocabulary: str) -> Iterable[str]:
        if len(words) > _MANY_WORDS:
            return [core for core in self._of_core if core in vocabulary]
        if len(self._held) > _LONGEST_MEMO:
            self._held.clear()
        return {core for word in words for core in self._in_word(word)}

    def _in_word(self, word: str) -> Sequence[str]:
        held = self._held.get(word)
        if held is None:
            heads = self._heads
            starts = [word[place : place + _HEAD] for place in range(len(word) - _HEAD + 1)]
            held = [core for start in heads.keys() & starts for core in heads[start] if core in word]
            self._held[word] = held = held or ()
        return held


def _near(text: str, places: list[int], *, within_line: bool) -> Iterator[tuple[int, int]]:
    """Yield the stretches of text around the places of an anchor, those that overlap as one."""
    start, end = -1, -1
    for place in places:
        first, last = _stretch(text, place, within_line=within_line)
        if start >= 0 and (first > end or end - start > _LONGEST_STRETCH):
            yield start, end
            start = -1
        start = first if start < 0 else start
        end = last
    if start >= 0:
        yield start, end


def _stretch(text: str, place: int, *, within_line: bool) -> tuple[int, int]:
    """Return what an expression may see from `place`: its line with both ends, or all within reach."""
    start, end = max(0, place - _REACH), place + _REACH
    if within_line:
        start = max(start, text.rfind("\n", start, place))
        line_end = text.find("\n", place, end)
        end = end if line_end < 0 else line_end + 1
    return start, end
