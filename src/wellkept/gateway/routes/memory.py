"""`/api/memory`: the pages of curated memory."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from wellkept.core.errors import Reason, Refused
from wellkept.forgetting import requests as forget_requests
from wellkept.gateway.requests import (
    Limit,
    Moment,
    Reader,
    Writer,
    answer,
    json_response,
    make_etag,
    matches_etag,
    offer,
    problem,
    read_moment,
)
from wellkept.memory.page import Add, Edit, Remove, Replace, Target
from wellkept.operations import memory, news, projectfacts

router = APIRouter(prefix="/api/memory", tags=["memory"])

Text = Annotated[str, Field(min_length=1, max_length=100_000)]
Row = Annotated[int, Field(ge=1, le=2**53)]
PendingId = Annotated[str, Path(max_length=100)]
IfMatch = Annotated[str | None, Header(alias="If-Match")]


class NewEntry(BaseModel):
    """One entry."""

    text: Text


class Change(BaseModel):
    """The new text of the one entry that contains `needle`."""

    needle: Text
    text: Text


class WholePage(BaseModel):
    """The whole page, entries separated as in its file."""

    text: Annotated[str, Field(max_length=1_000_000)]


class UndoRequest(BaseModel):
    """What to undo: one edit, one group of edits, or without either the newest group."""

    ledger_id: Row | None = None
    group_id: Annotated[str, Field(max_length=100)] | None = None


@router.get("")
def show_pages(caller: Reader, target: Target | None = None) -> Response:
    """Return one page or all, entry by entry."""
    return answer(memory.show_pages(caller, target, with_metadata=True))


offer(router.get, "/snapshot", memory.render_snapshot)


@router.get("/log")
def read_log(caller: Reader, since: Moment = None, target: Target | None = None, limit: Limit = 100) -> Response:
    """Return the edits, the newest first."""
    log = memory.read_log(caller, target=target, since=read_moment(caller, since) or 0.0)
    return json_response(log.as_json()[:limit])


offer(router.post, "/undo", memory.undo, Writer, body=UndoRequest)


@router.get("/at")
def read_pages_at(caller: Reader, moment: Annotated[str, Query(max_length=100)]) -> Response:
    """Return the pages as they were at a moment."""
    return answer(memory.read_pages_at(caller, read_moment(caller, moment) or 0.0))


@router.get("/archive")
def search_archive(caller: Reader, query: Annotated[str, Query(max_length=1_000)] = "") -> Response:
    """Return removed, replaced or displaced texts that contain every word of the query."""
    return answer(memory.search_archive(caller, query))


offer(router.post, "/archive/{ledger_id}/restore", memory.restore, Writer, ledger_id=Row)


@router.get("/pending")
def list_pending(caller: Reader) -> Response:
    """Return the writes that wait for approval."""
    return answer([*memory.list_pending(caller), *forget_requests.list_requests(caller)])


offer(router.post, "/pending/{pending_id}/approve", memory.approve, Writer, pending_id=PendingId)
offer(router.post, "/pending/{pending_id}/reject", memory.reject, Writer, pending_id=PendingId)
offer(router.get, "/entries", memory.list_entries)
offer(router.get, "/facts", projectfacts.check_project)
offer(router.get, "/changes", news.list_changes)
offer(router.post, "/changes/{group_id}/keep", news.keep_group, Writer, group_id=Annotated[str, Path(max_length=100)])


@router.get("/check")
def check_entry(
    caller: Reader, text: Annotated[str, Query(max_length=20_000)], target: Target = Target.MEMORY
) -> Response:
    """Return what adding an entry would do: size, verdict of the scanner, near duplicates."""
    return answer(memory.check_entry(caller, target, text))


@router.get("/{target}/steps")
def read_step(caller: Reader, target: Target, step: Annotated[int | None, Query(ge=0, le=2**53)] = None) -> Response:
    """Return a page after one step of its ledger, and the current page."""
    return answer(memory.read_step(caller, target, step))


offer(router.get, "/{target}/trace", memory.trace_entry, target=Target, text=Annotated[str, Query(max_length=20000)])


@router.get("/{target}")
def read_page(caller: Reader, target: Target) -> Response:
    """Return one page as text, with an ETag for a later change."""
    page = memory.read_page(caller, target)
    text = page.text
    return json_response(
        {"target": target.value, "text": text, "entries": list(page.entries)}, headers={"ETag": make_etag(text)}
    )


@router.put("/{target}")
def replace_page(caller: Writer, target: Target, body: WholePage, if_match: IfMatch = None) -> Response:
    """Replace the whole page; with If-Match only if nobody changed it meanwhile."""
    before = memory.read_page(caller, target)
    if not matches_etag(if_match, make_etag(before.text)):
        return _refuse_stale(before.text)
    return answer(memory.replace_page(caller, target, body.text, before=before))


@router.post("/{target}/entries", status_code=201)
def add_entry(caller: Writer, target: Target, body: NewEntry, if_match: IfMatch = None) -> Response:
    """Add one entry."""
    return _edit(caller, target, Add(body.text), if_match, status=201)


@router.patch("/{target}/entries")
def replace_entry(caller: Writer, target: Target, body: Change, if_match: IfMatch = None) -> Response:
    """Replace the one entry that contains the needle."""
    return _edit(caller, target, Replace(body.needle, body.text), if_match)


@router.delete("/{target}/entries")
def remove_entry(
    caller: Writer,
    target: Target,
    needle: Annotated[str, Query(min_length=1, max_length=5_000)],
    if_match: IfMatch = None,
) -> Response:
    """Remove the one entry that contains the needle; a URL has at most 64 KB."""
    return _edit(caller, target, Remove(needle), if_match)


def _edit(caller: Writer, target: Target, edit: Edit, if_match: str | None, *, status: int = 200) -> Response:
    if if_match is not None:
        text = memory.read_page(caller, target).text
        if not matches_etag(if_match, make_etag(text)):
            return _refuse_stale(text)
    result = memory.edit_entry(caller, edit, target)
    if isinstance(result, Refused) and result.reason is Reason.NO_MATCH:
        return problem(404, result.error, result.remedy, more={"reason": result.reason.value})
    return answer(result, status=status)


def _refuse_stale(text: str) -> Response:
    return problem(
        412, "the page has changed since you read it", "read it again, then repeat the change", more={"current": text},
        headers={"ETag": make_etag(text)},
    )  # fmt: skip
