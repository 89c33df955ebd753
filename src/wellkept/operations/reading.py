"""Reading of stored conversations by people: pages of the list and of a session, days, titles, and the lineage."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.core.errors import UsageError
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Link
from wellkept.core.text import one_line
from wellkept.core.values import JsonStruct
from wellkept.operations.sessions import message_json, session_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wellkept.app.caller import Caller
    from wellkept.core.messages import Session, StoredMessage
    from wellkept.core.text import JSON

PAGE = 50
"""How many messages, or sessions, one page shows."""
MOST_FAMILY = 60
"""How many sessions of one conversation a map shows; a longer chain shows the nearest ones."""
_TITLE = 90
_EXCERPT = 160
_LOOKED_AT = 200
"""How many of the newest sessions are read to find their projects."""


class StoredCount(JsonStruct, frozen=True):
    """How many sessions and messages of the caller are stored."""

    sessions: int
    messages: int


def count_stored(caller: Caller) -> StoredCount:
    """Return how many sessions and messages are stored."""
    if not caller.app.has_database:
        return StoredCount(0, 0)
    return StoredCount(*caller.space.sessions.totals())


class SessionPage(Struct, frozen=True):
    """One page of the list of sessions, newest first, with a title for each."""

    sessions: tuple[Session, ...]
    titles: Mapping[SessionId, str]
    number: int
    has_more: bool

    def as_json(self) -> dict[str, JSON]:
        """Return the sessions and whether there are more."""
        rows: list[JSON] = [{**session_json(one), "title": self.titles[one.id]} for one in self.sessions]
        return {"sessions": rows, "page": self.number, "more": self.has_more}


def browse_sessions(
    caller: Caller, *, page: int = 1, source: str | None = None, day: str | None = None, archived: bool = False
) -> SessionPage:
    """Return one page of the sessions, of one source or one local day where given."""
    store = caller.space.sessions
    between = None if day is None else _read_day(day)
    found = store.upkeep.browse(
        limit=PAGE + 1, offset=(page - 1) * PAGE, source=source, archived=archived, between=between
    )
    shown = found[:PAGE]
    titles = {one.id: _title(caller, one) for one in shown}
    return SessionPage(tuple(shown), titles, page, len(found) > PAGE)


def _read_day(text: str) -> tuple[float, float]:
    try:
        begin = datetime.strptime(text, "%Y-%m-%d").astimezone()
    except ValueError:
        raise UsageError(f"{text!r} is not a day", "write it like 2026-11-15") from None
    return begin.timestamp(), (begin + timedelta(days=1)).timestamp()


def _title(caller: Caller, session: Session) -> str:
    title = session.title or caller.space.sessions.preview(session.id)
    return one_line(title, width=_TITLE) or "without a title"


def read_titles(caller: Caller, names: Iterable[str]) -> dict[str, str]:
    """Return the titles of sessions; one that is not stored, or not the caller's, is left out."""
    if not caller.app.has_database:
        return {}
    found = {}
    for name in dict.fromkeys(names):
        session = caller.space.sessions.session(SessionId(name))
        if session is not None:
            found[name] = _title(caller, session)
    return found


def list_projects(caller: Caller, *, limit: int) -> list[str]:
    """Return the folders of the newest sessions, each once."""
    if not caller.app.has_database:
        return []
    found = caller.space.sessions.recent(limit=_LOOKED_AT)
    return list(dict.fromkeys(one.project for one in found if one.project))[:limit]


def list_sources(caller: Caller) -> list[str]:
    """Return where the newest sessions came from, each source once."""
    if not caller.app.has_database:
        return []
    return list(dict.fromkeys(one.source for one in caller.space.sessions.recent(limit=_LOOKED_AT)))


class Activity(Struct, frozen=True):
    """How many sessions and messages were last active on each local day, by source."""

    since: float
    days: Mapping[str, Mapping[str, tuple[int, int]]]
    """By day, then by source: sessions and messages."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the sources, the most used first."""
        counts: dict[str, int] = {}
        for day in self.days.values():
            for source, (sessions, _messages) in day.items():
                counts[source] = counts.get(source, 0) + sessions
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))

    def as_json(self) -> dict[str, JSON]:
        """Return the counts by day and source."""
        return {
            day: {source: {"sessions": one, "messages": many} for source, (one, many) in found.items()}
            for day, found in self.days.items()
        }


def count_activity(caller: Caller, *, days: int = 182) -> Activity:
    """Return the activity of the last days."""
    since = caller.app.clock.now().timestamp() - days * 86_400.0
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for day, source, count, messages in caller.space.sessions.upkeep.activity(since):
        found.setdefault(day, {})[source] = (count, messages)
    return Activity(since, found)


