"""What can answer a question: statements, not the question repeated, and of several about one thing the newest."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Origin, Role
from wellkept.core.search import Found, FoundMessage, FoundSession, SearchRequest
from wellkept.facts.chronology import Statement, find_reason, find_superseded
from wellkept.facts.comparison import read, repeats
from wellkept.facts.relations import Relation, find_relation, is_about_another_thing
from wellkept.facts.replies import asks_history, begins_correction
from wellkept.languages.questions import is_asking
from wellkept.sessions.search.analysis import split_speaker
from wellkept.sessions.search.query import asks

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
_MOST_CHARACTERS: Final = 400
"""A longer answer tells something."""
_SIGNS: Final = re.compile("[;:；：]")
_SENTENCE: Final = re.compile(r"[^.!?\n？。！]+[.!?？。！]*")


class Answers(Struct, frozen=True):
    """The result of a search, with each correction before the statement that it corrects."""

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
    if relation is not None:
        # messages that may tell what was asked for, though they share no word with the question
        wider = replace(request, query=relation.words, roles=("user",), limit=COMPARED)
        hits |= {hit.message_id: hit for hit in store.search(wider).messages if hit.message_id not in hits}
    matched = {message_id for message_id, hit in hits.items() if hit.parts.get("words") or hit.parts.get("meaning")}
    for hit in found.messages[:LEADING]:
        after = store.window(hit.message_id, before=0, after=_AFTER)[1:]
        hits |= {row.id: replace(hit, message_id=row.id) for row in after if row.id not in hits}
    for row in store.messages_by_id(list(hits)):
        if begins_correction(row.message.text):
            # a bare correction refers to what was said right before it, which need not have matched
            before = store.window(row.id, before=_AFTER, after=0)
            hits |= {other.id: replace(hits[row.id], message_id=other.id) for other in before if other.id not in hits}
    rows = [row for row in store.messages_by_id(list(hits)) if row.message.role in {Role.USER, Role.ASSISTANT}]
    links, reasons = _find_links(rows, matched, relation)
    superseded = _follow(links, matched)
    told = [
        row.id
        for row in rows
        if relation is not None and row.message.role is Role.USER and _is_told(relation, row.message.text)
    ]
    if not superseded and not told:
        return Answers(found, dropped=lookups)
    raised = frozenset((*told, *superseded.values()))
    # who asks for what was before gets it where it was found
    order = {} if asks_history(request.query) else superseded | reasons
    return Answers(_reorder(found, hits, order, told), superseded, raised, lookups)


def _find_links(
    rows: Sequence["StoredMessage"], matched: Collection[MessageId], relation: Relation | None
) -> tuple[dict[MessageId, MessageId], dict[MessageId, MessageId]]:
    """Return which message took the place of which, and after which one each that only withdraws another belongs."""
    own = [row for row in rows if row.message.role is Role.USER]
    said = [_read_statement(row) for row in own]
    confirmed = _find_confirmed(rows)
    asked = [place for place, row in enumerate(own) if row.id in matched or row.id in confirmed.values()]
    replaced = find_superseded(said, among=asked, likely=[place for place, row in enumerate(own) if row.id in matched])
    links = {
        own[old].id: own[new].id
        for old, new in replaced.items()
        if not is_about_another_thing(relation, said[old].text, said[new].text)
    }
    reasons: dict[MessageId, MessageId] = {}
    for old, new in replaced.items():
        reason = find_reason(said, old, new)
        if reason is not None:
            reasons[own[new].id] = own[reason].id
    # whatever else a withdrawal seems to replace was replaced by what it follows from
    links = {old: reasons.get(new, new) for old, new in links.items() if reasons.get(new) != old}
    confirmations = {answer: links[statement] for answer, statement in confirmed.items() if statement in links}
    return links | confirmations, reasons


def _read_statement(row: "StoredMessage") -> Statement:
    speaker, text = split_speaker(row.message.text)
    return Statement(text, row.timestamp, row.session_id, row.id, speaker)


def _find_confirmed(rows: Sequence["StoredMessage"]) -> dict[MessageId, MessageId]:
    """Return the answers that repeat the statement right before them, each with that statement: "Noted: 3 days"."""
    by_session: dict[SessionId, list[StoredMessage]] = {}
    for row in sorted(rows, key=lambda row: row.id):
        by_session.setdefault(row.session_id, []).append(row)
    confirmed: dict[MessageId, MessageId] = {}
    for messages in by_session.values():
        for before, row in pairwise(messages):
            if row.message.role is Role.ASSISTANT and before.message.role is Role.USER and row.id - before.id == 1:
                statement, answer = read(before.message.text), read(row.message.text)
                if statement.is_statement and repeats(statement, answer):
                    confirmed[row.id] = before.id
    return confirmed


def _is_told(relation: Relation, text: str) -> bool:
    return relation.tells.search(text) is not None and not is_asking(text)


def _find_lookups(store: "Readable", found: Found) -> frozenset[MessageId]:
    """Return questions to the memory itself, with their answers, that were stored before such messages had an origin.

    They are a person's questions in a chat without a model, whose answers were stored as those of a model. Later
    lookups have an origin and are in no index.
    """
    shown = {hit.best_message_id for hit in found.sessions[:_READ]}
    shown.update(hit.message_id for hit in found.messages[:COMPARED])
    rows = store.messages_by_id(sorted(shown))
    asked = [row for row in rows if row.message.role is Role.USER and is_asking(row.message.text)]
    sessions = {row.session_id: store.session(row.session_id) for row in asked}
    chats = {
        name
        for name, session in sessions.items()
        if session is not None
        and session.source == "cli"
        and session.model is None
        # only a chat has a note of the pages that its prompt showed: it was not stored or imported by a program
        and store.read_note(name, "frozen") is not None
    }
    lookups = [row for row in rows if row.message.role is Role.ASSISTANT and row.session_id in chats]
    for row in (row for row in asked if row.session_id in chats):
        # a marked answer shows that the chat is from after marks were introduced, so that the question is a real one
        after = store.window(row.id, before=0, after=1)[1:]
        if not any(answer.origin is Origin.LOOKUP for answer in after):
            lookups.append(row)
    return frozenset(row.id for row in lookups if row.origin is not Origin.LOOKUP)


def _drop(found: Found, dropped: Collection[MessageId]) -> Found:
    """Return the result without some messages; another message stands for their session, if there is one."""
    messages = tuple(hit for hit in found.messages if hit.message_id not in dropped)
    others = {hit.session_id: hit.message_id for hit in reversed(messages[:COMPARED])}
    kept = {hit.session_id: hit.best_message_id for hit in found.sessions if hit.best_message_id not in dropped}
    best = others | kept
    sessions = [replace(hit, best_message_id=best[hit.session_id]) for hit in found.sessions if hit.session_id in best]
    return replace(found, sessions=tuple(sessions), messages=messages, abstained=found.abstained or not sessions)


def _follow(links: Mapping[MessageId, MessageId], matched: Collection[MessageId]) -> dict[MessageId, MessageId]:
    """Return the links from messages that match the question, and those from their corrections in turn."""
    followed: dict[MessageId, MessageId] = {}
    pending = list(matched)
    while pending:
        message_id = pending.pop()
        if message_id in links and message_id not in followed:
            followed[message_id] = links[message_id]
            pending.append(links[message_id])
    return followed


def _reorder(
    found: Found,
    hits: Mapping[MessageId, FoundMessage],
    superseded: Mapping[MessageId, MessageId],
    told: Sequence[MessageId],
) -> Found:
    """Return the result led by messages that tell the thing asked for, each correction before what it corrects."""
    ranked = list(dict.fromkeys((*told, *(hit.message_id for hit in found.messages))))
    order: dict[MessageId, None] = {}
    for message_id in ranked:
        chain = [message_id]
        while chain[-1] in superseded and superseded[chain[-1]] not in chain:
            chain.append(superseded[chain[-1]])
        order |= dict.fromkeys(reversed(chain))
    by_id = {hit.message_id: hit for hit in found.messages} | dict(hits)
    messages = [by_id[message_id] for message_id in order]
    # scores fall with the rank, because answers of several profiles are merged by them
    tops = accumulate((hit.score for hit in reversed(messages)), max)
    raised = tuple(replace(hit, score=top) for hit, top in zip(reversed(messages), tops, strict=True))[::-1]
    moved = set(told).union(superseded, superseded.values())
    sessions = _reorder_sessions(found, raised, moved, is_told=bool(told))
    return replace(found, messages=raised, sessions=sessions, abstained=False)


def _reorder_sessions(
    found: Found, messages: Sequence[FoundMessage], moved: Collection[MessageId], *, is_told: bool
) -> tuple[FoundSession, ...]:
    """Return the sessions with those of the moved messages together, in their order, at the place of the first one."""
    best: dict[SessionId, FoundMessage] = {}
    for hit in messages:
        if hit.message_id in moved:
            best.setdefault(hit.session_id, hit)
    # a message that tells the thing asked for leads; a correction takes the place of the message that it corrects
    indices = (index for index, session in enumerate(found.sessions) if session.session_id in best)
    first = 0 if is_told else next(indices, 0)
    score = found.sessions[first].score if found.sessions else max(hit.score for hit in messages)
    among = [FoundSession(name, score, hit.message_id, hit.parts) for name, hit in best.items()]
    others = [session for session in found.sessions if session.session_id not in best]
    return (*others[:first], *among, *others[first:])


@cache
def _compile(name: str, frame: str = "{}") -> re.Pattern[str]:
    """Return the expression of all languages for a part of such an answer."""
    return re.compile(frame.replace("{}", join_expressions("answers", name)), re.IGNORECASE)


def tells_nothing(text: str) -> bool:
    """Return whether an answer only says that nothing was found, and at most asks back or offers help."""
    if len(text) > _MOST_CHARACTERS or _compile("empty").search(text) is None:
        return False
    if _SIGNS.search(text) or _compile("goes_on").search(text):
        return False
    parts = _SENTENCE.findall(text)
    sentences = [sentence for sentence in parts if WORD.search(sentence) or UNSPACED.search(sentence)]
    empty = [
        sentence for sentence in sentences if _compile("empty").search(sentence) and not any(map(str.isdigit, sentence))
    ]
    offers = _compile("offers", r"\W*(?:{})")
    return bool(empty) and all(
        sentence in empty or is_asking(sentence) or offers.match(sentence) for sentence in sentences
    )
