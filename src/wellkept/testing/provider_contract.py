"""The contract suite of memory providers, a bench that runs their manager, and a provider that records its calls."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.clock import SystemClock
from wellkept.core.events import Event
from wellkept.core.ids import OWNER, UserId
from wellkept.core.text import JSON
from wellkept.core.tools import ToolContext
from wellkept.providers.active import ManagerContext
from wellkept.providers.audit import Audit
from wellkept.providers.base import ForgetRequest, Forgotten, LedgerRow, MemoryProvider, Messages, StartContext
from wellkept.providers.config import declared_fields, resolve_answers
from wellkept.providers.content import tool_schemas
from wellkept.providers.hooks import call_hook
from wellkept.providers.manager import ProviderManager
from wellkept.providers.outbox import Outbox
from wellkept.providers.settings import ProviderSettings
from wellkept.providers.writes import FinishedTurn
from wellkept.storage.sqlite import open_state


class ListedLedger:
    """A ledger of curated memory that is a list."""

    def __init__(self, rows: Sequence[LedgerRow] = ()) -> None:
        self.rows = list(rows)

    def since(self, ledger_id: int) -> Sequence[LedgerRow]:
        """Return the rows after `ledger_id`."""
        return [row for row in self.rows if row.ledger_id > ledger_id]


class Bench:
    """Opens the state database of a home and creates managers on it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.database = open_state(home / "state.db")
        self.outbox = self.outbox_of(OWNER)
        self.audit = self.audit_of(OWNER)
        self.events: list[Event] = []
        self._managers: list[ProviderManager] = []

    def outbox_of(self, user: UserId) -> Outbox:
        """Return the outbox of a user."""
        return Outbox(self.database, user=user, clock=SystemClock())

    def audit_of(self, user: UserId) -> Audit:
        """Return the record of a user's provider calls; managers write to records of their own."""
        return Audit(self.database, user=user, clock=SystemClock())

    def context(self, *, user: UserId = OWNER, **changes: Any) -> ManagerContext:
        """Return the context of a manager on this bench."""
        start = StartContext(kept_home=str(self.home), user_id=user)
        usual = ManagerContext(start=start, clock=SystemClock(), sink=self.events.append)
        return replace(usual, **changes)

    def manager(
        self,
        *providers: MemoryProvider,
        context: ManagerContext | None = None,
        session_id: str = "s1",
        **settings: Any,
    ) -> ProviderManager:
        """Return a started manager with `providers`."""
        manager = ProviderManager(
            self.database, context=context or self.context(), settings=ProviderSettings(**settings)
        )
        self._managers.append(manager)
        for provider in providers:
            manager.register(provider)
        manager.start(session_id)
        return manager

    def settle(self, manager: ProviderManager, turn: FinishedTurn) -> None:
        """End a turn as the agent does."""
        with self.database.writing() as unit:
            manager.writes.queue_turn(unit, turn)
        manager.writes.after_turn(turn)

    def close(self) -> None:
        """Close every manager and the database."""
        for manager in self._managers:
            manager.close()
        self.database.close()


def eventually(fact: Callable[[], object], *, seconds: float = 10.0) -> None:
    """Wait until `fact()` is true, or fail after `seconds`; longer where the machine is busy or the process stopped."""
    pause_seconds = 0.01
    for _ in range(round(seconds / pause_seconds)):
        if fact():
            return
        time.sleep(pause_seconds)
    raise AssertionError("it did not become true")


Fault = Callable[[], Any]
"""Runs before a hook: it may raise, hang, or return garbage instead; None lets the hook run."""


class HookCall(Struct, frozen=True):
    """One call as the provider saw it."""

    hook: str
    args: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)


