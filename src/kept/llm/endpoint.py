"""Where a model is served, and with which key."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kept.core.text import JSON

NO_KEY = "not-needed"
"""What servers on this machine are sent in place of a key."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server; `provider` is the first half of a model's name."""

    provider: str
    base_url: str
    api_key: str = field(default=NO_KEY, repr=False)
    key_variable: str | None = None

    @property
    def host(self) -> str:
        """Return the host without port or credentials."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_address(self) -> bool:
        """Say whether anything can be asked there at all."""
        try:
            parts = urlsplit(self.base_url)
            return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            return False

    @property
    def shown_url(self) -> str:
        """Return the address without credentials or query, for messages."""
        parts = urlsplit(self.base_url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"

    @property
    def is_loopback(self) -> bool:
        """Say whether the server is on this machine."""
        return is_loopback(self.host)


@dataclass(frozen=True, slots=True)
class Sending:
    """How requests are sent: what the settings say beyond the conversation itself."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    timeout_seconds: float = 300.0
    """The longest silence before a request counts as lost."""
    extra: Mapping[str, JSON] = field(default_factory=dict)
    """Further fields of the request body, sent as they are."""


def is_loopback(host: str) -> bool:
    """Say whether `host` names this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
