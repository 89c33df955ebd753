"""Calls between two processes: one JSON object per line on a socket, in both directions, each with a deadline."""

import json
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

from wellkept.core.errors import ProviderError
from wellkept.core.text import JSON
from wellkept.core.threads import start_thread
from wellkept.core.values import asdict
from wellkept.providers.base import CommandAnswer, ForgetRequest
from wellkept.providers.hooks import WorkerThreads

log = logging.getLogger(__name__)

MAX_LINE_BYTES: Final = 64_000_000
"""The longest message; a conversation of 4,000,000 characters fits, escaped."""
SEND_SECONDS: Final = 30
"""How long a process that reads nothing may block the sender."""
_CHUNK: Final = 1 << 18
_LOOK_SECONDS: Final = 0.2
"""How often a waiting call looks whether the other process still lives: a fork may hold its socket open."""
_VALUES: Final[dict[str, Any]] = {kind.__name__: kind for kind in (ForgetRequest, CommandAnswer)}
"""Values that cross the boundary besides JSON."""


class PeerError(ProviderError):
    """A call failed in the other process, or the process is gone."""

    def __init__(self, message: str, *, kind: str = "", permanent: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        """The class of what was raised there; empty when the process is gone or silent."""
        self.permanent = permanent


def encode(value: Any) -> Any:
    """Return a value that JSON can carry; raises TypeError for one that it cannot."""
    if isinstance(value, ForgetRequest | CommandAnswer):
        return {"$value": type(value).__name__, "fields": encode(asdict(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): encode(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [encode(inner) for inner in value]
    raise TypeError(f"{type(value).__name__} is not JSON")


def decode(value: Any) -> Any:
    """Return the value that `encode` was given; tuples come back as lists."""
    if isinstance(value, list):
        return [decode(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    kind = _VALUES.get(str(value.get("$value")))
    if kind is None:
        return {key: decode(inner) for key, inner in value.items()}
    fields = {key: decode(inner) for key, inner in value["fields"].items()}
    if kind is ForgetRequest:
        fields |= {key: tuple(inner) for key, inner in fields.items() if isinstance(inner, list)}
    return kind(**fields)


class _Waiting:
    """A call that waits for its answer."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: Mapping[str, Any] = {}


class Peer:
    """One end of the connection. Calls of the other side run in daemon threads: one that hangs blocks no other."""

    def __init__(self, connection: socket.socket, serve: Callable[[str, Any], Any], *, name: str) -> None:
        limit = struct.pack("ll", SEND_SECONDS, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._connection = connection
        self._serve = serve
        self._name = name
        self._threads = WorkerThreads(name)
        self._sending = threading.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self.ended = threading.Event()
        """Set when the other side closed the connection."""

    def start(self) -> None:
        """Read what arrives in a thread of its own."""
        start_thread(self._read, name=f"{self._name}-reader")

    def notify(self, method: str, params: Any) -> None:
        """Send something that has no answer; nothing happens if the other side is gone."""
        try:
            self._send({"notify": method, "params": encode(params)})
        except (OSError, TypeError):
            self.ended.set()

    def call(self, method: str, params: Any, *, seconds: float, is_alive: Callable[[], bool] = lambda: True) -> Any:
        """Call the other side and return its answer; PeerError if it raises, ends or does not answer in time."""
        number, waiting = next(self._numbers), _Waiting()
        self._waiting[number] = waiting
        try:
            self._send({"call": number, "method": method, "params": encode(params)})
            self._wait(waiting, seconds, is_alive)
        except OSError as error:
            raise PeerError(f"its process cannot be reached: {error}") from error
        finally:
            self._waiting.pop(number, None)
        answer = waiting.answer
        if "raised" in answer:
            kind, message = str(answer["raised"]), str(answer.get("message", ""))
            raise PeerError(message, kind=kind, permanent=answer.get("permanent") is True)
        return decode(answer.get("value"))

    def close(self) -> None:
        """Close the connection for both sides, even if another process holds a copy of the socket."""
        self.ended.set()
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("the connection was closed already")
        self._threads.close()

    def _wait(self, waiting: _Waiting, seconds: float, is_alive: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not waiting.done.wait(_LOOK_SECONDS):
            if self.ended.is_set() or not is_alive():
                if waiting.done.wait(_LOOK_SECONDS):  # the answer may have arrived just before the end
                    return
                raise PeerError("its process ended")
            if time.monotonic() > deadline:
                raise PeerError(f"its process did not answer within {seconds:g} s")

    def _send(self, message: Mapping[str, JSON]) -> None:
        line = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        with self._sending:
            self._connection.sendall(line)

    def _read(self) -> None:
        pieces: list[bytes] = []
        try:
            while chunk := self._connection.recv(_CHUNK):
                *ends, rest = chunk.split(b"\n")
                for end in ends:
                    self._receive(b"".join((*pieces, end)))
                    pieces.clear()
                pieces.append(rest)
                if len(pieces) * _CHUNK > MAX_LINE_BYTES and sum(map(len, pieces)) > MAX_LINE_BYTES:
                    log.warning("%s sent more than %d bytes at once", self._name, MAX_LINE_BYTES)
                    break
        except OSError as error:
            log.debug("%s: %s", self._name, error)
        self.ended.set()

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            log.warning("%s sent a line that is not JSON", self._name)
            return
        if not isinstance(message, dict):
            return
        if "call" in message:
            self._threads.submit(partial(self._answer, message))
        elif "notify" in message:
            self._serve(str(message["notify"]), decode(message.get("params")))
        elif (waiting := self._waiting.get(message.get("answer", 0))) is not None:
            waiting.answer = message
            waiting.done.set()

    def _answer(self, message: Mapping[str, Any]) -> None:
        answer: dict[str, Any] = {"answer": message["call"]}
        try:
            answer["value"] = encode(self._serve(str(message["method"]), decode(message.get("params"))))
        except BaseException as error:  # noqa: BLE001 - the caller gets it; even SystemExit must not end this thread
            answer |= {"raised": type(error).__name__, "message": str(error)}
            answer |= {"permanent": getattr(error, "permanent", False) is True}
        try:
            self._send(answer)
        except OSError:
            self.ended.set()
