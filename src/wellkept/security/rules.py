"""The scanner's rules: the lexicon that reads a text as word classes, patterns over them, and the table.

The table is `rules.toml` as `make reference` built it; a pattern is compiled when it is first needed.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from itertools import accumulate, chain, repeat
from string import ascii_lowercase
from typing import Any, NamedTuple

from msgspec import Struct

from wellkept.core.errors import Unreadable
from wellkept.core.text import dumps, expression, resource_text
from wellkept.core.values import hide

START = "^"
BREAK = "|"
COLON = ":"
ADDRESS = "@"
"""A mail address."""
FILLER = "x"
OTHER_SCRIPT = "\x7f"
"""Replaces a run of letters or signs in scripts that no rule covers."""
_LETTER = "s"
"""A single character; six of them in a row are a word written with spaces between its letters."""
_FIRST_SYMBOL = 0x100
_TOKEN = expression(
    r"[@$]?[a-z0-9]+(?:[@$!'][a-z0-9]+)*|[^\x00-\x7e]+|:|[.!?;]+(?=[\s\"')\]*]|$)|\n[ \t\r]*\n|\n(?=[ \t]*[-*#>\[({<])"
)
_SPACED = expression(r"(?<![a-z0-9])[a-z0-9](?:[^a-z0-9]{1,4}[a-z0-9](?![a-z0-9])){5,}")
_NO_LETTER = expression("[^a-z0-9]+")
_CONTEXT = 80
_MOST_SPACED = 20_000
_GAPS_COMPARED = 2_000
_LEET_I = str.maketrans("013457@$!8", "oieastasib")
_LEET_L = str.maketrans("013457@$!8", "oleastasib")
_NO_DIGITS = str.maketrans("", "", "0123456789")
_SHORT_FORMS = {"re": "are", "ll": "will", "ve": "have", "m": "am", "d": "would"}
_LONGEST_MEMO = 20_000
_MANY_TOKENS = 2_000
_LONGEST_KEY = 17
_SHORTEST_RUN = 14
_LONGEST_RUN = 240
_HEAD = 4
_LONGEST_PIECE = 240
_OVERLAP = 72
"""More words than any structure spans, so that cutting a long sentence loses no match."""


class Lexicon:
    """The words that rules use, and the characters that represent them in a skeleton."""

    def __init__(self, classes: Mapping[str, Sequence[str]], misspelt: Iterable[str] = ()) -> None:
        """Take the words of each class; `stem*` stands for every word that begins so.

        A `misspelt` word is known with one letter wrong, missing, doubled or swapped too.
        """
        self._classes = classes
        words = dict.fromkeys(chain.from_iterable(classes.values()))
        symbols = {word: chr(_FIRST_SYMBOL + place) for place, word in enumerate(words)}
        self._stems = {word[:-1]: symbol for word, symbol in symbols.items() if word[-1] == "*"}
        self._exact = {word: symbol for word, symbol in symbols.items() if word[-1] != "*"}
        self._stem_sizes = sorted({len(stem) for stem in self._stems}, reverse=True) or [1]
        self._stem_heads = {stem[: self._stem_sizes[-1]] for stem in self._stems}
        self._heads = {word[:_HEAD] for word in self._exact if len(word) > _HEAD}
        self._under = self._words_under_stems()
        self._by_class: dict[str, str] = {}
        self._by_part: dict[str, str] = {}
        self._near: dict[str, list[str]] = {}
        self._misspelt_words = tuple(misspelt)
        for word in self._misspelt_words:
            for size in (len(word) - 1, len(word), len(word) + 1):
                self._near.setdefault(word[0] + word[-1] + chr(size), []).append(word)
        alone = "".join(symbol for word, symbol in self._exact.items() if len(word) == 1)
        self._spaced = re.compile(f"[{_LETTER}{alone}]{{6}}")
        self._memo = _Memo(self.classify)

    def _words_under_stems(self) -> dict[str, str]:
        """Return the symbols of each stem: its own, and those of the known words it covers."""
        under = dict(self._stems)
        head = self._stem_sizes[-1]
        for word, symbol in (*self._exact.items(), *self._stems.items()):
            if word[:head] in self._stem_heads:
                for size in self._stem_sizes:
                    if word[:size] in under and symbol not in under[word[:size]]:
                        under[word[:size]] += symbol
        return under

    def element(self, part: str) -> str:
        """Return every symbol that an element of a pattern matches."""
        symbols = self._by_part.get(part)
        if symbols is None:
            names, literal = split_part(part)
            known = [*map(self._class_symbols, names), *(self._exact[word] for word in literal)]
            symbols = self._by_part[part] = "".join(known)
        return symbols

    def _class_symbols(self, name: str) -> str:
        if name in {COLON, ADDRESS}:
            return name
        symbols = self._by_class.get(name)
        if symbols is None:
            symbols = ""
            for word in self._classes[name]:
                symbols += self._under[word[:-1]] if word[-1] == "*" else self._exact[word]
            self._by_class[name] = symbols
        return symbols

    def symbol(self, word: str) -> str | None:
        """Return the symbol of `word`, or None if no rule uses it."""
        return self._exact.get(word)

    def skeleton(self, folded: str) -> str:
        """Return a sentence start, then one character for each word and sentence end."""
        return self.read(folded)[0]

    def read(self, folded: str) -> tuple[str, list[str], set[str]]:
        """Return the skeleton of `folded`, its tokens, and its distinct tokens."""
        if len(self._memo) > _LONGEST_MEMO:
            self._memo = _Memo(self.classify)
        tokens = _TOKEN.findall(folded)
        words = set(tokens)
        skeleton = START + "".join(self._symbols(tokens, words))
        if self._spaced.search(skeleton):
            again = _TOKEN.findall("\n\n".join(_without_spaces(folded)))
            skeleton += BREAK + "".join(map(self._memo.__getitem__, again))
            tokens += again[:_MOST_SPACED]
            words.update(again[:_MOST_SPACED])
        return skeleton, tokens, words

    def _symbols(self, tokens: list[str], words: set[str]) -> Iterable[str]:
        """Return the symbol of each token; in a long text most words are skipped by their first letters."""
        if len(tokens) <= _MANY_TOKENS:
            return map(self._memo.__getitem__, tokens)
        heads, head = self._stem_heads, self._stem_sizes[-1]
        telling = (self._exact.keys() & words) | (self._slips & words)
        telling.update(
            [
                word
                for word in words
                if word[:head] in heads
                or (not (word.isalpha() and 1 < len(word) < _SHORTEST_RUN) and self._is_odd(word))
            ]
        )
        known = {word: self._memo[word] for word in telling}
        return map(known.get, tokens, repeat(FILLER))

    def _is_odd(self, word: str) -> bool:
        """Whether `word` needs a full classification: it has signs or digits, or several words run together."""
        if not word.isalnum():
            return True
        if len(word) > _LONGEST_KEY:
            return word[:_HEAD].translate(_LEET_I) in self._heads
        return not (1 < len(word) < _SHORTEST_RUN and _is_number(word))

    @cached_property
    def _slips(self) -> frozenset[str]:
        """Return every spelling with one error, to compare many words at once."""
        return frozenset(chain.from_iterable(map(_slips_of, self._misspelt_words)))

    def is_key(self, word: str) -> bool:
        """Whether rules use exactly this `word`."""
        return word in self._exact

    def classify(self, token: str) -> str:
        """Return the skeleton of one token; several characters for words run together."""
        found = self._exact.get(token)
        if found is not None:
            return found
        if not token[0].isalnum() and token[0] not in "@$":
            return COLON if token == COLON else FILLER if token[0] >= OTHER_SCRIPT else BREAK
        if len(token) == 1:
            return _LETTER
        if "'" in token:
            return self._apostrophe(token)
        if len(token) <= _LONGEST_KEY:
            found = self._lookup(token) or self._undo_leet(token) or self._correct(token)
        if found is None and _SHORTEST_RUN <= len(token) <= _LONGEST_RUN:
            found = self._lookup(token) or self._segment(token)
        return found or (ADDRESS if "@" in token[1:] else FILLER)

    def _apostrophe(self, token: str) -> str:
        """Classify `you're` as two words, `don't` as a negation, and `l'ordre` by the word after the article."""
        word, _, rest = token.rpartition("'")
        if rest == "t" and word[-1:] == "n":
            return (self._lookup(word[:-1]) or FILLER) + (self._exact.get("not") or FILLER)
        if rest in _SHORT_FORMS:
            return self.classify(word) + (self._exact.get(_SHORT_FORMS[rest]) or FILLER)
        return self._lookup(rest) or (self._lookup(word) if rest == "s" else None) or FILLER

    def _undo_leet(self, token: str) -> str | None:
        """Return the symbol of a word in which digits and signs replace letters."""
        if token.isalpha() or _is_number(token):
            return None
        found = self._lookup(token.translate(_LEET_I))
        if found is None and "1" in token:
            found = self._lookup(token.translate(_LEET_L))
        return found

    def _correct(self, token: str) -> str | None:
        near = self._near.get(token[0] + token[-1] + chr(len(token)), ())
        return next((self._exact[word] for word in near if _one_slip(word, token)), None)

    def _lookup(self, word: str) -> str | None:
        found = self._exact.get(word)
        if found is None and word[: self._stem_sizes[-1]] in self._stem_heads:
            for size in self._stem_sizes:
                found = self._stems.get(word[:size])
                if found is not None:
                    break
        return found

    def _segment(self, token: str) -> str | None:
        """Split `ignoreallpreviousinstructions` into words, if known words make up most of it."""
        if token[:_HEAD].translate(_LEET_I) not in self._heads:
            return None
        run = token.translate(_LEET_I)
        place, misses, parts = 0, 0, []
        while place < len(run):
            size = self._longest_at(run, place)
            if size:
                parts.append(self._exact[run[place : place + size]])
            else:
                misses += 1
                if misses * 4 > len(run) or not parts:
                    return None
            place += size or 1
        return "".join(parts)

    def _longest_at(self, run: str, place: int) -> int:
        for size in range(min(_LONGEST_KEY, len(run) - place), 1, -1):
            if run[place : place + size] in self._exact:
                return size
        return 0


def _without_spaces(folded: str) -> Iterator[str]:
    """Yield words written letter by letter, with the text around them: joined, and split at wider gaps."""
    for run in _SPACED.finditer(folded):
        before, after = folded[max(0, run.start() - _CONTEXT) : run.start()], folded[run.end() : run.end() + _CONTEXT]
        letters = _NO_LETTER.sub("", run[0])
        yield f"{before} {letters} {after}"
        gaps = Counter(_NO_LETTER.findall(run[0][:_GAPS_COMPARED]))
        if len(gaps) > 1:
            usual = gaps.most_common(1)[0][0]
            parts = ["" if gap == usual else " " for gap in _NO_LETTER.findall(run[0])]
            yield f"{before} {''.join(chain.from_iterable(zip(letters, [*parts, ''], strict=True)))} {after}"


def sentences(skeleton: str) -> Iterator[str]:
    """Yield each sentence of `skeleton` once, with the sign of its start; long ones in overlapping pieces."""
    first, *rest = skeleton.split(BREAK)
    yield from _pieces(first)
    for sentence in dict.fromkeys(rest):
        yield from _pieces(BREAK + sentence)


def _pieces(sentence: str) -> Iterable[str]:
    if len(sentence) <= _LONGEST_PIECE:
        return (sentence,)
    step = _LONGEST_PIECE - _OVERLAP
    return dict.fromkeys(sentence[place : place + _LONGEST_PIECE] for place in range(0, len(sentence), step))


def split_part(part: str) -> tuple[list[str], list[str]]:
    """Return the class names of a pattern's element, and its literal words (`=a|b`)."""
    names, _, words = part.lstrip("?!").partition("=")
    return list(filter(None, names.split("|"))), words.split("|") if words else []


