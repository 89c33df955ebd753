"""What both vendors' SDKs have in common: a client per event loop, and errors put into our words."""

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

import anyio.to_thread

from kept.core.errors import ModelError
from kept.core.messages import ChatRequest
from kept.llm.endpoint import Endpoint
from kept.llm.failures import Failure, as_error, broke_off, retry_after, timed_out, unreachable

CONNECT_SECONDS = 10.0
JSON_BODY: Any = {"headers": {"content-type": "application/json"}}

log = logging.getLogger(__name__)
T = TypeVar("T")


class _Hears(Protocol):
    is_empty: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """Who is being spoken to, for the words of an error."""

    endpoint: Endpoint
    model: str
    timeout_seconds: float


class PerLoop(Generic[T]):
    """One client per event loop, because its open connections belong to the loop they were made in."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self) -> T:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._made:
                self._made[loop] = self._make()
            return self._made[loop]

    def taken(self) -> T | None:
        """Give the running loop's client away, to be closed; None if there is none."""
        with self._lock:
            return self._made.pop(asyncio.get_running_loop(), None)


def warm(*modules: str) -> threading.Thread:
    """Import SDKs in a thread, while the person types; the thread is a daemon and may be ignored."""

    def load() -> None:
        for module in modules:
            try:
                import_module(module)
            except ImportError:
                log.info("%s is not installed", module)

    thread = threading.Thread(target=load, name="kept-warm", daemon=True)
    thread.start()
    return thread


def timeouts(seconds: float) -> Any:
    """Return how long a request may be silent, in the SDKs' own type."""
    import httpx2

    return httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))


_prepared: set[tuple[str, bool]] = set()
"""What is loaded to its end; `sys.modules` also names what another thread is still importing."""


async def prepared(module: str, endpoint: Endpoint) -> ModuleType:
    """Return an SDK; what its first client takes time for is done in a thread, so that nothing else waits."""
    key = (module, _is_plain(endpoint))
    if key not in _prepared:
        await anyio.to_thread.run_sync(_prepare, *key, abandon_on_cancel=True)
        _prepared.add(key)
    return sys.modules[module]


def _prepare(module: str, is_plain: bool) -> None:
    import_module(module)
    if not is_plain:
        _certificates()


def _is_plain(endpoint: Endpoint) -> bool:
    return endpoint.is_loopback and endpoint.base_url.startswith("http://")


def http_client(sdk: ModuleType, endpoint: Endpoint) -> Any:
    """Return the client to use for `endpoint`: a server on this machine is never asked through a proxy.

    The certificates are read once per process, and not at all for plain HTTP on this machine: that takes
    longer than everything else about a client.
    """
    if _is_plain(endpoint):
        return sdk.DefaultAsyncHttpxClient(trust_env=False, verify=False, follow_redirects=False)
    return sdk.DefaultAsyncHttpxClient(trust_env=not endpoint.is_loopback, verify=_certificates())


@cache
def _certificates() -> Any:
    import httpx2

    return httpx2.create_ssl_context()


def as_bytes(body: Mapping[str, Any]) -> bytes:
    """Return the body as it is sent: the same value, the same bytes, whatever SDK sends it.

    Writing it here also spares the copy that the SDKs make of every part, which a long history feels.
    Half of a surrogate pair has no bytes and becomes a question mark.
    """
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def calls_so_far(request: ChatRequest) -> int:
    """Return how many tool calls the history holds, to number those that come without an id."""
    return sum(len(message.tool_calls) for message in request.messages)


@contextmanager
def speaking(sdk: ModuleType, conversation: Conversation, answer: _Hears) -> Iterator[None]:
    """Raise whatever fails inside as a ModelError."""
    import httpx2

    try:
        yield
    except (sdk.APIError, httpx2.HTTPError) as error:
        raise _in_our_words(error, conversation, started=not answer.is_empty) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # the bytes of a foreign server: whatever cannot be read as its protocol ends here
        log.warning("unreadable answer from %s", conversation.endpoint.shown_url, exc_info=True)
        raise broke_off(conversation.endpoint, reason=f"unreadable: {type(error).__name__}") from error


def _in_our_words(error: Any, conversation: Conversation, *, started: bool) -> ModelError:
    import httpx2

    endpoint = conversation.endpoint
    causes = (error, error.__cause__)
    if any(isinstance(cause, httpx2.ConnectTimeout) for cause in causes):
        return unreachable(endpoint, reason="no connection in time")
    if any(isinstance(cause, httpx2.TimeoutException) for cause in causes):
        return timed_out(endpoint, seconds=conversation.timeout_seconds)
    if any(isinstance(cause, httpx2.HTTPError) for cause in causes):
        closed = any(isinstance(cause, httpx2.RemoteProtocolError) for cause in causes)
        reason = str(error.__cause__ or error) or type(error).__name__
        if closed and started:
            reason = "the connection was closed before its end"
        return broke_off(endpoint, reason=reason) if started else unreachable(endpoint, reason=reason)
    return as_error(_failure(error), endpoint, model=conversation.model)


def _failure(error: Any) -> Failure:
    body = error.body
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    words: Mapping[str, Any] = inner if isinstance(inner, Mapping) else {"message": inner}
    kinds = frozenset(str(words[key]) for key in ("type", "code") if words.get(key) is not None)
    headers = error.response.headers if hasattr(error, "response") else {}
    message = str(words.get("message") or error.message)
    return Failure(getattr(error, "status_code", None), kinds, message, retry_after(headers))
