"""Search for facts: by a question with a rank of its own, by entities, or for contradictions between facts."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import exp, log
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.languages.dates import DATE_NAMES, DAY_SECONDS, Span, find_dates
from wellkept.languages.language import join_words
from wellkept.providers.holographic.features import (
    entities_in,
    entity_vector,
    framing_words,
    query_vector,
    question_words,
    similarity,
    stop_words,
    words,
)
from wellkept.providers.holographic.store import Fact, FactStore, Outline

if TYPE_CHECKING:
    from wellkept.providers.holographic.provider import HolographicSettings

MAX_WORDS = 24
_FRAMING = 0.35
"""The weight of a word that frames the question without naming its topic."""
_DATE_WORD = 0.35
"""The weight of a word of a date, because the date itself is compared too."""
_WORD = re.compile(r"[^\W_]+")

SATURATION = 1.0
"""The strength of the length normalisation."""
LENGTH = 0.6
"""The share of the length normalisation that depends on the fact's length (BM25's b)."""
RARITY = 0.5
"""The exponent of a term's idf relative to the rarest term of the question, in addition to its idf."""
NAME = 0.5
"""The factor for a term that is the name of a speaker: such names occur everywhere."""
COVERAGE = 0.8
"""The gain of a fact by the share of the question's weight that it contains."""
WHOLE = 0.7
"""The further gain of a fact that contains nearly all of it."""
CLOSENESS = 1.0
"""The gain of terms that are close to each other both in the question and in the fact."""
SPEAKER = 0.25
"""The share of the question's weight that a fact gains if its speaker is named in the question."""
BEFORE, AFTER, NEAR = 0.72, 0.6, 0.3
"""The shares of a term's weight for a fact whose predecessor, successor or second neighbour contains it."""
DOUBLED = 0.4
"""The reduction of that share if the fact contains the term itself."""
SESSION = 0.5
"""The gain from facts of the same session that contain the terms."""
SESSION_SATURATION = 2.0
"""The number of such facts at which their gain is half saturated."""
SESSION_LENGTH = 0.9
"""The share of that saturation that depends on the size of the session."""
DATE = 1.0
"""The share of the question's weight that a fact gains if it was stored on a date that the question names."""
DAYS_BEFORE, DAYS_AFTER = 1.0, 5.0
"""Days in which that gain falls to a third: people report events some days later, rarely earlier."""
FALLOFF = 100.0
"""The length in words beyond which the gains from neighbours and session decrease: a long fact has its own context."""
_FOLLOWING = ((1, 1.0), (2, 0.5))
"""Pairs of question terms that are compared, as (distance in the question, weight)."""
_BETWEEN = ((6, 0.2), (2, 0.5), (0, 1.0))
"""The gain by the number of words between the two in a fact, as (at most, gain)."""

FindNear = Callable[[tuple[str, str], int], Collection[int]]
"""Returns the ids of facts that contain two words with at most so many others between them."""


class Term(Struct, frozen=True):
    """A word of the question with its weight."""

    word: str
    given: float = 1.0
    names_date: bool = False
    """Whether it is a month, a weekday or a number in a date."""


