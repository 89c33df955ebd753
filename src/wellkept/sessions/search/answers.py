"""What can answer a question: statements, not its own repetition, and of several about one thing the newest."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Origin, Role
from wellkept.core.search import Found, FoundMessage, FoundSession, SearchRequest
from wellkept.sessions.search.corrections import (
    Relation,
    Statement,
    begins_correction,
    find_relation,
    find_superseded,
    is_about_another_thing,
)
from wellkept.sessions.search.query import asks, is_asking

if TYPE_CHECKING:
    from wellkept.core.messages import StoredMessage
    from wellkept.sessions.ports import Readable
import re
from functools import cache

from wellkept.core.text import UNSPACED, WORD
from wellkept.languages.language import join_expressions

COMPARED: Final = 12
"""Messages that are compared with each other: which one corrects another."""
LEADING: Final = 3
"""The best messages, after which a correction is looked for."""
_READ: Final = 20
"""The best sessions that are read for questions to the memory itself: more than are shown."""
_AFTER: Final = 6
"""Messages after one of the best that are read, because they may correct it."""


class Answers(Struct, frozen=True):
    """What a search found, corrections before what they correct."""

    found: Found
    superseded: Mapping[MessageId, MessageId] = field(default_factory=dict)
    """Which later message corrects which."""
    told: frozenset[MessageId] = frozenset()
    """Messages that tell what was asked for in other words than the question."""
    dropped: frozenset[MessageId] = frozenset()
    """Questions to the memory itself, which tell nothing."""


def find_answers(store: "Readable", request: SearchRequest) -> Answers:
    """Search, and put each statement that corrects an earlier one before it."""
    found = store.search(request)
    if found.period is not None or request.session_id is not None or not asks(request.query):
        return Answers(found)
    lookups = _find_lookups(store, found)
    found = _drop(found, lookups) if lookups else found
    relation = find_relation(request.query)
    hits = {hit.message_id: hit for hit in found.messages[:COMPARED]}
    hits |= {hit.message_id: hit for hit in _other_wordings(store, request, relation) if hit.message_id not in hits}
    matched = {number for number, hit in hits.items() if hit.parts.get("words") or hit.parts.get("meaning")}
    for hit in found.messages[:LEADING]:
        after = store.window(hit.message_id, before=0, after=_AFTER)[1:]
        hits |= {one.id: replace(hit, message_id=one.id) for one in after if one.id not in hits}
    for row in store.messages_by_id(list(hits)):
        if begins_correction(row.message.text):
            # a bare correction refers to what was said right before it, which need not have matched
            before = store.window(row.id, before=_AFTER, after=0)
            hits |= {one.id: replace(hits[row.id], message_id=one.id) for one in before if one.id not in hits}
    known = {row.id: row for row in store.messages_by_id(list(hits)) if row.message.role is Role.USER}
    rows = [known[number] for number in hits if number in known]
    said = [Statement(row.message.text, row.timestamp, row.session_id, row.id) for row in rows]
    links = {
        rows[old].id: rows[new].id
        for old, new in find_superseded(said).items()
        if not is_about_another_thing(relation, said[old].text, said[new].text)
    }
    superseded = _follow(links, matched)
    told = [row.id for row, one in zip(rows, said, strict=True) if relation is not None and relation.is_told(one.text)]
    if not superseded and not told:
        return Answers(found, dropped=lookups)
    raised = frozenset((*told, *superseded.values()))
    return Answers(_reorder(found, hits, superseded, told), superseded, raised, lookups)


def _find_lookups(store: "Readable", found: Found) -> frozenset[MessageId]:
    """Return questions to the memory itself, with their answers, that were stored before such messages had an origin.

    Those are a person's questions in a chat without a model, whose answers count as a model's there; later ones are
    in no index.
    """
    shown = {hit.best_message_id for hit in found.sessions[:_READ]}
    shown.update(hit.message_id for hit in found.messages[:COMPARED])
    rows = store.messages_by_id(sorted(shown))
    asked = [row for row in rows if row.message.role is Role.USER and is_asking(row.message.text)]
    sessions = {row.session_id: store.session(row.session_id) for row in asked}
    chats = {
        name
        for name, one in sessions.items()
        # what a program stored or imported has no pages that a prompt showed
        if one is not None and one.source == "cli" and one.model is None and store.read_note(name, "frozen") is not None
    }
    asked = [row for row in asked if row.session_id in chats and _is_unmarked(store, row)]
    answers = [row for row in rows if row.message.role is Role.ASSISTANT and row.session_id in chats]
    return frozenset(row.id for row in (*asked, *answers) if row.origin is not Origin.LOOKUP)


def _is_unmarked(store: "Readable", asked: "StoredMessage") -> bool:
    """Whether a question is from before there were marks: its answer has none either."""
    after = store.window(asked.id, before=0, after=1)[1:]
    return not any(row.origin is Origin.LOOKUP for row in after)


def _drop(found: Found, dropped: Collection[MessageId]) -> Found:
    """Return what was found without some messages; another message stands for their session, if there is one."""
    messages = tuple(hit for hit in found.messages if hit.message_id not in dropped)
    others = {hit.session_id: hit.message_id for hit in reversed(messages[:COMPARED])}
    known = {hit.session_id: hit.best_message_id for hit in found.sessions if hit.best_message_id not in dropped}
    best = others | known
    kept = [replace(hit, best_message_id=best[hit.session_id]) for hit in found.sessions if hit.session_id in best]
    return replace(found, sessions=tuple(kept), messages=messages, abstained=found.abstained or not kept)


def _follow(links: Mapping[MessageId, MessageId], matched: Collection[MessageId]) -> dict[MessageId, MessageId]:
    """Return which message corrects which of those that match the question, and what corrects the corrections."""
    found: dict[MessageId, MessageId] = {}
    waiting = list(matched)
    while waiting:
        number = waiting.pop()
        if number in links and number not in found:
            found[number] = links[number]
            waiting.append(links[number])
    return found


def _other_wordings(store: "Readable", request: SearchRequest, relation: Relation | None) -> Sequence[FoundMessage]:
    """Return messages that may tell what was asked for, though they share no word with the question."""
    if relation is None:
        return ()
    return store.search(replace(request, query=relation.words, roles=("user",), limit=COMPARED)).messages


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
    sessions = _reorder_sessions(found, raised, moved, is_told=bool(told))
    return replace(found, messages=raised, sessions=sessions, abstained=False)


def _reorder_sessions(
    found: Found, messages: Sequence[FoundMessage], moved: Collection[MessageId], *, is_told: bool
) -> tuple[FoundSession, ...]:
    """Return the sessions with those of the moved messages together, in their order, where the first of them was."""
    best: dict[SessionId, FoundMessage] = {}
    for hit in messages:
        if hit.message_id in moved:
            best.setdefault(hit.session_id, hit)
    # what tells the thing asked for leads, a correction stands where what it corrects was found
    places = (place for place, one in enumerate(found.sessions) if one.session_id in best)
    first = 0 if is_told else next(places, 0)
    score = found.sessions[first].score if found.sessions else max(hit.score for hit in messages)
    among = [FoundSession(name, score, hit.message_id, hit.parts) for name, hit in best.items()]
    others = [one for one in found.sessions if one.session_id not in best]
    return (*others[:first], *among, *others[first:])


_MOST_CHARACTERS: Final = 400
"""A longer answer tells something."""
_SIGNS: Final = re.compile("[;:；：]")
_SENTENCE: Final = re.compile(r"[^.!?\n？。！]+[.!?？。！]*")


@cache
def _compile(name: str, frame: str = "{}") -> re.Pattern[str]:
    """Return the expression of all languages for a part of such an answer."""
    return re.compile(frame.replace("{}", join_expressions("answers", name)), re.IGNORECASE)


def tells_nothing(text: str) -> bool:
    """Return whether an answer only says that nothing was found; asking back and offering help tell no more."""
    if len(text) > _MOST_CHARACTERS or _compile("empty").search(text) is None:
        return False
    if _SIGNS.search(text) or _compile("goes_on").search(text):
        return False
    sentences = [one for one in _SENTENCE.findall(text) if WORD.search(one) or UNSPACED.search(one)]
    empty = [one for one in sentences if _compile("empty").search(one) and not any(map(str.isdigit, one))]
    offers = _compile("offers", r"\W*(?:{})")
    return bool(empty) and all(one in empty or is_asking(one) or offers.match(one) for one in sentences)
