"""A provider that records its calls and fails on request."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kept.core.text import JSON
from kept.providers.base import MemoryProvider, Messages

Fault = Callable[[], Any]
"""Runs before a hook: it may raise, hang, or return garbage instead; None lets the hook run."""


@dataclass(frozen=True, slots=True)
class Told:
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
        self.calls: list[Told] = []
        self.faults: dict[str, Fault] = {}
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        """Return the name it was given."""
        return self._name

    def told(self, hook: str) -> list[Told]:
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
            self.calls.append(Told(hook, args, keywords))
        return default
