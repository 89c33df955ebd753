"""The composition root: reads the settings, builds every part when it is first needed, owns lifetimes."""

from __future__ import annotations  # the ports and tools draw in every value they speak of: 40 ms of each start

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kept.config.home import Home, find_home
from kept.config.load import Loaded, load
from kept.config.secrets import with_secrets
from kept.config.settings import Settings
from kept.core.clock import SystemClock
from kept.core.errors import StorageError
from kept.core.events import Event, Warned, ignore
from kept.observe.log import configure

if TYPE_CHECKING:
    from kept.agent.agent import Agent, Opening
    from kept.app.agents import AgentBuilder
    from kept.core.ports import Clock, EventSink
    from kept.core.tools import Tool
    from kept.llm.models import Models
    from kept.memory.approval import Approvals
    from kept.memory.store import MemoryStore
    from kept.sessions.ports import Sessions
    from kept.sessions.sqlite.semantic import Meaning
    from kept.sessions.sqlite.store import SqliteSessionStore
    from kept.skills.tool import SkillTools
    from kept.storage.sqlite import Database

log = logging.getLogger(__name__)


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
        self.listeners: list[EventSink] = []
        self.folder = Path.cwd()
        self._closing = ExitStack()

    def tell(self, event: Event, /) -> None:
        """Hand an event to the sink and to whoever listens besides."""
        self.sink(event)
        for listener in self.listeners:
            listener(event)

    @cached_property
    def memory(self) -> MemoryStore:
        """The two pages of curated memory."""
        from kept.memory.store import MemoryStore

        store = MemoryStore(self.home.memories, self.settings.memory, clock=self.clock, sink=self.tell)
        self._closing.callback(store.close)
        return store

    @cached_property
    def approvals(self) -> Approvals:
        """Memory writes that wait for a person."""
        from kept.memory.approval import Approvals

        return Approvals(self.home.pending / "memory", self.memory)

    @cached_property
    def database(self) -> Database:
        """The file that sessions, outbox and usage share; raises a StorageError while it cannot be used."""
        from kept.storage.state import open_state

        database = open_state(self.home.database, self.settings.sessions.durability, sink=self.sink)
        self._closing.callback(database.close)
        return database

    @cached_property
    def sessions(self) -> Sessions:
        """Every conversation, kept and found again; raises a StorageError while the file cannot be used."""
        sessions = self._store(self.database, self.meaning)
        self._closing.callback(sessions.file.tidy)
        return sessions

    def sessions_of(self, profile: str) -> Sessions | None:
        """Return the conversations of a profile, opened for reading; None where none was ever stored."""
        from kept.app.vectors import meaning_of
        from kept.storage.state import open_state

        home = find_home(str(self.home.root), profile, {})
        if not home.database.exists():
            return None
        database = open_state(home.database, read_only=True)
        self._closing.callback(database.close)
        return self._store(database, meaning_of(self, database))

    def _store(self, database: Database, meaning: Meaning | None) -> SqliteSessionStore:
        from kept.sessions.sqlite.store import SqliteSessionStore

        settings = self.settings.sessions
        return SqliteSessionStore(database, settings, clock=self.clock, sink=self.sink, meaning=meaning)

    @cached_property
    def meaning(self) -> Meaning | None:
        """Search by meaning beside the words, None while `sessions.embeddings` is off."""
        if self.settings.sessions.embeddings.provider == "off":
            return None
        from kept.app.vectors import meaning_of

        meaning = meaning_of(self, self.database)
        assert meaning is not None
        self._closing.callback(meaning.close)
        return meaning

    def sessions_or_none(self) -> Sessions | None:
        """Return the session store; where it cannot be written, say so, and go on with what can be read or without."""
        try:
            sessions = self.sessions
            if self.database.is_read_only:
                with self.database.writing():
                    return sessions
        except StorageError as error:
            self.sink(Warned(f"this conversation is not being stored: {error.message}", error.remedy))
            return self.__dict__.get("sessions")
        return sessions

    @cached_property
    def skill_tools(self) -> SkillTools:
        """The library of skills and the tools over it."""
        from kept.agent.project import project_root
        from kept.skills.library import SkillLibrary
        from kept.skills.roots import plugin_roots, standard_roots
        from kept.skills.tool import SkillTools

        roots = standard_roots(
            self.home.skills,
            person=Path(self.environ["HOME"]) if self.environ.get("HOME") else None,
            project=project_root(self.folder),
            external=self.settings.skills.external_dirs,
            bundled=self.settings.skills.bundled,
        )
        roots += tuple(plugin_roots())
        library = SkillLibrary(
            self.home.skills, roots=roots, settings=self.settings.skills, clock=self.clock, environ=self.environ
        )
        return SkillTools(library, pending=self.home.pending / "skills")

    @cached_property
    def models(self) -> Models:
        """The models that the settings, keys and local servers offer."""
        from kept.llm.models import Configured, Models
        from kept.prompt.breakpoints import apply_cache_markers

        settings = self.settings
        configured = Configured(settings.model, settings.auxiliary, settings.prompt_caching)
        return Models(configured, self.environ, mark=apply_cache_markers, sink=self.tell)

    def tools(self) -> dict[str, Tool]:
        """Return every tool that the agent has here, by name, in a fixed order."""
        from kept.agent.toolbox import toolbox

        toolsets = self.toolsets("cli")
        plugins = self.agents.provider_tools() if toolsets is None or "memory" in toolsets else ()
        return dict(toolbox(self.core_tools(), plugins, toolsets).tools)

    def core_tools(self, told: EventSink | None = None) -> list[Tool]:
        """Return the tools that kept itself brings, in the order in which models are told of them.

        `told` hears of the model calls that a tool makes.
        """
        from kept.agent.todo import TodoList
        from kept.agent.workspace import Workspace
        from kept.memory.tool import MemoryTool
        from kept.sessions.tool import session_search

        search = session_search(
            lambda: self.sessions,
            self.settings.sessions,
            clock=self.clock,
            auxiliary=lambda: self.models.errand("search_summary", self.models.chat(), sink=told),
        )
        return [
            MemoryTool(self.memory, self.approvals).tool(),
            search,
            *(self.skill_tools.tools() if self.settings.skills.enabled else ()),
            TodoList().tool(),
            *Workspace(self.folder).tools(),
        ]

    def toolsets(self, platform: str) -> Sequence[str] | None:
        """Return the toolsets of a platform, None for all."""
        own = self.settings.platforms.get(platform, {}).get("toolsets")
        return own if isinstance(own, list) else self.settings.toolsets

    @cached_property
    def agents(self) -> AgentBuilder:
        """What builds agents on this home."""
        from kept.app.agents import AgentBuilder

        return AgentBuilder(self)

    def agent(self, opening: Opening, *, model_name: str | None = None) -> Agent:
        """Open a conversation; the model is the one asked for, the configured one, or none."""
        return self.agents.agent(opening, model_name=model_name)

    def on_close(self, close: Callable[[], object]) -> None:
        """Have something closed with the app."""
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
    configure(place.logs, debug=debug)
    full = with_secrets(variables, place.env_file)
    return App(place, load(place, full), environ=full, clock=clock or SystemClock(), sink=sink)
