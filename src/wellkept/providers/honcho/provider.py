"""The Honcho provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from msgspec import Struct

from wellkept.core.errors import ProviderError
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
    safe_name,
    text_of,
)

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
        conclusions: Items = []
        for page in range(1, _MOST_PAGES + 1):
            path = self._path("conclusions/list") + f"?page={page}&size={_PAGE}"
            listed = objects(self._client.post(path, {"filters": self._observed}), "items")
            conclusions += listed
            if len(listed) < _PAGE:
                break
        return conclusions

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


CLOUD_URL = "https://api.honcho.dev"
_RECALL_CHARS = 6_000
_LEVELS = ("minimal", "low", "medium", "high", "max")


class HonchoSettings(Struct, frozen=True, kw_only=True):
    """The settings in `honcho.json`; the names are those of Honcho's other integrations."""

    base_url: Annotated[str, Address()] = CLOUD_URL
    """The address of the server."""
    workspace: str = ""
    """The workspace; empty for one of this profile."""
    recallMode: Literal["hybrid", "context", "tools"] = "hybrid"  # noqa: N815 - Honcho's own name
    """Context and tools, context alone, or tools alone."""
    contextTokens: Annotated[int, Between(0, 100_000)] = 0  # noqa: N815
    """How long the context may be; 0 for Honcho's own limit."""
    dialecticMaxChars: Annotated[int, Between(50, 20_000)] = 600  # noqa: N815
    """How much of the dialectic's answer is used."""
    contextCadence: Annotated[int, Between(1, 1_000)] = 1  # noqa: N815
    """Every how many turns the context is read again."""
    dialecticCadence: Annotated[int, Between(0, 1_000)] = 1  # noqa: N815
    """Every how many turns the dialectic is asked; each answer costs a model call there; 0 never asks."""
    injectionFrequency: Literal["every-turn", "first-turn"] = "every-turn"  # noqa: N815
    """Whether every turn is given the context, or only the first."""
    sessionStrategy: Literal["per-directory", "per-repo", "per-session", "global"] = "per-directory"  # noqa: N815
    """Which conversations share a session at Honcho."""
    saveMessages: bool = True  # noqa: N815
    """Whether finished turns are sent."""
    writeFrequency: Literal["turn", "session"] = "turn"  # noqa: N815
    """Whether turns are sent as they finish, or together when the conversation ends."""
    reasoning_level: Literal["minimal", "low", "medium", "high", "max"] = "low"
    """How hard the dialectic thinks."""
    timeout_seconds: Annotated[float, Between(0.5, 60)] = 8.0
    """How long a request may take."""


