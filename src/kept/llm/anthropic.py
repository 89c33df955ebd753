"""The adapter for Anthropic's messages API and endpoints that speak it."""

from collections.abc import AsyncIterator
from typing import Any

from kept.core.chat import ChatRequest, Delta
from kept.llm.anthropic_wire import Answer, body
from kept.llm.endpoint import Endpoint, Sending
from kept.llm.failures import broke_off, empty_answer
from kept.llm.openai import Marks
from kept.llm.sdk import JSON_BODY, Conversation, PerLoop, as_bytes, calls_so_far, http_client, speaking, timeouts

VENDOR_HOST = "api.anthropic.com"


class AnthropicModel:
    """A Claude model behind the messages API."""

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
        import anthropic

        answer = Answer()
        with speaking(anthropic, self._conversation, answer):
            events = await self._clients.get().post(
                "/v1/messages",
                content=as_bytes(self.body(request)),
                options=JSON_BODY,
                cast_to=object,
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
            async with events:
                async for event in events:
                    for delta in answer.take(event):
                        yield delta
        if answer.is_empty:
            raise empty_answer(self._endpoint)
        if not answer.is_whole:
            raise broke_off(self._endpoint, reason="the stream ended before the message did")
        yield answer.response(model=self.name, first_call=calls_so_far(request))

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request as it is sent, cache markers included."""
        made = body(request, model=self._model, sending=self._sending)
        if self._mark is None:
            return made
        system = [{"role": "system", "content": made["system"]}] if "system" in made else []
        marked = self._mark([*system, *made["messages"]])
        if system:
            made["system"] = marked[0]["content"]
        made["messages"] = marked[len(system) :]
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
        import anthropic

        # the SDK sends the key as a bearer token; compatible servers often know only the older header
        older = {} if self._endpoint.host == VENDOR_HOST else {"x-api-key": self._endpoint.api_key}
        return anthropic.AsyncAnthropic(
            api_key=self._endpoint.api_key,
            base_url=self._endpoint.base_url,
            default_headers=older,
            max_retries=0,
            http_client=http_client(anthropic, self._endpoint),
            timeout=timeouts(self._sending.timeout_seconds),
        )
