"""How the words of a question occur in a text: close together, word for word, and the passage around them."""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Final, NamedTuple

from wellkept.core.messages import Message
from wellkept.core.provenance import quotes_memory
from wellkept.core.text import UNSPACED, WORD
from wellkept.languages.language import stop_words
from wellkept.languages.questions import FORMING, is_asking
from wellkept.sessions.search.analysis import RelatedWords, base, clean, forms, split_speaker
from wellkept.sessions.search.postings import Analyzer, MessageHead, Similarity
from wellkept.sessions.search.query import asks, find_role
from wellkept.sessions.search.ranking import ALIKE, WEIGHTS, Line, SessionLines, Weights

_TEXT_CHARACTERS = 8_000
_QUESTION_CHARACTERS = 2_000
_MOST_QUESTIONS = 8
"""Questions at the end of a message that are compared with the query."""
_SENTENCE: Final = re.compile(r"[^.!?\n\uff1f\u3002]+[.!?\uff1f\u3002]*")
_ASKS: Final = ("?", "\uff1f")
_FORMS: Final = frozenset({"how", "what", "when", "where", "which", "who", "whom", "whose", "why"})
"""Question words; only English ones, as in the table of related words, beside which they are used."""
ELLIPSIS = "…"
_LEAST_STEM = 4
_LOOKED_AT = 1_000_000


class Occurrence(NamedTuple):
    """How the words of a question occur in one text."""

    closeness: float
    """How close together its terms are, in weight."""
    quoted: float
    """How much of the question occurs word for word, 0 to 1."""
    terms: int
    """The terms that occur, as bits."""
    stop_words: int
    """How many of its stop words occur."""
    related: float
    """How much of the question the text says in the same or related words, about 0 to 1."""


class Proximity:
    """Compares one question with texts, by tokens; every form of a word counts as the same.

    `other_forms` are those of each term, in the same order. `names` are words of the question that have no related
    words, because they name people; with `is_literal` no word has any.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        question: str,
        terms: Sequence[str],
        *,
        other_forms: Sequence[Collection[str]] = (),
        names: Collection[str] = (),
        is_literal: bool = False,
    ) -> None:
        self._analyzer = analyzer
        self._terms: dict[str, int] = {}
        for index, term in enumerate(terms):
            self._terms.update(zip(map(analyzer.stem, forms(term)), repeat(index)))
        for index, words in enumerate(other_forms):
            self._terms.update(zip(map(analyzer.stem, words), repeat(index)))
        self._count = len(terms)
        asked = clean(question[:_QUESTION_CHARACTERS])
        tokens = analyzer.tokens(asked)
        self._form = _find_form(tokens)
        self._trigrams = _trigrams(tokens)
        self._asked = frozenset(tokens)
        self._least_asked = min((len(set(trigram)) for trigram in self._trigrams), default=0)
        # stop words are those of the language of the question: "war" is a German one, and an English noun
        words = [*map(str.lower, WORD.findall(asked))]
        stops = stop_words(words)
        distinct = {*words}
        content = distinct - (stop_words(sorted(distinct)) if len(distinct) < len(words) else stops)
        self._related = RelatedWords([] if is_literal else [*map(analyzer.stem, content.difference(names))])
        self._all_stops = analyzer.stop_tokens
        asked_stops = filter(lambda word: len(word) > 1, stops.intersection(words))  # "don't" and "I'm" leave letters
        self._stop_words = frozenset(map(analyzer.stem, asked_stops))

    @property
    def is_bare(self) -> bool:
        """Whether the question is one word without related words, so that all texts with it score the same."""
        return self._count == 1 and not (self._trigrams or self._stop_words or self._related.is_known)

    def of(self, text: str, weights: Sequence[float], *, may_hold_terms: bool = True) -> Occurrence:
        """Return how the words of the question occur in `text`."""
        _, rest = split_speaker(clean(text[:_TEXT_CHARACTERS]))
        tokens = self._analyzer.tokens(rest)
        related = 0.0
        if self._related.is_known:
            related = self._related.share([token for token in tokens if token not in self._all_stops])
        if not may_hold_terms:
            return Occurrence(0.0, 0.0, 0, 0, related)
        if not rest.isascii():  # only Cyrillic words have another base
            known = self._terms
            positions, terms = self._find_positions([token if token in known else base(token) for token in tokens])
        else:
            positions, terms = self._find_positions(tokens)
        closeness = _closeness(positions, weights) if positions else 0.0
        stop_words = len(self._stop_words.intersection(tokens)) if self._stop_words else 0
        quoted = 0.0
        if self._trigrams and len(self._asked.intersection(tokens)) >= self._least_asked:
            # squared: a common turn of phrase is chance, a whole line is not
            share = len(self._trigrams & _trigrams(tokens)) / len(self._trigrams)
            quoted = share * share
        return Occurrence(closeness, quoted, terms, stop_words, related)

    def asks_alike(self, questions: Sequence[str]) -> float:
        """Return how alike the most similar question is, 0 to about 2: the same question word counts twice."""
        if not self._related.is_known:
            return 0.0
        best = 0.0
        for question in questions[-_MOST_QUESTIONS:]:
            tokens = self._analyzer.tokens(question[-_QUESTION_CHARACTERS:])
            share = self._related.share([token for token in tokens if token not in self._all_stops])
            if share > best / 2.0:
                best = max(best, 2.0 * share if _find_form(tokens) == self._form else share)
        return best

    def _find_positions(self, tokens: Sequence[str]) -> tuple[list[list[int]], int]:
        """Return where each term occurs, empty if fewer than two do, and which terms occur, as bits."""
        held = self._terms.keys() & tokens
        terms = 0
        for token in held:
            terms |= 1 << self._terms[token]
        if terms.bit_count() < 2:
            return [], terms
        lists: list[list[int]] = [[] for _ in range(self._count)]
        for index, token in enumerate(tokens):
            if token in held:
                lists[self._terms[token]].append(index)
        return lists, terms


def _closeness(positions: Sequence[Sequence[int]], weights: Sequence[float]) -> float:
    """Return how close together neighbouring terms of the question are in the text."""
    gain = 0.0
    for step, share in ((1, 1.0), (2, 0.5)):
        for left in range(len(positions) - step):
            distance = _distance(positions[left], positions[left + step])
            if distance is not None:
                gain += share * min(weights[left], weights[left + step]) / max(1, distance)
    return gain


def _find_form(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return the question word of a question, "how" with the word after it; empty where there is none."""
    for index, word in enumerate(tokens):
        if word in _FORMS:
            return tuple(tokens[index : index + 2]) if word == "how" else (word,)
    return ()


