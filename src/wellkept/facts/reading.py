"""A statement as it is compared: its words by what they do, its values by kind, and what it says about change."""

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, Final, NamedTuple

from msgspec import Struct

from wellkept.core.text import UNSPACED, WORD, resource_text
from wellkept.languages.dates import MONTHS, list_dated_languages, weekday_patterns
from wellkept.languages.language import Language, find_languages, list_languages, stop_words
from wellkept.languages.questions import FORMING, is_asking
from wellkept.languages.stems import CANONICAL, STEMMERS, load_stemmer

MOST_CHARACTERS: Final = 400
"""A longer text tells more than one thing, so that nothing takes its place as a whole."""
_SHORT: Final = 6
"""So few words need not tell the language."""
MOST_WORDS: Final = 30
"""A text of more words is compared by its sentences."""
_MOST_PARTS: Final = 6
_FLAGS: Final = re.IGNORECASE | re.DOTALL
_NEVER: Final = "(?!)"
SIGNALS: Final = (
    "change", "ended", "invalid", "returns", "settles", "refers", "adds", "supposed", "reported", "requests", "past",
    "others",
)  # fmt: skip
"""What a statement may say, by the names of the expressions in `facts.toml`."""


_NOT_ASSERTED: Final = ("supposed", "reported", "requests")
_CHANGING: Final = frozenset({"change", "ended", "invalid", "returns", "settles"})
_SENTENCE: Final = re.compile(r"(?:[^.!?\n\uff1f\u3002\uff01]|[.!?](?=\S))+[.!?\uff1f\u3002\uff01]*")
_MAY_BEGIN: Final = re.compile(r"^\W*(?:had|have|has|am|do) (?:to|been|a|an|not)\b", re.IGNORECASE)
"""Words that begin a question, but with these after them a statement without its subject: "had to rename it"."""


def _asks(sentence: str) -> bool:
    return is_asking(sentence) and (sentence.rstrip().endswith(("?", "\uff1f")) or not _MAY_BEGIN.match(sentence))


class _Patterns(dict[str, re.Pattern[str]]):
    """The expressions of one language by name, each compiled when it is first used: all of them take 15 ms."""

    def __init__(self, sources: Mapping[str, Any]) -> None:
        super().__init__()
        self._sources = sources

    def __missing__(self, name: str) -> re.Pattern[str]:
        source = self._sources.get(name, _NEVER)
        self[name] = re.compile(rf"^\W*(?:{source})+" if name == "lead" else source, _FLAGS)
        return self[name]


class Signals(Struct, frozen=True):
    """The expressions of one language."""

    language: Language
    by_name: Mapping[str, re.Pattern[str]]
    """Those of `SIGNALS`, and "lead", "closes", "replaced" and "verbs"."""
    many: frozenset[str]
    scopes: frozenset[str]
    numbers: frozenset[str]


@cache
def list_signals() -> tuple[Signals, ...]:
    """Return the expressions of every language."""
    return tuple(map(_read_signals, list_languages()))


def _read_signals(language: Language) -> Signals:
    table: Mapping[str, Any] = language.facts
    words = {name: frozenset(str(table.get(name, "")).split()) for name in ("many", "scopes", "numbers")}
    many = words["many"] if language.is_spaced else frozenset("".join(words["many"]))
    return Signals(language, _Patterns(table), many, words["scopes"], words["numbers"])


class Word(NamedTuple):
    """A word of a statement; in scripts without spaces a character."""

    text: str
    key: str
    """The word without its ending, by which two statements share it."""
    start: int
    has_content: bool
    is_name: bool
    """Whether it is written as a name: with a capital inside a sentence, or with signs as in "api-v2"."""
    weight: float = 1.0
    """How much it says: words of small talk say little."""


