"""Search past conversations by a plain question, the same for every surface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.config.settings import nearest as nearest_word
from wellkept.core.errors import NotFound, UsageError
from wellkept.core.events import Warned
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Role, StoredMessage
from wellkept.core.search import FoundMessage, SearchRequest, Sort
from wellkept.core.text import JSON, one_line
from wellkept.operations.sessions import message_json
from wellkept.sessions.recall import when

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from wellkept.sessions.ports import Sessions
    from wellkept.sessions.search.discovery import Conversations, Explanation, Match

_FIRST_WORDS = 120


class Filters(Struct, frozen=True):
    """Where to look, and how much to return; moments are epoch seconds."""

    limit: int = 10
    listed: int = 0
    """The minimum number of conversations listed for a question about a time."""
    after: float | None = None
    before: float | None = None
    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    project: str | None = None
    session: str | None = None
    sort: Sort | None = None
    """The order of the conversations: by score, or by time."""
    profiles: tuple[str, ...] | None = None
    """Search these profiles, read-only, instead of the open home."""


class ProfileHits(Struct, frozen=True):
    """The hits in one profile."""

    profile: str
    """Empty for the open home."""
    conversations: Conversations
    passages: tuple[tuple[FoundMessage, StoredMessage], ...]


class SearchAnswer(Struct, frozen=True):
    """The conversations and messages that answer a question, by profile."""

    query: str
    limit: int
    profiles: tuple[ProfileHits, ...]
    sort: Sort | None = None

    def as_json(self) -> dict[str, JSON]:
        """Return the answer with the text of the best messages or, for a time, its conversations by day."""
        value = {**self.as_line(), "passages": self._passages(), **self._conversations()}
        times = [hits.conversations for hits in self.profiles if hits.conversations.found.period is not None]
        if times:
            value["days"] = [day for time in times for day in _list_days(time)]
            value["more"] = sum(each.more for each in times)
        found = [hits.conversations for hits in self.profiles]
        reasons = [each.reason for each in found if each.reason is not None]
        if reasons and not any(each.matches for each in found):
            value["reason"] = reasons[0]
        return value

    def as_line(self) -> dict[str, JSON]:
        """Return only ids and scores: the answer to one query of a batch."""
        found = [hits.conversations for hits in self.profiles]
        sessions = sorted((one for each in found for one in each.ranked), key=lambda one: -one.score)
        messages = sorted((message for each in found for message in each.found.messages), key=lambda one: -one.score)
        return {
            "query": self.query,
            "sessions": [
                {"session_id": session.session_id, "score": round(session.score, 6)}
                for session in sessions[: self._most]
            ],
            "messages": [
                {"external_id": one.external_id, "session_id": one.session_id, "score": round(one.score, 6)}
                for one in messages[: self._most]
            ],
            "abstained": all(each.found.abstained for each in found),
        }

    def _conversations(self) -> dict[str, JSON]:
        """Return the conversations in chronological order, if requested."""
        if self.sort is None:
            return {}
        matches = [match for hits in self.profiles for match in hits.conversations.matches]
        matches.sort(key=lambda match: match.message.timestamp, reverse=self.sort == "newest")
        return {"timeline": [_match_json(match) for match in matches]}

    @property
    def _most(self) -> int:
        return max(self.limit, *(len(hits.conversations.matches) for hits in self.profiles), 1)

    def _passages(self) -> list[JSON]:
        from wellkept.sessions.search.occurrences import Marker

        return [
            {
                **message_json(message),
                "content": Marker(hits.conversations.found.terms).show(message.message),
                "score": round(hit.score, 6),
                "parts": dict(hit.parts),
                **({} if later is None else {"superseded_by": later}),
            }
            for hits in self.profiles
            for hit, message in hits.passages
            for later in [hits.conversations.superseded.get(hit.message_id)]
        ]


def _match_json(match: Match) -> dict[str, JSON]:
    return {
        "session_id": match.session.id,
        "title": match.session.title,
        "when": when(match.message.timestamp),
        "message_id": match.message.id,
        "first_words": one_line(match.message.message.display_text, width=_FIRST_WORDS),
    }


def _list_days(found: Conversations) -> list[JSON]:
    from wellkept.sessions.search.periods import by_day

    return [
        {
            "day": day.isoformat(),
            "conversations": [_match_json(match) for match in matches],
        }
        for day, matches in by_day(found.matches)
    ]


def search(caller: Caller, query: str, filters: Filters | None = None) -> SearchAnswer:
    """Return the conversations that answer `query` best; the sessions of one lineage count once.

    An empty query with a time in the filters is answered by the conversations of that time.
    """
    from wellkept.sessions.search.discovery import find_conversations

    chosen = filters or Filters()
    request = _request(caller, chosen, query)
    answers = []
    for profile, store in [("", caller.space.sessions)] if chosen.profiles is None else _open_stores(caller, chosen):
        conversations = find_conversations(store, request, sort=chosen.sort, listed=chosen.listed)
        answers.append(
            ProfileHits(
                profile, conversations, _read(store, conversations, max(chosen.limit, len(conversations.matches)))
            )
        )
    return SearchAnswer(query, chosen.limit, tuple(answers), chosen.sort)


def explain_message(caller: Caller, message_id: int, query: str, filters: Filters | None = None) -> Explanation:
    """Return why `search` shows a message for `query`, or why not; raises NotFound for an unknown id."""
    from wellkept.sessions.search.discovery import Explanation, explain

    store, number = caller.space.sessions, MessageId(message_id)
    message = store.message(number)
    if message is not None:
        found = explain(store, _request(caller, filters or Filters(), query), message)
        return replace(found, source=message.source)
    hidden = store.hidden_because(number)
    if hidden is None:
        raise NotFound(f"there is no message {message_id}", "find its id with `kept sessions search` or `show`")
    why = "its conversation is in the trash" if hidden == "trashed" else "it was undone (rewound)"
    return Explanation(number, None, "excluded", f"{why}, so no search finds it", excluded_by=hidden)


def search_many(caller: Caller, queries: Iterable[str], filters: Filters) -> Iterator[SearchAnswer]:
    """Yield the answer to each query in turn, without texts, on stores that are opened once."""
    from wellkept.sessions.search.discovery import find_conversations

    stores = _open_stores(caller, filters)
    request = _request(caller, filters, "")
    for query in queries:
        asked = replace(request, query=query)
        answers = [ProfileHits(profile, find_conversations(store, asked), ()) for profile, store in stores]
        yield SearchAnswer(query, filters.limit, tuple(answers))


def _request(caller: Caller, filters: Filters, query: str) -> SearchRequest:
    return SearchRequest(
        query,
        limit=filters.limit,
        after=filters.after,
        before=filters.before,
        roles=filters.roles,
        sources=filters.sources,
        project=filters.project,
        session_id=_resolve(caller, filters),
    )


def check_roles(names: Sequence[str]) -> tuple[str, ...]:
    """Return the roles, which may be separated by commas; raises UsageError for an unknown one."""
    known = [role.value for role in Role]
    roles = tuple(one.strip() for name in names for one in name.split(",") if one.strip())
    for role in roles:
        if role not in known:
            raise UsageError(f"there is no role {role!r}{nearest_word(role, known)}", f"use one of {', '.join(known)}")
    return roles


def _resolve(caller: Caller, filters: Filters) -> SessionId | None:
    if filters.session is None:
        return None
    return (
        SessionId(filters.session) if filters.profiles is not None else caller.space.sessions.resolve(filters.session)
    )


def _open_stores(caller: Caller, filters: Filters) -> list[tuple[str, Sessions]]:
    """Return the store of the open home, or those of the named profiles."""
    if filters.profiles is None:
        return [("", caller.space.sessions)]
    caller.require(Scope.ADMIN)
    if not filters.profiles:
        raise UsageError("--profile needs a name", "write --profile NAME, or several with commas between them")
    stores = []
    for name in dict.fromkeys(filters.profiles):
        store = caller.app.sessions_of(name)
        if store is None:
            caller.space.listeners(Warned(f"[{name}] no conversation is stored yet"))
        else:
            stores.append((name, store.for_user(caller.user)))
    return stores


def _read(store: Sessions, found: Conversations, limit: int) -> tuple[tuple[FoundMessage, StoredMessage], ...]:
    hits = ((hit, store.message(hit.message_id)) for hit in found.found.messages[:limit])
    return tuple((hit, message) for hit, message in hits if message is not None)
