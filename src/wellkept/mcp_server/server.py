"""The server on standard input and output: reads requests until the end of input, answers them in worker threads."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import cache
from queue import SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn, TypeAlias

from wellkept import __version__
from wellkept.core.errors import KeptError
from wellkept.core.text import JSON, resource_text
from wellkept.core.threads import start_thread
from wellkept.mcp_server import protocol, tools
from wellkept.mcp_server.protocol import Identity, Message, ProtocolError

if TYPE_CHECKING:
    from wellkept.app import Caller

log = logging.getLogger(__name__)

MOST_LINE_BYTES = 16 << 20
"""A longer line cannot be a model's request; it is skipped, so that it cannot fill the memory."""
WORKERS = 4
QUIET_SECONDS, IDLE_SECONDS = 2.0, 30.0
"""Spooled captures are stored after this many quiet seconds, and again after the second interval."""
DRAIN_SECONDS = 20.0
END_SECONDS = 5.0
"""How long running calls may continue after the client has closed the pipe."""
LEAVE_SECONDS = END_SECONDS + 2
"""How long the shutdown after a signal may take."""

OpenCaller = Callable[[], AbstractContextManager["Caller"]]


class Home:
    """The caller of all requests: the home is opened by the first one that needs it, and closed at the end."""

    def __init__(self, open_caller: OpenCaller) -> None:
        self._open_caller = open_caller
        self._closing = ExitStack()
        self._caller: Caller | None = None
        self._lock = threading.Lock()

    def caller(self) -> Caller:
        """Return the caller; raises a KeptError while the home cannot be opened, and tries again next time."""
        with self._lock:
            if self._caller is None:
                self._caller = self._closing.enter_context(self._open_caller())
            return self._caller

    def close(self) -> None:
        """Close what was opened."""
        if self._lock.acquire(timeout=END_SECONDS):  # a call may still wait for the disk
            self._caller = None
            self._closing.close()


class Server:
    """One client's connection over a pair of byte streams."""

    def __init__(self, open_caller: OpenCaller, source: BinaryIO, target: BinaryIO) -> None:
        self._home = Home(open_caller)
        self._source = source
        self._target = target
        self._writing = threading.Lock()
        self._inbox: SimpleQueue[Message | None] = SimpleQueue()
        self._client = "mcp"
        self._running: dict[int | str, bool] = {}
        """The requests that are not answered yet, and whether the client still wants the answer."""
        self._last_request = monotonic()
        self._identity = identify()

    def run(self) -> None:
        """Answer requests until the input ends."""
        workers = [start_thread(self._work, name=f"kept-mcp-{number}") for number in range(WORKERS)]
        stopping = threading.Event()
        idle = start_thread(lambda: self._store_captures(stopping), name="kept-mcp-idle")
        try:
            while line := self._read_line():
                self._receive(line)
        finally:
            stopping.set()
            for _ in workers:
                self._inbox.put(None)
            deadline = monotonic() + END_SECONDS
            for thread in (*workers, idle):
                thread.join(max(0.0, deadline - monotonic()))
            self._home.close()

    def _read_line(self) -> bytes:
        """Return the next line that is not empty; b"" at the end of the input."""
        while True:
            line = self._source.readline(MOST_LINE_BYTES)
            if len(line) == MOST_LINE_BYTES and not line.endswith(b"\n"):
                while (rest := self._source.readline(MOST_LINE_BYTES)) and not rest.endswith(b"\n"):
                    continue
                self._send(protocol.frame_error(None, ProtocolError(protocol.INVALID_REQUEST, "the line is too long")))
            elif not line or line.strip():
                return line

    def _receive(self, line: bytes) -> None:
        self._last_request = monotonic()
        try:
            message = protocol.parse(line)
        except ProtocolError as error:
            self._send(protocol.frame_error(protocol.request_id(line), error))
            return
        if message is None:
            return
        self._client = message.client or self._client
        if message.id is None:
            self._notice(message)
        elif message.method == "initialize":  # in order: the client may send its next request at once
            self._send(protocol.frame_result(message, protocol.greet(message, self._identity), self._identity))
        else:
            self._running[message.id] = True
            self._inbox.put(message)

    def _notice(self, message: Message) -> None:
        number = message.params.get("requestId")
        if message.method != "notifications/cancelled" or not isinstance(number, int | str):
            return
        if number in self._running:
            self._running[number] = False

    def _work(self) -> None:
        while (message := self._inbox.get()) is not None:
            assert message.id is not None
            reply = _reply(message, self._home.caller, message.client or self._client)
            if self._running.pop(message.id, True):
                self._send(reply)

    def _send(self, frame: bytes) -> None:
        with self._writing, suppress(BrokenPipeError, ValueError):  # the client is gone; its pipe ends the server
            self._target.write(frame)
            self._target.flush()

    def _store_captures(self, stopping: threading.Event) -> None:
        """Store spooled conversations of connected agents: at the start, and whenever it is quiet."""
        wait = QUIET_SECONDS
        while not stopping.wait(wait):
            is_quiet = monotonic() - self._last_request >= QUIET_SECONDS and not self._running
            wait = IDLE_SECONDS if is_quiet else QUIET_SECONDS
            if not is_quiet:
                continue
            from wellkept.connect import capture

            try:
                capture.drain_spool(self._home.caller(), deadline=monotonic() + DRAIN_SECONDS)
            except KeptError as error:
                log.warning("spooled conversations are not stored yet: %s", error)
            except Exception:  # background task: a broken transcript must not end the server
                log.exception("spooled conversations could not be stored")


