"""Home: what needs attention, recent changes, what agents were shown today, and the agents."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Annotated

import anyio
from fastapi import APIRouter, Form, Request
from msgspec import Struct
from starlette.responses import Response

from wellkept.agent.offload import offload
from wellkept.app import Scope
from wellkept.connect import status as connect_status
from wellkept.core.errors import KeptError, Refused
from wellkept.core.text import one_line
from wellkept.gateway.requests import Reader, Writer, get_turns
from wellkept.gateway.streams import StreamedAnswer, Write, sse
from wellkept.gateway.web.frame import Checked, Toast, go, refuse, show
from wellkept.imports import sources as import_sources
from wellkept.operations import memory, news, receipts, sessions

if TYPE_CHECKING:
    from wellkept.app import Caller
    from wellkept.connect.status import ClientStatus
    from wellkept.imports.sources import FoundSource
    from wellkept.operations.news import Pulse
    from wellkept.sessions.receipts import Receipt

log = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False, dependencies=[Checked])

_DAY = 86_400.0
_MOST_RECEIPTS = 200
_LOOK_SECONDS = 2.0
"""How often an open page is notified of new data."""
_SILENCE_SECONDS = 20.0
"""After this time without changes an empty line is sent, so that both sides notice a broken connection."""


class ShownToday(Struct, frozen=True):
    """How much of the memory agents were given in the last day."""

    count: int
    tokens: int
    by_client: dict[str, int]
    newest: tuple[Receipt, ...]


@router.get("/")
def show_home(request: Request, caller: Reader) -> Response:
    """Show recent changes and pending decisions."""
    is_admin = Scope.ADMIN in caller.scopes
    agents = connect_status.read_status(caller) if is_admin else None
    connected = [client for client in agents.clients if client.connected] if agents else []
    stored = sessions.count_stored(caller)
    written = memory.count_entries(caller)
    changes = news.list_changes(caller)
    return show(
        request,
        "home.html",
        needs=news.list_needs(caller, agents.clients if agents else ()),
        changes=changes,
        titles=sessions.read_titles(caller, [group.session_id for group in changes.groups if group.session_id]),
        today=sum_receipts(caller),
        agents=[(agent, find_condition(agent)) for agent in connected],
        is_paused=agents.is_paused if agents else False,
        found_clients=[agent.client for agent in agents.clients if agent.installed and not agent.connected]
        if agents
        else [],
        sources=_find_sources(caller) if is_admin and not stored.messages else (),
        stored=stored,
        entries=written,
        is_empty=not stored.messages and not written and not changes.total,
    )


def _find_sources(caller: Caller) -> tuple[FoundSource, ...]:
    sources = import_sources.find_sources(caller)
    return () if isinstance(sources, Refused) else sources.sources


def sum_receipts(caller: Caller) -> ShownToday:
    """Return what agents were given in the last day."""
    since = time.time() - _DAY
    newest = [
        receipt for receipt in receipts.list_receipts(caller, limit=_MOST_RECEIPTS).receipts if receipt.created >= since
    ]  # fmt: skip
    clients: dict[str, int] = {}
    for receipt in newest:
        clients[receipt.content.client] = clients.get(receipt.content.client, 0) + 1
    return ShownToday(len(newest), sum(receipt.content.tokens for receipt in newest), clients, tuple(newest[:5]))


def find_condition(agent: ClientStatus) -> str:
    """Return whether turns of an agent arrive: `live`, `quiet` or `broken`."""
    if agent.next_step and agent.errors:
        return "broken"
    last = max(filter(None, (agent.last_event, agent.last_captured)), default=0.0)
    return "live" if time.time() - last < news.QUIET_DAYS * _DAY else "quiet"


@router.post("/changes/keep")
def keep_group(caller: Writer, group: Annotated[str, Form()], back: Annotated[str, Form()] = "") -> Response:
    """Remove a group of changes from the list, or put it back."""
    news.keep_group(caller, group, kept=not back)
    if back:
        return go("/", Toast("It is in the list again."))
    return go("/", Toast("Kept.", "/changes/keep", {"group": group, "back": "1"}))


@router.post("/changes/keep-all")
def keep_all(caller: Writer, up_to: Annotated[int, Form()]) -> Response:
    """Remove all changes from the list."""
    news.keep_all(caller, up_to)
    return go("/", Toast("Everything is kept. Each change stays in the history and can be undone there."))


@router.post("/changes/undo")
def undo_group(
    caller: Writer,
    group: Annotated[str, Form()] = "",
    edit: Annotated[int | None, Form()] = None,
    to: Annotated[str, Form()] = "/",
) -> Response:
    """Undo a group of edits, or one of them."""
    place = "/memory" if to == "/memory" else "/"
    done = memory.undo(caller, ledger_id=edit, group_id=group or None if edit is None else None)
    if isinstance(done, Refused):
        return refuse(place, done)
    said = one_line(" ".join(outcome.message for outcome in done.outcomes), width=160)
    return go(place, Toast(said, "/changes/undo", {"group": done.group_id, "to": place}))


@router.post("/pending/{pending_id}")
def decide_pending(caller: Writer, pending_id: str, verdict: Annotated[str, Form()]) -> Response:
    """Apply or reject a pending write."""
    if verdict == "approve":
        done = memory.approve(caller, pending_id)
        if isinstance(done, Refused):
            return refuse("/memory#pending", done)
        fields = {"edit": str(done.ledger_ids[0])} if done.ledger_ids else {}
        return go("/memory", Toast("Saved on the page.", "/changes/undo" if fields else "", fields))
    rejected = memory.reject(caller, pending_id)
    if isinstance(rejected, Refused):
        return refuse("/memory#pending", rejected)
    return go("/memory", Toast("Rejected. Its text is in the archive, from where it can be restored."))


# notifications


@router.get("/live")
async def stream_news(request: Request, caller: Reader) -> Response:
    """Notify an open page when any process has stored something new."""
    turns = get_turns(request)

    async def produce(write: Write) -> None:
        last: Pulse | None = None
        silent = 0.0
        while not turns.is_stopping:
            pulse = last
            try:
                pulse = await offload(news.read_pulse, caller)
            except KeptError as error:  # a busy or damaged store: the page keeps what it shows
                log.info("no notification for a page: %s", error)
            if pulse is not None and pulse != last:
                await write(sse("pulse", pulse.as_json()))
                last, silent = pulse, 0.0
            elif silent >= _SILENCE_SECONDS:
                await write(":\n\n")
                silent = 0.0
            for _ in range(4):
                if not turns.is_stopping:
                    await anyio.sleep(_LOOK_SECONDS / 4)
            silent += _LOOK_SECONDS

    return StreamedAnswer(produce)
