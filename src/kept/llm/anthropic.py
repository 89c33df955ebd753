"""The adapter for Anthropic's messages API and endpoints that speak it."""

from types import ModuleType
from typing import Any

from kept.core.messages import ChatRequest
from kept.llm.anthropic_wire import Answer, body
from kept.llm.served import Answering, ServedModel

VENDOR_HOST = "api.anthropic.com"


class AnthropicModel(ServedModel):
    """A Claude model behind the messages API."""

    SDK = "anthropic"
    PATH = "/v1/messages"

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

    def _answer(self) -> Answering:
        return Answer()

    def _connected(self, sdk: ModuleType, **options: Any) -> Any:
        # the SDK sends the key as a bearer token; compatible servers often know only the older header
        older = {} if self._endpoint.host == VENDOR_HOST else {"x-api-key": self._endpoint.api_key}
        return sdk.AsyncAnthropic(default_headers=older, **options)
