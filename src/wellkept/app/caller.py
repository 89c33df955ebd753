"""A caller: the user and session of an operation, its scopes, and the sink of its events."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.agency import refuse_decision
from wellkept.core.errors import NotAllowed, StorageError
from wellkept.core.ids import OWNER, SessionId, UserId
from wellkept.core.ports import ignore
from wellkept.core.values import hide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from wellkept.agent.agent import Agent, Opening
    from wellkept.app.agents import AgentBuilder
    from wellkept.app.root import App
    from wellkept.core.events import Event
    from wellkept.core.ports import Database, Documents, EventSink
    from wellkept.core.text import JSON
    from wellkept.core.tools import Tool
    from wellkept.memory.approval import Approvals
    from wellkept.memory.store import MemoryStore, Storage
    from wellkept.providers.audit import Audit
    from wellkept.providers.outbox import Outbox
    from wellkept.sessions.ports import Sessions
    from wellkept.sessions.receipts import NewReceipt
    from wellkept.skills.curator.backup import RollbackResult
    from wellkept.skills.tool import SkillTools
    from wellkept.storage.leases import Lease
    from wellkept.storage.postgres.database import PostgresServer


class Scope(StrEnum):
    """What a caller may do."""

    READ = "read"
    """Read the user's data."""
    WRITE = "write"
    """Change it."""
    ADMIN = "admin"
    """Manage the home: other users, profiles, settings, whole files."""
    ACT_AS = "act-as"
    """Name the user of each request, as a front end with its own users does."""
    DECIDE = "decide"
    """Take the decisions of a person: approve, confirm, forget, loosen a setting. No token can have it."""
    SPEAK = "speak"
    """Send messages as the person's own words. The start-up token lacks it: any program of the account can read it."""


OWNER_SCOPES = frozenset(Scope)
USER_SCOPES = frozenset({Scope.READ, Scope.WRITE, Scope.DECIDE, Scope.SPEAK})
TOKEN_SCOPES = frozenset(Scope) - {Scope.DECIDE, Scope.SPEAK}
"""What a token can grant: an agent that reads a token must not become a person by it."""


class Caller(Struct, frozen=True):
    """One user of an open app. Every operation takes one, and reaches data only through it.

    As a context manager it passes the user's events to its sink until the end of the block.
    """

    app: App
    space: UserSpace
    session_id: SessionId | None = None
    sink: EventSink = ignore
    scopes: frozenset[Scope] = USER_SCOPES
    _stop_listening: list[Callable[[], None]] = field(default_factory=list)

    __repr__ = hide("_stop_listening")

    @property
    def user(self) -> UserId:
        """Return the user whose data this caller can use."""
        return self.space.user

    @property
    def database(self) -> Database:
        """The tables of the home, for the rows of this caller's user."""
        return self.space.database

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner of the home."""
        return self.user == OWNER

    def require(self, scope: Scope) -> None:
        """Raise NotAllowed unless the caller has `scope`."""
        if scope is Scope.DECIDE:
            self.require_person("the same command")
        elif scope not in self.scopes:
            raise NotAllowed(f"this needs the scope {scope.value!r}", "ask the owner of this home")

    def require_person(self, command: str) -> None:
        """Raise NotAllowed unless the caller may take the decisions of a person; `command` is the way to do so."""
        if self.why_no_person:
            raise refuse_decision(self.why_no_person, command)

    @property
    def why_no_person(self) -> str:
        """Why this caller cannot take the decisions of a person; empty if it can."""
        if Scope.DECIDE in self.scopes:
            return ""
        return self.app.why_no_person or "a token, a tool or another program asked for it"

    def without_decisions(self) -> Caller:
        """Return the same caller for an agent: without the decisions of a person."""
        return Caller(self.app, self.space, self.session_id, self.sink, self.scopes - {Scope.DECIDE})

    def for_user(self, user: UserId) -> Caller:
        """Return a caller who acts for another user with the same scopes; needs the scope admin."""
        if user == self.user:
            return self
        self.require(Scope.ADMIN)
        return Caller(self.app, self.app.space(user), None, self.sink, self.scopes)

    def listen(self, sink: EventSink) -> Callable[[], None]:
        """Pass the events of the user, or of the caller's session, to `sink`; return the function that stops it."""
        return self.space.listeners.add(sink, session_id=self.session_id)

    def __enter__(self) -> Self:
        if self.sink is not ignore:
            self._stop_listening.append(self.listen(self.sink))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._stop_listening:
            self._stop_listening.pop()()


