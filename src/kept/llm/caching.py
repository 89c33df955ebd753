"""When cache markers are sent, and how that is said."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kept.llm.endpoint import Endpoint
from kept.llm.settings import PromptCachingSettings
from kept.llm.vendors import VENDORS
from kept.llm.wire import WireMessage

_KNOWN_HOSTS = {"api.anthropic.com": "Anthropic", "openrouter.ai": "OpenRouter"}


class MarksMessages(Protocol):
    """Puts cache markers on a copy of the messages; the prompt tier has the real one."""

    def __call__(self, messages: Sequence[WireMessage], *, ttl: Literal["5m", "1h"], native: bool) -> list[WireMessage]:
        """Return the marked copy."""
        ...


@dataclass(frozen=True, slots=True)
class Caching:
    """Whether markers go to one model at one endpoint, and through what."""

    on: bool
    is_claude: bool
    via: str
    ttl: Literal["5m", "1h"]

    @property
    def status_line(self) -> str:
        """Return the line that a status shows."""
        if self.on:
            who = "Claude" if self.is_claude else "model"
            return f"Prompt caching: ENABLED ({who} via {self.via}, {self.ttl} TTL)"
        return "Prompt caching: off (no cache markers are sent; the endpoint may cache by itself)"


def caching_for(endpoint: Endpoint, model: str, *, settings: PromptCachingSettings, configured: bool) -> Caching:
    """Decide about markers; `configured` is an endpoint whose address a person set.

    `auto` sends them to Claude models at Anthropic, at OpenRouter, and at endpoints on this machine
    or set by a person, provided they speak the messages API.
    """
    is_claude = "claude" in model.lower()
    via = _KNOWN_HOSTS.get(endpoint.host) or ("OpenRouter" if endpoint.provider == "openrouter" else endpoint.host)
    native = VENDORS[endpoint.provider].api == "anthropic"
    understood = endpoint.host in _KNOWN_HOSTS or endpoint.provider == "openrouter"
    if native and (endpoint.is_loopback or configured):
        understood = True
    on = is_claude and understood if settings.enabled == "auto" else settings.enabled
    return Caching(on, is_claude, via, settings.cache_ttl)
