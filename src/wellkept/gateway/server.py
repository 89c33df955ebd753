"""The server: builds the application, listens, works while idle, and stops in order."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import anyio
import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from wellkept import __version__
from wellkept.agent.offload import offload
from wellkept.core.errors import KeptError, UsageError
from wellkept.gateway import requests, webhook
from wellkept.gateway.identity import Gate, is_loopback_address, is_screen
from wellkept.gateway.limits import BACKLOG, Entrance, limit
from wellkept.gateway.metrics import MEDIA_TYPE, Metrics
from wellkept.gateway.proxy import proxy
from wellkept.gateway.proxy.proxy import Proxy
from wellkept.gateway.requests import Admin, Reader
from wellkept.gateway.routes import chat, conversations, home, memory, skills, v1
from wellkept.gateway.state import platform_messages, tokens
from wellkept.gateway.streams import run_guarded
from wellkept.gateway.switchboard import Switchboard
from wellkept.gateway.turns import INTERRUPT_SECONDS, Turns
from wellkept.gateway.web import agents, forget, frame, sessions, settings, usage
from wellkept.gateway.web import chat as chat_screen
from wellkept.gateway.web import home as home_screen
from wellkept.gateway.web import memory as memory_screen
from wellkept.gateway.web import providers as providers_screen
from wellkept.gateway.web import skills as skills_screen
from wellkept.gateway.webhook import load_platforms
from wellkept.operations import providers, upkeep

if TYPE_CHECKING:
    from types import FrameType

    from wellkept.app import App, Caller

log = logging.getLogger(__name__)

PORTS_TRIED = 20
CLIENT_SECONDS = 5
"""How long clients may take to receive the end of their answers when the server stops."""
REPLY_SECONDS = 3.0
"""How long the replies of the last turns may take to reach their platform; later ones are sent after the next start."""
IDLE_SECONDS = 60.0
"""How often idle work is considered; it runs if no turn ended within this time."""
STUCK_SECONDS = 5.0
"""How much longer an orderly stop may take before the process ends at once."""
_ROUTERS = tuple(
    module.router
    for module in (
        memory, conversations, skills, home, chat, v1, proxy, webhook, frame, home_screen, memory_screen, sessions,
        chat_screen, agents, skills_screen, providers_screen, usage, forget, settings,
    )
)  # fmt: skip
"""In the order in which they are matched."""


class Address(Struct, frozen=True):
    """Where the server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Return the address for clients of this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - any address is this one too
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}"


AnswerMcp = Callable[["Caller", bytes], bytes | None]
"""Answers one message of an MCP client; None if it needs no answer. The MCP server is another surface."""


def build_application(
    app: App,
    *,
    host: str,
    answer_mcp: AnswerMcp | None = None,
    is_demo: bool = False,
    tell: Callable[[str], None] = log.info,
) -> Entrance:
    """Return the application for a server that listens on `host`; with `answer_mcp` it serves MCP too."""
    serving = app.settings.serve
    gate = _open_gate(app, host)
    metrics = Metrics()
    turns = Turns(metrics, idle_seconds=serving.idle_minutes * 60)
    switchboard = Switchboard(app, turns, load_platforms(app), tell)
    forwarder = Proxy(app, turns) if serving.proxy.enabled else None

    async def drain() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(turns.stop, serving.drain_seconds)
            if forwarder is not None:
                group.start_soon(forwarder.stop, serving.drain_seconds)

    @asynccontextmanager
    async def live(_fast: FastAPI) -> AsyncIterator[None]:
        forwarding = forwarder.serve() if forwarder is not None else nullcontext()
        async with turns.serve(), switchboard.serve(), forwarding, anyio.create_task_group() as group:
            group.start_soon(_work_while_idle, app, turns)
            group.start_soon(metrics.monitor)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await drain()
                    await switchboard.stop(REPLY_SECONDS)

    fast = FastAPI(
        title="kept",
        version=__version__,
        description="Persistent memory for agents. Errors are problem details (RFC 9457) with a `next` step.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=live,
    )
    fast.state.turns = turns
    fast.state.switchboard = switchboard
    fast.state.app = app
    fast.state.is_demo = is_demo
    fast.state.gate = gate
    fast.state.proxy = forwarder
    for router in _ROUTERS:
        # `include_router` would analyse all routes again, for 0.1 s of the first request
        fast.router.routes.extend(router.routes)
    _add_health(fast, app, turns)
    _add_metrics(fast, metrics, turns)
    if answer_mcp is not None:
        _add_mcp(fast, answer_mcp)
    _add_errors(fast)
    return Entrance(fast, gate, serving, metrics, drain=drain)