def _is_number(token: str) -> bool:
    """Whether a word has more digits than letters: it is a number, not a disguise."""
    return len(token.translate(_NO_DIGITS)) * 2 < len(token)


def _slips_of(word: str) -> Iterator[str]:
    """Yield `word` with one letter wrong, missing or too many, or two neighbours swapped, between its ends."""
    for place in range(1, len(word)):
        head, tail = word[:place], word[place:]
        yield from (head + letter + tail for letter in ascii_lowercase)
        if len(tail) > 1:
            yield head + tail[1:]
            yield from (head + letter + tail[1:] for letter in ascii_lowercase)
        if len(tail) > 2:
            yield head + tail[1] + tail[0] + tail[2:]


def _common(left: str, right: str) -> int:
    """Return how many letters both begin with."""
    same = (place for place, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1])
    return next(same, min(len(left), len(right)))


def _one_slip(word: str, token: str) -> bool:
    """Whether one letter is wrong, missing or too many, or two neighbours are swapped."""
    head = _common(word, token)
    tail = _common(word[head:][::-1], token[head:][::-1])
    left, right = word[head : len(word) - tail], token[head : len(token) - tail]
    return max(len(left), len(right)) <= 1 or (len(left) == 2 and left == right[::-1])


class _Memo(dict[str, str]):
    """Classes of the tokens seen so far."""

    def __init__(self, classify: Callable[[str], str]) -> None:
        super().__init__()
        self._classify = classify

    def __missing__(self, token: str) -> str:
        symbol = self[token] = self._classify(token)
        return symbol


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
        """Whether a sentence with these `symbols` contains a word of each needed element."""
        if self._needs is None:
            self._needs = [frozenset(self._lexicon.element(part)) for part in self.needed()]
        return not any(need.isdisjoint(symbols) for need in self._needs)

    def matches(self, skeleton: str) -> bool:
        """Whether `skeleton` has this structure."""
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
_CORE_HEAD = 3
_MANY_WORDS = 2_000


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
        """Whether the expression matches near its anchors; None if too many anchors left text unsearched."""
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
            if len(core) < _CORE_HEAD:
                self._bare.append(anchor)
            elif core in self._of_core:
                self._of_core[core].append(anchor)
            else:
                self._of_core[core] = [anchor]
                self._heads.setdefault(core[:_CORE_HEAD], []).append(core)

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
            starts = [word[place : place + _CORE_HEAD] for place in range(len(word) - _CORE_HEAD + 1)]
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


