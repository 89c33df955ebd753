"""Capture of conversations in other programs: transcripts, single turns, the spool, and limits of what is kept."""

from __future__ import annotations

import json
import logging
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import from_epoch, iso_moment
from wellkept.core.errors import Busy, Reason, Refused, StorageError
from wellkept.core.ids import SessionId, SourceName
from wellkept.core.text import JSON, dumps
from wellkept.core.values import JsonStruct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from wellkept.formats.port import Source
    from wellkept.imports.capture import Capture, Purpose
    from wellkept.imports.record import Tally
    from wellkept.imports.spool import Spool, Waiting, WaitingTurn
    from wellkept.security.taint import Context

log = logging.getLogger(__name__)

_LEAST_WAIT_SECONDS = 0.05


class Captured(JsonStruct, frozen=True):
    """What a capture stored."""

    sessions: tuple[SessionId, ...] = ()
    """The sessions that the transcript belongs to, the newest last."""
    added: int = 0
    replaced: int = 0
    """Messages that replaced an incomplete form."""
    skipped: int = 0
    """Rows that were left out: machine context, private text, broken lines."""
    waiting_bytes: int = 0
    """Bytes of the transcripts that are not stored yet: an unfinished line, or what did not fit the deadline."""
    left: dict[str, int] = field(default_factory=dict)
    """How many rows were left out, by reason."""
    is_complete: bool = field(default=True, name="_is_complete")
    """Whether the end of the transcripts was reached before the deadline."""

    @property
    def session_id(self) -> SessionId | None:
        """Return the newest session, None if nothing was captured so far."""
        return self.sessions[-1] if self.sessions else None

    def as_json(self) -> dict[str, JSON]:
        """Return the counts and the sessions."""
        return {"session_id": self.session_id, **super().as_json()}


def capture_transcript(caller: Caller, client: str, path: Path, *, deadline: float | None = None) -> Captured | Refused:
    """Store what is new in a transcript and those of its sub-agents.

    `deadline` is a value of `time.monotonic()`. What does not fit it, or cannot be stored now, goes to the spool.
    """
    from wellkept.formats.port import Unusable
    from wellkept.imports.spool import WaitingTranscript

    caller.require(Scope.WRITE)
    reader = _find_reader(client)
    if isinstance(reader, Refused):
        return reader
    waiting = WaitingTranscript(client, str(path))
    try:
        with _limit_wait(caller, deadline):
            capture = open_capture(caller, client)
            is_complete = capture_files(capture, reader, path, deadline)
    except Unusable as error:
        return Refused(Reason.INVALID, error.message, error.remedy)
    except StorageError as error:
        return _spool_refused(caller, waiting, error)
    if not is_complete:
        _spool(caller).add(waiting)
        log.warning("%s: %d bytes did not fit the time limit and are stored later", path, capture.tally.waiting_bytes)
    elif capture.tally.grown and deadline is None:
        _prune(caller)
    return replace(summarise(capture.tally), is_complete=is_complete)


def _prune(caller: Caller) -> None:
    """Enforce the limits of captured conversations; a failure is retried after a later capture."""
    try:
        prune_captures(caller)
    except StorageError as error:
        log.warning("cannot prune captured conversations: %s", error)


def capture_files(capture: Capture, reader: Source, path: Path, deadline: float | None) -> bool:
    """Capture a transcript and those of its sub-agents; return whether all of it was read."""
    from wellkept.formats.port import Unusable

    is_complete = capture_file(capture, reader, path, deadline=deadline)
    own = list(capture.tally.sessions)
    for related in reader.list_related(path):
        if deadline is not None and time.monotonic() >= deadline:
            return False
        try:
            is_complete = capture_file(capture, reader, related, deadline=deadline) and is_complete
        except Unusable as error:
            log.warning("%s", error)
            capture.tally.leave("cannot be read")
    for session_id in own:  # the newest comes last, and sub-agents are not what was asked for
        capture.tally.sessions[session_id] = capture.tally.sessions.pop(session_id)
    return is_complete


def capture_file(capture: Capture, reader: Source, path: Path, *, deadline: float | None = None) -> bool:
    """Capture one file from its stored position; return whether its end was reached."""
    from wellkept.formats.port import START

    place = str(path.absolute())
    position = capture.read_position(place)
    reading = reader.open(path, position)
    try:
        return capture.run(reading, place, is_first=position == START, deadline=deadline)
    finally:
        reading.close()