class RecordingProvider(MemoryProvider):
    """Implements every hook; `calls` lists the calls, `faults` replaces hooks by name."""

    def __init__(
        self, name: str = "recording", *, recalled: str = "", tools: Sequence[str] = ("recording_search",)
    ) -> None:
        self._name = name
        self.recalled = recalled
        self.available = True
        self.tool_names = tools
        self.calls: list[HookCall] = []
        self.faults: dict[str, Fault] = {}
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        """Return the name it was given."""
        return self._name

    def calls_of(self, hook: str) -> list[HookCall]:
        """Return the calls of one hook."""
        with self._guard:
            return [call for call in self.calls if call.hook == hook]

    def is_available(self) -> bool:
        """Return `available`."""
        return bool(self._note("is_available", default=self.available))

    def initialize(self, session_id: str, **context: Any) -> None:
        """Record the call."""
        self._note("initialize", session_id, **context)

    def get_tool_schemas(self) -> Sequence[Mapping[str, JSON]]:
        """Return one schema per name."""
        schemas: list[Mapping[str, JSON]] = [
            {"name": name, "description": "Test.", "parameters": {"type": "object", "properties": {}}}
            for name in self.tool_names
        ]
        return self._note("get_tool_schemas", default=schemas)  # type: ignore[no-any-return] # or the fault's garbage

    def handle_tool_call(self, name: str, args: Mapping[str, JSON], **context: Any) -> str:
        """Answer with the arguments."""
        answer = json.dumps({"success": True, "tool": name, "args": dict(args)})
        return self._note("handle_tool_call", name, args, default=answer, **context)  # type: ignore[no-any-return] # as above

    def system_prompt_block(self) -> str:
        """Return a line of text."""
        return self._note("system_prompt_block", default=f"{self._name} is connected.")  # type: ignore[no-any-return] # as above

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return the text it was given."""
        return self._note("prefetch", query, default=self.recalled, session_id=session_id)  # type: ignore[no-any-return] # as above

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Record the call."""
        self._note("queue_prefetch", query, session_id=session_id)

    def sync_turn(
        self,
        user: str,
        assistant: str,
        *,
        session_id: str = "",
        messages: Messages = (),
        idempotency_key: str = "",
    ) -> None:
        """Record the call."""
        self._note(
            "sync_turn",
            user,
            assistant,
            session_id=session_id,
            messages=messages,
            idempotency_key=idempotency_key,
        )

    def on_turn_start(self, turn: int, message: str, **context: Any) -> None:
        """Record the call."""
        self._note("on_turn_start", turn, message, **context)

    def on_session_end(self, messages: Messages, *, session_id: str = "") -> None:
        """Record the call."""
        self._note("on_session_end", messages, session_id=session_id)

    def on_session_switch(
        self, new_id: str, *, parent_session_id: str = "", reset: bool = False, reason: str = ""
    ) -> None:
        """Record the call."""
        self._note("on_session_switch", new_id, parent_session_id=parent_session_id, reset=reset, reason=reason)

    def on_pre_compress(self, messages: Messages) -> str:
        """Return a line of text."""
        return self._note("on_pre_compress", messages, default=f"{self._name} saved it.")  # type: ignore[no-any-return] # as above

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: Mapping[str, JSON] | None = None
    ) -> None:
        """Record the call."""
        self._note("on_memory_write", action, target, content, metadata=metadata)

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "") -> None:
        """Record the call."""
        self._note("on_delegation", task, result, child_session_id=child_session_id)

    def shutdown(self) -> None:
        """Record the call."""
        self._note("shutdown")

    def _note(self, hook: str, *args: Any, default: Any = None, **keywords: Any) -> Any:
        fault = self.faults.get(hook)
        if fault is not None:
            answer = fault()
            if answer is not None:
                return answer
        with self._guard:
            self.calls.append(HookCall(hook, args, keywords))
        return default


MESSAGES = [{"role": "user", "content": "I live in Graz."}, {"role": "assistant", "content": "Noted."}]


