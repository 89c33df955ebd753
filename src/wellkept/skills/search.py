"""Search among skills: ranking for a query, and near duplicates of a new skill."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from msgspec import Struct

from wellkept.core.text import UNSPACED, split_pairs, split_words, strip_accents
from wellkept.skills.index import Facts, Skill

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SUFFIXES = (
    ("ization", "ize"), ("isation", "ize"), ("ational", "ate"), ("fulness", "ful"), ("iveness", "ive"),
    ("ations", "ate"), ("ation", "ate"), ("ators", "ate"), ("ator", "ate"), ("ising", "ize"), ("ised", "ize"),
    ("ments", ""), ("ment", ""), ("ness", ""), ("ities", ""), ("ity", ""), ("ables", ""), ("able", ""),
    ("ible", ""), ("ances", ""), ("ance", ""), ("ences", ""), ("ence", ""), ("ings", ""), ("ing", ""),
    ("ies", "y"), ("ied", "y"), ("ions", ""), ("ion", ""), ("ers", ""), ("ors", ""), ("er", ""), ("or", ""),
    ("edly", ""), ("ed", ""), ("ly", ""), ("ives", ""), ("ive", ""), ("als", ""), ("al", ""), ("ful", ""),
    ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("es", "e"), ("s", ""), ("e", ""), ("y", ""),
)  # fmt: skip
_TASK_WORDS = "instead let like make need one since use used user uses using want"
"""Words in almost every description of a skill; they distinguish none."""
_SHORTEST_STEM = 3


@cache
def list_stop_words() -> frozenset[str]:
    """Return the words that distinguish no skill."""
    from wellkept.languages.language import STOP_WORDS  # lazy: most commands that load the library look nothing up

    return STOP_WORDS.union(_TASK_WORDS.split())


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return the stem of an English word: the same for its inflections, not always a word itself."""
    if len(word) <= _SHORTEST_STEM or not word.isascii() or not word.isalpha():
        return word
    for _ in range(2):
        for ending, instead in _SUFFIXES:
            if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM and not word.endswith("ss"):
                word = word[: len(word) - len(ending)] + instead
                break
        else:
            break
    word = word.rstrip("e") if len(word) > _SHORTEST_STEM + 1 else word
    if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "sl":
        word = word[:-1]
    return f"{word[:-1]}y" if word.endswith("i") else word


@lru_cache(maxsize=8_192)
def terms(text: str) -> tuple[str, ...]:
    """Return the stems of `text` in order, without stop words; character pairs for scripts without spaces."""
    found: list[str] = []
    for word in split_words(strip_accents(_CAMEL.sub(" ", text))):
        run = UNSPACED.search(word)
        if run is not None:
            found.extend(split_pairs(run[0]))
        elif word not in list_stop_words():
            found.append(stem(word))
    return tuple(found)


_WEIGHTS = (("name", 5.0), ("tags", 3.5), ("description", 2.0), ("category", 1.5), ("headings", 1.0))
_SATURATION = 1.2
_PREFIX_CREDIT = 0.4
_SHORTEST_PREFIX = 4
_COVERAGE = 0.5


class SkillMatch(Struct, frozen=True):
    """A skill and its score."""

    skill: Skill
    score: float


def rank(query: str, skills: Sequence[Skill]) -> list[SkillMatch]:
    """Return the skills that share a term with `query`, best first, ties by name."""
    wanted = tuple(dict.fromkeys(terms(query)))
    bags = [_term_weights(skill.name, skill.category, skill.facts) for skill in skills]
    rarity = _inverse_document_frequencies(bags)
    found = []
    for skill, bag in zip(skills, bags, strict=True):
        score = _score(wanted, bag, rarity)
        if query.strip().lower() == skill.name:
            score += 1_000.0
        if score > 0:
            found.append(SkillMatch(skill, round(score, 4)))
    return sorted(found, key=lambda item: (-item.score, item.skill.name))


def _score(wanted: Sequence[str], bag: dict[str, float], rarity: dict[str, float]) -> float:
    total, matched, possible = 0.0, 0.0, 0.0
    for term in wanted:
        weight, known = bag.get(term, 0.0), term
        if not weight:
            known, weight = _match_prefix(term, bag)
        possible += rarity.get(term, 1.0)
        if weight:
            rare = rarity.get(known, 1.0)
            total += rare * weight / (weight + _SATURATION)
            matched += rare
    return total * (1 + _COVERAGE * matched / possible) if possible else 0.0


def _match_prefix(term: str, bag: dict[str, float]) -> tuple[str, float]:
    """Return the best term that is a prefix of `term` or has it as one; this matches compounds and odd stems."""
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
def _term_weights(name: str, category: str, facts: Facts) -> dict[str, float]:
    """Return the terms of a skill, each with the summed weights of the fields that contain it."""
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


def _inverse_document_frequencies(bags: Sequence[dict[str, float]]) -> dict[str, float]:
    counts = Counter(term for bag in bags for term in bag)
    return {term: math.log(1 + (len(bags) - count + 0.5) / (count + 0.5)) for term, count in counts.items()}


def near_duplicates(name: str, description: str, skills: Iterable[Skill], *, threshold: float) -> list[SkillMatch]:
    """Return the skills that are nearly the same as a new one, most similar first."""
    own_name, own = set(terms(name)), set(terms(f"{name} {description}"))
    found = []
    for skill in skills:
        likeness = 0.4 * _dice_similarity(own_name, set(terms(skill.name))) + 0.6 * _dice_similarity(
            own, set(terms(f"{skill.name} {skill.facts.description}"))
        )
        if likeness >= threshold:
            found.append(SkillMatch(skill, round(likeness, 3)))
    return sorted(found, key=lambda item: (-item.score, item.skill.name))


def _dice_similarity(one: set[str], other: set[str]) -> float:
    """Return the Dice coefficient of two sets: 1 when they are equal, 0 when they share nothing."""
    common = len(one & other)
    if not common:
        return 0.0
    return 2 * common / (len(one) + len(other))