def _trigrams(tokens: Sequence[str]) -> frozenset[tuple[str, str, str]]:
    """Return the word trigrams; two equal words in a row are chance, three are not."""
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def _distance(left: Sequence[int], right: Sequence[int]) -> int | None:
    if not left or not right:
        return None
    least = None
    for position in left:
        index = bisect_left(right, position)
        for other in right[max(0, index - 1) : index + 1]:
            if least is None or abs(other - position) < least:
                least = abs(other - position)
    return least


class Repetition:
    """Recognises messages that cannot answer a question, because they only repeat it or quote memory."""

    def __init__(self, question: str, *, is_asked: bool) -> None:
        self._is_asked = is_asked
        self._words = content_words(question) if is_asked else frozenset[str]()
        self._most = 2 * len(question) + 40

    def matches(self, head: MessageHead, text: str) -> bool:
        """Return whether a message has nothing that the question lacks, or quotes stored memory."""
        if head.role == "assistant":
            return quotes_memory(text)
        if not self._is_asked or head.role != "user" or len(text) > self._most:
            return False
        return is_asking(text) and content_words(text) - _forming_words() <= self._words


@cache
def _forming_words() -> frozenset[str]:
    """Return the words that form a question, without endings: "remind me which …" asks for nothing more."""
    return frozenset(base(word) for word in FORMING).union(*(word for word in FORMING if UNSPACED.match(word)))


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text without stop words and endings; of Chinese, its characters."""
    words = [word.lower() for word in WORD.findall(UNSPACED.sub(" ", text))]
    stops = stop_words(words)
    stems = {base(word) for word in words if word not in stops}
    return frozenset(stems.union(*UNSPACED.findall(text)))


class Turns:
    """The turns of a dialogue: who asks, who answers, and what the person whom the query is about said."""

    def __init__(self, query: str) -> None:
        self.is_asked = asks(query)
        self._role = find_role(query) if self.is_asked else ""

    def mark(
        self,
        lines: Sequence[Line],
        texts: Mapping[int, str],
        heads: Mapping[int, MessageHead],
        *,
        read: Callable[[list[int]], Mapping[int, str]],
        alike: Callable[[Sequence[str]], float],
    ) -> None:
        """Set for each line how much of it asks, how well it answers, and whether the person who is meant says it.

        A line also gets a share of the related words of its neighbours: an answer often follows the message that
        names its topic. `read` returns the texts of further messages, because the question before an answer need not
        be among the best matches. `alike` compares questions with the query.
        """
        if not self.is_asked:
            return
        _share_related(lines)
        among_people: list[tuple[Line, str]] = []
        asking: dict[int, tuple[str, list[str]]] = {}
        for line in lines:
            text = texts.get(line.message_id)
            if text is None:
                continue
            name, rest = split_speaker(text)
            if not name:
                # only people ask each other: what a person asks an assistant tells about the person
                line.spoken |= heads[line.message_id].role == self._role
                continue
            if questions := _find_questions(rest):
                line.asks = sum(map(len, questions)) / len(rest)
                asking[line.message_id] = name, questions
            among_people.append((line, name))
        missing = {line.previous for line, _ in among_people}.difference(texts, (0,))
        texts = {**texts, **read(sorted(missing))} if missing else texts
        for line, name in among_people:
            before = texts.get(line.previous, "")
            if before.rstrip().endswith(_ASKS):
                asker, questions = asking.get(line.previous) or _read_turn(before)
                # nobody answers their own question
                line.answers = 0.0 if asker == name else 1.0 + ALIKE * alike(questions)


def _share_related(lines: Sequence[Line]) -> None:
    """Add to each line a share of the related words of its more related neighbour, less to a long line."""
    own = {line.message_id: line.related for line in lines if line.related}
    after = {line.previous: line.related for line in lines if line.related}
    for line in lines:
        if beside := max(own.get(line.previous, 0.0), after.get(line.message_id, 0.0)):
            line.related += WEIGHTS.related_near * beside * min(1.0, WEIGHTS.falloff_terms / max(1, line.length))


def _read_turn(text: str) -> tuple[str, list[str]]:
    """Return who says a text, and its questions."""
    name, rest = split_speaker(text)
    return name, _find_questions(rest)


def _find_questions(text: str) -> list[str]:
    if "?" not in text and "\uff1f" not in text:
        return []
    return [part for part in _SENTENCE.findall(text) if part.endswith(_ASKS)]


class Meanings:
    """Similarities of the messages compared so far to the question, less the floor; none without vectors."""

    def __init__(self, question: Similarity | None, weights: Weights) -> None:
        self._question = question
        self._weights = weights
        self.known: dict[int, float] = {}
        self.are_used = question is not None

    def find_nearest(self, allowed: Collection[int] | None) -> None:
        """Compare the messages that are most similar."""
        if self._question is not None:
            self._remember(self._question.nearest(allowed))

    def compare(self, message_ids: Iterable[int]) -> None:
        """Compare those of the messages that were not compared yet."""
        if self._question is not None:
            self._remember(self._question.of(message_id for message_id in message_ids if message_id not in self.known))

    def _remember(self, similarities: Mapping[int, float]) -> None:
        floor = self._weights.semantic_floor
        self.known.update((message_id, max(0.0, similarity - floor)) for message_id, similarity in similarities.items())

    def mark(self, session: SessionLines, ids: Sequence[int], *, names_people: bool) -> None:
        """Set the similarity of a session and of each line: its own, and a share of its more similar neighbour's."""
        use, get = self._weights, self.known.get
        for line in session.lines:
            index = bisect_left(ids, line.message_id)
            near = max(
                [get(message_id, 0.0) for message_id in (*ids[max(0, index - 1) : index], *ids[index + 1 : index + 2])]
                or [0.0]
            )
            own = get(line.message_id, 0.0) + use.semantic_neighbour * near
            line.similarity = own if line.spoken or not names_people else use.semantic_other * own
        session.similarity = self.of_session(session.lines)

    def of_session(self, lines: Sequence[Line]) -> float:
        """Return the similarity of a session: that of its best line and a share of its second best."""
        if self._question is None:
            return 0.0
        best, second, *_ = *sorted((line.similarity for line in lines), reverse=True)[:2], 0.0, 0.0
        return best + self._weights.runner_up * second


