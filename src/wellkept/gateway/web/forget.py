"""Forget: a wizard in three steps: choose, check the plan, confirm with a typed word; then the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from wellkept.core.errors import KeptError, Refused
from wellkept.forgetting import requests as forget_requests
from wellkept.gateway.requests import Reader, Writer
from wellkept.gateway.web.frame import Checked, Toast, go, show
from wellkept.operations import sessions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wellkept.app import Caller
    from wellkept.core.text import JSON

router = APIRouter(prefix="/forget", include_in_schema=False, dependencies=[Checked])

WORD = "forget"
"""What a person types to confirm."""
_SAMPLES = 12
_NAMES = {
    "sessions": "Conversations",
    "messages": "Messages",
    "memory_entries": "Entries of your pages",
    "pending": "Waiting writes",
    "skills": "Skills with such passages",
    "files": "Other files",
    "blobs": "Attachments",
    "index_rows": "Rows of the search index",
    "vectors": "Vectors",
    "summaries": "Summaries of removed messages",
    "nodes": "Summaries of earlier context",
    "cited_elsewhere": "Answers that quote them",
    "titles": "Titles",
    "session_ids": "Ids of conversations",
    "project_names": "Names of project pages",
    "other_rows": "Other rows with the words",
}
"""The kinds of a plan and of a report, in the order in which they are shown."""
Words = Annotated[str, Form(max_length=500)]


@router.get("")
def ask_what(request: Request, caller: Reader, session: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Step 1: name a conversation or words."""
    titles = sessions.read_titles(caller, [session]) if session else {}
    return _show_question(request, session=session, title=titles.get(session, ""))


def _show_question(
    request: Request, *, session: str = "", words: str = "", title: str = "", problem: str = "", status: int = 200
) -> Response:
    return show(
        request, "forget.html", status=status, session=session, words=words,
        session_title=title, problem=problem,
    )  # fmt: skip


@router.post("/plan")
def show_plan(request: Request, caller: Writer, session: Words = "", words: Words = "") -> Response:
    """Step 2: show what would be removed, by kind, with samples."""
    return _show_plan(request, caller, session, words)


def _show_plan(request: Request, caller: Caller, session: str, words: str, *, problem: str = "") -> Response:
    try:
        planned = forget_requests.plan_forget(caller, session=session or None, query=words or None)
    except KeptError as error:
        return _show_question(request, session=session, words=words, problem=error.message, status=422)
    if isinstance(planned, Refused):
        return _show_question(request, session=session, words=words, problem=planned.error, status=422)
    plan = planned.proposal.plan
    chosen = [str(one) for one in plan.sessions.sessions[:_SAMPLES]]
    counts = plan.as_json()
    return show(
        request,
        "forget_plan.html",
        status=422 if problem else 200,
        session=session,
        words=words,
        problem=problem,
        plan_token=planned.token,
        word=WORD,
        counts=_count_kinds(counts),
        titles=sessions.read_titles(caller, chosen),
        excerpts=sessions.read_excerpts(caller, list(plan.sessions.messages[:_SAMPLES])),
        entries=[text for _, text in plan.entries[:_SAMPLES]],
        providers=plan.providers,
        copies=planned.proposal.copies_not_touched,
    )


def _count_kinds(found: Mapping[str, JSON]) -> list[tuple[str, int]]:
    """Return the kinds with their counts, without zeros."""
    counts = []
    for key, name in _NAMES.items():
        value = found.get(key, 0)
        count = len(value) if isinstance(value, list) else int(str(value or 0))
        if count:
            counts.append((name, count))
    return counts


@router.post("/requests/{request_id}")
def reject_request(caller: Writer, request_id: str) -> Response:
    """Drop what an agent asked to forget."""
    forget_requests.reject_request(caller, request_id)
    return go("/", Toast("Rejected. Nothing was removed."))


@router.post("/confirm")
def carry_out(
    request: Request,
    caller: Writer,
    token: Annotated[str, Form(max_length=500)],
    typed: Annotated[str, Form(max_length=100)] = "",
    session: Words = "",
    words: Words = "",
) -> Response:
    """Step 3: remove it, and show the report with the verification."""
    if typed.strip().casefold() != WORD:
        return _show_plan(request, caller, session, words, problem=f"Type the word {WORD!r} to confirm.")
    done = forget_requests.forget_confirmed(caller, token, session=session or None, query=words or None)
    if isinstance(done, Refused):
        return _show_plan(request, caller, session, words, problem=f"{done.error}. Look at the plan again.")
    report = done.as_json()
    return show(
        request,
        "forget_report.html",
        title="Forgotten",
        done=done,
        counts=_count_kinds(report),
        report=report,
        words=words,
    )