@cache
def identify() -> Identity:
    """Return name, version and instructions of this server."""
    instructions = resource_text("wellkept.mcp_server", "texts", "instructions.md").strip()
    return Identity("kept", __version__, instructions, {"tools": {}, "resources": {}, "prompts": {}})


def answer_body(caller: Caller, body: bytes) -> bytes | None:
    """Answer one message that came over HTTP; None for a notification, which has no answer."""
    try:
        message = protocol.parse(body)
    except ProtocolError as error:
        return protocol.frame_error(protocol.request_id(body), error)
    if message is None or message.id is None:
        return None
    if message.method == "initialize":
        return protocol.frame_result(message, protocol.greet(message, identify()), identify())
    return _reply(message, lambda: caller, message.client or "mcp")


def _reply(message: Message, open_home: Callable[[], Caller], client: str) -> bytes:
    """Return the frame that answers a request."""
    try:
        message.check_version()
        answer = _answer(message, lambda: open_home().without_decisions(), client)
        return protocol.frame_result(message, answer, identify())
    except ProtocolError as error:
        return protocol.frame_error(message.id, error)
    except KeptError as error:
        # a resource or prompt that the home refuses; failures of tools are results
        problem = ProtocolError(protocol.INTERNAL_ERROR, one_line(error))
        return protocol.frame_error(message.id, problem)
    except Exception:  # tool call: an unforeseen failure must not end the server
        log.exception("the request %s failed", message.method)
        problem = ProtocolError(protocol.INTERNAL_ERROR, "an internal error; see logs/kept.log in the home")
        return protocol.frame_error(message.id, problem)


OpenHome: TypeAlias = Callable[[], "Caller"]
Method: TypeAlias = Callable[[OpenHome, Message, str], Mapping[str, JSON]]


_METHODS: Final[Mapping[str, Method]] = {
    "ping": lambda _home, _message, _client: {},
    "tools/list": lambda home, _message, _client: {"tools": tools.describe(home)},
    "tools/call": lambda home, message, client: tools.call(
        home, message.text("name"), message.arguments(), client=client
    ),
    "resources/list": lambda home, _message, _client: {"resources": tools.list_resources(home())},
    "resources/templates/list": lambda _home, _message, _client: {"resourceTemplates": tools.TEMPLATES},
    "resources/read": lambda home, message, client: {
        "contents": [tools.read(home(), message.text("uri"), client=client)]
    },
    "prompts/list": lambda _home, _message, _client: {"prompts": tools.list_prompts()},
    "prompts/get": lambda home, message, client: tools.fill_prompt(
        home(), message.text("name"), message.arguments(), client=client
    ),
}
"""Each a function of the home, the request and the name of the client."""


def _answer(message: Message, open_home: OpenHome, client: str) -> Mapping[str, JSON]:
    if message.method == "server/discover":
        return protocol.greet(message, identify())
    method = _METHODS.get(message.method)
    if method is None:
        raise ProtocolError(protocol.METHOD_NOT_FOUND, "Method not found", message.method[:80])
    return method(open_home, message, client)


def one_line(error: KeptError) -> str:
    """Return an error and its next step on one line."""
    text = f"{error.message}; next: {error.remedy}" if error.remedy else error.message
    return " ".join(text.split())


def serve(open_caller: OpenCaller) -> None:
    """Serve the client at standard input and output until it closes the pipe, or a signal ends the process.

    Other output of plugins, libraries and child processes is redirected to standard error.
    """
    source, target = (os.fdopen(os.dup(number), mode) for number, mode in ((0, "rb"), (1, "wb")))
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    _end_after_signal()
    with suppress(SystemExit):
        Server(open_caller, source, target).run()  # type: ignore[arg-type] # binary by their modes


def _end_after_signal() -> None:
    """End the process some seconds after a signal, whatever the main thread does.

    Python runs `_leave` between two instructions of the main thread: a signal just before a blocking read is handled
    only when the next line arrives, and an exception inside a finaliser is swallowed.
    """
    noticed, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told)

    def wait() -> None:
        os.read(noticed, 1)
        sleep(LEAVE_SECONDS)
        os._exit(0)

    start_thread(wait, name="kept-mcp-signals")


def _leave(_signal: int, _frame: Any) -> NoReturn:
    raise SystemExit(0)
