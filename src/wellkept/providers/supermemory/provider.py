"""The Supermemory provider."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from msgspec import Struct

from wellkept.core.errors import ProviderError
from wellkept.core.settings import Address, Between
from wellkept.core.text import JSON
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
    from wellkept.providers.base import ForgetRequest, Messages

Items = list[Mapping[str, JSON]]
_MOST_PAGES = 50
_PAGE = 100


class Backend:
    """What the provider needs; `container` is the tag or namespace of one user. The base of both generations."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def add(self, container: str, content: str, *, identity: str, metadata: Mapping[str, JSON], about: str) -> str:
        """Store a document under an id of ours and return the back end's id; the same id replaces it."""
        raise NotImplementedError

    def search(self, container: str, query: str, *, mode: str, limit: int) -> Items:
        """Return the nearest memories and passages, with `id` and `text`."""
        raise NotImplementedError

    def profile(self, container: str) -> tuple[list[str], list[str]]:
        """Return what is lasting and what is recent about the person."""
        raise NotImplementedError

    def list_documents(self, container: str) -> Items:
        """Return the documents, with `id`, `text` and `metadata`."""
        documents: Items = []
        for page in range(1, _MOST_PAGES + 1):
            listed = self.list_page(container, page)
            documents += [{**each, "text": text_of(each, "content", "summary", "title")} for each in listed]
            if len(listed) < _PAGE:
                break
        return documents

    def list_page(self, container: str, page: int) -> Items:
        """Return one page of the documents as the back end gives them."""
        raise NotImplementedError

    def delete_document(self, container: str, identity: str) -> None:
        """Delete a document with what was extracted from it."""
        raise NotImplementedError

    def forget_memory(self, container: str, identity: str) -> bool:
        """Forget one extracted memory; return whether it existed."""
        raise NotImplementedError

    def add_conversation(self, container: str, session: str, messages: Sequence[Mapping[str, JSON]]) -> None:
        """Hand over a whole conversation at its end; as one document where there is no route for it."""
        text = "\n".join(f"{message.get('role')}: {message.get('content')}" for message in messages)
        self.add(container, text, identity=f"session-{session}", metadata={"session_id": session}, about="")


class DocumentsBackend(Backend):
    """Version 3 and 4 routes: containers are tags."""

    def add(self, container: str, content: str, *, identity: str, metadata: Mapping[str, JSON], about: str) -> str:
        """Store a document; `customId` makes a repeated delivery harmless."""
        body: dict[str, JSON] = {
            "content": content,
            "containerTags": [container],
            "customId": identity,
            "metadata": dict(metadata),
        }
        if about:
            body["entityContext"] = about
        answer = self._client.post("/v3/documents", body)
        return text_of(answer, "id") if isinstance(answer, Mapping) else ""

    def search(self, container: str, query: str, *, mode: str, limit: int) -> Items:
        """Search memories and passages."""
        body: dict[str, JSON] = {"q": query, "containerTag": container, "limit": limit, "searchMode": mode}
        found = objects(self._client.post("/v4/search", body), "results")
        return [{**each, "text": text_of(each, "memory", "chunk", "content")} for each in found]

    def profile(self, container: str) -> tuple[list[str], list[str]]:
        """Return the two parts of the profile."""
        return _parse_profile(self._client.post("/v4/profile", {"containerTag": container}))

    def list_page(self, container: str, page: int) -> Items:
        """Return one page of the documents with their content."""
        body: dict[str, JSON] = {"containerTags": [container], "limit": _PAGE, "page": page, "includeContent": True}
        answer = self._client.post("/v3/documents/list", body)
        return objects(answer, "memories") or objects(answer, "documents")

    def delete_document(self, container: str, identity: str) -> None:
        """Delete a document."""
        del container
        self._client.delete(f"/v3/documents/{quote(identity, safe='')}")

    def forget_memory(self, container: str, identity: str) -> bool:
        """Forget one memory."""
        answer = self._client.delete("/v4/memories", body={"containerTag": container, "id": identity})
        return isinstance(answer, Mapping) and answer.get("forgotten") is True

    def add_conversation(self, container: str, session: str, messages: Sequence[Mapping[str, JSON]]) -> None:
        """Hand over a conversation for the session graph."""
        body: dict[str, JSON] = {
            "conversationId": session,
            "messages": list(messages),
            "containerTags": [container],
            "metadata": {"session_id": session},
        }
        self._client.post("/v4/conversations", body)


