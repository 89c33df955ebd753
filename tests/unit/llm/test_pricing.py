"""What models cost and how large their windows are, by every spelling of their names."""

import pytest

from wellkept.core.messages import Usage
from wellkept.llm.tokens import cost_of, known_window, price_of

MILLION = 1_000_000


@pytest.mark.parametrize(
    "name",
    [
        "anthropic/claude-sonnet-4-5",
        "anthropic/claude-sonnet-4-5-20250929",
        "openrouter/anthropic/claude-sonnet-4.5",
        "anthropic/claude-sonnet-4-0",
    ],
)
def test_spellings_of_one_model_cost_the_same(name: str):
    """Dates, aliases, dots and the road to a model do not change its price."""
    price = price_of(name)

    assert price is not None
    assert (price.input, price.output, price.cache_read, price.cache_write) == (3, 15, 0.3, 3.75)


@pytest.mark.parametrize("name", ["openai/gpt-99", "openrouter/meta/llama:free", "openai/gpt-5-pro", "ours/thing"])
def test_an_unknown_model_has_no_price(name: str):
    """Nothing is guessed: a name that only resembles a known one is unknown."""
    assert price_of(name) is None
    assert cost_of(name, Usage(1, 1)) is None


def test_cost_counts_each_kind_of_token():
    """Uncached, written, read and answered tokens each have their own price."""
    usage = Usage(MILLION, MILLION, MILLION, MILLION)

    assert cost_of("anthropic/claude-sonnet-4-5", usage) == pytest.approx(3 + 15 + 0.3 + 3.75)
    assert cost_of("anthropic/claude-sonnet-4-5", usage, hour_cache=True) == pytest.approx(3 + 15 + 0.3 + 6)


def test_long_prompts_can_cost_more():
    """A model with a second price for long prompts is charged by it from its border on."""
    assert cost_of("openai/gpt-6-sol", Usage(272_000, 1000)) == pytest.approx(0.272 * 2 + 0.01)
    assert cost_of("openai/gpt-6-sol", Usage(272_001, 1000)) == pytest.approx(0.272001 * 4 + 0.015)


def test_a_persons_own_price_wins():
    """Prices in the configuration hold for known and unknown models, by full or bare name."""
    overrides = {"openai/gpt-99": {"input": 1.0, "output": 2.0}, "claude-sonnet-4-5": {"input": 9.0}}

    assert cost_of("openai/gpt-99", Usage(MILLION, MILLION), overrides=overrides) == pytest.approx(3)
    assert cost_of("anthropic/claude-sonnet-4-5", Usage(MILLION), overrides=overrides) == pytest.approx(9)


def test_models_on_this_machine_are_free():
    """Tokens of a local server or file cost nothing."""
    assert cost_of("ollama/llama3.2", Usage(MILLION, MILLION)) == 0.0
    assert cost_of("local/~/m.gguf", Usage(MILLION, MILLION)) == 0.0


@pytest.mark.parametrize(
    ("name", "window"),
    [("anthropic/claude-haiku-4-5", 200_000), ("anthropic/claude-unheard-9", 200_000), ("openai/gpt-4o-2024-08-06", 128_000),
     ("openai/gpt-6.7-sol", 1_050_000), ("openai/gpt-4.1", 1_047_576), ("ollama/llama3.2", None)],
)  # fmt: skip
def test_windows(name: str, window: int | None):
    """A known model has its own window, an unheard one its family's, a stranger none."""
    assert known_window(name) == window
