"""Scores of messages and sessions for a question: a pure function of their features, with named weights."""

from collections.abc import Mapping, Sequence
from math import log, sqrt
from typing import NamedTuple

from msgspec import Struct, field

ANSWERS = 1.0 / 3.0
"""What a message gains that follows another person's question, as a share of `asks`."""
ALIKE = 5.0
"""How many times that gain is added where that question asks for the same as the query, in full."""
_WHOLE = 0.999
"""Share that counts as the whole, to allow for rounding."""
_MOST_UNKNOWN = 2.0
"""Unknown words relative to known ones beyond which more of them tell nothing new."""
FEW_TERMS = 2
"""Terms up to which the stop words of a question count."""
_as_scored = tuple.__new__  # in a third of the time of its own constructor


class Weights(Struct, frozen=True):
    """How much each part of a score counts; one set for all kinds of conversations (see docs/search.md).

    The values were fitted together on the benchmarks (`benchmarks/crossval.py`): changing one moves the best of others.
    """

    saturation: float = 2.0
    """BM25's k1: term frequency saturation, here of the message length alone."""
    length: float = 0.9
    """BM25's b: how fully scores are normalised by message length."""
    rarity: float = 0.5
    """Exponent of a term's idf relative to the rarest term of the question, on top of its idf."""
    name: float = 0.5
    """Factor of a term that is the name of a speaker: people are named everywhere."""
    speaker: float = 0.25
    """Gain of a message that a person named in the question says, as a share of the question's weight."""
    coverage: float = 0.5
    """Gain for the share of the question that a message contains, by idf without `rarity`."""
    whole: float = 0.7
    """Further gain of a message that contains all of the question: people search with words that they remember."""
    closeness: float = 0.6
    """Gain of terms that are as close together as in the question."""
    wording: float = 1.0
    """Gain of a message that quotes the question word for word, as a share of the question's weight."""
    small: float = 0.3
    """Weight of a stop word that a message contains too, for questions with hardly any other words."""
    related: float = 1.0
    """Gain of a message with words related to those of the question, as a share of the question's weight."""
    related_near: float = 0.25
    """For questions: share of its more related neighbour's gain that a message gets as well."""
    asks: float = 0.3
    """Loss of a message that is a question, among people, as a share of the question's weight; a third is what the
    message after a question gains."""
    previous: float = 0.72
    """Share of a term's weight that a message gains when the previous message contains it."""
    next: float = 0.6
    """The same for the next message."""
    near: float = 0.3
    """The same for a message two steps away."""
    doubled: float = 0.4
    """How much less a neighbour's term counts when the message contains it too."""
    session: float = 0.5
    """Gain from the other messages of the session that contain the terms."""
    session_saturation: float = 2.0
    """Number of such messages at which half of the gain is reached."""
    session_length: float = 0.9
    """How fully that count is normalised by the number of messages in the session."""
    falloff_terms: float = 100.0
    """In longer messages, the gains from neighbours and session decrease."""
    date: float = 1.0
    """Gain of a message sent on a date that the question names, as a share of the question's weight."""
    semantic: float = 2.0
    """Gain from the similarity of vectors, in shares of the question's weight; only with vectors."""
    semantic_floor: float = 0.2
    """Cosine similarity below which texts are unrelated."""
    semantic_neighbour: float = 0.3
    """Share of the more similar neighbour's similarity that a message gains."""
    semantic_other: float = 0.85
    """Factor of the similarity where the question names people and none of them speaks."""
    semantic_around: float = 0.6
    """Gain of a message from the similarity of its session, as a share of the question's weight."""
    semantic_session: float = 1.5
    """Gain of a session from its similarity, in shares of the question's weight."""
    semantic_said: float = 0.45
    """From this similarity above the floor on, a message counts as a paraphrase of the question."""
    runner_up: float = 0.5
    """Share of the second best message in the score of its session, and of what makes one of its messages likely."""
    session_total: float = 0.6
    """Share of the session's sum in its score, as long as the whole session is as short as one message may be."""
    tool: float = 0.5
    """Factor of the score of a tool's output."""
    echo: float = 0.2
    """Factor of the score of an answer that has no word of the question and follows the question itself."""
    cron: float = 0.6
    """Factor of the score of a scheduled conversation."""
    headless: float = 0.9
    """Factor of the score of a conversation that a program led (`claude -p`, `codex exec`): people's own come first."""
    abstain: float = 0.35
    """Share of the weight of key words that the best message must reach by words; below it the search abstains."""
    abstain_asked: float = 0.05
    """Share of a question that the best message must contain, by idf, when the store knows all of its words."""
    abstain_unknown: float = 0.4
    """How much more for words that no message of the store contains, by their weight relative to the known ones."""


