"""The patterns of rules: structures over word classes, and expressions near literal anchors."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from wellkept.core.text import expression
from wellkept.security.skeleton import BREAK, COLON, START, Lexicon

_COMMON = (
    "the and a to i you of that in for your it or with is on can have be are they like as was do 2 more if about "
    "know by but my am this an so help he how not great from what their think good at any make did there use time "
    "would them up me also has one get will out been new well when other way these sure here all which tips just "
    "who game create such yes find his see into keep we no might consider remember including team take could need "
    "even only using lot had its work before love data people add want check different back provide those play now "
    "look book first were cool making then should may focus got nice ensure start during each few where always stay "
    "her ai go over thanks though set never"
)
_RANKS = {word: rank for rank, word in enumerate(_COMMON.split(), start=2)}
"""Frequency ranks of common English words; all others count as rare."""
_SELDOM = 2_000


class Structure:
    """One pattern over word classes, compiled when a text first contains all that it needs.

    `verb ..3 noun` allows up to three other words between, within one sentence
    (`..3!verb`: none of them a verb); `^` is the start of
    a sentence or clause and `^^` of the text; `?word` is optional, `!word` forbids the next word;
    `=a|b` names words, and `verb|=a|b` is either.
    `&12 verb noun !stop` is a bag: the words in any order within twelve of one sentence, none that is forbidden.
    """

    __slots__ = ("_lexicon", "_needs", "_regex", "rule", "source")

    def __init__(self, source: str, lexicon: Lexicon, rule: str = "") -> None:
        """Store `source` without compiling it."""
        self.source = source
        self.rule = rule
        self._lexicon = lexicon
        self._needs: list[frozenset[str]] | None = None
        self._regex: re.Pattern[str] | None = None

    def needed(self) -> list[str]:
        """Return the elements that a matching sentence must contain."""
        return [part for part in self.source.split() if part[0] not in ".^?!&"]

    def may_match(self, symbols: frozenset[str]) -> bool:
        """Tell whether a sentence with these `symbols` contains a word of each needed element."""
        if self._needs is None:
            self._needs = [frozenset(self._lexicon.element(part)) for part in self.needed()]
        return not any(need.isdisjoint(symbols) for need in self._needs)

    def matches(self, skeleton: str) -> bool:
        """Tell whether `skeleton` has this structure."""
        if self._regex is None:
            parts = self.source.split()
            source = self._bag(parts) if parts[0][0] == "&" else "".join(map(self._element, parts))
            self._regex = re.compile(source)
        return self._regex.search(skeleton) is not None

    def _bag(self, parts: list[str]) -> str:
        """Return an expression that finds a first word with all the others after it, in any order."""
        reach = f"[^{BREAK}]{{0,{parts[0][1:]}}}?"
        needed = [self._lexicon.element(part) for part in parts[1:] if part[0] != "!"]
        barred = [self._lexicon.element(part[1:]) for part in parts[1:] if part[0] == "!"]
        ahead = [f"(?={reach}[{symbols}])" for symbols in needed] + [f"(?!{reach}[{symbols}])" for symbols in barred]
        return f"(?=[{''.join(needed)}])" + "".join(ahead)

    def _element(self, part: str) -> str:
        if part == "^^":
            return f"\\{START}"
        if part == "^":
            return f"[\\{START}{BREAK}{COLON}]"
        if part.startswith(".."):
            size, _, barrier = part[2:].partition("!")
            return f"[^{BREAK}{self._lexicon.element(barrier) if barrier else ''}]{{0,{size}}}?"
        if part[0] == "?":
            return f"[{self._lexicon.element(part[1:])}]?"
        if part[0] == "!":
            return f"(?![{self._lexicon.element(part[1:])}])"
        return f"[{self._lexicon.element(part)}]"


class Keys(NamedTuple):
    """The keys of the structures in the index; choosing them would be the slowest part of the scanner's start."""

    under: Mapping[str, Sequence[int]]
    """Symbol → the numbers of the structures whose rarest element has that symbol."""
    seconds: Sequence[str]
    """The element of each structure that is checked next."""


def choose_keys(structures: Iterable[Structure], lexicon: Lexicon) -> Keys:
    """Return the rarest element of each structure, by its symbols, and the one after it."""
    chances = _Chances(lexicon)
    under: dict[str, list[int]] = {}
    seconds: list[str] = []
    for number, structure in enumerate(structures):
        first, *others = sorted(structure.needed(), key=chances.__getitem__)[:2]
        seconds.append(others[0] if others else first)
        for symbol in lexicon.element(first):
            under.setdefault(symbol, []).append(number)
    return Keys(under, seconds)


