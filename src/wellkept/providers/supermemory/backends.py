"""The two generations of Supermemory's API, which are incompatible, behind one set of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from wellkept.core.text import JSON
from wellkept.providers.remote import objects, text_of

if TYPE_CHECKING:
    from wellkept.providers.http import HttpClient

Items = list[Mapping[str, JSON]]
_MOST_PAGES = 50
_PAGE = 100


class Backend(Protocol):
    """What the provider needs; `container` is the tag or namespace of one user."""

    def add(self, container: str, content: str, *, identity: str, metadata: Mapping[str, JSON], about: str) -> str:
        """Store a document under an id of ours and return the back end's id; the same id replaces it."""
        ...

    def search(self, container: str, query: str, *, mode: str, limit: int) -> Items:
        """Return the nearest memories and passages, with `id` and `text`."""
        ...

    def profile(self, container: str) -> tuple[list[str], list[str]]:
        """Return what is lasting and what is recent about the person."""
        ...

    def list_documents(self, container: str) -> Items:
        """Return the documents, with `id`, `text` and `metadata`."""
        ...

    def delete_document(self, container: str, identity: str) -> None:
        """Delete a document with what was extracted from it."""
        ...

    def forget_memory(self, container: str, identity: str) -> bool:
        """Forget one extracted memory; return whether it existed."""
        ...

    def add_conversation(self, container: str, session: str, messages: Sequence[Mapping[str, JSON]]) -> None:
        """Hand over a whole conversation at its end."""
        ...


class DocumentsBackend:
    """Version 3 and 4 routes: containers are tags."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

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

    def list_documents(self, container: str) -> Items:
        """Return every document, page by page."""
        found: Items = []
        for page in range(1, _MOST_PAGES + 1):
            body: dict[str, JSON] = {
                "containerTags": [container],
                "limit": _PAGE,
                "page": page,
                "includeContent": True,
            }
            answer = self._client.post("/v3/documents/list", body)
            listed = objects(answer, "memories") or objects(answer, "documents")
            found += [{**each, "text": text_of(each, "content", "summary", "title")} for each in listed]
            if len(listed) < _PAGE:
                break
        return found

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


class NamespaceBackend:
    """Version 5 routes: containers are namespaces."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

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

    def list_documents(self, container: str) -> Items:
        """Return every document, page by page."""
        found: Items = []
        for page in range(1, _MOST_PAGES + 1):
            answer = self._client.request(
                "POST",
                f"{_namespace(container)}/list/documents",
                params={"limit": _PAGE, "page": page},
                body={"include": {"content": True}},
            )
            listed = objects(answer, "documents")
            found += [{**each, "text": text_of(each, "content", "summary", "title")} for each in listed]
            if len(listed) < _PAGE:
                break
        return found

    def delete_document(self, container: str, identity: str) -> None:
        """Delete a document."""
        self._client.delete(f"{_namespace(container)}/document", body={"ids": [identity]})

    def forget_memory(self, container: str, identity: str) -> bool:
        """Forget one memory."""
        answer = self._client.delete(f"{_namespace(container)}/memories", body={"ids": [identity]})
        return isinstance(answer, Mapping) and bool(answer.get("count"))

    def add_conversation(self, container: str, session: str, messages: Sequence[Mapping[str, JSON]]) -> None:
        """Store the conversation as one document: version 5 has no route for it."""
        text = "\n".join(f"{each.get('role')}: {each.get('content')}" for each in messages)
        self.add(container, text, identity=f"session-{session}", metadata={"session_id": session}, about="")


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
        plain = [text_of(each, "memory") if isinstance(each, Mapping) else each for each in facts]
        return [each for each in plain if isinstance(each, str) and each]

    return texts("static"), texts("dynamic")