class NamespaceBackend(Backend):
    """Version 5 routes: containers are namespaces, and a conversation is one document."""

    def add(self, container: str, content: str, *, identity: str, metadata: Mapping[str, JSON], about: str) -> str:
        """Store a document under our id."""
        body: dict[str, JSON] = {"content": content, "id": identity, "metadata": dict(metadata)}
        if about:
            body["supportingContext"] = about
        answer = self._client.post(f"{_namespace(container)}/document", body)
        return (text_of(answer, "id") if isinstance(answer, Mapping) else "") or identity

    def search(self, container: str, query: str, *, mode: str, limit: int) -> Items:
        """Search; passages are called chunks here."""
        body: dict[str, JSON] = {"query": query, "searchMode": mode.replace("documents", "chunks"), "limit": limit}
        found = objects(self._client.post(f"{_namespace(container)}/search", body), "results")
        return [{**each, "text": text_of(each, "memory", "chunk", "content")} for each in found]

    def profile(self, container: str) -> tuple[list[str], list[str]]:
        """Return the two parts of the profile."""
        return _parse_profile(self._client.post(f"{_namespace(container)}/profile", {}))

    def list_page(self, container: str, page: int) -> Items:
        """Return one page of the documents with their content."""
        answer = self._client.request(
            "POST",
            f"{_namespace(container)}/list/documents",
            params={"limit": _PAGE, "page": page},
            body={"include": {"content": True}},
        )
        return objects(answer, "documents")

    def delete_document(self, container: str, identity: str) -> None:
        """Delete a document."""
        self._client.delete(f"{_namespace(container)}/document", body={"ids": [identity]})

    def forget_memory(self, container: str, identity: str) -> bool:
        """Forget one memory."""
        answer = self._client.delete(f"{_namespace(container)}/memories", body={"ids": [identity]})
        return isinstance(answer, Mapping) and bool(answer.get("count"))


def _namespace(container: str) -> str:
    return f"/ns/{quote(container, safe='')}"


def _parse_profile(answer: JSON) -> tuple[list[str], list[str]]:
    found = answer.get("profile") if isinstance(answer, Mapping) else None
    if not isinstance(found, Mapping):
        return [], []

    def texts(key: str) -> list[str]:
        listed = found.get(key)
        facts = listed if isinstance(listed, list) else []
        # version 5 gives objects instead of plain texts
        plain = [text_of(fact, "memory") if isinstance(fact, Mapping) else fact for fact in facts]
        return [each for each in plain if isinstance(each, str) and each]

    return texts("static"), texts("dynamic")


CLOUD_URL = "https://api.supermemory.ai"
_RECALL_CHARS = 6_000


class SupermemorySettings(Struct, frozen=True, kw_only=True):
    """The settings in `supermemory.json`."""

    base_url: Annotated[str, Address()] = CLOUD_URL
    """The address of the server."""
    generation: Literal["v3", "v5"] = "v3"
    """Which of the two incompatible APIs the server has."""
    auto_recall: bool = True
    """Whether a turn is given what matches it."""
    auto_capture: bool = True
    """Whether finished turns are sent."""
    capture_mode: Literal["turn", "user"] = "turn"
    """Whether both sides of a turn are sent, or only what the person said."""
    search_mode: Literal["hybrid", "memories", "documents"] = "hybrid"
    """What is searched."""
    max_recall_results: Annotated[int, Between(1, 50)] = 10
    """How many results a recall takes."""
    entity_context: str = ""
    """A sentence about the person that helps the extraction."""
    profile_frequency: Annotated[int, Between(1, 10_000)] = 50
    """Every how many turns the profile is part of the recall; always in the first turn."""
    custom_containers: list[str] | None = None
    """Further containers that the tools may name."""
    session_ingest: bool = True
    """Whether the whole conversation is handed over at its end."""
    timeout_seconds: Annotated[float, Between(0.5, 60)] = 8.0
    """How long a request may take."""


