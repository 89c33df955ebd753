"""The space of one user: their pages, conversations, skills and agents, each opened when it is first needed."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kept.core.errors import StorageError
from kept.core.events import Listeners, Warned
from kept.core.ids import OWNER

if TYPE_CHECKING:
    from kept.agent.agent import Agent, Opening
    from kept.app.agents import AgentBuilder
    from kept.app.root import App
    from kept.core.ids import UserId
    from kept.core.ports import EventSink
    from kept.core.tools import Tool
    from kept.memory.approval import Approvals
    from kept.memory.store import MemoryStore
    from kept.providers.audit import Audit
    from kept.providers.outbox import Outbox
    from kept.sessions.ports import Sessions
    from kept.skills.tool import SkillTools


class UserSpace:
    """Everything of one user on an open app. Each part is built for that user and sees nobody else's data."""

    def __init__(self, app: App, user: UserId) -> None:
        self.app = app
        self.user = user
        self.home = app.home.for_user(user)
        self.listeners = Listeners(user)

    @cached_property
    def memory(self) -> MemoryStore:
        """The two pages of curated memory."""
        from kept.memory.store import MemoryStore

        app = self.app
        store = MemoryStore(
            self.home.memories, app.settings.memory, user=self.user, clock=app.clock, sink=self.listeners
        )
        app.on_close(store.close)
        return store

    def close(self) -> None:
        """Close the files that belong to this user alone; they are opened again when needed."""
        if "memory" in self.__dict__:
            self.memory.close()

    @cached_property
    def approvals(self) -> Approvals:
        """Memory writes that wait for a person."""
        from kept.memory.approval import Approvals

        return Approvals(self.home.pending / "memory", self.memory)

    @cached_property
    def sessions(self) -> Sessions:
        """The user's conversations; raises a StorageError while the database cannot be used."""
        return self.app.open_sessions(self.user, self.listeners)

    def sessions_or_none(self) -> Sessions | None:
        """Return the conversations; where they cannot be written, warn and return what can be read, or None."""
        try:
            sessions = self.sessions
            if self.app.database.is_read_only:
                with self.app.database.writing():  # raises the reason
                    return sessions
        except StorageError as error:
            self.listeners(Warned(f"this conversation is not being stored: {error.message}", error.remedy))
            return self.__dict__.get("sessions")
        return sessions

    @cached_property
    def skill_tools(self) -> SkillTools:
        """The library of skills and the tools over it."""
        from kept.agent.project import project_root
        from kept.skills.library import SkillLibrary
        from kept.skills.roots import plugin_roots, standard_roots
        from kept.skills.tool import SkillTools

        app = self.app
        roots = standard_roots(
            self.home.skills,
            owner=None if self.user == OWNER else app.home.skills,
            person=Path(app.environ["HOME"]) if app.environ.get("HOME") else None,
            project=project_root(app.folder),
            external=app.settings.skills.external_dirs,
            bundled=app.settings.skills.bundled,
        )
        roots += tuple(plugin_roots())
        library = SkillLibrary(
            self.home.skills, roots=roots, settings=app.settings.skills, clock=app.clock, environ=app.environ
        )
        return SkillTools(library, pending=self.home.pending / "skills")

    @cached_property
    def outbox(self) -> Outbox:
        """The writes to external memories that wait for delivery."""
        from kept.providers.outbox import Outbox

        return Outbox(self.app.database, user=self.user, clock=self.app.clock)

    @cached_property
    def audit(self) -> Audit:
        """The record of calls to external memories."""
        from kept.providers.audit import Audit

        return Audit(self.app.database, user=self.user, clock=self.app.clock)

    def tools(self) -> dict[str, Tool]:
        """Return every tool that the agent has here, by name, in a fixed order."""
        from kept.agent.toolbox import build_toolbox

        toolsets = self.app.toolsets("cli")
        plugins = self.agents.provider_tools() if toolsets is None or "memory" in toolsets else ()
        return dict(build_toolbox(self.core_tools(), plugins, toolsets).tools)

    def core_tools(self, sink: EventSink | None = None) -> list[Tool]:
        """Return the tools that kept itself brings, in the order in which models see them.

        `sink` hears of the model calls that a tool makes.
        """
        from kept.agent.toolbox import TodoList
        from kept.agent.workspace import Workspace
        from kept.memory.tool import MemoryTool
        from kept.sessions.tool import session_search

        app = self.app
        search = session_search(
            lambda: self.sessions,
            app.settings.sessions,
            clock=app.clock,
            auxiliary=lambda: app.models.auxiliary("search_summary", app.models.chat(), sink=sink),
        )
        return [
            MemoryTool(self.memory, self.approvals).tool(),
            search,
            *(self.skill_tools.tools() if app.settings.skills.enabled else ()),
            TodoList().tool(),
            *Workspace(app.folder).tools(),
        ]

    @cached_property
    def agents(self) -> AgentBuilder:
        """Builds this user's agents."""
        from kept.app.agents import AgentBuilder

        return AgentBuilder(self)

    def agent(self, opening: Opening, *, model_name: str | None = None, sink: EventSink | None = None) -> Agent:
        """Open a conversation; the model is the one asked for, the configured one, or none.

        Its events go to `sink`, or to everyone who listens to this user.
        """
        return self.agents.agent(opening, model_name=model_name, sink=sink)
