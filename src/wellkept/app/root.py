"""The composition root: reads the settings, builds what all users share, owns lifetimes."""

from __future__ import annotations  # the ports and tools import every value they mention: 40 ms of each start

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.app.caller import OWNER_SCOPES, USER_SCOPES, Caller, Scope, UserSpace
from wellkept.config.home import Home, find_home
from wellkept.config.settings import Loaded, Settings, find_value, load, with_secrets
from wellkept.core.agency import find_agent
from wellkept.core.clock import SystemClock
from wellkept.core.errors import ConfigError, UsageError
from wellkept.core.ids import OWNER, SessionId, UserId
from wellkept.core.installation import name_install
from wellkept.core.plugins import folders
from wellkept.core.ports import ignore
from wellkept.core.settings import REMOTE_TOOLSETS
from wellkept.observe import AppLog, open_log
from wellkept.storage.files import SCRATCH_FOLDER

if TYPE_CHECKING:
    from wellkept.agent.mcp_tools import McpTools
    from wellkept.core.events import Event
    from wellkept.core.ports import ChatModel, Clock, Database, Embeds, EventSink
    from wellkept.core.text import JSON
    from wellkept.core.tools import Tool
    from wellkept.llm.endpoints import Endpoint
    from wellkept.llm.models import Models
    from wellkept.providers.base import MemoryProvider
    from wellkept.providers.loading import PluginSource
    from wellkept.sessions.ports import Sessions
    from wellkept.sessions.postgres.semantic import ServerVectors
    from wellkept.sessions.postgres.store import PostgresSessionStore
    from wellkept.sessions.settings import EmbeddingSettings
    from wellkept.sessions.sqlite.semantic import FileVectors
    from wellkept.sessions.sqlite.store import SqliteSessionStore
    from wellkept.storage.postgres.database import PostgresServer
    from wellkept.storage.sqlite import Database as SqliteDatabase


log = logging.getLogger(__name__)

PLUGIN_TOKENS = 2_000
"""The output limit for a plugin that sets none."""


class Given(Struct, frozen=True, kw_only=True):
    """Objects of a program that uses kept as a library, used in addition to what the settings name."""

    tools: tuple[Tool, ...] = ()
    provider: MemoryProvider | None = None
    """Used in place of `memory.provider`, in this process."""
    model: ChatModel | None = None
    """Used where no other model is named."""


