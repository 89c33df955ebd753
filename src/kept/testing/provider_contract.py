"""The contract of every memory provider: one suite, run against each implementation."""

import json
import threading
from pathlib import Path
from typing import Any

from kept.core.tools import ToolContext
from kept.providers.base import MemoryProvider, StartContext
from kept.providers.config import declared_fields, resolve_answers
from kept.providers.content import tool_schemas
from kept.providers.hooks import call_hook
from kept.testing.provider_bench import Bench

MESSAGES = [{"role": "user", "content": "I live in Graz."}, {"role": "assistant", "content": "Noted."}]


class ProviderContract:
    """Inherit from it and return a new provider from `provider`; supply yourself what it needs (a server, keys)."""

    mirrors = True
    """Whether the back end mirrors writes to the pages."""

    def provider(self) -> MemoryProvider:
        """Return a provider that is not initialised."""
        raise NotImplementedError

    def known(self, provider: MemoryProvider, text: str) -> bool:
        """Tell whether the back end contains `text`; only called if `mirrors` is true."""
        raise NotImplementedError

    def started(self, home: Path, **context: Any) -> MemoryProvider:
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
        provider = self.started(tmp_path)
        declared = list(provider.get_tool_schemas())
        usable = list(tool_schemas(provider.name, declared))

        assert len(usable) == len(declared)
        assert len({schema.name for schema in usable}) == len(usable)
        assert all(schema.description for schema in usable)
        provider.shutdown()

    def test_bad_arguments_are_answered_with_json(self, tmp_path: Path) -> None:
        """Whatever arguments a model invents, a tool answers with an object and does not raise."""
        provider = self.started(tmp_path)
        for schema in tool_schemas(provider.name, provider.get_tool_schemas()):
            for arguments in ({}, {"action": None}, {"action": "search", "query": []}, {"query": "x" * 10_000}):
                answer = json.loads(provider.handle_tool_call(schema.name, arguments, session_id="contract"))
                assert isinstance(answer, dict)
        provider.shutdown()

    def test_every_hook_can_be_called(self, tmp_path: Path) -> None:
        """With the arguments of the port, in the order of a session's life."""
        provider = self.started(tmp_path)

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
        provider = self.started(tmp_path)
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

    def test_nothing_is_written_outside_primary_contexts(self, tmp_path: Path) -> None:
        """A scheduled run leaves no trace."""
        if not self.mirrors:
            return
        provider = self.started(tmp_path, agent_context="cron")
        provider.on_memory_write("add", "user", "Prefers oolong tea", {"ledger_id": 1})

        assert not self.known(provider, "Prefers oolong tea")
        provider.shutdown()

    def test_hooks_run_from_several_threads(self, tmp_path: Path) -> None:
        """The manager calls recall, tools and writes at once."""
        provider = self.started(tmp_path)
        errors: list[BaseException] = []

        def busy(number: int) -> None:
            try:
                for round_ in range(5):
                    told: Any = {"ledger_id": number * 100 + round_, "before": None}
                    provider.on_memory_write("add", "memory", f"Fact {number} {round_} about tea", told)
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
