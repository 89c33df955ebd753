"""A real HTTP server on 127.0.0.1 that answers model requests from a script and records them."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeAlias

from msgspec import Struct

from wellkept.llm.scripted import Says, with_ids

API_KEY = "sk-loopback-0123456789"


class Status(Struct, frozen=True):
    """An HTTP error in the vendor's own form."""

    code: int
    message: str = ""
    kind: str | None = None
    """The vendor's error type; None means the usual one for the code."""
    retry_after: str | None = None


class Drops(Struct, frozen=True):
    """An answer whose connection is cut after some of its events."""

    says: Says
    after_events: int


class FailsMidway(Struct, frozen=True):
    """An answer that turns into an error event after some of its events."""

    says: Says
    after_events: int
    kind: str = "overloaded_error"


class Raw(Struct, frozen=True):
    """Bytes sent as the body of a successful answer; none is an empty stream."""

    body: bytes = b""
    content_type: str = "text/event-stream"


class Overflows(Struct, frozen=True):
    """The vendor's refusal of a request that is larger than the window."""


class Hangs(Struct, frozen=True):
    """Silence for some seconds, then a closed connection."""

    seconds: float


Step: TypeAlias = Says | str | Status | Drops | FailsMidway | Raw | Overflows | Hangs
Script: TypeAlias = Iterable[Step] | Callable[[dict[str, Any]], Step]


class Received(Struct, frozen=True):
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    raw: bytes


class Dialect(Protocol):
    """One vendor's API: how answers, errors and refusals look on the wire."""

    path: str
    models_path: str

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the key that the request carries."""
        ...

    def complaint(self, received: Received) -> str | None:
        """Return the vendor's error for an invalid request, or None."""
        ...

    def events(self, says: Says, *, model: str) -> list[bytes]:
        """Return the answer as server-sent events."""
        ...

    def failing_event(self, kind: str) -> bytes:
        """Return an error inside a stream."""
        ...

    def error(self, status: Status) -> bytes:
        """Return the body of an HTTP error."""
        ...

    def overflow(self) -> Status:
        """Return the refusal of an oversized request."""
        ...

    def instantly(self, path: str, body: Mapping[str, Any]) -> bytes | None:
        """Return the answer for a path that needs no script, or None."""
        ...

    def models(self, names: Iterable[str]) -> bytes:
        """Return the body of the list of models."""
        ...


class Loopback:
    """The server; a context manager. Steps are used in order, or computed from each request.

    `cut` splits the bytes of an answer into HTTP chunks; None sends one event per chunk. After the
    last step it answers with status 400, which is never retried, so that a test notices.
    """

    def __init__(self, dialect: Dialect, script: Script, *, models: tuple[str, ...] = ("loopback-model",)) -> None:
        self.dialect = dialect
        self.models = models
        self.api_key: str | None = API_KEY
        self.cut: Callable[[bytes], Iterable[bytes]] | None = None
        self.requests: list[Received] = []
        self.hung_up = threading.Event()
        """Set when a client closed the connection while an answer was being sent."""
        self._script = script if callable(script) else iter(script)
        self._calls = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.loopback = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Return the address of the server, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Return the bodies of the model requests so far."""
        return [received.body for received in self.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def next_step(self, received: Received) -> Step:
        """Record a request and return the step that answers it."""
        with self._lock:
            self.requests.append(received)
            if self.api_key is not None and self.dialect.key(received.headers) != self.api_key:
                return Status(401, "the key of this request is not the server's")
            if (complaint := self.dialect.complaint(received)) is not None:
                return Status(400, complaint)
            if callable(self._script):
                step = self._script(received.body)
            else:
                step = next(self._script, Status(400, "the script of the loopback server has ended"))
            return self._with_ids(Says(step) if isinstance(step, str) else step)

    def _with_ids(self, step: Step) -> Step:
        match step:
            case Says():
                said = with_ids(step, self._calls)
                self._calls += len(said.tool_calls)
                return said
            case _:
                return step


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256  # a load test connects with hundreds of clients at once
    loopback: Loopback

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: these servers are for tests of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        """Stay quiet."""

    def do_GET(self) -> None:
        """Answer the list of models."""
        loopback = self.server.loopback
        if self.path.split("?")[0] == loopback.dialect.models_path:
            self._whole(200, loopback.dialect.models(loopback.models), "application/json")
        else:
            self._fail(Status(404, f"no such path: {self.path}"))

    def do_HEAD(self) -> None:
        """Answer 200: some clients check before the first request that the server is there."""
        self._whole(200, b"", "application/json")

    def do_POST(self) -> None:
        """Answer a model request with the next step of the script."""
        raw = self.rfile.read(int(self.headers.get("content-length", "0")))
        loopback = self.server.loopback
        path = self.path.split("?")[0]
        if (answer := loopback.dialect.instantly(path, json.loads(raw))) is not None:
            self._whole(200, answer, "application/json")
            return
        if path != loopback.dialect.path:
            self._fail(Status(404, f"no such path: {self.path}"))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._answer(loopback.next_step(Received(self.path, headers, json.loads(raw), raw)), json.loads(raw))

    def _answer(self, step: Step, body: dict[str, Any]) -> None:
        dialect = self.server.loopback.dialect
        match step:
            case Says() | Drops() | FailsMidway():
                self._speak(step, model=body["model"])
            case Status():
                self._fail(step)
            case Overflows():
                self._fail(dialect.overflow())
            case Raw(content, content_type):
                self._whole(200, content, content_type)
            case Hangs(seconds):
                time.sleep(seconds)
                self._hang_up()
            case str():
                raise AssertionError("text is turned into Says when the step is taken")

    def _speak(self, step: Says | Drops | FailsMidway, *, model: str) -> None:
        dialect = self.server.loopback.dialect
        match step:
            case Says():
                self._stream(dialect.events(step, model=model), step.delay_seconds)
            case Drops(says, after):
                self._stream(dialect.events(says, model=model)[:after], says.delay_seconds, ends=False)
            case FailsMidway(says, after, kind):
                events = dialect.events(says, model=model)[:after]
                self._stream([*events, dialect.failing_event(kind)], says.delay_seconds)

    def _fail(self, status: Status) -> None:
        extra = {} if status.retry_after is None else {"retry-after": status.retry_after}
        self._whole(status.code, self.server.loopback.dialect.error(status), "application/json", extra)

    def _whole(self, code: int, content: bytes, content_type: str, extra: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"content-type": content_type, "content-length": str(len(content))}.items():
            self.send_header(name, value)
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, events: list[bytes], delay_seconds: float, *, ends: bool = True) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        cut = self.server.loopback.cut
        try:
            for chunk in events if cut is None else cut(b"".join(events)):
                time.sleep(delay_seconds)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if ends:
                self.wfile.write(b"0\r\n\r\n")
            else:
                self._hang_up()
        except OSError:
            self.server.loopback.hung_up.set()
            self.close_connection = True

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
