"""Connections: how many there may be, how long one may wait, and which one makes room for another."""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wellkept.config.settings import ServeSettings

BACKLOG = 64
"""How many new connections are accepted before one of them is looked at."""
_MOST_RESERVED_FILES = 192
"""Files of the process that are not connections: databases, logs, endpoints, and the accepted connections above."""
WRITE_SECONDS = 60.0
"""How long a client may take to receive a part of its answer."""
UNREAD_SECONDS = 2.0
"""After how long a client that does not read makes room for another one."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)  # fmt: skip


class Connections(Struct):
    """All connections of a server."""

    most: int
    per_address: int
    header_seconds: float
    _open: dict[LimitedProtocol, None] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: ServeSettings) -> Connections:
        """Return the table for a server with these settings, in what the process may open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = settings.connections
        if files != resource.RLIM_INFINITY:
            most = max(8, min(most, files - min(_MOST_RESERVED_FILES, files // 2)))
        return cls(most, min(most, settings.connections_per_address), settings.header_seconds)

    def admit(self, new: LimitedProtocol) -> bool:
        """Add a connection, and close the longest waiting one if there are too many; False if all are in use."""
        others = [each for each in self._open if each.address == new.address]
        if len(others) >= self.per_address and not self._make_room(others):
            return False
        if len(self._open) >= self.most and not self._make_room(self._open):
            return False
        self._open[new] = None
        return True

    def remove(self, gone: LimitedProtocol) -> None:
        """Remove a connection that was closed."""
        self._open.pop(gone, None)

    def _make_room(self, candidates: Iterable[LimitedProtocol]) -> bool:
        idle = [each for each in candidates if each.is_waiting or each.is_unread]
        if not idle:
            return False
        longest = min(idle, key=lambda each: (not each.is_waiting, each.since))
        self.remove(longest)
        longest.transport.abort()
        return True


class LimitedProtocol(H11Protocol):
    """A connection that is closed if it sends no request, half of one, or does not read its answer."""

    table: Connections
    """Set by `limit`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.since = self.loop.time()
        """Since when it waits for a request, or for its client to read, if it does."""
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """Return the address of the client."""
        return self.client[0] if self.client else ""

    @property
    def is_waiting(self) -> bool:
        """Whether no request runs on it."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_unread(self) -> bool:
        """Whether a part of an answer has waited for its client, for longer than a slow network explains."""
        return self._write_timer is not None and self.loop.time() - self.since >= UNREAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a request, or refuse the connection."""
        super().connection_made(transport)
        if not self.table.admit(self):
            transport.write(_FULL)
            self._close()
            return
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self.table.remove(self)
        self._stop_header_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle data; the time for the headers does not begin anew with each part of them."""
        super().data_received(data)
        self._watch_headers()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.since = self.loop.time()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, also if its client does not read."""
        self._close()

    def pause_writing(self) -> None:
        """Give the client some time to read."""
        super().pause_writing()
        self.since = self.loop.time()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client reads."""
        self._stop_write_timer()
        super().resume_writing()

    def _watch_headers(self) -> None:
        if not self.is_waiting:
            self._stop_header_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.table.header_seconds, self._close)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _close(self) -> None:
        """Close the connection after what was written, which must not take long either."""
        self.transport.close()
        self.loop.call_later(self.table.header_seconds, self.transport.abort)


def limit(settings: ServeSettings) -> type[LimitedProtocol]:
    """Return the protocol of a server with these settings."""
    return type("LimitedProtocol", (LimitedProtocol,), {"table": Connections.of(settings)})
