"""The Mem0 provider."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from msgspec import Struct

from wellkept.core.errors import ConfigError, ProviderError
from wellkept.core.installation import name_install
from wellkept.core.settings import Address, Between
from wellkept.core.text import JSON
from wellkept.providers.base import ForgetRequest, Forgotten, Messages
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
from wellkept.storage.files import make_folder

Turn = Sequence[Mapping[str, "JSON"]]
Items = list[Mapping[str, "JSON"]]
_MOST_PAGES = 50


class Backend:
    """What the provider needs of Mem0; the base of the three places where it runs."""

    def add(self, user: str, turn: Turn, *, agent_id: str, infer: bool, metadata: Mapping[str, JSON]) -> Items:
        """Store messages and return the memories that were made, if they are known at once."""
        raise NotImplementedError

    def search(self, user: str, query: str, *, top_k: int) -> Items:
        """Return the nearest memories of a user."""
        raise NotImplementedError

    def list(self, user: str) -> Items:
        """Return all memories of a user."""
        raise NotImplementedError

    def update(self, identity: str, text: str) -> None:
        """Replace the text of a memory."""
        raise NotImplementedError

    def delete(self, identity: str) -> None:
        """Delete a memory; a missing one is not an error."""
        raise NotImplementedError

    def ping(self, user: str) -> Mapping[str, JSON]:
        """Make a real call and return facts: how many memories the user has."""
        return {"memories": len(self.list(user))}

    def close(self) -> None:
        """Release what is open; clients are closed by the provider."""


class ServerBackend(Backend):
    """A self-hosted Mem0 server."""

    ADD = "/memories"
    SEARCH = "/search"
    MEMORY = "/memories/{}"

    def __init__(self, client: HttpClient, *, search_options: Mapping[str, JSON] = MappingProxyType({})) -> None:
        self._client = client
        self._search_options = search_options

    def add(self, user: str, turn: Turn, *, agent_id: str, infer: bool, metadata: Mapping[str, JSON]) -> Items:
        """Store the messages; the platform names no memories where it works in the background."""
        answer = self._client.post(
            self.ADD,
            {"messages": list(turn), "user_id": user, "agent_id": agent_id, "infer": infer, "metadata": dict(metadata)},
        )
        return objects(answer, "results")

    def search(self, user: str, query: str, *, top_k: int) -> Items:
        """Return the nearest memories."""
        body = {"query": query, "filters": {"user_id": user}, "top_k": top_k, **self._search_options}
        return objects(self._client.post(self.SEARCH, body), "results")

    def list(self, user: str) -> Items:
        """Return all memories."""
        return objects(self._client.get("/memories", user_id=user), "results")

    def update(self, identity: str, text: str) -> None:
        """Replace the text."""
        self._client.put(self.MEMORY.format(quote(identity, safe="")), {"text": text})

    def delete(self, identity: str) -> None:
        """Delete one memory."""
        self._client.delete(self.MEMORY.format(quote(identity, safe="")))


class PlatformBackend(ServerBackend):
    """Mem0's platform: other routes, pages of memories, and adds that are processed in the background."""

    ADD = "/v3/memories/add/"
    SEARCH = "/v3/memories/search/"
    MEMORY = "/v1/memories/{}/"

    def list(self, user: str) -> Items:
        """Return all memories, page by page."""
        memories: Items = []
        for page in range(1, _MOST_PAGES + 1):
            answer = self._client.post(f"/v3/memories/?page={page}&page_size=100", {"filters": {"user_id": user}})
            memories += objects(answer, "results")
            if not isinstance(answer, Mapping) or not answer.get("next"):
                break
        return memories

    def ping(self, user: str) -> Mapping[str, JSON]:
        """Return the account that the key belongs to."""
        del user
        answer = self._client.get("/v1/ping/")
        if not isinstance(answer, Mapping) or not answer.get("project_id"):
            raise ProviderError("mem0 did not say which project the key belongs to", "check the key")
        return {"project": text_of(answer, "project_id")}


