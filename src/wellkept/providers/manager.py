"""The manager: starts the chosen providers, calls their hooks and protects turns from their failures."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.clock import SystemClock
from wellkept.core.errors import KeptError
from wellkept.core.events import Warned
from wellkept.core.ids import UserId, random_hex
from wellkept.core.ports import Database, EventSink, ignore
from wellkept.core.text import JSON
from wellkept.core.tools import Tool, ToolContext
from wellkept.providers.active import ManagerContext, RegisteredProvider, Registry
from wellkept.providers.audit import Audit, Health
from wellkept.providers.base import BUILTIN, ForgetRequest, Forgotten, MemoryProvider, Messages, StartContext
from wellkept.providers.content import RECALL_SCHEMA, RECALL_TOOL, clean_messages, failure, is_search, merge_texts
from wellkept.providers.guard import Answered, Breaker, Failed, GuardedProvider, Outcome
from wellkept.providers.hooks import close_provider
from wellkept.providers.loading import PluginSource, load
from wellkept.providers.outbox import Outbox
from wellkept.providers.plugins import discover, find_plugin
from wellkept.providers.settings import ProviderSettings
from wellkept.providers.writes import FinishedTurn, Writes
from wellkept.security.fence import sanitize_context, unwrap
from wellkept.security.secrets import redact
from wellkept.storage.files import make_folder
from wellkept.storage.sqlite import STATE_NAME, open_state

_MAX_NOTE_CHARS = 300


class ForgetAnswer(Struct, frozen=True):
    """What one provider did."""

    provider: str
    removed: int | None = None
    """How many items it deleted; None if it cannot delete or could not be reached."""
    holds: bool | None = None
    """Whether it still holds some of the content; None if it cannot tell."""
    problem: str = ""
    note: str = ""
    """What it did where it could not delete exactly what was asked for."""

    @property
    def is_gone(self) -> bool:
        """Whether the provider confirmed that nothing is left."""
        return self.removed is not None and self.holds is False

    @property
    def outcome(self) -> str:
        """Return the outcome in words."""
        if self.problem:
            return self.problem
        if self.removed is None:
            return "it cannot delete; remove the content there yourself"
        outcomes = {False: "gone", True: "it still holds the content", None: "deleted, but it cannot verify that"}
        return "; ".join(filter(None, (outcomes[self.holds], self.note)))

    def as_json(self) -> dict[str, JSON]:
        """Return the answer without any content."""
        return {"provider": self.provider, "removed": self.removed, "gone": self.is_gone, "outcome": self.outcome}


def forget_content(provider: RegisteredProvider, request: ForgetRequest, *, timeout_seconds: float) -> ForgetAnswer:
    """Tell a started provider to forget, then ask whether it did; each call has its deadline."""
    refused = _refuse(provider)
    if refused is not None:
        return refused
    removed = provider.call("forget_content", request, timeout_seconds=timeout_seconds)
    if isinstance(removed, Failed):
        return ForgetAnswer(provider.name, problem=f"it did not forget: {removed.error}")
    found = Forgotten(removed.value) if isinstance(removed.value, int) else removed.value
    if not isinstance(found, Forgotten):
        return ForgetAnswer(provider.name)
    holds = _ask(provider, request, timeout_seconds)
    return ForgetAnswer(provider.name, found.removed, holds, note=redact(found.note[:_MAX_NOTE_CHARS]))


def find_content(provider: RegisteredProvider, request: ForgetRequest, *, timeout_seconds: float) -> ForgetAnswer:
    """Ask a started provider whether it holds what `request` selects."""
    return _refuse(provider) or ForgetAnswer(provider.name, holds=_ask(provider, request, timeout_seconds))


def _refuse(provider: RegisteredProvider) -> ForgetAnswer | None:
    if not provider.guard.offers("forget_content"):
        return ForgetAnswer(provider.name)
    if not provider.guard.ready:
        problem = f"it could not be reached: {provider.problem or 'it did not start'}"
        return ForgetAnswer(provider.name, problem=problem)
    return None


def _ask(provider: RegisteredProvider, request: ForgetRequest, seconds: float) -> bool | None:
    outcome = provider.call("holds_content", request, timeout_seconds=seconds)
    return outcome.value if isinstance(outcome, Answered) and isinstance(outcome.value, bool) else None


log = logging.getLogger(__name__)

_MAX_BLOCK_CHARS = 8_000
"""How much of one provider's text the system prompt takes."""

