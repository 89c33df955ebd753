"""Models behind a vendor's SDK: loading, connections, streaming, and errors as ModelErrors."""

import asyncio
import json
import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import anyio.to_thread
from msgspec import Struct

from wellkept.core.errors import ModelError
from wellkept.core.events import Warned
from wellkept.core.messages import ChatRequest, ChatResponse, Delta
from wellkept.core.ports import EventSink, ignore
from wellkept.core.threads import start_thread
from wellkept.llm.endpoints import Endpoint, Sending
from wellkept.llm.failures import (
    Failure,
    as_error,
    empty_answer_error,
    interrupted_error,
    retry_after,
    timeout_error,
    unreachable_error,
)
from wellkept.llm.wire import WireMessage, drop_parameters, find_refused_parameter

CONNECT_SECONDS = 10.0
JSON_BODY: Any = {"headers": {"content-type": "application/json"}}

log = logging.getLogger(__name__)
T = TypeVar("T")


class _HasContent(Protocol):
    is_empty: bool


class RequestInfo(Struct, frozen=True):
    """The endpoint and model of a request, for error messages."""

    endpoint: Endpoint
    model: str
    timeout_seconds: float


class PerLoop(Generic[T]):
    """One client per event loop, because open connections belong to the loop that created them."""

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

    def pop(self) -> T | None:
        """Remove and return the client of the running loop, or None."""
        with self._lock:
            return self._made.pop(asyncio.get_running_loop(), None)


def preload(*modules: str) -> threading.Thread:
    """Import SDKs in a daemon thread, while the user types."""

    def load() -> None:
        for module in modules:
            try:
                import_module(module)
            except ImportError:
                log.info("%s is not installed", module)

    return start_thread(load, name="kept-preload")


def timeouts(seconds: float) -> Any:
    """Return the timeout in the type that the SDKs expect."""
    import httpx2

    return httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))


_prepared: set[tuple[str, bool]] = set()
"""Completely loaded SDKs; `sys.modules` also lists modules that another thread is still importing."""


async def load_sdk(module: str, endpoint: Endpoint) -> ModuleType:
    """Return an SDK; a thread imports it and loads the certificates, so that the event loop is not blocked."""
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
    """Return the HTTP client for `endpoint`; a server on this machine is never reached through a proxy.

    Certificates are loaded once per process, and not for plain HTTP on this machine: loading them takes longer than
    everything else about a client.
    """
    if _is_plain(endpoint):
        return sdk.DefaultAsyncHttpxClient(trust_env=False, verify=False, follow_redirects=False)
    return sdk.DefaultAsyncHttpxClient(trust_env=not endpoint.is_loopback, verify=_certificates())


@cache
def _certificates() -> Any:
    import httpx2

    return httpx2.create_ssl_context()


def as_bytes(body: Mapping[str, Any]) -> bytes:
    """Return the request body as bytes; equal values give equal bytes, whichever SDK sends them.

    This also avoids the copy that the SDKs make of every part, which is slow for a long history. A lone surrogate
    cannot be encoded and becomes a question mark.
    """
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def calls_so_far(request: ChatRequest) -> int:
    """Return the number of tool calls in the history, to number new calls without an id."""
    return sum(len(message.tool_calls) for message in request.messages)


@contextmanager
def translate_errors(sdk: ModuleType, request: RequestInfo, answer: _HasContent) -> Iterator[None]:
    """Turn the SDK's errors into ModelErrors."""
    import httpx2

    try:
        yield
    except (sdk.APIError, httpx2.HTTPError) as error:
        raise _to_model_error(error, request, started=not answer.is_empty) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # a server that does not follow the protocol can cause any of these
        log.warning("unreadable answer from %s", request.endpoint.shown_url, exc_info=True)
        raise interrupted_error(request.endpoint, reason=f"unreadable: {type(error).__name__}") from error


def _to_model_error(error: Any, request: RequestInfo, *, started: bool) -> ModelError:
    import httpx2

    endpoint = request.endpoint
    causes = (error, error.__cause__)
    if any(isinstance(cause, httpx2.ConnectTimeout) for cause in causes):
        return unreachable_error(endpoint, reason="no connection in time")
    if any(isinstance(cause, httpx2.TimeoutException) for cause in causes):
        return timeout_error(endpoint, seconds=request.timeout_seconds)
    if any(isinstance(cause, httpx2.HTTPError) for cause in causes):
        closed = any(isinstance(cause, httpx2.RemoteProtocolError) for cause in causes)
        reason = str(error.__cause__ or error) or type(error).__name__
        if closed and started:
            reason = "the connection was closed before its end"
        return interrupted_error(endpoint, reason=reason) if started else unreachable_error(endpoint, reason=reason)
    return as_error(_failure(error), endpoint, model=request.model)