_HAN: Final = "一二三四五六七八九十"
_COUNTED: Final = "岁个只台人天周月年号块斤公楼层条张份名位小分"
"""What follows a number in Chinese."""
_MONEY: Final = (
    r"[$€£¥]\s?\d[\d.,]*\s?[km]?\b",
    r"\b\d[\d.,]*\s?(?:€|\$|£|dollars?|euros?|eur|usd|chf|bucks)(?!\w)",
    r"\d[\d.,]*\s?[元块]",
)
_TIMES: Final = (
    r"\b\d{1,2}[:.]\d\d\s?(?:am|pm|uhr|h)?\b",
    r"\b\d{1,2}\s?(?:am|pm|uhr|h\d{0,2})\b",
    r"\b(?:noon|midnight|mittags?|mitternacht|mediodía|medianoche|midi|minuit)\b",
    rf"[\d两{_HAN}]{{1,3}}点(?:半|[\d{_HAN}]{{1,3}}分?)?",
)
_KINDS: Final = (
    ("money", "|".join(_MONEY)),
    ("percent", rf"\b\d[\d.,]*\s?%|百分之[\d{_HAN}]+"),
    ("time", "|".join(_TIMES)),
    ("version", r"\bv?\d+(?:\.\d+){1,3}\b|\bv\d+\b"),
    ("number", rf"(?<![\w#])\d[\d.,]*(?:st|nd|rd|th|er|e|k)?\b|[{_HAN}百千万两]+(?=[{_COUNTED}])"),
)


@cache
def _compile_kinds() -> tuple[tuple[str, re.Pattern[str]], ...]:
    dated = list_dated_languages()
    months = [*MONTHS, *(month[:3] for month in MONTHS), "sept"]
    for language in dated:
        months += " ".join(language.dates.get("months", ())).split()
    names = "|".join(months)
    date = (
        rf"\b\d{{4}}-\d\d?-\d\d?\b|\b\d{{1,2}}\.\s?\d{{1,2}}\.(?:\d{{2,4}})?|\b\d{{1,2}}/\d{{1,2}}(?:/\d{{2,4}})?\b"
        rf"|\b(?:{names})\.?\s+\d{{1,2}}(?:st|nd|rd|th)?\b|\b\d{{1,2}}(?:st|nd|rd|th|er|\.)?\s+(?:of\s+|de\s+)?(?:{names})\b"
        rf"|\b\d{{1,2}}(?:st|nd|rd|th)\b|\b(?:{'|'.join(MONTHS)})\b|[\d一二三四五六七八九十]{{1,3}}月(?:[\d一二三四五六七八九十]{{1,3}}[日号])?|[\d一二三四五六七八九十]{{1,3}}[日号]"
    )
    weekday = "|".join(pattern.pattern for pattern in weekday_patterns())
    return (
        ("date", re.compile(date, _FLAGS)),
        ("weekday", re.compile(weekday, _FLAGS)),
        *((kind, re.compile(pattern, _FLAGS)) for kind, pattern in _KINDS),
    )


