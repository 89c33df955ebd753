"""Messages of chat platforms on their way: stored before they are answered, so that each is answered once.

received → running → answered → sent, or failed. A message that is delivered again finds its row. After a crash the
rows that are not finished are taken up again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from kept.app.caller import Scope
from kept.core.ids import SessionId, UserId
from kept.core.text import dumps
from kept.operations.conversation_keys import Chat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kept.app.caller import Caller

_KEEP_TEXT_SECONDS = 3_600.0
"""How long the text of an answered message is here, so that a redelivery gets the same answer."""
_KEEP_SECONDS = 86_400.0
"""How long an answered message is recognised; platforms deliver again for at most a day."""
_SELECT = "SELECT platform, delivery, user_id, state, message, answer, session_id FROM platform_messages"
_SELECT_ONE = f"{_SELECT} WHERE platform = ? AND delivery = ?"
_SELECT_UNFINISHED = f"{_SELECT} WHERE state IN ('received', 'running', 'answered') ORDER BY received, delivery"


class State(StrEnum):
    """How far a message is."""

    RECEIVED = "received"
    RUNNING = "running"
    """Its turn has begun."""
    ANSWERED = "answered"
    """The answer is stored and was not sent yet."""
    SENT = "sent"
    FAILED = "failed"
    """The platform did not take the answer."""


@dataclass(frozen=True, slots=True)
class PlatformMessage:
    """What somebody said on a platform."""

    delivery: str
    """The platform's id of this message; the same id again is the same message."""
    text: str
    chat: Chat
    name: str = ""
    """The name of the person, as the platform shows it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored message with its state and, once there is one, its answer."""

    message: PlatformMessage
    user: UserId
    state: State = State.RECEIVED
    answer: str = ""
    session_id: SessionId | None = None

    @property
    def name(self) -> tuple[str, str]:
        """Return what the entry is found by."""
        return (self.message.chat.platform, self.message.delivery)


def accept_message(caller: Caller, message: PlatformMessage) -> tuple[Entry, bool]:
    """Store a message of the caller; return its entry, and whether it is new."""
    caller.require(Scope.WRITE)
    entry = Entry(message, caller.user)
    now = caller.app.clock.now().timestamp()
    with caller.app.database.writing() as unit:
        for row in unit.execute(_SELECT_ONE, entry.name):
            found = _read_row(row)
            return (replace(found, message=message), False)
        unit.execute(
            "INSERT INTO platform_messages (platform, delivery, user_id, state, received, message, answer, session_id) "
            "VALUES (?, ?, ?, ?, ?, ?, '', '')",
            (*entry.name, caller.user, State.RECEIVED.value, now, dumps(asdict(message))),
        )
    return (entry, True)


def find_entry(caller: Caller, platform: str, delivery: str) -> Entry | None:
    """Return a stored message of the caller."""
    with caller.app.database.reading() as unit:
        rows = list(unit.execute(f"{_SELECT_ONE} AND user_id = ?", (platform, delivery, caller.user)))
    return _read_row(rows[0]) if rows else None


def set_state(caller: Caller, entry: Entry, state: State, **changes: str) -> Entry:
    """Store how far a message of the caller is; `changes` are its answer and session."""
    caller.require(Scope.WRITE)
    session = changes.get("session_id", entry.session_id)
    changed = replace(
        entry,
        state=state,
        answer=changes.get("answer", entry.answer),
        session_id=SessionId(session) if session is not None else None,
    )
    with caller.app.database.writing() as unit:
        unit.execute(
            "UPDATE platform_messages SET state = ?, answer = ?, session_id = ? "
            "WHERE platform = ? AND delivery = ? AND user_id = ?",
            (state.value, changed.answer, changed.session_id or "", *entry.name, caller.user),
        )
    return changed


def remove_message(caller: Caller, entry: Entry) -> None:
    """Remove a message that could not be answered, so that a redelivery tries again."""
    caller.require(Scope.WRITE)
    with caller.app.database.writing() as unit:
        sql = "DELETE FROM platform_messages WHERE platform = ? AND delivery = ? AND user_id = ?"
        unit.execute(sql, (*entry.name, caller.user))


def remove_user_rows(caller: Caller) -> int:
    """Remove every message of the caller's user and their pairings; return how many rows."""
    caller.require(Scope.WRITE)
    with caller.app.database.writing() as unit:
        gone = 0
        for table in ("platform_messages", "platform_people"):
            where = f"FROM {table} WHERE user_id = ?"
            gone += int(str(next(iter(unit.execute(f"SELECT COUNT(*) {where}", (caller.user,))))[0]))
            unit.execute(f"DELETE {where}", (caller.user,))
    return gone


def list_unfinished(caller: Caller) -> list[Entry]:
    """Return the messages of all users that are not answered or whose answer was not sent, the oldest first."""
    caller.require(Scope.ADMIN)
    with caller.app.database.reading() as unit:
        return [_read_row(row) for row in unit.execute(_SELECT_UNFINISHED)]


def count_unfinished(caller: Caller) -> int:
    """Return how many messages of all users wait for an answer or for its delivery."""
    caller.require(Scope.ADMIN)
    with caller.app.database.reading() as unit:
        sql = "SELECT COUNT(*) FROM platform_messages WHERE state IN ('received', 'running', 'answered')"
        return int(str(next(iter(unit.execute(sql)))[0]))


def remove_finished(caller: Caller) -> None:
    """Remove the texts of finished messages after an hour, and their rows after a day."""
    caller.require(Scope.ADMIN)
    now = caller.app.clock.now().timestamp()
    with caller.app.database.writing() as unit:
        unit.execute(
            "UPDATE platform_messages SET message = '', answer = '' "
            "WHERE state IN ('sent', 'failed') AND received < ? AND message <> ''",
            (now - _KEEP_TEXT_SECONDS,),
        )
        sql = "DELETE FROM platform_messages WHERE state IN ('sent', 'failed') AND received < ?"
        unit.execute(sql, (now - _KEEP_SECONDS,))


def _read_row(row: Iterable[object]) -> Entry:
    platform, delivery, user, state, message, answer, session_id = (str(part) for part in row)
    if message:
        fields = json.loads(message)
        found = PlatformMessage(delivery, fields["text"], Chat(**fields["chat"]), fields["name"])
    else:
        found = PlatformMessage(delivery, "", Chat(platform, ""))  # its text is removed already
    return Entry(found, UserId(user), State(state), answer, SessionId(session_id) if session_id else None)
