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
from wellkept.sessions.search.analysis import RelatedWords, base, clean, forms, split_speaker
from wellkept.sessions.search.postings import Analyzer, MessageHead, Similarity
from wellkept.sessions.search.query import FORMING, asks, find_role, is_asking
from wellkept.sessions.search.ranking import ALIKE, WEIGHTS, Line, SessionLines, Weights

_TEXT_CHARACTERS = 8_000
_QUESTION_CHARACTERS = 2_000
_MOST_QUESTIONS = 8
"""Questions at the end of a message that are compared with the query."""


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
    """How much of it the text says in any words, about 0 to 1."""


class Proximity:
    """Compares one question with texts, by tokens; every form of a word counts as the same.

    `other_forms` are those of each term, in the same order. `names` are words of the question that are related to
    nothing, because they name people; with `is_literal` none of its words is.
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
        for place, term in enumerate(terms):
            self._terms.update(zip(map(analyzer.stem, forms(term)), repeat(place)))
        for place, words in enumerate(other_forms):
            self._terms.update(zip(map(analyzer.stem, words), repeat(place)))
        self._count = len(terms)
        asked = clean(question[:_QUESTION_CHARACTERS])
        tokens = analyzer.tokens(asked)
        self._form = _find_form(tokens)
        self._trigrams = _trigrams(tokens)
        self._asked = frozenset(tokens)
        self._least_asked = min((len(set(trigram)) for trigram in self._trigrams), default=0)
        # the stop words are those of the language of the question: German "war" is no war
        words = [*map(str.lower, WORD.findall(asked))]
        stops = stop_words(words)
        said = {*words} - stop_words(sorted({*words})) if len({*words}) < len(words) else {*words} - stops
        self._related = RelatedWords([] if is_literal else [*map(analyzer.stem, said.difference(names))])
        self._all_stops = analyzer.stop_tokens
        asked_stops = filter(lambda word: len(word) > 1, stops.intersection(words))  # "don't" and "I'm" leave letters
        self._stop_words = frozenset(map(analyzer.stem, asked_stops))

    @property
    def is_bare(self) -> bool:
        """Whether the question is one word that is related to no other, so that all texts with it are alike."""
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
            places, terms = self._places([token if token in known else base(token) for token in tokens])
        else:
            places, terms = self._places(tokens)
        closeness = _closeness(places, weights) if places else 0.0
        stop_words = len(self._stop_words.intersection(tokens)) if self._stop_words else 0
        return Occurrence(closeness, self._quoted_share(tokens), terms, stop_words, related)

    def asks_alike(self, questions: Sequence[str]) -> float:
        """Return how much one of the questions asks for the same, about 0 to 2: twice as much if it begins alike."""
        if not self._related.is_known:
            return 0.0
        best = 0.0
        for question in questions[-_MOST_QUESTIONS:]:
            tokens = self._analyzer.tokens(question[-_QUESTION_CHARACTERS:])
            share = self._related.share([token for token in tokens if token not in self._all_stops])
            if share > best / 2.0:
                best = max(best, 2.0 * share if _find_form(tokens) == self._form else share)
        return best

    def _quoted_share(self, tokens: Sequence[str]) -> float:
        if not self._trigrams or len(self._asked.intersection(tokens)) < self._least_asked:
            return 0.0
        share = len(self._trigrams & _trigrams(tokens)) / len(self._trigrams)
        return share * share  # squared: a common turn of phrase is chance, a whole line is not

    def _places(self, tokens: Sequence[str]) -> tuple[list[list[int]], int]:
        """Return where each term occurs, empty if fewer than two do, and which occur, as bits."""
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


def _closeness(places: Sequence[Sequence[int]], weights: Sequence[float]) -> float:
    """Return how close together the terms are that follow each other in the question."""
    gain = 0.0
    for step, share in ((1, 1.0), (2, 0.5)):
        for left in range(len(places) - step):
            distance = _distance(places[left], places[left + step])
            if distance is not None:
                gain += share * min(weights[left], weights[left + step]) / max(1, distance)
    return gain


def _find_form(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return the word that a question begins with, "how" with the next one; empty where there is none."""
    for place, word in enumerate(tokens):
        if word in _FORMS:
            return tuple(tokens[place : place + 2]) if word == "how" else (word,)
    return ()