class EmbeddedBackend(Backend):
    """The open-source library inside this process, with its vectors in the home."""

    def __init__(self, folder: Path, settings: Mem0Settings, *, key: str) -> None:
        self._folder = folder
        self._settings = settings
        self._key = key
        self._memory: Any = None

    def add(self, user: str, turn: Turn, *, agent_id: str, infer: bool, metadata: Mapping[str, JSON]) -> Items:
        """Store the messages; without a model they are stored verbatim."""
        del agent_id  # the library narrows every later search to it, so that page entries would not be found
        use_model = infer and bool(self._settings.model)
        made = self._open().add([dict(each) for each in turn], user_id=user, infer=use_model, metadata=dict(metadata))
        return objects(made, "results")

    def search(self, user: str, query: str, *, top_k: int) -> Items:
        """Return the nearest memories."""
        return objects(self._open().search(query, filters={"user_id": user}, top_k=top_k), "results")

    def list(self, user: str) -> Items:
        """Return all memories."""
        return objects(self._open().get_all(filters={"user_id": user}), "results")

    def update(self, identity: str, text: str) -> None:
        """Replace the text."""
        self._open().update(identity, text=text)

    def delete(self, identity: str) -> None:
        """Delete one memory; a missing one is not an error."""
        try:
            self._open().delete(identity)
        except ValueError:
            return

    def close(self) -> None:
        """Close the vector store, which locks its folder."""
        store = getattr(getattr(self._memory, "vector_store", None), "client", None)
        if store is not None and hasattr(store, "close"):
            store.close()
        self._memory = None

    def _open(self) -> Any:
        if self._memory is None:
            os.environ.setdefault("MEM0_TELEMETRY", "False")
            os.environ["MEM0_DIR"] = str(self._folder)
            try:
                from mem0 import Memory
            except ImportError:
                raise ProviderError("mem0ai is not installed", f"run: {name_install('mem0')}") from None
            make_folder(self._folder)
            self._memory = Memory.from_config(self._config())
        return self._memory

    def _config(self) -> dict[str, Any]:
        settings, server = self._settings, self._settings.model_base_url
        shared = {"openai_base_url": server, "api_key": self._key or "none"} if server else {}
        llm = {**shared, **({"model": settings.model} if settings.model else {})}
        embedder = {**shared, "embedding_dims": settings.embedding_dims}
        if settings.embedding_model:
            embedder["model"] = settings.embedding_model
        store = {
            "path": str(self._folder / "qdrant"),
            "on_disk": True,
            "embedding_model_dims": settings.embedding_dims,
            "collection_name": "kept",
        }
        return {
            "vector_store": {"provider": "qdrant", "config": store},
            "llm": {"provider": "openai", "config": llm},
            "embedder": {"provider": "openai", "config": embedder},
            "history_db_path": str(self._folder / "history.db"),
        }


PLATFORM_URL = "https://api.mem0.ai"
_MIRROR = "kept_page"
"""The metadata key that marks a memory as the copy of a page entry."""
_RECALL_CHARS = 6_000
_POLL_SECONDS = 0.5


class Mem0Settings(Struct, frozen=True, kw_only=True):
    """The settings in `mem0.json`."""

    mode: Literal["platform", "self-hosted", "oss"] = "platform"
    """Mem0's platform, a server of your own, or the library inside this process."""
    base_url: Annotated[str, Address(optional=True)] = ""
    """The address of the server; empty for the platform's own."""
    user_id: str = ""
    """The user at Mem0; empty for one derived from profile and user."""
    agent_id: str = "kept"
    """The agent at Mem0."""
    rerank: bool = True
    """Whether the platform sorts results by a second model."""
    infer: bool = True
    """Whether Mem0 extracts facts from turns with its model; otherwise they are stored verbatim."""
    top_k: Annotated[int, Between(1, 50)] = 8
    """How many memories a recall takes."""
    timeout_seconds: Annotated[float, Between(0.5, 60)] = 8.0
    """How long a request may take."""
    settle_seconds: Annotated[float, Between(0, 50)] = 20.0
    """How long to wait until the platform, which stores in the background, has the copy of an entry."""
    model: str = ""
    """Embedded mode: the chat model that extracts facts."""
    model_base_url: Annotated[str, Address(optional=True)] = ""
    """Embedded mode: the address of an OpenAI-compatible server."""
    embedding_model: str = ""
    """Embedded mode: the embedding model of that server."""
    embedding_dims: Annotated[int, Between(8, 8192)] = 1536
    """Embedded mode: the length of its vectors."""


