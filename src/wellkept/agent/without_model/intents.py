"""The intent of a message: a classifier over the classes of its words, the same for every language.

A rule lists the classes that must occur and those that may; any other word means that the message is about something
else. So "what day is it?" asks for the date, and "what day is the match?" for a fact. The words are in the
`assistant.toml` of each language.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from typing import Final

from msgspec import Struct, field

from wellkept.core.search import SearchRequest
from wellkept.core.text import WORD
from wellkept.languages.language import READ_CHARS, Language, Token, detect, find_language, join_expressions, list_codes
from wellkept.languages.questions import asks_by_words
from wellkept.sessions.search.periods import carry_time, correct_spelling, names_only_time, read_period


class Reading(Struct, frozen=True):
    """A message as its language's table reads it."""

    language: Language
    text: str
    tokens: tuple[Token, ...] = field(default=())
    asks: bool = False
    question: str = ""
    """The question inside a request to tell it, or the whole text."""

    def has(self, *classes: str) -> bool:
        """Whether a phrase is in one of the classes."""
        return any(not token.classes.isdisjoint(classes) for token in self.tokens)

    def spare(self, *classes: str) -> int:
        """Return how many words are in none of the classes, and are not mere grammar."""
        allowed = {*classes, "function"}
        return sum(1 for token in self.tokens if token.classes.isdisjoint(allowed))

    def begins(self, *classes: str, within: int = 1) -> bool:
        """Whether one of the first phrases is in one of the classes."""
        return any(not token.classes.isdisjoint(classes) for token in self.tokens[:within])


_INFORMS: Final = frozenset({"tell", "inform", "remind"})
_FRAMES: Final = _INFORMS | {"can", "polite", "me", "you", "that", "greet", "lead", "function"}
"""Classes of the words before an indirect question: "could you please remind me where …"."""


def _is_polite(token: Token) -> bool:
    """Whether a phrase is merely polite."""
    return "polite" in token.classes <= {"polite", "function"}


def unwrap(text: str, tokens: Sequence[Token], language: Language) -> Sequence[Token]:
    """Return the question inside an indirect one: "where I live" in "could you please tell me where I live".

    Polite words and pronouns may come anywhere before it. Any other message is returned as it is: "remind me to buy
    wine" is not a question.
    """
    is_begun, conjunctions = False, dict(language.list_pairs("conjunctions"))
    for index, token in enumerate(tokens):
        if is_begun and not language.is_spaced and "polite" not in token.classes:
            # the question word may come late: a Chinese question has the word order of a statement
            return tokens[index:] if asks_without_particle(tokens[index:], language) else tokens
        accented = conjunctions.get(token.text)
        asks = "ask" in token.classes and (accented is None or (accented != "" and accented in text.casefold()))
        if is_begun and asks:
            return tokens[index:]
        if token.classes.isdisjoint(_FRAMES):
            return tokens
        is_begun = is_begun or not token.classes.isdisjoint(_INFORMS)
    return tokens


def asks_without_particle(tokens: Sequence[Token], language: Language) -> bool:
    """Whether a token asks for something; a particle at the end turns any sentence into a question, and does not."""
    particles = language.list_words("particles")
    return any("ask" in token.classes and token.text not in particles for token in tokens)


_MARK: Final = re.compile(r"[?\uff1f¿]")


def read(text: str, code: str) -> Reading:
    """Return how a message reads in a language."""
    language, text = find_language(code), unicodedata.normalize("NFC", text)
    every = language.read(text)
    every = tuple(token for token in every if not _is_polite(token)) or every
    tokens = tuple(unwrap(text, every, language))
    lead = next((token for token in tokens if not token.classes & {"lead", "greet"}), None)
    asks = (
        _MARK.search(text[-READ_CHARS:]) is not None
        or (lead is not None and "ask" in lead.classes)
        # without spaces the place of the word does not matter
        or (not language.is_spaced and any("ask" in token.classes for token in tokens))
        or language.pattern("asks").search(text.strip()) is not None
        or asks_by_words(text[:READ_CHARS])
        or len(tokens) < len(every)
    )
    question = text[tokens[0].start :] if len(tokens) < len(every) else text
    return Reading(language, text, tokens, asks, question)


