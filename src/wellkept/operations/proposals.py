"""Standing facts: lasting preferences, instructions and facts from past conversations, proposed for the pages."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import iso_moment
from wellkept.core.errors import KeptError, Reason, Refused
from wellkept.core.events import Progressed
from wellkept.core.values import JsonStruct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wellkept.agent.without_model.statements import Statement
    from wellkept.core.ids import MessageId, SessionId, SourceName
    from wellkept.core.messages import Session
    from wellkept.core.text import JSON
    from wellkept.memory.approval import Pending
    from wellkept.memory.page import Add, Replace, Target

MOST: Final = 20
"""The most proposals of one run."""
_WAITING: Final = 5
"""The most unrequested proposals that may be pending."""
_RECENT_SECONDS: Final = 2 * 86_400.0
"""Idle work covers the conversations of the last days, `kept memory propose` all of them."""
_MOST_SESSIONS: Final = 5_000
_MOST_CHARACTERS: Final = 300
"""A longer statement is a paste or a story."""
_MOST_CHANGES: Final = 200
"""How many of the newest messages are compared with the entries that they may correct."""
SAID_BEFORE: Final = "said in a past conversation"
"""Why such a write is pending."""


class StandingFact(Struct, frozen=True):
    """A statement of the person that makes sense without its conversation."""

    statement: Statement
    message_id: MessageId
    session_id: SessionId
    moment: float
    source: SourceName | None
    times: int = 1
    """In how many conversations it was said."""
    replaces: str | None = None
    """The entry that it corrects."""
    pending: Pending | None = None
    is_change: bool = False
    """Whether it only says that something changed, and does not look like a lasting fact."""

    def as_json(self) -> dict[str, JSON]:
        """Return the fact, where it was said, and the id of the pending write."""
        return {
            "text": self.statement.text,
            "target": self.statement.target.value,
            "replaces": self.replaces,
            "message_id": self.message_id,
            "session_id": self.session_id,
            "when": iso_moment(self.moment),
            "times": self.times,
            "source": self.source,
            "pending_id": None if self.pending is None else self.pending.id,
        }


class Proposed(JsonStruct, frozen=True):
    """What was found in past conversations."""

    facts: tuple[StandingFact, ...]
    more: int
    """How many more were found than are proposed."""
    dry_run: bool


def propose_facts(
    caller: Caller, *, limit: int = MOST, after: float | None = None, dry_run: bool = False
) -> Proposed | Refused:
    """Stage standing facts of past conversations as pending writes; needs no model.

    A fact that is on a page, is pending, or was rejected or removed before is not proposed again. A fact that a later
    one corrects is left out. Facts that were said most often come first.
    """
    caller.require(Scope.WRITE)
    if not caller.space.memory.targets:
        return Refused(
            Reason.DISABLED, "both pages are switched off", "switch one on: kept config set memory.memory_enabled true"
        )
    found = _choose(caller, _read_facts(caller, after))
    chosen = [_stage(caller, one, dry_run=dry_run) for one in found[:limit]]
    return Proposed(tuple(one for one in chosen if one is not None), max(0, len(found) - limit), dry_run)


def propose_recent_facts(caller: Caller) -> None:
    """Propose facts of the last days, as long as few such proposals are pending; part of idle work."""
    if not caller.app.settings.review.enabled:
        return
    waiting = sum(one.why == SAID_BEFORE for one in caller.space.approvals.waiting())
    if waiting < _WAITING:
        now = caller.app.clock.now().timestamp()
        propose_facts(caller, limit=_WAITING - waiting, after=now - _RECENT_SECONDS)


def _read_facts(caller: Caller, after: float | None) -> list[StandingFact]:
    """Return every standing fact of the person's own messages, oldest first."""
    store = caller.space.sessions
    between = None if after is None else (after, float("inf"))
    sessions = store.upkeep.browse(limit=_MOST_SESSIONS, archived=True, between=between)
    facts: list[StandingFact] = []
    for number, session in enumerate(sessions, start=1):
        facts += [one for one in _read_session(caller, session) if after is None or one.moment >= after]
        caller.space.listeners(Progressed("reading conversations", number, len(sessions)))
    return sorted(facts, key=lambda one: (one.moment, one.message_id))


def _read_session(caller: Caller, session: Session) -> Iterator[StandingFact]:
    from wellkept.agent.without_model.statements import Kind, Statement, is_momentary, statements, tidy
    from wellkept.core.messages import Origin, Role
    from wellkept.facts.replies import begins_correction, says_change
    from wellkept.memory.page import Target

    for row in caller.space.sessions.messages(session.id):
        if row.message.role is not Role.USER or row.origin is not Origin.PERSON or row.is_damaged:
            continue
        said = row.message.text.strip()
        found = statements(said)
        is_change = not found and len(said) <= _MOST_CHARACTERS and says_change(said)
        for statement in found or ([Statement(Kind.INFERRED, tidy(said), Target.MEMORY)] if is_change else ()):
            text = statement.text
            if len(text) <= _MOST_CHARACTERS and not is_momentary(text) and not begins_correction(text):
                yield StandingFact(statement, row.id, session.id, row.timestamp, row.source, is_change=is_change)


