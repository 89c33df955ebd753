"""The inbox of chat platforms: messages are stored before they are answered, so that each is answered once.

received → running → answered → sent, or failed. A redelivered message is recognised by its row. After a crash,
unfinished rows are processed again.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Scope
from wellkept.core.ids import SessionId, UserId
from wellkept.core.text import dumps
from wellkept.core.values import asdict
from wellkept.gateway.state.conversation_keys import Chat
from wellkept.storage.connections import statements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wellkept.app.caller import Caller
    from wellkept.core.ports import UnitOfWork

_KEEP_TEXT_SECONDS = 3_600.0
"""How long the text of an answered message is kept, so that a redelivery gets the same answer."""
_KEEP_SECONDS = 86_400.0
"""How long an answered message is recognised; platforms deliver again for at most a day."""
SQL = statements("wellkept.gateway.state", "platform_messages.sql")


class State(StrEnum):
    """The state of a message."""

    RECEIVED = "received"
    RUNNING = "running"
    """Its turn has begun."""
    ANSWERED = "answered"
    """The answer is stored and was not sent yet."""
    SENT = "sent"
    FAILED = "failed"
    """The platform did not accept the answer."""


class File(Struct, frozen=True):
    """A file of a message. It stays on the platform, and is read when the turn of the message begins."""

    id: str
    kind: str
    """The kind of file: photo, document, voice message."""
    name: str = ""
    media_type: str = ""
    size: int | None = None
    number: int = 0
    """The number of the message that it came with; an album has several."""


class PlatformMessage(Struct, frozen=True):
    """A message of a person on a platform."""

    delivery: str
    """The platform's id of this message; the same id again is the same message."""
    text: str
    chat: Chat
    name: str = ""
    """The name of the person, as the platform shows it."""
    files: tuple[File, ...] = ()
    number: int = 0
    """Its position in the chat: queued messages are answered in this order. 0 if they arrive in order."""
    is_album: bool = False
    """Whether it is one of several parts that arrive as messages with the same `delivery`, within moments."""
    edits: str = ""
    """The `delivery` of the message whose text this one replaces; it starts no turn."""
    chat_name: str = ""
    """The name of the chat, as the platform shows it; empty for a private chat."""


class Entry(Struct, frozen=True):
    """A stored message with its state and, once there is one, its answer."""

    message: PlatformMessage
    user: UserId
    state: State = State.RECEIVED
    answer: str = ""
    session_id: SessionId | None = None
    shown: tuple[str, ...] = ()
    """The ids of the platform messages that contain the parts of the answer so far."""
    received: float = 0.0

    @property
    def name(self) -> tuple[str, str]:
        """Return the key of the entry."""
        return (self.message.chat.platform, self.message.delivery)


def accept_message(caller: Caller, message: PlatformMessage) -> tuple[Entry, bool]:
    """Store a message of the caller; return its entry, and whether it is new.

    A part of an album joins the queued parts; after their turn has begun it is a separate message.
    """
    caller.require(Scope.WRITE)
    with caller.app.database.writing() as unit:
        found = _find(unit, message.chat.platform, message.delivery)
        if found is not None and message.is_album and not _has_part(found, message.number):
            if found.state is State.RECEIVED:
                earlier, later = sorted((found.message, message), key=lambda one: one.number)
                joined = replace(
                    found,
                    message=replace(
                        earlier,
                        text="\n".join(text for text in (earlier.text, later.text) if text),
                        files=tuple(sorted((*found.message.files, *message.files), key=lambda file: file.number)),
                    ),
                )
                _update(unit, joined)
                return (joined, False)
            message = replace(message, delivery=f"{message.delivery}:{message.number}")
            found = _find(unit, message.chat.platform, message.delivery)
        if found is not None:
            return (replace(found, message=message), False)
        return (_insert(unit, caller, message), True)


def _has_part(entry: Entry, number: int) -> bool:
    if not entry.message.number:  # its text is removed already, and with it the numbers of its parts
        return True
    return number == entry.message.number or any(file.number == number for file in entry.message.files)


