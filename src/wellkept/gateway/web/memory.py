"""Memory: both pages entry by entry, with add, edit, move, remove, history and archive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from wellkept.core.errors import Reason, Refused
from wellkept.core.text import one_line
from wellkept.forgetting import requests as forget_requests
from wellkept.gateway.requests import Reader, Writer
from wellkept.gateway.web.charts import scatter_days, stack_days
from wellkept.gateway.web.frame import Checked, Toast, go, refuse, show, show_part
from wellkept.memory.page import Add, Target
from wellkept.operations import memory, projectfacts, sessions

if TYPE_CHECKING:
    from wellkept.app import Caller
    from wellkept.memory.store import Outcome
    from wellkept.operations.memory import Entry

router = APIRouter(prefix="/memory", include_in_schema=False, dependencies=[Checked])

_ARCHIVED = 50
_DAY = 86_400.0
_STRIP_DAYS = 60
Text = Annotated[str, Form(max_length=200_000)]
PageName = Annotated[Target, Form()]


@router.get("")
def show_memory(request: Request, caller: Reader) -> Response:
    """Show both pages and pending writes."""
    return _show(request, caller)


def _show(request: Request, caller: Caller, *, status: int = 200, **values: Any) -> Response:
    found = memory.list_entries(caller)
    known = [entry.session_id for page in found.pages for entry in page.entries if entry.session_id]
    return show(
        request,
        "memory.html",
        status=status,
        pages=found.pages,
        titles=sessions.read_titles(caller, known),
        facts=projectfacts.find_facts(caller),
        pending=memory.list_pending(caller),
        forgets=forget_requests.list_requests(caller),
        **{"draft": "", "draft_target": "memory", "refusal": None, **values},
    )


@router.get("/archive")
def show_archive(request: Request, caller: Reader, old: Annotated[str, Query(max_length=500)] = "") -> Response:
    """Show removed and replaced texts, which can be restored."""
    records = memory.search_archive(caller, old).records
    return show(
        request, "memory_archive.html", title="Archive", archive=records[:_ARCHIVED], archived=len(records),
        archive_query=old,
    )  # fmt: skip


@router.post("/check")
def check_text(caller: Reader, target: PageName, text: Text = "") -> Response:
    """Check a text while it is typed."""
    return show_part("memory_check.html", check=memory.check_entry(caller, target, text))


@router.post("/add")
def add_entry(
    request: Request, caller: Writer, target: PageName, text: Text = "", accept: Annotated[str, Form()] = ""
) -> Response:
    """Add an entry; a text that the scanner holds is added if the person confirms it."""
    allow = frozenset(accept.split())
    done = memory.edit_entry(caller, Add(text), target, allow=allow)
    if isinstance(done, Refused):
        return _show(request, caller, status=422, draft=text, draft_target=target.value, refusal=done)
    return go("/memory", _tell(done))


@router.post("/edit")
def edit_entry(request: Request, caller: Writer, target: PageName, before: Text, text: Text = "") -> Response:
    """Change an entry; if somebody else changed it meanwhile, show both texts."""
    before, text = _unix(before), _unix(text)
    done = memory.change_entry(caller, target, before, text)
    if isinstance(done, Refused):
        return _show_conflict(request, caller, target, before, text, done)
    return go("/memory", _tell(done))


def _show_conflict(
    request: Request, caller: Caller, target: Target, before: str, text: str, refused: Refused
) -> Response:
    trace = memory.trace_entry(caller, target, before)
    return show(
        request,
        "memory_conflict.html",
        status=409 if refused.reason is Reason.MOVED_ON else 422,
        title="Edit an entry",
        target=target,
        before=before,
        text=text,
        current=trace.current,
        refusal=refused,
        is_conflict=refused.reason is Reason.MOVED_ON,
    )


@router.post("/remove")
def remove_entry(caller: Writer, target: PageName, before: Text) -> Response:
    """Move an entry from its page to the archive."""
    done = memory.change_entry(caller, target, _unix(before), "")
    return refuse("/memory", done) if isinstance(done, Refused) else go("/memory", _tell(done))


@router.post("/move")
def move_entry(caller: Writer, target: PageName, before: Text) -> Response:
    """Move an entry to the other page."""
    other = Target.USER if target is Target.MEMORY else Target.MEMORY
    done = memory.move_entry(caller, target, other, _unix(before))
    if isinstance(done, Refused):
        return refuse("/memory", done)
    return go("/memory", Toast("Moved to the other page.", "/changes/undo", {"group": done.group_id, "to": "/memory"}))


@router.post("/restore")
def restore_entry(caller: Writer, edit: Annotated[int, Form()]) -> Response:
    """Put an archived text back on its page."""
    done = memory.restore(caller, edit)
    return refuse("/memory/archive", done) if isinstance(done, Refused) else go("/memory", _tell(done))


@router.get("/entry")
def show_entry(
    request: Request, caller: Reader, page: Target, text: Annotated[str, Query(max_length=20_000)]
) -> Response:
    """Show the history of one entry."""
    trace = memory.trace_entry(caller, page, text)
    listed = [entry for each in memory.list_entries(caller).pages if each.target is page for entry in each.entries]
    known = [version.record.session_id for version in trace.versions if version.record.session_id]
    return show(
        request,
        "memory_entry.html",
        title="History of an entry",
        history=trace,
        entry=next((entry for entry in listed if entry.text == trace.current), None),
        titles=sessions.read_titles(caller, known),
    )


@router.get("/time")
def show_time_machine(
    request: Request, caller: Reader, page: Target = Target.MEMORY, step: Annotated[int | None, Query(ge=0)] = None
) -> Response:
    """Show a page after any edit in its ledger, and the current page."""
    shown = memory.read_step(caller, page, step)
    origins = list(dict.fromkeys(origin for day in shown.days.values() for origin in day))
    today = caller.app.clock.now().astimezone().date()
    return show(
        request,
        "memory_time.html",
        title="Time machine",
        step=shown,
        chart=stack_days(shown.days, origins, last=today, count=_STRIP_DAYS, height=72),
        gone=[entry for entry in shown.entries if entry not in shown.now],
        new=[entry for entry in shown.now if entry not in shown.entries],
    )


@router.post("/time/restore")
def restore_step(caller: Writer, target: PageName, step: Annotated[int, Form()]) -> Response:
    """Restore a page to its state after a step."""
    done = memory.restore_step(caller, target, step)
    address = f"/memory/time?page={target.value}"
    return refuse(address, done) if isinstance(done, Refused) else go("/memory", _tell(done))


@router.post("/time/entry")
def restore_text(caller: Writer, target: PageName, text: Text) -> Response:
    """Restore one entry of an earlier page."""
    done = memory.edit_entry(caller, Add(_unix(text)), target)
    return refuse("/memory", done) if isinstance(done, Refused) else go("/memory", _tell(done))


@router.get("/stale")
def show_stale(request: Request, caller: Reader) -> Response:
    """Show which entries are old and have not been shown for a long time."""
    listed = [entry for page in memory.list_entries(caller).pages for entry in page.entries]
    origins = list(dict.fromkeys(entry.origin for entry in listed))
    ages = sorted((_measure(entry, origins) for entry in listed), key=lambda each: -(each[1] + each[2]))
    points = [(age, idle, tone, one_line(one.text, width=80), one.text) for one, age, idle, tone in ages]
    return show(
        request, "memory_stale.html", title="Staleness",
        chart=scatter_days(points), rows=ages, origins=origins,
    )  # fmt: skip


def _measure(entry: Entry, origins: list[str]) -> tuple[Entry, float, float, int]:
    """Return an entry with its age, the days since it was last shown or changed, and its colour."""
    now = time.time()
    age = (now - entry.created) / _DAY if entry.created else 0.0
    last = max(filter(None, (entry.last_shown, entry.changed)), default=now)
    return entry, age, (now - last) / _DAY, origins.index(entry.origin)


@router.post("/stale")
async def archive_stale(request: Request, caller: Writer) -> Response:
    """Move the chosen entries from their pages to the archive."""
    form = await request.form()
    chosen = [str(value) for value in form.getlist("entry")]
    from wellkept.agent.offload import offload

    wanted = [(Target(page), text) for page, _, text in (choice.partition(":") for choice in chosen) if text]
    if not wanted:
        return go("/memory/stale", Toast("Choose at least one entry.", is_problem=True))
    done = await offload(memory.archive_entries, caller, wanted)
    if isinstance(done, Refused):
        return refuse("/memory/stale", done)
    count = len(wanted)
    said = f"{count} {'entry' if count == 1 else 'entries'} moved to the archive."
    return go("/memory", Toast(said, "/changes/undo", {"group": done.group_id, "to": "/memory"}))


def _tell(done: Outcome) -> Toast:
    fields = {"edit": str(done.ledger_ids[0]), "to": "/memory"} if done.ledger_ids else {}
    said = f"{done.message} {done.note}".strip()
    return Toast(said, "/changes/undo" if fields else "", fields)


def _unix(text: str) -> str:
    """Return a text of a form with LF line endings; browsers send CRLF."""
    return text.replace("\r\n", "\n")
