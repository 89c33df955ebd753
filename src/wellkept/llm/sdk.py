"""Models behind a vendor's SDK: loading, connections, streaming, errors as ModelErrors, and what both APIs share."""

import asyncio
import json
import logging
import math
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import anyio.to_thread
from msgspec import Struct

from wellkept.core.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused
from wellkept.core.events import Warned
from wellkept.core.messages import ChatRequest, ChatResponse, Delta, ToolCall
from wellkept.core.ports import EventSink, ignore
from wellkept.core.text import dumps
from wellkept.core.threads import start_thread
from wellkept.llm.endpoints import Endpoint, Sending

WireMessage: TypeAlias = dict[str, Any]
"""One message in the JSON form of an API."""


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments of a call; wrap invalid ones in an object, so that the model sees what it wrote."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"invalid_json": text}


def valid_arguments(text: str) -> str:
    """Return `text` unchanged if it is a JSON object, else wrapped in one.

    Servers parse the arguments of earlier calls again; invalid ones would make every later request of the session
    fail.
    """
    try:
        is_object = isinstance(json.loads(text), dict)
    except ValueError:
        is_object = False
    return text if is_object else dumps({"invalid_json": text})


def merge_neighbours(messages: Sequence[WireMessage]) -> list[WireMessage]:
    """Join consecutive messages of one role; their contents are lists of parts."""
    merged: list[WireMessage] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1] = {**merged[-1], "content": [*merged[-1]["content"], *message["content"]]}
        else:
            merged.append(message)
    return merged


class PartialCall:
    """A tool call that is built from streamed pieces."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []

    def complete(self, fallback_id: str) -> ToolCall:
        """Return the complete call; missing arguments become an empty object."""
        return ToolCall(self.id or fallback_id, self.name, "".join(self.arguments) or "{}")


OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The same limit has different names at newer models and older servers."""
OPTIONAL = frozenset({*OTHER_NAME, "temperature", "reasoning_effort", "prompt_cache_key", "stream_options"})
"""Parameters that a request can do without; a rejection of any other is an error."""

_REFUSES = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|not permitted|not allowed|deprecated", re.IGNORECASE
)
_NAMES = re.compile(r"\b(?:" + "|".join(sorted(OPTIONAL)) + r")\b")


def find_refused_parameter(body: object, sent: Mapping[str, Any]) -> str | None:
    """Return the optional parameter of `sent` that the error `body` of a 400 rejects, or None."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(inner, Mapping):
        return None
    message = str(inner.get("message") or "")
    if not _REFUSES.search(f"{inner.get('code')} {message}"):
        return None
    named = [str(inner.get("param")), *_NAMES.findall(message)]
    return next((name for name in named if name in OPTIONAL and name in sent), None)


def drop_parameters(body: dict[str, Any], refused: frozenset[str]) -> dict[str, Any]:
    """Return `body` without the rejected parameters; a limit is sent under its other name."""
    made: dict[str, Any] = {}
    for name, value in body.items():
        if name not in refused:
            made[name] = value
        elif name in OTHER_NAME and OTHER_NAME[name] not in refused:
            made[OTHER_NAME[name]] = value
    return made


LONGEST_MESSAGE = 300

_STATUS_OF_KIND = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "internal_server_error": 500,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "server_error": 500,
    "timeout_error": 504,
}
"""Error types of both APIs for errors without an HTTP status, for example inside a stream."""

_OVERFLOW_KINDS = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
_OVERFLOW_WORDS = re.compile(
    r"prompt is too long"
    r"|exceeds? (?:the )?(?:context limit|context window|available context|maximum context)"
    r"|maximum context length"
    r"|context (?:length|window|size)\b.{0,60}\bexceed"
    r"|exceed.{0,60}\bcontext (?:length|window|size)"
    r"|(?:input|request|prompt) (?:length |tokens )?(?:is )?(?:too long|too large) for",
    re.IGNORECASE | re.DOTALL,
)
_NO_CREDIT_KINDS = {"insufficient_quota", "billing_error", "billing_hard_limit_reached", "insufficient_credits"}


class Failure(Struct, frozen=True):
    """An error response: status, the vendor's error types, and message."""

    status: int | None
    kinds: frozenset[str] = frozenset()
    message: str = ""
    retry_after_seconds: float | None = None


