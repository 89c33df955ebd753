"""Settings of sessions and search."""

from typing import Annotated, Literal

from msgspec import Struct, field

from wellkept.core.settings import Above, Between, Guarded


class EmbeddingSettings(Struct, frozen=True, kw_only=True):
    """The section `sessions.embeddings:` of the configuration: semantic search in addition to word search."""

    provider: Annotated[Literal["off", "local", "openai"], Guarded(("off", "local", "openai"))] = "off"
    """What computes vectors: nothing, a model on this machine (extra `vectors`), or an OpenAI-compatible endpoint."""
    model: Annotated[str | None, Guarded()] = None
    """Local: a folder, an ONNX file or an installed model's name, null uses an installed one; openai: its name."""
    base_url: Annotated[str | None, Guarded()] = None
    """The address of the endpoint; null uses `OPENAI_BASE_URL` or OpenAI's own."""
    api_key_env: Annotated[str, Guarded()] = "OPENAI_API_KEY"
    """The variable that holds the key of the endpoint; a server on this machine needs none."""
    dimensions: Annotated[int, Between(8, 8_192)] | None = None
    """The number of dimensions requested from the endpoint; null uses the default of the model."""
    batch: Annotated[int, Between(1, 2_048)] = 64
    """How many texts are embedded per request."""
    timeout: Annotated[float, Above(0)] = 60.0
    """Timeout in seconds of a request for the vectors of messages."""
    query_timeout: Annotated[float, Above(0)] = 2.0
    """How long a search waits for the vector of its question before it uses words only."""
    background: bool = True
    """Whether new messages get their vectors while a chat runs; `kept sessions embed` always computes them."""


class SessionSettings(Struct, frozen=True, kw_only=True):
    """The section `sessions:` of the configuration."""

    durability: Annotated[Literal["normal", "full"], Guarded(("full", "normal"))] = "normal"
    """`full` waits for the disk at every commit, so that a message survives power loss; `normal` survives a crash."""
    redact: Annotated[bool, Guarded((True, False))] = True
    """Whether credentials are replaced by `[redacted:<rule>]` before a message is stored."""
    answer_tokens: Annotated[int, Between(500)] = 4_000
    """How many tokens one answer of `session_search` may take."""
    retention_days: Annotated[Annotated[int, Between(1)] | None, Guarded()] = None
    """After how many days without a message `kept sessions prune` moves a session to the trash; null keeps all."""
    trash_days: Annotated[int, Between(0), Guarded()] = 30
    """How long a deleted session can be restored."""
    receipt_days: Annotated[int, Between(0, 36_500), Guarded()] = 90
    """How many days the receipts of what models were shown (`kept receipts`) are kept; 0 records nothing."""
    capture_days: Annotated[Annotated[int, Between(1)] | None, Guarded()] = None
    """After how many idle days a conversation captured from another program goes to the trash; null keeps all."""
    capture_bytes: Annotated[Annotated[int, Between(1_000_000)] | None, Guarded()] = None
    """How many bytes of text captured conversations may take; the oldest go to the trash first; null is no limit."""
    embeddings: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    """Semantic search; off unless a provider is named."""
