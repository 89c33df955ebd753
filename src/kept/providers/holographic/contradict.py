"""Contradictions: pairs of facts that make different statements about the same thing."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from kept.providers.holographic.features import entities_in, stop_words, words
from kept.providers.holographic.store import Fact

_NEGATIONS = frozenset(
    word
    for line in ("not no never nobody nothing none neither without cannot", "kein keine nicht nie jamais pas nunca")
    for word in line.split(" ")
)
_OPPOSITES = tuple(
    frozenset(pair.split("/"))
    for line in (
        "like/dislike love/hate always/never enable/disable enabled/disabled on/off true/false allow/forbid",
        "allowed/forbidden married/single alive/dead open/closed vegetarian/meat before/after more/less first/last",
        "start/stop accept/reject light/dark hot/cold public/private tabs/spaces left/right morning/evening yes/no",
        "increase/decrease with/without hire/fire",
    )
    for pair in line.split(" ")
)
_MANY = frozenset(
    word
    for line in (
        "like love enjoy have own visit know read watch play speak see meet go eat want say tell buy make get take",
        "hear find learn try help talk share attend paint write join cook study collect think feel plan support",
    )
    for word in line.split(" ")
)
"""Verbs with objects that do not exclude each other: one can like tea and coffee."""
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed)$")
_NUMBER = re.compile(r"^\d[\d.,:/-]*$")
_MAX_DIFFERENCE = 5
_LEAST_SHARED = 0.5


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two facts that cannot both be true, with the reason and a confidence."""

    first: Fact
    second: Fact
    reason: str
    score: float


def contradictions(
    facts: Sequence[Fact], neighbours: Callable[[Fact], Iterable[int]], *, limit: int
) -> list[Contradiction]:
    """Return the pairs of `facts` that contradict each other, the most certain first.

    `neighbours` returns the ids of facts to compare with one; each pair is compared once.
    """
    by_id = {fact.id: fact for fact in facts}
    found: list[Contradiction] = []
    seen: set[tuple[int, int]] = set()
    for fact in facts:
        for other_id in neighbours(fact):
            pair = (min(fact.id, other_id), max(fact.id, other_id))
            if other_id == fact.id or other_id not in by_id or pair in seen:
                continue
            seen.add(pair)
            judged = judge(by_id[pair[0]].text, by_id[pair[1]].text)
            if judged is not None:
                found.append(Contradiction(by_id[pair[0]], by_id[pair[1]], *judged))
    return sorted(found, key=lambda each: (-each.score, each.first.id))[:limit]


def judge(first: str, second: str) -> tuple[str, float] | None:
    """Return why two texts contradict each other, with a confidence; None if they do not."""
    a, b = _stems(first), _stems(second)
    shared = a & b
    rest_a, rest_b = a - shared, b - shared
    smaller = min(len(a), len(b))
    if not shared or smaller < 2 or max(len(rest_a), len(rest_b)) > _MAX_DIFFERENCE:
        return None
    overlap = len(shared) / smaller
    if overlap >= _LEAST_SHARED and _is_negated(first) != _is_negated(second) and len(shared) >= 2:
        return ("one says it, the other denies it", 0.6 + 0.4 * overlap)
    for pair in _OPPOSITES:
        if overlap >= 1 / 3 and _one_each(pair, _plain(first), _plain(second)):
            return (f"opposites: {' / '.join(sorted(pair))}", 0.6 + 0.3 * overlap)
    relation = shared - _name_stems(first) - _name_stems(second)
    if overlap < _LEAST_SHARED or len(shared) < 2 or not relation or not rest_a or not rest_b:
        return None
    return _different_value(shared, rest_a, rest_b, overlap)


def _different_value(shared: set[str], rest_a: set[str], rest_b: set[str], overlap: float) -> tuple[str, float] | None:
    numbers_a, numbers_b = ({word for word in rest if _NUMBER.match(word)} for rest in (rest_a, rest_b))
    if numbers_a and numbers_b:
        return ("different numbers", 0.5 + 0.4 * overlap)
    if shared & _compatible_verbs():
        return None
    if abs(len(rest_a) - len(rest_b)) <= 2 and max(len(rest_a), len(rest_b)) <= 3:
        return ("different values for the same thing", 0.4 + 0.4 * overlap)
    return None


def _name_stems(text: str) -> set[str]:
    """Return the stems of names; two facts are about the same thing only if they share more than names."""
    return {_stem(word) for name in entities_in(text) for word in words(name)}


def _plain(text: str) -> frozenset[str]:
    return frozenset(words(text))


def _one_each(pair: frozenset[str], first: frozenset[str], second: frozenset[str]) -> bool:
    stems_first, stems_second = ({_stem(word) for word in found} | found for found in (first, second))
    in_first, in_second = pair & stems_first, pair & stems_second
    return len(in_first) == 1 and len(in_second) == 1 and in_first != in_second


def _is_negated(text: str) -> bool:
    return len([word for word in words(text) if word in _NEGATIONS]) % 2 == 1


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in words(text) if word not in stop_words() and word not in _NEGATIONS}


@cache
def _stem(word: str) -> str:
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        word = f"{word[:-3]}y" if word.endswith("ies") else word[:-1]
    return _ENDING.sub("", word).removesuffix("e")


@cache
def _compatible_verbs() -> frozenset[str]:
    return frozenset(_stem(word) for word in _MANY)
