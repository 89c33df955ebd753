"""Embeddings through the real SDK."""

import pytest

from wellkept.core.errors import ModelBusy
from wellkept.llm.endpoints import Endpoint
from wellkept.llm.openai import BATCH, OpenAIEmbeddings
from wellkept.testing.loopback_servers import LoopbackOpenAI


def test_vectors_come_in_the_order_of_the_texts():
    """However many texts there are and in whatever order the server answers, each has its own vector."""
    texts = ["e" * (number % 7) + "t" * (number % 3) for number in range(BATCH * 2 + 5)]
    with LoopbackOpenAI() as server:
        endpoint = Endpoint("openai", server.environment["OPENAI_BASE_URL"], api_key="any")
        vectors = OpenAIEmbeddings(endpoint, "small").embed(texts)

    assert [vector[:2] for vector in vectors] == [[text.count("e"), text.count("t")] for text in texts]


def test_nothing_costs_nothing():
    """No texts, no request."""
    assert OpenAIEmbeddings(Endpoint("openai", "http://127.0.0.1:9/v1"), "m").embed([]) == []


def test_failures_are_model_errors():
    """A server that is not there is told like that of a chat model."""
    with pytest.raises(ModelBusy, match="cannot be reached"):
        OpenAIEmbeddings(Endpoint("openai", "http://127.0.0.1:9/v1"), "m").embed(["x"])
