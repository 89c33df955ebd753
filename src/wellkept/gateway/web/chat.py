"""Chat: a streamed conversation with the agent, with its tools, saved entries and undo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from wellkept.agent.offload import offload
from wellkept.core.errors import KeptError
from wellkept.core.events import TextStreamed
from wellkept.core.text import one_line, printable
from wellkept.gateway.requests import Reader, Writer, get_turns
from wellkept.gateway.routes.chat import choose, event_json
from wellkept.gateway.streams import StreamedAnswer, Write, finish_or_abandon, sse
from wellkept.gateway.web.frame import Checked, Toast, go, mask_token, show, sign_form, templates
from wellkept.gateway.web.sessions import describe_message
from wellkept.operations import models, sessions

if TYPE_CHECKING:
    from wellkept.agent.turn import Answer
    from wellkept.app import Caller
    from wellkept.gateway.turns import Turns, Wanted

router = APIRouter(prefix="/chat", include_in_schema=False, dependencies=[Checked])

_OPEN = 40
"""How many of the last messages a continued conversation shows."""
_ARGUMENT_CHARS = 300
Text = Annotated[str, Form(max_length=1_000_000)]
Name = Annotated[str, Form(max_length=200)]


@router.get("")
def show_chat(request: Request, caller: Reader, session: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Show a conversation to continue, or an empty one."""
    conversation = sessions.read_end(caller, session, count=_OPEN) if session else None
    recent = sessions.browse_sessions(caller) if sessions.count_stored(caller).sessions else None
    return show(
        request,
        "chat.html",
        title=conversation.title if conversation else "Chat",
        session=conversation.session if conversation else None,
        messages=[describe_message(message) for message in conversation.messages] if conversation else [],
        earlier=conversation.before if conversation else 0,
        recent=recent,
        model=models.name_model(caller),
    )


@router.post("")
async def send(request: Request, caller: Writer, message: Text = "", session: Name = "") -> Response:
    """Run a turn for a browser without JavaScript, and show the conversation with its answer."""
    if not message.strip():
        return go(f"/chat?session={session}" if session else "/chat")
    turns = get_turns(request)
    wanted = await offload(choose, caller, session or None)
    answer = await finish_or_abandon(request, lambda: turns.answer(caller, wanted, message, source=None))
    if answer is None:
        return Response(status_code=499)
    return go(f"/chat?session={answer.session_id}#end", _tell_saved(answer))


def _tell_saved(answer: Answer) -> Toast | None:
    saved = [entry for entry in answer.saved if entry.ledger_id is not None]
    if not saved:
        return None
    said = one_line(f"Saved: {saved[0].text}", width=140)
    return Toast(said, "/changes/undo", {"edit": str(saved[0].ledger_id)})


@router.post("/stream")
async def stream(request: Request, caller: Writer, message: Text, session: Name = "") -> Response:
    """Run a turn and send its text, tools and writes as they happen."""
    turns = get_turns(request)
    wanted = await offload(choose, caller, session or None)
    token = mask_token(await offload(sign_form, request))
    return StreamedAnswer(lambda write: _stream(turns, caller, wanted, message, token, write))


async def _stream(turns: Turns, caller: Caller, wanted: Wanted, message: str, token: str, write: Write) -> None:
    try:
        async with (
            turns.slot(caller, wanted) as slot,
            turns.stream(slot, lambda agent: agent.turn(message, source=None)) as turn,
        ):
            await write(sse("session", {"session_id": slot.agent.session.id, "key": wanted.key}))
            async for event in turn.events:
                name, fields = event_json(event)
                if isinstance(event, TextStreamed):
                    await write(sse("text", {"text": printable(event.text)}))
                elif name in {"tool_started", "tool_finished", "warning"}:
                    shown = {
                        key: printable(one_line(str(value), width=_ARGUMENT_CHARS)) for key, value in fields.items()
                    }
                    await write(sse(name, dict(shown)))
        answer = turn.result()
        html = templates().get_template("chat_end.html").render(answer=answer, form_token=token, can_write=True)
        await write(sse("done", {"session_id": answer.session_id, "text": printable(answer.text), "html": html}))
    except KeptError as error:
        await write(sse("error", {"error": error.message, "next": error.remedy}))


@router.post("/stop")
async def stop(request: Request, caller: Writer, key: Name) -> Response:  # a turn is interrupted in its own loop
    """Interrupt the running turn of this conversation; the text so far is stored."""
    get_turns(request).interrupt(caller.user, key)
    return Response(status_code=204)