class ProviderContract:
    """Inherit from it and return a new provider from `provider`; the subclass supplies its server, keys, …."""

    mirrors = True
    """Whether the back end mirrors writes to the pages."""

    def provider(self) -> MemoryProvider:
        """Return a provider that is not initialised."""
        raise NotImplementedError

    def known(self, provider: MemoryProvider, text: str) -> bool:
        """Tell whether the back end contains `text`; only called if `mirrors` is true."""
        raise NotImplementedError

    def start(self, home: Path, **context: Any) -> MemoryProvider:
        """Return a provider that runs in `home`."""
        provider = self.provider()
        keywords = {**StartContext(kept_home=str(home)).keywords(), **context}
        call_hook(provider, "initialize", ("contract",), keywords)
        return provider

    def test_it_has_a_name_and_says_quickly_whether_it_can_start(self) -> None:
        """The name fits the configuration; availability needs no session."""
        provider = self.provider()

        assert provider.name.replace("-", "").replace("_", "").isalnum()
        assert provider.is_available() is True

    def test_its_tools_have_usable_schemas(self, tmp_path: Path) -> None:
        """Every declared tool passes the manager's check and has a unique name."""
        provider = self.start(tmp_path)
        declared = list(provider.get_tool_schemas())
        usable = list(tool_schemas(provider.name, declared))

        assert len(usable) == len(declared)
        assert len({schema.name for schema in usable}) == len(usable)
        assert all(schema.description for schema in usable)
        provider.shutdown()

    def test_bad_arguments_are_answered_with_json(self, tmp_path: Path) -> None:
        """Whatever arguments a model invents, a tool answers with an object and does not raise."""
        provider = self.start(tmp_path)
        for schema in tool_schemas(provider.name, provider.get_tool_schemas()):
            for arguments in ({}, {"action": None}, {"action": "search", "query": []}, {"query": "x" * 10_000}):
                answer = json.loads(provider.handle_tool_call(schema.name, arguments, session_id="contract"))
                assert isinstance(answer, dict)
        provider.shutdown()

    def test_every_hook_can_be_called(self, tmp_path: Path) -> None:
        """With the arguments of the port, in the order of a session's life."""
        provider = self.start(tmp_path)

        assert isinstance(provider.system_prompt_block(), str)
        provider.on_turn_start(1, "hello", session_id="contract", platform="cli")
        assert isinstance(provider.prefetch("hello", session_id="contract"), str)
        provider.queue_prefetch("hello", session_id="contract")
        keyed: Any = {"session_id": "contract", "messages": MESSAGES, "idempotency_key": "turn:1"}
        call_hook(provider, "sync_turn", ("hello", "hi"), keyed)
        provider.on_delegation("look", "found", child_session_id="child")
        assert isinstance(provider.on_pre_compress(MESSAGES), str)
        provider.on_session_switch("next", parent_session_id="contract", reset=False, reason="resume")
        provider.on_session_end(MESSAGES)
        provider.shutdown()
        provider.shutdown()

    def test_pages_are_mirrored(self, tmp_path: Path) -> None:
        """Add, replace and remove reach the backend; the same ledger id changes nothing the second time."""
        if not self.mirrors:
            return
        provider = self.start(tmp_path)
        add: Any = {"ledger_id": 1, "before": None, "user_id": "owner"}
        replace: Any = {"ledger_id": 2, "before": "Prefers oolong tea", "user_id": "owner"}
        remove: Any = {"ledger_id": 3, "before": "Prefers sencha tea", "user_id": "owner"}

        provider.on_memory_write("add", "user", "Prefers oolong tea", add)
        assert self.known(provider, "Prefers oolong tea")
        provider.on_memory_write("replace", "user", "Prefers sencha tea", replace)
        provider.on_memory_write("add", "user", "Prefers oolong tea", add)
        assert self.known(provider, "Prefers sencha tea")
        assert not self.known(provider, "Prefers oolong tea")
        provider.on_memory_write("remove", "user", "Prefers sencha tea", remove)
        assert not self.known(provider, "Prefers sencha tea")
        provider.shutdown()

    def test_it_forgets_what_it_is_told_to_or_says_that_it_cannot(self, tmp_path: Path) -> None:
        """What holds the text goes, the rest stays, and it confirms both."""
        provider = self.start(tmp_path)
        kept, gone = "Owns a red bicycle", "Prefers oolong tea"
        for number, entry in enumerate((kept, gone), start=1):
            provider.on_memory_write("add", "user", entry, {"ledger_id": number, "before": None})
        request = ForgetRequest(texts=("OOLONG",))

        removed = provider.forget_content(request)

        if removed is not None:
            assert provider.holds_content(request) is False
            again = provider.forget_content(request)
            assert (again.removed if isinstance(again, Forgotten) else again) == 0
        if self.mirrors:
            assert self.known(provider, kept)
            assert self.known(provider, gone) == (removed is None)
        provider.shutdown()

    def test_nothing_is_written_outside_primary_contexts(self, tmp_path: Path) -> None:
        """A scheduled run leaves no trace."""
        if not self.mirrors:
            return
        provider = self.start(tmp_path, agent_context="cron")
        provider.on_memory_write("add", "user", "Prefers oolong tea", {"ledger_id": 1})

        assert not self.known(provider, "Prefers oolong tea")
        provider.shutdown()

    def test_hooks_run_from_several_threads(self, tmp_path: Path) -> None:
        """The manager calls recall, tools and writes at once."""
        provider = self.start(tmp_path)
        errors: list[BaseException] = []

        def busy(number: int) -> None:
            try:
                for round_ in range(5):
                    metadata: Any = {"ledger_id": number * 100 + round_, "before": None}
                    provider.on_memory_write("add", "memory", f"Fact {number} {round_} about tea", metadata)
                    provider.prefetch("tea", session_id="contract")
            except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=busy, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert errors == []
        provider.shutdown()

    def test_its_questions_have_defaults_or_are_marked_as_required(self) -> None:
        """Setup with every required answer given is accepted."""
        fields = declared_fields(self.provider())
        given = {field.key: field.choices[0] if field.choices else "x" for field in fields if field.required}

        assert hasattr(resolve_answers(fields, given, environ={}), "values")

    def test_it_works_behind_the_manager(self, tmp_path: Path) -> None:
        """Start, recall, tools and the end, with nothing counted as a failure."""
        bench = Bench(tmp_path)
        manager = bench.manager(self.provider())
        manager.recall("hello", session_id="s1", turn=1)
        for tool in manager.tools():
            assert isinstance(tool.call({}, ToolContext()), dict)
        manager.writes.queue_session_end("s1", MESSAGES)
        manager.shutdown()
        (status,) = manager.status()
        bench.close()

        assert status.problem is None
        assert (status.health.failures, status.waiting) == (0, 0)
