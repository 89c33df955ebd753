"""Past conversations: list and browse, read, rename, archive, delete, restore, import, export; their lineage."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import iso_moment
from wellkept.core.errors import UsageError
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Link, Session, StoredMessage
from wellkept.core.text import JSON, dumps, one_line
from wellkept.core.values import JsonStruct
from wellkept.sessions.recall import when

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from wellkept.providers.audit import CallRecord
    from wellkept.sessions.reports import ImportReport

PAGE = 50
"""How many messages, or sessions, one page shows."""
MOST_FAMILY = 60
"""How many sessions of one conversation a map shows; a longer chain shows the nearest ones."""
_TITLE = 90
_EXCERPT = 160
_LOOKED_AT = 200
"""How many of the newest sessions are read to find their projects."""


class SessionList(Struct, frozen=True):
    """Sessions in the order to show them; untitled ones with their first words."""

    sessions: tuple[Session, ...]
    previews: dict[SessionId, str]

    def as_json(self) -> list[JSON]:
        """Return one object per session."""
        return [session_json(session) for session in self.sessions]


class Listed(Struct, frozen=True):
    """Which sessions to list; moments are epoch seconds."""

    limit: int = 20
    source: str | None = None
    archived: bool = False
    after: float | None = None
    before: float | None = None


def list_sessions(caller: Caller, wanted: Listed | None = None) -> SessionList:
    """Return sessions, last active first; with a time, those with messages in it."""
    chosen = wanted or Listed()
    store = caller.space.sessions
    if chosen.after is None and chosen.before is None:
        found = store.recent(limit=chosen.limit, source=chosen.source, archived=chosen.archived)
    else:
        from wellkept.core.search import SearchRequest

        sources = (chosen.source,) if chosen.source is not None else ()
        request = SearchRequest("", limit=2 * chosen.limit, after=chosen.after, before=chosen.before, sources=sources)
        known = [store.session(hit.session_id) for hit in store.search(request).sessions]
        shown = [session for session in known if session is not None and (chosen.archived or not session.archived)]
        found = shown[: chosen.limit]
    return SessionList(tuple(found), {one.id: store.preview(one.id) for one in found if not one.title})


def list_trash(caller: Caller, *, limit: int = 20) -> SessionList:
    """Return the deleted sessions that can still be restored, the latest first."""
    return SessionList(tuple(caller.space.sessions.upkeep.trash()[:limit]), {})


class Transcript(Struct, frozen=True):
    """A session with its messages."""

    session: Session
    messages: tuple[StoredMessage, ...]

    def as_json(self) -> dict[str, JSON]:
        """Return the session and its messages."""
        return {
            "session": session_json(self.session),
            "messages": [message_json(message) for message in self.messages],
        }


def show_session(caller: Caller, name: str, *, first: int | None = None, last: int | None = None) -> Transcript:
    """Return a session with all its messages, or only the first and last ones."""
    store = caller.space.sessions
    session = store.session(store.resolve(name))
    assert session is not None
    if first is None and last is None:
        messages = store.messages(session.id)
    else:
        head, tail = store.edges(session.id, first=first or 0, last=last or 0)
        messages = list({message.id: message for message in [*head, *tail]}.values())
    return Transcript(session, tuple(messages))


class ProviderCalls(Struct, frozen=True):
    """The calls to external memories in a session, without any text."""

    session_id: SessionId
    calls: tuple[CallRecord, ...]

    def as_json(self) -> dict[str, JSON]:
        """Return one object per call."""
        rows: list[JSON] = [
            {
                "provider": call.provider,
                "call": call.call,
                "time": iso_moment(call.started),
                "seconds": round(call.seconds, 4),
                "outcome": call.outcome,
                "bytes_out": call.bytes_out,
                "bytes_in": call.bytes_in,
            }
            for call in self.calls
        ]
        return {"session_id": self.session_id, "calls": rows}


def list_provider_calls(caller: Caller, name: str) -> ProviderCalls:
    """Return the calls to external memories in a session."""
    session_id = caller.space.sessions.resolve(name)
    return ProviderCalls(session_id, tuple(caller.space.audit.of_session(session_id)))


class Window(Struct, frozen=True):
    """The messages around one message of a session."""

    anchor: MessageId
    messages: tuple[StoredMessage, ...]

    @property
    def session_id(self) -> SessionId:
        """Return the session of the messages."""
        return self.messages[0].session_id

    def as_json(self) -> dict[str, JSON]:
        """Return the messages, the anchor marked."""
        shown: list[JSON] = [
            {**message_json(message), "anchor": message.id == self.anchor} for message in self.messages
        ]
        return {"session_id": self.session_id, "messages": shown}


def scroll(caller: Caller, message_id: int, *, window: int = 5) -> Window:
    """Return `window` messages on each side of one; raises NotFound for an unknown id."""
    anchor = MessageId(message_id)
    return Window(anchor, tuple(caller.space.sessions.window(anchor, before=window, after=window)))


class Renamed(JsonStruct, frozen=True):
    """The title that a session got."""

    session_id: SessionId
    title: str


def rename_session(caller: Caller, name: str, title: str) -> Renamed:
    """Give a session a title; one that is taken gets ` #N`."""
    caller.require(Scope.WRITE)
    store = caller.space.sessions
    session_id = store.resolve(name)
    return Renamed(session_id, store.rename(session_id, title))


class Archived(JsonStruct, frozen=True):
    """The sessions of a conversation that were hidden from lists, or shown again."""

    sessions: tuple[SessionId, ...]
    archived: bool


def archive_session(caller: Caller, name: str, *, archived: bool = True) -> Archived:
    """Hide a conversation from lists, or show it again; search finds it either way."""
    caller.require(Scope.WRITE)
    store = caller.space.sessions
    return Archived(tuple(store.upkeep.archive(store.resolve(name), archived=archived)), archived)


class Deleted(JsonStruct, frozen=True):
    """The sessions that were moved to the trash."""

    sessions: tuple[SessionId, ...] = field(name="deleted")
    restorable_days: float


def resolve_sessions(caller: Caller, names: Sequence[str]) -> list[SessionId]:
    """Resolve ids, beginnings of ids or titles to session ids; raises if one matches nothing."""
    return [caller.space.sessions.resolve(name) for name in names]


def delete_sessions(caller: Caller, names: Sequence[str]) -> Deleted:
    """Move conversations to the trash."""
    caller.require(Scope.WRITE)
    gone = caller.space.sessions.upkeep.delete(resolve_sessions(caller, names))
    return Deleted(tuple(gone), caller.app.settings.sessions.trash_days)


class Restored(JsonStruct, frozen=True):
    """The sessions that were restored from the trash."""

    sessions: tuple[SessionId, ...] = field(name="restored")


def restore_session(caller: Caller, name: str) -> Restored:
    """Restore a deleted conversation; `name` is an id, the beginning of one, or a title."""
    caller.require(Scope.WRITE)
    upkeep = caller.space.sessions.upkeep
    return Restored(tuple(upkeep.restore(_find_in_trash(upkeep.trash(), name))))


def _find_in_trash(trashed: Sequence[Session], name: str) -> SessionId:
    found = [one.id for one in trashed if name in (one.id, one.title)]
    found = found or [one.id for one in trashed if name and one.id.startswith(name)]
    if len(found) > 1:
        raise UsageError(f"{name!r} could be {', '.join(found[:5])}", "give the whole id")
    if not found:
        raise UsageError(f"there is no session {name!r} in the trash", "`kept sessions list --trash` lists them")
    return found[0]


class Imported(Struct, frozen=True):
    """The result of an import, and how many messages have no vectors yet."""

    report: ImportReport
    vectors_waiting: int

    @property
    def failed(self) -> bool:
        """Whether there were lines and none of them could be used."""
        report = self.report
        return bool(report.bad and not report.messages and not report.known and not report.forgotten)

    def as_json(self) -> dict[str, JSON]:
        """Return the counts and the bad lines."""
        return {**self.report.as_json(), "vectors_waiting": self.vectors_waiting}


def import_sessions(caller: Caller, lines: Iterable[bytes], *, source: str, total: int | None = None) -> Imported:
    """Import conversations; lines that are already stored add nothing, bad ones are reported and skipped."""
    from wellkept.operations.vectors import count_waiting_vectors

    caller.require(Scope.WRITE)
    whole = _split_whole(lines)
    report = caller.space.sessions.transfer.import_lines(whole, source=source, total=total)
    return Imported(report, count_waiting_vectors(caller) if report.messages else 0)


def _split_whole(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines; a file that is a single JSON value is split into one line per conversation."""
    rest = iter(lines)
    start = [line for line in islice(rest, 1) if line]
    first = start[0].removeprefix(b"\xef\xbb\xbf").strip() if start else b""
    if not (first.startswith(b"[") or first == b"{"):
        yield from start
        yield from rest
        return
    from wellkept.formats.json_files import Joined, JsonStream

    messages: list[JSON] = []
    for piece in JsonStream(Joined(chain(start, rest))):
        if piece.value is None:
            yield b"not JSON"
        elif "role" in piece.value and "session_id" not in piece.value:
            messages.append(piece.value)  # a list of messages is one conversation
        else:
            yield dumps(piece.value).encode()
    if messages:
        yield dumps({"messages": messages}).encode()