class Act(StrEnum):
    """The intent of a message."""

    GREETING = "greeting"
    WELLBEING = "wellbeing"
    FAREWELL = "farewell"
    THANKS = "thanks"
    YES = "yes"
    NO = "no"
    SAVE_THAT = "save_that"
    """ "Keep it": what was proposed or said last."""
    DONT_SAVE = "dont_save"
    UNDO = "undo"
    FORGET_THAT = "forget_that"
    """ "Delete that": what was saved or answered last."""
    FORGET_ALL = "forget_all"
    SELF = "self"
    ABILITY = "ability"
    DATE = "date"
    CLOCK = "clock"
    PERSON = "person"
    """Asks what is known about the person."""
    HISTORY = "history"
    """Asks what was talked about."""
    FOLLOW_UP = "follow_up"
    REMIND = "remind"
    TASK = "task"
    """Asks for something that only a model or another program can do."""
    QUESTION = "question"
    TELLING = "telling"
    """A statement, a request to save or forget something named, or anything else with content."""
    NOTHING = "nothing"
    """No words at all."""


class _Rule(Struct, frozen=True):
    act: Act
    holds: Callable[[Reading], bool]


def _answers_yes(reading: Reading) -> bool:
    if not reading.has("yes") or reading.asks or reading.has("neg", "forget", "undo"):
        return False
    return reading.spare("yes", "save", "that", "all", "thanks", "praise", "me", "you", "know") == 0


def _answers_no(reading: Reading) -> bool:
    if not reading.has("no") or reading.asks or (reading.has("undo") and not reading.begins("no")):
        return False
    return reading.spare("no", "neg", "that", "thanks", "me", "you", "praise", "yes", "all") == 0


def _saves_that(reading: Reading) -> bool:
    if not reading.has("save") or reading.asks or reading.has("neg", "forget", "undo"):
        return False
    return reading.spare("save", "that", "yes", "all", "can", "you", "thanks", "know") == 0


def _refuses_saving(reading: Reading) -> bool:
    """Whether a request to save is negated: "don't save that", or "don't save that I …"."""
    if not (reading.has("neg") and reading.has("save")) or reading.asks or reading.has("forget"):
        return False
    if reading.spare("neg", "save", "that", "you", "me", "no", "yes", "all", "talk", "know", "past", "can") == 0:
        return True
    return reading.begins("neg") and reading.begins("save", within=3) and not reading.begins("me")


def _undoes(reading: Reading) -> bool:
    return reading.has("undo") and not reading.has("neg") and reading.spare(
        "undo", "that", "you", "me", "save", "forget", "past", "all", "can", "know", "yes"
    ) == 0  # fmt: skip


def _forgets_all(reading: Reading) -> bool:
    if not (reading.has("forget") and reading.has("all")) or reading.begins("neg", within=2) or reading.begins("me"):
        return False
    allowed = ("forget", "all", "you", "me", "know", "that", "talk", "save", "past", "can", "yes", "tell", "date")
    return reading.spare(*allowed) == 0


def _forgets_that(reading: Reading) -> bool:
    if not reading.has("forget") or reading.has("neg") or reading.begins("me"):
        return False
    return reading.spare("forget", "that", "can", "you", "me", "save", "know", "past", "talk") == 0


def is_reminder(reading: Reading) -> bool:
    """Whether a message wants to be reminded of something at a time."""
    return (
        reading.has("remind") and reading.begins("remind", "can", "now", within=5) and not reading.begins("me", "ask")
    )


def _asks_about_the_person(reading: Reading) -> bool:
    if (
        not (reading.asks or reading.has("tell"))
        or not reading.has("know")
        or (reading.has("save") and reading.has("neg"))
    ):
        return False
    if not reading.has("you", "know") or not (reading.has("me") or reading.has("you")):
        return False
    does = any("able" in one.classes and one.classes.isdisjoint({"know", "function"}) for one in reading.tokens)
    if does and not reading.has("me"):  # "tu sais faire quoi ?" asks what it can do
        return False
    return reading.spare("know", "me", "you", "all", "ask", "tell", "past", "now", "that", "talk", "can", "lead") == 0


