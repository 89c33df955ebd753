"""Past conversations: list, read, rename, archive, delete, restore, import, export, compress."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Scope
from wellkept.core.clock import iso_moment
from wellkept.core.errors import UsageError
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.text import dumps
from wellkept.core.values import JsonStruct
from wellkept.sessions.recall import when

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from wellkept.app.caller import Caller
    from wellkept.core.messages import Session, StoredMessage
    from wellkept.core.text import JSON
    from wellkept.providers.audit import CallRecord
    from wellkept.sessions.ports import Sessions
    from wellkept.sessions.reports import ImportReport


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
        found = _list_time(store, chosen)
    return SessionList(tuple(found), {one.id: store.preview(one.id) for one in found if not one.title})


def _list_time(store: Sessions, chosen: Listed) -> list[Session]:
    from wellkept.core.search import SearchRequest

    sources = (chosen.source,) if chosen.source is not None else ()
    request = SearchRequest("", limit=2 * chosen.limit, after=chosen.after, before=chosen.before, sources=sources)
    known = [store.session(hit.session_id) for hit in store.search(request).sessions]
    shown = [session for session in known if session is not None and (chosen.archived or not session.archived)]
    return shown[: chosen.limit]


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
        shown: list[JSON] = [{**message_json(one), "anchor": one.id == self.anchor} for one in self.messages]
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
    from wellkept.operations.upkeep import count_waiting_vectors

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
    from wellkept.importers.json_stream import Joined, JsonStream

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
