"""Corrections: which of the statements of a person takes the place of an earlier one."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Final

from msgspec import Struct

from wellkept.core.text import UNSPACED, WORD, resource_text
from wellkept.languages.dates import weekday_patterns
from wellkept.languages.language import Language, join_expressions, join_words, list_languages
from wellkept.languages.questions import is_asking
from wellkept.sessions.search.analysis import base
from wellkept.sessions.search.occurrences import content_words

_FLAGS: Final = re.IGNORECASE | re.DOTALL
_MOST_CHARACTERS: Final = 400
"""A longer text tells more than one thing, so that nothing takes its place as a whole."""
_NEAR: Final = 6
"""Messages of a conversation after which a bare "no, blue" no longer refers to a statement."""
_BARE: Final = 4
"""Words of a bare value before the reason for it; of Chinese its characters."""
_LEAST_COMMON: Final = 2
"""Words beside the subject that two statements share when they tell of the same thing: "use … for packages"."""
_NUMERALS: Final = "".join(sorted(join_words("numerals")))
_NUMBER: Final = re.compile(rf"\d|^[{_NUMERALS}]+$")
_PIECES: Final = re.compile(rf"\d+|[{_NUMERALS}]+|[^\W\d_]", re.UNICODE)
"""The numbers and the characters of a text without spaces."""
_CLAUSE_END: Final = re.compile(r"[.,;!。\uff0c\uff1b\uff01]\s*(?=\S)")
_SENTENCE_END: Final = re.compile(r"[.!。\uff01;\uff1b]\s*(?=\S)|\n")


class Relation(Struct, frozen=True):
    """Something that a person has one of, such as a place to live."""

    name: str
    said: re.Pattern[str]
    asked: re.Pattern[str]
    words: str

    def is_told(self, text: str) -> bool:
        """Return whether a text tells it."""
        return self.said.search(text) is not None and not is_asking(text)

    @property
    def is_shared(self) -> bool:
        """Whether it names its thing itself; one with a group is told of many things, in the words of its language."""
        return not self.said.groups


class Corrections(Struct, frozen=True):
    """The words of one language."""

    lead: re.Pattern[str]
    change: re.Pattern[str]
    closes: re.Pattern[str]
    replaced: re.Pattern[str]
    ended: re.Pattern[str]
    it: re.Pattern[str]
    many: frozenset[str]
    """Verbs with which several things hold beside each other: their base forms, or the characters of Chinese ones."""
    relations: tuple[Relation, ...]


@cache
def _read_kinds() -> Mapping[str, int]:
    rows = resource_text("wellkept.facts", "tool_kinds.txt").splitlines()
    return {name: number for number, row in enumerate(rows) if not row.startswith("#") for name in row.split()}


def _read_corrections(language: Language) -> Corrections:
    table: Mapping[str, Any] = language.search.get("corrections", {})
    keys = ("change", "closes", "replaced", "ended", "it")
    change, closes, replaced, ended, it = (re.compile(table.get(key, "(?!)"), _FLAGS) for key in keys)
    relations = (
        Relation(row["name"], re.compile(row["said"], _FLAGS), re.compile(row["asked"], _FLAGS), str(row["words"]))
        for row in table.get("relations", ())
    )
    lead = re.compile(rf"^\s*(?:{table.get('lead', '(?!)')})+", _FLAGS)
    verbs = str(table.get("many", "")).split()
    many = frozenset(map(base, verbs)) if language.is_spaced else frozenset("".join(verbs))
    return Corrections(lead, change, closes, replaced, ended, it, many, tuple(relations))


@cache
def list_corrections() -> tuple[Corrections, ...]:
    """Return the words of every language."""
    return tuple(map(_read_corrections, list_languages()))


def find_kind(word: str) -> int | None:
    """Return the number of the kind of tool that a word names; None where it is not known."""
    return _read_kinds().get(word)


def find_relation(question: str) -> Relation | None:
    """Return what a question asks for, if a person has only one of it and other words may tell it.

    It may have been told in another language than it is asked for.
    """
    for language in list_corrections():
        for relation in language.relations:
            if relation.words and relation.asked.search(question):
                return _join_languages(relation.name)
    return None


def is_about_another_thing(relation: Relation | None, earlier: str, later: str) -> bool:
    """Return whether a text tells what was asked for, and a later one only another thing: a name, then a job."""
    if relation is None or not relation.is_told(earlier) or relation.is_told(later):
        return False
    names = {row.name for language in list_corrections() for row in language.relations if row.is_shared}
    return any(_join_languages(name).is_told(later) for name in names)


@cache
def _join_languages(name: str) -> Relation:
    """Return a relation as all languages tell it."""
    rows = [row for language in list_corrections() for row in language.relations if row.name == name and row.is_shared]
    said, asked = (
        re.compile("|".join(getattr(row, part).pattern for row in rows), _FLAGS) for part in ("said", "asked")
    )
    return Relation(name, said, asked, " ".join(dict.fromkeys(word for row in rows for word in row.words.split())))


@cache
def _compile_copula() -> re.Pattern[str]:
    """Return what comes before a value: a number in front of it names a thing, as in "room 4 is cold"."""
    return re.compile(join_expressions("corrections", "copula"), re.IGNORECASE)


@cache
def _compile_value() -> re.Pattern[str]:
    """Return an expression for a statement with a value ("my colour is green"); Chinese verbs count last."""
    spaced, unspaced = (join_expressions("corrections", "value", is_spaced=is_spaced) for is_spaced in (True, False))
    frame = rf"^(?P<frame>.*(?:{spaced})|.*(?:{unspaced}))"
    return re.compile(rf"{frame}(?P<gap>\s*)(?P<value>.+?)(?P<end>[.!。]*)$", _FLAGS)


@cache
def _list_day_parts() -> frozenset[str]:
    tables = (language.search.get("corrections", {}) for language in list_languages())
    return content_words(" ".join(str(table.get("day_parts", "")) for table in tables))


class Statement(Struct, frozen=True):
    """Something that a person said, with its moment and its place."""

    text: str
    moment: float
    session_id: str = ""
    number: int = 0
    """Its message, in order of the conversation; 0 where it is no message."""


class _Reading:
    """What comparing a statement with others needs, each read once: a search compares every pair of a dozen."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self.text = statement.text

    @cached_property
    def is_comparable(self) -> bool:
        """Whether the text is short, and no question."""
        return len(self.text) <= _MOST_CHARACTERS and not is_asking(self.text)

    @cached_property
    def plain(self) -> str:
        """The words in one case."""
        return _plain(self.text)

    @cached_property
    def told(self) -> Mapping[tuple[int, str], str]:
        """What it tells of the things that a person has one of: the words by language and relation."""
        return {
            (place, relation.name): _plain(" ".join(match.groups("")))
            for place, language in enumerate(list_corrections())
            for relation in language.relations
            if (match := relation.said.search(self.text)) is not None
        }

    @cached_property
    def words(self) -> list[str]:
        """The words in lower case; of Chinese the characters, and its numbers as a whole."""
        return _split_words(self.text)

    @cached_property
    def numbers(self) -> list[str]:
        """The words with digits."""
        return [word for word in self.words if _NUMBER.search(word)]

    @cached_property
    def values(self) -> list[str]:
        """The words with digits that tell a value, because they stand after the verb."""
        verb = _compile_copula().search(self.text)
        return [word for word in _split_words(self.text[verb.end() :]) if _NUMBER.search(word)] if verb else []

    @property
    def tells_value(self) -> bool:
        """Whether it is a statement with a value."""
        return _compile_value().match(self.text) is not None

    @cached_property
    def weekdays(self) -> frozenset[int]:
        """The days of the week that it names, Monday as 0."""
        folded = self.text.lower()
        return frozenset(day for day, names in enumerate(weekday_patterns()) if names.search(folded))

    @cached_property
    def changes(self) -> list[Corrections]:
        """The languages in which it says that something changed, by its name."""
        return [one for one in list_corrections() if one.change.search(self.text) and one.it.search(self.text) is None]


