"""`/v1`: the APIs of OpenAI and Anthropic, answered by the agent with memory."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from wellkept.app import Caller
from wellkept.core.errors import KeptError
from wellkept.core.text import JSON
from wellkept.gateway.compatible import anthropic, openai_chat, openai_responses
from wellkept.gateway.compatible.clients import (
    MODELS,
    ClientRequest,
    Form,
    InvalidRequest,
    Result,
    answer_client,
    find_key,
    is_background_call,
)
from wellkept.gateway.requests import Reader, Writer, get_turns, json_response
from wellkept.gateway.streams import StreamedAnswer, Write, finish_or_abandon
from wellkept.gateway.turns import Turns

router = APIRouter(prefix="/v1", tags=["compatible"])

PROXY = "/proxy/"
"""Below this path requests are forwarded to other endpoints of these APIs."""
_CREATED = 1_700_000_000
"""The models have no date, but clients require one."""
_KEPT_HEADERS = frozenset({"retry-after", "allow", "www-authenticate"})


class Api(Struct, frozen=True):
    """How one API writes requests, answers and errors."""

    read: Callable[[Mapping[str, Any]], ClientRequest]
    form: Callable[[ClientRequest], Form]
    error: Callable[[int, str, str | None], dict[str, JSON]]


CHAT = Api(openai_chat.read_request, openai_chat.Form, openai_chat.error_json)
RESPONSES = Api(openai_responses.read_request, openai_responses.Form, openai_chat.error_json)
MESSAGES = Api(anthropic.read_request, anthropic.Form, anthropic.error_json)


def write_problem(path: str, response: Response) -> Response:
    """Return the problem of a request in the form of the API at its path, so that SDKs show the message."""
    if not path.startswith(("/v1/", PROXY)):
        return response
    told = json.loads(bytes(response.body))
    api = MESSAGES if "/v1/messages" in path else CHAT
    message = "; ".join(filter(None, (told.get("detail"), told.get("next"))))
    headers = {name: value for name, value in response.headers.items() if name in _KEPT_HEADERS}
    return json_response(api.error(response.status_code, message, None), response.status_code, headers)


@router.get("/models")
def list_models(_caller: Reader) -> Response:
    """Return the models: the agent, the model alone, and the agent without a memory of the conversation."""
    listed: list[JSON] = [
        {"id": name, "object": "model", "created": _CREATED, "owned_by": "kept", "type": "model", "display_name": name}
        for name in MODELS
    ]
    return json_response({"object": "list", "data": listed, "has_more": False})


@router.get("/models/{name:path}")
def show_model(caller: Reader, name: str) -> Response:
    """Return one model."""
    if name not in MODELS:
        return json_response(openai_chat.error_json(404, f"there is no model {name[:100]!r}"), 404)
    assert caller
    return json_response({"id": name, "object": "model", "created": _CREATED, "owned_by": "kept"})


@router.post("/chat/completions", response_model=None)
async def complete_chat(request: Request, caller: Writer) -> Response:
    """Answer in the form of OpenAI's chat completions."""
    return await _answer(request, caller, CHAT)


@router.post("/responses", response_model=None)
async def create_response(request: Request, caller: Writer) -> Response:
    """Answer in the form of OpenAI's responses."""
    return await _answer(request, caller, RESPONSES)


@router.post("/messages", response_model=None)
async def create_message(request: Request, caller: Writer) -> Response:
    """Answer in the form of Anthropic's messages."""
    return await _answer(request, caller, MESSAGES)


async def _answer(request: Request, caller: Caller, api: Api) -> Response:
    try:
        asked = api.read(_read_object(await request.body()))
    except InvalidRequest as error:
        return json_response(api.error(400, str(error), error.field), 400)
    key = None if is_background_call(asked, request.headers) else find_key(asked, request.headers)
    turns, form = get_turns(request), api.form(asked)
    if asked.is_streamed:
        return StreamedAnswer(lambda write: _stream(turns, caller, asked, key, form, write))

    async def show(_piece: str) -> None:
        return

    try:
        result = await finish_or_abandon(request, lambda: answer_client(turns, caller, asked, key, show))
    except KeptError as error:
        return json_response(api.error(error.http_status, str(error), None), error.http_status)
    return Response(status_code=499) if result is None else json_response(form.whole(result))


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("body", f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest("body", "must be an object")
    return value


async def _stream(
    turns: Turns, caller: Caller, asked: ClientRequest, key: str | None, form: Form, write: Write
) -> None:
    async def show(piece: str) -> None:
        for chunk in form.text(piece):
            await write(chunk)

    for chunk in form.start():
        await write(chunk)
    try:
        result: Result = await answer_client(turns, caller, asked, key, show)
        for chunk in form.finish(result):
            await write(chunk)
    except KeptError as error:
        for chunk in form.error(error):
            await write(chunk)
