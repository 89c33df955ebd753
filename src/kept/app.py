"""The composition root: reads the settings, builds every part when it is first needed, owns lifetimes."""

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

from kept.config.home import Home, find_home
from kept.config.load import Loaded, load
from kept.config.secrets import with_secrets
from kept.config.settings import Settings
from kept.core.clock import SystemClock
from kept.core.events import Event
from kept.core.ports import Clock, EventSink
from kept.core.tools import Tool
from kept.observe.log import configure

if TYPE_CHECKING:
    from kept.memory.approval import Approvals
    from kept.memory.store import MemoryStore
    from kept.sessions.sqlite.store import SqliteSessionStore
    from kept.storage.sqlite import Database

log = logging.getLogger(__name__)


def ignore(event: Event, /) -> None:
    """Hear an event and do nothing: the sink of a library user who wants none."""


class App:
    """One open home with everything that runs on it."""

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
        self._closing = ExitStack()

    @cached_property
    def memory(self) -> "MemoryStore":
        """The two pages of curated memory."""
        from kept.memory.store import MemoryStore

        store = MemoryStore(self.home.memories, self.settings.memory, clock=self.clock, sink=self.sink)
        self._closing.callback(store.close)
        return store

    @cached_property
    def approvals(self) -> "Approvals":
        """Memory writes that wait for a person."""
        from kept.memory.approval import Approvals

        return Approvals(self.home.pending / "memory", self.memory)

    @cached_property
    def database(self) -> "Database":
        """The file that sessions, outbox and usage share; raises a StorageError while it cannot be used."""
        from kept.storage.state import open_state

        database = open_state(self.home.database, self.settings.sessions.durability, sink=self.sink)
        self._closing.callback(database.close)
        return database

    @cached_property
    def sessions(self) -> "SqliteSessionStore":
        """Every conversation, kept and found again; raises a StorageError while the file cannot be used."""
        from kept.sessions.sqlite.store import SqliteSessionStore

        return SqliteSessionStore(self.database, self.settings.sessions, clock=self.clock, sink=self.sink)

    def tools(self) -> dict[str, Tool]:
        """Return every tool that the agent has here, by name, in a fixed order."""
        from kept.memory.tool import MemoryTool
        from kept.sessions.tool import session_search

        found = [
            MemoryTool(self.memory, self.approvals).tool(),
            session_search(lambda: self.sessions, self.settings.sessions, clock=self.clock),
        ]
        return {tool.schema.name: tool for tool in found}

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
    configure(place.logs, debug=debug)
    full = with_secrets(variables, place.env_file)
    return App(place, load(place, full), environ=full, clock=clock or SystemClock(), sink=sink)