def _split_words(text: str) -> list[str]:
    return [
        piece
        for word in WORD.findall(text)
        for piece in (_PIECES.findall(word) if UNSPACED.search(word) else (word.lower(),))
    ]


def find_superseded(statements: Sequence[Statement]) -> dict[int, int]:
    """Return which statements a later one corrects: the place of the newest such one by the place of the earlier.

    A statement takes the place of one other: where it could be that of two that hold beside each other ("We use npm",
    "We use nginx", then "we use yarn now"), it takes none.
    """
    readings = [_Reading(statement) for statement in statements]
    links = _find_corrections(readings)
    claimed = Counter(links.values())
    return {old: new for old, new in links.items() if claimed[new] == 1 or not _is_vague(readings, links, new)}


def _is_vague(readings: Sequence[_Reading], links: Mapping[int, int], new: int) -> bool:
    """Whether a statement only says that something changed, and not what, while several things could have."""
    olds, later = [readings[old] for old, other in links.items() if other == new], readings[new]
    if any(_tell_the_same_thing(old, later) for old in olds):
        return False
    if any(content_words(old.text) & _find_replaced(one, later.text) for old in olds for one in list_corrections()):
        return False
    return len({old.plain for old in olds if not any(_corrects(old, other) for other in olds if other is not old)}) > 1


