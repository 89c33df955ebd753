"""A private test set: questions with known answers, made from a person's own conversations without a model."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.provenance import quotes_memory
from wellkept.core.text import UNSPACED, WORD, split_pairs
from wellkept.languages.language import join_expressions, stop_words
from wellkept.sessions.search.analysis import base, clean, split_speaker
from wellkept.sessions.search.query import is_asking

LONGEST_QUESTION: Final = 300
"""Characters; a longer message asks more than one thing."""
_LEAST_WORDS: Final = 2
"""Content words of a question; with fewer, too many messages answer it."""
_SAME_QUESTION: Final = 0.6
"""The share of common words from which two questions ask the same thing."""
_REPLY_LINES: Final = 4
"""Messages after a question in which it is answered."""
_ASKED_WORDS: Final = 3
"""Content words of a cloze question: a person asks with a few words, and with more every search finds the sentence."""
_SHARED_WORDS: Final = 3
"""Words of a reply that only one earlier conversation has, from which on it is what the reply is about."""
_OPENING_LINES: Final = 3
"""Messages at the beginning of a conversation: later ones refer back to the conversation itself."""
_SENTENCE_WORDS: Final = (5, 40)
_SENTENCE_CHARACTERS: Final = (8, 60)
"""The same for sentences without spaces."""
_READ_CHARACTERS: Final = 4_000
"""How much of a message is read."""
_LANGUAGE_WORDS: Final = 60
"""Words of a message by which its language is recognised."""
_LOOKED_UP: Final = 3
"""The rarest words of a question, by which earlier ones are found: the same question shares one of them."""
_SENTENCES: Final = re.compile(r"(?<=[.!?。\uff01\uff1f])\s+|(?<=[。\uff01\uff1f])|\n+")


class Kind(StrEnum):
    """Where a question of the test set comes from."""

    AGAIN = "asked again"
    """A question that was asked in more than one conversation."""
    BACK = "refers back"
    """A message that refers to an earlier conversation."""
    CLOZE = "cloze"
    """A statement without one of its words."""
    ABSENT = "no answer"
    """Words of one conversation, asked without it: the search should find nothing."""


class Line(Struct, frozen=True):
    """One message of the history."""

    id: MessageId
    conversation: SessionId
    """The first session of its conversation."""
    is_person: bool
    moment: float
    text: str


class Case(Struct, frozen=True):
    """One question of the test set, and what answers it."""

    kind: Kind
    message_id: MessageId
    """The message whose words ask."""
    query: str
    conversations: frozenset[SessionId] = frozenset()
    """Each of them answers the question."""
    messages: frozenset[MessageId] = frozenset()
    """The messages that answer; empty where any message of the conversations does."""
    hidden: SessionId | None = None
    """The conversation that the search must not see."""

    @property
    def key(self) -> str:
        """Return what identifies the case in a later run, without any of its words."""
        return f"{self.kind.value}/{self.message_id}"


class History:
    """The messages of a person with the words of each, and how many conversations have a word."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = sorted(lines, key=lambda line: line.id)
        self.words = {line.id: words_of(line.text) for line in self.lines}
        self._holders: dict[str, set[SessionId]] = defaultdict(set)
        self.by_conversation: dict[SessionId, list[Line]] = defaultdict(list)
        self._places: dict[MessageId, int] = {}
        for line in self.lines:
            row = self.by_conversation[line.conversation]
            self._places[line.id] = len(row)
            row.append(line)
            for word in self.words[line.id]:
                self._holders[word].add(line.conversation)

    def holders(self, word: str) -> AbstractSet[SessionId]:
        """Return the conversations that have a word."""
        return self._holders.get(word, frozenset[SessionId]())

    def count(self, word: str) -> int:
        """Return how many conversations have a word."""
        return len(self.holders(base(word.lower())))

    @property
    def most_holders(self) -> int:
        """Return in how many conversations a word may be that tells a statement from others."""
        return max(2, len(self.by_conversation) // 20)

    def place(self, line: Line) -> int:
        """Return how many messages of its conversation come before a message."""
        return self._places[line.id]

    def replies(self, line: Line) -> list[Line]:
        """Return what follows a message in its conversation."""
        place = self._places[line.id]
        return self.by_conversation[line.conversation][place + 1 : place + 1 + _REPLY_LINES]

    def begin(self, conversation: SessionId) -> float:
        """Return the moment of the first message of a conversation."""
        return self.by_conversation[conversation][0].moment

    def sharing(self, line: Line) -> Counter[SessionId]:
        """Return which earlier conversations alone share words with the reply to a message, and how many."""
        reply = frozenset[str]().union(*(self.words[one.id] for one in self.replies(line))) - self.words[line.id]
        found: Counter[SessionId] = Counter()
        for word in reply:
            others = self.holders(word) - {line.conversation}
            if len(others) == 1 and self.begin(*others) < self.begin(line.conversation):
                found.update(others)
        return found


def words_of(text: str) -> frozenset[str]:
    """Return the content words of a text; of a script without spaces its character pairs."""
    spoken = split_speaker(clean(text[:_READ_CHARACTERS]))[1]
    pairs = [pair for run in UNSPACED.findall(spoken) for pair in split_pairs(run)]
    words = WORD.findall(UNSPACED.sub(" ", spoken).lower() if pairs else spoken.lower())
    stops = stop_words(words[:_LANGUAGE_WORDS])
    return frozenset(base(word) for word in words if word not in stops).union(pairs)


def build_cases(history: History, *, most: int) -> list[Case]:
    """Return at most `most` cases of each kind; mostly the same ones again when the history has grown."""
    found = (_find_repeated(history), _find_references(history), _find_clozes(history), _find_absent(history))
    return [case for cases in found for case in sorted(cases, key=_order)[:most]]


def _order(case: Case) -> bytes:
    # by a hash: a sample over the whole history, of which new messages replace only a few
    return blake2b(case.key.encode(), digest_size=8).digest()


def _find_repeated(history: History) -> Iterator[Case]:
    """Yield questions that were asked in an earlier conversation too, and answered there."""
    asked: dict[str, list[Line]] = defaultdict(list)
    for line in history.lines:
        words = history.words[line.id]
        if not line.is_person or len(words) < _LEAST_WORDS or len(line.text) > LONGEST_QUESTION:
            continue
        if not is_asking(split_speaker(line.text)[1]):
            continue
        rarest = sorted(words, key=lambda word: len(history.holders(word)))[:_LOOKED_UP]
        earlier = [
            one
            for one in {other.id: other for word in rarest for other in asked[word]}.values()
            if one.conversation != line.conversation and _is_same(history.words[one.id], words)
        ]
        answered = {one.conversation for one in earlier if history.replies(one)}
        if answered:
            sources = {
                name for one in earlier for name, count in history.sharing(one).items() if count >= _SHARED_WORDS
            }
            golden = frozenset(answered | sources - {line.conversation})
            yield Case(Kind.AGAIN, line.id, line.text, golden, hidden=line.conversation)
        for word in words:
            asked[word].append(line)


def _is_same(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= max(_LEAST_WORDS, _SAME_QUESTION * len(one | other))


def _find_references(history: History) -> Iterator[Case]:
    """Yield messages that refer back, where the words of the reply come from one earlier conversation alone."""
    refers_back = re.compile(join_expressions("questions", "refers_back"), re.IGNORECASE)
    for line in history.lines:
        if not line.is_person or len(line.text) > LONGEST_QUESTION or len(history.words[line.id]) < _LEAST_WORDS:
            continue
        if history.place(line) >= _OPENING_LINES or refers_back.search(line.text) is None:
            continue
        best = history.sharing(line).most_common(2)
        if best and best[0][1] >= _SHARED_WORDS and (len(best) == 1 or best[0][1] > best[1][1]):
            yield Case(Kind.BACK, line.id, line.text, frozenset({best[0][0]}), hidden=line.conversation)


def _find_clozes(history: History) -> Iterator[Case]:
    """Yield at most one cloze question of each message: the statement whose missing word is the rarest."""
    for line in history.lines:
        made = [one for sentence in _find_statements(line) if (one := _make_cloze(history, sentence)) is not None]
        if not made:
            continue
        missing, query = min(made, key=lambda one: len(history.holders(one[0])))
        # other messages that tell the same are answers too
        wanted = {missing} if UNSPACED.search(query) else words_of(query) | {missing}
        near = [row.id for name in history.holders(missing) for row in history.by_conversation[name]]
        golden = frozenset(one for one in near if wanted <= history.words[one]) | {line.id}
        yield Case(Kind.CLOZE, line.id, query, frozenset({line.conversation}), golden)


def _find_statements(line: Line) -> list[str]:
    """Return the sentences of a person that state something."""
    if not line.is_person or quotes_memory(line.text):
        return []
    spoken = split_speaker(clean(line.text[:_READ_CHARACTERS]))[1]
    return [sentence for sentence in _SENTENCES.split(spoken) if not is_asking(sentence)]


def _split_statement(sentence: str) -> list[tuple[int, str]]:
    """Return the content words of a sentence with their places; none where it is too short or too long."""
    said = WORD.findall(sentence)
    if not _SENTENCE_WORDS[0] <= len(said) <= _SENTENCE_WORDS[1]:
        return []
    stops = stop_words([word.lower() for word in said])
    return [(place, word) for place, word in enumerate(said) if word.lower() not in stops and len(word) > 1]


def _make_cloze(history: History, sentence: str) -> tuple[str, str] | None:
    """Return the rarest word of a statement, and the words around it as a question; None where it tells too little."""
    runs = UNSPACED.findall(sentence)
    if sum(map(len, runs)) * 2 > len(sentence):
        return _make_unspaced_cloze(history, sentence, runs)
    words = _split_statement(sentence)
    if len(words) <= _ASKED_WORDS:
        return None
    missing = min(words, key=lambda one: (not _is_value(*one), history.count(one[1])))
    others = [one for one in words if one[1].lower() != missing[1].lower()]
    near = sorted(sorted(others, key=lambda one: abs(one[0] - missing[0]))[:_ASKED_WORDS])
    rarest = min((history.count(word) for _, word in near), default=0)
    if len(near) < _ASKED_WORDS or rarest > history.most_holders:
        return None
    return base(missing[1].lower()), f"{' '.join(word for _, word in near)}?"


def _make_unspaced_cloze(history: History, sentence: str, runs: Sequence[str]) -> tuple[str, str] | None:
    if not _SENTENCE_CHARACTERS[0] <= len(sentence) <= _SENTENCE_CHARACTERS[1]:
        return None
    pairs = [pair for run in runs for pair in split_pairs(run) if len(pair) > 1]
    missing = min(pairs, key=history.count, default=None)
    if missing is None or history.count(missing) > history.most_holders:
        return None
    return missing, f"{sentence.replace(missing, ' ').rstrip('。.! ')}?"


def _is_value(place: int, word: str) -> bool:
    """Whether a word is what people ask for: a number, or a name inside a sentence."""
    return any(character.isdigit() for character in word) or (place > 0 and word[:1].isupper())


def _find_absent(history: History) -> Iterator[Case]:
    """Yield words of statements, most of which only one conversation has: without it nothing answers them."""
    if len(history.by_conversation) == 1:
        return
    for line in history.lines:
        for sentence in _find_statements(line):
            words = {word.lower(): place for place, word in _split_statement(sentence)}
            rarest = sorted(words, key=history.count)[:_ASKED_WORDS]
            alone = sum(history.count(word) == 1 for word in rarest)
            if len(rarest) == _ASKED_WORDS and 2 * alone > _ASKED_WORDS:
                query = f"{' '.join(sorted(rarest, key=words.__getitem__))}?"
                yield Case(Kind.ABSENT, line.id, query, hidden=line.conversation)
                break