def _asks_for_time(reading: Reading) -> bool:
    # "¿De qué hablamos el lunes?" asks for a conversation: the verb includes its subject
    if not (reading.asks or reading.has("tell")) or not reading.has("date", "clock") or reading.has("talk"):
        return False
    # "is it Monday today?" asks for the date; "and on Sunday?" only names a day
    if not reading.has("now") and all(
        "past" in one.classes for one in reading.tokens if one.classes & {"date", "clock"}
    ):
        return False
    return reading.spare("date", "clock", "now", "ask", "tell", "can", "you", "me", "lead", "know") == 0


def _asks_for_history(reading: Reading) -> bool:
    if not (reading.asks or reading.has("tell")) or not reading.has("talk") or not reading.has("me", "you"):
        return False
    return reading.spare("talk", "me", "you", "ask", "past", "now", "that", "tell", "all", "date", "can", "lead") == 0


def _asks_for_abilities(reading: Reading) -> bool:
    if reading.has("help") and reading.spare("help", "able", "that", "me", "you", "can") == 0:
        return True
    if (
        not (reading.asks or reading.has("tell"))
        or not reading.has("you", "can")
        or not reading.has("able", "help", "can")
    ):
        return False
    return reading.spare("able", "help", "you", "me", "ask", "all", "can", "tell", "lead", "that") == 0


def _asks_about_itself(reading: Reading) -> bool:
    if not (reading.asks or reading.has("tell") or reading.begins("self")) or not reading.has("you", "can"):
        return False
    if reading.has("me") and not reading.has("tell", "lead"):
        return False
    return reading.spare("self", "you", "ask", "able", "tell", "lead", "can", "all", "me") == 0


def _follows_up(reading: Reading) -> bool:
    """Whether a question has no content of its own, or continues: "and when?", "what about Paul?"."""
    if not reading.tokens or not (reading.asks or reading.begins("lead")):
        return False
    rest = reading.spare("ask", "lead", "date", "clock", "now", "that")
    return rest <= 2 if reading.begins("lead") and reading.asks else rest == 0 and len(reading.tokens) <= 4


def is_task(reading: Reading) -> bool:
    """Whether a message wants something done that the assistant cannot do."""
    if reading.begins("ask", "me", "save", "forget", "undo"):
        return False
    if reading.begins("can", within=2) and not reading.has("know", "save", "forget", "undo"):
        return not reading.has("tell", "inform") or reading.has("task")
    before = {"greet", "lead", "that", "function"} if not reading.language.is_spaced else {"greet", "lead"}
    begins = [token for token in reading.tokens if token.classes.isdisjoint(before)][:1]
    verbs = any("task" in token.classes for token in begins)
    return verbs or (reading.begins("tell") and reading.has("task") and not reading.has("ask", "know"))


_COURTESY: Final = ("thanks", "praise", "you", "me", "that", "yes", "greet", "all", "able", "bye")
_PARTING: Final = ("bye", "greet", "thanks", "you", "me", "now", "past", "talk", "yes", "praise")
_MEETING: Final = ("greet", "you", "me", "all", "now", "praise")
# one word more may be a name: "hello Anna"
_RULES: Final = (
    _Rule(Act.WELLBEING, lambda r: r.has("wellbeing") and r.spare("wellbeing", "lead", "now", *_MEETING) == 0),
    _Rule(Act.FORGET_ALL, _forgets_all),
    _Rule(Act.THANKS, lambda r: r.begins("thanks") and not r.asks and r.spare(*_COURTESY) == 0),
    _Rule(Act.UNDO, _undoes),
    _Rule(Act.DONT_SAVE, _refuses_saving),
    _Rule(Act.NO, _answers_no),
    _Rule(Act.YES, _answers_yes),
    _Rule(Act.SAVE_THAT, _saves_that),
    _Rule(Act.FORGET_THAT, _forgets_that),
    _Rule(Act.THANKS, lambda r: r.has("thanks") and not r.asks and r.spare(*_COURTESY) <= 1),
    _Rule(Act.FAREWELL, lambda r: r.has("bye") and not r.asks and r.spare(*_PARTING) <= 1),
    _Rule(Act.GREETING, lambda r: r.begins("greet") and not r.has("ask") and r.spare(*_MEETING) <= 1),
    _Rule(Act.PERSON, _asks_about_the_person),
    _Rule(Act.CLOCK, lambda r: _asks_for_time(r) and r.has("clock")),
    _Rule(Act.DATE, _asks_for_time),
    _Rule(Act.HISTORY, _asks_for_history),
    _Rule(Act.ABILITY, _asks_for_abilities),
    _Rule(Act.SELF, _asks_about_itself),
    _Rule(Act.FOLLOW_UP, _follows_up),
)
"""The order matters: the first matching rule counts."""


