"""What can answer a question: statements, not its own repetition, and of several about one thing the newest."""

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from kept.core.ids import MessageId, SessionId
from kept.core.messages import Role
from kept.core.search import Found, FoundMessage, FoundSession, SearchRequest
from kept.core.text import UNSPACED, WORD, resource_text
from kept.core.values import dataclass, field, replace, unguarded
from kept.sessions.search.analysis import base
from kept.sessions.search.occurrences import content_words
from kept.sessions.search.query import asks, is_asking

if TYPE_CHECKING:
    from kept.sessions.ports import Readable

_FLAGS: Final = re.IGNORECASE | re.DOTALL
_MOST_CHARACTERS: Final = 400
"""A longer text tells more than one thing, so that nothing takes its place as a whole."""
COMPARED: Final = 12
"""Messages that are compared with each other: which one corrects another."""
LEADING: Final = 3
"""The best messages, after which a correction is looked for."""
_NEAR: Final = 6
"""Messages of a conversation after which a bare "no, blue" no longer refers to a statement."""
_LEAST_COMMON: Final = 2
"""Words beside the subject that two statements share when they tell of the same thing: "use … for packages"."""
_NUMBER: Final = re.compile(r"\d")
_VALUE: Final = re.compile(
    r"^(?P<frame>.*\b(?:is|are|was|at|in|to|called|named|ist|sind|hei[sß]+t|hei[sß]+e|am|um|es|son|llamo|est|sont|m['’]appelle)"
    r"|.*[是叫在到])(?P<gap>\s*)(?P<value>.+?)(?P<end>[.!。]*)$",
    _FLAGS,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that a person said, with its moment and its place."""

    text: str
    moment: float
    session_id: str = ""
    number: int = 0
    """Its message, in order of the conversation; 0 where it is no message."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that a person has one of, such as a place to live, in one language."""

    name: str
    said: re.Pattern[str]
    asked: re.Pattern[str]
    words: str


@dataclass(frozen=True, slots=True)
class _Language:
    lead: re.Pattern[str]
    change: re.Pattern[str]
    replaced: re.Pattern[str]
    ended: re.Pattern[str]
    it: re.Pattern[str]
    relations: tuple[Relation, ...]


@cache
def _read_tables() -> tuple[tuple[_Language, ...], dict[str, int]]:
    """Return the words of each language, and of each thing that has a kind the number of its kind."""
    tables = tomllib.loads(resource_text("kept.sessions", "search/corrections.toml"))
    kinds = {
        name: number for number, row in enumerate(tables.pop("kinds")["tools"].split("\n"), 1) for name in row.split()
    }
    return tuple(map(_read_language, tables.values())), kinds


def _read_language(table: Mapping[str, Any]) -> _Language:
    change, replaced, ended, it = (re.compile(table[key], _FLAGS) for key in ("change", "replaced", "ended", "it"))
    relations = (
        Relation(row["name"], re.compile(row["said"], _FLAGS), re.compile(row["asked"], _FLAGS), str(row["words"]))
        for row in table["relations"]
    )
    lead = re.compile(rf"^\s*(?:{table['lead']})+", _FLAGS)
    return _Language(lead, change, replaced, ended, it, tuple(relations))


def _languages() -> tuple[_Language, ...]:
    return _read_tables()[0]


def find_relation(question: str) -> Relation | None:
    """Return what a question asks for, if a person has only one of it and other words may tell it."""
    for language in _languages():
        for relation in language.relations:
            if relation.words and relation.asked.search(question):
                return relation
    return None


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
    def told(self) -> Mapping[tuple[int, int], str]:
        """What it tells of the things that a person has one of: the words by language and relation, in order."""
        return {
            (place, number): _plain(" ".join(match.groups("")))
            for place, language in enumerate(_languages())
            for number, relation in enumerate(language.relations)
            if (match := relation.said.search(self.text)) is not None
        }

    @cached_property
    def words(self) -> list[str]:
        """The words in lower case."""
        return [word.lower() for word in WORD.findall(self.text)]

    @cached_property
    def numbers(self) -> list[str]:
        """The words with digits."""
        return [word for word in self.words if _NUMBER.search(word)]

    @cached_property
    def changes(self) -> list[_Language]:
        """The languages in which it says that something changed, by its name."""
        return [one for one in _languages() if one.change.search(self.text) and one.it.search(self.text) is None]


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
    if any(content_words(old.text) & _find_replaced(language, later.text) for old in olds for language in _languages()):
        return False
    return len({old.plain for old in olds if not any(_corrects(old, other) for other in olds if other is not old)}) > 1


def _find_corrections(readings: Sequence[_Reading]) -> dict[int, int]:
    moments = [(reading.statement.moment, reading.statement.number) for reading in readings]
    order = sorted(range(len(readings)), key=moments.__getitem__)
    found: dict[int, int] = {}
    for index, earlier in enumerate(order):
        later = [place for place in order[index + 1 :] if _corrects(readings[earlier], readings[place])]
        if later:
            found[earlier] = later[-1]
    return found


def corrects(earlier: Statement, later: Statement) -> bool:
    """Return whether `later` takes the place of `earlier`: it tells another value of the same thing."""
    return _corrects(_Reading(earlier), _Reading(later))


def _corrects(earlier: _Reading, later: _Reading) -> bool:
    if not (earlier.is_comparable and later.is_comparable) or earlier.plain == later.plain:
        return False
    return (
        _refers_back(earlier.statement, later.statement)
        or _tell_the_same_thing(earlier, later)
        or any(_is_changed(language, earlier.text, later.text) for language in later.changes)
        or _differ_by_number(earlier, later)
    )


def _refers_back(earlier: Statement, later: Statement) -> bool:
    """Whether a message corrects the statement right before it: "no, blue", "it moved to 5"."""
    if earlier.session_id != later.session_id or not later.session_id or not 0 < later.number - earlier.number <= _NEAR:
        return False
    for language in _languages():
        lead = language.lead.match(later.text)
        is_led = lead is not None and 0 < len(WORD.findall(later.text[lead.end() :])) <= _NEAR
        if is_led or (language.it.search(later.text) and language.change.search(later.text)):
            return True
    return False


def _tell_the_same_thing(earlier: _Reading, later: _Reading) -> bool:
    """Whether both tell something that a person has one of: "I live in …" and "I moved to …"."""
    decided: set[int] = set()
    for (language, relation), words in earlier.told.items():
        # the first relation of a language that both tell decides
        if language not in decided and (language, relation) in later.told:
            decided.add(language)
            if words == later.told[language, relation]:
                return True
    return False


def _is_changed(language: _Language, earlier: str, later: str) -> bool:
    """Whether a text that says that something changed has the subject and half of the words of an earlier one.

    What changed must be the same thing: its old value is named, or the two values are of one kind. "We use Slack now"
    says nothing about "We use npm".
    """
    before, after = content_words(earlier), content_words(language.change.sub(" ", later))
    if not before or _subject(earlier) != _subject(later):
        return False
    old, new, common = before - after, after - before, before & after
    if new and before & _find_replaced(language, later):
        return True
    if max(len(before), len(after)) > _NEAR or 2 * len(common) < min(len(before), len(after)):
        return False
    if language.ended.search(later) is not None:
        return True
    # what is changed has another value now: "I work on the parser now, too" changes nothing
    spoken = {word for word in common if not UNSPACED.match(word)} - {_subject(earlier)}
    is_named = len(spoken) >= _LEAST_COMMON and bool(old and new)
    return is_named or (not _differ_in_kind(old, new) and bool(_find_shapes(earlier, old) & _find_shapes(later, new)))


def _differ_in_kind(old: frozenset[str], new: frozenset[str]) -> bool:
    """Whether both values have a known kind, and no kind in common: a chat program replaces no package manager."""
    left, right = ({kind for word in words if (kind := _read_tables()[1].get(word))} for words in (old, new))
    return bool(left and right) and left.isdisjoint(right)


def _find_replaced(language: _Language, text: str) -> frozenset[str]:
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
    return first[0][0] if UNSPACED.match(first[0]) else first[0].lower()


def _differ_by_number(earlier: _Reading, later: _Reading) -> bool:
    """Whether two statements have the same words and other numbers: "on the 4th of May", "on the 5th of May"."""
    numbers = earlier.numbers, later.numbers
    if len(numbers[0]) != len(numbers[1]) or sum(a != b for a, b in zip(*numbers, strict=True)) != 1:
        return False
    if _VALUE.match(earlier.text) is None or _VALUE.match(later.text) is None:
        return False  # a number that counts something tells no value: "step 3 of 5"
    left, right = ({base(word) for word in one.words if not _NUMBER.search(word)} for one in (earlier, later))
    return len(left & right) >= 2 and len(left ^ right) <= 1


def _plain(text: str) -> str:
    return " ".join(WORD.findall(text.casefold()))


def complete(earlier: str, later: str) -> str:
    """Return a bare correction as a whole statement: "no, blue" after "my colour is green" is "my colour is blue"."""
    for language in _languages():
        lead = language.lead.match(later)
        value = later[lead.end() :].strip().rstrip(".!。") if lead is not None else ""
        frame = _VALUE.match(earlier) if value and len(WORD.findall(value)) <= 3 else None
        if frame is not None:
            return f"{frame['frame']}{frame['gap']}{value}{frame['end']}"
    return later


def begins_correction(text: str) -> bool:
    """Return whether a message begins like an answer to the one before it: "no, use 2 spaces"."""
    return any(language.lead.match(text) is not None for language in _languages())


def is_bare_correction(text: str) -> bool:
    """Return whether a message has a meaning only after the statement that it corrects: "no, blue"."""
    leads = [match for language in _languages() if (match := language.lead.match(text)) is not None]
    return any(0 < len(WORD.findall(text[lead.end() :])) <= 3 for lead in leads) and not is_asking(text)


@unguarded
@dataclass(frozen=True, slots=True)
class Answers:
    """What a search found, corrections before what they correct."""

    found: Found
    superseded: Mapping[MessageId, MessageId] = field(default_factory=dict)
    """Which later message corrects which."""
    told: frozenset[MessageId] = frozenset()
    """Messages that tell what was asked for in other words than the question."""


def find_answers(store: "Readable", request: SearchRequest) -> Answers:
    """Search, and put each statement that corrects an earlier one before it."""
    found = store.search(request)
    if found.period is not None or request.session_id is not None or not asks(request.query):
        return Answers(found)
    relation = find_relation(request.query)
    hits = {hit.message_id: hit for hit in found.messages[:COMPARED]}
    hits |= {hit.message_id: hit for hit in _other_wordings(store, request, relation) if hit.message_id not in hits}
    for hit in found.messages[:LEADING]:
        after = store.window(hit.message_id, before=0, after=_NEAR)[1:]
        hits |= {one.id: replace(hit, message_id=one.id) for one in after if one.id not in hits}
    known = {row.id: row for row in store.messages_by_id(list(hits)) if row.message.role is Role.USER}
    rows = [known[number] for number in hits if number in known]
    said = [Statement(row.message.text, row.timestamp, row.session_id, row.id) for row in rows]
    superseded = {rows[old].id: rows[new].id for old, new in find_superseded(said).items()}
    told = [row.id for row, one in zip(rows, said, strict=True) if _tells(relation, one.text)]
    if not superseded and not told:
        return Answers(found)
    return Answers(_reorder(found, hits, superseded, told), superseded, frozenset((*told, *superseded.values())))


def _other_wordings(store: "Readable", request: SearchRequest, relation: Relation | None) -> Sequence[FoundMessage]:
    """Return messages that may tell what was asked for, though they share no word with the question."""
    if relation is None:
        return ()
    return store.search(replace(request, query=relation.words, roles=("user",), limit=COMPARED)).messages


def _tells(relation: Relation | None, text: str) -> bool:
    return relation is not None and relation.said.search(text) is not None and not is_asking(text)


def _reorder(
    found: Found,
    hits: Mapping[MessageId, FoundMessage],
    superseded: Mapping[MessageId, MessageId],
    told: Sequence[MessageId],
) -> Found:
    """Return what was found, led by what tells the thing asked for, each correction before what it corrects."""
    ranked = list(dict.fromkeys((*told, *(hit.message_id for hit in found.messages))))
    order: dict[MessageId, None] = {}
    for number in ranked:
        chain = [number]
        while chain[-1] in superseded and superseded[chain[-1]] not in chain:
            chain.append(superseded[chain[-1]])
        order |= dict.fromkeys(reversed(chain))
    known = {hit.message_id: hit for hit in found.messages} | dict(hits)
    messages = [known[number] for number in order]
    # scores fall with the rank, because answers of several profiles are merged by them
    tops = accumulate((hit.score for hit in reversed(messages)), max)
    raised = tuple(replace(hit, score=top) for hit, top in zip(reversed(messages), tops, strict=True))[::-1]
    moved = set(told).union(superseded, superseded.values())
    return replace(found, messages=raised, sessions=_reorder_sessions(found, raised, moved), abstained=False)


def _reorder_sessions(
    found: Found, messages: Sequence[FoundMessage], moved: Collection[MessageId]
) -> tuple[FoundSession, ...]:
    """Return the sessions with those of the moved messages together, in their order, where the first of them was."""
    best: dict[SessionId, FoundMessage] = {}
    for hit in messages:
        if hit.message_id in moved:
            best.setdefault(hit.session_id, hit)
    first = next((place for place, one in enumerate(found.sessions) if one.session_id in best), 0)
    score = found.sessions[first].score if found.sessions else max(hit.score for hit in messages)
    among = [FoundSession(name, score, hit.message_id, hit.parts) for name, hit in best.items()]
    others = [one for one in found.sessions if one.session_id not in best]
    return (*others[:first], *among, *others[first:])
