"""The routes of an OpenViking server that the provider uses, for one user and one agent."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from wellkept.core.errors import ProviderError
from wellkept.providers.http import BackendMissing
from wellkept.providers.remote import objects, text_of

if TYPE_CHECKING:
    from wellkept.core.text import JSON
    from wellkept.providers.http import HttpClient

ROOT = "viking://"
_POLL_SECONDS = 0.5
_MOST_NODES = 10_000
"""How many files a search for words or a listing looks at."""

Items = list[Mapping[str, "JSON"]]


class OpenVikingApi:
    """Answers are taken out of their envelope; every address is below the user's own folder."""

    def __init__(self, client: HttpClient, *, user: str, agent: str) -> None:
        self._client = client
        self.home = f"{ROOT}user/{user}"
        """The user's folder. Without the user in it a memory is stored as a resource, and no search finds it."""
        self.memories = f"{self.home}/peers/{agent}/memories"

    def is_own(self, uri: str) -> bool:
        """Whether an address is below the user's folder; the server itself lets any user read any other's."""
        return (uri == self.home or uri.startswith(f"{self.home}/")) and ".." not in uri

    def write(self, uri: str, text: str) -> None:
        """Store a text; one at the same address is replaced."""
        self._take(
            self._client.post("/api/v1/content/write", {"uri": uri, "content": text, "mode": "create", "wait": True})
        )

    def read(self, uri: str, tier: str) -> str:
        """Return the text of a file, or the abstract or overview of a folder."""
        found = self._take(self._client.get(f"/api/v1/content/{'read' if tier == 'full' else tier}", uri=uri))
        return found if isinstance(found, str) else ""

    def browse(self, uri: str, *, deep: bool) -> Items:
        """Return what a folder holds, or everything below it."""
        limits: dict[str, int] = {"node_limit": _MOST_NODES} if deep else {}
        found = self._take(self._client.get(f"/api/v1/fs/{'tree' if deep else 'ls'}", uri=uri, **limits))
        return objects({"found": found}, "found")

    def list_files(self) -> list[str]:
        """Return the addresses of all files of the user, sessions left out."""
        try:
            found = self.browse(self.home, deep=True)
        except BackendMissing:  # nothing was stored for this user yet
            return []
        sessions = f"{self.home}/sessions"
        uris = [text_of(each, "uri") for each in found if not each.get("isDir")]
        return [uri for uri in uris if self.is_own(uri) and not uri.startswith(sessions)]

    def delete(self, uri: str) -> None:
        """Delete a file; a missing one is not an error."""
        self._client.delete("/api/v1/fs", uri=uri, wait=True)

    def find(self, query: str, *, limit: int, threshold: float) -> Items:
        """Return the memories that are nearest to a question, the user's own only."""
        body: dict[str, JSON] = {
            "query": query,
            "limit": limit,
            "context_type": "memory",
            "target_uri": self.home,
            "score_threshold": threshold,
        }
        found = objects(self._take(self._client.post("/api/v1/search/find", body)), "memories")
        # files whose names begin with a dot describe folders; they are not memories
        own = [each for each in found if self.is_own(text_of(each, "uri"))]
        return [each for each in own if not text_of(each, "uri").rpartition("/")[2].startswith(".")]

    def grep(self, text: str) -> list[str]:
        """Return the addresses of all files with a line that contains the text, ignoring case."""
        body: dict[str, JSON] = {
            "uri": self.home,
            "pattern": re.escape(text),
            "case_insensitive": True,
            "node_limit": _MOST_NODES,
        }
        try:
            found = objects(self._take(self._client.post("/api/v1/search/grep", body)), "matches")
        except BackendMissing:
            return []
        return list(dict.fromkeys(uri for each in found if self.is_own(uri := text_of(each, "uri"))))

    def add_messages(self, session: str, messages: Sequence[tuple[str, str]], *, turn: str) -> None:
        """Add messages to a session, which is created if it is new; all carry the id of the turn."""
        said: list[JSON] = [{"role": role, "content": text, "turn_id": turn} for role, text in messages if text]
        self._take(self._client.post(f"{_session(session)}/messages/batch", {"messages": said}))

    def has_turn(self, session: str, turn: str) -> bool:
        """Whether the session holds the messages of a turn that is not committed yet."""
        try:
            found = self._take(self._client.get(f"{_session(session)}/context"))
        except BackendMissing:
            return False
        return any(each.get("turn_id") == turn for each in objects(found, "messages"))

    def commit(self, session: str) -> str:
        """Have the server extract memories from a session; return the id of its task, empty if there was nothing."""
        try:
            found = self._take(self._client.post(f"{_session(session)}/commit", {}))
        except BackendMissing:
            return ""
        return text_of(found, "task_id") if isinstance(found, Mapping) and found.get("archived") is not False else ""

    def wait_for(self, task: str, *, seconds: float) -> None:
        """Wait until a task is done; raise if it failed. After `seconds` it continues in the background."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self._take(self._client.get(f"/api/v1/tasks/{quote(task, safe='')}"))
            status = text_of(found, "status") if isinstance(found, Mapping) else ""
            if status in {"failed", "cancelled"}:
                assert isinstance(found, Mapping)
                reason = " ".join(text_of(found, "error", "message").split())[:200]
                raise ProviderError(
                    f"openviking extracted nothing from a session: {reason or status}",
                    "check the model in the configuration of its server",
                )
            if status == "completed":
                return
            time.sleep(_POLL_SECONDS)

    def list_sessions(self) -> list[str]:
        """Return the ids of the user's sessions."""
        found = self._take(self._client.get("/api/v1/sessions"))
        return [text_of(each, "session_id") for each in objects({"found": found}, "found")]

    def delete_session(self, session: str) -> None:
        """Delete a session with its messages; a missing one is not an error."""
        self._client.delete(_session(session))

    def add_resource(self, url: str, *, reason: str) -> str:
        """Have the server fetch a resource; return where it stores it."""
        body: dict[str, JSON] = {"path": url, "parent": f"{self.home}/resources", "create_parent": True, "wait": False}
        found = self._take(self._client.post("/api/v1/resources", {**body, "reason": reason}))
        return text_of(found, "root_uri", "uri") if isinstance(found, Mapping) else ""

    def health(self) -> Mapping[str, JSON]:
        """Return what the server says about itself; the second call needs the key."""
        answer = self._client.get("/health")
        self.list_sessions()
        return answer if isinstance(answer, Mapping) else {}

    def _take(self, answer: JSON) -> JSON:
        """Return the result inside the envelope."""
        if not isinstance(answer, Mapping) or "status" not in answer:
            raise ProviderError("openviking answered without its envelope", "check its address: is this the API?")
        if answer["status"] != "ok":
            error = answer.get("error")
            said = text_of(error, "message", "code") if isinstance(error, Mapping) else ""
            raise ProviderError(f"openviking refused: {said[:200]}", "check the version of the server")
        return answer.get("result")


def _session(session: str) -> str:
    return f"/api/v1/sessions/{quote(session, safe='')}"
