"""Text as a string of word classes, so that a rule matches structure in any wording."""

import re
from collections.abc import Iterable, Mapping

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
_SHORTEST_STEM = 4
_LONGEST_MEMO = 20_000
_RUN_TOGETHER = 14
_LONGEST_WORD = 64


class Lexicon:
    """Word classes by word, and the characters that stand for them in a skeleton."""

    def __init__(self, classes: Mapping[str, Iterable[str]]) -> None:
        """Take the words of each class; `stem*` stands for every word that begins so."""
        self._groups: dict[frozenset[str], str] = {}
        self._exact, self._stems = self._split(classes)
        self._by_class: dict[str, str] = {}
        for names, symbol in self._groups.items():
            for name in names:
                self._by_class[name] = self._by_class.get(name, "") + symbol
        self._stem_sizes = sorted({len(stem) for stem in self._stems}, reverse=True)
        self._longest = max(map(len, self._exact), default=1)
        self._memo = _Memo(self)

    def _split(self, classes: Mapping[str, Iterable[str]]) -> tuple[dict[str, str], dict[str, str]]:
        exact: dict[str, set[str]] = {}
        stems: dict[str, set[str]] = {}
        for name, words in classes.items():
            for word in words:
                home = stems if word.endswith("*") else exact
                home.setdefault(word.rstrip("*"), set()).add(name)
        for word, names in exact.items():
            for size in range(_SHORTEST_STEM, len(word) + 1):
                names |= stems.get(word[:size], set())
        for stem, names in stems.items():
            for size in range(_SHORTEST_STEM, len(stem)):
                names |= stems.get(stem[:size], set())
        return (
            {word: self._symbol(frozenset(names)) for word, names in exact.items()},
            {stem: self._symbol(frozenset(names)) for stem, names in stems.items()},
        )

    def _symbol(self, names: frozenset[str]) -> str:
        return self._groups.setdefault(names, chr(_FIRST_CLASS + len(self._groups)))

    def symbols(self, name: str) -> str:
        """Return every character that stands for a word of class `name`."""
        return self._by_class.get(name, "")

    def skeleton(self, folded: str) -> str:
        """Return one character for each word and sentence end of `folded` text."""
        if len(self._memo) > _LONGEST_MEMO:
            self._memo = _Memo(self)
        for short, long in _CONTRACTIONS:
            folded = folded.replace(short, long)
        if _SPACED.search(folded):
            folded = _SPACED.sub(lambda run: " " + re.sub(r"[^a-z0-9]", "", run[0]) + " ", folded)
        return "".join(map(self._memo.__getitem__, _TOKEN.findall(folded)))

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
            found = self._lookup(token.translate(_LEET_I)) or self._lookup(token.translate(_LEET_L))
        if found is None and len(token) >= _RUN_TOGETHER:
            found = self._segmented(token.translate(_LEET_I))
        return found or FILLER

    def _lookup(self, word: str) -> str | None:
        found = self._exact.get(word)
        if found is None:
            for size in self._stem_sizes:
                found = self._stems.get(word[:size])
                if found is not None:
                    break
        return found

    def _segmented(self, run: str) -> str | None:
        """Read `ignoreallpreviousinstructions` as words, when the class words make up most of it."""
        place, known, parts = 0, 0, []
        while place < len(run):
            for size in range(min(self._longest, len(run) - place), 1, -1):
                symbol = self._exact.get(run[place : place + size])
                if symbol is not None:
                    parts.append(symbol)
                    known += size
                    break
            else:
                size = 1
            place += size
        return "".join(parts) if known * 4 >= len(run) * 3 else None


def split_part(part: str) -> tuple[list[str], str]:
    """Return the class names of a pattern's element, and its literal words (`=a|b`) or nothing."""
    names, mark, words = part.lstrip("?!").partition("=")
    return [name for name in names.split("|") if name], mark + words


class _Memo(dict[str, str]):
    """Classes of the tokens seen so far."""

    def __init__(self, lexicon: Lexicon) -> None:
        super().__init__(lexicon._exact)
        self._lexicon = lexicon

    def __missing__(self, token: str) -> str:
        symbol = self[token] = self._lexicon.classify(token)
        return symbol


class Structure:
    """One pattern over word classes, compiled when a text first holds all it needs.

    `verb ..3 noun` allows up to three other words between, within one sentence; `^` is the start of
    a sentence or clause, `?word` is optional, `!word` forbids the next word, `=a|b` names words.
    """

    def __init__(self, source: str, lexicon: Lexicon) -> None:
        """Keep `source`; nothing is compiled yet."""
        self.source = source
        self._lexicon = lexicon
        self._needs: list[frozenset[str]] | None = None
        self._regex: re.Pattern[str] | None = None

    def matches(self, skeleton: str, present: set[str]) -> bool:
        """Tell whether `skeleton`, whose characters are `present`, has this structure."""
        if self._needs is None:
            self._needs = [
                frozenset(self._chars(part)) for part in self.source.split() if part[0] not in ".^?!"
            ]
        if any(present.isdisjoint(chars) for chars in self._needs):
            return False
        if self._regex is None:
            self._regex = re.compile("".join(map(self._element, self.source.split())))
        return self._regex.search(skeleton) is not None

    def _chars(self, part: str) -> str:
        if part == COLON:
            return COLON
        names, literal = split_part(part)
        names = [*names, literal] if literal else names
        chars = "".join(dict.fromkeys("".join(map(self._lexicon.symbols, names))))
        assert chars, f"pattern {self.source!r} names {part!r}, which no word has"
        return chars

    def _element(self, part: str) -> str:
        if part == "^":
            return f"(?<![^{BREAK}{COLON}])"
        if part.startswith(".."):
            return f"[^{BREAK}]{{0,{part[2:]}}}?"
        if part[0] == "?":
            return f"[{self._chars(part[1:])}]?"
        if part[0] == "!":
            return f"(?![{self._chars(part[1:])}])"
        return f"[{self._chars(part)}]"