class Reading:
    """A text, read once for comparing it with many others."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def languages(self) -> Sequence[Signals]:
        """The languages that it may be in."""
        if UNSPACED.search(self.text):
            return [signals for signals in list_signals() if not signals.language.is_spaced or self.text.isascii()]
        words = [word.lower() for word in WORD.findall(self.text)]
        codes = find_languages(words)[:1]
        if not codes and len(words) > _SHORT:
            codes = ["en"]
        return [one for one in list_signals() if (one.language.code in codes if codes else one.language.is_spaced)]

    @property
    def is_statement(self) -> bool:
        """Whether it is short, and the speaker asserts something in it."""
        return len(self.text) <= MOST_CHARACTERS and bool(self.words)

    def _is_asserted(self, sentence: str) -> bool:
        """Whether a sentence is no question, no request, and neither supposed nor what somebody else said."""
        if _asks(sentence):
            return False
        return not any(signals.by_name[name].search(sentence) for signals in self.languages for name in _NOT_ASSERTED)

    @cached_property
    def lead(self) -> int:
        """How many characters of it only say that it is a correction."""
        ends = [
            match.end() for signals in self.languages if (match := signals.by_name["lead"].match(self.text)) is not None
        ]
        return max(ends, default=0)

    @cached_property
    def is_closing(self) -> bool:
        """Whether its first words decline an offer, or take back a message, and correct nothing."""
        rest = self.text[self.lead :]
        return any(signals.by_name["closes"].match(rest) for signals in list_signals())

    @cached_property
    def body(self) -> str:
        """The text after words such as "no, actually"."""
        rest = self.text[self.lead :]
        return " ".join(sentence for sentence in _SENTENCE.findall(rest) if self._is_asserted(sentence))

    @cached_property
    def parts(self) -> tuple["Reading", ...]:
        """Its sentences, each by itself."""
        sentences = _SENTENCE.findall(self.body)
        return (
            tuple(Reading(sentence.strip()) for sentence in sentences[:_MOST_PARTS]) if len(sentences) > 1 else (self,)
        )

    @property
    def is_short(self) -> bool:
        """Whether it is short enough to tell one thing, so that what one sentence says goes for the others."""
        return len(self.words) <= MOST_WORDS

    @cached_property
    def signals(self) -> frozenset[str]:
        """What it says about change, by the names in `SIGNALS`."""
        return frozenset(
            name
            for signals in self.languages
            for name in SIGNALS
            if signals.by_name[name].search(self.body if name in _NOT_ASSERTED else self.text)
        )

    @cached_property
    def is_changing(self) -> bool:
        """Whether it says that something is no longer as it was."""
        return self.lead > 0 or not self.signals.isdisjoint(_CHANGING)

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """Its words in order."""
        return _read_words(self.body)

    @cached_property
    def content(self) -> Mapping[str, Word]:
        """The words with content by their keys, without those that only tell a change."""
        return {word.key: word for word in self._unchanging if word.has_content}

    @cached_property
    def frame(self) -> tuple[str, ...]:
        """Its words in order, without those that only tell a change; empty in scripts without spaces."""
        return () if UNSPACED.search(self.body) else tuple(word.text for word in self._unchanging)

    @cached_property
    def _unchanging(self) -> Sequence[Word]:
        changing = [
            match.span() for signals in self.languages for match in signals.by_name["change"].finditer(self.body)
        ]
        return [word for word in self.words if not any(start <= word.start < end for start, end in changing)]

    @cached_property
    def keys(self) -> frozenset[str]:
        """The words with content, without their endings."""
        return frozenset(self.content)

    @property
    def named(self) -> frozenset[str]:
        """The words with content of the whole text, its questions and requests included."""
        return frozenset(word.key for word in _read_words(self.text) if word.has_content)

    @cached_property
    def values(self) -> Mapping[str, frozenset[str]]:
        """Its dates, numbers and names by kind."""
        values: dict[str, set[str]] = {}
        rest = self.body
        for kind, pattern in _compile_kinds():
            for match in pattern.finditer(rest):
                value = "".join(match[0].casefold().split()).rstrip(".,")
                values.setdefault(kind if kind != "number" else self._name_unit(match.end()), set()).add(value)
            rest = pattern.sub(lambda match: "_" * len(match[0]), rest)
        numbers = frozenset[str]().union(*(signals.numbers for signals in self.languages))
        for word in self.words:
            if (tool := _number_tool_kinds().get(word.text)) is not None:
                values.setdefault(f"tool {tool}", set()).add(word.text)
            elif word.text in numbers and not UNSPACED.match(word.text):
                values.setdefault("number", set()).add(word.text)
            elif word.is_name and word.has_content and "_" not in rest[word.start : word.start + len(word.text)]:
                values.setdefault("name", set()).add(word.key)
        return {kind: frozenset(found) for kind, found in values.items()}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of its values; dates and times are of one kind here, and so are all numbers."""
        return frozenset(_WIDE_KINDS.get(kind.partition(" of ")[0], kind) for kind in self.values)

    def _name_unit(self, end: int) -> str:
        """Return the kind of a number: "number", or one for what it counts."""
        word = next((word for word in self.words if word.start >= end), None)
        near = word is not None and word.start - end <= 1 and word.has_content
        return f"number of {word.key}" if near and word is not None else "number"

    @cached_property
    def verb(self) -> int:
        """Where the verb between its subject and its value is; -1 where it has none."""
        starts = [match.start() for signals in self.languages if (match := signals.by_name["verbs"].search(self.body))]
        return min(starts, default=-1)

    @cached_property
    def weight(self) -> float:
        """How much it says."""
        return sum(word.weight for word in self.content.values())

    @cached_property
    def subject(self) -> frozenset[str]:
        """The content before the verb."""
        return frozenset(key for key, word in self.content.items() if word.start < self.verb)

    @cached_property
    def scopes(self) -> frozenset[str]:
        """The words that say for which part, or which time, it holds: "staging", "last"."""
        known = frozenset[str]().union(*(signals.scopes for signals in self.languages))
        if UNSPACED.search(self.body):
            return frozenset(word for word in known if word in self.body)
        return frozenset(word.text for word in self.words if word.text in known)

    @cached_property
    def replaced(self) -> frozenset[str]:
        """The words that it says are replaced: "yarn instead of npm"."""
        spans = [
            match.span(1)
            for signals in self.languages
            for match in signals.by_name["replaced"].finditer(self.body)
            if match[1]
        ]
        return frozenset(word.key for word in self.words if any(start <= word.start < end for start, end in spans))

    @cached_property
    def modifiers(self) -> Mapping[str, frozenset[str]]:
        """What stands before each word and narrows it: "staging" before "server", "sister" before "birthday"."""
        modifiers: dict[str, set[str]] = {}
        before: Word | None = None
        for word in self.words:
            if word.has_content:
                if before is not None and word.start - before.start - len(before.text) <= _GAP:
                    modifiers.setdefault(word.key, set()).add(before.key)
                    if word.is_name and before.start < self.verb:
                        modifiers.setdefault(before.key, set()).add(word.key)
                before = word
            elif word.text not in {"s", "of", "de", "von", "des"}:
                before = None
        return {key: frozenset(keys) for key, keys in modifiers.items()}