class Index:
    """Structures indexed by the words of their rarest element, so that few are tried per sentence."""

    def __init__(self, structures: Sequence[Structure], lexicon: Lexicon, keys: Keys) -> None:
        self._structures = structures
        self._lexicon = lexicon
        self._chosen = keys
        self._keys = frozenset(keys.under)
        self._under: dict[str, list[tuple[frozenset[str], Structure]]] = {}

    def find_rules(self, sentences: Iterable[str]) -> set[str]:
        """Return the ids of rules with a structure that matches one of the `sentences`."""
        rules: set[str] = set()
        for sentence in sentences:
            hot = self._keys.intersection(sentence)
            if hot:
                rules.update(self._match_structures(sentence, hot, rules))
        return rules

    def _match_structures(self, sentence: str, hot: frozenset[str], known: set[str]) -> Iterator[str]:
        symbols = frozenset(sentence)
        for symbol in hot:
            for second, structure in self._under.get(symbol) or self._load(symbol):
                if (
                    not second.isdisjoint(symbols)
                    and structure.rule not in known
                    and structure.may_match(symbols)
                    and structure.matches(sentence)
                ):
                    yield structure.rule

    def _load(self, symbol: str) -> list[tuple[frozenset[str], Structure]]:
        """Return the structures under a symbol; most symbols never occur in the texts of a process."""
        entries = [
            (frozenset(self._lexicon.element(self._chosen.seconds[number])), self._structures[number])
            for number in self._chosen.under[symbol]
        ]
        self._under[symbol] = entries
        return entries


class _Chances(dict[str, float]):
    """How likely a word of an element is in ordinary prose, by how common its words are."""

    def __init__(self, lexicon: Lexicon) -> None:
        super().__init__()
        self._lexicon = lexicon
        self._of = {COLON: 0.5}
        for word, rank in _RANKS.items():
            symbol = lexicon.symbol(word)
            if symbol is not None:
                self._of[symbol] = 1 / rank

    def __missing__(self, part: str) -> float:
        chance = self[part] = sum(self._of.get(symbol, 1 / _SELDOM) for symbol in self._lexicon.element(part))
        return chance


_RUN = expression(r"[a-z0-9]+")
_REACH = 400
"""No expression matches text further than this from its anchor."""
_DENSE = 4_096
"""A longer stretch has an anchor in nearly every line, which no ordinary note has."""
_LONGEST_STRETCH = 6_000
_DENSE_STRETCHES = 4
"""More dense stretches are not searched, which bounds the time of an expression for any text."""
_FLOOD = 20_000
_HEAD = 3
_MANY_WORDS = 2_000
_LONGEST_MEMO = 20_000


class Places:
    """The positions of the anchors in a text; each anchor is searched once, by whichever rule comes first."""

    __slots__ = ("_found", "present", "text")

    def __init__(self, text: str, present: frozenset[str]) -> None:
        """Store the text without searching it."""
        self.text = text
        self.present = present
        self._found: dict[str, list[int]] = {}

    def of(self, anchor: str) -> list[int]:
        """Return the positions of `anchor`, up to a number that only a flood of anchors reaches."""
        found = self._found.get(anchor)
        if found is None:
            *before, _ = self.text.split(anchor, max(_FLOOD, len(self.text) // _REACH))
            ends = accumulate(map(len, before))
            found = self._found[anchor] = [end + count * len(anchor) for count, end in enumerate(ends)]
        return found


class TextPattern:
    """A regular expression that runs only near one of its literal anchors.

    `a~b && c~d :: expression` also needs an anchor of the second group within reach of one of the first.
    """

    __slots__ = ("_beside", "_regex", "_within_line", "anchors", "source")

    def __init__(self, line: str) -> None:
        """Parse `anchor~anchor :: expression` without compiling it."""
        literals, _, self.source = line.partition(" :: ")
        anchors, _, beside = literals.partition(" && ")
        self.anchors = anchors.split("~")
        self._beside = beside.split("~") if beside else []
        self._regex: re.Pattern[str] | None = None
        self._within_line = "[^\\n" in self.source

    def matches(self, places: Places) -> bool | None:
        """Tell whether the expression matches near its anchors; None if too many anchors left text unsearched."""
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
    """All anchors of the rules, looked up by the words of a text."""

    def __init__(self, anchors: Iterable[str]) -> None:
        """Index `anchors` by their core: the longest run of letters, which a word of the text must contain."""
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
        """Return the anchors that occur in `text`, given its distinct `words` and the same words joined."""
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
    """Yield the stretches of text around an anchor's positions; overlapping ones are merged."""
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
    """Return what an expression may match around `place`: its line with both ends, or all within reach."""
    start, end = max(0, place - _REACH), place + _REACH
    if within_line:
        start = max(start, text.rfind("\n", start, place))
        line_end = text.find("\n", place, end)
        end = end if line_end < 0 else line_end + 1
    return start, end
