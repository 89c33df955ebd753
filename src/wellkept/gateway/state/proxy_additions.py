"""What the proxy adds to the requests of a conversation, frozen.

The block is added to every request of a conversation and never changes within it. Passages stay with the message for
which they were found. Both are stored under a hash of the messages before them, so that each later request gets the
same bytes in the same places: the endpoint's cache depends on it. The first answer distinguishes a conversation from
others with the same beginning.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Scope
from wellkept.core.errors import Busy
from wellkept.core.ids import SessionId, new_session_id
from wellkept.core.messages import Message, Role
from wellkept.gateway.state.client_histories import find_window, hash_message, split_input
from wellkept.gateway.state.conversation_keys import find_session
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
SQL = statements("wellkept.gateway.state", "proxy_additions.sql")


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
    found = _find_block(caller, said, rows, recall)
    places = list_places(said.messages)
    for position, place in enumerate(places):
        if place in rows and said.messages[position].role is Role.USER:
            found.passages[position] = rows[place].text
    if recall == "sure" and said.messages[-1].role is Role.USER and places[-1] not in rows:
        _recall(caller, said, places[-1], found)
    if found.new:
        _write_down(caller, said, found, deadline)
    return Additions(found.session_id, found.block, found.passages, found.recalled)


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
        found = _load_block(caller, _find_row(caller, window.key)) or _build_block(caller, said, newest, recall)
        found.session_id = window.session_id
        return found
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
    from wellkept.importers.typed_text import remove_machine_blocks
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


def _write_down(caller: Caller, said: ProxiedConversation, found: _Found, deadline: float) -> None:
    """Store new additions and their receipts in one transaction; raises Busy if that takes too long."""
    receipts = caller.space.sessions.receipts
    wait = max(_LEAST_WAIT_SECONDS, deadline - time.monotonic())
    with caller.database.limit_wait(wait), caller.database.writing() as unit:
        for receipt in found.receipts:
            is_stored = receipts.add(receipt, wait_seconds=wait) is not None
            if not is_stored and caller.app.settings.sessions.receipt_days:
                raise Busy("no receipt of the additions could be stored", "the request is forwarded without them")
        _insert(caller, unit, _row_key(said), found.session_id, found.new)
        if time.monotonic() >= deadline:
            raise Busy("the additions were not ready in time", "the request is forwarded without them")


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
