"""Conversations that the proxy forwards: which messages are stored, and in which session.

`gateway/state/proxy_additions.py` has what is added to their requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Scope
from wellkept.core.messages import Message, Role, Usage
from wellkept.gateway.state.client_histories import (
    Keeping,
    append_messages,
    create_session,
    prepare_conversation,
    split_input,
    write_history,
)
from wellkept.gateway.state.conversation_keys import find_key
from wellkept.gateway.state.proxy_additions import build_conversation_key, find_opening, freeze_block, freeze_chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.app.caller import Caller
    from wellkept.core.ids import SessionId
    from wellkept.gateway.state.proxy_additions import Additions, ProxiedConversation


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
    if all(one is None for one in stored):
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
    if all(one is None for one in stored):
        return None
    promised = keeping.session_id
    is_there = promised is not None and caller.space.sessions.session(promised) is not None
    with caller.database.writing():
        session_id = promised if promised is not None and is_there else create_session(caller, keeping)
        append_messages(caller, caller.space.sessions.tip(session_id), turn, stored, is_broken_off=is_broken_off)
    return session_id


def _set_title(caller: Caller, session_id: SessionId, messages: Sequence[Message]) -> None:
    from wellkept.agent.record import first_words

    session = caller.space.sessions.session(session_id)
    if session is None or session.title:
        return
    said = (one.text for one in clean_messages(messages) if one is not None and one.role is Role.USER)
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
