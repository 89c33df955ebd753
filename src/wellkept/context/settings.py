"""Settings of the context engine and of compaction."""

from typing import Annotated

from msgspec import Struct

from wellkept.core.settings import Between, Guarded

DEFAULT_ENGINE = "compressor"


class ContextSettings(Struct, frozen=True, kw_only=True):
    """The `context:` section."""

    engine: Annotated[str, Guarded()] = DEFAULT_ENGINE
    """The context engine: `compressor`, `lossless`, or the name of an installed one."""


class CompressionSettings(Struct, frozen=True, kw_only=True):
    """The `compression:` section."""

    enabled: bool = True
    """Whether the context is compacted automatically; `/compress` always works."""
    threshold: Annotated[float, Between(0.1, 0.95)] = 0.50
    """The share of the model's window at which the context is compacted."""
    target_ratio: Annotated[float, Between(0.10, 0.80)] = 0.20
    """The share of the threshold reserved for the newest messages, which are kept verbatim."""
    protect_last_n: Annotated[int, Between(1)] = 20
    """How many of the newest messages are kept verbatim, even when they exceed their share."""
    protect_first_n: Annotated[int, Between(0)] = 3
    """How many of the first messages are kept: the system prompt counts as one, then the first exchange."""
    in_place: bool = False
    """Whether a compaction keeps the session's id; otherwise the conversation continues in a linked child session."""
