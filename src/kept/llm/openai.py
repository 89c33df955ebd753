"""The adapter for every endpoint that speaks OpenAI's chat completions."""

from types import ModuleType
from typing import Any

from kept.core.messages import ChatRequest
from kept.llm.openai_wire import Answer, body
from kept.llm.served import Answering, ServedModel

VENDOR_HOST = "api.openai.com"


class OpenAIModel(ServedModel):
    """A model behind chat completions: OpenAI, OpenRouter, Ollama, LM Studio, llama.cpp, vLLM."""

    SDK = "openai"
    PATH = "/chat/completions"

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request as it is sent, cache markers included."""
        vendor = self._endpoint.host == VENDOR_HOST
        made = body(request, model=self._model, sending=self._sending, vendor=vendor, as_parts=self._mark is not None)
        if self._mark is not None:
            made["messages"] = self._mark(made["messages"])
        return made

    def _answer(self) -> Answering:
        return Answer()

    def _connected(self, sdk: ModuleType, **options: Any) -> Any:
        return sdk.AsyncOpenAI(**options)