def classify(reading: Reading) -> Act:
    """Return the intent of a message as far as its words show it; `TELLING` if its content decides."""
    if not reading.tokens:
        return Act.NOTHING
    for rule in _RULES:
        if rule.holds(reading):
            return rule.act
    return Act.QUESTION if reading.asks or reading.begins("tell") else Act.TELLING


_SMALL_TALK: Final = frozenset({Act.GREETING, Act.WELLBEING, Act.THANKS, Act.FAREWELL, Act.YES, Act.NO, Act.NOTHING})


def is_small_talk(text: str) -> bool:
    """Whether a message tells nothing of what a conversation is about."""
    code = detect(text)
    return any(classify(read(text, one)) in _SMALL_TALK for one in ((code,) if code else list_codes()))


# a hyphen inside a word does not end a lead-in: "rappelle-moi", "dis-moi"
_LEAD: Final = re.compile(r"^([^,.;:!?\uff0c。\uff01\uff1f、–-]{1,30})(?:[,.;:!\uff0c。\uff01、–]+|\s-+\s)\s*(?=\S)")
_LEADING: Final = frozenset({Act.GREETING, Act.YES, Act.NO, Act.THANKS, Act.SAVE_THAT, Act.WELLBEING})


@cache
def _compile_joined() -> re.Pattern[str]:
    """Return what finds a word that is joined to the message proper: "yes and remember that …"."""
    spaced, unspaced = (
        join_expressions("sentences", "joins", file="assistant", is_spaced=is_spaced) for is_spaced in (True, False)
    )
    return re.compile(
        rf"^(\w{{1,12}})[\s,\uff0c]+(?:{spaced})\s+(?=\w)|^(\w{{1,4}})[,\uff0c]\s*(?:{unspaced})(?=\w)", re.IGNORECASE
    )


def split_lead(text: str, code: str) -> tuple[Act | None, str]:
    """Split off a lead-in such as "hello," or "yes,"; return its intent and the rest."""
    found = _compile_joined().match(text.strip()) or _LEAD.match(text.strip())
    if found is None or not WORD.search(text.strip()[found.end() :]):
        return None, text
    act = classify(read(next(filter(None, found.groups())), code))
    return (act, text.strip()[found.end() :]) if act in _LEADING else (None, text)


def find_time_question(reading: Reading, before: str, now: float) -> str | None:
    """Return the question about a time that a message implies; None for a plain question and any other message.

    `before` is the previous question, which "and before that?" continues. A time alone, or a time before the question
    ("yesterday, what did we do"), is a question too; "I was away on Monday" is a statement.
    """
    text = reading.question
    asks = asks_without_particle(reading.tokens, reading.language)
    if before and (not asks or reading.begins("lead")):
        begin = next((token.start for token in reading.tokens if "lead" not in token.classes), 0)
        carried = carry_time(before, text[begin:], now)
        if carried is not None:
            return carried
    if reading.asks:
        return text if names_only_time(text, now) else None
    if asks:
        # the search recognises a misspelt time only in a text that begins like a question
        return (correct_spelling(text, now) or text) if names_period(text, now) else None
    return text if not reading.has("me") and names_only_time(text, now) else None


def names_period(text: str, now: float) -> bool:
    """Whether a question is only about a time with a start or an end."""
    period = read_period(SearchRequest(text), now)
    return period is not None and period.is_bounded
