"""Receipts: what a model was shown of the stored memory, for which query, and how people marked it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NewType, TypeAlias

from msgspec import Struct, field

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.values import JsonStruct

if TYPE_CHECKING:
    from wellkept.core.search import FoundSession
    from wellkept.core.text import JSON

ReceiptId = NewType("ReceiptId", int)
ReceiptKind: TypeAlias = Literal["start", "prompt", "search", "tool"]
"""What produced the answer: session start, recall on prompt, a search by the model, another tool of the model."""


class Mark(StrEnum):
    """What a person says about something that was shown."""

    USEFUL = "useful"
    WRONG = "wrong"
    NEVER = "never"
    """Keeps the message out of automatic recall."""


class ShownMessage(Struct, frozen=True):
    """A message that the model was given, with its score and the parts of it; a message without one was not ranked."""

    message_id: MessageId
    session_id: SessionId
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, JSON]:
        """Return ids, score and parts."""
        score = None if self.score is None else round(self.score, 6)
        parts = {name: round(value, 6) for name, value in self.parts.items()}
        return {"message_id": self.message_id, "session_id": self.session_id, "score": score, "parts": parts}


class ShownSession(JsonStruct, frozen=True):
    """A session that the model was given as a line of a list, or read as a whole."""

    session_id: SessionId


class ShownPage(JsonStruct, frozen=True):
    """A page of curated memory that the model was given, by its target."""

    page: str


Shown: TypeAlias = ShownMessage | ShownSession | ShownPage


def shown_in(answer: Mapping[str, JSON], ranked: Sequence[FoundSession] = ()) -> tuple[Shown, ...]:
    """Return what an answer of `session_search` shows: matches with their scores, the anchor of a window, sessions."""
    scores = {hit.best_message_id: hit for hit in ranked}
    results, messages = answer.get("results"), answer.get("messages")
    if isinstance(messages, list):
        session_id = SessionId(str(answer.get("session_id")))
        anchors = [message["id"] for message in messages if isinstance(message, dict) and message.get("anchor")]
        return tuple(ShownMessage(MessageId(message_id), session_id) for message_id in anchors) or (
            ShownSession(session_id),
        )
    shown: list[Shown] = []
    for result in results if isinstance(results, list) else []:
        session_id, message_id = SessionId(str(result["session_id"])), result.get("match_message_id")
        if message_id is None:
            shown.append(ShownSession(session_id))
        else:
            hit = scores.get(message_id)
            shown.append(ShownMessage(message_id, session_id, hit.score if hit else None, hit.parts if hit else {}))
    return tuple(shown)


class NewReceipt(Struct, frozen=True, kw_only=True):
    """One answer or injection, before it is stored."""

    kind: ReceiptKind
    client: str
    """The program that the model runs in: `cli`, `claude-code`, …"""
    query: str = ""
    session_id: SessionId | None = None
    """The session that was given the answer."""
    project: str | None = None
    shown: Sequence[Shown] = ()
    candidates: int = 0
    """How many messages were considered."""
    tokens: int = 0
    milliseconds: float = 0.0


class Receipt(Struct, frozen=True):
    """A stored receipt with its marks; the key of a mark is the message, or None for the receipt as a whole."""

    id: ReceiptId
    created: float
    content: NewReceipt
    marks: Mapping[MessageId | None, Mark] = field(default_factory=dict)

    @property
    def message_ids(self) -> tuple[MessageId, ...]:
        """Return the messages that were shown."""
        return tuple(dict.fromkeys(item.message_id for item in self.content.shown if isinstance(item, ShownMessage)))
