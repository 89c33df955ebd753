"""Histories of clients: a client sends its whole conversation with every request, and only what is new is stored.

For each conversation, a list has the hash of every message that the client has sent or received, with the stored
message. A request is compared with that list: the longest common beginning stays, and the rest is new. A request that
ends within the list rewinds the rest; one that differs within it continues in a branch. A turn that failed or was
interrupted is in the session only and is read from there.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Scope
from wellkept.core.ids import MessageId, SessionId, new_session_id
from wellkept.core.messages import Link, Message, NewMessage, Origin, Role, Session
from wellkept.core.provenance import Kind, Source
from wellkept.core.text import dumps
from wellkept.gateway.state.conversation_keys import find_session, set_session
from wellkept.security.taint import Flow
from wellkept.storage.connections import statements

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wellkept.app.caller import Caller

SQL = statements("wellkept.gateway.state", "client_histories.sql")
_CLAIMED = Source(Kind.AGENT, "api").stored
_HASH_BYTES = 16
_HEX_DIGITS = 8
_TURN_MESSAGES = 50
"""How many stored messages are checked for what a continued turn has read."""
_LEAST_ALIKE = 2
"""A history of one message could belong to any conversation."""
_TELLING_ALIKE = 4
"""With this many equal messages at its end, a history may have a different beginning: a summary."""
_MOST_KEYS = 20


class ClientMessage(Struct, frozen=True):
    """One message of a client's history, and the corresponding stored message."""

    hash: bytes
    message_id: MessageId


class Keeping(Struct, frozen=True):
    """How the conversation of a client is stored."""

    source: str = "api"
    """The source of a new session."""
    model: str | None = None
    session_id: SessionId | None = None
    """The id of a new session, if one was promised; one that is taken is not used."""
    clean: Callable[[Sequence[Message]], list[Message | None]] = list
    """Returns what is stored of each message of a conversation, None where that is nothing."""
    is_led_elsewhere: bool = False
    """Whether the client alone runs the conversation and kept only records it. Then a shorter history branches instead
    of rewinding later messages, and a history without its beginning is recognised by its end."""


class Prepared(Struct, frozen=True):
    """A conversation that is ready for the next turn."""

    session_id: SessionId | None
    """The session to continue; None for a new one."""
    known: tuple[ClientMessage, ...]
    """The history before the new message."""
    has_changed: bool
    """Whether an agent that was open for the conversation must be opened again."""
    key: str = ""
    """The key under which the conversation is recorded."""


def hash_message(message: Message) -> bytes:
    """Return a hash that is the same for equal messages of a client; surrounding spaces do not count."""
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    text = "" if message.tool_calls else message.text.strip()  # clients change the text beside a call
    images = [[image.media_type, hashlib.sha256(image.data.encode()).hexdigest()] for image in message.images]
    value = dumps([message.role.value, text, message.tool_call_id, calls, *images])
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()[:_HASH_BYTES]


