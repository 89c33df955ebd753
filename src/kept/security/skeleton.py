"""Text as a string of word classes, so that a rule matches structure in any wording."""

import re
from collections.abc import Iterable, Mapping

START = "^"
BREAK = "|"
COLON = ":"
FILLER = "x"
_FIRST_CLASS = 0x100
_TOKEN = re.compile(
    r"[@$]?[a-z0-9]+(?:[@$!'][a-z0-9]+)*|[^\x00-\x7f]+|:|[.!?;]+(?=[\s\"')\]*]|$)|\n[ \t\r]*\n|\n(?=[ \t]*[-*#>\[({<])",
)
_SPACED = re.compile(r"(?<![a-z0-9])[a-z0-9](?:[ .\-_*]{1,3}[a-z0-9](?![a-z0-9])){5,}")
_LEET_I = str.maketrans("013457@$!8", "oieastasib")
_LEET_L = str.maketrans("013457@$!8", "oleastasib")
_CONTRACTIONS = (("'re ", " are "), ("'ll ", " will "), ("n't ", " not "), ("'ve ", " have "), ("'m ", " am "))
_LONGEST_MEMO = 20_000
_RUN_TOGETHER = 14
_LONGEST_WORD = 64
_LONGEST_KEY = 14


class Lexicon:
    """Word classes by word, and the characters that stand for them in a skeleton."""

    def __init__(self, classes: Mapping[str, Iterable[str]]) -> None:
        """Take the words of each class; `stem*` stands for every word that begins so."""
        self._groups: dict[frozenset[str], str] = {}
        self._exact, self._stems = self._split(classes)
        self._bits: dict[str, int] = {}
        self._holds: dict[str, int] = {}
        self._by_class: dict[str, str] = {}
        for names, symbol in self._groups.items():
            for name in names:
                self._by_class[name] = self._by_class.get(name, "") + symbol
        self._stem_sizes = sorted({len(stem) for stem in self._stems}, reverse=True)
        self._stem_heads = {stem[: self._stem_sizes[-1]] for stem in self._stems}
        self._longest = min(_LONGEST_KEY, max(map(len, self._exact), default=1))
        self._memo = _Memo(self)

    def _split(self, classes: Mapping[str, Iterable[str]]) -> tuple[dict[str, str], dict[str, str]]:
        exact: dict[str, set[str]] = {}
        stems: dict[str, set[str]] = {}
        for name, words in classes.items():
            for word in words:
                home = stems if word.endswith("*") else exact
                home.setdefault(word.rstrip("*"), set()).add(name)
        sizes = sorted({len(stem) for stem in stems})
        for word, names in (*stems.items(), *exact.items()):
            for size in sizes:
                if size <= len(word) and word[:size] in stems:
                    names.update(stems[word[:size]])
        return (
            {word: self._symbol(frozenset(names)) for word, names in exact.items()},
            {stem: self._symbol(frozenset(names)) for stem, names in stems.items()},
        )

    def _symbol(self, names: frozenset[str]) -> str:
        return self._groups.setdefault(names, chr(_FIRST_CLASS + len(self._groups)))

    def element(self, part: str) -> str:
        """Return every character that a pattern's element may stand for."""
        if part == COLON:
            return COLON
        names, literal = split_part(part)
        chars = dict.fromkeys("".join(self._by_class[name] for name in (*names, literal) if name))
        return "".join(chars)

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
        token = token[:_LONGEST_WORD]
        found = self._lookup(token)
        if found is None and "'" in token:
            found = self._lookup(token.rpartition("'")[2])
        if found is None and not token.isalpha():
            found = self._lookup(token.translate(_LEET_I))
            if found is None and "1" in token:
                found = self._lookup(token.translate(_LEET_L))
        if found is None and len(token) >= _RUN_TOGETHER:
            found = self._segmented(token.translate(_LEET_I))
        return found or FILLER

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
        for size in range(min(self._longest, len(run) - place), 1, -1):
            if run[place : place + size] in self._exact:
                return size
        return 0


def split_part(part: str) -> tuple[list[str], str]:
    """Return the class names of a pattern's element, and its literal words (`=a|b`) or nothing."""
    names, mark, words = part.lstrip("?!").partition("=")
    return [name for name in names.split("|") if name], mark + words


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
        """One bit for each element that a text must hold."""
        for part in source.split():
            if part[0] not in ".^?!":
                self.needs |= lexicon.bit(part)
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