def _open_gate(app: App, host: str) -> Gate:
    serving = app.settings.serve
    return Gate(
        app,
        is_loopback=is_loopback_address(host),
        hosts=frozenset(name.lower() for name in serving.hosts),
        start_token=tokens.ensure_start_token(app) if serving.require_token else tokens.read_start_token(app),
    )


def _add_health(fast: FastAPI, app: App, turns: Turns) -> None:
    began = time.monotonic()

    @fast.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return requests.json_response({"ok": True, "version": __version__})

    @fast.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        def read() -> None:
            with app.database.reading() as unit:
                list(unit.execute("SELECT 1"))

        await offload(read, reserved=True)
        return requests.json_response({"ok": True, "turns": turns.running, "uptime": round(time.monotonic() - began)})

    @fast.head("/api/hello", include_in_schema=False)
    async def hello() -> Response:
        return Response(status_code=200)


def _add_metrics(fast: FastAPI, metrics: Metrics, turns: Turns) -> None:
    @fast.get("/metrics", include_in_schema=False, response_model=None)
    async def show_metrics(caller: Admin) -> Response:
        unsent = await offload(platform_messages.count_unfinished, caller)
        waiting = await offload(providers.count_outbox, caller)
        gauges = (
            ("turns_running", "Turns that run now.", turns.running),
            ("open_conversations", "Conversations that are open.", turns.open),
            ("outbox_waiting", "Queued writes to external memories.", waiting),
            (
                "platform_messages_waiting",
                "Messages of chat platforms that are not answered or not delivered yet.",
                unsent,
            ),
        )
        return Response(metrics.render(gauges), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})


def _add_mcp(fast: FastAPI, answer_mcp: AnswerMcp) -> None:
    @fast.post("/mcp", tags=["mcp"], response_model=None)
    async def serve_mcp(request: Request, caller: Reader) -> Response:
        """Answer one message of an MCP client (streamable HTTP, without sessions)."""
        frame = await offload(answer_mcp, caller, await request.body())
        if frame is None:
            return Response(status_code=202)
        return Response(frame, media_type="application/json", headers={"Cache-Control": "no-store"})


def _tell(request: Request, told: Response) -> Response:
    """Return a problem in the form that its client expects."""
    if is_screen(request.url.path) and frame.wants_page(request.headers):
        return frame.show_problem(request, json.loads(bytes(told.body)), told.status_code)
    return v1.write_problem(request.url.path, told)


def _add_errors(fast: FastAPI) -> None:
    async def on_kept(request: Request, error: Exception) -> Response:
        assert isinstance(error, KeptError)
        return _tell(request, requests.failure(error))

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _tell(request, requests.invalid_request(error))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        told = requests.problem(error.status_code, str(error.detail), headers=error.headers)
        return _tell(request, told)

    async def on_bug(request: Request, error: Exception) -> Response:
        log.error("a request failed unexpectedly", exc_info=error)
        told = requests.problem(500, "this is a bug in kept", "see the log of the server")
        return _tell(request, told)

    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        KeptError: on_kept,
        RequestValidationError: on_invalid,
        HTTPException: on_http,
        Exception: on_bug,
    }
    for kind, handler in handlers.items():
        fast.add_exception_handler(kind, handler)


# work in the background


