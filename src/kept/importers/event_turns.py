"""Turns that only an event gives: stored until the transcript has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept.core.messages import Message, Origin, Role
from kept.importers.captures import words_mark
from kept.importers.conversations import EVENT_PREFIX
from kept.importers.port import Conversation, Said
from kept.importers.wording import MOST_CHARS, clean_answer, remove_machine_blocks, remove_private, shorten

if TYPE_CHECKING:
    from kept.importers.capture import Capture
    from kept.importers.spool import WaitingTurn


def store_turn(capture: Capture, turn: WaitingTurn) -> None:
    """Store prompt and answer of a turn, unless an event or a transcript gave it already."""
    prompt = shorten(remove_private(remove_machine_blocks(turn.prompt)).strip(), MOST_CHARS)
    answer = clean_answer(turn.answer) if prompt else ""
    mark = words_mark(prompt)
    # without an id, the same words in both texts are the same turn
    name = turn.turn or f"{mark:08x}{words_mark(answer):08x}"
    items = [
        Said(
            turn.session, f"{EVENT_PREFIX}{turn.session}:{name}:{role.value}", Message(role, text), turn.said_at, origin
        )
        for role, text, origin in (
            (Role.USER, prompt, Origin.PERSON),
            (Role.ASSISTANT, answer, Origin.MODEL),
        )
        if text
    ]
    if not items:
        capture.tally.leave("private" if turn.prompt.strip() else "empty")
        return
    capture.store_event(Conversation(turn.session, folder=turn.project), items, name, mark)
