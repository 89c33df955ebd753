"""The base class of bundled providers with a back end elsewhere: settings, key, scope, tools, status, HTTP requests.

The HTTP client never retries: the outbox does. An error is permanent (`Rejected`) only when the back end refuses this
one request for what it contains; a wrong key, a used-up quota or a missing route affects every request, so the writes
wait in the outbox until a person has fixed it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from wellkept.core.errors import ConfigError, KeptError, ProviderError
from wellkept.core.ids import OWNER
from wellkept.core.text import JSON, dumps
from wellkept.providers.base import ForgetRequest, MemoryAction, MemoryProvider, Rejected
from wellkept.providers.config import build_settings, load_settings, questions
from wellkept.security.fence import sanitize_context
from wellkept.security.secrets import redact
from wellkept.storage.files import make_folder, read_bytes, write_atomically

if TYPE_CHECKING:
    import ssl

    import httpx2

MOST_BYTES: Final = 8_000_000
"""Largest answer that is read; recalled text is cut to a few thousand characters anyway."""
MOST_REDIRECTS: Final = 3
CONNECT_SECONDS: Final = 5.0
_SHOWN_CHARS: Final = 200
_REJECTED: Final = {400, 413, 415, 422}
_REMEDIES: Final = {
    401: "check the key; `kept providers setup {name}` stores another one",
    402: "check the account and its quota",
    403: "check the key and what it may do; `kept providers setup {name}` stores another one",
    404: "check the address and the version of the server",
    429: "the back end asks for a pause; writes wait in the outbox",
}


class HttpClient:
    """Requests to one back end, with JSON in both directions."""

    def __init__(
        self, provider: str, base_url: str, *, headers: Mapping[str, str] | None = None, seconds: float = 10.0
    ) -> None:
        self._provider = provider
        self._base = check_url(provider, base_url).rstrip("/")
        self._headers = {"Accept": "application/json", "User-Agent": "kept", **(headers or {})}
        self._seconds = seconds
        self._client: httpx2.Client | None = None

    def get(self, path: str, *, seconds: float | None = None, **params: str | float | bool | None) -> JSON:
        """Return the answer to a GET request; parameters that are None are left out."""
        return self.request("GET", path, params=params, seconds=seconds)

    def post(self, path: str, body: JSON, *, seconds: float | None = None) -> JSON:
        """Return the answer to a POST request."""
        return self.request("POST", path, body=body, seconds=seconds)

    def put(self, path: str, body: JSON) -> JSON:
        """Return the answer to a PUT request."""
        return self.request("PUT", path, body=body)

    def patch(self, path: str, body: JSON) -> JSON:
        """Return the answer to a PATCH request."""
        return self.request("PATCH", path, body=body)

    def delete(self, path: str, *, body: JSON = None, **params: str | float | bool | None) -> JSON:
        """Return the answer to a DELETE request; None if there was nothing to delete."""
        try:
            return self.request("DELETE", path, params=params, body=body)
        except BackendMissing:
            return None

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | float | bool | None] | None = None,
        body: JSON = None,
        seconds: float | None = None,
    ) -> JSON:
        """Send a request and return the JSON of its answer, None for an empty one."""
        import httpx2

        limit = seconds or self._seconds
        deadline = time.monotonic() + limit
        sent = {key: value for key, value in (params or {}).items() if value is not None}
        url = f"{self._base}/{path.lstrip('/')}"
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            for _ in range(MOST_REDIRECTS + 1):
                with self._open().stream(
                    method,
                    url,
                    params=sent or None,
                    content=content,
                    headers={"Content-Type": "application/json"} if content is not None else None,
                    timeout=httpx2.Timeout(limit, connect=min(CONNECT_SECONDS, limit)),
                ) as response:
                    if response.is_redirect:
                        url, sent = self._redirect(response), {}
                        continue
                    return self._parse(response, self._read(response, deadline, limit))
        except httpx2.TimeoutException:
            raise self._slow(limit) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unreachable(error) from error
        raise ProviderError(f"{self._provider} redirects without end", "check the address of the server")

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> httpx2.Client:
        if self._client is None:
            import httpx2

            self._client = httpx2.Client(headers=self._headers, follow_redirects=False, verify=_load_certificates())
        return self._client

    def _redirect(self, response: httpx2.Response) -> str:
        """Return the address to follow; the key is sent to no other host, and never without TLS where there was TLS."""
        target = str(response.request.url.join(response.headers.get("location", "")))
        here, there = urlsplit(str(response.request.url)), urlsplit(target)
        same_server = here.hostname == there.hostname and _port(here) == _port(there)
        if not same_server and not (here.hostname == there.hostname and there.scheme == "https"):
            raise ProviderError(
                f"{self._provider} redirects to another host ({there.hostname})", "set its address to the final one"
            )
        return target

    def _read(self, response: httpx2.Response, deadline: float, limit: float) -> bytes:
        pieces, size = [], 0
        for piece in response.iter_bytes():
            size += len(piece)
            if size > MOST_BYTES:
                raise ProviderError(
                    f"{self._provider} answered with more than {MOST_BYTES:,} bytes", "check the server at its address"
                )
            if time.monotonic() > deadline:
                raise self._slow(limit)
            pieces.append(piece)
        return b"".join(pieces)

    def _parse(self, response: httpx2.Response, raw: bytes) -> JSON:
        if response.status_code >= 400:
            raise self._refusal(response, raw)
        if not raw.strip():
            return None
        try:
            found: JSON = json.loads(raw)
        except ValueError:
            kind = response.headers.get("content-type", "no type").partition(";")[0]
            raise ProviderError(
                f"{self._provider} answered with {kind} instead of JSON", "check its address: is this the API?"
            ) from None
        return found

    def _refusal(self, response: httpx2.Response, raw: bytes) -> ProviderError:
        status = response.status_code
        said = self._without_key(_error_text(raw))
        message = f"{self._provider} answered {status}" + (f": {said}" if said else "")
        remedy = _REMEDIES.get(status, "the writes wait in the outbox" if status >= 500 else "")
        if status in _REJECTED:
            return Rejected(message, "it refuses this request for its content")
        error = BackendMissing if status == 404 else ProviderError
        return error(message, remedy.format(name=self._provider))

    def _without_key(self, text: str) -> str:
        """Return what a back end said without the key that it may repeat."""
        for header in ("Authorization", "X-API-Key"):
            key = self._headers.get(header, "").rpartition(" ")[2]
            text = text.replace(key, "[key]") if key else text
        return text

    def _slow(self, seconds: float) -> ProviderError:
        return ProviderError(f"{self._provider} did not answer within {seconds:g} s", "check whether its server is up")

    def _unreachable(self, error: Exception) -> ProviderError:
        host = urlsplit(self._base).netloc
        reason = " ".join(str(error).split())[:_SHOWN_CHARS] or type(error).__name__
        if "CERTIFICATE" in reason.upper() or "SSL" in reason.upper():
            return ProviderError(f"{self._provider}: no secure connection to {host}: {reason}", "check its certificate")
        return ProviderError(
            f"{self._provider} cannot be reached at {host}: {reason}", "check the address and the network"
        )


class BackendMissing(ProviderError):
    """The back end has no such item or route (404)."""


def check_url(provider: str, url: str) -> str:
    """Return the address, or raise what is wrong with it."""
    found = urlsplit(url.strip())
    if found.scheme not in {"http", "https"} or not found.hostname:
        raise ProviderError(
            f"{provider}: {url!r} is not the address of a server", "write it like https://host or http://127.0.0.1:8000"
        )
    return url.strip()


@cache
def _load_certificates() -> ssl.SSLContext:
    """Return the TLS context; loading the certificates takes 50 ms, so all clients share it."""
    import httpx2

    return httpx2.create_ssl_context()


def _port(address: SplitResult) -> int:
    return address.port or (443 if address.scheme == "https" else 80)


def _error_text(raw: bytes) -> str:
    """Return the message inside an error answer, in one short line."""
    try:
        value: JSON = json.loads(raw)
    except ValueError:
        return ""
    for key in ("error", "detail", "message", "msg", "code"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
            if isinstance(value, dict):
                value = value.get("message") or value.get("code") or json.dumps(value)
            break
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())[:_SHOWN_CHARS]


log = logging.getLogger(__name__)

S = TypeVar("S")
TRIAL = "trial"
"""The origin of the writes of `kept providers test`."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class RemoteTool(Struct, frozen=True):
    """One tool of a provider: what models see, and the method that runs it."""

    name: str
    description: str
    properties: Mapping[str, JSON]
    required: tuple[str, ...]
    run: Callable[[Mapping[str, JSON]], Mapping[str, JSON]]
    writes: bool = False
    """Whether it changes the memory; refused outside primary contexts."""

    def schema(self) -> Mapping[str, JSON]:
        """Return what a model is shown."""
        parameters: dict[str, JSON] = {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
        }
        return {"name": self.name, "description": self.description, "parameters": parameters}