def pattern(terms: Sequence[str]) -> re.Pattern[str] | None:
    """Return the expression that marks `terms` in a text, endings aside; None when there is nothing to mark."""
    stems = sorted(_stems(terms), key=lambda stem: len(stem[0]), reverse=True)
    either = (rf"(?<!\w){re.escape(stem)}{end}\w*" if stem.isascii() else re.escape(stem) for stem, end in stems)
    return re.compile("|".join(either), re.IGNORECASE) if stems else None


def _find_plain(text: str, terms: Iterable[str]) -> list[tuple[int, str]]:
    """Return what `pattern` matches, for ASCII only: compiling an expression takes longer than this search."""
    lower, hits = text.lower(), list[tuple[int, str]]()
    for stem, end in _stems(terms):
        start = lower.find(stem)
        while start >= 0:
            is_longer = end and lower[start + len(stem) : start + len(stem) + 1].isdigit()
            if not (is_longer or (start and (lower[start - 1].isalnum() or lower[start - 1] == "_"))):
                hits.append((start, stem[:_LEAST_STEM]))
            start = lower.find(stem, start + 1)
    return sorted(hits)


def _stems(terms: Iterable[str]) -> set[tuple[str, str]]:
    """Return the stem of each term, and after a number what forbids further digits: they make another number."""
    stems = set()
    for term in filter(str.strip, terms):
        word = term.strip().strip('"*').casefold()
        # the index compares stems: a hit for `deploys` must also be marked in `deployed`
        stem = word[: max(_LEAST_STEM, len(word) - 3)] if word.isalpha() and word.isascii() else word
        stems.add((stem, r"(?!\d)" * term.strip().strip('"').isdecimal()))
    return stems