class HonchoProvider(RemoteProvider[HonchoSettings]):
    """Turns go to Honcho, whose deriver draws conclusions in the background; page entries are conclusions of ours."""

    NAME = "honcho"
    SETTINGS = HonchoSettings
    KEY = "HONCHO_API_KEY"
    KEY_URL = "https://app.honcho.dev"
    CLOUD_URL = CLOUD_URL
    QUESTIONS: ClassVar[Mapping[str, str]] = {
        "base_url": "Address of the server",
        "workspace": "Workspace, empty for one of this profile",
        "recallMode": "Give context, tools, or both",
        "sessionStrategy": "Which conversations share a session",
        "contextCadence": "Turns between two looks at the context",
        "dialecticCadence": "Turns between two questions to the dialectic, 0 for none",
        "injectionFrequency": "Context in every turn, or only in the first",
        "saveMessages": "Send finished turns",
    }

    def __init__(self) -> None:
        super().__init__()
        self._api: HonchoApi | None = None
        self._turn = 0
        self._context_of: dict[str, tuple[int, str]] = {}
        """Session → the turn of its last context, and its text."""

    @property
    def api(self) -> HonchoApi:
        """Return the API for this user, with workspace and peers created."""
        if self._api is None:
            api = HonchoApi(
                self.client,
                workspace=self.settings.workspace or safe_name("kept", self.profile),
                person=safe_name("user", self.user),
                agent="kept",
            )
            api.prepare()
            self._api = api
        return self._api

    def gives_tools(self) -> bool:
        """Return whether the mode is not `context`."""
        return self.settings.recallMode != "context"

    def remote_tools(self) -> Sequence[RemoteTool]:
        """Return the five tools."""
        query: dict[str, JSON] = {"query": {"type": "string", "description": "A question in plain words."}}
        limit: dict[str, JSON] = {"limit": {"type": "integer", "description": "How many at most (default 10)."}}
        level: dict[str, JSON] = {
            "level": {"type": "string", "enum": list(_LEVELS), "description": "How hard to think."}
        }
        content: dict[str, JSON] = {
            "content": {"type": "string", "description": "One conclusion about the person, in a full sentence."},
            "delete_id": {"type": "string", "description": "Instead: the id of a conclusion to delete."},
        }
        return (
            RemoteTool(
                "honcho_profile", "Read the card of the person: the facts that matter most.", {}, (), self._profile
            ),
            RemoteTool("honcho_search", "Search what the person said.", {**query, **limit}, ("query",), self._search),
            RemoteTool(
                "honcho_context", "Read what is known of the person on a topic.", query, ("query",), self._context
            ),
            RemoteTool(
                "honcho_reasoning",
                "Ask Honcho's model of the person a question; takes seconds and costs a model call.",
                {**query, **level},
                ("query",),
                self._reason,
            ),
            RemoteTool(
                "honcho_conclude",
                "Store a conclusion about the person, or delete one.",
                content,
                (),
                self._conclude,
                writes=True,
            ),
        )

    def on_turn_start(self, turn: int, message: str, **context: Any) -> None:
        """Remember the number of the turn, for the cadences."""
        del message, context
        self._turn = turn

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return card, representation and, at its cadence, the dialectic's answer."""
        settings, session = self.settings, self._session(session_id)
        if settings.recallMode == "tools" or (settings.injectionFrequency == "first-turn" and self._turn > 1):
            return ""
        seen = self._context_of.get(session)
        if seen is None or self._turn - seen[0] >= settings.contextCadence or self._turn < seen[0]:
            seen = (self._turn, self._read_context(clean(query)[:1_000], session))
            self._context_of[session] = seen
        texts = [seen[1]]
        if settings.dialecticCadence and self._turn % settings.dialecticCadence == 0:
            texts.append(self._ask(clean(query)[:1_000], session, settings.reasoning_level))
        return "\n".join(text for text in texts if text)

    def recall(self, query: str, *, session_id: str = "") -> str:
        """Return card, representation and conclusions for a question, in every mode."""
        return self._read_context(clean(query)[:1_000], self._session(session_id))

    def sync_turn(
        self, user: str, assistant: str, *, session_id: str = "", messages: Messages = (), idempotency_key: str = ""
    ) -> None:
        """Send the exchange, once: a repeated delivery finds its key at Honcho."""
        del messages
        if not self._saves("turn"):
            return
        session = self._open_session(session_id)
        if idempotency_key and self.api.find_message(session, idempotency_key):
            return
        said = [(self.api.person, clean(user)), (self.api.agent, clean(assistant))]
        self.api.add_messages(session, said, metadata={"session_id": session_id, "idempotency_key": idempotency_key})

    def on_session_end(self, messages: Messages, *, session_id: str = "", idempotency_key: str = "") -> None:
        """Send the whole conversation, where turns are not sent one by one."""
        if not self._saves("session"):
            return
        session = self._open_session(session_id)
        if idempotency_key and self.api.find_message(session, idempotency_key):
            return
        peers = {"user": self.api.person, "assistant": self.api.agent}
        said = [
            (peers[str(message["role"])], clean(str(message.get("content") or "")))
            for message in messages
            if message.get("role") in peers and isinstance(message.get("content"), str)
        ]
        self.api.add_messages(session, said, metadata={"session_id": session_id, "idempotency_key": idempotency_key})

    def _saves(self, frequency: str) -> bool:
        return self.is_writable and self.settings.saveMessages and self.settings.writeFrequency == frequency

    def on_session_switch(self, new_id: str, **context: Any) -> None:
        """Continue under the new session; its context is read again."""
        super().on_session_switch(new_id, **context)
        self._context_of.clear()

    def add_entry(self, target: str, text: str) -> None:
        """Store an entry as a conclusion about the person."""
        del target
        if not self._with_text(text):
            self.api.conclude([text], session=None)
        self._context_of.clear()

    def remove_entry(self, target: str, text: str) -> None:
        """Delete the conclusion of an entry."""
        del target
        for each in self._with_text(text):
            self.api.delete_conclusion(text_of(each, "id"))
        self._context_of.clear()

    def forget_content(self, request: ForgetRequest) -> Forgotten:
        """Delete conclusions by text, and whole sessions by id; Honcho deletes no single message."""
        found = self._select(request)
        for each in found:
            self.api.delete_conclusion(text_of(each, "id"))
        sessions = {self._session(each) for each in request.session_ids}
        sessions |= {text_of(each, "session_id") for each in self._messages_with(request)}
        for session in sorted(filter(None, sessions)):
            self.api.delete_session(session)
        self._context_of.clear()
        notes = [f"Honcho deletes no single message: {len(sessions)} whole sessions there were deleted"] * bool(
            sessions
        )
        if self.api.waiting():
            notes.append("its deriver still works and may draw conclusions from what it has read, so repeat this later")
        return Forgotten(len(found) + len(sessions), "; ".join(notes))

    def holds_content(self, request: ForgetRequest) -> bool:
        """Return whether a conclusion or a message is left that the request selects."""
        return bool(self._select(request) or self._messages_with(request))

    def check_health(self) -> Mapping[str, JSON]:
        """Ask the server, and how much its deriver has still to do."""
        return {"workspace": self.api.workspace, "person": self.api.person, "waiting_to_be_derived": self.api.waiting()}

    def shutdown(self) -> None:
        """Close the connections."""
        self._api = None
        super().shutdown()

    def _session(self, session_id: str) -> str:
        """Return the session at Honcho that a conversation belongs to."""
        match self.settings.sessionStrategy:
            case "global":
                return safe_name("all", self.user)
            case "per-directory" | "per-repo":
                return safe_name("project", self.user, self.workspace or "none")
            case "per-session":
                return safe_name("session", session_id or self.session_id)

    def _open_session(self, session_id: str) -> str:
        session = self._session(session_id)
        self.api.open_session(session)
        return session

    def _read_context(self, query: str, session: str) -> str:
        self.api.open_session(session)
        card, representation = self.api.context(session, tokens=self.settings.contextTokens or None, query=query)
        conclusions = self.api.query_conclusions(query, limit=10) if query else []
        lines = [*card, *representation.splitlines(), *(text_of(conclusion, "content") for conclusion in conclusions)]
        return bullet_list([line.lstrip("-*# ") for line in lines], most_chars=_RECALL_CHARS)

    def _ask(self, query: str, session: str, level: str) -> str:
        self.api.open_session(session)
        return self.api.ask(query, session=session, level=level)[: self.settings.dialecticMaxChars]

    def _with_text(self, text: str) -> Items:
        return [conclusion for conclusion in self.api.list_conclusions() if text_of(conclusion, "content") == text]

    def _select(self, request: ForgetRequest) -> Items:
        return [conclusion for conclusion in self.api.list_conclusions() if is_selected(conclusion, request, "content")]

    def _messages_with(self, request: ForgetRequest) -> Items:
        return [
            message
            for text in request.texts
            for message in self.api.search_messages(text, limit=100)
            if is_selected(message, request, "content")
        ]

    def _profile(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        del args
        return {"card": self.api.card()}

    def _search(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        messages = self.api.search_messages(args["query"], limit=min(max(1, args.get("limit") or 10), 100))
        keys = ("id", "content", "session_id", "created_at")
        return {"results": [{key: text_of(message, key) for key in keys} for message in messages]}

    def _context(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        return {"context": self._read_context(args["query"], self._session(""))}

    def _reason(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        level = args.get("level") or self.settings.reasoning_level
        return {"answer": self._ask(args["query"], self._session(""), level)}

    def _conclude(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        identity = args.get("delete_id")
        if identity:
            if not any(text_of(conclusion, "id") == identity for conclusion in self.api.list_conclusions()):
                raise ProviderError(f"there is no conclusion {identity!r}", "honcho_context shows what is known")
            self.api.delete_conclusion(identity)
            return {"deleted": identity}
        text = clean(str(args.get("content") or ""))
        if not text:
            raise ProviderError("give `content`, or `delete_id`", "")
        made = self.api.conclude([text], session=None)
        return {"stored": [text_of(each, "id") for each in made]}
