"""The adapter for every endpoint that speaks OpenAI's chat completions."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias

from kept.core.chat import ChatRequest, Delta
from kept.llm.endpoint import Endpoint, Sending
from kept.llm.failures import broke_off, empty_answer
from kept.llm.openai_wire import Answer, body
from kept.llm.sdk import JSON_BODY, Conversation, PerLoop, as_bytes, calls_so_far, http_client, speaking, timeouts
from kept.llm.wire import WireMessage

Marks: TypeAlias = Callable[[Sequence[WireMessage]], list[WireMessage]]
"""Puts cache markers on a copy of the messages."""

VENDOR_HOST = "api.openai.com"


class OpenAIModel:
    """A model behind chat completions: OpenAI, OpenRouter, Ollama, LM Studio, llama.cpp, vLLM."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        context_length: int,
        sending: Sending,
        mark: Marks | None = None,
    ) -> None:
        self.name = f"{endpoint.provider}/{model}"
        self.context_length = context_length
        self._endpoint = endpoint
        self._model = model
        self._sending = sending
        self._mark = mark
        self._clients: PerLoop[Any] = PerLoop(self._client)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Send `request`; closing the iterator closes the connection."""
        import openai

        answer = Answer()
        with speaking(openai, self._conversation, answer):
            chunks = await self._clients.get().post(
                "/chat/completions",
                content=as_bytes(self.body(request)),
                options=JSON_BODY,
                cast_to=object,
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            async with chunks:
                async for chunk in chunks:
                    for delta in answer.take(chunk):
                        yield delta
        if answer.is_empty:
            raise empty_answer(self._endpoint)
        if answer.finish is None:
            raise broke_off(self._endpoint, reason="the stream ended without a finish reason")
        yield answer.response(model=self.name, first_call=calls_so_far(request))

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request as it is sent."""
        vendor = self._endpoint.host == VENDOR_HOST
        made = body(request, model=self._model, sending=self._sending, vendor=vendor, as_parts=self._mark is not None)
        if self._mark is not None:
            made["messages"] = self._mark(made["messages"])
        return made

    async def aclose(self) -> None:
        """Close the connections that the running event loop holds."""
        client = self._clients.taken()
        if client is not None:
            await client.close()

    @property
    def _conversation(self) -> Conversation:
        return Conversation(self._endpoint, self._model, self._sending.timeout_seconds)

    def _client(self) -> Any:
        import openai

        return openai.AsyncOpenAI(
            api_key=self._endpoint.api_key,
            base_url=self._endpoint.base_url,
            max_retries=0,
            http_client=http_client(openai, self._endpoint),
            timeout=timeouts(self._sending.timeout_seconds),
        )