def split_input(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """Return the history and the new input: the last message of the person, or the last results of tools."""
    end = len(messages)
    if end and messages[-1].role is Role.TOOL:
        start = end
        while start and messages[start - 1].role is Role.TOOL:
            start -= 1
    else:
        start = max(0, end - 1)
    return messages[:start], messages[start:]


def prepare_conversation(
    caller: Caller, key: str, history: Sequence[Message], new: Sequence[Message], keeping: Keeping | None = None
) -> Prepared:
    """Bring the stored conversation of a key to the state that the client shows, ready for its new message."""
    caller.require(Scope.WRITE)
    keeping = keeping or Keeping()
    match = _match_beginning(caller, key, history, new)
    if match is None and keeping.is_led_elsewhere:
        match = find_window(caller, history)
    if match is None:
        return _import_history(caller, key, history, keeping)
    stored, common, session_id = match.stored, match.common, match.session_id
    known, has_changed = tuple(stored[:common]), common > match.recorded
    rest = history[match.repeated :]
    if common < len(stored):
        is_repeated = not rest and [hash_message(message) for message in new] == [
            message.hash for message in stored[common : common + len(new)]
        ]
        later = stored[common + len(new) :] if keeping.is_led_elsewhere else ()
        in_place = is_repeated and not _holds_person(caller, later)
        session_id = _go_back(caller, session_id, stored, common, in_place=in_place)
        has_changed = True
    if rest:
        stored_rest = keeping.clean(history)[match.repeated :]
        known += append_messages(
            caller, session_id, rest, stored_rest, after=known, is_claimed=not keeping.is_led_elsewhere
        )
        has_changed = True
    if has_changed:
        write_history(caller, match.key, session_id, known)
    return Prepared(session_id, known, has_changed, match.key)


class Match(Struct, frozen=True):
    """A stored conversation that a history continues."""

    key: str
    session_id: SessionId
    stored: Sequence[ClientMessage]
    recorded: int
    """How many of the stored messages are recorded in the client's list."""
    common: int
    """How many of them the history continues."""
    repeated: int
    """How many messages of the history these are; fewer where it lacks the beginning."""


def _match_beginning(caller: Caller, key: str, history: Sequence[Message], new: Sequence[Message]) -> Match | None:
    """Return the conversation of a key, if the history begins as it does."""
    session = find_session(caller, key)
    if session is None:
        return None
    recorded = _read_history(caller, key)
    stored = [*recorded, *_read_unrecorded(caller, session.session_id, recorded, [*history, *new])]
    hashes = [hash_message(message) for message in history]
    common = 0
    while common < min(len(stored), len(hashes)) and stored[common].hash == hashes[common]:
        common += 1
    if common == 0 and stored and hashes:
        return None
    return Match(key, session.session_id, stored, len(recorded), common, common)


def find_window(caller: Caller, history: Sequence[Message]) -> Match | None:
    """Return the conversation whose newest messages end this history, which may lack its beginning.

    Some programs send only the last messages of a long conversation, or a summary in place of the first ones.
    """
    hashes = [hash_message(message) for message in history]
    if len(hashes) < _LEAST_ALIKE:
        return None
    for key in _find_keys(caller, hashes[-1]):
        recorded, found = _read_history(caller, key), find_session(caller, key)
        ends = [place for place, message in enumerate(recorded, 1) if message.hash == hashes[-1]]
        if found is None or not ends:
            continue
        end, alike = ends[-1], 0
        while alike < min(end, len(hashes)) and recorded[end - 1 - alike].hash == hashes[-1 - alike]:
            alike += 1
        # a program may begin all of its conversations with the same exchange
        is_beginning = alike == end and end < len(recorded)
        if not is_beginning and (alike == len(hashes) or alike >= _TELLING_ALIKE):
            return Match(key, found.session_id, recorded, len(recorded), end, len(hashes))
    return None


def _find_keys(caller: Caller, digest: bytes) -> list[str]:
    """Return the conversations with this message, the last used first."""
    with caller.database.reading() as unit:
        rows = unit.execute(SQL.keys, {"user": caller.user, "hash": digest, "limit": _MOST_KEYS})
        return [str(key) for (key,) in rows]


def begin_conversation(caller: Caller, key: str, session_id: SessionId) -> None:
    """Assign a new session to a key before its first turn, so that the turn is found if the process dies in it."""
    caller.require(Scope.WRITE)
    write_history(caller, key, session_id, ())


def _read_unrecorded(
    caller: Caller, session_id: SessionId, recorded: Sequence[ClientMessage], said: Sequence[Message]
) -> list[ClientMessage]:
    """Return the messages of a turn that was not recorded, as the client saw them: the person's, then one answer.

    A message that the client has too gets the client's hash: of an interrupted answer it may have only the beginning.
    """
    store = caller.space.sessions
    tip = store.tip(session_id)
    rows = store.context(tip)
    newest = recorded[-1].message_id if recorded else MessageId(0)
    last = store.message(newest) if recorded else None
    if recorded and (last is None or last.session_id != tip):
        # a compaction or a branch copies messages: only the last exchange can be one that was not recorded
        people = [place for place, row in enumerate(rows) if row.message.role is Role.USER]
        rows = rows[people[-1] :] if people else []
    seen: list[tuple[Message, MessageId]] = []
    for row in rows:
        if row.id <= newest:
            continue
        if row.message.role is Role.USER or not seen or seen[-1][0].role is Role.USER:
            is_person = row.message.role is Role.USER
            seen.append((row.message if is_person else Message(Role.ASSISTANT, row.message.text), row.id))
        else:
            parts = [seen[-1][0].text, row.message.text if row.message.role is Role.ASSISTANT else ""]
            seen[-1] = (Message(Role.ASSISTANT, "\n\n".join(filter(None, parts))), row.id)
    start = len(recorded)
    return [
        ClientMessage(hash_message(_recognise(message, said[place] if place < len(said) else message)), number)
        for place, (message, number) in enumerate(seen, start)
    ]


def _recognise(stored: Message, said: Message) -> Message:
    """Return the client's message if it is the stored one or, for an answer, its beginning; else the stored one."""
    text = (said.text or said.display_text).strip()
    if stored.role is not said.role or said.tool_calls or stored.images != said.images:
        return stored
    is_same = stored.text.startswith(text) if stored.role is Role.ASSISTANT else stored.text.strip() == text
    return said if is_same else stored


def _go_back(
    caller: Caller, session_id: SessionId, stored: Sequence[ClientMessage], common: int, *, in_place: bool
) -> SessionId:
    """Rewind what follows the common part; return the session to continue: the same one, or a branch of it."""
    store = caller.space.sessions
    # for a message that is not stored, the list names the one before it
    reached = stored[common - 1].message_id if common else MessageId(0)
    number = next((message.message_id for message in stored[common:] if message.message_id > reached), reached)
    first = store.message(number)
    if in_place and first is not None and first.session_id == store.tip(session_id):
        store.rewind(first.session_id, first.id)
        return first.session_id
    now = caller.app.clock.now()
    session = store.session(session_id)
    last = store.message(stored[common - 1].message_id) if common else None
    origin = last.session_id if last is not None else session_id
    new = Session(
        new_session_id(now, hex_digits=_HEX_DIGITS),
        session.source if session is not None else "api",
        now.timestamp(),
        user_id=caller.user,
        model=session.model if session is not None else None,
        parent_session_id=origin,
        link=Link.BRANCH,
    )
    if last is None:
        store.create(replace(new, parent_session_id=None, link=None))
    else:
        store.branch(origin, at=last.id, new=new)
    return new.id


def _holds_person(caller: Caller, later: Sequence[ClientMessage]) -> bool:
    """Whether one of the messages was said by a person."""
    rows = caller.space.sessions.messages_by_id([message.message_id for message in later])
    return any(row.message.role is Role.USER for row in rows)


def _import_history(caller: Caller, key: str, history: Sequence[Message], keeping: Keeping) -> Prepared:
    """Store a conversation that began elsewhere; without earlier messages the first turn creates the session."""
    if not history:
        return Prepared(None, (), has_changed=True, key=key)
    session_id = create_session(caller, keeping)
    cleaned = keeping.clean(history)
    known = append_messages(caller, session_id, history, cleaned, is_claimed=not keeping.is_led_elsewhere)
    write_history(caller, key, session_id, known)
    return Prepared(session_id, known, has_changed=True, key=key)


def create_session(caller: Caller, keeping: Keeping) -> SessionId:
    """Create a session, with the promised id unless that is taken."""
    store, now = caller.space.sessions, caller.app.clock.now()
    promised = keeping.session_id
    is_free = promised is not None and store.session(promised) is None
    session_id = promised if promised is not None and is_free else new_session_id(now, hex_digits=_HEX_DIGITS)
    store.create(Session(session_id, keeping.source, now.timestamp(), user_id=caller.user, model=keeping.model))
    return session_id


def append_messages(  # noqa: PLR0913 - the two flags say how the one conversation was kept
    caller: Caller,
    session_id: SessionId,
    messages: Sequence[Message],
    stored: Sequence[Message | None],
    *,
    after: Sequence[ClientMessage] = (),
    is_broken_off: bool = False,
    is_claimed: bool = False,
) -> tuple[ClientMessage, ...]:
    """Append what is `stored` of messages that follow those of `after`; return the messages with their rows.

    If they are only claimed, a program says that they were exchanged, and kept saw none of it: it is their source.
    """
    moment = caller.app.clock.now().timestamp()
    last = len(stored) - 1
    flow = Flow(program="api", imported=_CLAIMED if is_claimed else None)
    for before in caller.space.sessions.edges(session_id, first=0, last=_TURN_MESSAGES)[1]:
        flow.take(before.message, before.origin)
    new = [
        NewMessage(
            message, moment, origin := Origin.usual(message.role), interrupted=is_broken_off and place == last,
            source=flow.take(message, origin),
        )
        for place, message in enumerate(stored)
        if message is not None
    ]  # fmt: skip
    ids = iter(caller.space.sessions.append(session_id, new) if new else ())
    row = after[-1].message_id if after else MessageId(0)
    known: list[ClientMessage] = []
    for message, kept in zip(messages, stored, strict=True):
        row = row if kept is None else next(ids)
        known.append(ClientMessage(hash_message(message), row))
    return tuple(known)


def _read_history(caller: Caller, key: str) -> list[ClientMessage]:
    with caller.database.reading() as unit:
        return [
            ClientMessage(bytes(digest), MessageId(int(str(number))))
            for digest, number in unit.execute(SQL.history, {"user": caller.user, "key": key})
            if isinstance(digest, bytes)
        ]


def record_turn(
    caller: Caller, key: str, session_id: SessionId, known: Sequence[ClientMessage], turn: Sequence[ClientMessage]
) -> None:
    """Record what the client has sent and received in a turn, after the known history."""
    caller.require(Scope.WRITE)
    write_history(caller, key, session_id, turn, start=len(known))


def write_history(
    caller: Caller, key: str, session_id: SessionId, messages: Sequence[ClientMessage], *, start: int = 0
) -> None:
    """Replace the recorded history of a key from a position on."""
    with caller.database.writing() as unit:
        named = {"user": caller.user, "key": key}
        unit.execute(SQL.cut, {**named, "start": start})
        for place, message in enumerate(messages, start):
            unit.execute(SQL.add, {**named, "position": place, "hash": message.hash, "message": message.message_id})
        set_session(caller, key, session_id)