def capture_turn(  # noqa: PLR0913 # the texts and ids of one event
    caller: Caller,
    client: str,
    *,
    session: str,
    turn: str | None,
    project: str | None,
    prompt: str,
    answer: str,
    is_reported: bool = False,
) -> Captured | Refused:
    """Store one turn from the texts of an event; a transcript with the same turn replaces it later.

    `is_reported` means that the client's model supplied the texts, so they may not be the person's words.
    """
    from wellkept.imports.spool import WaitingTurn

    caller.require(Scope.WRITE)
    now = caller.app.clock.now().timestamp()
    provenance = f"agent:{client}" if is_reported else None
    waiting = WaitingTurn(client, session, turn, project, prompt, answer, now, provenance)
    try:
        return _store_turn(caller, waiting)
    except StorageError as error:
        return _spool_refused(caller, waiting, error)


def _store_turn(caller: Caller, waiting: WaitingTurn) -> Captured:
    from wellkept.imports.spool import store_turn

    capture = open_capture(caller, waiting.client)
    store_turn(capture, waiting)
    return summarise(capture.tally)


_RUNNING_SECONDS = 600.0
_MOST_UNREAD_BYTES = 8_000_000
"""Reading more would take longer than a tool call may."""
_TURN_MESSAGES = 50


def read_running_turn(caller: Caller, client: str) -> Context:
    """Return what the model of a connected agent has read in its running turn, from its transcript.

    Its context holds more than a transcript shows, so whatever the person did not assert is the agent's at best.
    Without a transcript that belongs to the folder of this process, nothing is known of what the person said.
    """
    from wellkept.connect.hooks import may_capture
    from wellkept.formats.port import find_source
    from wellkept.security.taint import Context

    reader = find_source(client)
    unknown = Context(unseen=_name_agent(client))
    if reader is None or not may_capture(caller, client):
        return unknown
    paths = [path for root in reader.find_roots(caller.app.environ) if root.exists()
             for path in reader.list_transcripts(root)]  # fmt: skip
    moments = {path: path.stat().st_mtime for path in paths if path.exists()}
    running = [path for path, moment in moments.items() if time.time() - moment <= _RUNNING_SECONDS]
    for path in sorted(running, key=lambda one: -moments[one]):
        turn = _read_turn(caller, client, reader, path)
        if turn is not None:
            return turn
    return unknown


def _name_agent(client: str) -> SourceName:
    from wellkept.core.provenance import Kind, Source

    return Source(Kind.AGENT, client).stored


def _read_turn(caller: Caller, client: str, reader: Source, path: Path) -> Context | None:
    """Return the context of the turn at the end of a transcript; None if it belongs to another folder."""
    from wellkept.core.messages import Origin
    from wellkept.formats.messages import SHORTENED
    from wellkept.formats.port import Conversation, Kind, Said, Unusable
    from wellkept.security.taint import ContextReader, Flow
    from wellkept.storage.files import find_project

    position = open_capture(caller, client).read_position(str(path.absolute()))
    if path.stat().st_size - position.offset > _MOST_UNREAD_BYTES:
        return None
    try:
        reading = reader.open(path, position)
    except Unusable:
        return None
    with closing(reading):
        items = list(reading)
    said = [item for item in items if isinstance(item, Said)]
    facts = next((item for item in reversed(items) if isinstance(item, Conversation)), None)
    folder = facts.folder if facts is not None else None
    session = find_session(caller, client, said[-1].conversation) if said else None
    stored = caller.space.sessions.edges(session, first=0, last=_TURN_MESSAGES)[1] if session is not None else []
    known = caller.space.sessions.session(session) if session is not None else None
    project = find_project(folder) if folder else known.project if known is not None else None
    if not said or project != find_project(str(caller.app.folder)):
        return None
    flow = Flow(folder=folder or "", program=client if facts is not None and facts.kind is Kind.HEADLESS else "")
    told = [(one.message, one.origin) for one in stored] + [(one.message, one.origin) for one in said]
    context = ContextReader(unseen=_name_agent(client))
    for message, origin in told:
        is_whole = not message.images and SHORTENED not in message.text
        is_person = origin is Origin.PERSON
        context.take(flow.take(message, origin), message.text, is_person=is_person, is_whole=is_person or is_whole)
    return context.context()


def find_session(caller: Caller, client: str, external_session: str) -> SessionId | None:
    """Return the session in which a conversation of a client is stored, or None."""
    from wellkept.imports.record import Captures

    with caller.database.reading() as unit:
        known = Captures(caller.user, client).session(unit, external_session)
    if known is None or caller.space.sessions.session(known.session_id) is None:
        return None
    return known.session_id


