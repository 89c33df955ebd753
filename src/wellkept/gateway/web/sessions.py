"""Sessions: the search, the list with its calendar, the reading view, and the map of where one came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Form, Path, Query, Request
from markupsafe import Markup
from msgspec import Struct
from starlette.responses import Response

from wellkept.core.errors import KeptError
from wellkept.core.messages import Role, State
from wellkept.core.text import one_line
from wellkept.gateway.requests import Reader, Writer, read_moment
from wellkept.gateway.web.charts import Part, draw_calendar, draw_lineage, split_score
from wellkept.gateway.web.frame import Checked, Toast, go, show, show_marked, show_part
from wellkept.operations import memory, receipts, search, sessions
from wellkept.sessions.search.occurrences import Marker

if TYPE_CHECKING:
    from wellkept.core.messages import StoredMessage
    from wellkept.operations.search import SearchAnswer

router = APIRouter(include_in_schema=False, dependencies=[Checked])

MOST_CHARS = 12_000
"""A longer message is cut on its page; a link shows the whole of it."""
_MOST_SHOWN = 20
Name = Annotated[str, Path(max_length=200)]
Number = Annotated[int | None, Query(ge=1, le=2**53)]


class ShownMessage(Struct, frozen=True):
    """A message as the reading view shows it."""

    message: StoredMessage
    role: str
    text: str
    is_cut: bool
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    is_compacted: bool


@router.get("/sessions")
def list_sessions(
    request: Request,
    caller: Reader,
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
    source: Annotated[str, Query(max_length=200)] = "",
    day: Annotated[str, Query(max_length=20)] = "",
    archived: bool = False,
) -> Response:
    """Show one page of the list, and the calendar above it."""
    stored = sessions.count_stored(caller)
    if not stored.sessions:
        return show(request, "sessions.html", stored=stored, found=None)
    activity = sessions.count_activity(caller)
    counts = {one: sum(count for count, _ in found.values()) for one, found in activity.days.items()}
    today = caller.app.clock.now().astimezone().date()
    return show(
        request,
        "sessions.html",
        stored=stored,
        found=sessions.browse_sessions(caller, page=page, source=source or None, day=day or None, archived=archived),
        source=source,
        day=day,
        archived=archived,
        sources=activity.sources,
        calendar=draw_calendar(counts, last=today),
    )


@router.get("/sessions/{name}")
def show_session(request: Request, caller: Reader, name: Name, begin: Number = None, around: Number = None) -> Response:
    """Show a page of a conversation, what it wrote and what it was shown."""
    view = sessions.read_session(caller, name, begin=begin, around=around)
    session = view.session
    lineage = sessions.map_lineage(caller, session.id)
    sources = list(dict.fromkeys(station.session.source for station in lineage.stations))
    return show(
        request,
        "session.html",
        title=view.title,
        found=view,
        session=session,
        messages=[describe_message(message) for message in view.messages],
        anchor=around,
        lineage=draw_lineage(lineage, sources) if len(lineage.stations) > 1 else None,
        sources=sources,
        wrote=memory.list_session_edits(caller, session.id, limit=_MOST_SHOWN),
        shown=receipts.list_receipts(caller, session=session.id, limit=_MOST_SHOWN).receipts,
    )


def describe_message(stored: StoredMessage) -> ShownMessage:
    """Return a message as it is shown: cut where it is long, its calls on one line each."""
    message = stored.message
    text = message.display_text if message.role is not Role.ASSISTANT or not message.tool_calls else message.text
    calls = tuple((call.name, one_line(str(call.arguments), width=400)) for call in message.tool_calls)
    reasoning = message.reasoning if isinstance(message.reasoning, str) else ""
    return ShownMessage(
        stored,
        message.role.value,
        text[:MOST_CHARS],
        len(text) > MOST_CHARS,
        reasoning[:MOST_CHARS],
        calls,
        stored.state is State.COMPACTED,
    )


@router.get("/sessions/{name}/messages/{number}")
def show_message(caller: Reader, name: Name, number: Annotated[int, Path(ge=1, le=2**53)]) -> Response:
    """Send one message as a whole, as plain text."""
    del name
    text = sessions.read_message(caller, number).message.display_text
    return Response(
        text.encode("utf-8", "replace"),
        media_type="text/plain; charset=utf-8",
        headers={"Cache-Control": "no-store"},
    )


@router.post("/sessions/{name}/rename")
def rename(caller: Writer, name: Name, title: Annotated[str, Form(max_length=500)]) -> Response:
    """Give a session another title."""
    before = sessions.read_titles(caller, [name]).get(name, "")
    done = sessions.rename_session(caller, name, title)
    place = f"/sessions/{done.session_id}"
    return go(place, Toast("Renamed.", f"{place}/rename", {"title": before}))


@router.post("/sessions/{name}/archive")
def archive(caller: Writer, name: Name, back: Annotated[str, Form()] = "") -> Response:
    """Hide a conversation from the list, or show it again."""
    done = sessions.archive_session(caller, name, archived=not back)
    fields: Mapping[str, str] = {} if back else {"back": "1"}
    said = "It is in the list again." if back else "Hidden from the list; search still finds it."
    return go(f"/sessions/{name}", Toast(said, f"/sessions/{done.sessions[0]}/archive", fields))


@router.post("/sessions/{name}/delete")
def delete(caller: Writer, name: Name) -> Response:
    """Move a conversation to the trash."""
    done = sessions.delete_sessions(caller, [name])
    said = f"Moved to the trash, where it stays for {done.restorable_days:g} days."
    return go("/sessions", Toast(said, f"/sessions/{done.sessions[0]}/restore"))


@router.post("/sessions/{name}/restore")
def restore(caller: Writer, name: Name) -> Response:
    """Restore a conversation from the trash."""
    done = sessions.restore_session(caller, name)
    return go(
        f"/sessions/{done.sessions[0]}", Toast("Restored from the trash.", f"/sessions/{done.sessions[0]}/delete")
    )


_PASSAGE_CHARS = 600
_CONTEXT_CHARS = 1_200
_AROUND = 5
Word = Annotated[str, Query(max_length=1_000)]


class ShownPassage(Struct, frozen=True):
    """A passage as the page shows it."""

    message: StoredMessage
    text: Markup
    score: float
    parts: tuple[Part, ...]


class Asked(Struct, frozen=True):
    """The fields of the search form."""

    q: str
    source: str
    project: str
    after: str
    before: str


@router.get("/search")
def show_search(  # noqa: PLR0913, PLR0917 - the fields of the form
    request: Request,
    caller: Reader,
    q: Annotated[str, Query(max_length=2_000)] = "",
    source: Word = "",
    project: Word = "",
    after: Word = "",
    before: Word = "",
    why: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Show the passages that answer a question."""
    asked = Asked(q.strip(), source, project, after, before)
    problem, answer, why_not = "", None, None
    stored = sessions.count_stored(caller)
    if asked.q and stored.messages:
        try:
            filters = search.Filters(
                limit=12,
                after=read_moment(caller, asked.after or None),
                before=read_moment(caller, asked.before or None),
                sources=(asked.source,) if asked.source else (),
                project=asked.project or None,
            )
            answer = search.search(caller, asked.q, filters)
            if why.strip().isdigit():
                why_not = search.explain_message(caller, int(why), asked.q, filters)
        except KeptError as error:
            problem = f"{error.message} {error.remedy}".strip()
    passages = _list_passages(answer)
    return show(
        request,
        "search.html",
        title=f"Search: {asked.q}" if asked.q else "Search",
        query=asked.q,
        asked=asked,
        why=why.strip(),
        problem=problem,
        stored=stored,
        sources=sessions.list_sources(caller),
        found=answer.profiles[0].conversations if answer and answer.profiles else None,
        passages=passages,
        titles=sessions.read_titles(caller, [passage.message.session_id for passage in passages]),
        why_not=why_not,
        why_parts=split_score(why_not.parts) if why_not else (),
    )


def _list_passages(answer: SearchAnswer | None) -> list[ShownPassage]:
    if answer is None or not answer.profiles:
        return []
    hits = answer.profiles[0]
    terms = hits.conversations.found.terms
    marker = Marker(terms)
    return [
        ShownPassage(
            message,
            show_marked(marker.around(marker.show(message.message), width=_PASSAGE_CHARS), terms),
            hit.score,
            split_score(hit.parts),
        )
        for hit, message in hits.passages
    ]


@router.get("/search/context")
def show_context(caller: Reader, message: Annotated[int, Query(ge=1, le=2**53)]) -> Response:
    """Show the messages around one, in place."""
    window = sessions.scroll(caller, message, window=_AROUND)
    shown = [
        (one, one.message.display_text[:_CONTEXT_CHARS], len(one.message.display_text) > _CONTEXT_CHARS)
        for one in window.messages
    ]
    return show_part("search_context.html", messages=shown, anchor=message)