def _trigrams(tokens: Sequence[str]) -> frozenset[tuple[str, str, str]]:
    """Return the word trigrams; two equal words in a row are chance, three are not."""
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def _distance(left: Sequence[int], right: Sequence[int]) -> int | None:
    if not left or not right:
        return None
    best = None
    for place in left:
        index = bisect_left(right, place)
        for other in right[max(0, index - 1) : index + 1]:
            if best is None or abs(other - place) < best:
                best = abs(other - place)
    return best


class Repetition:
    """Tells which messages only repeat a question or quote memory, so that they cannot answer it."""

    def __init__(self, question: str, *, is_asked: bool) -> None:
        self._is_asked = is_asked
        self._words = content_words(question) if is_asked else frozenset[str]()
        self._most = 2 * len(question) + 40

    def matches(self, head: MessageHead, text: str) -> bool:
        """Return whether a message has nothing that the question lacks, or quotes what stands elsewhere."""
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
    """Return the words of a text that say something, without endings; of Chinese its characters."""
    words = [word.lower() for word in WORD.findall(UNSPACED.sub(" ", text))]
    stops = stop_words(words)
    said = {base(word) for word in words if word not in stops}
    return frozenset(said.union(*UNSPACED.findall(text)))


_SENTENCE: Final = re.compile(r"[^.!?\n\uff1f\u3002]+[.!?\uff1f\u3002]*")
_ASKS: Final = ("?", "\uff1f")
_FORMS: Final = frozenset({"how", "what", "when", "where", "which", "who", "whom", "whose", "why"})
"""Words by which questions differ in what they ask for; only English ones, as the table of related words."""


