"""Limits on conversations captured from other programs, and their current size."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wellkept.app.caller import Scope
from wellkept.core.clock import from_epoch, iso_moment
from wellkept.core.ids import SessionId
from wellkept.core.text import dumps
from wellkept.core.values import JsonStruct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wellkept.app.caller import Caller
    from wellkept.core.text import JSON

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
    from wellkept.importers.captures import SQL
    from wellkept.importers.spool import Spool

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
    from wellkept.importers.captures import SQL

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
    from wellkept.importers.captures import SQL

    with caller.database.writing() as unit:
        if gone:
            caller.space.sessions.upkeep.delete(gone)
        for session_id in gone:
            # a conversation that continues after it was pruned gets a new session
            unit.execute(SQL.release, {"user": caller.user, "session": session_id})
        unit.execute(SQL.write_pruned, {"key": _key(caller), "value": dumps(record)})


def _read_pruned(caller: Caller) -> dict[str, Any]:
    from wellkept.importers.captures import SQL

    with caller.database.reading() as unit:
        row = next(iter(unit.execute(SQL.pruned, {"key": _key(caller)})), None)
    value = json.loads(str(row[0])) if row is not None else {}
    return value if isinstance(value, dict) else {}


def _key(caller: Caller) -> str:
    return f"captures_pruned:{caller.user}"


def _rows(rows: Iterable[tuple[object, ...]]) -> Iterable[tuple[Any, ...]]:
    return rows
