"""The composition root: reads the settings, builds every part when it is first needed, owns lifetimes."""

from __future__ import annotations  # the ports and tools draw in every value they speak of: 40 ms of each start

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kept.config.home import Home, find_home
from kept.config.load import Loaded, load
from kept.config.secrets import with_secrets
from kept.config.settings import Settings
from kept.core.clock import SystemClock
from kept.core.errors import StorageError
from kept.core.events import Event, Warned
from kept.core.ids import SessionId
from kept.core.jsontypes import JSON
from kept.observe.log import configure

if TYPE_CHECKING:
    from kept.agent.agent import Agent, Opening
    from kept.agent.assistant import Passage
    from kept.agent.parts import Parts
    from kept.agent.toolbox import Toolbox
    from kept.context.engine import ContextEngine
    from kept.core.ports import ChatModel, Clock, EventSink
    from kept.core.tools import Tool, ToolContext
    from kept.llm.models import Models
    from kept.memory.approval import Approvals
    from kept.memory.store import MemoryStore
    from kept.providers.manager import ProviderManager
    from kept.sessions.sqlite.store import SqliteSessionStore
    from kept.skills.tool import SkillTools
    from kept.storage.sqlite import Database

log = logging.getLogger(__name__)

SKILL_FITS = 0.5
"""The least share of a question's words that a skill's description must hold to be named."""


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
    def sessions(self) -> SqliteSessionStore:
        """Every conversation, kept and found again; raises a StorageError while the file cannot be used."""
        from kept.sessions.sqlite.store import SqliteSessionStore

        return SqliteSessionStore(self.database, self.settings.sessions, clock=self.clock, sink=self.sink)

    def sessions_or_none(self) -> SqliteSessionStore | None:
        """Return the session store; where it cannot be opened, say so once and go on without."""
        try:
            return self.sessions
        except StorageError as error:
            self.sink(Warned(f"this conversation is not being stored: {error.message}", error.remedy))
            return None

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
        plugins = self._provider_tools() if toolsets is None or "memory" in toolsets else ()
        return dict(toolbox(self.core_tools(), plugins, toolsets).tools)

    def core_tools(self) -> list[Tool]:
        """Return the tools that kept itself brings, in the order in which models are told of them."""
        from kept.agent.todo import TodoList
        from kept.agent.workspace import Workspace
        from kept.memory.tool import MemoryTool
        from kept.sessions.tool import session_search

        search = session_search(
            lambda: self.sessions,
            self.settings.sessions,
            clock=self.clock,
            auxiliary=lambda: self.models.errand("search_summary", self.models.chat()),
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

    def agent(self, opening: Opening, *, model_name: str | None = None) -> Agent:
        """Open a conversation; the model is the one asked for, the configured one, or none."""
        from kept.agent.agent import Agent

        model = self.models.chat(model_name)
        sessions = None if opening.incognito else self.sessions_or_none()
        parts = self._parts(opening, model, sessions)
        agent = Agent(parts, opening)

        def hear(event: Event, /) -> None:
            agent.live.heard(event)

        self.listeners.append(hear)
        return agent

    def _parts(self, opening: Opening, model: ChatModel | None, sessions: SqliteSessionStore | None) -> Parts:
        from kept.agent.assistant import Assistant
        from kept.agent.parts import Gauge, Parts
        from kept.agent.settings import AgentSettings
        from kept.agent.toolbox import toolbox
        from kept.llm.pricing import cost_of

        settings = self.settings
        gauge = Gauge()
        engine = self.engine(model, sessions, count=gauge.count) if model is not None else None
        toolsets = self.toolsets(opening.platform)
        has_memory = toolsets is None or "memory" in toolsets
        providers = self.providers(opening) if has_memory and not opening.incognito and sessions is not None else None
        plugins = [
            *(providers.tools() if providers is not None else ()),
            *(engine.tools() if engine is not None else ()),
            *(self.mcp_tools() if model is not None and (toolsets is None or "mcp" in toolsets) else ()),
        ]
        box = toolbox([*self.core_tools(), *self._delegation(lambda: parts)], plugins, toolsets)
        memory = self.memory if settings.memory.memory_enabled or settings.memory.user_profile_enabled else None
        parts = Parts(
            clock=self.clock,
            sink=self.tell,
            settings=AgentSettings(
                limits=settings.limits, review=settings.review, display=settings.display, approvals=settings.approvals
            ),
            compression=settings.compression,
            memory=memory,
            approvals=self.approvals,
            sessions=sessions,
            providers=providers,
            model=model,
            engine=engine,
            assistant=Assistant(
                self.memory,
                self.approvals,
                look_up=self._looked_up(sessions),
                suggest=self._skill_hint,
                writes=not opening.incognito,
            ),
            toolbox=box,
            gauge=gauge,
            cost_of=lambda name, usage: cost_of(
                name, usage, overrides=settings.model.prices, hour_cache=settings.prompt_caching.cache_ttl == "1h"
            ),
            folder=self.folder,
            home=self.home.path,
            catalogue=lambda: self.skill_tools.catalogue(frozenset(box.tools)),
            skill_interval=settings.skills.creation_nudge_interval,
            skills=self.skill_tools if settings.skills.enabled else None,
            reviewer=self.models.own("review", model) if model is not None else None,
            titler=self.models.errand("title", model) if self._has_own("title") and model is not None else None,
            review_tokens_today=lambda: self._review_tokens(sessions),
        )
        return parts

    def _delegation(self, parts: Callable[[], Parts]) -> list[Tool]:
        from kept.agent.delegate import Delegation

        def of_child(box: Toolbox) -> Parts:
            return replace(parts(), toolbox=box, providers=None, memory=None, engine=None, sink=ignore)

        def done(task: str, result: str, child: SessionId, parent: SessionId | None) -> None:
            manager = parts().providers
            if manager is not None:
                manager.delegated(task, result, session_id=parent or "", child_session_id=child)

        return [Delegation(of_child, lambda: parts().toolbox, done).tool()]

    def engine(
        self, model: ChatModel, sessions: SqliteSessionStore | None, *, count: Callable[..., int]
    ) -> ContextEngine:
        """Return the configured context engine; one that cannot be used is said loudly."""
        from kept.context.engine import Setup
        from kept.context.lookup import chosen
        from kept.context.window import Window
        from kept.security.secrets import redact

        found = chosen(self.settings.context.engine, home=self.home.path)
        if found.warning:
            self.sink(Warned(found.warning, "`kept context list` shows the engines"))
        found.engine.prepare(
            Setup(
                window=Window(model.context_length),
                count=count,
                clock=self.clock,
                redact=redact,
                settings=self.settings.compression,
                model=self.models.errand("compression", model),
                nodes=sessions,
                originals=(lambda ids: [row for one in ids if (row := sessions.message(one))]) if sessions else None,
                deadline_seconds=self.settings.auxiliary.compression.timeout,
            )
        )
        return found.engine

    def providers(self, opening: Opening) -> ProviderManager | None:
        """Return the manager of the external memories that are configured, None for the built-in pages only."""
        if not self.settings.memory.provider:
            return None
        from kept.agent.mirrored import PageLedger
        from kept.agent.project import project_root
        from kept.agent.toolbox import CORE
        from kept.providers.base import StartContext
        from kept.providers.choosing import open_manager
        from kept.providers.manager import Surroundings

        context = StartContext(
            kept_home=str(self.home.path),
            platform=opening.platform,
            agent_context="cron" if opening.source == "cron" else "primary",
            agent_identity=self.home.profile,
            agent_workspace=str(project_root(self.folder) or self.folder),
            parent_session_id=opening.parent or "",
            user_id=opening.user_id,
        )
        manager = open_manager(
            self.settings.memory.provider,
            plugins=self.home.plugins,
            database=self.database,
            settings=self.settings.providers,
            surroundings=Surroundings(
                context=context,
                clock=self.clock,
                sink=self.tell,
                ledger=PageLedger(self.memory),
                reserved_tools=frozenset(CORE),
            ),
            environ=self.environ,
        )
        if manager is not None:
            self._closing.callback(manager.close)
        return manager

    def _provider_tools(self) -> list[Tool]:
        """Return the tools of the providers for calls outside a conversation; the first call starts them."""
        from kept.agent.agent import Opening

        manager = self.providers(Opening()) if self.settings.memory.provider else None
        if manager is None:
            return []

        def started(tool: Tool) -> Tool:
            def call(arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
                manager.start_for_tools(context.session_id or "")
                return tool.call(arguments, context)

            return replace(tool, call=call)

        return [started(tool) for tool in manager.tools()]

    def _has_own(self, task: str) -> bool:
        wanted = getattr(self.settings.auxiliary, task)
        return wanted.provider not in {"auto", "main"} or wanted.model is not None

    def _review_tokens(self, sessions: SqliteSessionStore | None) -> int:
        today = self.clock.now().strftime("%Y-%m-%d")
        rows = sessions.usage(since=today) if sessions is not None else []
        return sum(row.usage.prompt_tokens + row.usage.output_tokens for row in rows if row.task == "review")

    def _skill_hint(self, question: str) -> str:
        """Return the skill that plainly fits what was asked, in one line."""
        from kept.agent.relevance import relevances

        if not self.settings.skills.enabled:
            return ""
        best = next((ranked.skill for ranked in self.skill_tools.library.search(question)), None)
        if best is None or relevances(question, [f"{best.name} {best.description}"])[0] < SKILL_FITS:
            return ""
        return f"A skill fits: /{best.name} — {best.description}"

    def mcp_tools(self) -> list[Tool]:
        """Connect the configured MCP servers and return their tools."""
        if not self.settings.mcp_servers:
            return []
        from kept.agent.mcp_tools import McpTools

        servers = McpTools(self.settings.mcp_servers, self.sink)
        self._closing.callback(servers.close)
        servers.connect()
        return servers.tools

    def _looked_up(
        self, sessions: SqliteSessionStore | None
    ) -> Callable[[str, SessionId | None], Sequence[Passage]] | None:
        from kept.agent.passages import look_up

        return (lambda question, current: look_up(sessions, question, current)) if sessions is not None else None

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
