"""Prices and context windows of known models."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kept.core.messages import Usage
from kept.core.text import resource_text

DEFAULT_CONTEXT_LENGTH = 128_000
"""Assumed for unknown models; `model.context_length` overrides it."""
AT_HOME = ("local", "ollama", "lmstudio", "llamacpp", "scripted", "extractive")
"""Providers on this machine, which are free."""
HOUR_WRITE_FACTOR = 2.0
"""Price of writing to the one-hour cache, as a multiple of the input price."""

_VARIANT = re.compile(r"(?:-\d{8}|-\d{4}-\d{2}-\d{2}|-latest|-0)$")
_PER_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    long_above: int | None = None
    long_input: float = 1.0
    long_output: float = 1.0

    def cost(self, usage: Usage, *, hour_cache: bool = False) -> float:
        """Return the cost of one call in dollars; `hour_cache` if it wrote to the one-hour cache."""
        is_long = self.long_above is not None and usage.prompt_tokens > self.long_above
        write = self.input * HOUR_WRITE_FACTOR if hour_cache else self.cache_write
        prompt = (
            usage.input_tokens * self.input
            + usage.cache_read_tokens * self.cache_read
            + usage.cache_write_tokens * write
        )
        answer = usage.output_tokens * self.output
        return (prompt * (self.long_input if is_long else 1.0) + answer * (self.long_output if is_long else 1.0)) / (
            _PER_MILLION
        )


FREE = Price(0.0, 0.0, 0.0, 0.0)


def price_of(name: str, overrides: Mapping[str, Mapping[str, float]] | None = None) -> Price | None:
    """Return the price of `provider/model`, or None if it is unknown; `overrides` take precedence.

    A name with a variant suffix (`:free`) is a different product with its own price, so it is unknown.
    """
    for key in (name, name.partition("/")[2]):
        if overrides and key in overrides:
            return _price(overrides[key])
    if name.partition("/")[0] in AT_HOME:
        return FREE
    known = _table()["models"].get(plain_name(name))
    return None if known is None else _price(known)


def cost_of(
    name: str,
    usage: Usage,
    *,
    overrides: Mapping[str, Mapping[str, float]] | None = None,
    hour_cache: bool = False,
) -> float | None:
    """Return the cost of one call in dollars, or None if the price is unknown."""
    price = price_of(name, overrides)
    return None if price is None else price.cost(usage, hour_cache=hour_cache)


def known_window(name: str) -> int | None:
    """Return the context window of `provider/model` in tokens, or None if neither it nor its family is known."""
    table, model = _table(), plain_name(name)
    if model in table["models"]:
        return int(table["models"][model]["context"])
    for family, context in table["families"].items():
        if model == family or model.startswith((f"{family}-", f"{family}.", f"{family}o")):
            return int(context)
    return None


def plain_name(name: str) -> str:
    """Return the model name without provider, vendor, date or alias."""
    model = name.rpartition("/")[2].lower()
    if model.startswith("claude"):
        model = model.replace(".", "-")
    return _VARIANT.sub("", model)


def prices_checked() -> str:
    """Return the date when the table was last checked against the vendors' price pages."""
    return str(_table()["checked"])


def _price(known: Mapping[str, Any]) -> Price:
    dollars = float(known.get("input", 0.0))
    return Price(
        dollars,
        float(known.get("output", 0.0)),
        float(known.get("cache_read", dollars)),
        float(known.get("cache_write", dollars)),
        known.get("long_above"),
        float(known.get("long_input", 1.0)),
        float(known.get("long_output", 1.0)),
    )


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(resource_text("kept.llm", "models.toml"))
