"""Text as a string of word classes, so that a rule matches structure in any wording."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

START = "^"
BREAK = "|"
COLON = ":"
FILLER = "x"
_FIRST_SYMBOL = 0x100
_TOKEN = re.compile(
    r"[@$]?[a-z0-9]+(?:[@$!'][a-z0-9]+)*|[^\x00-\x7f]+|:|[.!?;]+(?=[\s\"')\]*]|$)|\n[ \t\r]*\n|\n(?=[ \t]*[-*#>\[({<])",
)
_SPACED = re.compile(r"(?<![a-z0-9])[a-z0-9](?:[ .\-_*]{1,3}[a-z0-9](?![a-z0-9])){5,}")
_LEET_I = str.maketrans("013457@$!8", "oieastasib")
_LEET_L = str.maketrans("013457@$!8", "oleastasib")
_NO_DIGITS = str.maketrans("", "", "0123456789")
"""A word of more digits than letters is a number, not a disguise."""
_CONTRACTIONS = (("'re ", " are "), ("'ll ", " will "), ("n't ", " not "), ("'ve ", " have "), ("'m ", " am "))
_LONGEST_MEMO = 20_000
_LONGEST_KEY = 17
_SHORTEST_RUN = 14
_LONGEST_RUN = 96
_HEAD = 4
_TESTED_ELEMENTS = 5
_PASSAGE = 200


class Lexicon:
    """The words that rules look for, and the characters that stand for them in a skeleton."""

    def __init__(self, classes: Mapping[str, Sequence[str]]) -> None:
        """Take the words of each class; `stem*` stands for every word that begins so."""
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
        self._bits: dict[str, int] = {}
        self._holds: dict[str, int] = {}
        self._memo = _Memo(self)

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
        """Return every character that a pattern's element may stand for."""
        if part == COLON:
            return COLON
        names, literal = split_part(part)
        return "".join(map(self._class_symbols, names)) + "".join([self._exact[word] for word in literal])

    def _class_symbols(self, name: str) -> str:
        symbols = self._by_class.get(name)
        if symbols is None:
            words = self._classes[name]
            symbols = "".join(self._under[word[:-1]] if word[-1] == "*" else self._exact[word] for word in words)
            self._by_class[name] = symbols
        return symbols

    def bit(self, part: str) -> int:
        """Return the bit that tells whether a text holds a word of this element."""
        bit = self._bits.get(part)
        if bit is None:
            bit = self._bits[part] = 1 << len(self._bits)
            for char in self.element(part):
                self._holds[char] = self._holds.get(char, 0) | bit
        return bit

    def holds(self, skeleton: str) -> int:
        """Return the bits of all elements that occur in `skeleton`."""
        mask = 0
        for char in set(skeleton):
            mask |= self._holds.get(char, 0)
        return mask

    def skeleton(self, folded: str) -> str:
        """Return a sentence start, then one character for each word and sentence end."""
        if len(self._memo) > _LONGEST_MEMO:
            self._memo = _Memo(self)
        for short, long in _CONTRACTIONS:
            folded = folded.replace(short, long)
        if _SPACED.search(folded):
            folded = _SPACED.sub(lambda run: " " + re.sub(r"[^a-z0-9]", "", run[0]) + " ", folded)
        return START + "".join(map(self._memo.__getitem__, _TOKEN.findall(folded)))

    def is_key(self, word: str) -> bool:
        """Tell whether `word`, as it stands, is one that rules look for."""
        return word in self._exact

    def classify(self, token: str) -> str:
        """Return the skeleton of one token; several characters for words run together."""
        if not token[0].isalnum() and token[0] not in "@$":
            return COLON if token == COLON else BREAK if token.isascii() else FILLER
        found = None
        if len(token) <= _LONGEST_KEY or "'" in token:
            found = self._lookup(token) or self._disguised(token)
        if found is None and _SHORTEST_RUN <= len(token) <= _LONGEST_RUN:
            found = self._lookup(token) or self._segmented(token.translate(_LEET_I))
        return found or FILLER

    def _disguised(self, token: str) -> str | None:
        """Look behind an elided article (`l'ordre`) and digits that stand for letters."""
        if token.isalpha() or len(token.translate(_NO_DIGITS)) * 2 < len(token):
            return None
        found = self._lookup(token.rpartition("'")[2]) if "'" in token else self._lookup(token.translate(_LEET_I))
        if found is None and "1" in token:
            found = self._lookup(token.translate(_LEET_L))
        return found

    def _lookup(self, word: str) -> str | None:
        found = self._exact.get(word)
        if found is None and word[: self._stem_sizes[-1]] in self._stem_heads:
            for size in self._stem_sizes:
                found = self._stems.get(word[:size])
                if found is not None:
                    break
        return found

    def _segmented(self, run: str) -> str | None:
        """Read `ignoreallpreviousinstructions` as words, when class words make up most of it."""
        if run[:_HEAD] not in self._heads:
            return None
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


def passages(skeleton: str) -> Iterator[str]:
    """Yield `skeleton` cut at sentence ends, so that few structures have all they need in a piece."""
    start = 0
    while start < len(skeleton):
        end = skeleton.find(BREAK, start + _PASSAGE)
        end = len(skeleton) if end < 0 else end
        yield skeleton[start:end]
        start = end


def split_part(part: str) -> tuple[list[str], list[str]]:
    """Return the class names of a pattern's element, and its literal words (`=a|b`)."""
    names, _, words = part.lstrip("?!").partition("=")
    return [name for name in names.split("|") if name], words.split("|") if words else []


class _Memo(dict[str, str]):
    """Classes of the tokens seen so far."""

    def __init__(self, lexicon: Lexicon) -> None:
        super().__init__()
        self._lexicon = lexicon

    def __missing__(self, token: str) -> str:
        symbol = self[token] = self._lexicon.classify(token)
        return symbol


class Structure:
    """One pattern over word classes, compiled when a text first holds all it needs.

    `verb ..3 noun` allows up to three other words between, within one sentence
    (`..3!verb`: none of them a verb); `^` is the start of
    a sentence or clause and `^^` of the text; `?word` is optional, `!word` forbids the next word;
    `=a|b` names words, and `verb|=a|b` is either.
    """

    def __init__(self, source: str, lexicon: Lexicon) -> None:
        """Keep `source`; nothing is compiled yet."""
        self.source = source
        self.needs = 0
        """One bit for each of the elements that a text must hold, the rarest that can be told cheaply."""
        elements = [part for part in source.split() if part[0] not in ".^?!"]
        for part in sorted(elements, key=len)[:_TESTED_ELEMENTS]:
            self.needs |= lexicon.bit(part)
        self.key = min(map(lexicon.element, elements), key=len)
        """The characters of the element that the fewest words stand for."""
        self._lexicon = lexicon
        self._regex: re.Pattern[str] | None = None

    def matches(self, skeleton: str) -> bool:
        """Tell whether `skeleton` has this structure."""
        if self._regex is None:
            self._regex = re.compile("".join(map(self._element, self.source.split())))
        return self._regex.search(skeleton) is not None

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