async def _work_while_idle(app: App, turns: Turns) -> None:
    """Close idle conversations, and maintain the home when there were no turns for a while."""
    while True:
        await anyio.sleep(IDLE_SECONDS)
        await run_guarded("closing idle conversations", turns.close_idle)
        if not turns.running and time.monotonic() - turns.last_turn >= IDLE_SECONDS:
            await run_guarded("idle work", partial(offload, upkeep.run_idle_work, app.caller(), abandon=True))


# listening


def bind(host: str, port: int, *, is_exact: bool) -> tuple[socket.socket, Address]:
    """Return a bound socket: on this port, or unless `is_exact` on the next free one; raises UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | None = None
    for candidate in [port] if is_exact or port == 0 else range(port, min(port + PORTS_TRIED, 65_536)):
        # with the protocol given, asyncio disables Nagle's algorithm, which would delay every answer by 40 ms
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
        except OSError as error:
            listener.close()
            last = error
            continue
        return listener, Address(host, listener.getsockname()[1])
    raise UsageError(f"cannot listen on {host}:{port}: {last}", "choose another one with --host and --port") from last


def refuse_open_address(app: App, host: str) -> None:
    """Raise UsageError for a server that other machines can reach while it asks nobody for a token."""
    serving = app.settings.serve
    if not is_loopback_address(host) and not tokens.has_tokens(app):
        raise UsageError(
            f"{host} can be reached from other machines, but no token exists",
            "create one first: kept serve token create --name NAME",
        )
    if serving.hosts and not serving.require_token and not tokens.has_tokens(app):
        raise UsageError(
            "serve.hosts names a server that others can reach, but serve.require_token is off and no token exists",
            "turn it on: kept config set serve.require_token true",
        )


def serve(  # noqa: PLR0913 - how the server is started
    app: App,
    host: str,
    port: int,
    *,
    is_exact: bool,
    when_ready: Callable[[Address], None],
    answer_mcp: AnswerMcp | None = None,
    is_demo: bool = False,
    tell: Callable[[str], None] = log.info,
) -> None:
    """Serve until the process is told to stop; `when_ready` is called once requests are answered.

    `tell` reports to the person who started it, for example which chat platforms are connected.
    """
    refuse_open_address(app, host)
    listener, address = bind(host, port, is_exact=is_exact)
    application = build_application(app, host=host, answer_mcp=answer_mcp, is_demo=is_demo, tell=tell)
    config = uvicorn.Config(
        application,
        http=limit(app.settings.serve),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=CLIENT_SECONDS,
        h11_max_incomplete_event_size=65_536,
        backlog=BACKLOG,
    )
    server = _Server(config, lambda: when_ready(address), application.drain, app.settings.serve.drain_seconds)
    with listener:
        server.run(sockets=[listener])


def _end_process() -> None:
    """End the process although a thread of it hangs; everything that was acknowledged is on the disk."""
    log.error("a request did not end in time, so the process ends without it")
    os._exit(1)  # an exit in order would wait for the thread


class _Server(uvicorn.Server):
    """Reports when it is ready, and shuts down gracefully."""

    def __init__(
        self,
        config: uvicorn.Config,
        when_ready: Callable[[], None],
        drain: Callable[[], Awaitable[None]],
        drain_seconds: float,
    ) -> None:
        super().__init__(config)
        self._when_ready = when_ready
        self._drain = drain
        seconds = drain_seconds + INTERRUPT_SECONDS + REPLY_SECONDS + CLIENT_SECONDS + STUCK_SECONDS
        self._last_resort = threading.Timer(seconds, _end_process)
        self._last_resort.daemon = True

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop; the last resort stays where a thread would keep the process alive."""
        try:
            super().run(sockets)
        finally:
            if all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()):
                self._last_resort.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop in order; a worker thread that never returns cannot keep the process alive."""
        if not self.should_exit:
            self._last_resort.start()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGINT and SIGTERM. uvicorn raises them again, which would end the process before it is closed."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the running turns first: their clients are answered before connections are closed."""
        await self._drain()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then report that it is ready."""
        await super().startup(sockets)
        if self.started:
            self._when_ready()