def _failure(error: Any) -> Failure:
    body = error.body
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    words: Mapping[str, Any] = inner if isinstance(inner, Mapping) else {"message": inner}
    kinds = frozenset(str(words[key]) for key in ("type", "code") if words.get(key) is not None)
    headers = error.response.headers if hasattr(error, "response") else {}
    message = str(words.get("message") or error.message)
    return Failure(getattr(error, "status_code", None), kinds, message, retry_after(headers))


Marks: TypeAlias = Callable[[Sequence[WireMessage]], list[WireMessage]]
"""Adds cache markers to a copy of the messages."""


class PartialAnswer(Protocol):
    """An answer that is built from the stream of one API."""

    is_empty: bool

    @property
    def missing(self) -> str:
        """Return what is missing from an incomplete stream, or an empty string."""
        ...

    def take(self, event: Any) -> Iterator[Delta]:
        """Add one event and yield the deltas to show."""
        ...

    def response(self, *, model: str, first_call: int) -> ChatResponse:
        """Return the complete answer."""
        ...


class SdkModel(ABC):
    """Base class of both vendors' adapters, which differ only in the wire format."""

    SDK: ClassVar[str]
    """The module of the vendor's SDK, imported in a thread on the first request."""
    PATH: ClassVar[str]

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        context_length: int,
        sending: Sending,
        mark: Marks | None = None,
        sink: EventSink = ignore,
    ) -> None:
        self.name = f"{endpoint.provider}/{model}"
        self.context_length = context_length
        self._endpoint = endpoint
        self._model = model
        self._sending = sending
        self._mark = mark
        self._sink = sink
        self._refused: frozenset[str] = frozenset()
        """Optional parameters that this model has rejected."""
        self._clients: PerLoop[Any] = PerLoop(self._client)

    @abstractmethod
    def body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request body, including cache markers."""

    @abstractmethod
    def _answer(self) -> PartialAnswer:
        """Return an empty answer."""

    @abstractmethod
    def _connect(self, sdk: ModuleType, **options: Any) -> Any:
        """Return the SDK's client."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Send `request`; closing the iterator closes the connection."""
        sdk = await load_sdk(self.SDK, self._endpoint)
        answer = self._answer()
        with translate_errors(sdk, RequestInfo(self._endpoint, self._model, self._sending.timeout_seconds), answer):
            events = await self._post(sdk, self.body(request))
            async with events:
                async for event in events:
                    for delta in answer.take(event):
                        yield delta
        if answer.is_empty:
            raise empty_answer_error(self._endpoint)
        if answer.missing:
            raise interrupted_error(self._endpoint, reason=answer.missing)
        yield answer.response(model=self.name, first_call=calls_so_far(request))

    async def _post(self, sdk: ModuleType, body: dict[str, Any]) -> Any:
        """Send the request; if an optional parameter is rejected, send it again without."""
        while True:
            sent = drop_parameters(body, self._refused)
            try:
                return await self._clients.get().post(
                    self.PATH,
                    content=as_bytes(sent),
                    options=JSON_BODY,
                    cast_to=object,
                    stream=True,
                    stream_cls=sdk.AsyncStream[object],
                )
            except sdk.BadRequestError as error:
                name = find_refused_parameter(error.body, sent)
                if name is None or name in self._sending.extra:
                    raise
                self._refused |= {name}
                if name == "temperature":  # the only one that a user sets
                    self._sink(
                        Warned(f"{self.name} does not accept a temperature; sending none", "see model.temperature")
                    )

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.pop()
        if client is not None:
            await client.close()

    def _client(self) -> Any:
        sdk = sys.modules[self.SDK]
        return self._connect(
            sdk,
            api_key=self._endpoint.api_key,
            base_url=self._endpoint.base_url,
            max_retries=0,
            http_client=http_client(sdk, self._endpoint),
            timeout=timeouts(self._sending.timeout_seconds),
        )