def _find_corrections(readings: Sequence[_Reading]) -> dict[int, int]:
    moments = [(reading.statement.moment, reading.statement.number) for reading in readings]
    order = sorted(range(len(readings)), key=moments.__getitem__)
    found: dict[int, int] = {}
    for index, earlier in enumerate(order):
        later = [
            place
            for number, place in enumerate(order[index + 1 :], index + 1)
            if _corrects(readings[earlier], readings[place])
            or _is_next(readings[earlier], readings[place], [readings[one] for one in order[index + 1 : number]])
        ]
        if later:
            found[earlier] = later[-1]
    return found


def _is_next(earlier: _Reading, later: _Reading, between: Sequence[_Reading]) -> bool:
    """Whether a message refers back to a statement, and the person told nothing else between them.

    After a question its answer is corrected: the statement that the question is about, and no other.
    """
    if not _refers_back(earlier, later):
        return False
    said = [one for one in between if one.statement.session_id == later.statement.session_id]
    if said and is_asking(said[-1].text):
        return not content_words(said[-1].text).isdisjoint(content_words(earlier.text))
    return not any(len(one.words) > 2 or begins_correction(one.text) for one in said if one.is_comparable)


def corrects(earlier: Statement, later: Statement) -> bool:
    """Return whether `later` takes the place of `earlier`: it tells another value of the same thing."""
    old, new = _Reading(earlier), _Reading(later)
    return _corrects(old, new) or _refers_back(old, new)


def _corrects(earlier: _Reading, later: _Reading) -> bool:
    """Whether a statement corrects another by its own words."""
    if not (earlier.is_comparable and later.is_comparable) or earlier.plain == later.plain:
        return False
    return (
        _tell_the_same_thing(earlier, later)
        or any(
            _is_changed(language, earlier, later) or _is_moved(language, earlier, later) for language in later.changes
        )
        or _differ_by_number(earlier, later)
    )


def _refers_back(first: _Reading, second: _Reading) -> bool:
    """Whether a message corrects a statement shortly before it: "no, blue", "it moved to 5"."""
    earlier, later = first.statement, second.statement
    if not (first.is_comparable and second.is_comparable) or first.plain == second.plain:
        return False
    if earlier.session_id != later.session_id or not later.session_id or not 0 < later.number - earlier.number <= _NEAR:
        return False
    return any(
        _is_led(language, later.text) or (language.it.search(later.text) and language.change.search(later.text))
        for language in list_corrections()
    )