def drain_spool(caller: Caller, *, deadline: float | None = None) -> Captured:
    """Capture the items in the spool, oldest first, up to the deadline; those that cannot be stored yet stay there."""
    caller.require(Scope.WRITE)
    total = Captured()
    spool = _spool(caller)
    for path, waiting in spool.entries():
        if deadline is not None and time.monotonic() >= deadline:
            return total
        done = _capture_waiting(caller, waiting, deadline)
        if isinstance(done, Captured):
            total = add_up(total, done)
            is_settled = done.is_complete
        else:
            if done.reason is Reason.UNAVAILABLE:
                return total
            log.warning("a spooled transcript cannot be captured: %s", done.error)
            is_settled = True
        if is_settled:
            spool.remove(path)
    _prune(caller)
    return total


def _capture_waiting(caller: Caller, waiting: Waiting, deadline: float | None) -> Captured | Refused:
    from pathlib import Path

    from wellkept.imports.spool import WaitingTurn

    if not isinstance(waiting, WaitingTurn):
        return capture_transcript(caller, waiting.client, Path(waiting.path), deadline=deadline)
    try:
        return _store_turn(caller, waiting)
    except StorageError as error:
        return Refused(Reason.UNAVAILABLE, error.message, error.remedy)


def open_capture(caller: Caller, client: str, *, is_preview: bool = False, purpose: Purpose | None = None) -> Capture:
    """Open a capture into the caller's sessions; a preview only counts."""
    from wellkept.imports.capture import Capture, Preview
    from wellkept.imports.conversations import is_excluded
    from wellkept.operations.conversations import find_root

    patterns = caller.app.settings.connect.exclude
    home = caller.app.environ.get("HOME", "")
    capture = (Preview if is_preview else Capture)(
        caller.space.sessions,
        caller.database,
        client,
        clock=caller.app.clock,
        is_excluded=lambda folder: is_excluded(folder, patterns, home),
        purpose=purpose,
    )
    capture.open_lease = lambda session_id: caller.space.open_lease(f"session:{find_root(caller, session_id)}")
    return capture


def summarise(tally: Tally) -> Captured:
    """Return the result of a capture."""
    return Captured(
        tuple(tally.sessions),
        max(0, tally.added),
        tally.replaced,
        sum(tally.left.values()),
        tally.waiting_bytes,
        dict(tally.left),
    )


def add_up(one: Captured, other: Captured) -> Captured:
    """Return the sum of two captures."""
    left = dict(one.left)
    for why, count in other.left.items():
        left[why] = left.get(why, 0) + count
    return Captured(
        tuple(dict.fromkeys((*one.sessions, *other.sessions))),
        one.added + other.added,
        one.replaced + other.replaced,
        one.skipped + other.skipped,
        one.waiting_bytes + other.waiting_bytes,
        left,
    )


def _find_reader(client: str) -> Source | Refused:
    from wellkept.formats.port import SOURCES, find_source

    reader = find_source(client)
    if reader is None:
        return Refused(Reason.INVALID, f"{client!r} has no transcripts that can be read", f"use {', '.join(SOURCES)}")
    return reader


@contextmanager
def _limit_wait(caller: Caller, deadline: float | None) -> Iterator[None]:
    """Wait for other writers no longer than the deadline allows."""
    if deadline is None:
        yield
        return
    with caller.database.limit_wait(max(_LEAST_WAIT_SECONDS, deadline - time.monotonic())):
        yield


def _spool(caller: Caller) -> Spool:
    from wellkept.imports.spool import Spool

    return Spool(caller.space.home.spool)


def _spool_refused(caller: Caller, waiting: Waiting, error: StorageError) -> Refused:
    log.warning("cannot capture now: %s", error)
    is_kept = _spool(caller).add(waiting)
    remedy = "it is in the spool and is captured with the next event" if is_kept else error.remedy
    return Refused(Reason.UNAVAILABLE, error.message, remedy, {"busy": isinstance(error, Busy), "spooled": is_kept})


_DAY_SECONDS = 86_400.0
_PAUSE_SECONDS = 3_600.0
"""The limits are checked once an hour: measuring the text reads every captured message."""


class ClientCaptures(JsonStruct, frozen=True):
    """What was captured from one client."""

    client: str
    sessions: int
    last_captured: float
    waiting_bytes: int
    """Bytes of its transcripts that are not stored yet."""

    def as_json(self) -> dict[str, JSON]:
        """Return the counts and the time of the last capture."""
        return {**super().as_json(), "last_captured": iso_moment(self.last_captured)}


