"""Settling a turn: kept with its queued provider writes in one transaction, then told to whoever listens."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.core.ids import MessageId
from kept.core.messages import NewMessage
from kept.core.ports import UnitOfWork

if TYPE_CHECKING:
    from kept.agent.live import Live
    from kept.agent.turn import Turn
    from kept.providers.manager import ProviderManager


def settle(live: "Live", turn: "Turn", closing: NewMessage) -> None:
    """Store the end of the turn; a finished one goes to the providers' outbox in the same transaction."""
    if live.parts.providers is None:
        live.record.add([closing])
    else:
        _with_providers(live, turn, closing, live.parts.providers)
    live.settle_turn(turn)


def _with_providers(live: "Live", turn: "Turn", closing: NewMessage, providers: "ProviderManager") -> None:
    # imported here, because most conversations have no provider and the manager is slow to load
    from kept.providers.content import plain_messages
    from kept.providers.writes import FinishedTurn

    rows = live.record.rows[turn.first_row :] if turn.first_row <= len(live.record.rows) else live.record.rows[-1:]
    finished = FinishedTurn(
        session_id=live.record.session.id,
        key="",
        user=turn.text,
        assistant="" if closing.interrupted else turn.answer,
        messages=plain_messages([*(row.message for row in rows), closing.message]),
        interrupted=closing.interrupted,
    )

    def beside(unit: UnitOfWork, ids: Sequence[MessageId]) -> None:
        if ids:
            providers.writes.queue_turn(unit, replace(finished, key=str(ids[-1])))

    live.record.add([closing], beside=beside)
    providers.writes.after_turn(finished)
