"""The proxy: adds memory to a request, or forwards it unchanged if that is slow, and stores the conversation."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import anyio
import httpx2
from fastapi import APIRouter, Request
from msgspec import Struct
from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.responses import Response

from wellkept.agent.offload import offload
from wellkept.app import Scope
from wellkept.core.errors import KeptError, StorageError
from wellkept.core.text import dumps
from wellkept.gateway.compatible import anthropic, openai_chat, openai_responses
from wellkept.gateway.compatible.clients import ClientRequest, InvalidRequest, find_key, is_background_call
from wellkept.gateway.identity import SentAsKey
from wellkept.gateway.proxy import bodies, replies
from wellkept.gateway.proxy.bodies import Additive, Body, Unspliceable
from wellkept.gateway.proxy.forwarding import (
    ForwardedReply,
    Outcome,
    contains_token,
    find_target,
    load_upstreams,
    open_client,
    select_request_headers,
)
from wellkept.gateway.requests import Reader, problem
from wellkept.gateway.routes.v1 import write_problem
from wellkept.gateway.state import proxied_conversations
from wellkept.gateway.state.proxied_conversations import Additions, ProxiedAnswer, ProxiedConversation
from wellkept.gateway.streams import run_guarded
from wellkept.operations import recall
from wellkept.operations.recall import Recipient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup
    from starlette.requests import Request

    from wellkept.app import App, Caller
    from wellkept.core.messages import Message
    from wellkept.gateway.turns import Turns

log = logging.getLogger(__name__)

MODE = "x-kept"
"""In a request: `off` forwards it unchanged. In a reply: what was done with it."""
CLIENTS = {
    "x-claude-code-session-id": "claude-code",
    "x-codex-turn-metadata": "codex",
    "x-opencode-session-id": "opencode",
    "x-openwebui-chat-id": "open-webui",
    "x-librechat-conversation-id": "librechat",
}
"""Clients by a header that only they send."""
PRODUCTS = {"opencode": "opencode"}
"""Clients by the product in their `User-Agent`: opencode sends its header only to endpoints on its own list."""
RETRY_SECONDS = (1.0, 5.0, 30.0, 120.0)
"""Seconds between attempts to store an exchange while the database cannot be written."""
MOST_WAITING = 200
"""How many exchanges may wait to be stored; others are stored with the client's next request."""


class ProxiedApi(Struct, frozen=True):
    """How the proxy reads and extends one API."""

    read: Callable[[Mapping[str, Any]], ClientRequest]
    additive: Additive
    whole: Callable[[Mapping[str, Any]], ProxiedAnswer]
    streamed: Callable[[list[dict[str, Any]]], ProxiedAnswer]


APIS = {
    "v1/messages": ProxiedApi(
        anthropic.read_request, bodies.ANTHROPIC, replies.read_anthropic, replies.read_anthropic_stream
    ),
    "v1/chat/completions": ProxiedApi(
        openai_chat.read_request, bodies.CHAT, replies.read_chat, replies.read_chat_stream
    ),
    "v1/responses": ProxiedApi(
        partial(openai_responses.read_request, skips_unknown=True),
        bodies.RESPONSES,
        replies.read_response,
        replies.read_response_stream,
    ),
}
"""The paths with conversations; requests to all others pass unchanged."""