def as_error(failure: Failure, endpoint: Endpoint, *, model: str) -> ModelError:
    """Return the ModelError for `failure`; its message never contains a key."""
    status = _status(failure)
    said = one_line(failure.message, secret=endpoint.api_key)
    if _is_overflow(failure, status):
        return ContextOverflow(
            f"the request is larger than the window of {model!r}: {said}", "shorten the conversation with `/compress`"
        )
    if status == 402 or failure.kinds & _NO_CREDIT_KINDS or "credit balance is too low" in failure.message:
        return ModelRefused(f"the account at {endpoint.shown_url} has no credit left: {said}", "check its billing page")
    if status is None or status in {408, 429} or status >= 500:
        wait = failure.retry_after_seconds
        requested = "" if wait is None else f"; it requests a wait of {wait:g} s"
        return ModelBusy(
            f"{endpoint.provider} at {endpoint.shown_url} is busy or failing{_shown(status)}: {said}{requested}",
            "try again later, or choose another model with `kept model set`",
            retry_after_seconds=failure.retry_after_seconds,
        )
    return _describe_refusal(status, said, endpoint=endpoint, model=model)


def _describe_refusal(status: int, said: str, *, endpoint: Endpoint, model: str) -> ModelRefused:
    key = endpoint.key_variable or "the key"
    match status:
        case 401:
            # the vendor's message may quote the key, so it is left out
            return ModelRefused(
                f"{endpoint.provider} at {endpoint.shown_url} does not accept the key (401)",
                f"check {key}, then run `kept model test`",
            )
        case 403:
            return ModelRefused(
                f"{endpoint.provider} does not let this key use {model!r} (403): {said}",
                f"check {key} and what it may use, then run `kept model test`",
            )
        case 404:
            return ModelRefused(
                f"{endpoint.shown_url} has no model {model!r} (404): {said}",
                "run `kept model list` and choose one with `kept model set NAME`",
            )
        case _:
            return ModelRefused(
                f"{endpoint.provider} refused the request ({status}): {said}",
                "run `kept model test`; with `--debug` the log holds more",
            )


def unreachable_error(endpoint: Endpoint, *, reason: str) -> ModelBusy:
    """Return the error for a server that cannot be reached.

    Not retried on this machine: waiting does not start a server that is not running.
    """
    remedy = "start the server, or check its address" if endpoint.is_loopback else "check the network and the address"
    return ModelBusy(
        f"{endpoint.shown_url} cannot be reached ({one_line(reason, secret=endpoint.api_key)})",
        f"{remedy}, then run `kept model test`",
        retry_after_seconds=math.inf if endpoint.is_loopback else None,
    )


def timeout_error(endpoint: Endpoint, *, seconds: float) -> ModelBusy:
    """Return the error for a server that sent nothing in time."""
    return ModelBusy(f"{endpoint.shown_url} sent nothing for {seconds:g} s", "try again, or raise `model.timeout`")


def interrupted_error(endpoint: Endpoint, *, reason: str) -> ModelBusy:
    """Return the error for an incomplete answer."""
    return ModelBusy(
        f"the answer of {endpoint.shown_url} was cut off ({one_line(reason, secret=endpoint.api_key)})",
        "send the message again",
    )


def empty_answer_error(endpoint: Endpoint) -> ModelBusy:
    """Return the error for an empty stream."""
    return ModelBusy(
        f"{endpoint.shown_url} answered with an empty stream",
        "check that the address is that of the API, then run `kept model test`",
    )


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the wait that the server requests in `retry-after-ms` or `retry-after`, or None."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    if text is None or (seconds := _number(text)) is not None:
        return None if text is None else seconds
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def one_line(text: str, *, secret: str = "") -> str:
    """Return `text` on one line, shortened, without `secret`."""
    if len(secret) >= 8:
        text = text.replace(secret, "…")
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else line[:LONGEST_MESSAGE] + "…"


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


def _status(failure: Failure) -> int | None:
    if failure.status is not None and failure.status >= 400:
        return failure.status
    for kind in sorted(failure.kinds):
        if kind in _STATUS_OF_KIND:
            return _STATUS_OF_KIND[kind]
        if kind.isdigit():
            return int(kind)
    return None


def _is_overflow(failure: Failure, status: int | None) -> bool:
    if failure.kinds & _OVERFLOW_KINDS or status == 413:
        return True
    # llama.cpp and some gateways answer an oversized request with a 5xx, so the words decide there too
    return status not in {401, 403, 404, 429} and _OVERFLOW_WORDS.search(failure.message) is not None


def _shown(status: int | None) -> str:
    return "" if status is None else f" ({status})"


CONNECT_SECONDS = 10.0
JSON_BODY: Any = {"headers": {"content-type": "application/json"}}

log = logging.getLogger(__name__)
T = TypeVar("T")


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
def translate_errors(sdk: ModuleType, request: RequestInfo, has_started: Callable[[], bool]) -> Iterator[None]:
    """Turn the SDK's errors into ModelErrors; `has_started` says whether part of the answer has arrived."""
    import httpx2

    try:
        yield
    except (sdk.APIError, httpx2.HTTPError) as error:
        raise _to_model_error(error, request, started=has_started()) from error
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
        info = RequestInfo(self._endpoint, self._model, self._sending.timeout_seconds)
        with translate_errors(sdk, info, lambda: not answer.is_empty):
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
