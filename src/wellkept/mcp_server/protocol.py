"""The messages of the Model Context Protocol, in both forms: with a handshake (until 2025) and stateless (2026).

The client's request decides: from 2026 on every request has the version, the client and its capabilities in
`_meta`; before, `initialize` sent them once. A server that answers each request in its own form needs no modes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from wellkept.core.text import JSON, dumps, is_encodable

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS: Final = ("2026-07-28",)

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
UNSUPPORTED_VERSION = -32022

_VERSION = "io.modelcontextprotocol/protocolVersion"
_CLIENT = "io.modelcontextprotocol/clientInfo"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_SERVER = "io.modelcontextprotocol/serverInfo"
_CACHED = frozenset(
    ("server/discover", "tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list")
)
"""Methods whose stateless results forbid caching, because other agents write too."""
_MOST_NAME_CHARS = 40


class ProtocolError(Exception):
    """A request that cannot be answered: a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: JSON = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def as_json(self) -> dict[str, JSON]:
        """Return the error object."""
        value: dict[str, JSON] = {"code": self.code, "message": self.message}
        return value if self.data is None else {**value, "data": self.data}


class Message(Struct, frozen=True):
    """One request or notification of the client; a notification has no id."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    id: int | str | None = None

    @property
    def is_stateless(self) -> bool:
        """Whether the request carries its own version."""
        return isinstance(self._meta, Mapping) and _VERSION in self._meta

    @property
    def _meta(self) -> Any:
        return self.params.get("_meta")

    @property
    def client(self) -> str | None:
        """Return the name of the client program, if the message contains it."""
        told = self.params.get("clientInfo") if self.method == "initialize" else None
        if self.is_stateless:
            told = self._meta.get(_CLIENT)
        name = told.get("name") if isinstance(told, Mapping) else None
        return name[:_MOST_NAME_CHARS] if isinstance(name, str) and name.strip() else None

    def check_version(self) -> None:
        """Raise ProtocolError for a stateless request in a version that this server does not speak."""
        if not self.is_stateless:
            return
        version = self._meta[_VERSION]
        if version not in STATELESS_VERSIONS:
            data: JSON = {"supported": list(STATELESS_VERSIONS), "requested": str(version)[:_MOST_NAME_CHARS]}
            raise ProtocolError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        if not isinstance(self._meta.get(_CAPABILITIES), Mapping):
            raise ProtocolError(INVALID_PARAMS, f"_meta lacks {_CAPABILITIES}")

    def text(self, name: str) -> str:
        """Return a required text of the parameters."""
        value = self.params.get(name)
        if not isinstance(value, str) or not value:
            raise ProtocolError(INVALID_PARAMS, f"{name} must be a text that is not empty")
        return value

    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments of a tool or prompt."""
        value = self.params.get("arguments")
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise ProtocolError(INVALID_PARAMS, "arguments must be an object")
        return value


class Identity(Struct, frozen=True):
    """Name, version and instructions of the server."""

    name: str
    version: str
    instructions: str
    capabilities: Mapping[str, JSON]

    @property
    def info(self) -> dict[str, JSON]:
        """Return the name and version."""
        return {"name": self.name, "title": self.name, "version": self.version}


def parse(line: bytes) -> Message | None:
    """Return the message of one line, None for an answer of the client; raises ProtocolError for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError(PARSE_ERROR, "not a JSON object on one line of UTF-8") from None
    if not isinstance(value, dict):
        raise ProtocolError(INVALID_REQUEST, "not a JSON object; batches are not supported")
    method, params, number = value.get("method"), value.get("params"), value.get("id")
    if method is None and ("result" in value or "error" in value):
        return None
    if not isinstance(method, str) or isinstance(number, bool) or not isinstance(number, int | str | None):
        raise ProtocolError(INVALID_REQUEST, "a request needs a method and an id that is a text or a whole number")
    if params is not None and not isinstance(params, dict):
        raise ProtocolError(INVALID_PARAMS, "params must be an object")
    return Message(method, params or {}, number)


def request_id(line: bytes) -> int | str | None:
    """Return the id of a line that `parse` refused, if it has one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    number = value.get("id") if isinstance(value, dict) else None
    return number if isinstance(number, int | str) and not isinstance(number, bool) else None


def greet(request: Message, identity: Identity) -> dict[str, JSON]:
    """Return the result of `initialize` or `server/discover`."""
    about: dict[str, JSON] = {"capabilities": identity.capabilities, "instructions": identity.instructions}
    if request.method == "server/discover":
        return {**about, "supportedVersions": list(STATELESS_VERSIONS)}
    asked = request.params.get("protocolVersion")
    chosen = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    return {**about, "protocolVersion": chosen, "serverInfo": identity.info}


def frame_result(request: Message, result: Mapping[str, JSON], identity: Identity) -> bytes:
    """Return the line that answers a request, in the form of the request."""
    full = dict(result)
    if request.is_stateless:
        if request.method in _CACHED:
            full |= {"ttlMs": 0, "cacheScope": "private"}
        full |= {"resultType": "complete", "_meta": {_SERVER: identity.info}}
    return _frame({"jsonrpc": "2.0", "id": request.id, "result": full})


def frame_error(number: int | str | None, error: ProtocolError) -> bytes:
    """Return the line that refuses a request."""
    return _frame({"jsonrpc": "2.0", "id": number, "error": error.as_json()})


def _frame(value: dict[str, JSON]) -> bytes:
    text = dumps(value)
    # a lone surrogate cannot be encoded, but it can be escaped
    return (text if is_encodable(text) else json.dumps(value)).encode() + b"\n"
