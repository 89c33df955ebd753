"""Settings of sessions and search."""

from dataclasses import dataclass
from typing import Annotated, Literal

from kept.core.bounds import Between


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What `sessions:` in the configuration may say."""

    durability: Literal["normal", "full"] = "normal"
    """`full` waits for the disk at every commit, so that a message survives power loss; `normal` survives a crash."""
    redact: bool = True
    """Whether credentials are replaced by `[redacted:<rule>]` before a message is stored."""
    answer_tokens: Annotated[int, Between(500)] = 4_000
    """How many tokens one answer of `session_search` may take."""
    retention_days: Annotated[int, Between(1)] | None = None
    """After how many days without a message `kept sessions prune` moves a session to the trash; null keeps all."""
    trash_days: Annotated[int, Between(0)] = 30
    """How long a deleted session can be restored."""