class SupermemoryProvider(RemoteProvider[SupermemorySettings]):
    """Turns are sent as they happen, through the outbox; page entries are documents of their own."""

    NAME = "supermemory"
    SETTINGS = SupermemorySettings
    KEY = "SUPERMEMORY_API_KEY"
    KEY_URL = "https://console.supermemory.ai"
    CLOUD_URL = CLOUD_URL
    QUESTIONS: ClassVar[Mapping[str, str]] = {
        "base_url": "Address of the server",
        "generation": "API of the server",
        "auto_recall": "Recall before each turn",
        "auto_capture": "Send finished turns",
        "capture_mode": "Send both sides, or only what you said",
        "search_mode": "What to search",
        "max_recall_results": "Results of a recall",
        "entity_context": "A sentence about you, for the extraction",
        "profile_frequency": "Turns between two looks at the profile",
    }

    def __init__(self) -> None:
        super().__init__()
        self._turns_since_profile: int | None = None

    @property
    def backend(self) -> Backend:
        """Return the API of the chosen generation."""
        return DocumentsBackend(self.client) if self.settings.generation == "v3" else NamespaceBackend(self.client)

    def remote_tools(self) -> Sequence[RemoteTool]:
        """Return the four tools."""
        container: dict[str, JSON] = {}
        if self.settings.custom_containers:
            container["container_tag"] = {
                "type": "string",
                "enum": list(self.settings.custom_containers),
                "description": "Another container than the person's own.",
            }
        content: dict[str, JSON] = {"content": {"type": "string", "description": "What to store, in full sentences."}}
        query: dict[str, JSON] = {
            "query": {"type": "string", "description": "What to look for, in plain words."},
            "limit": {"type": "integer", "description": "How many results at most (default 10)."},
        }
        identity: dict[str, JSON] = {"id": {"type": "string", "description": "The id of a search result."}}
        return (
            RemoteTool(
                "supermemory_store",
                "Store a text in the person's memory.",
                {**content, **container},
                ("content",),
                self._store,
                writes=True,
            ),
            RemoteTool(
                "supermemory_search",
                "Search memories and documents by meaning.",
                {**query, **container},
                ("query",),
                self._search,
            ),
            RemoteTool(
                "supermemory_forget",
                "Forget one memory, or delete a document.",
                {**identity, **container},
                ("id",),
                self._forget,
                writes=True,
            ),
            RemoteTool(
                "supermemory_profile",
                "Read the profile of the person: lasting facts, recent ones.",
                {},
                (),
                self._profile,
            ),
        )

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - all sessions are searched
        """Return what matches the message, with the profile in the first turn and every so many turns."""
        if not self.settings.auto_recall:
            return ""
        texts: list[str] = []
        if self._is_profile_due():
            lasting, recent = self.backend.profile(self.scope)
            texts += lasting + recent
        found = self._find(self.scope, clean(query)[:1_000], self.settings.max_recall_results)
        return bullet_list(texts + [text_of(each, "text") for each in found], most_chars=_RECALL_CHARS)

    def recall(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - all sessions are searched
        """Return what matches a question, also without automatic recall."""
        found = self._find(self.scope, clean(query)[:1_000], self.settings.max_recall_results)
        return bullet_list([text_of(each, "text") for each in found], most_chars=_RECALL_CHARS)

    def _is_profile_due(self) -> bool:
        count = self._turns_since_profile
        is_due = count is None or count + 1 >= self.settings.profile_frequency
        self._turns_since_profile = 0 if is_due or count is None else count + 1
        return is_due

    def sync_turn(
        self, user: str, assistant: str, *, session_id: str = "", messages: Messages = (), idempotency_key: str = ""
    ) -> None:
        """Send the exchange as one document; the key of the delivery makes a repeat harmless."""
        del messages
        if not self.is_writable or not self.settings.auto_capture:
            return
        lines = [f"user: {clean(user)}"]
        if self.settings.capture_mode == "turn" and clean(assistant):
            lines.append(f"assistant: {clean(assistant)}")
        identity = _identity("turn", self.scope, idempotency_key or f"{session_id}\n{user}")
        self._add(self.scope, "\n".join(lines), identity=identity, kind="turn", session_id=session_id)

    def add_entry(self, target: str, text: str) -> None:
        """Store an entry as a document whose id is derived from its text."""
        self._add(self.scope, text, identity=self._entry_id(target, text), kind="page", page=target)

    def remove_entry(self, target: str, text: str) -> None:
        """Delete the document of an entry."""
        identity = self._entry_id(target, text)
        for document in self.backend.list_documents(self.scope):
            if identity in {text_of(document, "customId"), text_of(document, "id")}:
                self.backend.delete_document(self.scope, text_of(document, "id"))

    def on_session_end(self, messages: Messages, *, session_id: str = "") -> None:
        """Hand over the whole conversation for the session graph."""
        if not (self.is_writable and self.settings.auto_capture and self.settings.session_ingest):
            return
        said = [
            {"role": str(message["role"]), "content": clean(str(message["content"]))}
            for message in messages
            if message.get("role") in {"user", "assistant"} and isinstance(message.get("content"), str)
        ]
        said = [each for each in said if each["content"]]
        if said:
            self.backend.add_conversation(self.scope, session_id or self.session_id, said)

    def forget_content(self, request: ForgetRequest) -> int:
        """Delete the documents and memories of this user that the request selects."""
        documents = self._select(request)
        for each in documents:
            self.backend.delete_document(self.scope, text_of(each, "id"))
        memories = self._select_memories(request)
        for each in memories:
            self.backend.forget_memory(self.scope, text_of(each, "id"))
        return len(documents) + len(memories)

    def holds_content(self, request: ForgetRequest) -> bool:
        """Return whether a document or a memory is left that the request selects."""
        return bool(self._select(request) or self._select_memories(request))

    def check_health(self) -> Mapping[str, JSON]:
        """Ask for the person's profile."""
        lasting, recent = self.backend.profile(self.scope)
        return {"generation": self.settings.generation, "container": self.scope, "profile": len(lasting) + len(recent)}

    def _select(self, request: ForgetRequest) -> Items:
        return [
            document for document in self.backend.list_documents(self.scope) if is_selected(document, request, "text")
        ]

    def _select_memories(self, request: ForgetRequest) -> Items:
        found = [
            each
            for text in request.texts
            for each in self.backend.search(self.scope, text, mode="memories", limit=50)
            if is_selected(each, request, "text")
        ]
        return list({text_of(each, "id"): each for each in found}.values())

    def _find(self, container: str, query: str, limit: int) -> Items:
        return self.backend.search(container, query, mode=self.settings.search_mode, limit=limit)

    def _add(self, container: str, content: str, *, identity: str, **metadata: JSON) -> str:
        return self.backend.add(
            container, content, identity=identity, metadata=metadata, about=self.settings.entity_context
        )

    def _entry_id(self, target: str, text: str) -> str:
        return _identity("page", self.scope, f"{target}\n{text}")

    def _container(self, args: Mapping[str, Any]) -> str:
        return str(args.get("container_tag") or self.scope)

    def _store(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        container, text = self._container(args), clean(args["content"])
        identity = self._add(
            container, text, identity=_identity("note", container, text), kind="note", session_id=self.session_id
        )
        return {"id": identity, "status": "queued"}

    def _search(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        limit = args.get("limit") or self.settings.max_recall_results
        found = self._find(self._container(args), args["query"], min(max(1, limit), 50))
        return {"results": [{"id": text_of(each, "id"), "text": text_of(each, "text")} for each in found]}

    def _forget(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        container, identity = self._container(args), args["id"]
        if self.backend.forget_memory(container, identity):
            return {"forgotten": identity}
        if any(text_of(document, "id") == identity for document in self.backend.list_documents(container)):
            self.backend.delete_document(container, identity)
            return {"deleted": identity}
        raise ProviderError(f"there is nothing with the id {identity!r}", "supermemory_search shows the ids")

    def _profile(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        del args
        lasting, recent = self.backend.profile(self.scope)
        return {"lasting": lasting, "recent": recent}


def _identity(kind: str, container: str, text: str) -> str:
    """Return a document id that is the same for the same content of the same user."""
    digest = hashlib.sha256(f"{container}\n{text}".encode()).hexdigest()
    return f"kept-{kind}-{digest[:24]}"
