"""`/api/search`, `/api/sessions`, `/api/messages`, `/api/receipts`: past conversations and what models were shown."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from wellkept.connect import preview
from wellkept.core.text import dumps
from wellkept.gateway.requests import Limit, Moment, Reader, Writer, answer, offer, read_moment
from wellkept.operations import receipts, search, sessions
from wellkept.sessions.receipts import Mark

router = APIRouter(prefix="/api", tags=["conversations"])

Name = Annotated[str, Path(max_length=200, description="The id of a session, its beginning, or its title.")]
MessageNumber = Annotated[int, Path(ge=1, le=2**53)]
Short = Annotated[str | None, Query(max_length=1_000)]
_MOST_IMPORT_CHARACTERS = 9_000_000


class SessionChange(BaseModel):
    """What to change about a session."""

    title: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    archived: bool | None = None


class MarkRequest(BaseModel):
    """A person's mark for something that a model was shown."""

    mark: Mark
    message_id: Annotated[int, Field(ge=1, le=2**53)] | None = None


@router.get("/search")
def search_sessions(  # noqa: PLR0913, PLR0917 - the parameters of the query
    caller: Reader,
    query: Annotated[str, Query(max_length=10_000)] = "",
    after: Moment = None,
    before: Moment = None,
    source: Short = None,
    project: Short = None,
    session: Short = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Response:
    """Return the conversations and messages that answer a question best."""
    filters = search.Filters(
        limit=limit,
        after=read_moment(caller, after),
        before=read_moment(caller, before),
        sources=(source,) if source else (),
        project=project,
        session=session,
    )
    return answer(search.search(caller, query, filters))


@router.get("/sessions")
def list_sessions(
    caller: Reader,
    limit: Limit = 20,
    source: Short = None,
    archived: bool = False,
    after: Moment = None,
    before: Moment = None,
) -> Response:
    """Return the newest sessions; with a time, those with messages in it."""
    wanted = sessions.Listed(limit, source, archived, read_moment(caller, after), read_moment(caller, before))
    return answer(sessions.list_sessions(caller, wanted))


offer(router.get, "/sessions/trash", sessions.list_trash, limit=Limit)


@router.get("/sessions/export")
def export_sessions(
    caller: Reader, session: Annotated[list[str] | None, Query(max_length=100)] = None
) -> StreamingResponse:
    """Return sessions as JSON lines: the named ones, or all."""
    lines = sessions.export_sessions(caller, session or [])

    def write() -> Iterator[str]:
        for line in lines:
            yield f"{dumps(line)}\n"

    return StreamingResponse(write(), media_type="application/jsonl")


@router.post("/sessions/import")
def import_sessions(
    caller: Writer,
    lines: Annotated[str, Body(media_type="text/plain", max_length=_MOST_IMPORT_CHARACTERS)],
    source: Annotated[str, Query(max_length=100)] = "import",
) -> Response:
    """Store sessions from JSON lines; known lines add nothing."""
    encoded = (line.encode("utf-8", "surrogatepass") for line in lines.splitlines())
    return answer(sessions.import_sessions(caller, encoded, source=source))


offer(router.get, "/sessions/activity", sessions.count_activity, days=Annotated[int, Query(ge=1, le=36_500)])
offer(router.get, "/sessions/{name}/lineage", sessions.map_lineage, name=Name)
offer(
    router.get,
    "/preview/{client}",
    preview.preview_agent,
    client=Annotated[str, Path(max_length=40)],
    project=Short,
    prompt=Annotated[str, Query(max_length=4_000)],
)
offer(
    router.get,
    "/sessions/{name}",
    sessions.show_session,
    name=Name,
    first=Annotated[int | None, Query(ge=0, le=10_000)],
    last=Annotated[int | None, Query(ge=0, le=10_000)],
)


@router.patch("/sessions/{name}")
def change_session(caller: Writer, name: Name, body: SessionChange) -> Response:
    """Rename or archive a session."""
    if body.title is not None:
        renamed = sessions.rename_session(caller, name, body.title)
        if body.archived is None:
            return answer(renamed)
    if body.archived is not None:
        return answer(sessions.archive_session(caller, name, archived=body.archived))
    return answer(sessions.show_session(caller, name, first=0, last=0))


@router.delete("/sessions/{name}")
def delete_session(caller: Writer, name: Name) -> Response:
    """Move a session to the trash."""
    return answer(sessions.delete_sessions(caller, [name]))


offer(router.post, "/sessions/{name}/restore", sessions.restore_session, Writer, name=Name)


@router.get("/messages/{message_id}")
def show_message(
    caller: Reader, message_id: MessageNumber, window: Annotated[int, Query(ge=0, le=100)] = 5
) -> Response:
    """Return a message with its neighbours."""
    return answer(sessions.scroll(caller, message_id, window=window))


offer(
    router.get,
    "/messages/{message_id}/why",
    search.explain_message,
    message_id=MessageNumber,
    query=Annotated[str, Query(max_length=10_000)],
)
offer(
    router.get,
    "/receipts",
    receipts.list_receipts,
    limit=Limit,
    before=Annotated[int | None, Query(ge=1, le=2**53)],
    kind=Short,
    client=Short,
    session=Short,
)
offer(router.get, "/receipts/{receipt}", receipts.show_receipt, receipt=MessageNumber)
offer(router.put, "/receipts/{receipt}/mark", receipts.mark_receipt, Writer, receipt=MessageNumber, body=MarkRequest)
offer(
    router.delete,
    "/receipts/{receipt}/mark",
    receipts.undo_mark,
    Writer,
    receipt=MessageNumber,
    message_id=Annotated[int | None, Query(ge=1, le=2**53)],
)
