"""Text as a string of word classes, so that a rule matches structure in any wording."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from string import ascii_lowercase

from wellkept.core.text import expression

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
    r"[@$]?[a-z0-9]+(?:[@$!'][a-z0-9]+)*|[^\x00-\x7e]+|:|[.!?;]+(?=[\s\"')\]*]|$)|\n[ \t\r]*\n|\n(?=[ \t]*[-*#>\[({<])",
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
        """Tell whether `word` needs a full classification: it has signs or digits, or several words run together."""
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
        """Tell whether rules use exactly this `word`."""
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
    """Tell whether a word has more digits than letters: it is a number, not a disguise."""
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
    """Tell whether one letter is wrong, missing or too many, or two neighbours are swapped."""
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
