"""Settings of the models: chat, auxiliary tasks and prompt caching."""

from typing import Annotated, Any, Literal

from msgspec import Struct, field

from wellkept.core.settings import Above, Between, Guarded


class ModelSettings(Struct, frozen=True, kw_only=True):
    """The `model:` section."""

    default: Annotated[str | None, Guarded()] = None
    """The model to use, as `provider/name`; null uses the first that a key or a local server makes available."""
    fallbacks: Annotated[list[str], Guarded()] = field(default_factory=list)
    """Models to try, in order, when the previous one is overloaded or unreachable."""
    base_url: Annotated[str | None, Guarded()] = None
    """The address of the endpoint of `model.default`; null uses the provider's variable or its default address."""
    local_path: Annotated[str | None, Guarded()] = None
    """A GGUF file that is used when no key is set and no local server answers."""
    context_length: Annotated[int, Above(0)] | None = None
    """The context window of the model in tokens; null uses the known size."""
    max_output_tokens: Annotated[int, Above(0)] | None = None
    """The longest answer in tokens; null leaves it to the endpoint (16,000 where one must be named)."""
    temperature: Annotated[float, Between(0.0, 2.0)] | None = None
    """The sampling temperature; null sends none, which newer models require."""
    timeout: Annotated[float, Above(0)] = 300.0
    """Seconds of silence after which a request fails."""
    retries: Annotated[int, Between(0, 20)] = 4
    """How often to retry an overloaded or unreachable endpoint."""
    retry_after_limit: Annotated[float, Between(0.0)] = 60.0
    """The longest wait in seconds that an endpoint may request; for a longer one the next model is used."""
    request_options: Annotated[dict[str, Any], Guarded()] = field(default_factory=dict)
    """Additional fields of every request, sent unchanged, e.g. `reasoning_effort: low`."""
    prices: Annotated[dict[str, dict[str, float]], Guarded()] = field(default_factory=dict)
    """Prices in dollars per million tokens (`input`, `output`, `cache_read`, `cache_write`) by model name."""


class AuxiliaryTask(Struct, frozen=True, kw_only=True):
    """One task of the `auxiliary:` section."""

    provider: Annotated[Literal["auto", "main", "openai", "anthropic", "openrouter", "local"], Guarded()] = "auto"
    """The provider for this task; `auto` and `main` use the main model."""
    model: Annotated[str | None, Guarded()] = None
    """The model's name at that provider; null uses the provider's default."""
    base_url: Annotated[str | None, Guarded()] = None
    """The address of the endpoint; null uses the provider's."""
    timeout: Annotated[float, Above(0)] = 120.0
    """Seconds of silence after which the task fails."""


class AuxiliarySettings(Struct, frozen=True, kw_only=True):
    """The `auxiliary:` section: a cheaper model for each task."""

    compression: AuxiliaryTask = field(default_factory=AuxiliaryTask)
    """Writes the summary when the context is compacted."""
    review: AuxiliaryTask = field(default_factory=AuxiliaryTask)
    """Reviews a conversation in the background."""
    title: AuxiliaryTask = field(default_factory=AuxiliaryTask)
    """Names a session."""
    search_summary: AuxiliaryTask = field(default_factory=AuxiliaryTask)
    """Summarises the results of a session search."""


class PromptCachingSettings(Struct, frozen=True, kw_only=True):
    """The `prompt_caching:` section."""

    enabled: bool | Literal["auto"] = "auto"
    """Whether cache markers are sent; `auto` sends them to Claude models where they are understood."""
    cache_ttl: Literal["5m", "1h"] = "5m"
    """How long a cached prefix lives after its last use."""