class Listeners:
    """The sinks of one user's callers. An event of a session reaches only the sinks that listen to that session.

    A sink added without a session receives all events of the user; an event without a session reaches all sinks.
    """

    def __init__(self, user: UserId = OWNER) -> None:
        self._user = user
        self._sinks: list[tuple[Callable[[Event], None], SessionId | None]] = []

    def __call__(self, event: Event, /) -> None:
        """Set the user of the event and pass it to every matching sink."""
        marked = event if event.user_id == self._user else replace(event, user_id=self._user)
        for sink, session_id in tuple(self._sinks):
            if session_id is None or marked.session_id in {None, session_id}:
                sink(marked)

    def __len__(self) -> int:
        return len(self._sinks)

    def warn(self, message: str, remedy: str = "") -> None:
        """Pass a warning to the sinks."""
        from wellkept.core.events import Warned

        self(Warned(message, remedy))

    def add(self, sink: Callable[[Event], None], *, session_id: SessionId | None = None) -> Callable[[], None]:
        """Add a sink and return the function that removes it."""
        entry = (sink, session_id)
        self._sinks.append(entry)

        def remove() -> None:
            if entry in self._sinks:
                self._sinks.remove(entry)

        return remove


class UserSpace:
    """Everything of one user on an open app. Each part is built for that user and sees nobody else's data."""

    def __init__(self, app: App, user: UserId) -> None:
        self.app = app
        self.user = user
        self.home = app.home.for_user(user)
        self.listeners = Listeners(user)
        self.finished_rollback: RollbackResult | None = None
        """An interrupted rollback of the skills that was completed when they were opened."""

    @cached_property
    def memory(self) -> MemoryStore:
        """The pages of curated memory, including that of the current project."""
        from wellkept.memory.store import MemoryStore

        app = self.app
        store = MemoryStore(
            self.home.memories if app.server is None else self._open_rows(app.server),
            app.settings.memory,
            user=self.user,
            clock=app.clock,
            sink=self.listeners,
        )
        app.on_close(store.close)
        return self._bind(store, str(app.folder))

    def _open_rows(self, server: PostgresServer) -> Storage:
        from wellkept.memory.postgres import open_storage

        database = server.for_user(self.user)
        return open_storage(database, database.key)

    def memory_in(self, folder: str | None) -> MemoryStore:
        """Return the pages, including that of the project that `folder` is in, if it is in one."""
        return self._bind(self.memory, folder)

    def project_of(self, folder: str | None) -> Path | None:
        """Return the project that a folder is in; the person's home folder and the root are not projects."""
        from wellkept.storage.files import find_project

        root = find_project(folder) if self.app.settings.memory.project_pages else None
        if root is None or Path(root) in (Path("/"), Path(self.app.environ.get("HOME") or "/")):
            return None
        return Path(root)

    def _bind(self, store: MemoryStore, folder: str | None) -> MemoryStore:
        """Return the memory with the page of the project that a folder is in."""
        from wellkept.memory.store import project_folder

        root = self.project_of(folder)
        if root is None:
            return store.for_project(None)
        name = project_folder(root)
        with suppress(StorageError):  # whoever uses the page reports it
            name = store.pages.find_project(name)
        return store.for_project(name, partial(self._note_facts, root, name))

    def _note_facts(self, root: Path, project: str, entries: Mapping[str, float | None]) -> Mapping[str, str]:
        """Return notes on the entries of a project's page that the project no longer confirms."""
        from wellkept.projectfacts.notes import note_entries
        from wellkept.projectfacts.remembered import load_remembered

        documents, name = self.fact_documents(project)
        try:
            remembered = load_remembered(documents.read(name))
        except StorageError:
            remembered = load_remembered(None)
        return note_entries(root, entries, remembered)

    def fact_documents(self, project: str) -> tuple[Documents, str]:
        """Return where the steps of a project's history are remembered, and the name of that document."""
        from wellkept.storage.documents import FolderDocuments

        documents = self.documents("facts")
        # without the name of the project, which may be forgotten
        name = f"{project.rpartition('-')[2]}.json"
        return FolderDocuments(documents) if isinstance(documents, Path) else documents, name

    @property
    def database(self) -> Database:
        """The tables of the home, for the rows of this user; raises a StorageError while they cannot be used."""
        return self.app.database_for(self.user)

    def close(self) -> None:
        """Close the files that belong only to this user; they are opened again when needed."""
        if "memory" in self.__dict__:
            self.memory.close()

    @cached_property
    def approvals(self) -> Approvals:
        """Pending memory writes."""
        from wellkept.memory.approval import Approvals

        return Approvals(self.documents("pending/memory"), self.memory)

    def documents(self, folder: str) -> Path | Documents:
        """Return the storage of small texts of the user: a folder, or rows of the server that hosts share."""
        if self.app.server is None:
            return self.home.own / folder
        from wellkept.storage.documents import RowDocuments

        return RowDocuments(self.database, folder)

    @cached_property
    def sessions(self) -> Sessions:
        """The user's conversations; raises a StorageError while the database cannot be used."""
        return self.app.open_sessions(self.user, self.listeners)

    def sessions_or_none(self) -> Sessions | None:
        """Return the conversations; if they cannot be written, warn and return them read-only, or None."""
        try:
            sessions = self.sessions
            if self.database.is_read_only:
                with self.database.writing():  # raises the reason
                    return sessions
        except StorageError as error:
            self.listeners.warn(f"this conversation is not being stored: {error.message}", error.remedy)
            return self.__dict__.get("sessions")
        return sessions

    @cached_property
    def skill_tools(self) -> SkillTools:
        """The library of skills and the tools over it."""
        from wellkept.skills.library import SkillLibrary
        from wellkept.skills.roots import plugin_roots, standard_roots
        from wellkept.skills.tool import SkillTools
        from wellkept.storage.files import find_project

        app = self.app
        roots = standard_roots(
            self.home.skills,
            owner=None if self.user == OWNER else app.home.skills,
            person=Path(app.environ["HOME"]) if app.environ.get("HOME") else None,
            project=Path(find_project(app.folder) or app.folder),
            external=app.settings.skills.external_dirs,
            bundled=app.settings.skills.bundled,
        )
        roots += tuple(root for root in plugin_roots() if root.plugin not in app.settings.disabled_plugins)
        library = SkillLibrary(
            self.home.skills,
            roots=roots,
            settings=app.settings.skills,
            clock=app.clock,
            environ=app.environ,
            records=None if isinstance(records := self.documents("skills"), Path) else records,
        )
        tools = SkillTools(library, pending=self.documents("pending/skills"))
        self._finish_rollback(tools)
        return tools

    def _finish_rollback(self, tools: SkillTools) -> None:
        """Complete an interrupted rollback of the skills before anything reads a partial state."""
        from wellkept.skills.roots import ROLLBACK_JOURNAL

        if not (self.home.skills / ROLLBACK_JOURNAL).exists():
            return
        from wellkept.skills.curator.curator import Curator

        try:
            done = Curator(tools.editor, self.app.settings.curator).finish_rollback()
        except StorageError as error:
            self.listeners.warn(f"a rollback of the skills is not finished: {error.message}", error.remedy)
            return
        self.finished_rollback = done
        if done is not None:
            self.listeners.warn(f"completed the interrupted rollback to {done.backup}")

    @cached_property
    def outbox(self) -> Outbox:
        """The queued writes to external memories."""
        from wellkept.providers.outbox import Outbox

        return Outbox(self.database, user=self.user, clock=self.app.clock)

    @cached_property
    def audit(self) -> Audit:
        """The record of calls to external memories."""
        from wellkept.providers.audit import Audit

        return Audit(self.database, user=self.user, clock=self.app.clock)

    def open_lease(self, name: str, holder_name: str = "") -> Lease:
        """Return a lease of this user among the processes that share the home: on one machine, or on a server."""
        from wellkept.storage.leases import TURN_SECONDS, FencedLease, FileLease, new_holder

        if self.app.server is None:
            return FileLease(self.app.home.path / "locks", f"{self.user}:{name}")
        return FencedLease(self.database, name, holder=new_holder(holder_name), seconds=TURN_SECONDS)

    def tools(self) -> dict[str, Tool]:
        """Return all tools of the agent by name, in a fixed order."""
        from wellkept.agent.toolbox import build_toolbox

        toolsets = self.app.toolsets("cli")
        plugins = self.agents.provider_tools() if toolsets is None or "memory" in toolsets else ()
        return dict(build_toolbox(self.core_tools(), plugins, toolsets).tools)

    def core_tools(self, sink: EventSink | None = None) -> list[Tool]:
        """Return the built-in tools, in the order in which models see them.

        `sink` receives the events of model calls that a tool makes; the default is all sinks of this user.
        """
        from wellkept.agent.toolbox import TodoList
        from wellkept.agent.workspace import Workspace

        return [*self.shared_tools(sink), TodoList().tool(), *Workspace(self.app.folder).tools()]

    def shared_tools(self, sink: EventSink | None = None) -> list[Tool]:
        """Return the tools over the memory, which agents in other programs and over the network are given too."""
        from wellkept.memory.tool import MemoryTool
        from wellkept.sessions.tool import session_search

        app, sink = self.app, sink or self.listeners
        search = session_search(
            lambda: self.sessions,
            app.settings.sessions,
            clock=app.clock,
            auxiliary=lambda: app.models.auxiliary("search_summary", app.models.chat(sink=sink), sink=sink),
            record=self._record_receipt,
            archive=self._search_archive,
        )
        return [
            MemoryTool(self.memory, self.approvals).tool(),
            search,
            *(self.skill_tools.tools() if app.settings.skills.enabled else ()),
        ]

    def _search_archive(self, query: str) -> list[JSON]:
        from wellkept.agent.without_model.passages import search_archive

        return [{"text": one.text, "source": one.source} for one in search_archive(self.memory, query)]

    def _record_receipt(self, receipt: NewReceipt) -> None:
        self.sessions.receipts.add(receipt)

    @cached_property
    def agents(self) -> AgentBuilder:
        """Builds this user's agents."""
        from wellkept.app.agents import AgentBuilder

        return AgentBuilder(self)

    def agent(self, opening: Opening, *, model_name: str | None = None, sink: EventSink | None = None) -> Agent:
        """Open a conversation with the named model, the configured one, or none.

        Its events go to `sink`; the default is all sinks of this user.
        """
        return self.agents.agent(opening, model_name=model_name, sink=sink)
