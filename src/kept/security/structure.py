"""Patterns over word classes, and the index that finds the few a sentence may have."""

import re
from collections.abc import Iterable, Iterator, Mapping

from kept.security.skeleton import BREAK, COLON, START, Lexicon

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
"""How common words are; a word that is not named counts little."""
_SELDOM = 2_000


class Structure:
    """One pattern over word classes, compiled when a text first holds all it needs.

    `verb ..3 noun` allows up to three other words between, within one sentence
    (`..3!verb`: none of them a verb); `^` is the start of
    a sentence or clause and `^^` of the text; `?word` is optional, `!word` forbids the next word;
    `=a|b` names words, and `verb|=a|b` is either.
    `&12 verb noun !stop` is a bag: the words in any order within twelve of one sentence, none that is forbidden.
    """

    __slots__ = ("_lexicon", "_needs", "_regex", "rule", "source")

    def __init__(self, source: str, lexicon: Lexicon, rule: str = "") -> None:
        """Keep `source`; nothing is compiled yet."""
        self.source = source
        self.rule = rule
        self._lexicon = lexicon
        self._needs: list[frozenset[str]] | None = None
        self._regex: re.Pattern[str] | None = None

    def needed(self) -> list[str]:
        """Return the elements that a sentence cannot do without."""
        return [part for part in self.source.split() if part[0] not in ".^?!&"]

    def may_match(self, symbols: frozenset[str]) -> bool:
        """Tell whether a sentence of these `symbols` holds a word of each element."""
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


class Index:
    """Structures under the words of their rarest element, so that few are tried on a sentence."""

    def __init__(self, structures: Iterable[Structure], lexicon: Lexicon) -> None:
        """Choose the key of each structure, and the element that is looked for next."""
        chances = _Chances(lexicon)
        sets: dict[str, frozenset[str]] = {}
        under: dict[str, list[tuple[frozenset[str], Structure]]] = {}
        for structure in structures:
            first, *others = sorted(structure.needed(), key=chances.__getitem__)[:2]
            second = others[0] if others else first
            if second not in sets:
                sets[second] = frozenset(lexicon.element(second))
            entry = sets[second], structure
            for symbol in lexicon.element(first):
                under.setdefault(symbol, []).append(entry)
        self._under: Mapping[str, list[tuple[frozenset[str], Structure]]] = under
        self._keys = frozenset(under)

    def found(self, sentences: Iterable[str]) -> set[str]:
        """Return the rules of which a structure is in one of the `sentences`."""
        rules: set[str] = set()
        for sentence in sentences:
            hot = self._keys.intersection(sentence)
            if hot:
                rules.update(self._matching(sentence, hot, rules))
        return rules

    def _matching(self, sentence: str, hot: frozenset[str], known: set[str]) -> Iterator[str]:
        symbols = frozenset(sentence)
        for symbol in hot:
            for second, structure in self._under[symbol]:
                if (
                    not second.isdisjoint(symbols)
                    and structure.rule not in known
                    and structure.may_match(symbols)
                    and structure.matches(sentence)
                ):
                    yield structure.rule


class _Chances(dict[str, float]):
    """How likely a word of an element is in ordinary prose, by how common its words are."""

    def __init__(self, lexicon: Lexicon) -> None:
        super().__init__()
        self._lexicon = lexicon
        ranked = ((lexicon.symbol(word), 1 / rank) for word, rank in _RANKS.items())
        self._of = {symbol: chance for symbol, chance in ranked if symbol is not None} | {COLON: 0.5}

    def __missing__(self, part: str) -> float:
        chance = self[part] = sum(self._of.get(symbol, 1 / _SELDOM) for symbol in self._lexicon.element(part))
        return chance