def export_sessions(caller: Caller, names: Sequence[str] = (), *, raw: bool = False) -> Iterator[dict[str, JSON]]:
    """Return the lines of the named sessions, or of all: one for each session, then one per message.

    Names are looked up first: an unknown one is an error before the first line is written.
    """
    transfer = caller.space.sessions.transfer
    chosen: list[SessionId | None] = [*resolve_sessions(caller, names)] if names else [None]
    return chain.from_iterable(transfer.export(session_id=session_id, raw=raw) for session_id in chosen)


def session_json(session: Session) -> dict[str, JSON]:
    """Return a session as JSON."""
    return {
        "session_id": session.id,
        "title": session.title,
        "source": session.source,
        "user_id": session.user_id,
        "project": session.project,
        "model": session.model,
        "started": when(session.started),
        "last_active": when(session.last_active or session.started),
        "ended": None if session.ended is None else when(session.ended),
        "end_reason": session.end_reason,
        "archived": session.archived,
        "message_count": session.message_count,
        "parent_session_id": session.parent_session_id,
        "link": session.link.value if session.link else None,
    }


def message_json(message: StoredMessage) -> dict[str, JSON]:
    """Return a message as JSON, without the text that was sent to the model."""
    return {
        "id": message.id,
        "session_id": message.session_id,
        "role": message.message.role.value,
        "content": message.message.display_text,
        "timestamp": when(message.timestamp),
        "state": message.state.value,
        "external_id": message.external_id,
    }


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
        rows: list[JSON] = [{**session_json(session), "title": self.titles[session.id]} for session in self.sessions]
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
    titles = {}
    for name in dict.fromkeys(names):
        session = caller.space.sessions.session(SessionId(name))
        if session is not None:
            titles[name] = _title(caller, session)
    return titles


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
            "messages": [message_json(message) for message in self.messages],
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
                {
                    "session_id": station.session.id,
                    "title": station.title,
                    "parent": station.parent,
                    "lane": station.lane,
                    "link": station.link.value if station.link else None,
                }
                for station in self.stations
            ],
            "hidden": self.hidden,
        }


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
