"""What the proxy stores: the conversations that pass through it, and what was added to their requests."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Scope
from wellkept.core.errors import Busy
from wellkept.core.ids import SessionId, new_session_id
from wellkept.core.messages import Message, Role, Usage
from wellkept.gateway.state.client_histories import (
    Keeping,
    append_messages,
    create_session,
    find_window,
    hash_message,
    prepare_conversation,
    split_input,
    write_history,
)
from wellkept.gateway.state.conversation_keys import find_key, find_session
from wellkept.operations.recall import Recipient, build_start_block, find_given, recall_for_prompt
from wellkept.storage.connections import statements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wellkept.app.caller import Caller
    from wellkept.core.ports import UnitOfWork
    from wellkept.sessions.receipts import NewReceipt

_BLOCK = b"block:"
_CHAIN = "answer:"
_SHARED = "blocks"
"""The key of the texts of blocks. Most conversations share one text, so their rows refer to it by its hash."""
_HASH_BYTES = 16
_HEX_DIGITS = 8
_START_SECONDS = 300.0
"""How long the same beginning gets the same block; after that it counts as a new conversation."""
_KEPT_SECONDS = 60 * 86_400.0
"""How long additions are kept; a conversation that continues after that gets new ones."""
_PRUNED_AT_ONCE = 200
_MOST_ANSWERS = 50
"""How many answers of a history are checked for the first one; a longer history is recognised by its end."""
_LEAST_WAIT_SECONDS = 0.01
SQL = statements("wellkept.gateway.state", "proxied_conversations.sql")


class ProxiedConversation(Struct, frozen=True):
    """A conversation as a client sends it."""

    key: str
    """Identifies it together with its beginning."""
    client: str
    messages: tuple[Message, ...]
    model: str = ""
    chain: str = ""
    """The id of the answer that a request continues, where the endpoint stores the conversation itself."""


class Additions(Struct, frozen=True):
    """What is added to a request."""

    session_id: SessionId
    """The session in which the conversation is, or will be, stored."""
    block: str = ""
    passages: Mapping[int, str] = field(default_factory=dict)
    """Text for the end of a message, by its position among the messages."""
    recalled: int = 0
    """How many passages were found for the newest message."""


class _Row(Struct, frozen=True):
    session_id: SessionId
    text: str
    created: float


class _Found(Struct):
    """What is added to a request, and what of that must be stored."""

    session_id: SessionId
    block: str = ""
    passages: dict[int, str] = field(default_factory=dict)
    recalled: int = 0
    new: dict[bytes, str] = field(default_factory=dict)
    receipts: list[NewReceipt] = field(default_factory=list)


def list_places(messages: Sequence[Message]) -> list[bytes]:
    """Return a hash of the conversation up to each message."""
    places: list[bytes] = []
    before = b""
    for message in messages:
        before = hashlib.sha256(before + hash_message(message)).digest()[:_HASH_BYTES]
        places.append(before)
    return places


def find_additions(caller: Caller, said: ProxiedConversation, *, recall: str, deadline: float) -> Additions:
    """Return the additions to a request: those of earlier requests, and new ones for its newest message.

    `deadline` is a value of `time.monotonic()`; raises Busy if new additions cannot be stored by then, because
    nothing may be added that could not be repeated or has no receipt.
    """
    caller.require(Scope.READ)
    rows = _read_rows(caller, _row_key(said))
    block = _find_block(caller, said, rows, recall)
    places = list_places(said.messages)
    for position, place in enumerate(places):
        if place in rows and said.messages[position].role is Role.USER:
            block.passages[position] = rows[place].text
    if recall == "sure" and said.messages[-1].role is Role.USER and places[-1] not in rows:
        _recall(caller, said, places[-1], block)
    if block.new:
        receipts = caller.space.sessions.receipts
        wait = max(_LEAST_WAIT_SECONDS, deadline - time.monotonic())
        with caller.database.limit_wait(wait), caller.database.writing() as unit:
            for receipt in block.receipts:
                is_stored = receipts.add(receipt, wait_seconds=wait) is not None
                if not is_stored and caller.app.settings.sessions.receipt_days:
                    raise Busy("no receipt of the additions could be stored", "the request is forwarded without them")
            _insert(caller, unit, _row_key(said), block.session_id, block.new)
            if time.monotonic() >= deadline:
                raise Busy("the additions were not ready in time", "the request is forwarded without them")
    return Additions(block.session_id, block.block, block.passages, block.recalled)


def _row_key(said: ProxiedConversation) -> str:
    return f"{_CHAIN}{said.chain}" if said.chain else said.key


def find_opening(caller: Caller, said: ProxiedConversation, rows: Mapping[bytes, _Row] | None = None) -> int:
    """Return how many messages come before the first answer that came through here: all of them in a new conversation.

    Answers before that one were invented by the client, or given elsewhere. Some programs begin every conversation with
    the same exchange, so these do not identify a conversation.
    """
    rows = _read_rows(caller, said.key) if rows is None else rows
    places = list_places(said.messages)
    answers = []
    for number, (message, place) in enumerate(zip(said.messages, places, strict=True)):
        if message.role is Role.ASSISTANT:
            answers.append(number)
        elif _BLOCK + place in rows:  # the first request ended here
            return number + 1
    for number in answers[:_MOST_ANSWERS]:
        if find_session(caller, f"{said.key}:{places[number].hex()}") is not None:
            return number
    return len(said.messages)


def build_conversation_key(key: str, messages: Sequence[Message], opening: int) -> str:
    """Return the key under which a conversation is stored: that of its beginning, with the first answer."""
    return f"{key}:{list_places(messages[: opening + 1])[-1].hex()}"


def _find_block(caller: Caller, said: ProxiedConversation, rows: Mapping[bytes, _Row], recall: str) -> _Found:
    if said.chain:
        return _load_block(caller, rows.get(_BLOCK)) or _build_block(caller, said, _BLOCK, recall)
    opening = find_opening(caller, said, rows)
    if opening < len(said.messages):
        return _continue_block(caller, said, rows, opening, recall)
    newest = _BLOCK + list_places(said.messages)[-1]
    window = find_window(caller, split_input(said.messages)[0])
    if window is not None:
        block = _load_block(caller, _find_row(caller, window.key)) or _build_block(caller, said, newest, recall)
        block.session_id = window.session_id
        return block
    begun = rows.get(newest)
    is_again = begun is not None and caller.app.clock.now().timestamp() - begun.created < _START_SECONDS
    again = _load_block(caller, begun) if is_again else None
    return again or _build_block(caller, said, newest, recall)


def _continue_block(
    caller: Caller, said: ProxiedConversation, rows: Mapping[bytes, _Row], opening: int, recall: str
) -> _Found:
    """Return the block of a conversation whose first answer came through here."""
    places = list_places(said.messages)
    own = _BLOCK + places[opening]
    stored = find_session(caller, build_conversation_key(said.key, said.messages, opening))
    window = find_window(caller, split_input(said.messages)[0]) if stored is None else None
    row = rows.get(own) or (
        rows.get(_BLOCK + places[opening - 1]) if window is None else _find_row(caller, window.key)
    )  # fmt: skip
    found = _load_block(caller, row)
    if found is None:
        found = _build_block(caller, said, own, recall)
    elif own not in rows and window is None:
        found.new[own] = found.block
    known = stored or window
    if known is not None:
        found.session_id = known.session_id
    return found


def _load_block(caller: Caller, row: _Row | None) -> _Found | None:
    """Return the block that a row refers to; None without a row, or if the text was removed."""
    if row is None:
        return None
    if not row.text:
        return _Found(row.session_id)
    digest = bytes.fromhex(row.text)
    shared = _read_rows(caller, _SHARED, digest).get(digest)
    return None if shared is None else _Found(row.session_id, shared.text)


def _find_row(caller: Caller, key: str) -> _Row | None:
    """Return the row with the block of a stored conversation, whose key names its beginning and its first answer."""
    beginning, _, answer = key.rpartition(":")
    try:
        return _read_rows(caller, beginning).get(_BLOCK + bytes.fromhex(answer))
    except ValueError:  # a conversation of the agent itself
        return None


def _build_block(caller: Caller, said: ProxiedConversation, place: bytes, recall: str) -> _Found:
    """Build the block from the current memory; an empty block stays empty for the whole conversation."""
    from wellkept.sessions.recall import tokens
    from wellkept.sessions.receipts import NewReceipt, ShownPage

    begun = time.perf_counter()
    found = _Found(new_session_id(caller.app.clock.now(), hex_digits=_HEX_DIGITS))
    block = None if recall == "off" else build_start_block(caller, None, has_tools=False)
    found.block = found.new[place] = block.text if block is not None else ""
    if block is not None:
        receipt = NewReceipt(
            kind="start",
            client=said.client,
            session_id=found.session_id,
            shown=tuple(map(ShownPage, block.pages)),
            tokens=tokens(block.text),
            milliseconds=(time.perf_counter() - begun) * 1_000,
        )
        found.receipts.append(receipt)
    return found


def _recall(caller: Caller, said: ProxiedConversation, place: bytes, found: _Found) -> None:
    """Add the passages for the newest message, if the search is confident of any."""
    from wellkept.formats.messages import remove_machine_blocks
    from wellkept.sessions.receipts import NewReceipt, ShownMessage

    recipient = Recipient(found.session_id, given=find_given(caller, (found.session_id,)), has_tools=False)
    recalled = recall_for_prompt(caller, remove_machine_blocks(said.messages[-1].text), recipient)
    if recalled is None:
        return
    found.passages[len(said.messages) - 1] = found.new[place] = recalled.text
    found.recalled = len(recalled.shown)
    receipt = NewReceipt(
        kind="prompt",
        client=said.client,
        query=recalled.query,
        session_id=found.session_id,
        shown=tuple(ShownMessage(hit.message_id, hit.session_id, hit.score, hit.parts) for hit in recalled.shown),
        candidates=recalled.candidates,
        tokens=recalled.token_count,
        milliseconds=recalled.milliseconds,
    )
    found.receipts.append(receipt)


# the additions of a conversation


def _read_rows(caller: Caller, key: str, place: bytes | None = None) -> dict[bytes, _Row]:
    """Return the additions of a conversation by their place, or the one at `place`."""
    with caller.database.reading() as unit:
        rows = unit.execute(SQL.of_key, {"user": caller.user, "key": key, "place": place})
        return {
            bytes(found): _Row(SessionId(str(session_id)), str(text), float(str(created)))
            for found, session_id, text, created in rows
            if isinstance(found, bytes)
        }


def _insert(caller: Caller, unit: UnitOfWork, key: str, session_id: SessionId, texts: Mapping[bytes, str]) -> None:
    now = caller.app.clock.now().timestamp()
    named = {"user": caller.user, "now": now}
    for place, text in texts.items():
        stored = text
        if place.startswith(_BLOCK) and text:
            digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()[:_HASH_BYTES]
            unit.execute(SQL.put, {**named, "key": _SHARED, "place": digest, "session": "", "text": text})
            stored = digest.hex()
        unit.execute(SQL.put, {**named, "key": key, "place": place, "session": session_id, "text": stored})
    for row in list(unit.execute(SQL.old, (now - _KEPT_SECONDS, _PRUNED_AT_ONCE))):
        unit.execute(SQL.drop, tuple(row))


def freeze_block(
    caller: Caller, said: ProxiedConversation, answer: Sequence[Message], block: str, session_id: SessionId
) -> None:
    """Store the block of a new conversation under its first answer, which identifies it from now on."""
    opening = len(said.messages)
    if said.chain or find_opening(caller, said) < opening or not answer:
        return
    place = _BLOCK + list_places([*said.messages, *answer])[opening]
    with caller.database.writing() as unit:
        _insert(caller, unit, said.key, session_id, {place: block})


def freeze_chain(caller: Caller, response_id: str, block: str, session_id: SessionId) -> None:
    """Store the block and the session for a later request that names the answer it continues."""
    with caller.database.writing() as unit:
        _insert(caller, unit, f"{_CHAIN}{response_id}", session_id, {_BLOCK: block})


class ProxiedAnswer(Struct, frozen=True):
    """What the endpoint answered."""

    messages: tuple[Message, ...] = ()
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    response_id: str = ""
    """Its id, if the endpoint stores the conversation and the next request may name it."""
    is_broken_off: bool = False
    """Whether the client disconnected, or the connection broke, before its end."""


def is_left_alone(caller: Caller, client: str) -> bool:
    """Whether the proxy must not add or store anything: this client has hooks, or all agents are paused."""
    from wellkept.connect.record import load_record

    record = load_record(caller.space.home.connections)
    return record.is_paused or bool(record.of_client(client))


def record_proxied(
    caller: Caller, said: ProxiedConversation, given: Additions | None, answer: ProxiedAnswer
) -> SessionId | None:
    """Store the new messages of an exchange, without what was added to them; None if there are none."""
    caller.require(Scope.WRITE)
    whole = [*said.messages, *answer.messages]
    keeping = Keeping(said.client, said.model or None, given.session_id if given else None, clean_messages, True)
    is_cut = answer.is_broken_off
    with caller.database.writing():
        if said.chain:
            session_id = _append_exchange(caller, said.messages, answer.messages, keeping, is_broken_off=is_cut)
        else:
            key = _find_key(caller, said, whole, keeping.session_id)
            session_id = _record_exchange(caller, key, said.messages, answer.messages, keeping, is_broken_off=is_cut)
        if session_id is None:
            return None
        model = answer.model or said.model
        caller.space.sessions.add_usage(session_id, task="proxy", model=model, usage=answer.usage, cost=None)
        _set_title(caller, session_id, said.messages)
        if given is not None:
            freeze_block(caller, said, answer.messages, given.block, session_id)
        if answer.response_id:
            freeze_chain(caller, answer.response_id, given.block if given else "", session_id)
    return session_id


def _find_key(caller: Caller, said: ProxiedConversation, whole: Sequence[Message], session_id: SessionId | None) -> str:
    """Return the key of a conversation; if the first request of one with a history is repeated, it keeps its key."""
    opening = find_opening(caller, said)
    if session_id is not None and 1 < opening == len(said.messages):
        known = find_key(caller, session_id)
        if known is not None:
            return known
    return build_conversation_key(said.key, whole, opening)


def _record_exchange(
    caller: Caller,
    key: str,
    messages: Sequence[Message],
    answer: Sequence[Message],
    keeping: Keeping,
    *,
    is_broken_off: bool = False,
) -> SessionId | None:
    """Store what is new in a conversation that another program runs, and its answer; None if nothing may be stored.

    All of it is one transaction, so that no part is mistaken for an unfinished turn.
    """
    history, new = split_input(messages)
    turn = [*new, *answer]
    stored = keeping.clean([*history, *turn])
    if all(row is None for row in stored):
        return None
    with caller.database.writing():
        prepared = prepare_conversation(caller, key, history, new, keeping)
        session_id = create_session(caller, keeping) if prepared.session_id is None else prepared.session_id
        rows = stored[len(history) :]
        known = append_messages(caller, session_id, turn, rows, after=prepared.known, is_broken_off=is_broken_off)
        write_history(caller, prepared.key, session_id, known, start=len(prepared.known))
    return session_id


def _append_exchange(
    caller: Caller,
    messages: Sequence[Message],
    answer: Sequence[Message],
    keeping: Keeping,
    *,
    is_broken_off: bool = False,
) -> SessionId | None:
    """Append an exchange whose request contained only new messages to the promised session."""
    turn = [*messages, *answer]
    stored = keeping.clean(turn)
    if all(row is None for row in stored):
        return None
    promised = keeping.session_id
    is_there = promised is not None and caller.space.sessions.session(promised) is not None
    with caller.database.writing():
        session_id = promised if promised is not None and is_there else create_session(caller, keeping)
        append_messages(caller, caller.space.sessions.tip(session_id), turn, stored, is_broken_off=is_broken_off)
    return session_id


def _set_title(caller: Caller, session_id: SessionId, messages: Sequence[Message]) -> None:
    from wellkept.agent.titles import first_words

    session = caller.space.sessions.session(session_id)
    if session is None or session.title:
        return
    said = (message.text for message in clean_messages(messages) if message is not None and message.role is Role.USER)
    title = first_words(next(said, ""))
    if title:
        caller.space.sessions.rename(session_id, title)


def clean_messages(messages: Sequence[Message]) -> list[Message | None]:
    """Return the stored form of each message: without private text, machine context and results of our own tools."""
    from wellkept.formats.messages import Speech
    from wellkept.formats.port import Said

    speech = Speech("")
    kept: list[Message | None] = []
    for message in messages:
        text = message.display_text if message.images else message.text
        match message.role:
            case Role.USER:
                items = speech.prompt("", text, None)
            case Role.TOOL:
                items = speech.result("", text, None, call=message.tool_call_id)
            case _:
                calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
                items = speech.answer("", text, None, calls=calls)
        said = next((item for item in items if isinstance(item, Said)), None)
        kept.append(None if said is None else said.message)
    return kept
