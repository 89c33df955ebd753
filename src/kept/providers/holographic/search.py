"""Search for facts: by a question, about an entity, related to it, or connecting several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kept.providers.holographic.features import entity_vector, query_vector, similarity
from kept.providers.holographic.rank import CLOSENESS, Extent, Place, Question, Ranking, best, closeness, read, weigh
from kept.providers.holographic.settings import HolographicSettings
from kept.providers.holographic.store import Fact, FactStore, Outline

_SECONDS_PER_DAY = 86_400
_CONSIDERED = 100
_RERANKED = 80
_SCANNED = 20_000
_ALIKE = 0.22
"""The least similarity at which a fact without any common term is a hit."""
_LEAST_TRUST = 0.01
"""The least factor for trust, so that facts without any trust are still ranked among themselves."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A fact that was found; `share` is the share of the question's weight that it contains, 0 to 1."""

    fact: Fact
    score: float
    share: float


@dataclass(frozen=True, slots=True)
class Filter:
    """Which facts may be hits, and how many."""

    limit: int
    min_trust: float
    category: str | None

    def accepts(self, fact: Outline) -> bool:
        """Whether a fact may be a hit."""
        return fact.trust >= self.min_trust and self.category in {None, fact.category}


class FactSearch:
    """Searches the facts of one store."""

    def __init__(self, store: FactStore, settings: HolographicSettings) -> None:
        self._store = store
        self._settings = settings

    def search(
        self, query: str, *, limit: int, min_trust: float | None = None, category: str | None = None
    ) -> list[Hit]:
        """Return the facts that match a question, the best first."""
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
        postings = self._postings(reading.words)
        names = self._store.speakers(reading.words)
        question = weigh(reading, postings, facts=extent.facts, names=names)
        if not question.terms:
            return self._search_similar(reading.words, limit=limit, min_trust=least)
        return self._rank(question, Ranking(question, extent, names=names), Filter(limit, least, category))

    def probe(self, entity: str, *, limit: int) -> list[Hit]:
        """Return the facts that name an entity; if there are none, the results of a search for its name."""
        least = self._settings.min_trust_threshold
        named = self._store.facts_about(entity, min_trust=least)
        facts = self._store.facts(named)
        vector = entity_vector(entity, self._settings.hrr_dim)
        hits = [
            Hit(fact, (1.0 + similarity(vector, fact.vector)) * self._trust_factor(fact), 1.0)
            for fact in facts.values()
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
        """Return facts that connect entities: facts about all of them, else facts that share a third entity."""
        least = self._settings.min_trust_threshold
        about = [set(self._store.facts_about(name, min_trust=least)) for name in entities]
        together = set.intersection(*about) if about else set()
        chosen = together or self._bridges(entities, about)
        facts = self._store.facts(chosen)
        vectors = [entity_vector(name, self._settings.hrr_dim) for name in entities]
        hits = [
            Hit(
                fact,
                (1.0 + min(similarity(vector, fact.vector) for vector in vectors)) * self._trust_factor(fact),
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

    def _postings(self, words: Sequence[str]) -> list[dict[int, str]]:
        """Return the posting list of each word; if all are empty, include facts that are spoken by these names."""
        found = [self._store.postings(word) for word in words]
        if any(found):
            return found
        return [self._store.postings(word, spoken=True) for word in words]

    def _rank(self, question: Question, ranking: Ranking, wanted: Filter) -> list[Hit]:
        shares = {fact: ranking.share(fact) for fact in question.masks}
        outlines = self._store.outlines(_with_neighbours(best(shares, max(_CONSIDERED, wanted.limit))))
        scores = {
            each.id: ranking.score(_place(each, outlines, question.masks))
            for each in outlines.values()
            if wanted.accepts(each)
        }
        compared = best(scores, max(_RERANKED, wanted.limit))
        close = closeness(question, compared, self._store.near)
        alike = self._similarity_gain(question, compared)
        final = {
            fact: (scores[fact] + CLOSENESS * close[fact] + alike[fact]) * self._trust_factor(outlines[fact])
            for fact in compared
        }
        chosen = best(final, wanted.limit)
        facts = self._store.facts(chosen)
        return [Hit(facts[fact], final[fact], shares.get(fact, 0.0)) for fact in chosen if fact in facts]

    def _similarity_gain(self, question: Question, facts: Sequence[int]) -> dict[int, float]:
        """Return the gain of each fact by the similarity of its vector to the question's."""
        vector = query_vector(question.reading.words, self._settings.hrr_dim)
        weight = self._settings.hrr_weight * question.total
        vectors = self._store.vectors_of(facts)
        return {fact: weight * max(0.0, similarity(vector, vectors[fact])) for fact in facts}

    def _search_similar(self, terms: Sequence[str], *, limit: int, min_trust: float) -> list[Hit]:
        """Return facts with similarly spelled words; used if no fact contains any of the words."""
        vector = query_vector(terms, self._settings.hrr_dim)
        scanned = self._store.vectors(min_trust=min_trust, limit=_SCANNED)
        scores = {fact_id: similarity(vector, other) for fact_id, other in scanned}
        close = {fact_id: score for fact_id, score in scores.items() if score >= _ALIKE}
        facts = self._store.facts(best(close, limit))
        hits = [Hit(fact, close[fact.id] * self._trust_factor(fact), close[fact.id]) for fact in facts.values()]
        return sorted(hits, key=lambda hit: -hit.score)

    def _trust_factor(self, fact: Fact | Outline) -> float:
        """Return the trust of a fact, reduced by its age if a half-life is set."""
        half_life = self._settings.temporal_decay_half_life
        trust = max(_LEAST_TRUST, fact.trust)
        if half_life <= 0:
            return trust
        days = max(0.0, self._store.now() - fact.updated) / _SECONDS_PER_DAY
        return trust * float(0.5 ** (days / half_life))


def _with_neighbours(ids: Sequence[int]) -> set[int]:
    return {fact + step for fact in ids for step in (-2, -1, 0, 1, 2)}


def _place(fact: Outline, outlines: Mapping[int, Outline], masks: Mapping[int, int]) -> Place:
    """Return the features of a fact, with the terms of its neighbours in the same session."""
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
