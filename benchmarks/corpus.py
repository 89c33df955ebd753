"""Made-up conversations of any size, the same bytes every time: Zipfian words, topics, some Chinese, some code."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

WORDS = 60_000
HAN_CHARACTERS = 2_500
TOPICS = 2_000
TOPIC_WORDS = 24
MESSAGES_PER_SESSION = 40
START = 1_600_000_000.0
SECONDS_BETWEEN = 45.0

_FUNCTION = (
    "the to and of a i you it that in is for was on my we have with this but not so be are at just what me they "
    "if or all about up can out like do when there had from your would one as them get been some will by which"
)
_FUNCTION_WORDS = _FUNCTION.split()
_ONSETS = "b c d f g h j k l m n p r s t v w z st tr br pl"
_VOWELS = "a e i o u ai ou"
_SYLLABLES = [onset + vowel for onset in _ONSETS.split() for vowel in _VOWELS.split()]


@dataclass(frozen=True, slots=True)
class Made:
    """One made-up message."""

    session_id: str
    role: str
    text: str
    timestamp: float


def vocabulary(seed: int = 7) -> list[str]:
    """Return the words, most frequent first: function words, with a content word after every fifth of them."""
    chance = random.Random(seed)
    words: dict[str, None] = {}
    for place, word in enumerate(_FUNCTION_WORDS):
        words[word] = None
        if place % 5 == 4:
            words["".join(chance.choice(_SYLLABLES) for _ in range(3))] = None
    while len(words) < WORDS:
        words["".join(chance.choice(_SYLLABLES) for _ in range(chance.choice((2, 2, 3, 3, 4))))] = None
    return list(words)


def han(seed: int = 7) -> list[str]:
    """Return the Chinese characters, most frequent first."""
    characters = [chr(code) for code in range(0x4E00, 0x4E00 + HAN_CHARACTERS)]
    random.Random(seed).shuffle(characters)
    return characters


class Corpus:
    """A source of made-up messages."""

    def __init__(self, seed: int = 7) -> None:
        self._chance = random.Random(seed)
        self.words = vocabulary(seed)
        self.characters = han(seed)
        self._word_weights = list(accumulate(1 / (rank + 2.7) for rank in range(WORDS)))
        self._han_weights = list(accumulate(1 / (rank + 10.0) for rank in range(HAN_CHARACTERS)))
        middle = self.words[100:20_000]
        self._topics = [self._chance.sample(middle, TOPIC_WORDS) for _ in range(TOPICS)]

    def messages(self, count: int) -> Iterator[Made]:
        """Yield `count` messages, session after session, oldest first."""
        chance = self._chance
        for number in range(count):
            session, place = divmod(number, MESSAGES_PER_SESSION)
            if place == 0:
                topic = chance.choice(self._topics)
            timestamp = START + number * SECONDS_BETWEEN
            yield Made(f"bench-{session:06d}", "user" if place % 2 == 0 else "assistant", self._text(topic), timestamp)

    def _text(self, topic: list[str]) -> str:
        chance = self._chance
        kind = chance.random()
        if kind < 0.05:
            length = min(60, int(chance.lognormvariate(2.8, 0.6)) + 2)
            return "".join(chance.choices(self.characters, cum_weights=self._han_weights, k=length))
        length = min(400, int(chance.lognormvariate(2.9, 0.8)) + 2)
        words = chance.choices(self.words, cum_weights=self._word_weights, k=length)
        for place in range(0, length, 5):
            words[place] = chance.choice(topic)
        if kind < 0.10:
            left, right = words[0], words[-1]
            words.append(f"{left}_{right} src/{left}/{right}.py {len(left)}.{length}.{len(right)}")
        return " ".join(words).capitalize() + "."