class Marker:
    """Cuts texts to where most terms are close together.

    An answer that must fit is cut repeatedly, each time shorter, so the positions of terms are cached per text.
    """

    def __init__(self, terms: Sequence[str] = ()) -> None:
        self._terms = terms
        self._cache: dict[str, list[tuple[int, str]]] = {}

    def is_said(self, message: Message) -> bool:
        """Whether the hit is in the text of a match, and not only in the arguments of its calls."""
        return not message.tool_calls or bool(self._hits(message.text))

    def show(self, message: Message) -> str:
        """Return the text of a match; where the hit is in the arguments of its calls, with these calls."""
        text = message.display_text
        if self.is_said(message):
            return text
        calls = [f"[called {call.name}({call.arguments})]" for call in message.tool_calls if self._hits(call.arguments)]
        return "\n".join([*filter(None, [message.text]), *calls]) if calls else text

    def around(self, text: str, *, width: int) -> str:
        """Return at most about `width` characters of `text`, from where most of the terms are."""
        if len(text) <= width:
            return text
        start = self._best_start(text, width=width)
        end = min(len(text), start + width)
        start = max(0, end - width)
        piece = text[start:end]
        return f"{ELLIPSIS if start else ''}{piece.strip()}{ELLIPSIS if end < len(text) else ''}"

    def _best_start(self, text: str, *, width: int) -> int:
        hits = self._hits(text)
        best, best_count, left = 0, 0, 0
        for right, (start, _) in enumerate(hits):
            while hits[left][0] < start - width * 3 // 4:
                left += 1
            count = len({word for _, word in hits[left : right + 1][-40:]})
            if count > best_count:
                best, best_count = hits[left][0], count
        return max(0, best - width // 4)

    def _hits(self, text: str) -> list[tuple[int, str]]:
        if text not in self._cache:
            self._cache[text] = self._find(text[:_LOOKED_AT])
        return self._cache[text]

    def _find(self, text: str) -> list[tuple[int, str]]:
        if text.isascii() and all(map(str.isascii, self._terms)):
            return _find_plain(text, self._terms)
        expression = pattern(self._terms)
        matches = expression.finditer(text) if expression is not None else ()
        return [(match.start(), match.group().casefold()[:_LEAST_STEM]) for match in matches]
