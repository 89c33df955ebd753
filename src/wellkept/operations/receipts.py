"""Receipts: what models were shown of one user's memory, and how a person marks it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import NotFound, Reason, Refused, StorageError
from wellkept.core.ids import MessageId, SessionId, SourceName
from wellkept.core.text import JSON, one_line
from wellkept.core.values import JsonStruct
from wellkept.sessions.recall import when
from wellkept.sessions.receipts import Mark, NewReceipt, Receipt, ReceiptId, ReceiptKind, Shown

MOST_EXCERPT = 200
_MOST_COUNTED = 1_000
"""How many of the newest receipts are read to find what was shown often."""


def record_receipt(  # noqa: PLR0913 - one keyword per field of a receipt
    caller: Caller,
    *,
    kind: ReceiptKind,
    client: str,
    query: str = "",
    session: str | None = None,
    project: str | None = None,
    shown: Sequence[Shown] = (),
    candidates: int = 0,
    tokens: int = 0,
    milliseconds: float = 0.0,
) -> ReceiptId | None:
    """Record what a model was given; call this after sending the answer. Never raises; None if it is not stored."""
    receipt = NewReceipt(
        kind=kind,
        client=client,
        query=query,
        session_id=None if session is None else SessionId(session),
        project=project,
        shown=tuple(shown),
        candidates=candidates,
        tokens=tokens,
        milliseconds=milliseconds,
    )
    try:
        return caller.space.sessions.receipts.add(receipt)
    except StorageError:  # the database cannot even be opened; the answer itself has reported that
        return None


class ReceiptList(Struct, frozen=True):
    """The newest receipts."""

    receipts: tuple[Receipt, ...]

    def as_json(self) -> list[JSON]:
        """Return one object per receipt."""
        return [receipt_json(receipt) for receipt in self.receipts]


def list_receipts(
    caller: Caller,
    *,
    limit: int = 20,
    before: int | None = None,
    kind: str | None = None,
    client: str | None = None,
    session: str | None = None,
) -> ReceiptList:
    """Return the newest receipts, older than the id `before` where given."""
    found = caller.space.sessions.receipts.recent(
        limit=limit,
        before=None if before is None else ReceiptId(before),
        kind=kind,
        client=client,
        session_id=None if session is None else SessionId(session),
    )
    return ReceiptList(tuple(found))


class ShownReceipt(Struct, frozen=True):
    """One receipt, with the beginning of each message that still exists."""

    receipt: Receipt
    excerpts: dict[MessageId, str]
    sources: dict[MessageId, SourceName]
    """The sources of texts that are not their author's own."""

    def as_json(self) -> dict[str, JSON]:
        """Return the receipt; each message with its text, None if it no longer exists."""
        value = receipt_json(self.receipt)
        items: list[JSON] = []
        for one in self.receipt.content.shown:
            item = one.as_json()
            number = item.get("message_id")
            if isinstance(number, int):
                mark = self.receipt.marks.get(MessageId(number))
                item |= {"text": self.excerpts.get(MessageId(number)), "mark": mark.value if mark else None}
                if MessageId(number) in self.sources:
                    item["from"] = self.sources[MessageId(number)]
            items.append(item)
        return {**value, "shown": items}


def show_receipt(caller: Caller, receipt: int) -> ShownReceipt:
    """Return one receipt with the texts that it refers to; raises NotFound."""
    found = _find(caller, receipt)
    messages = caller.space.sessions.messages_by_id(found.message_ids)
    excerpts = {message.id: one_line(message.message.display_text, width=MOST_EXCERPT) for message in messages}
    return ShownReceipt(found, excerpts, {one.id: one.source for one in messages if one.source is not None})


class Marked(Struct, frozen=True):
    """The marks of a receipt after a change."""

    receipt: Receipt

    def as_json(self) -> dict[str, JSON]:
        """Return the id and its marks."""
        return {"success": True, "id": self.receipt.id, "marks": _marks_json(self.receipt)}


