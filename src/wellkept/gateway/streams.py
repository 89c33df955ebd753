"""Streams: events from any thread to one coroutine, and answers that are written while a turn runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
from starlette.responses import Response

from wellkept.core.errors import KeptError
from wellkept.core.events import Event
from wellkept.core.text import JSON, dumps

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

T = TypeVar("T")
Write = Callable[[str], Awaitable[None]]

STREAM_EVENTS = 10_000
"""How many events may wait for a slow client; further ones are dropped, but the stored answer is complete."""
WRITE_SECONDS = 60.0
"""How long a client may take to receive a part; after that it counts as disconnected."""


class EventQueue:
    """Carries events from any thread to the coroutine that writes them to the client."""

    def __init__(self) -> None:
        self._send: MemoryObjectSendStream[Event]
        self._send, self.receive = anyio.create_memory_object_stream[Event](STREAM_EVENTS)
        self._thread = threading.get_ident()
        self._token = anyio.lowlevel.current_token()
        self.overflowed = False

    def put(self, event: Event) -> None:
        """Add an event; never waits."""
        if threading.get_ident() == self._thread:
            self._put(event)
        else:
            anyio.from_thread.run_sync(self._put, event, token=self._token)

    def _put(self, event: Event) -> None:
        try:
            self._send.send_nowait(event)
        except anyio.WouldBlock:
            self.overflowed = True
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return

    def close(self) -> None:
        """End the stream."""
        self._send.close()


class StreamedAnswer(Response):
    """An answer that `produce` writes part by part; if the client disconnects, `produce` is cancelled."""

    def __init__(
        self, produce: Callable[[Write], Awaitable[None]], *, headers: Mapping[str, str] | None = None
    ) -> None:
        own = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})}
        super().__init__(media_type="text/event-stream", headers=own)
        del self.headers["content-length"]
        self._produce = produce

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Write the answer."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def produce(leave: Callable[[], None]) -> bool:
            async def write(text: str) -> None:
                body = text.encode("utf-8", "replace")
                with anyio.move_on_after(WRITE_SECONDS) as waiting:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                if waiting.cancelled_caught:
                    leave()

            await self._produce(write)
            return True

        if await _run_while_connected(receive, produce):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def finish_or_abandon(request: Request, work: Callable[[], Awaitable[T]]) -> T | None:
    """Return the result of `work`; None if the client disconnects first, which cancels it."""
    return await _run_while_connected(request.receive, lambda _leave: work())


async def _run_while_connected(receive: Receive, work: Callable[[Callable[[], None]], Awaitable[T]]) -> T | None:
    """Run `work`, which gets a function that abandons the client."""
    results: list[T] = []
    failure: KeptError | None = None
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                continue
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            results.append(await work(group.cancel_scope.cancel))
        except KeptError as error:  # raised outside, because a task group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return results[0] if results else None


async def run_guarded(what: str, work: Callable[[], Awaitable[object]]) -> None:
    """Run work in the background; a failure is logged, because it would end the server otherwise."""
    try:
        await work()
    except Exception:  # background task: nobody waits for it
        log.exception("%s failed", what)


def sse(name: str | None, value: JSON) -> str:
    """Return one server-sent event."""
    head = f"event: {name}\n" if name is not None else ""
    return f"{head}data: {dumps(value)}\n\n"
