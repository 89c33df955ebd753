"""Preview: exactly what an agent would be given for a project and a prompt, with its tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from wellkept.connect import connect, preview
from wellkept.core.errors import Refused
from wellkept.gateway.requests import Admin, Reader
from wellkept.gateway.web.frame import Checked, Toast, go, refuse, show
from wellkept.operations import memory
from wellkept.operations.sessions import list_projects

router = APIRouter(prefix="/preview", include_in_schema=False, dependencies=[Checked])

_WITHOUT_HOOKS = frozenset({"claude-desktop", "vscode"})
"""Clients that use the memory only through tools and receive nothing automatically."""
_MOST_PROJECTS = 12
Recall = Literal["start", "sure", "off"]


@router.get("")
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
    found = preview.preview_agent(caller, chosen, project=project or None, prompt=prompt, choices=tried)
    return show(
        request,
        "preview.html",
        here="preview",
        title="Preview",
        clients=clients,
        client=chosen,
        project=project,
        projects=list_projects(caller, limit=_MOST_PROJECTS),
        prompt=prompt,
        found=found,
        snapshot=memory.render_snapshot(caller, project=project or None),
        recall=recall or stored.recall,
        sessions=stored.sessions if sessions is None else sessions,
        passages=stored.passages if passages is None else passages,
        is_changed=tried != preview.Choices()
        and preview.Choices(recall or stored.recall, sessions, passages) != stored,
    )


@router.post("")
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