class Turns:
    """Who says what in a dialogue: a question, its answer, or what the person who searches said before."""

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
        """Set how much each line asks, whether it answers a question, and whether the one who is meant says it.

        What a neighbour says in related words counts for a line too: an answer stands beside what it is about.
        `read` returns the texts of further messages: the question before an answer often matches worse than it.
        `alike` tells how much questions ask for the same as the query.
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
        said = {**texts, **read(sorted(missing))} if missing else texts
        for line, name in among_people:
            before = said.get(line.previous, "")
            if before.rstrip().endswith(_ASKS):
                line.answers = _answers(name, *asking.get(line.previous) or _read_turn(before), alike)


def _answers(name: str, asking: str, questions: Sequence[str], alike: Callable[[Sequence[str]], float]) -> float:
    """Return how much a message answers the questions before it; nobody answers their own."""
    return 0.0 if name == asking else 1.0 + ALIKE * alike(questions)


def _read_turn(text: str) -> tuple[str, list[str]]:
    """Return who says a text, and its questions."""
    name, rest = split_speaker(text)
    return name, _find_questions(rest)


def _find_questions(text: str) -> list[str]:
    if "?" not in text and "\uff1f" not in text:
        return []
    return [part for part in _SENTENCE.findall(text) if part.endswith(_ASKS)]


def _share_related(lines: Sequence[Line]) -> None:
    """Add to each line a share of what its more related neighbour says, less to a long one."""
    said = {line.message_id: line.related for line in lines if line.related}
    after = {line.previous: line.related for line in lines if line.related}
    for line in lines:
        if beside := max(said.get(line.previous, 0.0), after.get(line.message_id, 0.0)):
            line.related += WEIGHTS.related_near * beside * min(1.0, WEIGHTS.falloff_terms / max(1, line.length))


class Meanings:
    """Similarity of messages to the question, above the floor, of those that were compared; none without vectors."""

    def __init__(self, question: Similarity | None, weights: Weights) -> None:
        self._question = question
        self._weights = weights
        self.known: dict[int, float] = {}
        self.are_used = question is not None

    def find_nearest(self, allowed: Collection[int] | None) -> None:
        """Compare the messages that are most similar."""
        if self._question is not None:
            self._remember(self._question.nearest(allowed))

    def compare(self, numbers: Iterable[int]) -> None:
        """Compare those of the messages that were not compared yet."""
        if self._question is not None:
            self._remember(self._question.of(number for number in numbers if number not in self.known))

    def _remember(self, found: Mapping[int, float]) -> None:
        floor = self._weights.semantic_floor
        self.known.update((number, max(0.0, value - floor)) for number, value in found.items())

    def mark(self, session: SessionLines, ids: Sequence[int], *, names_people: bool) -> None:
        """Set the similarity of a session and of each line: its own, and a share of its more similar neighbour's."""
        use, get = self._weights, self.known.get
        for line in session.lines:
            place = bisect_left(ids, line.message_id)
            near = max(
                [get(number, 0.0) for number in (*ids[max(0, place - 1) : place], *ids[place + 1 : place + 2])] or [0.0]
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


ELLIPSIS = "…"
_LEAST_STEM = 4
_LOOKED_AT = 1_000_000


def pattern(terms: Sequence[str]) -> re.Pattern[str] | None:
    """Return what marks `terms` in a text, endings aside; None when there is nothing to mark."""
    stems = sorted(_stems(terms), key=lambda stem: len(stem[0]), reverse=True)
    either = (rf"(?<!\w){re.escape(one)}{end}\w*" if one.isascii() else re.escape(one) for one, end in stems)
    return re.compile("|".join(either), re.IGNORECASE) if stems else None


def _find_plain(text: str, terms: Iterable[str]) -> list[tuple[int, str]]:
    """Return what `pattern` matches, for ASCII only: to compile an expression takes longer than the search."""
    lower, found = text.lower(), list[tuple[int, str]]()
    for stem, end in _stems(terms):
        place = lower.find(stem)
        while place >= 0:
            is_longer = end and lower[place + len(stem) : place + len(stem) + 1].isdigit()
            if not (is_longer or (place and (lower[place - 1].isalnum() or lower[place - 1] == "_"))):
                found.append((place, stem[:_LEAST_STEM]))
            place = lower.find(stem, place + 1)
    return sorted(found)


def _stems(terms: Iterable[str]) -> set[tuple[str, str]]:
    """Return the stem of each term, and what forbids digits after it if it is a number: they make another one."""
    return {(_stem(term), r"(?!\d)" * term.strip().strip('"').isdecimal()) for term in terms if term.strip()}


def _stem(term: str) -> str:
    # the index compares stems: a hit for `deploys` must also be marked in `deployed`
    word = term.strip().strip('"*').casefold()
    return word[: max(_LEAST_STEM, len(word) - 3)] if word.isalpha() and word.isascii() else word


class Marker:
    """Cuts texts to where most terms are close together.

    An answer that must fit is cut repeatedly, each time shorter, so the positions of terms are cached per text.
    """

    def __init__(self, terms: Sequence[str] = ()) -> None:
        self._terms = terms
        self._places: dict[str, list[tuple[int, str]]] = {}

    def is_said(self, message: Message) -> bool:
        """Whether the text of a match was found, and not only the arguments of its calls."""
        return not message.tool_calls or bool(self._hits(message.text))

    def show(self, message: Message) -> str:
        """Return the text of a match, with the calls whose arguments were found and not the text itself."""
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
        for right, (place, _) in enumerate(hits):
            while hits[left][0] < place - width * 3 // 4:
                left += 1
            count = len({word for _, word in hits[left : right + 1][-40:]})
            if count > best_count:
                best, best_count = hits[left][0], count
        return max(0, best - width // 4)

    def _hits(self, text: str) -> list[tuple[int, str]]:
        if text not in self._places:
            self._places[text] = self._find(text[:_LOOKED_AT])
        return self._places[text]

    def _find(self, text: str) -> list[tuple[int, str]]:
        if text.isascii() and all(map(str.isascii, self._terms)):
            return _find_plain(text, self._terms)
        expression = pattern(self._terms)
        found = expression.finditer(text) if expression is not None else ()
        return [(match.start(), match.group().casefold()[:_LEAST_STEM]) for match in found]