class App:
    """One open home: settings, database and models, and a space for each user."""

    def __init__(
        self, home: Home, loaded: Loaded, *, environ: Mapping[str, str], clock: Clock, sink: EventSink, given: Given
    ) -> None:
        self.home = home
        self.settings: Settings = loaded.settings
        self.origins = loaded.origins
        self.warnings = loaded.warnings
        self.environ = environ
        self.clock = clock
        self.given = given
        self.sink = sink
        """Receives the events of the home as a whole, and those of the owner."""
        self.folder = Path.cwd()
        self._closing = ExitStack()
        self._spaces: dict[UserId, UserSpace] = {}
        self._mcp: McpTools | None = None
        self._log: AppLog | None = None
        self._scratch: Path | None = None
        """The folder of a database that is removed with the app."""

    def preview_only(self) -> None:
        """Leave a home without a database without one: what is opened from now on is removed with the app."""
        from tempfile import TemporaryDirectory

        if not self.has_database and self._scratch is None:
            self._scratch = Path(self._closing.enter_context(TemporaryDirectory(prefix="kept-preview-")))

    @property
    def owner(self) -> UserSpace:
        """The space of the owner."""
        return self.space(OWNER)

    def space(self, user: UserId) -> UserSpace:
        """Return the space of a user; the same object for the same user."""
        if self._log is not None:
            self._log.use()
        if user not in self._spaces:
            self._spaces[user] = UserSpace(self, user)
            if user == OWNER:
                self._spaces[user].listeners.add(self.report)
        return self._spaces[user]

    def forget_space(self, user: UserId) -> None:
        """Drop the space of a user whose data was removed; the next caller gets a new, empty one."""
        self._spaces.pop(user, None)

    def caller(
        self,
        user: UserId = OWNER,
        *,
        session_id: SessionId | None = None,
        sink: EventSink = ignore,
        scopes: frozenset[Scope] | None = None,
    ) -> Caller:
        """Return a caller for operations; without `scopes` the owner may do everything, others use their own data.

        Without `scopes` the caller is whoever started this process. In a process of an agent nobody takes the
        decisions of a person, whatever is asked for.
        """
        granted = scopes if scopes is not None else OWNER_SCOPES if user == OWNER else USER_SCOPES
        if self.agent_sign or (scopes is None and self.why_no_person):
            granted -= {Scope.DECIDE}
        return Caller(self, self.space(user), session_id, sink, granted)

    def person(self, user: UserId = OWNER) -> Caller:
        """Return the caller of a person who has proved who they are: by signing in to a page, or in a paired chat."""
        return self.caller(user, scopes=OWNER_SCOPES if user == OWNER else USER_SCOPES)

    @cached_property
    def why_no_person(self) -> str:
        """Why this process cannot take the decisions of a person; empty if it can."""
        return explain_no_person(self.agent_sign, self.settings.decisions)

    @cached_property
    def agent_sign(self) -> str:
        """The sign that an agent started this process; empty if there is none."""
        return find_agent(self.environ)

    def report(self, event: Event, /) -> None:
        """Pass an event to the current sink, which a chat replaces by its screen."""
        self.sink(event)

    def _warn(self, message: str, remedy: str) -> None:
        from wellkept.core.events import Warned

        self.report(Warned(message, remedy))

    @property
    def has_database(self) -> bool:
        """Whether anything was ever stored; reading must not create a database."""
        return bool(self.settings.storage.url) or self.home.database.exists() or self._has_log_only

    @property
    def _has_log_only(self) -> bool:
        from wellkept.storage.log_recovery import is_misplaced

        return is_misplaced(self.home.database)

    @property
    def database(self) -> Database:
        """The tables that belong to no single user; raises a StorageError while they cannot be used."""
        return self.state_file if self.server is None else self.server.for_tenant()

    def database_for(self, user: UserId) -> Database:
        """Return the tables for the rows of one user."""
        return self.state_file if self.server is None else self.server.for_user(user)

    @cached_property
    def server(self) -> PostgresServer | None:
        """The PostgreSQL server that `storage.url` names; None if the home is stored in files."""
        settings = self.settings.storage
        if not settings.url:
            return None
        from wellkept.app.store_care import open_server

        return open_server(self, settings)

    @cached_property
    def state_file(self) -> SqliteDatabase:
        """The file that sessions, outbox and usage share; raises a StorageError while it cannot be used."""
        if self.server is not None:
            raise UsageError(
                f"the data of this home is on {self.server.place}", "use the tools of that server for this"
            )
        from wellkept.storage.connections import is_emptied
        from wellkept.storage.sqlite import open_state

        path = self.home.database if self._scratch is None else self._scratch / self.home.database.name
        if is_emptied(path):
            from wellkept.app.store_care import set_aside_emptied

            set_aside_emptied(self)
        durability = self.settings.sessions.durability
        database = open_state(path, durability, sink=self.report, salvage=self._salvage)
        self._closing.callback(database.close)
        return database

    def _salvage(self, path: Path) -> None:
        from wellkept.sessions.sqlite.repair import salvage_log

        salvage_log(path, self.settings.sessions, clock=self.clock, sink=self.report)

    def open_sessions(self, user: UserId, sink: EventSink) -> Sessions:
        """Open the conversations of one user; only this user's events go to `sink`."""
        return self._session_store.for_user(user, sink=sink)

    @cached_property
    def _session_store(self) -> SqliteSessionStore | PostgresSessionStore:
        if self.server is not None:
            from wellkept.sessions.postgres.store import PostgresSessionStore

            return PostgresSessionStore(
                self.server, self.settings.sessions, clock=self.clock, sink=self.report, meaning=self._server_vectors
            )
        sessions = self._store(self.state_file, self._file_vectors)
        self._closing.callback(sessions.file.tidy)
        return sessions

    def sessions_of(self, profile: str) -> Sessions | None:
        """Return the owner's conversations in a profile, opened for reading; None if nothing was ever stored."""
        from wellkept.storage.sqlite import open_state

        home = find_home(str(self.home.root), profile, {})
        if not home.database.exists():
            return None
        database = open_state(home.database, read_only=True)
        self._closing.callback(database.close)
        return self._store(database, open_semantic_search(self, database))

    def _store(self, database: SqliteDatabase, semantic_search: FileVectors | None) -> SqliteSessionStore:
        from wellkept.sessions.sqlite.store import SqliteSessionStore

        settings = self.settings.sessions
        return SqliteSessionStore(database, settings, clock=self.clock, sink=self.report, meaning=semantic_search)

    @property
    def semantic_search(self) -> FileVectors | ServerVectors | None:
        """The semantic search of this home; None while `sessions.embeddings` is off."""
        return self._file_vectors if self.server is None else self._server_vectors

    @cached_property
    def _file_vectors(self) -> FileVectors | None:
        vectors = open_semantic_search(self, self.state_file)
        if vectors is not None:
            self._closing.callback(vectors.close)
        return vectors

    @cached_property
    def _server_vectors(self) -> ServerVectors | None:
        settings = self.settings.sessions.embeddings
        if settings.provider == "off" or self.server is None:
            return None
        from wellkept.sessions.postgres.semantic import ServerVectors

        message, question = choose_models(self)
        vectors = ServerVectors(self.server, settings, model=message, question=question, sink=self.report)
        self._closing.callback(vectors.close)
        return vectors

    @cached_property
    def models(self) -> Models:
        """The models available through settings, keys and local servers."""
        from wellkept.llm.models import Configured, Models

        settings = self.settings
        configured = Configured(settings.model, settings.auxiliary, settings.prompt_caching)
        return Models(configured, self.environ, sink=self.report, given=self.given.model)

    def mcp_tools(self) -> list[Tool]:
        """Connect the configured MCP servers and return their tools."""
        if not self.settings.mcp_servers:
            return []
        from wellkept.agent.mcp_tools import McpTools

        if self._mcp is None:
            self._mcp = McpTools(self.settings.mcp_servers, self.report, logs=self.home.logs)
            self.on_close(self._mcp.close)
            self._mcp.connect()
        return self._mcp.tools

    def plugin_source(self) -> PluginSource:
        """Return the configuration of plugins: where they are found, how they run, and their context."""
        from wellkept.providers.loading import Facts, PluginPolicy, PluginSource

        settings, home = self.settings, self.home
        profiles = [path.name for path in folders(home.root / "profiles")]
        facts = Facts(
            home=home.path,
            profile=home.profile,
            profiles=("default", *profiles),
            complete=self._complete_for_plugin,
            choose=self._choose_provider,
        )
        policy = PluginPolicy(
            isolate=settings.providers.isolate,
            disabled=frozenset(settings.disabled_plugins),
            start_seconds=settings.providers.start_timeout_seconds,
            facts=facts,
        )
        return PluginSource(home.plugins, self.environ, policy)

    def _complete_for_plugin(self, messages: Sequence[Mapping[str, JSON]], max_tokens: int | None) -> str:
        """Answer a plugin's model call with the auxiliary model for summaries."""
        model = self.models.auxiliary("search_summary", self.models.chat())
        if model is None:
            raise UsageError("there is no model", "`kept model list` shows what can be used")
        rules = [str(message.get("content", "")) for message in messages if message.get("role") == "system"]
        rest = [str(message.get("content", "")) for message in messages if message.get("role") != "system"]
        return model.complete("\n\n".join(rules), "\n\n".join(rest), max_output_tokens=max_tokens or PLUGIN_TOKENS)

    def _choose_provider(self, name: str) -> None:
        from wellkept.config.settings import set_value

        set_value(self.home, "memory.provider", name, why_no_person=self.why_no_person)

    def toolsets(self, platform: str) -> Sequence[str] | None:
        """Return the toolsets of a platform, None for all."""
        own = self.settings.platforms.get(platform, {}).get("toolsets")
        if isinstance(own, list):
            return own
        if platform == "cli":
            return self.settings.toolsets
        return [name for name in self.settings.toolsets or REMOTE_TOOLSETS if name in REMOTE_TOOLSETS]

    def log_to(self, app_log: AppLog) -> None:
        """Use `app_log` for this app, and close it with the app."""
        self._log = app_log
        app_log.announce(self._warn)
        self._closing.callback(app_log.close)

    def on_close(self, close: Callable[[], object]) -> None:
        """Call `close` when the app is closed."""
        self._closing.callback(close)

    def close(self) -> None:
        """Close everything that was opened, in reverse order."""
        self._closing.close()