def _is_led(language: Corrections, text: str) -> bool:
    """Whether a text begins like a correction and tells a value; a reason may follow: "no, white. Blue is dark."."""
    lead = language.lead.match(text)
    rest = text[lead.end() :] if lead is not None else ""
    if not rest or any(one.closes.match(rest) for one in list_corrections()):
        return False
    return 0 < len(_split_words(rest)) <= _NEAR or 0 < len(_split_words(_SENTENCE_END.split(rest)[0])) <= _BARE


def _tell_the_same_thing(earlier: _Reading, later: _Reading) -> bool:
    """Whether both tell something that a person has one of: "I live in …" and "I moved to …"."""
    return any(later.told.get(key) == thing for key, thing in earlier.told.items())


def _drop_weekdays(text: str) -> str:
    for names in weekday_patterns():
        text = names.sub(" ", text.lower())
    return text


def _is_moved(language: Corrections, earlier: _Reading, later: _Reading) -> bool:
    """Whether a text says that something is on another day now, and the earlier one told all of it with its day."""
    if not earlier.weekdays or not later.weekdays or earlier.weekdays == later.weekdays:
        return False
    clause = _CLAUSE_END.split(language.change.sub(" ", later.text))[0]
    thing = _drop_numbers(content_words(_drop_weekdays(clause))) - _list_day_parts()
    # a time of day in both makes it the same thing even where one word names it
    least = 1 if earlier.numbers and later.numbers else _LEAST_COMMON
    return len(thing) >= least and thing <= content_words(earlier.text)


def _is_changed(language: Corrections, first: _Reading, second: _Reading) -> bool:
    """Whether a text that says that something changed has the subject and half of the words of an earlier one.

    What changed must be the same thing: its old value is named, or the two values are of one kind. "We use Slack now"
    says nothing about "We use npm".
    """
    earlier, later = first.text, second.text
    changed = language.change.sub(" ", later)
    before, after = content_words(earlier), content_words(changed)
    if not before or _subject(earlier) != _subject(changed):
        return False
    if after - before and before & _find_replaced(language, later):
        return True
    most = 2 * _NEAR if UNSPACED.search(later) else _NEAR
    # numbers tell the value, not the thing: "10:15" has two
    least = min(len(_drop_numbers(before)), len(_drop_numbers(after)))
    if max(len(before), len(after)) > most or 2 * len(before & after) < least:
        return False
    return language.ended.search(later) is not None or _has_other_value(language, first, second, before, after)


def _has_other_value(
    language: Corrections, first: _Reading, second: _Reading, before: frozenset[str], after: frozenset[str]
) -> bool:
    """Whether what two statements with these words tell of one thing cannot hold beside each other."""
    old, new, common = before - after, after - before, before & after
    if common & language.many and not common - language.many - {_subject(first.text)}:
        return False  # "I like coffee now": tea may be liked beside it
    if first.weekdays and second.weekdays and all(_drop_weekdays(" ".join(words)).strip() for words in (old, new)):
        return False  # two things with a day each: a concert and a lesson
    # what is changed has another value now: "I work on the parser now, too" changes nothing
    spoken = {word for word in _drop_numbers(common) if not UNSPACED.match(word)} - {_subject(first.text)}
    if len(spoken) >= _LEAST_COMMON and old and new:
        return True
    if all(_names_thing_with_number(words) for words in (old, new)) or _differ_in_kind(old, new):
        return False  # two things with a number each: the hours of a library and those of a bath
    return bool(_find_shapes(first.text, old) & _find_shapes(second.text, new))


def _names_thing_with_number(words: frozenset[str]) -> bool:
    spaced = frozenset(word for word in words if not UNSPACED.match(word))
    return bool(_drop_numbers(spaced)) and _drop_numbers(spaced) != spaced


def _drop_numbers(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if not _NUMBER.search(word))