class Prepared(Struct, frozen=True):
    """A request that is ready to be forwarded."""

    content: bytes
    mode: str = "passed"
    """`added`, `passed` if memory was not ready in time, `background` or `off`."""
    said: ProxiedConversation | None = None
    """What is stored of it; None for nothing."""
    given: Additions | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers for the client."""
        if self.given is None:
            return {MODE: self.mode}
        return {
            MODE: self.mode,
            "x-kept-session": self.given.session_id,
            "x-kept-recalled": str(self.given.recalled),
        }


class Proxy:
    """Forwards the requests of all users."""

    def __init__(self, app: App, turns: Turns) -> None:
        self._app = app
        self._turns = turns
        self._settings = app.settings.serve.proxy
        self.upstreams = load_upstreams(self._settings.upstreams)
        self._client: httpx2.AsyncClient | None = None
        self._background: TaskGroup | None = None
        self._running = 0
        self._waiting = 0
        self._ended = anyio.Event()
        self._stopping = anyio.Event()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Hold the connections to endpoints, and the work that follows a reply."""
        async with open_client() as client, anyio.create_task_group() as group:
            self._client, self._background = client, group
            group.start_soon(run_guarded, "preparing the search", partial(offload, self._warm_up, abandon=True))
            yield
            group.cancel_scope.cancel()

    def _warm_up(self) -> None:
        """Load what the first request needs, so that it does not wait."""
        caller = self._app.caller()
        recall.build_start_block(caller, None, has_tools=False)
        recall.recall_for_prompt(caller, "a question for nobody", Recipient(has_tools=False))

    async def stop(self, seconds: float) -> None:
        """Wait for running replies and until their conversations are stored; a failed attempt is repeated once."""
        self._stopping.set()
        with anyio.move_on_after(seconds):
            while self._running or self._waiting:
                await self._ended.wait()

    async def forward(
        self,
        request: Request,
        caller: Caller,
        target: httpx2.URL,
        *,
        api: ProxiedApi | None,
        on_failure: Callable[[int, str], Response],
    ) -> Response:
        """Return the reply of the endpoint to a request."""
        raw = await request.body()
        # authentication counts towards the wait, receiving the body does not
        wait = self._settings.wait_milliseconds / 1_000 - request.state.identity_seconds
        deadline = time.monotonic() + max(0.0, wait)
        prepared = Prepared(raw)
        if request.headers.get(MODE, "").strip().lower() == "off":
            api, prepared = None, Prepared(raw, "off")
        elif api is not None and request.method == "POST":
            prepared = await self._prepare(caller, api, raw, request.headers, deadline) or prepared
        sent = httpx2.Request(
            request.method, target, headers=select_request_headers(request.headers.raw), content=prepared.content
        )
        assert self._client is not None
        self._running += 1

        def end(outcome: Outcome) -> None:
            self._running -= 1
            is_conversation = prepared.mode in {"added", "passed"} and outcome.status == 200
            if api is not None and is_conversation and self._settings.capture:
                self._store_later(caller, api, request.headers, prepared, raw, outcome)
            self._tell_end()

        return ForwardedReply(self._client, sent, headers=prepared.headers(), on_failure=on_failure, on_end=end)

    async def _prepare(
        self, caller: Caller, api: ProxiedApi, raw: bytes, headers: Headers, deadline: float
    ) -> Prepared | None:
        """Return a request with memory; None if that fails or takes too long."""
        found: list[Prepared] = []

        async def work() -> None:
            found.append(
                await offload(
                    prepare_request, caller, api, raw, headers, recall=self._settings.recall, deadline=deadline,
                    abandon=True,
                )
            )  # fmt: skip

        with anyio.move_on_after(max(0.0, deadline - time.monotonic())):
            await run_guarded("adding memory to a request", work)
        return found[0] if found else None

    def _store_later(
        self, caller: Caller, api: ProxiedApi, headers: Headers, prepared: Prepared, raw: bytes, outcome: Outcome
    ) -> None:
        """Store an exchange in the background."""
        if Scope.WRITE not in caller.scopes or self._background is None:
            return
        if self._waiting >= MOST_WAITING:
            log.warning("a proxied exchange is not stored, because %d others wait", self._waiting)
            return
        self._waiting += 1
        work = partial(self._store, caller, api, headers, prepared, raw, outcome)
        self._background.start_soon(run_guarded, "storing a proxied exchange", work)

    async def _store(
        self, caller: Caller, api: ProxiedApi, headers: Headers, prepared: Prepared, raw: bytes, outcome: Outcome
    ) -> None:
        try:
            said = prepared.said or await offload(read_unprepared, api, raw, headers)
            answer = await offload(read_answer, api, outcome)
            if said is None or answer is None:
                return
            async with self._turns.hold(caller, said.key):
                await self._record(caller, said, prepared.given, answer)
        finally:
            self._waiting -= 1
            self._tell_end()

    def _tell_end(self) -> None:
        self._ended.set()
        self._ended = anyio.Event()

    async def _record(
        self, caller: Caller, said: ProxiedConversation, given: Additions | None, answer: ProxiedAnswer
    ) -> None:
        for delay in (*RETRY_SECONDS, 0.0):
            is_last = self._stopping.is_set() or not delay
            try:
                async with self._turns.hold_lease(caller, said.key):
                    await offload(proxied_conversations.record_proxied, caller, said, given, answer)
            except StorageError as error:
                log.warning("a proxied exchange cannot be stored now: %s", error.message)
                if is_last:
                    return
                with anyio.move_on_after(delay):
                    await self._stopping.wait()
            else:
                return


