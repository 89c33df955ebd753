"""Settling a turn: kept with its queued provider writes in one transaction, then told to whoever listens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kept.core.ids import MessageId
from kept.core.messages import NewMessage, StoredMessage
from kept.core.ports import UnitOfWork
from kept.providers.conversation import plain_messages
from kept.providers.manager import FinishedTurn

if TYPE_CHECKING:
    from kept.agent.live import Live
    from kept.agent.turn import Turn


def settle(live: "Live", turn: "Turn", closing: NewMessage) -> None:
    """Store the end of the turn; a finished one goes to the providers' outbox in the same transaction."""
    parts, record = live.parts, live.record
    rows = record.rows[turn.first_row :] if turn.first_row <= len(record.rows) else record.rows[-1:]
    finished = _finished(live, turn, closing, rows)

    def beside(unit: UnitOfWork, ids: Sequence[MessageId]) -> None:
        if parts.providers is not None and ids:
            parts.providers.queue_turn(unit, _keyed(finished, ids))

    record.add([closing], beside=beside)
    if parts.providers is not None:
        parts.providers.after_turn(finished)
    live.turn_settled(turn)


def _finished(live: "Live", turn: "Turn", closing: NewMessage, rows: Sequence[StoredMessage]) -> FinishedTurn:
    messages = [row.message for row in rows] + [closing.message]
    return FinishedTurn(
        session_id=live.record.session.id,
        key="",
        user=turn.text,
        assistant="" if closing.interrupted else turn.answer,
        messages=plain_messages(messages),
        interrupted=closing.interrupted,
    )


def _keyed(finished: FinishedTurn, ids: Sequence[MessageId]) -> FinishedTurn:
    from dataclasses import replace

    return replace(finished, key=str(ids[-1]))
