"""The RetainDB provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import quote

from msgspec import Struct

from wellkept.core.clock import SystemClock, iso
from wellkept.core.errors import ProviderError
from wellkept.core.settings import Address, Between
from wellkept.providers.remote import (
    HttpClient,
    RemoteProvider,
    RemoteTool,
    bullet_list,
    clean,
    is_selected,
    objects,
    text_of,
)

if TYPE_CHECKING:
    from wellkept.core.text import JSON
    from wellkept.providers.base import ForgetRequest, Messages

CLOUD_URL = "https://api.retaindb.com"
TYPES = ("factual", "preference", "event", "relationship", "opinion", "goal", "instruction")
PENDING = "pending:"
"""A write that is not indexed yet is listed a second time, under an id that begins with this."""
_RECALL_CHARS = 6_000

Items = list[Mapping[str, "JSON"]]


class RetainDBSettings(Struct, frozen=True, kw_only=True):
    """The settings in `retaindb.json`."""

    base_url: Annotated[str, Address()] = CLOUD_URL
    """The address of the server."""
    project: str = "kept"
    """The project at RetainDB."""
    top_k: Annotated[int, Between(1, 50)] = 8
    """How many memories a recall takes."""
    max_tokens: Annotated[int, Between(50, 8_000)] = 1_200
    """How long the context may be that `retaindb_context` returns."""
    auto_capture: bool = True
    """Whether finished turns are sent for extraction."""
    timeout_seconds: Annotated[float, Between(0.5, 60)] = 8.0
    """How long a request may take."""


class RetainDBProvider(RemoteProvider[RetainDBSettings]):
    """Turns are ingested for extraction; page entries are memories of their own."""

    NAME = "retaindb"
    SETTINGS = RetainDBSettings
    KEY = "RETAINDB_API_KEY"
    KEY_URL = "https://retaindb.com"
    CLOUD_URL = CLOUD_URL
    QUESTIONS: ClassVar[Mapping[str, str]] = {
        "base_url": "Address of the server",
        "project": "Project at RetainDB",
        "top_k": "Memories of a recall",
        "auto_capture": "Send finished turns",
    }

    def open_client(self) -> HttpClient:
        """Return a client with the key under both names that the server accepts."""
        headers = {"Authorization": f"Bearer {self.key}", "X-API-Key": self.key} if self.key else {}
        return HttpClient(self.NAME, self.settings.base_url, headers=headers, seconds=self.settings.timeout_seconds)

    def remote_tools(self) -> Sequence[RemoteTool]:
        """Return the five tools."""
        query: dict[str, JSON] = {"query": {"type": "string", "description": "What to look for, in plain words."}}
        limit: dict[str, JSON] = {"limit": {"type": "integer", "description": "How many at most (default 8)."}}
        remembered: dict[str, JSON] = {
            "content": {"type": "string", "description": "One fact, in a full sentence."},
            "type": {"type": "string", "enum": list(TYPES), "description": "What kind of memory (default factual)."},
        }
        identity: dict[str, JSON] = {"id": {"type": "string", "description": "The id of the memory."}}
        return (
            RemoteTool("retaindb_profile", "List what is known about the person.", {}, (), self._profile),
            RemoteTool(
                "retaindb_search", "Search memories by words and meaning.", {**query, **limit}, ("query",), self._search
            ),
            RemoteTool(
                "retaindb_context", "Get a ready text of what is known on a topic.", query, ("query",), self._context
            ),
            RemoteTool("retaindb_remember", "Store a fact.", remembered, ("content",), self._remember, writes=True),
            RemoteTool("retaindb_forget", "Delete a memory.", identity, ("id",), self._forget, writes=True),
        )

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - memories of all sessions are searched
        """Return the memories that match the message."""
        found = self._find(clean(query)[:1_000], self.settings.top_k)
        return bullet_list([text_of(each, "content") for each in found], most_chars=_RECALL_CHARS)

    def sync_turn(self, user: str, assistant: str, *, session_id: str = "", messages: Messages = ()) -> None:
        """Send the exchange for extraction; each message needs a time."""
        del messages
        if not self.is_writable or not self.settings.auto_capture:
            return
        now = iso(SystemClock().now())
        said = [
            {"role": role, "content": text, "timestamp": now}
            for role, text in (("user", clean(user)), ("assistant", clean(assistant)))
            if text
        ]
        if not said:
            return
        body: dict[str, JSON] = {**self._whose, "session_id": session_id, "messages": list(said)}
        answer = self.client.post("/v1/memory/ingest/session", body)
        # `success` is true even if nothing was stored; only `errors` shows it
        errors = answer.get("errors") if isinstance(answer, Mapping) else None
        if isinstance(errors, list) and errors:
            raise ProviderError(f"retaindb stored nothing of a turn: {errors[0]}", "check the version of its server")

    def add_entry(self, target: str, text: str) -> None:
        """Store an entry; text that is known is not sent again."""
        if not any(text_of(each, "content") == text for each in self._known()):
            self._store(text, kind="preference" if target == "user" else "factual")

    def remove_entry(self, target: str, text: str) -> None:
        """Delete an entry, found by its text."""
        del target
        for each in self._known():
            if text_of(each, "content") == text:
                self._delete(text_of(each, "id"))

    def forget_content(self, request: ForgetRequest) -> int:
        """Delete the memories of this user that the request selects."""
        found = self._select(request)
        for each in found:
            self._delete(text_of(each, "id"))
        return len(found)

    def holds_content(self, request: ForgetRequest) -> bool:
        """Return whether a memory is left that the request selects."""
        return bool(self._select(request))

    def check_health(self) -> Mapping[str, JSON]:
        """Ask for the person's memories."""
        return {"project": self.settings.project, "user": self.scope, "memories": len(self._known())}

    @property
    def _whose(self) -> dict[str, JSON]:
        return {"project": self.settings.project, "user_id": self.scope}

    def _select(self, request: ForgetRequest) -> Items:
        return [
            each
            for each in self._known()
            if is_selected({**each, "metadata": {"session_id": each.get("session_id")}}, request, "content")
        ]

    def _known(self) -> Items:
        answer = self.client.get(f"/v1/memory/profile/{quote(self.scope, safe='')}", project=self.settings.project)
        return _without_pending(objects(answer, "memories"))

    def _find(self, query: str, limit: int) -> Items:
        body: dict[str, JSON] = {**self._whose, "query": query, "top_k": limit, "include_pending": True}
        found = objects(self.client.post("/v1/memory/search", body), "results")
        # the cloud wraps the memory, the local edition does not
        return _without_pending([_unwrap(each) for each in found])

    def _store(self, text: str, *, kind: str) -> str:
        body: dict[str, JSON] = {
            **self._whose,
            "content": text,
            "memory_type": kind,
            "session_id": self.session_id,
            "importance": 0.7,
            "write_mode": "sync",
        }
        answer = self.client.post("/v1/memory", body)
        return text_of(answer, "memory_id") if isinstance(answer, Mapping) else ""

    def _delete(self, identity: str) -> None:
        self.client.delete(f"/v1/memory/{quote(identity.removeprefix(PENDING), safe='')}")

    def _profile(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        del args
        return {"memories": [_shown(each) for each in self._known()]}

    def _search(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        limit = min(max(1, args.get("limit") or self.settings.top_k), 50)
        return {"results": [_shown(each) for each in self._find(args["query"], limit)]}

    def _context(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        body: dict[str, JSON] = {
            **self._whose,
            "query": args["query"],
            "session_id": self.session_id,
            "include_memories": True,
            "max_tokens": self.settings.max_tokens,
        }
        answer = self.client.post("/v1/context/query", body)
        return {"context": text_of(answer, "context") if isinstance(answer, Mapping) else ""}

    def _remember(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        return {"id": self._store(clean(args["content"]), kind=args.get("type") or "factual")}

    def _forget(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        identity = args["id"]
        if not any(text_of(each, "id") == identity for each in self._known()):
            raise ProviderError(f"there is no memory {identity!r}", "retaindb_search shows the ids")
        self._delete(identity)
        return {"deleted": identity}


def _unwrap(result: Mapping[str, JSON]) -> Mapping[str, JSON]:
    inner = result.get("memory")
    return inner if isinstance(inner, Mapping) else result


def _without_pending(items: Items) -> Items:
    """Leave out the second copy of a memory that is not indexed yet; one that is only pending stays."""
    ready = {text_of(item, "id") for item in items}
    texts = {text_of(each, "content") for each in items if not text_of(each, "id").startswith(PENDING)}
    return [
        each
        for each in items
        if not text_of(each, "id").startswith(PENDING)
        or (text_of(each, "id").removeprefix(PENDING) not in ready and text_of(each, "content") not in texts)
    ]


def _shown(item: Mapping[str, JSON]) -> dict[str, JSON]:
    return {"id": text_of(item, "id"), "content": text_of(item, "content"), "type": text_of(item, "type")}