class Mem0Provider(RemoteProvider[Mem0Settings]):
    """Turns go to Mem0, which extracts what is worth keeping; page entries are mirrored as they are."""

    NAME = "mem0"
    SETTINGS = Mem0Settings
    KEY = "MEM0_API_KEY"
    KEY_URL = "https://app.mem0.ai"
    QUESTIONS: ClassVar[Mapping[str, str]] = {
        "mode": "Where Mem0 runs",
        "base_url": "Address of the server, empty for the platform's own",
        "user_id": "User at Mem0, empty for one of profile and user",
        "agent_id": "Agent at Mem0",
        "rerank": "Sort results by a second model (platform)",
        "infer": "Extract facts with Mem0's model",
        "model": "Embedded mode: model that extracts facts",
        "model_base_url": "Embedded mode: address of an OpenAI-compatible server",
        "embedding_model": "Embedded mode: embedding model",
        "embedding_dims": "Embedded mode: length of its vectors",
    }

    def __init__(self) -> None:
        super().__init__()
        self._backend: Backend | None = None

    def needs_key(self) -> bool:
        """Return whether it is the platform, which always wants a key."""
        return self.settings.mode == "platform"

    def check_config(self, values: Mapping[str, JSON], variables: Collection[str]) -> None:
        """Check also that a server of one's own has an address."""
        super().check_config(values, variables)
        if self.settings.mode == "self-hosted" and not self.settings.base_url:
            raise ConfigError("mem0 needs base_url with mode=self-hosted", "give --set base_url=http://HOST:8000")

    @property
    def scope(self) -> str:
        """Return the user at Mem0."""
        return self.settings.user_id or super().scope

    def open_client(self) -> HttpClient:
        """Return a client with the header that the chosen server expects."""
        settings = self.settings
        if settings.mode == "platform":
            header = {"Authorization": f"Token {self.key}"}
            return HttpClient(
                "mem0", settings.base_url or PLATFORM_URL, headers=header, seconds=settings.timeout_seconds
            )
        if not settings.base_url:
            raise ProviderError("mem0: base_url is not set", "run: kept providers setup mem0 --set base_url=http://…")
        keyed = {"X-API-Key": self.key} if self.key else {}
        return HttpClient("mem0", settings.base_url, headers=keyed, seconds=settings.timeout_seconds)

    @property
    def backend(self) -> Backend:
        """Return the back end of the chosen mode."""
        if self._backend is None:
            match self.settings.mode:
                case "platform":
                    self._backend = PlatformBackend(self.client, search_options={"rerank": self.settings.rerank})
                case "self-hosted":
                    self._backend = ServerBackend(self.client)
                case "oss":
                    self._backend = EmbeddedBackend(self.home / "mem0", self.settings, key=self.key)
        assert self._backend is not None
        return self._backend

    def shutdown(self) -> None:
        """Close the connections."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None
        super().shutdown()

    def remote_tools(self) -> Sequence[RemoteTool]:
        """Return the six tools."""
        query: dict[str, JSON] = {"query": {"type": "string", "description": "What to look for, in plain words."}}
        content: dict[str, JSON] = {"content": {"type": "string", "description": "One fact, in a full sentence."}}
        identity: dict[str, JSON] = {"id": {"type": "string", "description": "The id of the memory."}}
        limit: dict[str, JSON] = {"limit": {"type": "integer", "description": "How many at most (default 8)."}}
        return (
            RemoteTool("mem0_profile", "List what Mem0 knows about the person.", limit, (), self._profile),
            RemoteTool(
                "mem0_search", "Search Mem0's memories by meaning.", {**query, **limit}, ("query",), self._search
            ),
            RemoteTool("mem0_add", "Store a fact as it is.", content, ("content",), self._add, writes=True),
            RemoteTool(
                "mem0_update",
                "Replace the text of a memory.",
                {**identity, **content},
                ("id", "content"),
                self._update,
                writes=True,
            ),
            RemoteTool("mem0_delete", "Delete a memory.", identity, ("id",), self._delete, writes=True),
            RemoteTool(
                "mem0_conclude",
                "Store a conclusion about the person that you drew from the conversation.",
                content,
                ("content",),
                self._conclude,
                writes=True,
            ),
        )

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - memories of all sessions are searched
        """Return the memories that are nearest to the message."""
        found = self.backend.search(self.scope, clean(query)[:1_000], top_k=self.settings.top_k)
        return bullet_list([text_of(each, "memory", "text") for each in found], most_chars=_RECALL_CHARS)

    def sync_turn(
        self, user: str, assistant: str, *, session_id: str = "", messages: Messages = (), idempotency_key: str = ""
    ) -> None:
        """Send the exchange, once: what Mem0 extracts from it carries the key of the delivery."""
        del messages
        if not self.is_writable or self._has_turn(clean(user), idempotency_key):
            return
        turn = [{"role": "user", "content": clean(user)}, {"role": "assistant", "content": clean(assistant)}]
        metadata: dict[str, JSON] = {"session_id": session_id, "idempotency_key": idempotency_key}
        self.backend.add(
            self.scope, turn, agent_id=self.settings.agent_id, infer=self.settings.infer, metadata=metadata
        )

    def _has_turn(self, text: str, key: str) -> bool:
        """Whether a turn was delivered before and only its answer got lost."""
        if not key or not text:
            return False
        found = self.backend.search(self.scope, text[:1_000], top_k=10)
        known = [each.get("metadata") for each in found]
        return any(isinstance(each, Mapping) and each.get("idempotency_key") == key for each in known)

    def add_entry(self, target: str, text: str) -> None:
        """Store an entry as it is, and wait until the platform has it: only then can a later remove find it."""
        if self._copies(target, text):
            return
        made = self.backend.add(
            self.scope,
            [{"role": "user", "content": text}],
            agent_id=self.settings.agent_id,
            infer=False,
            metadata={_MIRROR: target},
        )
        deadline = time.monotonic() + self.settings.settle_seconds
        while not made and time.monotonic() < deadline and not self._copies(target, text):
            time.sleep(_POLL_SECONDS)

    def remove_entry(self, target: str, text: str) -> None:
        """Delete an entry, found by its text."""
        for copy in self._copies(target, text):
            self.backend.delete(text_of(copy, "id"))

    def forget_content(self, request: ForgetRequest) -> Forgotten:
        """Delete the memories of this user that the request selects."""
        found = self._select(request)
        for each in found:
            self.backend.delete(text_of(each, "id"))
        note = "Mem0 works in the background: what was said in the last minute may appear later, so repeat this then"
        return Forgotten(len(found), note if self.settings.mode == "platform" else "")

    def holds_content(self, request: ForgetRequest) -> bool:
        """Return whether Mem0 still has a memory that the request selects."""
        return bool(self._select(request))

    def _select(self, request: ForgetRequest) -> list[Mapping[str, JSON]]:
        return [each for each in self.backend.list(self.scope) if is_selected(each, request, "memory", "text")]

    def check_health(self) -> Mapping[str, JSON]:
        """Ask the back end for this user's memories."""
        return {"mode": self.settings.mode, "user": self.scope, **self.backend.ping(self.scope)}

    def backup_paths(self) -> Sequence[str]:
        """Return nothing: the embedded store is inside the home."""
        return ()

    def _copies(self, target: str, text: str) -> list[Mapping[str, JSON]]:
        """Return the memories that are the copy of one page entry."""
        found = self.backend.search(self.scope, text[:1_000], top_k=20)
        return [each for each in found if text_of(each, "memory", "text") == text and _is_mirror(each, target)]

    def _profile(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        return {"memories": [_shown(each) for each in self.backend.list(self.scope)[: args.get("limit") or 50]]}

    def _search(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        found = self.backend.search(self.scope, args["query"], top_k=args.get("limit") or self.settings.top_k)
        return {"results": [_shown(each) for each in found]}

    def _add(self, args: Mapping[str, Any], **metadata: JSON) -> Mapping[str, JSON]:
        made = self.backend.add(
            self.scope,
            [{"role": "user", "content": clean(args["content"])}],
            agent_id=self.settings.agent_id,
            infer=False,
            metadata={"session_id": self.session_id, **metadata},
        )
        return {"stored": [_shown(each) for each in made]}

    def _conclude(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        return self._add(args, kind="conclusion")

    def _update(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        self._require_own(args["id"])
        self.backend.update(args["id"], clean(args["content"]))
        return {"updated": args["id"]}

    def _delete(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        self._require_own(args["id"])
        self.backend.delete(args["id"])
        return {"deleted": args["id"]}

    def _require_own(self, identity: str) -> None:
        """Raise unless the memory is this user's: ids of others must not work."""
        if not any(text_of(each, "id") == identity for each in self.backend.list(self.scope)):
            raise ProviderError(f"there is no memory {identity!r}", "mem0_search shows the ids")


def _is_mirror(item: Mapping[str, JSON], target: str) -> bool:
    metadata = item.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get(_MIRROR) == target


def _shown(item: Mapping[str, JSON]) -> dict[str, JSON]:
    score = item.get("score")
    shown: dict[str, JSON] = {"id": text_of(item, "id"), "memory": text_of(item, "memory", "text")}
    return {**shown, "score": round(score, 3)} if isinstance(score, float) else shown