BUILT = "rules.json"
_LITERALS = "="
_LONG_TEXT = 10_000
_ADDRESSED = ("you", "your", "ai")
_LETTERS = "\u0400-\u04ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_OTHER_SCRIPTS = expression(f"([{_LETTERS}](?:[{_LETTERS} ]*[{_LETTERS}])?)")


class Severity(StrEnum):
    """What a match means: an attack, or a text that a person should look at."""

    BLOCK = "block"
    HOLD = "hold"


class Scope(StrEnum):
    """Where a text will be used; orders to the assistant are normal in some places."""

    MEMORY = "memory"
    CONTEXT = "context"
    SKILL = "skill"


class Rule(Struct, frozen=True):
    """One row of the table."""

    id: str
    category: str
    severity: Severity | None
    """None for a signal, which only adds its weight."""
    weight: int
    scopes: frozenset[Scope]
    structures: tuple[Structure, ...]
    texts: tuple[TextPattern, ...]
    positive: str
    negative: str

    __repr__ = hide("positive", "negative")


class Reading(Struct, frozen=True):
    """A text as the rules see it."""

    folded: str
    skeleton: str
    tokens: list[str]
    words: set[str]
    vocabulary: str
    """The text, or for a long one its distinct words."""


class Table:
    """All rules, with the lexicon that their structures are written in."""

    def __init__(self, document: Mapping[str, Any], keys: Keys | None = None) -> None:
        """Take the content of a TOML file, with the literal words of its structures, and the keys if they are known."""
        classes = {name: words.split() for name, words in document["words"].items()}
        classes[_LITERALS] = document["literals"]
        self.lexicon = Lexicon(classes, document["misspelt"].split())
        self.rules = tuple(_rule(row, self.lexicon) for row in document["rule"])
        self._translations: str = document["translations"]
        self.anchors = Anchors(anchor for rule in self.rules for pattern in rule.texts for anchor in pattern.anchors)
        # one for all scopes: `matching` leaves out the rules of others
        structures = [each for rule in self.rules for each in rule.structures]
        self.keys = keys or choose_keys(structures, self.lexicon)
        self._index = Index(structures, self.lexicon, self.keys)

    def read(self, folded: str) -> Reading:
        """Return what the rules look at in `folded` text."""
        skeleton, tokens, words = self.lexicon.read(folded)
        return Reading(folded, skeleton, tokens, words, " ".join(words) if len(folded) > _LONG_TEXT else folded)

    def matching(self, reading: Reading, scope: Scope) -> Iterator[tuple[Rule, bool]]:
        """Yield the rules of `scope` that match, with False for one that could not be tried everywhere."""
        structured = self._index.find_rules(sentences(reading.skeleton))
        places = Places(reading.folded, self.anchors.among(reading.folded, reading.words, reading.vocabulary))
        if not structured and not places.present:
            return
        for rule in self.rules:
            if scope in rule.scopes:
                hit = rule.id in structured or _any_match(rule.texts, places)
                if hit is not False:
                    yield rule, hit is True

    def addresses_someone(self, reading: Reading) -> bool:
        """Whether the text addresses its reader or speaks of an AI."""
        symbols = "".join([self.lexicon.element(name) for name in _ADDRESSED])
        return not set(reading.skeleton).isdisjoint(symbols)

    def in_english(self, text: str) -> str:
        """Return `text` with key words of other scripts translated to English."""
        parts = _OTHER_SCRIPTS.split(text)
        runs = set(parts[1::2])
        if not runs:
            return text
        lowered = read = "\n".join(runs).lower()
        letters = set(lowered)
        for word, english in _pairs(self._translations):
            if letters.issuperset(word) and word in lowered:
                read = read.replace(word, f" {english} ")
        parts[1::2] = map(dict(zip(runs, read.split("\n"), strict=True)).__getitem__, parts[1::2])
        return "".join(parts)


