"""The adapter for embeddings behind an OpenAI-compatible endpoint."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kept.llm.endpoint import Endpoint
from kept.llm.failures import broke_off
from kept.llm.sdk import JSON_BODY, Conversation, as_bytes, speaking, timeouts

BATCH = 128
"""How many texts go into one request; every known server takes that many."""


class _Nothing:
    """No answer is streamed here, so none can break off midway."""

    is_empty = True


class OpenAIEmbeddings:
    """Turns texts into vectors; called from threads, so its client is a synchronous one."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        timeout_seconds: float = 60.0,
        dimensions: int | None = None,
        batch: int = BATCH,
    ) -> None:
        self.name = f"{endpoint.provider}/{model}" + (f"@{dimensions}" if dimensions else "")
        self._dimensions = dimensions
        self._batch = batch
        self._endpoint = endpoint
        self._model = model
        self._timeout_seconds = timeout_seconds

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order, or raise a ModelError."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), self._batch):
            vectors += self._embedded(list(texts[start : start + self._batch]))
        return vectors

    def _embedded(self, texts: list[str]) -> list[list[float]]:
        import openai

        body: dict[str, Any] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        conversation = Conversation(self._endpoint, self._model, self._timeout_seconds)
        with speaking(openai, conversation, _Nothing()):
            answer = self._client.post("/embeddings", content=as_bytes(body), options=JSON_BODY, cast_to=object)
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = [[float(number) for number in row["embedding"]] for row in rows]
        if len(vectors) != len(texts):
            raise broke_off(self._endpoint, reason=f"{len(vectors)} vectors for {len(texts)} texts")
        return vectors

    @cached_property
    def _client(self) -> Any:
        import openai

        return openai.OpenAI(
            api_key=self._endpoint.api_key,
            base_url=self._endpoint.base_url,
            max_retries=0,
            timeout=timeouts(self._timeout_seconds),
            http_client=openai.DefaultHttpxClient(trust_env=False) if self._endpoint.is_loopback else None,
        )
