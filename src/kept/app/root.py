"""The composition root: reads the settings, builds what all users share, owns lifetimes."""

from __future__ import annotations  # the ports and tools import every value they mention: 40 ms of each start

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kept.app.caller import OWNER_SCOPES, USER_SCOPES, Caller, Scope, UserSpace
from kept.config.home import Home, find_home
from kept.config.load import Loaded, load, with_secrets
from kept.config.settings import Settings
from kept.core.clock import SystemClock
from kept.core.events import Event, ignore
from kept.core.ids import OWNER, SessionId, UserId
from kept.observe import AppLog, open_log

if TYPE_CHECKING:
    from kept.agent.mcp_tools import McpTools
    from kept.core.ports import Clock, EventSink
    from kept.core.tools import Tool
    from kept.llm.models import Models
    from kept.sessions.ports import Sessions
    from kept.sessions.sqlite.semantic import SemanticSearch
    from kept.sessions.sqlite.store import SqliteSessionStore
    from kept.storage.sqlite import Database

log = logging.getLogger(__name__)


class App:
    """One open home: settings, database and models, and a space for each user."""

    def __init__(
        self, home: Home, loaded: Loaded, *, environ: Mapping[str, str], clock: Clock, sink: EventSink
    ) -> None:
        self.home = home
        self.settings: Settings = loaded.settings
        self.origins = loaded.origins
        self.warnings = loaded.warnings
        self.environ = environ
        self.clock = clock
        self.sink = sink
        """Hears what concerns the home as a whole, and the owner's events."""
        self.folder = Path.cwd()
        self._closing = ExitStack()
        self._spaces: dict[UserId, UserSpace] = {}
        self._mcp: McpTools | None = None
        self._log: AppLog | None = None

    @property
    def owner(self) -> UserSpace:
        """The space of the person whose home this is."""
        return self.space(OWNER)

    def space(self, user: UserId) -> UserSpace:
        """Return the space of a user; the same object for the same user."""
        if self._log is not None:
            self._log.use()
        if user not in self._spaces:
            self._spaces[user] = UserSpace(self, user)
            if user == OWNER:
                self._spaces[user].listeners.add(self.tell)
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
        """Return a caller for operations; without `scopes` the owner may do everything, others use their own data."""
        granted = scopes if scopes is not None else OWNER_SCOPES if user == OWNER else USER_SCOPES
        return Caller(self, self.space(user), session_id, sink, granted)

    def tell(self, event: Event, /) -> None:
        """Hand an event to the sink of this moment: a chat replaces it by its screen."""
        self.sink(event)

    @cached_property
    def database(self) -> Database:
        """The file that sessions, outbox and usage share; raises a StorageError while it cannot be used."""
        from kept.storage.sqlite import open_state

        database = open_state(self.home.database, self.settings.sessions.durability, sink=self.tell)
        self._closing.callback(database.close)
        return database

    def open_sessions(self, user: UserId, sink: EventSink) -> Sessions:
        """Open the conversations of one user; what concerns them alone is reported to `sink`."""
        return self._session_store.for_user(user, sink=sink)

    @cached_property
    def _session_store(self) -> SqliteSessionStore:
        sessions = self._store(self.database, self.meaning)
        self._closing.callback(sessions.file.tidy)
        return sessions

    def sessions_of(self, profile: str) -> Sessions | None:
        """Return the owner's conversations in a profile, opened for reading; None where none was ever stored."""
        from kept.app.vectors import meaning_of
        from kept.storage.sqlite import open_state

        home = find_home(str(self.home.root), profile, {})
        if not home.database.exists():
            return None
        database = open_state(home.database, read_only=True)
        self._closing.callback(database.close)
        return self._store(database, meaning_of(self, database))

    def _store(self, database: Database, meaning: SemanticSearch | None) -> SqliteSessionStore:
        from kept.sessions.sqlite.store import SqliteSessionStore

        settings = self.settings.sessions
        return SqliteSessionStore(database, settings, clock=self.clock, sink=self.tell, meaning=meaning)

    @cached_property
    def meaning(self) -> SemanticSearch | None:
        """Semantic search beside the word search, None while `sessions.embeddings` is off."""
        if self.settings.sessions.embeddings.provider == "off":
            return None
        from kept.app.vectors import meaning_of

        meaning = meaning_of(self, self.database)
        assert meaning is not None
        self._closing.callback(meaning.close)
        return meaning

    @cached_property
    def models(self) -> Models:
        """The models that the settings, keys and local servers offer."""
        from kept.llm.models import Configured, Models
        from kept.prompt.tiers import apply_cache_markers

        settings = self.settings
        configured = Configured(settings.model, settings.auxiliary, settings.prompt_caching)
        return Models(configured, self.environ, mark=apply_cache_markers, sink=self.tell)

    def mcp_tools(self) -> list[Tool]:
        """Connect the configured MCP servers and return their tools."""
        if not self.settings.mcp_servers:
            return []
        from kept.agent.mcp_tools import McpTools

        if self._mcp is None:
            self._mcp = McpTools(self.settings.mcp_servers, self.tell, logs=self.home.logs)
            self.on_close(self._mcp.close)
            self._mcp.connect()
        return self._mcp.tools

    def toolsets(self, platform: str) -> Sequence[str] | None:
        """Return the toolsets of a platform, None for all."""
        own = self.settings.platforms.get(platform, {}).get("toolsets")
        return own if isinstance(own, list) else self.settings.toolsets

    def log_to(self, app_log: AppLog) -> None:
        """Write the records of work with this app to `app_log`, and close it with the app."""
        self._log = app_log
        self._closing.callback(app_log.close)

    def on_close(self, close: Callable[[], object]) -> None:
        """Call `close` when the app is closed."""
        self._closing.callback(close)

    def close(self) -> None:
        """Close what was opened, the newest first."""
        self._closing.close()


def open_app(
    home: str | None = None,
    profile: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    sink: EventSink = ignore,
    debug: bool = False,
) -> App:
    """Open the app on the home that is named, by argument, `$KEPT_HOME` or default."""
    variables = os.environ if environ is None else environ
    place = find_home(home, profile, variables)
    app_log = open_log(place.logs, debug=debug)
    try:
        full = with_secrets(variables, place.env_file)
        app = App(place, load(place, full), environ=full, clock=clock or SystemClock(), sink=sink)
    except BaseException:
        app_log.close()
        raise
    app.log_to(app_log)
    return app
