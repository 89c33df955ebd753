"""Settings of sessions and search."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from kept.core.settings import Above, Between


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSettings:
    """What `sessions.embeddings:` in the configuration may say: search by meaning beside the words."""

    provider: Literal["off", "local", "openai"] = "off"
    """Who makes vectors: nobody, a model on this machine (extra `vectors`), or an OpenAI-compatible endpoint."""
    model: str | None = None
    """Local: a folder, an ONNX file or an installed model's name, null takes what is installed; openai: its name."""
    base_url: str | None = None
    """The address of the endpoint; null takes `OPENAI_BASE_URL` or OpenAI's own."""
    api_key_env: str = "OPENAI_API_KEY"
    """The variable that holds the key of the endpoint; a server on this machine needs none."""
    dimensions: Annotated[int, Between(8, 8_192)] | None = None
    """The length of the vectors that the endpoint is asked for; null leaves it to the model."""
    batch: Annotated[int, Between(1, 2_048)] = 64
    """How many texts are made into vectors at once."""
    timeout: Annotated[float, Above(0)] = 60.0
    """After how many seconds of silence a request for the vectors of messages is lost."""
    query_timeout: Annotated[float, Above(0)] = 2.0
    """How long a search waits for the vector of its question before it goes by the words alone."""
    background: bool = True
    """Whether new messages get their vectors while a chat runs; `kept sessions embed` makes them in any case."""


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
    embeddings: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    """Vectors beside the words; off unless a provider is named."""