class ReadingPage(Struct, frozen=True):
    """One page of the messages of a session."""

    session: Session
    title: str
    messages: tuple[StoredMessage, ...]
    before: int
    """How many messages come before this page."""
    previous: MessageId | None
    """The message with which the page before begins; None on the first one."""
    following: MessageId | None

    def as_json(self) -> dict[str, JSON]:
        """Return the messages and where the neighbouring pages begin."""
        return {
            "session": session_json(self.session),
            "messages": [message_json(one) for one in self.messages],
            "before": self.before,
            "previous": self.previous,
            "following": self.following,
        }


def read_session(caller: Caller, name: str, *, begin: int | None = None, around: int | None = None) -> ReadingPage:
    """Return the page that begins with a message, the one around a message, or the first one."""
    store = caller.space.sessions
    session = store.session(store.resolve(name))
    assert session is not None
    anchor = begin if begin is not None else around
    if anchor is None:
        found, _ = store.edges(session.id, first=PAGE + 1, last=0)
        return ReadingPage(session, _title(caller, session), *_cut(found, 0, None))
    back = PAGE if around is None else PAGE // 2
    window = store.window(MessageId(anchor), before=back, after=PAGE + (0 if around is None else back))
    if not window or window[0].session_id != session.id:
        raise UsageError(f"message {anchor} is not in this session", "open the session from its first message")
    place = next(index for index, one in enumerate(window) if one.id == anchor)
    start = place if around is None else 0
    previous = window[0].id if place and around is None else None
    found = window[start : start + PAGE + 1]
    before = store.count_before(session.id, found[0].id)
    if around is not None and before:
        previous = store.window(found[0].id, before=PAGE, after=0)[0].id
    return ReadingPage(session, _title(caller, session), *_cut(found, before, previous))


def _cut(
    found: list[StoredMessage], before: int, previous: MessageId | None
) -> tuple[tuple[StoredMessage, ...], int, MessageId | None, MessageId | None]:
    following = found[PAGE].id if len(found) > PAGE else None
    return tuple(found[:PAGE]), before, previous, following


def read_end(caller: Caller, name: str, *, count: int) -> ReadingPage:
    """Return the last messages of a session, to continue it."""
    store = caller.space.sessions
    session = store.session(store.resolve(name))
    assert session is not None
    _, found = store.edges(session.id, first=0, last=count)
    before = store.count_before(session.id, found[0].id) if found else 0
    return ReadingPage(session, _title(caller, session), tuple(found), before, None, None)


def read_excerpts(caller: Caller, numbers: list[MessageId]) -> list[str]:
    """Return the beginnings of messages, as samples."""
    found = caller.space.sessions.messages_by_id(numbers)
    return [one_line(one.message.display_text, width=_EXCERPT) for one in found]


def read_message(caller: Caller, message_id: int) -> StoredMessage:
    """Return one message as a whole; raises NotFound."""
    found = caller.space.sessions.window(MessageId(message_id), before=0, after=0)
    return found[0]


class Station(Struct, frozen=True):
    """A session on the map of a conversation."""

    session: Session
    title: str
    column: int
    lane: int
    """0 is the line on which the conversation continues; each branch or delegate has its own lane."""
    parent: SessionId | None
    link: Link | None


class LineageMap(Struct, frozen=True):
    """The sessions of a conversation: compactions in one line, branches and delegates beside it."""

    current: SessionId
    stations: tuple[Station, ...] = field(default_factory=tuple)
    hidden: int = 0
    """How many sessions do not fit the map."""

    def as_json(self) -> dict[str, JSON]:
        """Return one object per session."""
        return {
            "current": self.current,
            "sessions": [
                {"session_id": one.session.id, "title": one.title, "parent": one.parent, "lane": one.lane,
                 "link": one.link.value if one.link else None}
                for one in self.stations
            ],
            "hidden": self.hidden,
        }  # fmt: skip


def map_lineage(caller: Caller, name: str) -> LineageMap:
    """Return a session with its ancestors and descendants."""
    store = caller.space.sessions
    current = store.resolve(name)
    links = frozenset({Link.COMPRESSION, Link.BRANCH, Link.DELEGATE})
    family = store.lineage().family(current, links)
    place = family.index(current)
    first = max(0, min(place - MOST_FAMILY // 2, len(family) - MOST_FAMILY))
    stations: dict[SessionId, Station] = {}
    lanes = 0
    for session_id in family[first : first + MOST_FAMILY]:
        session = store.session(session_id)
        if session is None:
            continue
        above = stations.get(session.parent_session_id) if session.parent_session_id else None
        goes_on = session.link is Link.COMPRESSION or above is None
        lanes += 0 if goes_on else 1
        lane = (above.lane if above else 0) if goes_on else lanes
        column = above.column + 1 if above else 0
        stations[session_id] = Station(
            session, _title(caller, session), column, lane, above.session.id if above else None, session.link
        )
    return LineageMap(current, tuple(stations.values()), len(family) - len(stations))
