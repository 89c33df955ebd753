"""`/api/chat`: one message to the agent, and its answer as a stream of events or as one object."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from wellkept.agent.offload import offload
from wellkept.agent.turn import Answer
from wellkept.app import Caller
from wellkept.core.errors import KeptError
from wellkept.core.events import Event
from wellkept.core.ids import random_hex
from wellkept.core.provenance import UNSTATED
from wellkept.core.text import JSON
from wellkept.core.values import asdict
from wellkept.gateway.requests import Writer, get_turns, json_response
from wellkept.gateway.streams import StreamedAnswer, Write, finish_or_abandon, sse
from wellkept.gateway.turns import Turns, Wanted
from wellkept.operations import conversations
from wellkept.operations.models import choose_offered

router = APIRouter(prefix="/api", tags=["chat"])

_EVENT_NAMES = {
    "TextStreamed": "text",
    "ToolStarted": "tool_started",
    "ToolFinished": "tool_finished",
    "MemoryWritten": "memory_written",
    "MemoryStaged": "memory_staged",
    "Warned": "warning",
    "Progressed": "progress",
    "ModelCalled": "model_called",
    "Compacted": "compacted",
    "Reviewed": "reviewed",
}


class ChatRequest(BaseModel):
    """One message. Without a session a new one begins; its id is in the answer."""

    message: Annotated[str, Field(min_length=1, max_length=1_000_000)]
    session: Annotated[str, Field(max_length=200)] | None = None
    model: Annotated[str, Field(max_length=200)] | None = None
    incognito: bool = False
    stream: bool = True


@router.post("/chat", response_model=None)
async def chat(request: Request, caller: Writer, body: ChatRequest) -> Response:
    """Send a message to the agent. Events: text, tool_started, tool_finished, memory_written, warning, done, error."""
    turns = get_turns(request)
    wanted = await offload(partial(choose, caller, body.session, model=body.model, incognito=body.incognito))
    if body.stream:
        return StreamedAnswer(lambda write: _stream(turns, caller, wanted, body, write))
    answer = await finish_or_abandon(request, lambda: turns.answer(caller, wanted, body.message, source=UNSTATED))
    return Response(status_code=499) if answer is None else json_response(answer_json(answer))


def choose(caller: Caller, session: str | None, *, model: str | None = None, incognito: bool = False) -> Wanted:
    """Return the conversation of a request.

    Raises NotFound for a session that the caller does not have, and NotAllowed for a model that is not offered.
    """
    chosen = None if model is None else choose_offered(caller, model)
    if incognito or session is None:
        return Wanted(f"new:{random_hex(8)}", model_name=chosen, incognito=incognito)
    session_id = conversations.choose_session(caller, session, newest=False, incognito=False)
    return Wanted(f"session:{session_id}", resume=session_id, model_name=chosen)


async def _stream(turns: Turns, caller: Caller, wanted: Wanted, body: ChatRequest, write: Write) -> None:
    try:
        async with (
            turns.slot(caller, wanted) as slot,
            turns.stream(slot, lambda agent: agent.turn(body.message, source=UNSTATED)) as turn,
        ):
            await write(sse("session", {"session_id": slot.agent.session.id}))
            async for event in turn.events:
                await write(sse(*event_json(event)))
        await write(sse("done", answer_json(turn.result())))
    except KeptError as error:
        await write(sse("error", {"error": error.message, "next": error.remedy, "status": error.http_status}))


def event_json(event: Event) -> tuple[str, dict[str, JSON]]:
    """Return an event's name and fields."""
    fields = {name: value for name, value in asdict(event).items() if name not in {"user_id", "session_id"}}
    return _EVENT_NAMES[type(event).__name__], fields


def answer_json(answer: Answer) -> dict[str, JSON]:
    """Return the answer of a turn."""
    return {
        "session_id": answer.session_id,
        "text": answer.text,
        "tool_calls": [{"name": call.name, "arguments": call.arguments, "ok": call.ok} for call in answer.tool_calls],
        "saved": [{"ledger_id": entry.ledger_id, "target": entry.target, "text": entry.text} for entry in answer.saved],
        "interrupted": answer.interrupted,
        "stopped_by": answer.stopped_by,
        "usage": {"prompt_tokens": answer.usage.prompt_tokens, "output_tokens": answer.usage.output_tokens},
        "cost": answer.cost,
        "seconds": round(answer.seconds, 3),
        "unsaved": answer.unsaved,
    }
