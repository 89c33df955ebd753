"""Model endpoints: addresses and keys, known vendors, and servers on this machine."""

import ipaddress
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from wellkept.core.errors import ModelRefused, UsageError
from wellkept.core.text import JSON
from wellkept.core.values import hide

NO_KEY = "not-needed"
"""Sent as the key to servers that need none."""


class Endpoint(Struct, frozen=True):
    """One server; `provider` is the first half of a model's name."""

    provider: str
    base_url: str
    api_key: str = NO_KEY
    key_variable: str | None = None

    __repr__ = hide("api_key")

    @property
    def host(self) -> str:
        """Return the host without port or credentials."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_address(self) -> bool:
        """Whether the URL is usable: http or https with a host."""
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
        """Whether the server is on this machine."""
        return is_loopback(self.host)


class Sending(Struct, frozen=True):
    """Request parameters from the settings."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    timeout_seconds: float = 300.0
    """The longest silence before a request fails."""
    extra: Mapping[str, JSON] = field(default_factory=dict)
    """Additional fields of the request body, sent unchanged."""


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


PROBE_SECONDS = 0.2
"""How long a local server may take to answer when kept looks for one at start-up."""
WINDOW_SECONDS = 1.0


class LocalServer(Struct, frozen=True):
    """A kind of local server and its default port."""

    provider: str
    title: str
    port: int

    @property
    def base_url(self) -> str:
        """Return the address of its OpenAI-compatible API."""
        return f"http://127.0.0.1:{self.port}/v1"


SERVERS = (
    LocalServer("ollama", "Ollama", 11434),
    LocalServer("lmstudio", "LM Studio", 1234),
    LocalServer("llamacpp", "llama.cpp", 8080),
)


def models_at(base_url: str, *, seconds: float = PROBE_SECONDS, key: str = "") -> list[str] | None:
    """Return the models that a server lists, or None if it does not answer like a model server."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    answer = _json(f"{base_url}/models", seconds=seconds, headers=headers)
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return None
    return [str(one["id"]) for one in listed if isinstance(one, dict) and "id" in one]


def probe(servers: Iterable[LocalServer] = SERVERS) -> dict[str, list[str] | None]:
    """Query all listening servers concurrently for their models; takes at most 200 ms.

    Servers that do not listen are absent from the result; the value is None for one that is not a model server.
    """
    listening = [server for server in servers if _listens(server.port)]
    if not listening:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(listening), thread_name_prefix="kept-probe") as pool:
        answers = pool.map(models_at, [server.base_url for server in listening])
        return {server.provider: answer for server, answer in zip(listening, answers, strict=True)}


def _listens(port: int) -> bool:
    """Whether the port is open; checked first because it is immediate and avoids importing HTTP."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def window_at(provider: str, base_url: str, model: str) -> int | None:
    """Return the context window that a local server gives `model`, or None if the server does not report it."""
    if provider not in _WINDOWS:
        return None
    path, read = _WINDOWS[provider]
    root = base_url.removesuffix("/").removesuffix("/v1")
    return read(_json(root + path, seconds=WINDOW_SECONDS), model)


def window_behind(base_url: str, model: str) -> int | None:
    """Return the context window of `model` at a server of this machine whose program is unknown, or None.

    llama.cpp reports it at `/props`, others in the list of models.
    """
    root = base_url.removesuffix("/").removesuffix("/v1")
    found = _llamacpp(_json(f"{root}/props", seconds=WINDOW_SECONDS), model)
    if found is not None:
        return found
    listed = _at(_json(f"{root}/v1/models", seconds=WINDOW_SECONDS), "data")
    windows = (_of_model(listed, "id", model, field=field) for field in _WINDOW_FIELDS)
    return next((window for window in windows if window is not None), None)


def _llamacpp(answer: Any, model: str) -> int | None:  # noqa: ARG001 - all readers share one signature
    return _positive_int(_at(answer, "default_generation_settings", "n_ctx"))


def _ollama(answer: Any, model: str) -> int | None:
    return _of_model(_at(answer, "models"), "model", model, field="context_length")


def _lmstudio(answer: Any, model: str) -> int | None:
    return _of_model(_at(answer, "data"), "id", model, field="loaded_context_length")


def _of_model(listed: Any, key: str, model: str, *, field: str) -> int | None:
    rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
    return next((_positive_int(row.get(field)) for row in rows if row.get(key) == model), None)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _positive_int(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


_WINDOW_FIELDS = ("max_model_len", "loaded_context_length", "context_length", "max_context_length")
"""The fields for the window of a model in `/v1/models`; the loaded size before the possible one."""
_WINDOWS: Mapping[str, tuple[str, Callable[[Any, str], int | None]]] = {
    "ollama": ("/api/ps", _ollama),
    "lmstudio": ("/api/v0/models", _lmstudio),
    "llamacpp": ("/props", _llamacpp),
}


def _json(url: str, *, seconds: float, headers: Mapping[str, str] | None = None) -> Any:
    import http.client

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request("GET", parts.path, headers=dict(headers or {}))
        response = connection.getresponse()
        return json.loads(response.read(2_000_000)) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


EXTRACTIVE = "extractive"
"""The name of the assistant that works without a model."""
LOCAL = "local"
SCRIPTED = "scripted"


class Vendor(Struct, frozen=True):
    """One provider of models behind an API."""

    name: str
    base_url: str
    key_variable: str | None = None
    url_variable: str | None = None
    default_model: str = ""
    api: Literal["openai", "anthropic"] = "openai"
    """The API it speaks, and the SDK to use."""


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
"""Vendors that need a key, in order of preference."""

_FAMILIES = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}


class ModelName(Struct, frozen=True):
    """A model name: provider and model."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


def parse_name(name: str) -> ModelName:
    """Parse `provider/model`; a bare name of a known family gets its provider."""
    provider, _, model = name.partition("/")
    if provider in {*VENDORS, LOCAL, SCRIPTED} and model:
        return ModelName(provider, model)
    if name == EXTRACTIVE:
        return ModelName(EXTRACTIVE, "")
    family = next((vendor for family, vendor in _FAMILIES.items() if name.startswith(family)), None)
    if family is not None and "/" not in name:
        return ModelName(family, name)
    known = ", ".join([*VENDORS, LOCAL, EXTRACTIVE])
    raise UsageError(f"{name!r} is not a model name", f"write PROVIDER/NAME with one of {known}; see `kept model list`")


def endpoint_of(provider: str, environment: Mapping[str, str], *, base_url: str | None = None) -> Endpoint:
    """Return the endpoint of `provider`, or raise ModelRefused if its key is missing.

    Servers on this machine need no key.
    """
    vendor = VENDORS[provider]
    url = base_url or environment.get(vendor.url_variable or "") or vendor.base_url
    key = environment.get(vendor.key_variable or "") or ""
    endpoint = Endpoint(provider, url, key or NO_KEY, vendor.key_variable)
    if not endpoint.is_address:
        where = "model.base_url" if base_url else vendor.url_variable
        raise UsageError(f"{url!r} is not the address of a server", f"set {where} to one like https://host/v1")
    if vendor.key_variable is not None and not key and not endpoint.is_loopback:
        raise missing_key(provider, vendor.key_variable)
    return endpoint


def missing_key(provider: str, variable: str) -> ModelRefused:
    """Return the error for an endpoint that needs a key that is not set."""
    return ModelRefused(
        f"{provider} needs a key and {variable} is not set", f"set {variable}, then run `kept model test`"
    )