class Reading(Struct, frozen=True):
    """A parsed question: its terms and the dates that it names."""

    terms: tuple[Term, ...]
    dates: tuple[Span, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words of the terms."""
        return tuple(term.word for term in self.terms)


def read(question: str, now: float) -> Reading:
    """Parse a question; relative dates are resolved from `now`."""
    dates = find_dates(question, now)
    date_words = frozenset(word for _, said in dates for word in _WORD.findall(said))
    terms = tuple(_term(word, date_words) for word in question_words(question)[:MAX_WORDS])
    return Reading(terms, tuple(span for span, _ in dates))


def _term(word: str, date_words: frozenset[str]) -> Term:
    if word in date_words:
        return Term(word, _DATE_WORD, names_date=word.isdigit() or word in DATE_NAMES)
    return Term(word, _FRAMING if word in framing_words() else 1.0)


class Extent(Struct, frozen=True):
    """The size of the store."""

    facts: int
    words: int
    sessions: Mapping[str, int]
    """The number of facts of each session."""


class Question(Struct, frozen=True):
    """A question with the weights of its terms in this store; term number n is bit n of a mask."""

    terms: tuple[Term, ...]
    """The terms that occur in some fact."""
    weights: tuple[float, ...]
    full_weight: float
    """The weight of the whole question; terms that occur in no fact count like the rarest term."""
    masks: Mapping[int, int]
    """The terms that each fact contains."""
    sessions: Mapping[str, Sequence[int]]
    """The number of facts of each session that contain each term."""
    reading: Reading

    @property
    def total(self) -> float:
        """Return the weight of the terms that occur in some fact."""
        return sum(self.weights)


class Place(Struct, frozen=True):
    """The features of a fact that the rank uses."""

    id: int
    length: int
    created: float = 0.0
    session_id: str = ""
    speaker: str | None = None
    sides: tuple[int, int, int, int] = (0, 0, 0, 0)
    """The terms in the facts of its session before, after, two before and two after it."""
    in_conversation: bool = False
    """Whether it is part of a conversation, so that neighbours alone may make it a hit."""


def weigh(reading: Reading, postings: Sequence[Mapping[int, str]], *, facts: int, names: frozenset[str]) -> Question:
    """Return the question with weighted terms; `postings` lists for each term its facts and their sessions."""
    held = [(term, found) for term, found in zip(reading.terms, postings, strict=True) if found]
    idf = [log(1.0 + (facts - min(facts, len(found)) + 0.5) / (len(found) + 0.5)) for _, found in held]
    rarest = max(idf, default=1.0)
    weights = tuple(
        term.given * value * (value / rarest) ** RARITY * (NAME if term.word in names else 1.0)
        for (term, _), value in zip(held, idf, strict=True)
    )
    unknown = sum(term.given for term, found in zip(reading.terms, postings, strict=True) if not found)
    masks: Counter[int] = Counter()
    sessions: dict[str, list[int]] = {}
    for number, (_, found) in enumerate(held):
        for fact in found:
            masks[fact] |= 1 << number
        for session, count in Counter(found.values()).items():
            sessions.setdefault(session, [0] * len(held))[number] = count
    full_weight = sum(weights) + unknown * max(weights, default=0.0)
    return Question(tuple(term for term, _ in held), weights, full_weight, masks, sessions, reading)


class Ranking:
    """Scores facts for one question; sums over sets of terms are cached, because few sets occur."""

    def __init__(self, question: Question, extent: Extent, *, names: frozenset[str]) -> None:
        self._question = question
        self._extent = extent
        self._total = question.total
        self._names = names
        self._dated = sum(1 << number for number, term in enumerate(question.terms) if term.names_date)
        self._mean_length = extent.words / max(1, extent.facts)
        self._mean_session = extent.facts / max(1, len(extent.sessions))
        self._sums: dict[int, float] = {}
        self._gains: dict[str, float] = {}

    def weight(self, mask: int) -> float:
        """Return the weight of the terms in `mask`."""
        if mask not in self._sums:
            self._sums[mask] = sum(weight for number, weight in enumerate(self._question.weights) if mask >> number & 1)
        return self._sums[mask]

    def own(self, fact_id: int, length: int) -> float:
        """Return the score of a fact's own terms: raised by coverage, lowered by length."""
        held = self.weight(self._question.masks.get(fact_id, 0))
        share = held / self._question.full_weight
        lift = 1.0 + COVERAGE * share**2 + WHOLE * share**8
        norm = 1.0 - LENGTH + LENGTH * length / self._mean_length
        return held * lift * (1.0 + SATURATION) / (1.0 + SATURATION * norm)

    def share(self, fact_id: int) -> float:
        """Return the share of the question's weight that a fact contains itself."""
        return self.weight(self._question.masks.get(fact_id, 0)) / self._total

    def score(self, place: Place) -> float:
        """Return the score of a fact; 0 if it is no hit."""
        own = self.own(place.id, place.length)
        if own == 0.0 and not place.in_conversation:
            return 0.0
        neighbours = self._neighbour_gain(place)
        if own + neighbours == 0.0:
            return 0.0
        around = neighbours + SESSION * self._session_gain(place.session_id)
        value = own + around * min(1.0, FALLOFF / place.length)
        if place.speaker in self._names:
            value += SPEAKER * self._total
        return value + DATE * self._total * self._date_match(place)

    def _neighbour_gain(self, place: Place) -> float:
        """Return the gain from neighbours: each term counts once, for the nearest, and less if the fact contains it."""
        before, after, *far = place.sides
        own = self._question.masks.get(place.id, 0)
        total, taken = 0.0, 0
        for mask, share in ((before, BEFORE), (after, AFTER), (far[0] | far[1], NEAR)):
            new = mask & ~taken
            total += share * (self.weight(new) - DOUBLED * self.weight(new & own))
            taken |= mask
        return total

    def _date_match(self, place: Place) -> float:
        """Return how well a fact matches a date of the question: stored on that day, or naming the date."""
        if not self._question.reading.dates:
            return 0.0
        named = self.weight(self._question.masks.get(place.id, 0) & self._dated) / (self.weight(self._dated) or 1.0)
        # squared, because a part of a date is a different date
        return max(named * named, *(_nearness(span, place.created) for span in self._question.reading.dates))

    def _session_gain(self, session: str) -> float:
        if not session:
            return 0.0
        if session not in self._gains:
            size = self._extent.sessions.get(session, 1)
            half = SESSION_SATURATION * (1.0 - SESSION_LENGTH + SESSION_LENGTH * size / self._mean_session)
            counts = self._question.sessions.get(session, ())
            self._gains[session] = sum(
                weight * count * (1.0 + SESSION_SATURATION) / (count + half)
                for weight, count in zip(self._question.weights, counts, strict=False)
            )
        return self._gains[session]


def best(scores: Mapping[int, float], limit: int) -> Sequence[int]:
    """Return the ids with the highest scores above 0, the older first among equals."""
    return sorted((fact for fact, score in scores.items() if score > 0), key=lambda fact: (-scores[fact], fact))[:limit]


def _nearness(span: Span, moment: float) -> float:
    """Return 1 inside `span`, and less with every day before or after it."""
    return exp(-span.distance(moment) / DAY_SECONDS / (DAYS_BEFORE if moment < span.start else DAYS_AFTER))


def closeness(question: Question, facts: Sequence[int], find_near: FindNear) -> dict[int, float]:
    """Return the gain of each fact by the proximity of terms that are neighbours in the question."""
    gains = dict.fromkeys(facts, 0.0)
    for left, right, share in _pairs(len(question.terms)):
        both = 1 << left | 1 << right
        holders = {fact for fact in facts if question.masks.get(fact, 0) & both == both}
        weight = share * min(question.weights[left], question.weights[right])
        words = question.terms[left].word, question.terms[right].word
        for fact, gain in _close(words, holders, find_near).items():
            gains[fact] += weight * gain
    return gains


def _close(words: tuple[str, str], holders: set[int], find_near: FindNear) -> dict[int, float]:
    found: dict[int, float] = {}
    for between, gain in _BETWEEN:
        if holders:
            holders = holders.intersection(find_near(words, between))
            found.update(dict.fromkeys(holders, gain))
    return found


def _pairs(count: int) -> Iterator[tuple[int, int, float]]:
    for step, share in _FOLLOWING:
        for left in range(count - step):
            yield left, left + step, share


_SECONDS_PER_DAY = 86_400
_CONSIDERED = 100
"""Facts with the largest share of the question's weight, which are scored with their neighbours."""
_RERANKED = 80
"""The best of these, whose word distances and vectors are compared too."""
_SCANNED = 20_000
"""Vectors that are compared if no fact contains any of the words."""
_ALIKE = 0.22
"""The least similarity at which a fact without any common term is a hit."""
_LEAST_TRUST = 0.01
"""The least factor for trust, so that facts without any trust are still ranked among themselves."""


class Hit(Struct, frozen=True):
    """A fact that was found; `share` is the share of the question's weight that it contains, 0 to 1."""

    fact: Fact
    score: float
    share: float


class Filter(Struct, frozen=True):
    """Which facts may be hits, and how many."""

    limit: int
    min_trust: float
    category: str | None

    def accepts(self, fact: Outline) -> bool:
        """Whether a fact may be a hit."""
        return fact.trust >= self.min_trust and self.category in {None, fact.category}


class FactSearch:
    """Searches the facts of one store."""

    def __init__(self, store: FactStore, settings: "HolographicSettings") -> None:
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
        postings = [self._store.postings(word) for word in words]
        if any(postings):
            return postings
        return [self._store.postings(word, spoken=True) for word in words]

    def _rank(self, question: Question, ranking: Ranking, wanted: Filter) -> list[Hit]:
        shares = {fact: ranking.share(fact) for fact in question.masks}
        outlines = self._store.outlines(_with_neighbours(best(shares, max(_CONSIDERED, wanted.limit))))
        scores = {
            outline.id: ranking.score(_place(outline, outlines, question.masks))
            for outline in outlines.values()
            if wanted.accepts(outline)
        }
        compared = best(scores, max(_RERANKED, wanted.limit))
        close = closeness(question, compared, self._store.near)
        vector = query_vector(question.reading.words, self._settings.hrr_dim)
        weight = self._settings.hrr_weight * question.total
        vectors = self._store.vectors_of(compared)
        alike = {fact: weight * max(0.0, similarity(vector, vectors[fact])) for fact in compared}
        final = {
            fact: (scores[fact] + CLOSENESS * close[fact] + alike[fact]) * self._trust_factor(outlines[fact])
            for fact in compared
        }
        chosen = best(final, wanted.limit)
        facts = self._store.facts(chosen)
        return [Hit(facts[fact], final[fact], shares.get(fact, 0.0)) for fact in chosen if fact in facts]

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
    neighbours = [
        side if side is not None and fact.session_id and side.session_id == fact.session_id else None for side in sides
    ]
    before, after, far, farther = (
        masks.get(neighbour.id, 0) if neighbour is not None else 0 for neighbour in neighbours
    )
    answers = neighbours[0] is not None and bool(neighbours[0].asks)
    return Place(
        fact.id,
        fact.length,
        fact.created,
        fact.session_id,
        speaker=fact.speaker,
        sides=(before, after, far, farther),
        in_conversation=fact.speaker is not None or answers,
    )


_NEGATIONS = join_words("negations")
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
"""If a fact has more words than this that the other lacks, they are about different things."""
_LEAST_SHARED = 0.5
"""The share of the shorter fact's words that both must contain."""


class Contradiction(Struct, frozen=True):
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