def open_app(  # noqa: PLR0913 - the public way in; all but home and profile are given by name
    home: str | None = None,
    profile: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    sink: EventSink = ignore,
    debug: bool = False,
    tools: Sequence[Tool] = (),
    provider: MemoryProvider | None = None,
    model: ChatModel | None = None,
) -> App:
    """Open the app on the home given by the argument, `$KEPT_HOME` or the default.

    Agents get `tools` in addition to their own, `provider` as the external memory in place of the configured one, and
    `model` where no other one is named.
    """
    variables = os.environ if environ is None else environ
    place = find_home(home, profile, variables)
    if (place.root / SCRATCH_FOLDER).exists():
        from wellkept.storage.files import remove_unfinished  # only after a command that was killed

        remove_unfinished(place.root)
    app_log = open_log(place.logs, debug=debug)
    try:
        full = with_secrets(variables, place.env_file)
        given = Given(tools=tuple(tools), provider=provider, model=model)
        app = App(place, load(place, full), environ=full, clock=clock or SystemClock(), sink=sink, given=given)
    except BaseException:
        app_log.close()
        raise
    app.log_to(app_log)
    return app


def explain_no_person_at(home: Home, environ: Mapping[str, str]) -> str:
    """Return the same for a home whose settings may be invalid, so that a command can repair them."""
    try:
        decisions: str = load(home, environ).settings.decisions
    except ConfigError:
        decisions = str(find_value(home.config_file, "decisions") or "scripts") if home.config_file.exists() else ""
    return explain_no_person(find_agent(environ), decisions)