def mark_receipt(caller: Caller, receipt: int, mark: Mark, *, message_id: int | None = None) -> Marked | Refused:
    """Mark one message of a receipt, or without `message_id` all of them; `never` ends their automatic recall."""
    caller.require(Scope.WRITE)
    found = _find(caller, receipt)
    shown = found.message_ids
    if message_id is not None and message_id not in shown:
        return Refused(
            Reason.NO_MATCH,
            f"receipt {found.id} does not show message {message_id}",
            f"see what it shows with `kept receipts show {found.id}`",
        )
    if mark is Mark.NEVER and not shown:
        return Refused(
            Reason.INVALID,
            f"receipt {found.id} shows no message that could be left out",
            "mark it useful or wrong; to change a page, use `kept memory`",
        )
    chosen = shown if message_id is None else (MessageId(message_id),)
    caller.space.sessions.receipts.mark(found.id, chosen, mark)
    return Marked(_find(caller, receipt))


class Unmarked(JsonStruct, frozen=True):
    """How many marks were removed."""

    receipt_id: ReceiptId = field(name="id")
    count: int = field(name="removed")

    def as_json(self) -> dict[str, JSON]:
        """Return the id and the count."""
        return {"success": True, **super().as_json()}


def undo_mark(caller: Caller, receipt: int, *, message_id: int | None = None) -> Unmarked | Refused:
    """Remove the marks of a receipt, or of one message in it, even if the receipt itself has expired."""
    caller.require(Scope.WRITE)
    number = ReceiptId(receipt)
    count = caller.space.sessions.receipts.unmark(number, None if message_id is None else MessageId(message_id))
    if count == 0:
        return Refused(Reason.NO_MATCH, f"receipt {receipt} has no such mark", "see `kept receipts list`")
    return Unmarked(number, count)


class OftenShown(Struct, frozen=True):
    """A message that models were given often, and that nobody marked as useful."""

    message_id: MessageId
    session_id: SessionId
    count: int
    last: Receipt
    text: str

    def as_json(self) -> dict[str, JSON]:
        """Return the message, how often it was shown, and the newest receipt of it."""
        return {
            "message_id": self.message_id,
            "session_id": self.session_id,
            "count": self.count,
            "receipt_id": self.last.id,
            "text": self.text,
        }


def find_often_shown(caller: Caller, *, least: int = 5, limit: int = 50) -> list[OftenShown]:
    """Return messages that were shown at least `least` times and never marked, the most frequent first."""
    store = caller.space.sessions
    shown: dict[MessageId, list[Receipt]] = {}
    marked: set[MessageId | None] = set()
    for receipt in store.receipts.recent(limit=_MOST_COUNTED):
        marked |= set(receipt.marks)
        for number in receipt.message_ids:
            shown.setdefault(number, []).append(receipt)
    often = {number: found for number, found in shown.items() if len(found) >= least and number not in marked}
    ranked = sorted(often, key=lambda number: -len(often[number]))[:limit]
    texts = {one.id: one for one in store.messages_by_id(ranked)}
    return [
        OftenShown(
            number,
            texts[number].session_id,
            len(often[number]),
            often[number][0],
            one_line(texts[number].message.display_text, width=MOST_EXCERPT),
        )
        for number in ranked
        if number in texts
    ]


def _find(caller: Caller, receipt: int) -> Receipt:
    found = caller.space.sessions.receipts.find(ReceiptId(receipt))
    if found is None:
        raise NotFound(f"there is no receipt {receipt}", "see `kept receipts list`")
    return found


def receipt_json(receipt: Receipt) -> dict[str, JSON]:
    """Return a receipt as JSON: ids and figures, no text but the query."""
    content = receipt.content
    return {
        "id": receipt.id,
        "created": when(receipt.created),
        "kind": content.kind,
        "client": content.client,
        "query": content.query,
        "session_id": content.session_id,
        "project": content.project,
        "candidates": content.candidates,
        "tokens": content.tokens,
        "milliseconds": round(content.milliseconds, 1),
        "shown": [one.as_json() for one in content.shown],
        "marks": _marks_json(receipt),
    }


def _marks_json(receipt: Receipt) -> list[JSON]:
    return [{"message_id": number, "mark": mark.value} for number, mark in receipt.marks.items()]
