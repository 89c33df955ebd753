"""Embeddings through the real SDK."""

import pytest

from kept.core.errors import ModelBusy, UsageError
from kept.llm.embeddings import BATCH, OpenAIEmbeddings
from kept.llm.endpoint import Endpoint
from kept.llm.models import Configured, Models
from kept.prompt.breakpoints import apply_cache_markers
from kept.testing.loopback_openai import LoopbackOpenAI


def test_vectors_come_in_the_order_of_the_texts():
    """However many texts there are and in whatever order the server answers, each has its own vector."""
    texts = ["e" * (number % 7) + "t" * (number % 3) for number in range(BATCH * 2 + 5)]
    with LoopbackOpenAI() as server:
        models = Models(Configured(), server.environment, mark=apply_cache_markers, sink=print)
        vectors = models.embeddings("openai/small").embed(texts)

    assert [vector[:2] for vector in vectors] == [[text.count("e"), text.count("t")] for text in texts]


def test_nothing_costs_nothing():
    """No texts, no request."""
    assert OpenAIEmbeddings(Endpoint("openai", "http://127.0.0.1:9/v1"), "m").embed([]) == []


def test_failures_are_model_errors():
    """A server that is not there is told like that of a chat model."""
    with pytest.raises(ModelBusy, match="cannot be reached"):
        OpenAIEmbeddings(Endpoint("openai", "http://127.0.0.1:9/v1"), "m").embed(["x"])


def test_who_offers_none_is_told():
    """A provider without embeddings is refused by name."""
    models = Models(Configured(), {}, mark=apply_cache_markers, sink=print)

    with pytest.raises(UsageError, match="offers no embeddings"):
        models.embeddings("anthropic/claude-x")