def explain_no_person(sign: str, decisions: str) -> str:
    """Return why this process cannot take the decisions of a person; empty if a person or their script runs it."""
    if sign:
        return f"an agent started this process ({sign})"
    if decisions == "person" and not (sys.stdin is not None and sys.stdin.isatty()):
        return "`decisions: person` in the settings requires a terminal"
    return ""


DEFAULT_EMBEDDING_MODEL = "text-embedding-3-small"
_OPENAI = "https://api.openai.com/v1"


def open_semantic_search(app: App, database: SqliteDatabase) -> FileVectors | None:
    """Return the semantic search over `database`, None while vectors are off; the model is loaded on first use."""
    settings = app.settings.sessions.embeddings
    if settings.provider == "off":
        return None
    from wellkept.sessions.sqlite.semantic import FileVectors

    message, question = choose_models(app)
    return FileVectors(database, settings, model=message, question=question, sink=app.report)


def choose_models(app: App) -> tuple[Callable[[], Embeds], Callable[[], Embeds] | None]:
    """Return functions that open the embedding model of messages and, if different, that of questions."""
    settings = app.settings.sessions.embeddings

    def open_served_model(timeout: float) -> Embeds:
        from wellkept.llm.openai import OpenAIEmbeddings

        if find_spec("numpy") is None:
            raise UsageError("semantic search needs numpy", f"run: {name_install('vectors')}")
        endpoint = _endpoint(app, settings)
        model = settings.model or _default_model(endpoint)
        return OpenAIEmbeddings(
            endpoint, model, timeout_seconds=timeout, dimensions=settings.dimensions, batch=settings.batch
        )

    def open_local_model() -> Embeds:
        from wellkept.sessions.embedding.local import local_model

        return local_model(settings.model, app.environ)

    if settings.provider == "local":
        return open_local_model, None
    return lambda: open_served_model(settings.timeout), lambda: open_served_model(settings.query_timeout)


def _endpoint(app: App, settings: EmbeddingSettings) -> Endpoint:
    from wellkept.llm.endpoints import NO_KEY, Endpoint, missing_key

    url = settings.base_url or app.environ.get("OPENAI_BASE_URL") or _OPENAI
    key = app.environ.get(settings.api_key_env) or ""
    endpoint = Endpoint("openai", url, key or NO_KEY, settings.api_key_env)
    if not endpoint.is_address:
        raise UsageError(
            f"{url!r} is not the address of a server", "set sessions.embeddings.base_url to one like https://host/v1"
        )
    if not key and endpoint.host == "api.openai.com":
        raise missing_key("the embeddings endpoint", settings.api_key_env)
    return endpoint


def _default_model(endpoint: Endpoint) -> str:
    if endpoint.host != "api.openai.com":
        raise UsageError(
            f"no embedding model is set for {endpoint.shown_url}",
            "run: kept config set sessions.embeddings.model NAME",
        )
    return DEFAULT_EMBEDDING_MODEL
