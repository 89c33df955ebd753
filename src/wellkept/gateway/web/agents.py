"""Agents: which are connected, what they would be given, and receipts of what they were given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Form, Path, Query, Request
from starlette.responses import Response

from wellkept.connect import capture, connect, preview
from wellkept.connect import status as connect_status
from wellkept.core.errors import Refused
from wellkept.gateway.requests import Admin, Reader, Writer
from wellkept.gateway.web.charts import split_score
from wellkept.gateway.web.frame import Checked, Toast, go, refuse, safe_address, show
from wellkept.gateway.web.home import find_condition
from wellkept.operations import memory, receipts, sessions
from wellkept.operations.sessions import list_projects
from wellkept.sessions.receipts import Mark, ShownMessage, ShownPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.sessions.receipts import Receipt

router = APIRouter(include_in_schema=False, dependencies=[Checked])

Name = Annotated[str, Path(max_length=40)]


@router.get("/agents")
def show_agents(request: Request, caller: Admin) -> Response:
    """Show the state of every client."""
    status = connect_status.read_status(caller)
    connected = [(client, find_condition(client)) for client in status.clients if client.connected]
    has_store = caller.app.has_database
    captured = capture.report_captures(caller) if has_store else None
    return show(
        request,
        "agents.html",
        connected=connected,
        others=[one for one in status.clients if not one.connected],
        is_paused=status.is_paused,
        note=status.note,
        captured={one.client: one for one in captured.clients} if captured else {},
        spooled=captured.spooled if captured else 0,
        settings=preview.read_choices(caller),
        excluded=caller.app.settings.connect.exclude,
    )


@router.post("/agents/pause")
def pause(caller: Admin, paused: Annotated[str, Form()] = "") -> Response:
    """Pause capture and recall of every agent, or resume them."""
    connect.set_paused(caller, paused=bool(paused))
    if paused:
        return go("/agents", Toast("Paused: nothing is stored and nothing is given.", "/agents/pause"))
    return go("/agents", Toast("Capture and recall are resumed.", "/agents/pause", {"paused": "1"}))


@router.get("/agents/{client}/connect")
def plan_connect(request: Request, caller: Admin, client: Name) -> Response:
    """Show what connecting a client would write, and where."""
    return _show_plan(request, client, connect.plan_connect(caller, [client]), verb="connect")


@router.post("/agents/{client}/connect")
def connect_client(request: Request, caller: Admin, client: Name) -> Response:
    """Write the files of a client, with backups."""
    done = connect.connect(caller, [client])
    if isinstance(done, Refused):
        return _show_plan(request, client, done, verb="connect")
    steps = " ".join(one.next_step for one in done.clients if one.next_step)
    return go("/agents", Toast(f"{client} is connected. {steps}".strip(), f"/agents/{client}/disconnect"))


@router.get("/agents/{client}/disconnect")
def plan_disconnect(request: Request, caller: Admin, client: Name) -> Response:
    """Show what disconnecting a client would change."""
    return _show_plan(request, client, connect.plan_disconnect(caller, [client]), verb="disconnect")


@router.post("/agents/{client}/disconnect")
def disconnect_client(caller: Admin, client: Name) -> Response:
    """Remove everything that was written; captured conversations stay."""
    done = connect.disconnect(caller, [client])
    if isinstance(done, Refused):
        return refuse("/agents", done)
    return go("/agents", Toast(f"{client} is disconnected; its files are restored.", f"/agents/{client}/connect"))


def _show_plan(request: Request, client: str, plan: connect.ConnectPlan | Refused, *, verb: str) -> Response:
    refused = plan if isinstance(plan, Refused) else None
    changes = [] if isinstance(plan, Refused) else [change for one in plan.clients for change in one.changes]
    return show(
        request,
        "agents_plan.html",
        status=422 if refused else 200,
        title=f"{verb.capitalize()} {client}",
        client=client,
        verb=verb,
        refused=refused,
        changes=[change.as_json() for change in changes if change.action != "none"],
    )


_WITHOUT_HOOKS = frozenset({"claude-desktop", "vscode"})
"""Clients that use the memory only through tools and receive nothing automatically."""
_MOST_PROJECTS = 12
Recall = Literal["start", "sure", "off"]


@router.get("/preview")
def show_preview(  # noqa: PLR0913, PLR0917 - the fields of the form
    request: Request,
    caller: Reader,
    client: Annotated[str, Query(max_length=40)] = "claude-code",
    project: Annotated[str, Query(max_length=1_000)] = "",
    prompt: Annotated[str, Query(max_length=4_000)] = "",
    recall: Recall | None = None,
    sessions: Annotated[int | None, Query(ge=0, le=10)] = None,
    passages: Annotated[int | None, Query(ge=1, le=3)] = None,
) -> Response:
    """Show what a client would be given, with the stored settings or with those of the form."""
    clients = [name for name in connect.client_names() if name not in _WITHOUT_HOOKS]
    chosen = client if client in clients else clients[0]
    stored = preview.read_choices(caller)
    tried = preview.Choices(recall, sessions, passages)
    given = preview.preview_agent(caller, chosen, project=project or None, prompt=prompt, choices=tried)
    return show(
        request,
        "preview.html",
        clients=clients,
        client=chosen,
        project=project,
        projects=list_projects(caller, limit=_MOST_PROJECTS),
        prompt=prompt,
        found=given,
        snapshot=memory.render_snapshot(caller, project=project or None),
        recall=recall or stored.recall,
        sessions=stored.sessions if sessions is None else sessions,
        passages=stored.passages if passages is None else passages,
        is_changed=tried != preview.Choices()
        and preview.Choices(recall or stored.recall, sessions, passages) != stored,
    )


@router.post("/preview")
def save_choices(
    caller: Admin,
    recall: Annotated[Recall, Form()],
    sessions: Annotated[int, Form(ge=0, le=10)],
    passages: Annotated[int, Form(ge=1, le=3)],
) -> Response:
    """Store the settings that were tried out."""
    before = preview.read_choices(caller)
    done = preview.save_choices(caller, preview.Choices(recall, sessions, passages))
    if isinstance(done, Refused):
        return refuse("/preview", done)
    fields = {"recall": str(before.recall), "sessions": str(before.sessions), "passages": str(before.passages)}
    return go("/preview", Toast("Saved. Agents are given this from their next event on.", "/preview", fields))


_PAGE = 50
_CLIENTS_FROM = 300
"""From how many of the newest receipts the names of clients for the filter are read."""
_SAID = {Mark.USEFUL: "Marked as useful.", Mark.WRONG: "Marked as wrong.", Mark.NEVER: "It is never recalled again."}
Number = Annotated[int, Path(ge=1, le=2**53)]


@router.get("/receipts")
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
        found, clients = chosen, tuple(dict.fromkeys(receipt.content.client for receipt in newest))
    session_ids = [receipt.content.session_id for receipt in found[:_PAGE] if receipt.content.session_id]
    return show(
        request,
        "receipts.html",
        receipts=found[:_PAGE],
        older=found[_PAGE - 1].id if len(found) > _PAGE else None,
        kind=kind,
        client=client,
        clients=clients,
        often=often,
        often_shown=receipts.find_often_shown(caller) if often and has_store else [],
        titles=sessions.read_titles(caller, session_ids),
    )


@router.get("/receipts/{number}")
def show_receipt(request: Request, caller: Reader, number: Number) -> Response:
    """Show what was given, with the parts of each score."""
    receipt = receipts.show_receipt(caller, number)
    messages = [
        (
            item,
            receipt.excerpts.get(item.message_id),
            split_score(item.parts),
            receipt.receipt.marks.get(item.message_id),
        )
        for item in receipt.receipt.content.shown
        if isinstance(item, ShownMessage)
    ]
    content = receipt.receipt.content
    named = [str(one.session_id) for one, *_ in messages] + ([content.session_id] if content.session_id else [])
    listed = [item.session_id for item in content.shown if not isinstance(item, ShownMessage | ShownPage)]
    return show(
        request,
        "receipt.html",
        title=f"Receipt {receipt.receipt.id}",
        receipt=receipt.receipt,
        messages=messages,
        pages=[item.page for item in content.shown if isinstance(item, ShownPage)],
        listed=listed,
        titles=sessions.read_titles(caller, [*named, *map(str, listed)]),
        marks=list(Mark),
    )


@router.post("/receipts/{number}/mark")
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