class CaptureStatus(Struct, frozen=True):
    """What was captured from all clients, the size of the spool, and what the limits moved to the trash."""

    clients: tuple[ClientCaptures, ...]
    spooled: int
    """Transcripts and turns in the spool."""
    days: int | None
    most_bytes: int | None
    pruned_at: float | None
    pruned_sessions: int
    """How many conversations the limits have moved to the trash in all."""

    @property
    def note(self) -> str | None:
        """Return in words what the limits have removed; None if nothing."""
        if not self.pruned_sessions or self.pruned_at is None:
            return None
        when = f"{from_epoch(self.pruned_at).astimezone():%Y-%m-%d}"
        return f"{self.pruned_sessions:,} captured conversations were moved to the trash by the limits, last on {when}"

    def as_json(self) -> dict[str, JSON]:
        """Return the state."""
        return {
            "clients": [client.as_json() for client in self.clients],
            "spooled": self.spooled,
            "capture_days": self.days,
            "capture_bytes": self.most_bytes,
            "pruned": {
                "sessions": self.pruned_sessions,
                "at": iso_moment(self.pruned_at),
            },
        }


def report_captures(caller: Caller) -> CaptureStatus:
    """Return what was captured, for a status."""
    from wellkept.imports.record import SQL
    from wellkept.imports.spool import Spool

    settings = caller.app.settings.sessions
    with caller.database.reading() as unit:
        waiting = {row[0]: row[1] for row in _rows(unit.execute(SQL.waiting, {"user": caller.user}))}
        found = list(_rows(unit.execute(SQL.health, {"user": caller.user})))
    pruned = _read_pruned(caller)
    return CaptureStatus(
        tuple(ClientCaptures(client, count, moment, waiting.get(client, 0)) for client, count, moment in found),
        Spool(caller.space.home.spool).count(),
        settings.capture_days,
        settings.capture_bytes,
        pruned.get("at"),
        int(pruned.get("sessions") or 0),
    )


def prune_captures(caller: Caller, *, is_due: bool = True) -> tuple[SessionId, ...]:
    """Move captured conversations beyond the limits to the trash, the oldest first; return which.

    With `is_due`, at most once an hour. The newest conversation always stays.
    """
    caller.require(Scope.WRITE)
    settings = caller.app.settings.sessions
    if settings.capture_days is None and settings.capture_bytes is None:
        return ()
    now = caller.app.clock.now().timestamp()
    before = _read_pruned(caller)
    if is_due and now - float(before.get("checked") or 0.0) < _PAUSE_SECONDS:
        return ()
    gone = _choose(caller, now)
    total = int(before.get("sessions") or 0) + len(gone)
    at = now if gone else before.get("at")
    _trash(caller, gone, {"checked": now, "at": at, "sessions": total})
    return tuple(gone)


def _choose(caller: Caller, now: float) -> list[SessionId]:
    """Return the sessions beyond the limits: idle for too long, then the oldest until the text fits."""
    from wellkept.imports.record import SQL

    settings = caller.app.settings.sessions
    with caller.database.reading() as unit:
        found = [
            (SessionId(row[0]), float(row[1]), int(row[2]))
            for row in _rows(unit.execute(SQL.oldest, {"user": caller.user}))
        ]
    oldest_kept = 0.0 if settings.capture_days is None else now - settings.capture_days * _DAY_SECONDS
    left = sum(size for _, _, size in found)
    gone: list[SessionId] = []
    for session_id, active, size in found[:-1]:
        if active >= oldest_kept and (settings.capture_bytes is None or left <= settings.capture_bytes):
            break
        gone.append(session_id)
        left -= size
    return gone


def _trash(caller: Caller, gone: Sequence[SessionId], record: dict[str, JSON]) -> None:
    from wellkept.imports.record import SQL

    with caller.database.writing() as unit:
        if gone:
            caller.space.sessions.upkeep.delete(gone)
        for session_id in gone:
            # a conversation that continues after it was pruned gets a new session
            unit.execute(SQL.release, {"user": caller.user, "session": session_id})
        unit.execute(SQL.write_pruned, {"key": _key(caller), "value": dumps(record)})


def _read_pruned(caller: Caller) -> dict[str, Any]:
    from wellkept.imports.record import SQL

    with caller.database.reading() as unit:
        row = next(iter(unit.execute(SQL.pruned, {"key": _key(caller)})), None)
    value = json.loads(str(row[0])) if row is not None else {}
    return value if isinstance(value, dict) else {}


def _key(caller: Caller) -> str:
    return f"captures_pruned:{caller.user}"


def _rows(rows: Iterable[tuple[object, ...]]) -> Iterable[tuple[Any, ...]]:
    return rows