def _differ_in_kind(old: frozenset[str], new: frozenset[str]) -> bool:
    """Whether both values have a known kind, and no kind in common: a chat program replaces no package manager."""
    left, right = ({kind for word in words if (kind := find_kind(word))} for words in (old, new))
    return bool(left and right) and left.isdisjoint(right)


def _find_replaced(language: Corrections, text: str) -> frozenset[str]:
    """Return the words of what a statement says to be replaced: "yarn instead of npm"."""
    return frozenset[str]().union(*(content_words(found[1]) for found in language.replaced.finditer(text)))


def _find_shapes(text: str, words: frozenset[str]) -> set[str]:
    """Return how the given words are written in a text: a name, an acronym, a number and a plain word are no one kind.

    The first word of a sentence is always capitalised, so it tells nothing.
    """
    first = WORD.search(text)
    begin = first.start() if first is not None and not UNSPACED.match(text, first.start()) else -1
    found = WORD.finditer(UNSPACED.sub(lambda run: " " * len(run[0]), text))
    shapes = {_shape(one[0]) for one in found if one.start() != begin and base(one[0].lower()) in words}
    return shapes | {"unspaced" for run in UNSPACED.findall(text) if not words.isdisjoint(run)}


def _shape(word: str) -> str:
    if _NUMBER.search(word):
        return "number"
    if word.isupper() and len(word) > 1:
        return "acronym"
    return "name" if word[:1].isupper() else "word"


def _subject(text: str) -> str:
    first = WORD.search(text)
    if first is None:
        return ""
    if UNSPACED.match(first[0]):
        return first[0][0]
    return _map_elided().get(first[0].lower(), first[0].lower())


@cache
def _map_elided() -> Mapping[str, str]:
    return dict(pair for language in list_languages() for pair in language.list_pairs("elided"))


def _differ_by_number(earlier: _Reading, later: _Reading) -> bool:
    """Whether two statements have the same words and other numbers: "on the 4th of May", "on the 5th of May"."""
    numbers = earlier.numbers, later.numbers
    if len(numbers[0]) != len(numbers[1]) or sum(a != b for a, b in zip(*numbers, strict=True)) != 1:
        return False
    if earlier.values == later.values or not (earlier.tells_value and later.tells_value):
        return False  # a number that counts something tells no value: "step 3 of 5"
    left, right = ({base(word) for word in one.words if not _NUMBER.search(word)} for one in (earlier, later))
    most = 0 if UNSPACED.search(later.text) else 1
    return len(left & right) >= 2 and len(left ^ right) <= most


def _plain(text: str) -> str:
    return " ".join(WORD.findall(text.casefold()))


def complete(earlier: str, later: str) -> str:
    """Return a bare correction as a whole statement: "no, blue" after "my colour is green" is "my colour is blue"."""
    for language in list_corrections():
        lead = language.lead.match(later)
        value = later[lead.end() :].strip().rstrip(".!。") if lead is not None else ""
        frame = _compile_value().match(earlier) if value and len(WORD.findall(value)) <= 3 else None
        if frame is not None:
            return f"{frame['frame']}{frame['gap']}{value}{frame['end']}"
    return later


def says_change(text: str) -> bool:
    """Return whether a message says that something is no longer as it was: "the lesson is on Tuesdays now"."""
    return any(language.change.search(text) for language in list_corrections()) and not is_asking(text)


def begins_correction(text: str) -> bool:
    """Return whether a message begins like an answer to the one before it: "no, use 2 spaces"."""
    return any(language.lead.match(text) is not None for language in list_corrections())


def is_bare_correction(text: str) -> bool:
    """Return whether a message has a meaning only after the statement that it corrects: "no, blue"."""
    leads = [match for language in list_corrections() if (match := language.lead.match(text)) is not None]
    return any(0 < len(WORD.findall(text[lead.end() :])) <= 3 for lead in leads) and not is_asking(text)