class RemoteProvider(MemoryProvider, Generic[S]):
    """Settings in `<home>/<name>.json`, the key in a variable, data scoped by profile and user.

    A subclass names its settings and questions and implements the hooks with `self.client` and `self.scope`.
    """

    NAME: ClassVar[str]
    SETTINGS: ClassVar[type]
    QUESTIONS: ClassVar[Mapping[str, str]]
    KEY: ClassVar[str] = ""
    """The variable with the key; empty if none is needed."""
    KEY_URL: ClassVar[str] = ""
    """Where a person gets the key."""
    CLOUD_URL: ClassVar[str] = ""
    """The address that always wants the key; a server of one's own may run without one."""

    settings: S

    def __init__(self) -> None:
        self.settings = self.SETTINGS()
        self.home = Path()
        self.user = str(OWNER)
        self.profile = "default"
        self.workspace = ""
        self.platform = "cli"
        self.session_id = ""
        self.is_writable = True
        self._has_settings = False
        self._client: HttpClient | None = None
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        """Return the name that the configuration uses."""
        return self.NAME

    @property
    def key(self) -> str:
        """Return the key, empty if none is set."""
        return os.environ.get(self.KEY, "").strip() if self.KEY else ""

    @property
    def scope(self) -> str:
        """Return the name under which the back end keeps this user's data, different for each profile and user."""
        return safe_name("kept", self.profile, self.user)

    def is_available(self, *, kept_home: str = "") -> bool:
        """Return whether the key is set, where the back end in the settings needs one."""
        self._read_settings(kept_home)
        return not self.needs_key() or bool(self.key)

    def needs_key(self) -> bool:
        """Return whether the back end in use asks for a key."""
        settings: Any = self.settings
        return bool(self.KEY) and (not self.CLOUD_URL or settings.base_url.rstrip("/") == self.CLOUD_URL)

    def initialize(self, session_id: str, **context: Any) -> None:
        """Load the settings and remember whose memory this is; the first request opens the connection."""
        self.session_id = session_id
        self.home = Path(context["kept_home"])
        self.settings = load_settings(self.SETTINGS, self.home, self.NAME)
        self.user = str(context.get("user_id") or OWNER)
        self.profile = str(context.get("agent_identity") or "default")
        self.workspace = str(context.get("agent_workspace") or "")
        self.platform = str(context.get("platform") or "cli")
        self.is_writable = context.get("agent_context", "primary") == "primary"
        self.connect()

    def connect(self) -> None:
        """Create what the scope needs on the back end; called once by `initialize`."""

    def open_client(self) -> HttpClient:
        """Return a client for the address and key in the settings."""
        settings: Any = self.settings
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return HttpClient(self.NAME, settings.base_url, headers=headers, seconds=settings.timeout_seconds)

    @property
    def client(self) -> HttpClient:
        """Return the client of the back end."""
        if self._client is None:
            self._client = self.open_client()
        return self._client

    def remote_tools(self) -> Sequence[RemoteTool]:
        """Return its tools."""
        return ()

    def get_tool_schemas(self, *, kept_home: str = "") -> Sequence[Mapping[str, JSON]]:
        """Return the schemas of its tools; they depend on the settings, and are needed before `initialize`."""
        self._read_settings(kept_home)
        return [tool.schema() for tool in self.remote_tools()] if self.gives_tools() else ()

    def gives_tools(self) -> bool:
        """Return whether the chosen mode has tools."""
        return True

    def handle_tool_call(self, name: str, args: Mapping[str, JSON], **context: Any) -> str:
        """Run one of its tools; whatever goes wrong is an answer."""
        del context
        tool = next((each for each in self.remote_tools() if each.name == name), None)
        if tool is None:
            return dumps({"success": False, "error": f"{self.NAME} has no tool {name!r}"})
        if tool.writes and not self.is_writable:
            return dumps({"success": False, "error": "nothing is written in this context"})
        wrong = wrong_argument(tool, args)
        if wrong:
            return dumps({"success": False, "error": wrong})
        try:
            return dumps({"success": True, **tool.run(args)})
        except KeptError as error:
            return dumps({"success": False, "error": error.message, "remedy": error.remedy})

    def on_memory_write(
        self, action: MemoryAction, target: str, content: str, metadata: Mapping[str, JSON] | None = None
    ) -> None:
        """Mirror a write to the pages: remove the copy of the old entry, add one of the new; each write once."""
        if not self.is_new_write(metadata):
            return
        before = (metadata or {}).get("before")
        old = content if action == "remove" else before if isinstance(before, str) else ""
        old, new = clean(old), clean(content) if action != "remove" else ""
        if action != "add" and old and old != new:
            self.remove_entry(target, old)
        if new:
            self.add_entry(target, new)
        self.mark_mirrored(metadata)

    def add_entry(self, target: str, text: str) -> None:
        """Store the copy of a page's entry, unless the back end has it."""
        raise NotImplementedError

    def remove_entry(self, target: str, text: str) -> None:
        """Remove the copy of a page's entry, if the back end has it."""
        raise NotImplementedError

    def is_new_write(self, metadata: Mapping[str, JSON] | None) -> bool:
        """Whether a write to the pages is to be mirrored: not in other contexts, and not one that was mirrored before.

        After a crash the outbox delivers its last write again. Writes arrive in the order of the ledger, so the
        highest id of a scope that was mirrored is enough to tell; `mark_mirrored` stores it.
        """
        ledger_id = (metadata or {}).get("ledger_id")
        if not self.is_writable:
            return False
        return not isinstance(ledger_id, int) or ledger_id > self._read_mirrored().get(self.scope, 0)

    def mark_mirrored(self, metadata: Mapping[str, JSON] | None) -> None:
        """Store that a write to the pages was mirrored."""
        known = metadata or {}
        ledger_id = known.get("ledger_id")
        if not isinstance(ledger_id, int) or known.get("origin") == TRIAL:
            return
        with self._guard:
            mirrored = self._read_mirrored()
            if ledger_id > mirrored.get(self.scope, 0):
                make_folder(self.home)
                write_atomically(self._mirror_path, dumps({**mirrored, self.scope: ledger_id}).encode())

    @property
    def _mirror_path(self) -> Path:
        return self.home / f"{self.NAME}.mirrored.json"

    def _read_mirrored(self) -> dict[str, int]:
        try:
            values = json.loads(read_bytes(self._mirror_path) or b"{}")
        except ValueError:  # lost: entries are found by their text, so that nothing is stored twice
            return {}
        return (
            {key: value for key, value in values.items() if isinstance(value, int)} if isinstance(values, dict) else {}
        )

    def on_session_switch(self, new_id: str, **_context: Any) -> None:
        """Continue under the new session."""
        self.session_id = new_id

    def get_config_schema(self) -> Sequence[Mapping[str, JSON]]:
        """Return the questions: the key first, then the settings."""
        asked = list(questions(self.SETTINGS, self.QUESTIONS))
        if not self.KEY:
            return asked
        key: dict[str, JSON] = {
            "key": "api_key",
            "description": f"Key of {self.NAME}",
            "secret": True,
            "env_var": self.KEY,
            "url": self.KEY_URL,
            # during setup it depends on the other answers, and `check_config` decides
            "required": self._has_settings and self.needs_key(),
        }
        return [*asked, key]

    def check_config(self, values: Mapping[str, JSON], variables: Collection[str]) -> None:
        """Raise what is wrong with the answers: a type, a bound, an address, a key that is missing."""
        self.settings = build_settings(self.SETTINGS, values, self.NAME)
        if self.needs_key() and self.KEY not in variables:
            where = f"get it at {self.KEY_URL}, then: " if self.KEY_URL else ""
            raise ConfigError(
                f"{self.NAME} needs a key, in {self.KEY}",
                f"{where}kept providers setup {self.NAME} --secret api_key=env:{self.KEY}",
            )

    def check_health(self) -> Mapping[str, JSON]:
        """Ask the back end whether it works, and return facts about it; raises if it does not."""
        raise NotImplementedError

    def get_status(self, *, kept_home: str = "", user_id: str = "") -> Mapping[str, JSON]:
        """Return what a real call to the back end says; the arguments are needed only before `initialize`."""
        if self._read_settings(kept_home):
            self.home = Path(kept_home)
            self.user = user_id or self.user
        try:
            return {"reachable": True, **self.check_health()}
        except KeptError as error:
            return {"reachable": False, "error": error.message}

    def _read_settings(self, kept_home: str) -> bool:
        """Load the settings before `initialize` does; return whether that was needed and possible."""
        if not kept_home or self.home != Path():
            return False
        self.settings = load_settings(self.SETTINGS, Path(kept_home), self.NAME)
        self._has_settings = True
        return True

    def shutdown(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None


def clean(text: str) -> str:
    """Return text as it may leave the machine: no recalled memory, no secrets."""
    return redact(sanitize_context(text)).strip()


def safe_name(*parts: str) -> str:
    """Return one name of letters, digits, `_` and `-` for several parts; different parts give different names."""
    plain = "-".join(parts)
    safe = _UNSAFE.sub("_", plain)[:80]
    if safe == plain and not any("-" in part for part in parts):
        return safe
    return f"{safe}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"


def wrong_argument(tool: RemoteTool, args: Mapping[str, JSON]) -> str:
    """Return what is wrong with the arguments of a tool call, in one line; empty if nothing is."""
    for name in tool.required:
        value = args.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            return f"give `{name}`"
    for name, value in args.items():
        declared = tool.properties.get(name)
        if not isinstance(declared, Mapping):
            return f"there is no argument `{name}`; there are: {', '.join(tool.properties) or 'none'}"
        if not _fits(value, declared.get("type")):
            return f"`{name}` must be of type {declared.get('type')}"
        choices = declared.get("enum")
        if isinstance(choices, list) and value not in choices:
            return f"`{name}` must be one of {', '.join(map(str, choices))}"
    return ""


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _fits(value: JSON, kind: JSON) -> bool:
    accepted = _TYPES.get(str(kind))
    if value is None or accepted is None:
        return True
    return isinstance(value, accepted) and (not isinstance(value, bool) or kind == "boolean")


def objects(value: JSON, *path: str) -> list[Mapping[str, JSON]]:
    """Return the objects of a list inside an answer, found by its keys; anything else is left out.

    Answers of a back end are untrusted: a shape that is not the documented one gives fewer results, never a crash.
    """
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def text_of(item: Mapping[str, JSON], *keys: str) -> str:
    """Return the first text under one of the keys, empty if there is none."""
    for key in keys:
        value = item.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def is_selected(item: Mapping[str, JSON], request: ForgetRequest, *keys: str) -> bool:
    """Whether a request to forget selects an item: by its text under `keys`, or by the session in its metadata."""
    if request.everything:
        return True
    text = text_of(item, *keys).casefold()
    metadata = item.get("metadata")
    session = metadata.get("session_id") if isinstance(metadata, Mapping) else None
    return session in request.session_ids or any(each.casefold() in text for each in request.texts if each)


def bullet_list(texts: Sequence[str], *, most_chars: int) -> str:
    """Return recalled texts as a list without duplicates, within a number of characters."""
    lines: list[str] = []
    size = 0
    for text in dict.fromkeys(" ".join(each.split()) for each in texts):
        line = f"- {text}"
        if not text or size + len(line) + 1 > most_chars:
            continue
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)


def short_hash(text: str) -> str:
    """Return 16 hexadecimal digits that name a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
