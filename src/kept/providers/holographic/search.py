"""Search over facts: by a plain question, about an entity, around it, and between several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kept.providers.holographic.features import entity_vector, query_vector, similarity
from kept.providers.holographic.rank import CLOSENESS, Extent, Place, Question, Ranking, best, closeness, read, weighed
from kept.providers.holographic.settings import HolographicSettings
from kept.providers.holographic.store import Fact, FactStore, Outline

DAY_SECONDS = 86_400
_CONSIDERED = 100
_RERANKED = 80
_SCANNED = 20_000
_ALIKE = 0.22
"""The likeness from which a fact without a common word is still worth showing."""
_LEAST_TRUST = 0.01
"""Facts without any trust are still ranked among themselves, when they are asked for."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A fact that was found; `share` is how much of the question it answers by its own words, 0 to 1."""

    fact: Fact
    score: float
    share: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which facts an answer may hold, and how many."""

    limit: int
    min_trust: float
    category: str | None

    def takes(self, fact: Outline) -> bool:
        """Whether a fact may be in the answer."""
        return fact.trust >= self.min_trust and self.category in {None, fact.category}


class FactSearch:
    """Finds facts of one store for one user."""

    def __init__(self, store: FactStore, settings: HolographicSettings) -> None:
        self._store = store
        self._settings = settings

    def search(
        self, query: str, *, limit: int, min_trust: float | None = None, category: str | None = None
    ) -> list[Hit]:
        """Return the facts that answer a question, the best first."""
        least = self._settings.min_trust_threshold if min_trust is None else min_trust
        reading = read(query, self._store.now())
        sizes = self._store.session_sizes()
        if not reading.terms or not sizes:
            return []
        extent = Extent(
            sum(facts for _, facts, _ in sizes),
            sum(words for _, _, words in sizes),
            {session: facts for session, facts, _ in sizes},
        )
        holding = self._holding(reading.words)
        names = self._store.speakers(reading.words)
        question = weighed(reading, holding, facts=extent.facts, names=names)
        if not question.terms:
            return self._alike(reading.words, limit=limit, min_trust=least)
        return self._ranked(question, Ranking(question, extent, names=names), Wanted(limit, least, category))

    def probe(self, entity: str, *, limit: int) -> list[Hit]:
        """Return what is known about an entity: facts that name it, then facts whose vectors hold something like it."""
        least = self._settings.min_trust_threshold
        named = self._store.facts_about(entity, min_trust=least)
        facts = self._store.facts(named)
        vector = entity_vector(entity, self._settings.hrr_dim)
        hits = [
            Hit(fact, (1.0 + similarity(vector, fact.vector)) * self._standing(fact), 1.0) for fact in facts.values()
        ]
        hits.sort(key=lambda hit: (-hit.score, -hit.fact.id))
        if hits:
            return hits[:limit]
        return self.search(entity, limit=limit)

    def related(self, entity: str, *, limit: int) -> list[tuple[str, int]]:
        """Return the entities that share facts with one."""
        least = self._settings.min_trust_threshold
        return self._store.related_entities(entity, min_trust=least, limit=limit)

    def reason(self, entities: Sequence[str], *, limit: int) -> list[Hit]:
        """Return the facts that connect entities: those about all of them, else those that meet in a third."""
        least = self._settings.min_trust_threshold
        about = [set(self._store.facts_about(name, min_trust=least)) for name in entities]
        together = set.intersection(*about) if about else set()
        chosen = together or self._bridges(entities, about)
        facts = self._store.facts(chosen)
        vectors = [entity_vector(name, self._settings.hrr_dim) for name in entities]
        hits = [
            Hit(
                fact,
                (1.0 + min(similarity(vector, fact.vector) for vector in vectors)) * self._standing(fact),
                sum(fact.id in ids for ids in about) / len(about),
            )
            for fact in facts.values()
        ]
        return sorted(hits, key=lambda hit: (-hit.share, -hit.score, -hit.fact.id))[:limit]

    def _bridges(self, entities: Sequence[str], about: Sequence[set[int]]) -> set[int]:
        least = self._settings.min_trust_threshold
        around = [
            {other for other, _ in self._store.related_entities(name, min_trust=least, limit=100)} for name in entities
        ]
        shared = set.intersection(*around) if around else set()
        every = set().union(*about) if about else set()
        names = self._store.entities_of(every)
        return {fact for fact in every if shared & set(names.get(fact, ()))}

    def _holding(self, words: Sequence[str]) -> list[dict[int, str]]:
        """Return the facts that hold each word; where only names were asked for, what these people say."""
        found = [self._store.postings(word) for word in words]
        if any(found):
            return found
        return [self._store.postings(word, spoken=True) for word in words]

    def _ranked(self, question: Question, ranking: Ranking, wanted: Wanted) -> list[Hit]:
        shares = {fact: ranking.share(fact) for fact in question.masks}
        outlines = self._store.outlines(_with_sides(best(shares, max(_CONSIDERED, wanted.limit))))
        scores = {
            each.id: ranking.score(_place(each, outlines, question.masks))
            for each in outlines.values()
            if wanted.takes(each)
        }
        compared = best(scores, max(_RERANKED, wanted.limit))
        close = closeness(question, compared, self._store.near)
        alike = self._likeness(question, compared)
        final = {
            fact: (scores[fact] + CLOSENESS * close[fact] + alike[fact]) * self._standing(outlines[fact])
            for fact in compared
        }
        chosen = best(final, wanted.limit)
        facts = self._store.facts(chosen)
        return [Hit(facts[fact], final[fact], shares.get(fact, 0.0)) for fact in chosen if fact in facts]

    def _likeness(self, question: Question, facts: Sequence[int]) -> dict[int, float]:
        """Return how alike the vectors of `facts` are to the question's, in weight."""
        vector = query_vector(question.reading.words, self._settings.hrr_dim)
        weight = self._settings.hrr_weight * question.total
        vectors = self._store.vectors_of(facts)
        return {fact: weight * max(0.0, similarity(vector, vectors[fact])) for fact in facts}

    def _alike(self, terms: Sequence[str], *, limit: int, min_trust: float) -> list[Hit]:
        """No fact holds any of the words: look for words that are written like them."""
        vector = query_vector(terms, self._settings.hrr_dim)
        scanned = self._store.vectors(min_trust=min_trust, limit=_SCANNED)
        scores = {fact_id: similarity(vector, other) for fact_id, other in scanned}
        close = {fact_id: score for fact_id, score in scores.items() if score >= _ALIKE}
        facts = self._store.facts(best(close, limit))
        hits = [Hit(fact, close[fact.id] * self._standing(fact), close[fact.id]) for fact in facts.values()]
        return sorted(hits, key=lambda hit: -hit.score)

    def _standing(self, fact: Fact | Outline) -> float:
        """Return trust, and age where it counts."""
        half_life = self._settings.temporal_decay_half_life
        trust = max(_LEAST_TRUST, fact.trust)
        if half_life <= 0:
            return trust
        days = max(0.0, self._store.now() - fact.updated) / DAY_SECONDS
        return trust * float(0.5 ** (days / half_life))


def _with_sides(ids: Sequence[int]) -> set[int]:
    return {fact + step for fact in ids for step in (-2, -1, 0, 1, 2)}


def _place(fact: Outline, outlines: Mapping[int, Outline], masks: Mapping[int, int]) -> Place:
    """Return how the rank sees a fact: with what its session holds beside it, if it was not copied from a page."""
    sides = [outlines.get(fact.id + step) for step in (-1, 1, -2, 2)]
    beside = [
        each if each is not None and fact.session_id and each.session_id == fact.session_id else None for each in sides
    ]
    before, after, far, farther = (masks.get(each.id, 0) if each is not None else 0 for each in beside)
    answers = beside[0] is not None and bool(beside[0].asks)
    return Place(
        fact.id,
        fact.length,
        fact.created,
        fact.session_id,
        speaker=fact.speaker,
        sides=(before, after, far, farther),
        leans=fact.speaker is not None or answers,
    )
