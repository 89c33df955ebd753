"""Which skills fit a query, and which are nearly the same as a new one."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kept.skills.index import Facts, Skill
from kept.skills.words import terms

_WEIGHTS = (("name", 5.0), ("tags", 3.5), ("description", 2.0), ("category", 1.5), ("headings", 1.0))
_SATURATION = 1.2
_PREFIX_CREDIT = 0.4
_SHORTEST_PREFIX = 4
_COVERAGE = 0.5


@dataclass(frozen=True, slots=True)
class Ranked:
    """A skill and how well it fits."""

    skill: Skill
    score: float


def rank(query: str, skills: Sequence[Skill]) -> list[Ranked]:
    """Return the skills that share a word with `query`, the best first, names breaking ties."""
    wanted = tuple(dict.fromkeys(terms(query)))
    bags = [_bag(skill.name, skill.category, skill.facts) for skill in skills]
    rarity = _rarity(bags)
    found = []
    for skill, bag in zip(skills, bags, strict=True):
        score = _score(wanted, bag, rarity)
        if query.strip().lower() == skill.name:
            score += 1_000.0
        if score > 0:
            found.append(Ranked(skill, round(score, 4)))
    return sorted(found, key=lambda item: (-item.score, item.skill.name))


def _score(wanted: Sequence[str], bag: dict[str, float], rarity: dict[str, float]) -> float:
    total, matched, possible = 0.0, 0.0, 0.0
    for term in wanted:
        weight, known = bag.get(term, 0.0), term
        if not weight:
            known, weight = _by_prefix(term, bag)
        possible += rarity.get(term, 1.0)
        if weight:
            rare = rarity.get(known, 1.0)
            total += rare * weight / (weight + _SATURATION)
            matched += rare
    return total * (1 + _COVERAGE * matched / possible) if possible else 0.0


def _by_prefix(term: str, bag: dict[str, float]) -> tuple[str, float]:
    """Return the best word that begins `term` or is begun by it; compounds and odd stems meet this way."""
    if len(term) < _SHORTEST_PREFIX or not term.isascii():
        return term, 0.0
    near = [
        (weight, word)
        for word, weight in bag.items()
        if len(word) >= _SHORTEST_PREFIX and (word.startswith(term) or term.startswith(word))
    ]
    if not near:
        return term, 0.0
    weight, word = max(near)
    return word, weight * _PREFIX_CREDIT


@lru_cache(maxsize=4_096)
def _bag(name: str, category: str, facts: Facts) -> dict[str, float]:
    """Return a skill's words, each with the sum of the weights of the fields that hold it."""
    texts = {
        "name": name,
        "tags": " ".join(facts.tags),
        "description": facts.description,
        "category": category,
        "headings": " ".join(facts.headings),
    }
    bag: dict[str, float] = {}
    for field, weight in _WEIGHTS:
        for term, count in Counter(terms(texts[field])).items():
            bag[term] = bag.get(term, 0.0) + weight * min(count, 2) ** 0.5
    return bag


def _rarity(bags: Sequence[dict[str, float]]) -> dict[str, float]:
    counts = Counter(term for bag in bags for term in bag)
    return {term: math.log(1 + (len(bags) - count + 0.5) / (count + 0.5)) for term, count in counts.items()}


def near_duplicates(name: str, description: str, skills: Iterable[Skill], *, threshold: float) -> list[Ranked]:
    """Return the skills that say nearly the same as a new one would, the nearest first."""
    own_name, own = set(terms(name)), set(terms(f"{name} {description}"))
    found = []
    for skill in skills:
        likeness = 0.4 * _shared(own_name, set(terms(skill.name))) + 0.6 * _shared(
            own, set(terms(f"{skill.name} {skill.facts.description}"))
        )
        if likeness >= threshold:
            found.append(Ranked(skill, round(likeness, 3)))
    return sorted(found, key=lambda item: (-item.score, item.skill.name))


def _shared(one: set[str], other: set[str]) -> float:
    """Return how much two sets have in common: 1 when they are equal, 0 when no word is in both."""
    common = len(one & other)
    if not common:
        return 0.0
    return 2 * common / (len(one) + len(other))
