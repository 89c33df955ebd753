"""Agents: which clients are connected, whether their turns arrive, and how to connect another one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Path, Request
from starlette.responses import Response

from wellkept.connect import capture, connect, preview
from wellkept.connect import status as connect_status
from wellkept.core.errors import Refused
from wellkept.gateway.requests import Admin
from wellkept.gateway.web.frame import Checked, Toast, go, refuse, show
from wellkept.gateway.web.home import find_condition

router = APIRouter(prefix="/agents", include_in_schema=False, dependencies=[Checked])

Name = Annotated[str, Path(max_length=40)]


@router.get("")
def show_agents(request: Request, caller: Admin) -> Response:
    """Show the state of every client."""
    found = connect_status.read_status(caller)
    connected = [(one, find_condition(one)) for one in found.clients if one.connected]
    has_store = caller.app.has_database
    captured = capture.report_captures(caller) if has_store else None
    return show(
        request,
        "agents.html",
        here="agents",
        title="Agents",
        connected=connected,
        others=[one for one in found.clients if not one.connected],
        is_paused=found.is_paused,
        note=found.note,
        captured={one.client: one for one in captured.clients} if captured else {},
        spooled=captured.spooled if captured else 0,
        settings=preview.read_choices(caller),
        excluded=caller.app.settings.connect.exclude,
    )


@router.post("/pause")
def pause(caller: Admin, paused: Annotated[str, Form()] = "") -> Response:
    """Pause capture and recall of every agent, or resume them."""
    connect.set_paused(caller, paused=bool(paused))
    if paused:
        return go("/agents", Toast("Paused: nothing is stored and nothing is given.", "/agents/pause"))
    return go("/agents", Toast("Capture and recall are resumed.", "/agents/pause", {"paused": "1"}))


@router.get("/{client}/connect")
def plan_connect(request: Request, caller: Admin, client: Name) -> Response:
    """Show what connecting a client would write, and where."""
    return _show_plan(request, client, connect.plan_connect(caller, [client]), verb="connect")


@router.post("/{client}/connect")
def connect_client(request: Request, caller: Admin, client: Name) -> Response:
    """Write the files of a client, with backups."""
    done = connect.connect(caller, [client])
    if isinstance(done, Refused):
        return _show_plan(request, client, done, verb="connect")
    steps = " ".join(one.next_step for one in done.clients if one.next_step)
    return go("/agents", Toast(f"{client} is connected. {steps}".strip(), f"/agents/{client}/disconnect"))


@router.get("/{client}/disconnect")
def plan_disconnect(request: Request, caller: Admin, client: Name) -> Response:
    """Show what disconnecting a client would change."""
    return _show_plan(request, client, connect.plan_disconnect(caller, [client]), verb="disconnect")


@router.post("/{client}/disconnect")
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
        here="agents",
        title=f"{verb.capitalize()} {client}",
        client=client,
        verb=verb,
        refused=refused,
        changes=[change.as_json() for change in changes if change.action != "none"],
    )