WEIGHTS = Weights()


class RankedTerm(Struct, frozen=True):
    """One term of the question with its weight in this store."""

    text: str
    weight: float
    is_name: bool = False
    idf: float | None = None
    """The weight without `rarity`, which measures how much of the question a message contains."""


class Line(Struct):
    """One message of a session: the terms that it and its neighbours contain, as bits, and other features."""

    message_id: int
    mask: int
    length: int
    before: int = 0
    after: int = 0
    around: int = 0
    """Terms of the messages two steps away."""
    spoken: bool = False
    """Whether a person named in the question says it."""
    factor: float = 1.0
    """Factor set by role and source."""
    date: float = 0.0
    """How near the message is to a date of the question, 0 to 1."""
    similarity: float = 0.0
    """Likeness of its vectors to the question's, above the floor, its neighbours' included; 0 without vectors."""
    gap: float = 0.0
    """Closeness of the terms in the text, in weight; known for the best messages only."""
    wording: float = 0.0
    """How much of the question the text holds word for word, 0 to 1; known for the best messages only."""
    small: int = 0
    """Stop words of the question that the text holds; known for the best messages only."""
    related: float = 0.0
    """How much of the question it says in related words, a share of its neighbours' included; of the best only."""
    asks: float = 0.0
    """Share of the text that is a question, in a dialogue of people; known for the best messages only."""
    answers: float = 0.0
    """1 if it follows another person's question, and more if that asks for the same as the query; in a dialogue of
    people, known for the best messages only."""
    previous: int = 0
    """The message before it in its conversation; 0 where there is none, or it was not read."""


class SessionLines(Struct):
    """A session: its size, how many messages contain each term, and the lines worth ranking."""

    session_id: str
    size: int
    counts: Sequence[int]
    lines: list[Line] = field(default_factory=list)
    similarity: float = 0.0
    """Likeness of the session: its best line's and half of its second best's."""
    sum: float | None = None
    """Its score as a whole, once it was computed."""


class Scored(NamedTuple):
    """A message with its score. A tuple, because a search makes thousands."""

    line: Line
    session_id: str
    words: float
    """The part from the words of the question in the message and its neighbours."""
    likely: float
    """The part from related words, the turn and the speaker."""
    score: float
    time: float = 0.0
    """The part of the score from the date."""


def idf(documents: int, holding: int) -> float:
    """Return the inverse document frequency of a term that `holding` of `documents` messages contain."""
    return log(1.0 + (documents - holding + 0.5) / (holding + 0.5))


def term_weights(
    terms: Sequence[tuple[str, float, int, int]], documents: int, weights: Weights = WEIGHTS
) -> list[RankedTerm]:
    """Return the terms with their weights from (text, weight in the query, frequency, speaker frequency)."""
    idfs = [idf(documents, min(holding, documents)) for _, _, holding, _ in terms]
    top = max((value for value, (_, _, holding, _) in zip(idfs, terms, strict=True) if holding), default=0.0)
    ranked = []
    for (text, query_weight, holding, speaking), value in zip(terms, idfs, strict=True):
        is_known = holding > 0 or speaking > 0
        plain = query_weight * value * (weights.name if speaking else 1.0) if is_known else 0.0
        rarity = (value / top if top > 0 and holding else 1.0) ** weights.rarity
        ranked.append(RankedTerm(text, plain * rarity, is_name=speaking > 0, idf=plain))
    return ranked


