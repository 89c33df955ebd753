"""Who serves models: keys, addresses, and the model to use when none is named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kept.core.errors import UsageError
from kept.llm.endpoint import NO_KEY, Endpoint
from kept.llm.failures import missing_key
from kept.llm.local_servers import SERVERS

EXTRACTIVE = "extractive"
"""The name of the assistant that works without a model."""
LOCAL = "local"
SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True)
class Vendor:
    """One provider of models behind an API."""

    name: str
    base_url: str
    key_variable: str | None = None
    url_variable: str | None = None
    usual_model: str = ""
    api: Literal["openai", "anthropic"] = "openai"
    """Which API it speaks; the SDK of that name is used."""


VENDORS: Mapping[str, Vendor] = {
    vendor.name: vendor
    for vendor in (
        Vendor(
            "anthropic",
            "https://api.anthropic.com",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "claude-sonnet-5-5",
            api="anthropic",
        ),
        Vendor("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL", "gpt-6-sol"),
        Vendor(
            "openrouter",
            "https://openrouter.ai/api/v1",
            "OPENROUTER_API_KEY",
            "OPENROUTER_BASE_URL",
            "anthropic/claude-sonnet-5.5",
        ),
        *(Vendor(server.provider, server.base_url) for server in SERVERS),
    )
}
KEYED = tuple(vendor for vendor in VENDORS.values() if vendor.key_variable is not None)
"""Vendors that a key switches on, in the order in which a key is looked for."""

_FAMILIES = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model's name in two halves."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


def parsed(name: str) -> ModelName:
    """Return `provider/model` in its halves; a bare name of a known family gets its provider."""
    provider, _, model = name.partition("/")
    if provider in {*VENDORS, LOCAL, SCRIPTED} and model:
        return ModelName(provider, model)
    if name == EXTRACTIVE:
        return ModelName(EXTRACTIVE, "")
    family = next((vendor for family, vendor in _FAMILIES.items() if name.startswith(family)), None)
    if family is not None and "/" not in name:
        return ModelName(family, name)
    known = ", ".join([*VENDORS, LOCAL, EXTRACTIVE])
    raise UsageError(f"{name!r} names no model", f"write PROVIDER/NAME with one of {known}; see `kept model list`")


def endpoint_of(provider: str, environment: Mapping[str, str], *, base_url: str | None = None) -> Endpoint:
    """Return where `provider` is reached, or raise ModelRefused when its key is missing.

    Servers on this machine need no key.
    """
    vendor = VENDORS[provider]
    url = base_url or environment.get(vendor.url_variable or "") or vendor.base_url
    key = environment.get(vendor.key_variable or "") or ""
    endpoint = Endpoint(provider, url, key or NO_KEY, vendor.key_variable)
    if not endpoint.is_address:
        where = "model.base_url" if base_url else vendor.url_variable
        raise UsageError(f"{url!r} is no address of a server", f"set {where} to one like https://host/v1")
    if vendor.key_variable is not None and not key and not endpoint.is_loopback:
        raise missing_key(provider, vendor.key_variable)
    return endpoint
