"""The routes of Honcho's API, version 3, that the provider uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from wellkept.providers.remote import objects, text_of

if TYPE_CHECKING:
    from wellkept.core.text import JSON
    from wellkept.providers.http import HttpClient

Items = list[Mapping[str, "JSON"]]
_MOST_PAGES = 50
_PAGE = 100


class HonchoApi:
    """One workspace with two peers: the person and the agent, who observes the person."""

    def __init__(self, client: HttpClient, *, workspace: str, person: str, agent: str) -> None:
        self._client = client
        self.workspace = workspace
        self.person = person
        self.agent = agent
        self._sessions: set[str] = set()

    def prepare(self) -> None:
        """Create the workspace and both peers; those that exist stay as they are."""
        self._client.post("/v3/workspaces", {"id": self.workspace})
        self._client.post(self._path("peers"), {"id": self.person})
        # the agent itself is not modelled
        self._client.post(self._path("peers"), {"id": self.agent, "configuration": {"observe_me": False}})

    def open_session(self, session: str) -> bool:
        """Create the session with both peers; return whether this object did it for the first time."""
        if session in self._sessions:
            return False
        self._client.post(self._path("sessions"), {"id": session, "peers": {self.person: {}, self.agent: {}}})
        self._sessions.add(session)
        return True

    def add_messages(self, session: str, messages: Sequence[tuple[str, str]], *, metadata: Mapping[str, JSON]) -> None:
        """Add messages, each with its peer."""
        listed: list[JSON] = [
            {"peer_id": peer, "content": text, "metadata": dict(metadata)} for peer, text in messages if text
        ]
        if listed:
            self._client.post(self._path("sessions", session, "messages"), {"messages": listed})

    def find_message(self, session: str, key: str) -> bool:
        """Return whether a message of the delivery `key` was added before."""
        body: dict[str, JSON] = {"filters": {"metadata": {"idempotency_key": key}}}
        answer = self._client.post(self._path("sessions", session, "messages/list") + "?page=1&size=1", body)
        return bool(objects(answer, "items"))

    def context(self, session: str, *, tokens: int | None, query: str) -> tuple[list[str], str]:
        """Return the card and the representation of the person."""
        answer = self._client.get(
            self._path("sessions", session, "context"),
            tokens=tokens,
            summary=True,
            peer_target=self.person,
            peer_perspective=self.agent,
            search_query=query or None,
        )
        found = answer if isinstance(answer, Mapping) else {}
        card = found.get("peer_card")
        lines = [each for each in card if isinstance(each, str)] if isinstance(card, list) else []
        return lines, text_of(found, "peer_representation")

    def ask(self, query: str, *, session: str, level: str) -> str:
        """Ask the agent's model of the person a question."""
        body: dict[str, JSON] = {
            "query": query,
            "session_id": session,
            "target": self.person,
            "stream": False,
            "reasoning_level": level,
        }
        answer = self._client.post(self._path("peers", self.agent, "chat"), body, seconds=60)
        return text_of(answer, "content") if isinstance(answer, Mapping) else ""

    def card(self) -> list[str]:
        """Return the card of the person."""
        answer = self._client.get(self._path("peers", self.agent, "card"), target=self.person)
        found = answer.get("peer_card") if isinstance(answer, Mapping) else None
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def search_messages(self, query: str, *, limit: int) -> Items:
        """Search what the person said."""
        answer = self._client.post(self._path("peers", self.person, "search"), {"query": query, "limit": limit})
        return objects({"items": answer}, "items") if isinstance(answer, list) else objects(answer, "items")

    def conclude(self, texts: Sequence[str], *, session: str | None) -> Items:
        """Store conclusions about the person."""
        listed: list[JSON] = [
            {"content": text, "observer_id": self.agent, "observed_id": self.person, "session_id": session}
            for text in texts
        ]
        answer = self._client.post(self._path("conclusions"), {"conclusions": listed})
        return objects({"items": answer}, "items")

    def query_conclusions(self, query: str, *, limit: int) -> Items:
        """Return the conclusions that are nearest to a question."""
        body: dict[str, JSON] = {"query": query, "top_k": limit, "filters": self._observed}
        return objects({"items": self._client.post(self._path("conclusions/query"), body)}, "items")

    def list_conclusions(self) -> Items:
        """Return all conclusions about the person."""
        found: Items = []
        for page in range(1, _MOST_PAGES + 1):
            path = self._path("conclusions/list") + f"?page={page}&size={_PAGE}"
            listed = objects(self._client.post(path, {"filters": self._observed}), "items")
            found += listed
            if len(listed) < _PAGE:
                break
        return found

    def delete_conclusion(self, identity: str) -> None:
        """Delete one conclusion."""
        self._client.delete(self._path("conclusions", identity))

    def delete_session(self, session: str) -> None:
        """Delete a session with its messages."""
        self._client.delete(self._path("sessions", session))
        self._sessions.discard(session)

    def waiting(self) -> int:
        """Return how many messages the deriver has not processed yet."""
        answer = self._client.get(self._path("queue/status"))
        found = answer.get("pending_work_units") if isinstance(answer, Mapping) else None
        return found if isinstance(found, int) else 0

    @property
    def _observed(self) -> dict[str, JSON]:
        return {"observer_id": self.agent, "observed_id": self.person}

    def _path(self, *parts: str) -> str:
        return "/".join(
            [
                "/v3/workspaces",
                quote(self.workspace, safe=""),
                *(part if "/" in part else quote(part, safe="") for part in parts),
            ]
        )
