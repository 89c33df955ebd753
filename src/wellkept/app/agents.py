"""Builds agents from the components of the open app."""

from __future__ import annotations  # most of these types are imported only when an agent is built

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.events import Event, ModelCalled, Warned
from wellkept.core.ids import SessionId
from wellkept.core.ports import ignore
from wellkept.core.provenance import COMMAND_SOURCE
from wellkept.core.text import JSON
from wellkept.core.values import asdict

if TYPE_CHECKING:
    from wellkept.agent.agent import Agent, Opening
    from wellkept.agent.dependencies import Parts
    from wellkept.agent.toolbox import Toolbox
    from wellkept.agent.without_model.assistant import Assistant, Sources
    from wellkept.agent.without_model.dialogue import Actions
    from wellkept.app.caller import UserSpace
    from wellkept.context.engine import ContextEngine
    from wellkept.core.ids import SourceName
    from wellkept.core.messages import Session
    from wellkept.core.ports import ChatModel, EventSink, OffersTools
    from wellkept.core.tools import Tool, ToolContext
    from wellkept.providers.manager import ProviderManager
    from wellkept.sessions.ports import Sessions
    from wellkept.storage.leases import Lease

SKILL_FITS = 0.5
"""A skill is suggested if its description contains at least this share of the question's words."""
SKILL_WORDS = 2
"""The minimum number of shared words: a single one occurs in many unrelated questions."""


class AgentEvents(Struct):
    """Reports the events of one agent to its sink and adds the current session to each."""

    sink: EventSink
    agent: Agent | None = None

    def report(self, event: Event, /) -> None:
        """Report an event of the conversation."""
        if event.session_id is None and self.agent is not None:
            event = replace(event, session_id=self.agent.session.id)
        self.sink(event)

    def report_side_task(self, event: Event, /) -> None:
        """Report an event of a side task (summary, title, review), and count its model calls for the agent."""
        self.report(event)
        if isinstance(event, ModelCalled) and self.agent is not None:
            self.agent.conversation.count_usage(event.task, event.model, event.usage)