class Ranking:
    """Scores lines for one question; caches what depends only on sets of terms, because few sets occur."""

    def __init__(
        self,
        terms: Sequence[RankedTerm],
        *,
        mean_length: float,
        mean_session: float,
        unknown: float = 0.0,
        weights: Weights = WEIGHTS,
    ) -> None:
        self.terms = terms
        self.weights = weights
        self.total = sum(term.weight for term in terms) or 1.0
        self.asked = self.total + unknown * max((term.weight for term in terms), default=0.0)
        """The weight of the whole question; a term that no message contains counts like the rarest."""
        self.unknown = min(_MOST_UNKNOWN, self.asked / self.total - 1.0)
        """Weight of the words that no message contains, relative to the others."""
        self._idfs = [term.weight if term.idf is None else term.idf for term in terms]
        self._asked_idf = (sum(self._idfs) or 1.0) + unknown * max(self._idfs, default=0.0)
        self._mean_session = max(mean_session, 1.0)
        self.mean_length = max(mean_length, 1.0)
        self.counts_small = len(terms) <= FEW_TERMS
        self._flat = 1.0 + weights.saturation * (1.0 - weights.length)
        self._slope = weights.saturation * weights.length / self.mean_length
        self._sums: dict[int, float] = {0: 0.0}
        self._lifts: dict[int, float] = {0: 0.0}
        self._gains: dict[tuple[int, int, int, int], float] = {}

    def sum(self, mask: int) -> float:
        """Return the weight of the terms in `mask`."""
        weight = self._sums.get(mask)
        if weight is None:
            weight = sum(term.weight for bit, term in enumerate(self.terms) if mask >> bit & 1)
            self._sums[mask] = weight
        return weight

    def holds_all(self, mask: int) -> bool:
        """Return whether a message with the terms in `mask` contains every word of the question."""
        return self.sum(mask) >= self.asked * _WHOLE

    def share(self, mask: int) -> float:
        """Return the share of the question in `mask`, by idf alone: one rare word is little of a question of five."""
        return sum(idf for bit, idf in enumerate(self._idfs) if mask >> bit & 1) / self._asked_idf

    def base(self, mask: int, length: int) -> float:
        """Return the score of a message's own words: BM25 of its terms, raised by coverage."""
        lift = self._lifts.get(mask)
        if lift is None:
            use = self.weights
            share = self.share(mask)
            lift = self.sum(mask) * (use.saturation + 1.0)
            lift *= 1.0 + use.coverage * share**2 + use.whole * share**8
            self._lifts[mask] = lift
        return lift / (self._flat + self._slope * length)

    def wording(self, line: Line) -> float:
        """Return the gain from the wording of the question: word trigrams and stop words."""
        use = self.weights
        gain = use.wording * line.wording * self.total
        if line.small and line.mask and self.counts_small:
            gain += use.small * line.small * (use.saturation + 1.0) / (self._flat + self._slope * line.length)
        return gain

    def turn(self, line: Line) -> float:
        """Return what a message gains as an answer and loses as a question in a dialogue of people."""
        return self.weights.asks * (ANSWERS * line.answers - line.asks) * self.total

    def neighbours(self, mask: int, before: int, after: int, *, around: int) -> float:
        """Return the gain from the terms of neighbours, each term once, less where the message contains it too."""
        key = (mask, before, after, around)
        gain = self._gains.get(key)
        if gain is None:
            use = self.weights
            later = after & ~before
            far = around & ~before & ~after
            gain = 0.0
            for share, terms in ((use.previous, before), (use.next, later), (use.near, far)):
                gain += share * (self.sum(terms) - use.doubled * self.sum(terms & mask))
            self._gains[key] = gain
        return gain

    def falloff(self, length: int) -> float:
        """Return the share of neighbour and session gains that a message of this length keeps."""
        return 1.0 if length <= self.weights.falloff_terms else self.weights.falloff_terms / length

    def session_sum(self, session: SessionLines) -> float:
        """Return the score of the session as a whole: messages with each term, with diminishing returns."""
        if session.sum is None:
            use = self.weights
            norm = 1.0 - use.session_length + use.session_length * session.size / self._mean_session
            half = use.session_saturation * norm
            session.sum = 0.0
            for term, count in zip(self.terms, session.counts, strict=True):
                if count:
                    session.sum += term.weight * count * (1.0 + use.session_saturation) / (count + half)
        return session.sum

    def parts(self, line: Line, session_sum: float, *, around: float = 0.0) -> dict[str, float]:
        """Return the named parts whose sum is the score of `line`; empty when neither it nor its neighbours match."""
        use = self.weights
        falloff = self.falloff(line.length)
        words = self.base(line.mask, line.length)
        near = 0.0
        if line.before or line.after or line.around:
            near = falloff * self.neighbours(line.mask, line.before, line.after, around=line.around)
        meaning = use.semantic * self.total * line.similarity
        if words + near + meaning <= 0.0:
            return {}
        meaning += use.semantic_around * self.total * around
        parts = {
            "words": words,
            "meaning": meaning,
            "closeness": use.closeness * line.gap,
            "wording": self.wording(line) if line.wording or line.small else 0.0,
            "related": use.related * line.related * self.total,
            "turn": self.turn(line) if line.asks or line.answers else 0.0,
            "neighbours": near,
            "speaker": use.speaker * self.total if line.spoken else 0.0,
            "session": falloff * use.session * session_sum,
            "date": use.date * line.date * self.total,
        }
        return parts if line.factor == 1.0 else {name: value * line.factor for name, value in parts.items()}

    def score_lines(self, session: SessionLines) -> list[Scored]:
        """Return the lines of `session` that match, with their scores: the sums of their parts."""
        use = self.weights
        session_gain = use.session * self.session_sum(session)
        meaning_gain = use.semantic_around * self.total * session.similarity
        speaker_gain, related_gain, falls_from = use.speaker * self.total, use.related * self.total, use.falloff_terms
        date_gain = use.date * self.total
        scored, name = list[Scored](), session.session_id
        for line in session.lines:
            mask, length = line.mask, line.length
            falloff = 1.0 if length <= falls_from else falls_from / length
            words = self.base(mask, length) if mask else 0.0
            if line.before or line.after or line.around:
                words += falloff * self.neighbours(mask, line.before, line.after, around=line.around)
            if words + line.similarity <= 0.0:
                continue
            if line.gap or line.wording or line.small:
                words += use.closeness * line.gap + self.wording(line)
            likely = related_gain * line.related if line.related else 0.0
            if line.asks or line.answers:
                likely += self.turn(line)
            if line.spoken:
                likely += speaker_gain
            time = date_gain * line.date
            rest = falloff * session_gain + meaning_gain + (use.semantic * self.total * line.similarity + time)
            factor = line.factor
            score = (words + likely + rest) * factor
            scored.append(_as_scored(Scored, (line, name, words * factor, likely * factor, score, time * factor)))
        return scored

    def session_score(self, session: SessionLines, scored: Sequence[Scored]) -> tuple[float, Scored]:
        """Return the score of a session and its best message, from the scores of its lines.

        The words of the two best messages count. Related words, turns and speakers count once and with less weight,
        because they raise every line of a conversation: its lines share related words, and a person named in the
        question speaks in all of them.
        """
        use = self.weights
        best, words = scored[0], [item.words for item in scored]
        if len(scored) > 1:
            # a message with every word of the question wins over a shorter neighbour, however long it is
            whole = [item for item in scored if item.line.mask and self.holds_all(item.line.mask)]
            best = max(whole or scored, key=lambda item: (item.score, item.line.message_id))
            words.sort(reverse=True)
        score = words[0] + use.runner_up * (words[1] if len(words) > 1 else 0.0)
        score += use.runner_up * max(0.0, *[item.likely for item in scored])
        # a session of a few short lines is like a single text, which counts as a whole; a long conversation is not
        likeness = sqrt(min(1.0, use.falloff_terms / (session.size * self.mean_length)))
        score += use.session_total * likeness * self.session_sum(session) * best.line.factor
        score += use.semantic_session * self.total * session.similarity * best.line.factor
        score += max([item.time for item in scored])
        return score, best


def abstains(best: Mapping[str, float], mask: int, ranking: Ranking, *, is_asked: bool) -> bool:
    """Return whether the best message, with the terms in `mask`, contains too little of the query.

    How much a question needs depends on the store: words that occur in no message suggest that the topic never came up.
    """
    use = ranking.weights
    if not is_asked or best.get("meaning", 0.0) > 0.0:
        return word_share(best, ranking) < use.abstain
    return ranking.share(mask) < use.abstain_asked + use.abstain_unknown * ranking.unknown


def word_share(best: Mapping[str, float], ranking: Ranking) -> float:
    """Return the share of the question's weight that a message and its neighbours reach by their words."""
    reached = sum(best.get(part, 0.0) for part in ("words", "neighbours", "closeness", "wording"))
    meaning = best.get("meaning", 0.0)
    if meaning >= ranking.weights.semantic * ranking.weights.semantic_said * ranking.total:
        reached += meaning
    return reached / ranking.asked