def _any_match(patterns: Iterable[TextPattern], places: Places) -> bool | None:
    """Whether one of the expressions matches; None if one could not be tried everywhere."""
    flooded = False
    for pattern in patterns:
        match pattern.matches(places):
            case True:
                return True
            case None:
                flooded = True
    return None if flooded else False


@lru_cache(maxsize=2)
def _pairs(translations: str) -> list[tuple[str, str]]:
    """Return words of other scripts, longest first, and the English words they stand for."""
    lines = (line.partition("=") for line in translations.strip().splitlines())
    return sorted(((word.strip(), english.strip()) for word, _, english in lines), key=lambda pair: -len(pair[0]))


@cache
def table() -> Table:
    """Return the shipped table; read once per process."""
    built = json.loads(resource_text("wellkept.security", BUILT))
    return Table(built["document"], Keys(**built["keys"]))


def parse(source: str) -> dict[str, Any]:
    """Return the content of rules.toml, with the literal words of its structures."""
    import tomllib

    try:
        document = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"rules.toml cannot be read: {error}") from error
    parts = sorted({part for row in document["rule"] for part in row.get("words", "").split() if "=" in part})
    return {**document, "literals": [word for part in parts for word in split_part(part)[1]]}


def build() -> str:
    """Return rules.toml in the form that is read at the start: a quarter of the time of the table itself."""
    document = parse(resource_text("wellkept.security", "rules.toml"))
    return dumps({"document": document, "keys": Table(document).keys._asdict()})


def _rule(row: Mapping[str, Any], lexicon: Lexicon) -> Rule:
    severity = row.get("severity")
    return Rule(
        id=row["id"],
        category=row["category"],
        severity=None if severity is None else Severity(severity),
        weight=row.get("weight", 0),
        scopes=frozenset(map(Scope, row.get("scope", "memory context skill").split())),
        structures=tuple([Structure(line, lexicon, row["id"]) for line in row.get("words", "").strip().splitlines()]),
        texts=tuple(map(TextPattern, row.get("text", "").strip().splitlines())),
        positive=row["positive"],
        negative=row["negative"],
    )