class AgentBuilder:
    """Builds the agents of one user, and the parts that only agents need."""

    def __init__(self, space: UserSpace) -> None:
        self._space = space
        self._app = space.app
        self._managers: set[ProviderManager] = set()
        self._closes_managers = False

    def agent(self, opening: Opening, *, model_name: str | None = None, sink: EventSink | None = None) -> Agent:
        """Open a conversation with the named model, the configured one, or none."""
        from wellkept.agent.agent import Agent
        from wellkept.context.plugins import BUILT_IN
        from wellkept.core.ids import new_session_id

        opening = replace(opening, user_id=self._space.user)
        events = AgentEvents(sink or self._space.listeners)
        model = self._app.models.chat(model_name, sink=events.report)
        sessions = None if opening.incognito else self._space.sessions_or_none()
        settings = self._app.settings
        has_plugins = bool(settings.memory.provider) or settings.context.engine not in BUILT_IN
        session_id = None if opening.resume is not None else new_session_id(self._app.clock.now())
        defers = opening.defers_plugins and has_plugins and sessions is not None
        opening = replace(opening, session_id=opening.session_id or session_id, defers_plugins=defers)
        providers = None if opening.defers_plugins else self._start_providers(opening, sessions)
        parts = self._parts(opening, model, sessions=sessions, providers=providers, events=events)
        agent = events.agent = Agent(parts, opening)

        def load_plugins() -> None:
            whole = replace(opening, defers_plugins=False)
            started = self._start_providers(whole, sessions)
            agent.add_plugins(self._parts(whole, model, sessions=sessions, providers=started, events=events))

        if opening.defers_plugins:
            agent.conversation.load_plugins = load_plugins

        def record_write(event: Event, /) -> None:
            agent.conversation.record_write(event)

        stop_listening = self._space.listeners.add(record_write)

        def close_parts() -> None:
            stop_listening()
            if agent.parts.providers is not None:
                agent.parts.providers.close()
                self._managers.discard(agent.parts.providers)

        agent.when_closed = close_parts
        return agent

    def _start_providers(self, opening: Opening, sessions: Sessions | None) -> ProviderManager | None:
        """Start the configured external memories; their tools are available after that."""
        if sessions is None or not self._has_memory(opening):
            return None
        resumed = None if opening.resume is None else sessions.session(sessions.tip(opening.resume))
        providers = self.providers(opening, resumed)
        if providers is not None:
            providers.start((resumed.id if resumed is not None else opening.session_id) or "")
        return providers

    def _close_managers(self) -> None:
        for manager in self._managers:
            manager.close()

    def use_model(self, agent: Agent, model_name: str) -> None:
        """Change the model of a conversation, and every component that depends on it."""
        events = AgentEvents(agent.parts.sink, agent)
        model = self._app.models.chat(model_name, sink=events.report)
        sessions = None if agent.opening.incognito else self._space.sessions_or_none()
        agent.use_parts(
            self._parts(agent.opening, model, sessions=sessions, providers=agent.parts.providers, events=events)
        )

    def _has_memory(self, opening: Opening) -> bool:
        toolsets = self._app.toolsets(opening.platform)
        return toolsets is None or "memory" in toolsets

    def _parts(
        self,
        opening: Opening,
        model: ChatModel | None,
        *,
        sessions: Sessions | None,
        providers: ProviderManager | None,
        events: AgentEvents,
    ) -> Parts:
        from wellkept.agent.dependencies import Gauge, Parts
        from wellkept.agent.toolbox import build_toolbox
        from wellkept.llm.tokens import cost_of

        settings = self._app.settings
        gauge, sink = Gauge(), events.report_side_task
        has_engine = model is not None and not opening.defers_plugins
        engine = self.engine(model, sessions, count=gauge.count, sink=sink) if model and has_engine else None
        memory = self._space.memory if settings.memory.memory_enabled or settings.memory.user_profile_enabled else None
        offered = [tool for tool in self._space.core_tools(sink) if memory is not None or tool.schema.name != "memory"]
        core = [*offered, *self._delegation(lambda: parts, opening, sink)]
        box = build_toolbox(
            core, self._collect_tools(opening, model, providers, engine), self._app.toolsets(opening.platform)
        )
        models = self._app.models
        is_set = model is not None and models.task_model("title", model) is not None
        parts = Parts(
            clock=self._app.clock,
            sink=events.report,
            limits=settings.limits,
            review=settings.review,
            compression=settings.compression,
            memory=memory,
            approvals=self._space.approvals,
            sessions=sessions,
            providers=providers,
            model=model,
            engine=engine,
            assistant=self._make_assistant(opening, sessions),
            speaker=self._find_speaker(opening),
            toolbox=box,
            gauge=gauge,
            cost_of=lambda name, usage: cost_of(
                name, usage, overrides=settings.model.prices, hour_cache=settings.prompt_caching.cache_ttl == "1h"
            ),
            folder=self._app.folder,
            home=self._app.home.path,
            catalogue=lambda: self._space.skill_tools.catalogue(frozenset(box.tools)),
            skill_interval=settings.skills.creation_nudge_interval,
            skills=self._space.skill_tools if settings.skills.enabled else None,
            reviewer=self._app.models.task_model("review", model, sink=sink) if model is not None else None,
            titler=models.auxiliary("title", model, sink=sink) if is_set else None,
            review_tokens_today=lambda: self._review_tokens(sessions),
            open_lease=self._open_lease,
        )
        return parts

    def _make_assistant(self, opening: Opening, sessions: Sessions | None) -> Assistant:
        from wellkept.agent.without_model.assistant import Assistant

        return Assistant(
            self._space.memory,
            self._space.approvals,
            self._make_sources(sessions or self._space.sessions_or_none()),  # incognito reads, and stores nothing
            actions=self._choose_actions(opening),
            speaker=self._find_speaker(opening),
        )

    def _find_speaker(self, opening: Opening) -> SourceName | None:
        """Return the source of messages of which nobody knows who wrote them, as on the command line of an agent."""
        return COMMAND_SOURCE if self._app.agent_sign and opening.platform == "cli" else opening.speaker

    def _open_lease(self, root: SessionId, agent_name: str) -> Lease:
        return self._space.open_lease(f"session:{root}", agent_name)

    def _collect_tools(
        self,
        opening: Opening,
        model: ChatModel | None,
        *parts: OffersTools | None,
    ) -> list[Tool]:
        """Return the tools of providers, of the engine and of MCP servers, in this order."""
        toolsets = self._app.toolsets(opening.platform)
        offered = [tool for part in parts if part is not None for tool in part.tools()]
        offered += self._app.given.tools
        may_serve = not opening.defers_plugins and model is not None and (toolsets is None or "mcp" in toolsets)
        return [*offered, *(self._app.mcp_tools() if may_serve else ())]

    def _delegation(self, parts: Callable[[], Parts], opening: Opening, sink: EventSink) -> list[Tool]:
        from wellkept.agent.delegate import Delegation
        from wellkept.agent.dependencies import Gauge

        def build_child_parts(box: Toolbox) -> Parts:
            mine, gauge = parts(), Gauge()
            sessions = self._space.sessions_or_none()
            engine = self.engine(mine.model, sessions, count=gauge.count, sink=sink) if mine.model else None
            return replace(
                mine, toolbox=box, providers=None, memory=None, engine=engine, gauge=gauge, sink=ignore
            )  # fmt: skip

        def queue_result(task: str, result: str, child: SessionId, parent: SessionId | None) -> None:
            manager = parts().providers
            if manager is not None:
                manager.writes.queue_delegation(task, result, session_id=parent or "", child_session_id=child)

        return [Delegation(build_child_parts, lambda: parts().toolbox, queue_result, opening.approve).tool()]

    def engine(
        self,
        model: ChatModel,
        sessions: Sessions | None,
        *,
        count: Callable[..., int],
        sink: EventSink | None = None,
    ) -> ContextEngine:
        """Return the configured context engine; warn if it cannot be used and another one replaces it."""
        from wellkept.agent.offload import is_cancelled
        from wellkept.context.boundaries import Window
        from wellkept.context.engine import Setup
        from wellkept.context.plugins import choose_engine
        from wellkept.security.secrets import redact

        sink = sink or self._space.listeners
        settings = self._app.settings
        engine = choose_engine(settings.context.engine, home=self._app.home.path, disabled=settings.disabled_plugins)
        if engine.warning:
            sink(Warned(engine.warning, "`kept context list` shows the engines"))
        engine.engine.prepare(
            Setup(
                window=Window(model.context_length),
                count=count,
                clock=self._app.clock,
                redact=redact,
                settings=settings.compression,
                model=self._app.models.auxiliary("compression", model, sink=sink),
                nodes=sessions,
                originals=sessions.messages_by_id if sessions else None,
                deadline_seconds=settings.auxiliary.compression.timeout,
                given_up=is_cancelled,
            )
        )
        return engine.engine

    def providers(self, opening: Opening, resumed: Session | None = None) -> ProviderManager | None:
        """Return the manager of the external memories that are configured, None for the built-in pages only.

        `resumed` is the stored session with which the conversation continues.
        """
        given = self._app.given.provider
        if not self._app.settings.memory.provider and given is None:
            return None
        from wellkept.agent.dependencies import PageLedger
        from wellkept.agent.toolbox import CORE
        from wellkept.providers.active import ManagerContext
        from wellkept.providers.base import StartContext
        from wellkept.providers.manager import open_manager
        from wellkept.storage.files import find_project

        context = StartContext(
            kept_home=str(self._app.home.path),
            platform=opening.platform,
            agent_context="cron" if opening.source == "cron" else "primary",
            agent_identity=self._app.home.profile,
            agent_workspace=find_project(self._app.folder) or str(self._app.folder),
            parent_session_id=opening.parent or (resumed.parent_session_id if resumed is not None else None) or "",
            user_id=self._space.user,
            session_title=(resumed.title if resumed is not None else None) or "",
            **asdict(opening.chat),
        )
        source, settings = self._app.plugin_source(), self._app.settings
        managing = ManagerContext(
            start=context,
            clock=self._app.clock,
            sink=self._space.listeners,
            ledger=PageLedger(self._space.memory, self._space.sessions_or_none()),
            reserved_tools=frozenset(CORE),
        )
        manager = open_manager(
            settings.memory.provider if given is None else given,
            source,
            database=self._space.database,
            settings=settings.providers,
            context=managing,
        )
        if manager is not None:
            self._managers.add(manager)
            if not self._closes_managers:  # registered after the database was opened, so that managers close before it
                self._closes_managers = True
                self._app.on_close(self._close_managers)
        return manager

    def provider_tools(self) -> list[Tool]:
        """Return the tools of the providers for calls outside a conversation; the providers are started for that."""
        if not self._app.settings.memory.provider and self._app.given.provider is None:
            return []
        from wellkept.agent.agent import Opening

        manager = self.providers(Opening())
        if manager is None:
            return []
        manager.start("")

        def start_before_call(tool: Tool) -> Tool:
            def call(arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
                manager.start_for_tools(context.session_id or "")
                return tool.call(arguments, context)

            return replace(tool, call=call)

        return [start_before_call(tool) for tool in manager.tools()]

    def _review_tokens(self, sessions: Sessions | None) -> int:
        today = self._app.clock.now().strftime("%Y-%m-%d")
        rows = sessions.usage(since=today) if sessions is not None else []
        return sum(row.usage.prompt_tokens + row.usage.output_tokens for row in rows if row.task == "review")

    def _skill_hint(self, question: str) -> str:
        """Return one line that suggests a skill that clearly matches the question; empty if none does."""
        from wellkept.agent.without_model.passages import count_shared_words, relevances

        if not self._app.settings.skills.enabled:
            return ""
        best = next((ranked.skill for ranked in self._space.skill_tools.library.search(question)), None)
        described = f"{best.name} {best.description}" if best is not None else ""
        if (
            best is None
            or relevances(question, [described])[0] < SKILL_FITS
            or count_shared_words(question, described) < SKILL_WORDS
        ):
            return ""
        return f"A skill fits: /{best.name} — {best.description}"

    def _choose_actions(self, opening: Opening) -> Actions | None:
        from wellkept.agent.without_model.dialogue import PageActions

        if opening.incognito:
            return None
        return opening.actions or PageActions(self._space.memory, self._space.approvals, self._app.why_no_person)

    def _make_sources(self, sessions: Sessions | None) -> Sources:
        from wellkept.agent.without_model.assistant import Sources
        from wellkept.agent.without_model.passages import list_said, look_up

        if sessions is None:
            return Sources(suggest=self._skill_hint, is_readable=False)
        return Sources(
            lambda question, current: look_up(sessions, question, current),
            lambda: list_said(sessions),
            self._skill_hint,
        )