def accept_edit(caller: Caller, message: PlatformMessage) -> Entry | None:
    """Store the new text of an earlier message of the caller; None if there is nothing more to do.

    A queued message is changed in place. For an answered message an entry is returned, so that the edit can be added
    to its conversation. An unknown message was not for us, and neither is its edit.
    """
    caller.require(Scope.WRITE)
    with caller.app.database.writing() as unit:
        entry = _find(unit, message.chat.platform, message.edits)
        is_known = entry is not None and entry.user == caller.user
        if not is_known or entry is None or _find(unit, message.chat.platform, message.delivery) is not None:
            return None
        if entry.message.text == message.text:  # platforms also report a link preview as an edit
            return None
        if entry.state is State.RECEIVED:
            _update(unit, replace(entry, message=replace(entry.message, text=message.text)))
            return None
        return _insert(unit, caller, message)


def begin_message(caller: Caller, entry: Entry) -> Entry:
    """Mark a message as running and return its stored form; no part or edit changes it from now on."""
    caller.require(Scope.WRITE)
    with caller.app.database.writing() as unit:
        found = _find(unit, *entry.name)
        if found is None:  # removed by forget
            return entry
        _update(unit, replace(found, state=State.RUNNING))
    return found


def _insert(unit: UnitOfWork, caller: Caller, message: PlatformMessage) -> Entry:
    entry = Entry(message, caller.user, received=caller.app.clock.now().timestamp())
    unit.execute(
        SQL.add,
        (*entry.name, caller.user, State.RECEIVED.value, entry.received, _write(entry)),
    )
    return entry


def _update(unit: UnitOfWork, entry: Entry) -> None:
    unit.execute(
        SQL.set,
        (entry.state.value, _write(entry), entry.answer, entry.session_id or "", *entry.name, entry.user),
    )


def _find(unit: UnitOfWork, platform: str, delivery: str) -> Entry | None:
    rows = list(unit.execute(SQL.one, (platform, delivery)))
    return _read_row(rows[0]) if rows else None


def _write(entry: Entry) -> str:
    return dumps({**asdict(entry.message), "shown": list(entry.shown)})


def find_entry(caller: Caller, platform: str, delivery: str) -> Entry | None:
    """Return a stored message of the caller."""
    with caller.app.database.reading() as unit:
        rows = list(unit.execute(SQL.own, (platform, delivery, caller.user)))
    return _read_row(rows[0]) if rows else None


def save_entry(caller: Caller, entry: Entry) -> Entry:
    """Store a changed entry of the caller, and return it."""
    caller.require(Scope.WRITE)
    with caller.app.database.writing() as unit:
        _update(unit, entry)
    return entry


def remove_message(caller: Caller, entry: Entry) -> None:
    """Remove a message that could not be answered, so that a redelivery tries again."""
    caller.require(Scope.WRITE)
    with caller.app.database.writing() as unit:
        unit.execute(SQL.drop, (*entry.name, caller.user))


def list_unfinished(caller: Caller) -> list[Entry]:
    """Return the messages of all users that are not answered or whose answer was not sent, the oldest first."""
    caller.require(Scope.ADMIN)
    with caller.app.database.reading() as unit:
        return [_read_row(row) for row in unit.execute(SQL.unfinished)]


def count_unfinished(caller: Caller) -> int:
    """Return how many messages of all users wait for an answer or for its delivery."""
    caller.require(Scope.ADMIN)
    with caller.app.database.reading() as unit:
        return int(str(next(iter(unit.execute(SQL.count_unfinished)))[0]))


def remove_finished(caller: Caller) -> None:
    """Remove the texts of finished messages after an hour, and their rows after a day."""
    caller.require(Scope.ADMIN)
    now = caller.app.clock.now().timestamp()
    with caller.app.database.writing() as unit:
        unit.execute(SQL.blank_finished, (now - _KEEP_TEXT_SECONDS,))
        unit.execute(SQL.drop_finished, (now - _KEEP_SECONDS,))


def _read_row(row: Iterable[object]) -> Entry:
    platform, delivery, user, state, message, answer, session_id, received = (str(part) for part in row)
    shown: tuple[str, ...] = ()
    if message:
        fields = json.loads(message)
        shown = tuple(fields.get("shown", ()))
        found = msgspec.convert(fields, PlatformMessage)
    else:
        found = PlatformMessage(delivery, "", Chat(platform, ""))  # its text is removed already
    session = SessionId(session_id) if session_id else None
    return Entry(found, UserId(user), State(state), answer, session, shown, float(received))
