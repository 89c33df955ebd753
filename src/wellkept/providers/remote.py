"""The base class of bundled providers with a back end elsewhere: settings, key, scope, tools and status."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct

from wellkept.core.errors import ConfigError, KeptError
from wellkept.core.ids import OWNER
from wellkept.core.text import JSON, dumps
from wellkept.providers.base import ForgetRequest, MemoryAction, MemoryProvider
from wellkept.providers.config import build_settings, load_settings, questions
from wellkept.providers.http import HttpClient
from wellkept.security.fence import sanitize_context
from wellkept.security.secrets import redact
from wellkept.storage.files import make_folder, read_bytes, write_atomically

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
        return bool(self.KEY)

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
        raise NotImplementedError

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
