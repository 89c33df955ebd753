"""A model behind a vendor's SDK: one request, its stream, and the connections that are kept for the next one."""

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeAlias

from kept.core.events import Warned, ignore
from kept.core.messages import ChatRequest, ChatResponse, Delta
from kept.core.ports import EventSink
from kept.llm.endpoint import Endpoint, Sending
from kept.llm.failures import broke_off, empty_answer
from kept.llm.parameters import refused_parameter, without
from kept.llm.sdk import (
    JSON_BODY,
    Conversation,
    PerLoop,
    as_bytes,
    calls_so_far,
    http_client,
    prepared,
    speaking,
    timeouts,
)
from kept.llm.wire import WireMessage

Marks: TypeAlias = Callable[[Sequence[WireMessage]], list[WireMessage]]
"""Puts cache markers on a copy of the messages."""


class Answering(Protocol):
    """An answer while it arrives, in the words of one API."""

    is_empty: bool

    @property
    def missing(self) -> str:
        """Return what the stream lacked to be whole, nothing when it was."""
        ...

    def take(self, event: Any) -> Iterator[Delta]:
        """Add one event and give what of it can be shown."""
        ...

    def response(self, *, model: str, first_call: int) -> ChatResponse:
        """Return the whole answer."""
        ...


class ServedModel(ABC):
    """What both vendors' adapters are; a class to inherit from, because they differ in the wire alone."""

    SDK: ClassVar[str]
    """The module of the vendor's SDK, imported in a thread with the first request."""
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
        """Optional parameters that this model does not take."""
        self._clients: PerLoop[Any] = PerLoop(self._client)

    @abstractmethod
    def body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request as it is sent, cache markers included."""

    @abstractmethod
    def _answer(self) -> Answering:
        """Return an answer that has not begun."""

    @abstractmethod
    def _connected(self, sdk: ModuleType, **options: Any) -> Any:
        """Return the SDK's client."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Send `request`; closing the iterator closes the connection."""
        sdk = await prepared(self.SDK, self._endpoint)
        answer = self._answer()
        with speaking(sdk, Conversation(self._endpoint, self._model, self._sending.timeout_seconds), answer):
            events = await self._posted(sdk, self.body(request))
            async with events:
                async for event in events:
                    for delta in answer.take(event):
                        yield delta
        if answer.is_empty:
            raise empty_answer(self._endpoint)
        if answer.missing:
            raise broke_off(self._endpoint, reason=answer.missing)
        yield answer.response(model=self.name, first_call=calls_so_far(request))

    async def _posted(self, sdk: ModuleType, body: dict[str, Any]) -> Any:
        """Send the request; one whose optional parameters are refused is sent again without them."""
        while True:
            sent = without(body, self._refused)
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
                name = refused_parameter(error.body, sent)
                if name is None or name in self._sending.extra:
                    raise
                self._refused |= {name}
                if name == "temperature":  # the one of them that a person has set
                    self._sink(
                        Warned(f"{self.name} takes no temperature; it is asked without", "see model.temperature")
                    )

    async def aclose(self) -> None:
        """Close the connections that the running event loop holds."""
        client = self._clients.taken()
        if client is not None:
            await client.close()

    def _client(self) -> Any:
        sdk = sys.modules[self.SDK]
        return self._connected(
            sdk,
            api_key=self._endpoint.api_key,
            base_url=self._endpoint.base_url,
            max_retries=0,
            http_client=http_client(sdk, self._endpoint),
            timeout=timeouts(self._sending.timeout_seconds),
        )
