"""Receipts: each time a model was given part of the memory: what, to whom, why, and whether it was useful."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Form, Path, Query, Request
from starlette.responses import Response

from wellkept.core.errors import Refused
from wellkept.gateway.requests import Reader, Writer
from wellkept.gateway.web.charts import split_score
from wellkept.gateway.web.frame import Checked, Toast, go, refuse, safe_address, show
from wellkept.operations import receipts, sessions
from wellkept.sessions.receipts import Mark, ShownMessage, ShownPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.sessions.receipts import Receipt

router = APIRouter(prefix="/receipts", include_in_schema=False, dependencies=[Checked])

_PAGE = 50
_CLIENTS_FROM = 300
"""From how many of the newest receipts the names of clients for the filter are read."""
_SAID = {Mark.USEFUL: "Marked as useful.", Mark.WRONG: "Marked as wrong.", Mark.NEVER: "It is never recalled again."}
Number = Annotated[int, Path(ge=1, le=2**53)]


@router.get("")
def list_receipts(
    request: Request,
    caller: Reader,
    kind: Annotated[str, Query(max_length=20)] = "",
    client: Annotated[str, Query(max_length=200)] = "",
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    often: bool = False,
) -> Response:
    """Show the newest receipts, or what was shown often and never marked."""
    has_store = bool(sessions.count_stored(caller).sessions)
    found: Sequence[Receipt] = ()
    clients: Sequence[str] = ()
    if has_store:
        chosen = receipts.list_receipts(
            caller, limit=_PAGE + 1, before=before, kind=kind or None, client=client or None
        ).receipts
        newest = receipts.list_receipts(caller, limit=_CLIENTS_FROM).receipts
        found, clients = chosen, tuple(dict.fromkeys(one.content.client for one in newest))
    session_ids = [one.content.session_id for one in found[:_PAGE] if one.content.session_id]
    return show(
        request,
        "receipts.html",
        here="receipts",
        title="Receipts",
        receipts=found[:_PAGE],
        older=found[_PAGE - 1].id if len(found) > _PAGE else None,
        kind=kind,
        client=client,
        clients=clients,
        often=often,
        often_shown=receipts.find_often_shown(caller) if often and has_store else [],
        titles=sessions.read_titles(caller, session_ids),
    )


@router.get("/{number}")
def show_receipt(request: Request, caller: Reader, number: Number) -> Response:
    """Show what was given, with the parts of each score."""
    found = receipts.show_receipt(caller, number)
    messages = [
        (one, found.excerpts.get(one.message_id), split_score(one.parts), found.receipt.marks.get(one.message_id))
        for one in found.receipt.content.shown
        if isinstance(one, ShownMessage)
    ]
    content = found.receipt.content
    named = [str(one.session_id) for one, *_ in messages] + ([content.session_id] if content.session_id else [])
    listed = [one.session_id for one in content.shown if not isinstance(one, ShownMessage | ShownPage)]
    return show(
        request,
        "receipt.html",
        here="receipts",
        title=f"Receipt {found.receipt.id}",
        receipt=found.receipt,
        messages=messages,
        pages=[one.page for one in content.shown if isinstance(one, ShownPage)],
        listed=listed,
        titles=sessions.read_titles(caller, [*named, *map(str, listed)]),
        marks=list(Mark),
    )


@router.post("/{number}/mark")
def mark_receipt(
    caller: Writer,
    number: Number,
    mark: Annotated[str, Form()] = "",
    message: Annotated[int | None, Form()] = None,
    to: Annotated[str, Form()] = "",
) -> Response:
    """Mark a message of a receipt, or remove its mark."""
    place = safe_address(to, f"/receipts/{number}")
    target = {"message": str(message)} if message is not None else {}
    address = f"/receipts/{number}/mark"
    if not mark:
        gone = receipts.undo_mark(caller, number, message_id=message)
        return refuse(place, gone) if isinstance(gone, Refused) else go(place, Toast("The mark is removed."))
    chosen = Mark(mark)
    done = receipts.mark_receipt(caller, number, chosen, message_id=message)
    if isinstance(done, Refused):
        return refuse(place, done)
    return go(place, Toast(_SAID[chosen], address, {**target, "to": place}))