def prepare_request(
    caller: Caller, api: ProxiedApi, raw: bytes, headers: Headers, *, recall: str, deadline: float
) -> Prepared:
    """Return a request with its additions; unchanged if nothing can be added."""
    try:
        body = Body(raw)
        asked = api.read(body.values)
    except (Unspliceable, InvalidRequest):
        return Prepared(raw, "off")
    client = find_client(headers)
    if is_background_call(asked, headers):
        return Prepared(raw, "background")
    if proxied_conversations.is_left_alone(caller, client):
        return Prepared(raw, "off")
    said = describe_conversation(asked, body.values, headers, client)
    try:
        given = proxied_conversations.find_additions(caller, said, recall=recall, deadline=deadline)
        passages = {asked.places[place]: text for place, text in given.passages.items()}
        content = bodies.add_texts(body, api.additive, given.block, passages)
    except Unspliceable:
        return Prepared(raw, said=said)
    except KeptError as error:
        log.warning("a request is forwarded without memory: %s", error.message)
        return Prepared(raw, said=said)
    return Prepared(content, "added", said, given)


def read_unprepared(api: ProxiedApi, raw: bytes, headers: Headers) -> ProxiedConversation | None:
    """Return what to store from a request for which memory was not ready in time."""
    try:
        values = Body(raw).values
        asked = api.read(values)
    except (Unspliceable, InvalidRequest):
        return None
    if is_background_call(asked, headers):
        return None
    return describe_conversation(asked, values, headers, find_client(headers))


def find_client(headers: Mapping[str, str]) -> str:
    """Return the name of the client, `proxy` if unknown."""
    product = headers.get("user-agent", "").partition("/")[0]
    return next((name for header, name in CLIENTS.items() if headers.get(header)), PRODUCTS.get(product, "proxy"))


def describe_conversation(
    asked: ClientRequest, values: Mapping[str, Any], headers: Mapping[str, str], client: str
) -> ProxiedConversation:
    """Return a request as a conversation. The model may change between turns, so it is not part of the key."""
    conversation = values.get("conversation")
    chain = values.get("previous_response_id") or (
        conversation.get("id") if isinstance(conversation, dict) else conversation
    )
    return ProxiedConversation(
        find_key(replace(asked, model=""), headers),
        client,
        tuple(_normalise(message) for message in asked.messages),
        asked.model,
        chain if isinstance(chain, str) else "",
    )


def _normalise(message: Message) -> Message:
    """Return a message with the arguments of its calls in a normal form, because clients re-encode them."""
    calls = tuple(replace(call, arguments=_spell(call.arguments)) for call in message.tool_calls)
    return replace(message, tool_calls=calls) if calls else message


def _spell(arguments: str) -> str:
    try:
        return dumps(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def read_answer(api: ProxiedApi, outcome: Outcome) -> ProxiedAnswer | None:
    """Return the model's answer as far as the client received it; None if it is empty or cannot be parsed."""
    data = outcome.copy.decode(outcome.coding)
    if data is None:
        return None
    answer = replies.read_reply(data, outcome.content_type, whole=api.whole, streamed=api.streamed)
    if answer is None or not answer.messages:
        return None
    messages = tuple(_normalise(message) for message in answer.messages)
    return replace(answer, messages=messages, is_broken_off=answer.is_broken_off or not outcome.is_whole)


router = APIRouter(prefix="/proxy", tags=["proxy"])

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


@router.api_route("/{name}/{path:path}", methods=_METHODS, include_in_schema=False, response_model=None)
async def forward_request(request: Request, caller: Reader, name: str, path: str) -> Response:
    """Forward a request to the endpoint of this name."""
    proxy = cast("Proxy | None", request.app.state.proxy)
    if proxy is None:
        return _refuse(request, 404, "the proxy is off", "start the server with --proxy")
    upstream = proxy.upstreams.get(name)
    if upstream is None:
        known = ", ".join(sorted(proxy.upstreams))
        return _refuse(request, 404, f"there is no upstream {name[:50]!r}", f"use {known}, or add it to serve.proxy")
    target = find_target(upstream, request.scope)
    if target is None:
        return _refuse(request, 404, "only paths below v1 are forwarded", "check the base URL of the client")

    if contains_token(target, select_request_headers(request.headers.raw)):
        raise SentAsKey

    def tell_failure(status: int, message: str) -> Response:
        return _refuse(request, status, message)

    return await proxy.forward(request, caller, target, api=APIS.get(unquote(path)), on_failure=tell_failure)


def _refuse(request: Request, status: int, detail: str, next_step: str = "") -> Response:
    return write_problem(request.url.path, problem(status, detail, next_step))