def _choose(caller: Caller, facts: Sequence[StandingFact]) -> list[StandingFact]:
    """Return each fact once, in its newest wording, without facts that are known, pending, rejected or corrected."""
    from msgspec.structs import replace

    from wellkept.facts.chronology import Statement as Said
    from wellkept.facts.chronology import find_superseded

    known, changes = _list_known(caller), [fact for fact in facts if fact.is_change]
    newest: dict[frozenset[str], StandingFact] = {}
    sessions: dict[frozenset[str], set[SessionId]] = {}
    lasting = [_bring_up_to_date(fact, changes) for fact in facts if not fact.is_change]
    lasting += [change for change in changes[-_MOST_CHANGES:] if hasattr(_make_edit(caller, change)[1], "needle")]
    for fact in sorted(lasting, key=lambda one: (one.moment, one.message_id)):
        key = _key(fact.statement.text)
        sessions.setdefault(key, set()).add(fact.session_id)
        newest.pop(key, None)
        newest[key] = fact
    new = [replace(fact, times=len(sessions[key])) for key, fact in newest.items() if key not in known]
    said = [Said(one.statement.text, one.moment, one.session_id, one.message_id) for one in new]
    corrected = find_superseded(said)
    current = [one for place, one in enumerate(new) if place not in corrected]
    return sorted(current, key=lambda one: (-one.times, -one.moment))


def _bring_up_to_date(fact: StandingFact, changes: Sequence[StandingFact]) -> StandingFact:
    """Return the newest message that says that the fact changed, or the fact itself."""
    from msgspec.structs import replace

    from wellkept.facts.chronology import Statement as Said
    from wellkept.facts.chronology import replaces

    text, words = fact.statement.text, _key(fact.statement.text)
    for change in reversed(changes):
        if change.moment <= fact.moment:
            break
        if words & _key(change.statement.text) and replaces(Said(text, 0.0), Said(change.statement.text, 1.0)):
            return replace(change, statement=replace(change.statement, target=fact.statement.target), is_change=False)
    return fact


@lru_cache(maxsize=4_096)
def _key(text: str) -> frozenset[str]:
    from wellkept.sessions.search.occurrences import content_words

    return content_words(text) or frozenset({text.casefold()})


def _list_known(caller: Caller) -> set[frozenset[str]]:
    """Return the words of every text that is or was on a page, is pending, or was rejected."""
    from wellkept.memory.history import History

    memory = caller.space.memory
    texts = [text for row in History(memory).rows() for text in (row.step.before, row.step.after) if text]
    for target in memory.targets:
        try:
            texts += memory.entries(target)
        except KeptError:
            continue  # an unreadable page is reported by whatever shows it
    texts += [text for one in caller.space.approvals.waiting() for text in one.texts]
    return {_key(text) for text in texts}


def _stage(caller: Caller, fact: StandingFact, *, dry_run: bool) -> StandingFact | None:
    """Stage a fact for approval; None if no page can take it."""
    from msgspec.structs import replace

    from wellkept.memory.page import Author

    target, edit = _make_edit(caller, fact)
    text = fact.statement.text
    sources = {} if fact.source is None else {text: fact.source}
    author = Author(origin="background_review", session_id=fact.session_id, sources=sources)
    memory, approvals = caller.space.memory, caller.space.approvals
    refused = memory.check(target, (edit,), author)
    if refused is not None and refused.reason is not Reason.HELD:
        return None
    replaced = None if not hasattr(edit, "needle") else edit.needle
    pending = None if dry_run else approvals.stage(target, (edit,), author, why=SAID_BEFORE)
    return replace(fact, replaces=replaced, pending=pending)


def _make_edit(caller: Caller, fact: StandingFact) -> tuple[Target, Add | Replace]:
    """Return the edit that saves a fact: it replaces the entry that it corrects, or is added."""
    from wellkept.facts.chronology import Statement as Said
    from wellkept.facts.chronology import replaces
    from wellkept.memory.history import History
    from wellkept.memory.page import Add, Replace

    memory = caller.space.memory
    said = Said(fact.statement.text, fact.moment)
    for target in memory.targets:
        for entry, story in History(memory).metadata(target).items():
            if story.changed < fact.moment and replaces(Said(entry, story.changed), said):
                return target, Replace(entry, said.text)
    return fact.statement.target, Add(said.text)
