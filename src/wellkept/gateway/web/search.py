"""Search: passages with their context, why each is shown, and why another one is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from markupsafe import Markup
from msgspec import Struct
from starlette.responses import Response

from wellkept.core.errors import KeptError
from wellkept.gateway.requests import Reader, read_moment
from wellkept.gateway.web.charts import Part, split_score
from wellkept.gateway.web.frame import Checked, show, show_part
from wellkept.gateway.web.rendering import show_marked
from wellkept.operations import search, sessions
from wellkept.sessions.search.occurrences import Marker

if TYPE_CHECKING:
    from wellkept.app import Caller
    from wellkept.core.messages import StoredMessage
    from wellkept.operations.search import SearchAnswer

router = APIRouter(prefix="/search", include_in_schema=False, dependencies=[Checked])

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


@router.get("")
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
            filters = _read_filters(caller, asked)
            answer = search.search(caller, asked.q, filters)
            if why.strip().isdigit():
                why_not = search.explain_message(caller, int(why), asked.q, filters)
        except KeptError as error:
            problem = f"{error.message} {error.remedy}".strip()
    passages = _list_passages(answer)
    return show(
        request,
        "search.html",
        here="search",
        title=f"Search: {asked.q}" if asked.q else "Search",
        query=asked.q,
        asked=asked,
        why=why.strip(),
        problem=problem,
        stored=stored,
        sources=sessions.list_sources(caller),
        found=answer.profiles[0].conversations if answer and answer.profiles else None,
        passages=passages,
        titles=sessions.read_titles(caller, [one.message.session_id for one in passages]),
        why_not=why_not,
        why_parts=split_score(why_not.parts) if why_not else (),
    )


def _read_filters(caller: Caller, asked: Asked) -> search.Filters:
    return search.Filters(
        limit=12,
        after=read_moment(caller, asked.after or None),
        before=read_moment(caller, asked.before or None),
        sources=(asked.source,) if asked.source else (),
        project=asked.project or None,
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


@router.get("/context")
def show_context(caller: Reader, message: Annotated[int, Query(ge=1, le=2**53)]) -> Response:
    """Show the messages around one, in place."""
    window = sessions.scroll(caller, message, window=_AROUND)
    shown = [
        (one, one.message.display_text[:_CONTEXT_CHARS], len(one.message.display_text) > _CONTEXT_CHARS)
        for one in window.messages
    ]
    return show_part("search_context.html", messages=shown, anchor=message)