_GAP: Final = 3
_GREETING: Final = 3
_WIDE_KINDS: Final = dict.fromkeys(("date", "weekday", "time", "number", "version"), "number")
_LIGHT: Final = 0.3


@lru_cache(maxsize=4_096)
def _read_words(text: str) -> tuple[Word, ...]:
    matches = list(WORD.finditer(text))
    lowered = [match[0].lower() for match in matches]
    stops = stop_words(lowered)
    language = next((code for code in find_languages(lowered) if code in STEMMERS), "en")
    stem = load_stemmer(language).stemWord
    light = _list_light_words()
    has_unspaced = UNSPACED.search(text) is not None
    words: list[Word] = []
    for match, lower in zip(matches, lowered, strict=True):
        if has_unspaced and UNSPACED.search(match[0]):
            words += _read_unspaced(match[0], match.start())
            continue
        before = text[: match.start()].rstrip(" \"'([*")
        begins = not before or before[-1] in ".!?:;\n-–"
        after = text[match.end() : match.end() + 2]
        # every German noun has a capital, and a unit after a number is none
        is_name = match[0][:1].isupper() and not begins and lower != "i" and language != "de"
        is_name = is_name or (len(match[0]) > 1 and match[0].isupper() and not before[-1:].isdigit())
        is_name = is_name or (after[:1] in {".", "-", "_", "/"} and after[1:].isalnum())
        # "Thanks, Sam!" names nobody that the text is about
        is_addressed = match[0][:1].isupper() and after[:1] in {",", "!", "."} and _only_greets(words)
        key = stem(CANONICAL.get(lower, lower))
        weight = _LIGHT if lower in light else 1.0
        words.append(Word(lower, key, match.start(), lower not in stops and not is_addressed, is_name, weight))
    return tuple(words)


def _only_greets(words: Sequence[Word]) -> bool:
    """Whether a text has said nothing so far but "hey" or "thanks"."""
    return 0 < len(words) <= _GREETING and all(word.weight < 1.0 or not word.has_content for word in words)


@cache
def _number_tool_kinds() -> Mapping[str, int]:
    rows = resource_text("wellkept.facts", "tool_kinds.txt").splitlines()
    return {name: number for number, row in enumerate(rows) if not row.startswith("#") for name in row.split()}


@cache
def _list_light_words() -> frozenset[str]:
    """Return the words of small talk, and those that only frame what is said."""
    return frozenset(FORMING).union(*(language.spellings for language in list_languages() if language.is_spaced))


@cache
def _list_unspaced_stops() -> frozenset[str]:
    languages = (language for language in list_languages() if not language.is_spaced)
    return frozenset(character for language in languages for character in str(language.facts.get("function", "")))


def _read_unspaced(run: str, start: int) -> list[Word]:
    stops = _list_unspaced_stops()
    return [
        Word(match[0], match[0], start + match.start(), match[0] not in stops, False)
        for match in re.finditer(r"\d+|[a-zA-Z][\w.-]*|\w", run)
    ]
