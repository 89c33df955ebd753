"""Settings of external providers; which one is used is `memory.provider`."""

from typing import Annotated, Literal

from msgspec import Struct

from wellkept.core.settings import Above, Between, Guarded

Isolate = Literal["auto", "on", "off"]


class ProviderSettings(Struct, frozen=True, kw_only=True):
    """The section `providers:` of the configuration."""

    prefetch_timeout_seconds: Annotated[float, Above(0)] = 8.0
    """How long a turn waits for recall, however many providers there are."""
    start_timeout_seconds: Annotated[float, Above(0)] = 8.0
    """How long a start waits for a provider to initialise."""
    tool_timeout_seconds: Annotated[float, Above(0)] = 60.0
    """How long a provider's tool may take before its call counts as failed."""
    delivery_timeout_seconds: Annotated[float, Above(0)] = 60.0
    """How long one write from the outbox may take before it is tried again."""
    switch_wait_seconds: Annotated[float, Between(0)] = 5.0
    """How long a session switch or the exit waits for the writes of the session that is left."""
    recall_max_chars: Annotated[int, Above(0)] = 16_000
    """How many characters of recalled text a turn takes, all providers together."""
    breaker_failures: Annotated[int, Between(1)] = 5
    """After how many failures in a row a provider is paused."""
    breaker_pause_seconds: Annotated[float, Above(0)] = 120.0
    """How long it is paused."""
    outbox_limit: Annotated[int, Between(1), Guarded()] = 10_000
    """How many writes may wait per provider; beyond that the oldest are dropped, with a warning and a count."""
    isolate: Annotated[Isolate, Guarded(("on", "auto", "off"))] = "auto"
    """Whether providers that are not bundled run in a process of their own; `auto` does so where it is cheap."""
    audit_days: Annotated[int, Between(1), Guarded()] = 90
    """How long the record of provider calls is kept."""
