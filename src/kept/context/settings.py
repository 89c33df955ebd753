"""Settings of the context: which engine, and when and how it compresses."""

from dataclasses import dataclass
from typing import Annotated

from kept.core.settings import Between

DEFAULT_ENGINE = "compressor"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSettings:
    """What `context:` in the configuration may say."""

    engine: str = DEFAULT_ENGINE
    """The context engine: `compressor`, `lossless`, or the name of an installed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionSettings:
    """What `compression:` in the configuration may say."""

    enabled: bool = True
    """Whether the context is compacted by itself; `/compress` works either way."""
    threshold: Annotated[float, Between(0.1, 0.95)] = 0.50
    """The share of the model's window at which the context is compacted."""
    target_ratio: Annotated[float, Between(0.10, 0.80)] = 0.20
    """The share of the threshold that the newest messages keep word for word."""
    protect_last_n: Annotated[int, Between(1)] = 20
    """How many of the newest messages stay word for word, even when they exceed their share."""
    protect_first_n: Annotated[int, Between(0)] = 3
    """How many of the first messages stay: the system prompt counts as one, then the first exchange."""
    in_place: bool = False
    """Whether a compaction keeps the session's id; otherwise the talk goes on in a linked child session."""