HANGING_SECONDS = 0.5
"""How long a provider may take to shut down while an earlier call of it hangs."""

Switch = Literal["new", "reset", "resume", "branch", "compression"]
"""Why a conversation continues under another id, or after a compaction in place under the same one."""


class ProviderStatus(Struct, frozen=True):
    """The state of a registered provider."""

    name: str
    ready: bool
    health: Health
    waiting: int
    problem: str | None = None


class ProviderManager:
    """The providers of one agent and one user, over one session after another."""

    def __init__(self, database: Database, *, context: ManagerContext, settings: ProviderSettings) -> None:
        user = UserId(context.start.user_id)
        self._outbox = Outbox(database, user=user, clock=context.clock, limit=settings.outbox_limit)
        self._audit = Audit(database, user=user, clock=context.clock, keep_days=settings.audit_days)
        self._context = context
        self._settings = settings
        self._registry = Registry(settings)
        self.writes = Writes(self._registry, self._outbox, context=context)
        """The writes to providers, which go through the outbox."""
        self._is_started = False
        self._is_shut_down = False
        self._is_caught_up = False

    def register(self, provider: MemoryProvider, *, name: str = "") -> bool:
        """Add a provider, under its own name or another; False, with a warning, if the name or the place is taken."""
        name, taken = name or provider.name, self.providers
        external = [each for each in taken if each != BUILTIN]
        if name in taken or (name != BUILTIN and external and not self._context.several):
            self._warn(
                f"the memory provider {name!r} was not registered in addition to {external}",
                "one external provider is used at a time; memory.provider may list several to use together",
            )
            return False
        breaker = Breaker(
            self._audit.health(name),
            limit=self._settings.breaker_failures,
            pause_seconds=self._settings.breaker_pause_seconds,
        )
        guard = GuardedProvider(
            provider,
            name=name,
            breaker=breaker,
            threads=self._registry.threads,
            audit=self._audit,
            clock=self._context.clock,
        )
        context = self._context.start
        self._registry.add(RegisteredProvider(guard, self._outbox, context=context, settings=self._settings))
        return True

    @property
    def providers(self) -> list[str]:
        """Return the names of the registered providers, in order."""
        return self._registry.names

    def start(self, session_id: str) -> None:
        """Initialise all providers at once, and start to deliver what is queued for them."""
        self._is_started = True
        self._registry.enter_session(session_id)
        self._registry.start_all(RegisteredProvider.start)
        for each in self._registry:
            if each.problem:
                problem = f"the memory provider {each.name!r} is not in use: {each.problem}"
                self._warn(problem, "see `kept providers status`")
        self.writes.mirror()
        self.writes.wake()

    def start_for_tools(self, session_id: str) -> None:
        """Start, unless that was done, and deliver queued writes first: for a tool call outside a conversation."""
        if not self._is_started:
            self.start(session_id)
        self._registry.enter_session(session_id)
        if not self._is_caught_up:
            self._is_caught_up = True
            self.writes.wait_for("", seconds=self._settings.switch_wait_seconds)

    def status(self) -> list[ProviderStatus]:
        """Return the state of every registered provider."""
        waiting = {lane.provider: lane.waiting for lane in self._outbox.lanes()}
        return [
            ProviderStatus(
                name=each.name,
                ready=each.guard.ready,
                health=each.guard.breaker.health,
                waiting=waiting.get(each.name, 0),
                problem=each.problem,
            )
            for each in self._registry
        ]

    def tools(self) -> Sequence[Tool]:
        """Return the tools of the started providers; with several one neutral search replaces their own."""
        self._registry.remove_taken_tools({*self._context.reserved_tools, RECALL_TOOL})
        tools = [tool for each in self._registry for tool in each.tools]
        if not self._context.several or not tools:
            return tools
        own = [tool for tool in tools if not is_search(tool.schema)]
        return [Tool(RECALL_SCHEMA, self._recall_tool), *own]

    def system_prompt_block(self) -> str:
        """Return the providers' text for the system prompt."""
        texts = _texts(self._registry.call_all("system_prompt_block", expects=str))
        # cut before the fence is removed: the search for it must not read megabytes
        blocks = [unwrap(text[: 4 * _MAX_BLOCK_CHARS]).strip()[:_MAX_BLOCK_CHARS] for text in texts]
        return "\n\n".join(block for block in blocks if block)

    def recall(self, message: str, *, session_id: str, turn: int, context: Mapping[str, JSON] | None = None) -> str:
        """Announce the turn to every provider and return what they recall, merged under one budget.

        Waits no longer than the prefetch time-out. An answer that arrives after a session switch is dropped.
        """
        texts = self._registry.recall(sanitize_context(message), turn=turn, context=context or {})
        return self._merge(texts) if session_id == self._registry.session_id else ""

    def turn_finished(
        self,
        user: str,
        assistant: str,
        *,
        session_id: str | None = None,
        messages: Messages = (),
        key: str | None = None,
        interrupted: bool = False,
    ) -> None:
        """Report a finished turn to the providers: queue it durably, deliver it, then warm the next recall.

        Returns at once. Of two calls with the same `key` in a session only the first counts; without one every call
        counts. A turn that was interrupted or has no answer is not reported.
        """
        turn = FinishedTurn(
            session_id=self._registry.session_id if session_id is None else session_id,
            key=random_hex(8) if key is None else key,
            user=user,
            assistant=assistant,
            messages=messages,
            interrupted=interrupted,
        )
        with self._outbox.unit() as unit:
            self.writes.queue_turn(unit, turn)
        self.writes.after_turn(turn)

    def pre_compress(self, messages: Messages) -> str:
        """Let every provider save what matters before a compaction; return their text for the summary."""
        return self._merge(_texts(self._registry.call_all("on_pre_compress", clean_messages(messages), expects=str)))

    def switch_session(self, new_id: str, reason: Switch, *, parent: str | None = None) -> None:
        """Notify the providers that the conversation continues under `new_id`.

        The parent is the session that is left, unless given. For a session that ends or is compacted into
        a child, call `writes.queue_session_end` first.
        """
        left = self._registry.session_id
        self._registry.enter_session(new_id)
        if reason in {"new", "reset"}:
            for each in self._registry:
                each.restart_count()
        if left != new_id:
            self.writes.wait_for(left, seconds=self._settings.switch_wait_seconds)
        self._registry.call_all(
            "on_session_switch",
            new_id,
            parent_session_id=left if parent is None else parent,
            reset=reason in {"new", "reset"},
            reason=reason,
        )

    def forget(self, request: ForgetRequest, *, only_find: bool = False) -> list[ForgetAnswer]:
        """Start the providers, without delivering anything, and tell each to forget; or only ask what they hold."""
        self._registry.start_all(RegisteredProvider.start)
        seconds = self._settings.delivery_timeout_seconds
        ask = find_content if only_find else forget_content
        return [ask(each, request, timeout_seconds=seconds) for each in self._registry]

    def shutdown(self) -> None:
        """Wait briefly for queued writes, then shut the providers down, the last one first."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        if self.providers:
            self.writes.mirror()
        self.writes.wait_for(self._registry.session_id, "", seconds=self._settings.switch_wait_seconds)
        for each in reversed(list(self._registry)):
            each.worker.stop()
            each.is_stopped = True
            if each.guard.ready:
                # one that hangs already would only delay the exit
                seconds = HANGING_SECONDS if each.guard.hangs else max(1.0, self._settings.switch_wait_seconds)
                each.call("shutdown", timeout_seconds=seconds)
        self._audit.flush()

    def close(self) -> None:
        """Shut down if that was not done, and close the record of calls; call it before the database is closed."""
        self.shutdown()
        for each in self._registry:
            close_provider(each.guard.provider)
        self._registry.threads.close()
        self._audit.close()

    def _recall_tool(self, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            return failure("give `query`: what to look for, in plain words")
        outcomes = self._registry.ask_all(query, session_id=context.session_id or None)
        failed = [outcome.error for outcome in outcomes if isinstance(outcome, Failed)]
        return {"success": True, "recalled": self._merge(_texts(outcomes)), **({"failed": failed} if failed else {})}

    def _merge(self, texts: Sequence[str]) -> str:
        limit = self._settings.recall_max_chars
        if any(len(text) > limit for text in texts):
            log.warning("recalled text was cut to %d characters", limit)
        return merge_texts([unwrap(text[: 2 * limit]) for text in texts], max_chars=limit).strip()

    def _warn(self, message: str, remedy: str) -> None:
        log.warning("%s; %s", message, remedy)
        self._context.sink(Warned(message, remedy))


def chosen_names(setting: str | Sequence[str] | None, plugins: Path | None = None) -> list[str]:
    """Return the external providers that `memory.provider` names; none for null, empty or `builtin`.

    With the folder of the plugins, the name that a plugin has itself is replaced by that of its folder.
    """
    names = [setting] if isinstance(setting, str) else list(setting or ())
    chosen = list(dict.fromkeys(name.strip() for name in names if name.strip() and name.strip() != BUILTIN))
    if not chosen or plugins is None:
        return chosen
    found = discover(plugins)
    known = (find_plugin(name, found) for name in chosen)
    return list(dict.fromkeys(name if each is None else each.name for name, each in zip(chosen, known, strict=True)))


def open_manager(
    setting: str | Sequence[str] | MemoryProvider | None,
    source: PluginSource,
    *,
    database: Database,
    settings: ProviderSettings,
    context: ManagerContext,
) -> ProviderManager | None:
    """Return a manager with the chosen providers, or with a given one; None if none is chosen or usable.

    A provider that cannot be loaded is reported as a warning.
    """
    if setting is not None and not isinstance(setting, str | Sequence):
        manager = ProviderManager(database, context=context, settings=settings)
        manager.register(setting)
        return manager
    names = chosen_names(setting, source.plugins)
    if not names:
        return None
    manager = ProviderManager(database, context=replace(context, several=len(names) > 1), settings=settings)
    for name in names:
        try:
            manager.register(load(name, source.plugins, source.environ, source.policy), name=name)
        except KeptError as error:
            context.sink(Warned(f"the memory provider {name!r} is not in use: {error.message}", error.remedy))
    return manager if manager.providers else None


def open_providers(
    folder: Path | str,
    *,
    context: StartContext | None = None,
    settings: ProviderSettings | None = None,
    sink: EventSink = ignore,
) -> ProviderManager:
    """Return a manager that keeps its data in `<folder>/state.db`; register providers, then start it."""
    home = Path(folder).absolute()
    make_folder(home)
    start = context or StartContext(kept_home=str(home))
    return ProviderManager(
        open_state(home / STATE_NAME, sink=sink),
        context=ManagerContext(start=start, clock=SystemClock(), sink=sink),
        settings=settings or ProviderSettings(),
    )


def _texts(outcomes: Sequence[Outcome]) -> list[str]:
    return [str(outcome.value or "") for outcome in outcomes if isinstance(outcome, Answered)]
