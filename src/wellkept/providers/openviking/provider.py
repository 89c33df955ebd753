"""The OpenViking provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Struct

from wellkept.core.errors import ProviderError
from wellkept.core.settings import Address, Between
from wellkept.providers.base import Forgotten
from wellkept.providers.http import HttpClient
from wellkept.providers.openviking.api import OpenVikingApi
from wellkept.providers.remote import RemoteProvider, RemoteTool, bullet_list, clean, safe_name, short_hash, text_of

if TYPE_CHECKING:
    from wellkept.core.text import JSON
    from wellkept.providers.base import ForgetRequest, Messages

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
