"""The OpenViking provider."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from msgspec import Struct

from wellkept.core.errors import ProviderError
from wellkept.core.settings import Address, Between
from wellkept.core.text import JSON
from wellkept.providers.base import ForgetRequest, Forgotten, Messages
from wellkept.providers.remote import (
    BackendMissing,
    HttpClient,
    RemoteProvider,
    RemoteTool,
    bullet_list,
    clean,
    objects,
    safe_name,
    short_hash,
    text_of,
)

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


_TIERS = ("abstract", "overview", "full")
_MOST_READ = 20_000
"""How many characters a read returns."""


class OpenVikingSettings(Struct, frozen=True, kw_only=True):
    """The settings in `openviking.json`."""

    base_url: Annotated[str, Address()] = "http://127.0.0.1:1933"
    """The address of the server."""
    account: str = "default"
    """The account at OpenViking."""
    agent: str = "kept"
    """The agent under whose name memories are stored."""
    recall_limit: Annotated[int, Between(1, 50)] = 6
    """How many memories a recall takes."""
    score_threshold: Annotated[float, Between(0, 1)] = 0.15
    """Memories below this similarity are not recalled."""
    recall_max_chars: Annotated[int, Between(200, 50_000)] = 4_000
    """How many characters a recall takes."""
    auto_capture: bool = True
    """Whether finished turns are sent."""
    timeout_seconds: Annotated[float, Between(0.5, 60)] = 4.0
    """How long a request may take."""
    commit_seconds: Annotated[float, Between(0, 50)] = 30.0
    """How long the end of a session waits for the extraction, which takes at least 10 s."""


class OpenVikingProvider(RemoteProvider[OpenVikingSettings]):
    """Turns are messages of a session, from which the server extracts memories; page entries are files."""

    NAME = "openviking"
    SETTINGS = OpenVikingSettings
    KEY = "OPENVIKING_API_KEY"
    QUESTIONS: ClassVar[Mapping[str, str]] = {
        "base_url": "Address of the server",
        "account": "Account at OpenViking",
        "agent": "Name of the agent there",
        "recall_limit": "Memories of a recall",
        "score_threshold": "Least similarity of a recalled memory",
        "auto_capture": "Send finished turns",
    }

    def needs_key(self) -> bool:
        """Return False: a server on this machine runs without a key."""
        return False

    def open_client(self) -> HttpClient:
        """Return a client that names account, user and agent."""
        settings = self.settings
        headers = {
            "X-OpenViking-Account": settings.account,
            "X-OpenViking-User": self.scope,
            "X-OpenViking-Actor-Peer": settings.agent,
        }
        if self.key:
            headers["X-API-Key"] = self.key
        return HttpClient(self.NAME, settings.base_url, headers=headers, seconds=settings.timeout_seconds)

    @property
    def api(self) -> OpenVikingApi:
        """Return the routes for this user."""
        return OpenVikingApi(self.client, user=self.scope, agent=self.settings.agent)

    def remote_tools(self) -> Sequence[RemoteTool]:
        """Return the six tools."""
        query: dict[str, JSON] = {
            "query": {"type": "string", "description": "What to look for, in plain words."},
            "limit": {"type": "integer", "description": "How many at most (default 6)."},
        }
        uri: dict[str, JSON] = {"uri": {"type": "string", "description": "An address that a search or browse showed."}}
        tier: dict[str, JSON] = {
            "tier": {"type": "string", "enum": list(_TIERS), "description": "How much of it (default full)."}
        }
        deep: dict[str, JSON] = {"deep": {"type": "boolean", "description": "Everything below it, not one level."}}
        content: dict[str, JSON] = {"content": {"type": "string", "description": "One fact, in a full sentence."}}
        url: dict[str, JSON] = {
            "url": {"type": "string", "description": "A public web address."},
            "reason": {"type": "string", "description": "What it is good for."},
        }
        return (
            RemoteTool("viking_search", "Search memories by meaning.", query, ("query",), self._search),
            RemoteTool("viking_read", "Read a file or a folder's summary.", {**uri, **tier}, ("uri",), self._read),
            RemoteTool("viking_browse", "List a folder; without uri your own.", {**uri, **deep}, (), self._browse),
            RemoteTool("viking_remember", "Store a fact.", content, ("content",), self._remember, writes=True),
            RemoteTool("viking_forget", "Delete a memory.", uri, ("uri",), self._forget, writes=True),
            RemoteTool("viking_add_resource", "Have a web page fetched.", url, ("url",), self._add, writes=True),
        )  # fmt: skip

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - memories of all sessions are searched
        """Return the memories that are near enough to the message."""
        settings = self.settings
        found = self.api.find(clean(query)[:1_000], limit=settings.recall_limit, threshold=settings.score_threshold)
        near = [each for each in found if _score(each) >= settings.score_threshold]
        return bullet_list(
            [text_of(each, "abstract", "overview") for each in near], most_chars=settings.recall_max_chars
        )

    def sync_turn(
        self, user: str, assistant: str, *, session_id: str = "", messages: Messages = (), idempotency_key: str = ""
    ) -> None:
        """Add the exchange to its session, once: a repeated delivery finds the id of its turn there."""
        del messages
        said = [("user", clean(user)), ("assistant", clean(assistant))]
        if not self.is_writable or not self.settings.auto_capture or not any(text for _, text in said):
            return
        session, turn = self._session(session_id), short_hash(idempotency_key) if idempotency_key else ""
        if not turn or not self.api.has_turn(session, turn):
            self.api.add_messages(session, said, turn=turn)

    def on_session_end(self, messages: Messages, *, session_id: str = "") -> None:
        """Have memories extracted from the session and wait for that; a failed extraction is an error."""
        del messages
        if not self.is_writable or not self.settings.auto_capture:
            return
        task = self.api.commit(self._session(session_id))
        if task:
            self.api.wait_for(task, seconds=self.settings.commit_seconds)

    def on_pre_compress(self, messages: Messages) -> str:
        """Have memories extracted before the conversation is shortened, without waiting."""
        del messages
        if self.is_writable and self.settings.auto_capture:
            self.api.commit(self._session(""))
        return ""

    def add_entry(self, target: str, text: str) -> None:
        """Store an entry as a file whose name is derived from its text."""
        self.api.write(self._page_uri(target, text), text)

    def remove_entry(self, target: str, text: str) -> None:
        """Delete the file of an entry."""
        self.api.delete(self._page_uri(target, text))

    def forget_content(self, request: ForgetRequest) -> Forgotten:
        """Delete files that contain the words, and whole sessions: OpenViking deletes no single message."""
        files, sessions = self._select(request)
        for uri in files:
            self.api.delete(uri)
        for session in sessions:
            self.api.delete_session(session)
        note = f"OpenViking deletes no single message: {len(sessions)} whole sessions there were deleted"
        return Forgotten(len(files) + len(sessions), note if sessions and not request.everything else "")

    def holds_content(self, request: ForgetRequest) -> bool:
        """Return whether a file or a session is left that the request selects."""
        return any(self._select(request))

    def check_health(self) -> Mapping[str, JSON]:
        """Ask the server."""
        found = self.api.health()
        return {"version": text_of(found, "version"), "user": self.scope, "agent": self.settings.agent}

    def _session(self, session_id: str) -> str:
        return safe_name(session_id or self.session_id or "none")

    def _page_uri(self, target: str, text: str) -> str:
        return f"{self.api.memories}/pages/{safe_name(target)}-{short_hash(text)}.md"

    def _select(self, request: ForgetRequest) -> tuple[list[str], list[str]]:
        """Return the files and the sessions that a request selects."""
        api = self.api
        known = set(api.list_sessions()) if request.everything or request.session_ids else set()
        if request.everything:
            return api.list_files(), sorted(known)
        sessions = known & {self._session(each) for each in request.session_ids}
        files = []
        for uri in dict.fromkeys(found for text in request.texts if text.strip() for found in self._grep(text)):
            below = uri.removeprefix(f"{api.home}/sessions/")
            if below == uri:
                files.append(uri)
            else:
                sessions.add(below.partition("/")[0])
        return files, sorted(sessions)

    def _grep(self, text: str) -> list[str]:
        """Return the files with a text: a search goes line by line, and messages are stored as JSON."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return self.api.grep(max(lines, key=len)) if lines else []

    def _own(self, uri: str) -> str:
        if not self.api.is_own(uri):
            raise ProviderError(f"{uri!r} is not below {self.api.home}", "viking_browse shows the addresses")
        return uri

    def _search(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        limit = min(max(1, args.get("limit") or self.settings.recall_limit), 50)
        found = self.api.find(args["query"], limit=limit, threshold=0.0)
        return {
            "results": [
                {"uri": text_of(each, "uri"), "abstract": text_of(each, "abstract"), "score": round(_score(each), 3)}
                for each in found
            ]
        }

    def _read(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        text = self.api.read(self._own(args["uri"]), args.get("tier") or "full")
        return {"uri": args["uri"], "text": text[:_MOST_READ], "is_cut": len(text) > _MOST_READ}

    def _browse(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        found = self.api.browse(self._own(args.get("uri") or self.api.home), deep=bool(args.get("deep")))
        return {
            "entries": [
                {
                    "uri": text_of(each, "uri"),
                    "is_folder": bool(each.get("isDir")),
                    "abstract": text_of(each, "abstract"),
                }
                for each in found
            ]
        }

    def _remember(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        text = clean(args["content"])
        uri = f"{self.api.memories}/told/{short_hash(text)}.md"
        self.api.write(uri, text)
        return {"uri": uri}

    def _forget(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        self.api.delete(self._own(args["uri"]))
        return {"deleted": args["uri"]}

    def _add(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        if not Address().holds(args["url"]):
            raise ProviderError(f"{args['url']!r} is not a web address", "give one like https://host/page")
        return {"uri": self.api.add_resource(args["url"], reason=clean(args.get("reason") or ""))}


def _score(item: Mapping[str, JSON]) -> float:
    score = item.get("score")
    return float(score) if isinstance(score, int | float) else 0.0
