"""The three places where Mem0 runs, behind one set of methods."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from wellkept.core.errors import ProviderError
from wellkept.core.installation import name_install
from wellkept.providers.remote import objects, text_of
from wellkept.storage.files import make_folder

if TYPE_CHECKING:
    from pathlib import Path

    from wellkept.core.text import JSON
    from wellkept.providers.http import HttpClient
    from wellkept.providers.mem0.provider import Mem0Settings

Turn = Sequence[Mapping[str, "JSON"]]
Items = list[Mapping[str, "JSON"]]
_MOST_PAGES = 50


class Backend(Protocol):
    """What the provider needs of Mem0."""

    def add(self, user: str, turn: Turn, *, agent_id: str, infer: bool, metadata: Mapping[str, JSON]) -> Items:
        """Store messages and return the memories that were made, if they are known at once."""
        ...

    def search(self, user: str, query: str, *, top_k: int) -> Items:
        """Return the nearest memories of a user."""
        ...

    def list(self, user: str) -> Items:
        """Return all memories of a user."""
        ...

    def update(self, identity: str, text: str) -> None:
        """Replace the text of a memory."""
        ...

    def delete(self, identity: str) -> None:
        """Delete a memory; a missing one is not an error."""
        ...

    def ping(self, user: str) -> Mapping[str, JSON]:
        """Make a real call and return facts."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class PlatformBackend:
    """Mem0's platform; adds are processed in the background."""

    def __init__(self, client: HttpClient, *, rerank: bool) -> None:
        self._client = client
        self._rerank = rerank

    def add(self, user: str, turn: Turn, *, agent_id: str, infer: bool, metadata: Mapping[str, JSON]) -> Items:
        """Queue the messages; the answer names no memories when Mem0 works in the background."""
        answer = self._client.post(
            "/v3/memories/add/",
            {"messages": list(turn), "user_id": user, "agent_id": agent_id, "infer": infer, "metadata": dict(metadata)},
        )
        return objects(answer, "results")

    def search(self, user: str, query: str, *, top_k: int) -> Items:
        """Return the nearest memories."""
        body: dict[str, JSON] = {"query": query, "filters": {"user_id": user}, "top_k": top_k, "rerank": self._rerank}
        return objects(self._client.post("/v3/memories/search/", body), "results")

    def list(self, user: str) -> Items:
        """Return all memories, page by page."""
        found: Items = []
        for page in range(1, _MOST_PAGES + 1):
            answer = self._client.post(f"/v3/memories/?page={page}&page_size=100", {"filters": {"user_id": user}})
            found += objects(answer, "results")
            if not isinstance(answer, Mapping) or not answer.get("next"):
                break
        return found

    def update(self, identity: str, text: str) -> None:
        """Replace the text."""
        self._client.put(f"/v1/memories/{quote(identity, safe='')}/", {"text": text})

    def delete(self, identity: str) -> None:
        """Delete one memory."""
        self._client.delete(f"/v1/memories/{quote(identity, safe='')}/")

    def ping(self, user: str) -> Mapping[str, JSON]:
        """Return the account that the key belongs to."""
        del user
        answer = self._client.get("/v1/ping/")
        if not isinstance(answer, Mapping) or not answer.get("project_id"):
            raise ProviderError("mem0 did not say which project the key belongs to", "check the key")
        return {"project": text_of(answer, "project_id")}

    def close(self) -> None:
        """Do nothing: the provider closes its client."""


class ServerBackend:
    """A self-hosted Mem0 server."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def add(self, user: str, turn: Turn, *, agent_id: str, infer: bool, metadata: Mapping[str, JSON]) -> Items:
        """Store the messages."""
        answer = self._client.post(
            "/memories",
            {"messages": list(turn), "user_id": user, "agent_id": agent_id, "infer": infer, "metadata": dict(metadata)},
        )
        return objects(answer, "results")

    def search(self, user: str, query: str, *, top_k: int) -> Items:
        """Return the nearest memories."""
        answer = self._client.post("/search", {"query": query, "top_k": top_k, "filters": {"user_id": user}})
        return objects(answer, "results")

    def list(self, user: str) -> Items:
        """Return all memories."""
        return objects(self._client.get("/memories", user_id=user), "results")

    def update(self, identity: str, text: str) -> None:
        """Replace the text."""
        self._client.put(f"/memories/{quote(identity, safe='')}", {"text": text})

    def delete(self, identity: str) -> None:
        """Delete one memory."""
        self._client.delete(f"/memories/{quote(identity, safe='')}")

    def ping(self, user: str) -> Mapping[str, JSON]:
        """Return how many memories the user has."""
        return {"memories": len(self.list(user))}

    def close(self) -> None:
        """Do nothing: the provider closes its client."""


class EmbeddedBackend:
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

    def ping(self, user: str) -> Mapping[str, JSON]:
        """Return how many memories the user has."""
        return {"memories": len(self.list(user))}

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
