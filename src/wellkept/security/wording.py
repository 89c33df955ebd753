"""A linear classifier for attacks: learnt weights of words, kinds of words, and their pairs."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import accumulate, repeat
from math import log2
from operator import sub

from wellkept.core.text import resource_text

WINDOW = 40
"""Tokens that are scored together, so that a long text does not add up more weights than a short one."""
_STEP = WINDOW // 2
SHORT, LONG = 30, 150
"""The bars rise between these numbers of tokens: in a long text the best of many windows scores higher by chance."""
PER_DOUBLING = 50
"""What the bars rise by with every doubling beyond `LONG`, for the same reason; no page holds texts of that length."""
_REACH = 3
"""A pair of kinds spans at most this many kinds."""
_HEAD = 4
_MOST_WINDOWS = 100
"""Only the windows with the highest single-word weights are scored, which bounds the time for any text."""
_LONGEST_MEMO = 20_000
_MOST_WORDS = 30_000
"""A text with more distinct words is not prose; only its words in the table are scored."""
_PAUSE = "."
_NUMBER = "0"


class Wording:
    """Kinds of words in five languages, and weights of features in hundredths."""

    def __init__(self, source: str) -> None:
        """Read the kinds (`name = word stem*`), the bars and the weights (`weight<TAB>feature<TAB>…`) of `source`."""
        kinds, bars, weights = source.split("\n\n")[-3:]
        rows = [[int(number) for number in line.split("\t")[1:]] for line in bars.split("\n")]
        self._holds, self._blocks, (self._base,), (self._warm,) = rows
        self._kinds: dict[str, str] = {}
        self._stems: dict[str, list[tuple[str, str]]] = {}
        for line in kinds.strip().split("\n"):
            name, _, words = line.partition(" = ")
            self._add_kind(f"#{name}", words.split())
        self.weights: dict[str, int] = {}
        for weight, _, features in (row.partition("\t") for row in weights.splitlines()):
            self.weights.update(zip(features.split("\t"), repeat(int(weight)), strict=False))
        self._known: dict[str, tuple[str, str]] = {}
        self._heat: dict[str, int] = {}

    def _add_kind(self, name: str, words: Iterable[str]) -> None:
        for word in words:
            if word[-1] == "*":
                self._stems.setdefault(word[:_HEAD], []).append((word[:-1], name))
            else:
                self._kinds.setdefault(word, name)

    def bars(self, size: int) -> tuple[int, int]:
        """Return the scores at which a text of `size` tokens is held and blocked; short texts have lower bars."""
        share = min(max(size - SHORT, 0), LONG - SHORT) / (LONG - SHORT)
        beyond = PER_DOUBLING * log2(max(1.0, size / LONG))
        hold, block = (round(short + share * (long - short) + beyond) for short, long in (self._holds, self._blocks))
        return hold, block

    def score(self, tokens: Sequence[str], words: AbstractSet[str]) -> int:
        """Return the score of the heaviest window of `tokens`, whose distinct ones are `words`."""
        if len(self._heat) > _LONGEST_MEMO:
            self._known.clear()
            self._heat.clear()
        if self._warmest(words) < self._warm:
            return self._base
        hottest = sorted(self._warm_windows(tokens), reverse=True)[:_MOST_WINDOWS]
        scores = map(self.weigh, [tokens[start : start + WINDOW] for _, start in hottest])
        return max(scores, default=self._base)

    def _warmest(self, words: AbstractSet[str]) -> int:
        """Return the sum of the positive weights of `words`; most words are skipped by their first letters."""
        stems, heat = self._stems, self._heat
        telling = (self.weights.keys() & words) | (self._kinds.keys() & words)
        if len(words) < _MOST_WORDS:
            telling.update([word for word in words if word[:_HEAD] in stems or "'" in word or "@" in word])
        for word in telling.difference(heat):
            plain, kind = self._read(word)
            heat[word] = self.weights.get(plain, 0) + self.weights.get(kind, 0)
        return sum([weight for weight in map(heat.__getitem__, telling) if weight > 0])

    def _warm_windows(self, tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield (warmth, position) of windows whose single words weigh enough to be scored."""
        total = list(accumulate(map(self._heat.get, tokens, repeat(0)), initial=0))
        starts = total[: max(1, len(tokens) - _STEP) : _STEP]
        ends = total[WINDOW::_STEP]
        sums = map(sub, [*ends, *repeat(total[-1], len(starts) - len(ends))], starts)
        return ((warmth, place * _STEP) for place, warmth in enumerate(sums) if warmth >= self._warm)

    def warmth(self, tokens: Sequence[str]) -> int:
        """Return the sum of the weights of the single words of one window."""
        self._warmest(set(tokens))
        return sum([self._heat.get(token, 0) for token in tokens])

    def weigh(self, tokens: Iterable[str]) -> int:
        """Return the score of one window."""
        return self._base + sum(map(self.weights.get, self.features(tokens), repeat(0)))

    def features(self, tokens: Iterable[str]) -> set[str]:
        """Return each word, its kind, each pair of neighbours, and each pair of kinds near each other in a sentence."""
        found: set[str] = set()
        near: list[str] = []
        last = _PAUSE
        for token in (*tokens, _PAUSE):
            word, kind = self._read(token)
            found.add(word)
            found.add(f"{last} {kind or word}")
            last = kind or word
            if kind:
                found.add(kind)
                found.update([f"{before}~{kind}" for before in near[-_REACH:]])
                near.append(kind)
            elif word == _PAUSE:
                near.clear()
        return found

    def _read(self, token: str) -> tuple[str, str]:
        """Return the word that stands for `token`, and its kind or an empty string."""
        known = self._known.get(token)
        if known is None:
            if token[0] in ".!?;\n":
                known = _PAUSE, ""
            elif token[0].isdigit():
                known = _NUMBER, ""
            else:
                known = token, self._kind(token)
            self._known[token] = known
        return known

    def _kind(self, word: str) -> str:
        kind = self._kinds.get(word)
        if kind is None:
            stems = [(len(stem), name) for stem, name in self._stems.get(word[:_HEAD], ()) if word.startswith(stem)]
            kind = max(stems)[1] if stems else ""
        if not kind and "'" in word:
            head, _, rest = word.partition("'")
            kind = "#not" if rest == "t" else self._kinds.get(rest) or self._kinds.get(head) or ""
        return kind or ("#dest" if "@" in word[1:] else "")


@cache
def wording() -> Wording:
    """Return the shipped weights; they are read once per process, with the first text."""
    return Wording(resource_text("wellkept.security", "wording.tsv"))
