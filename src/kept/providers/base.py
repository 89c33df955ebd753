"""The port of external memories: what a provider must do, may do, and is told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from kept.core.errors import ProviderError
from kept.core.text import JSON

BUILTIN = "builtin"
"""The name of built-in memory; it is not external and does not count as a provider."""
Messages: TypeAlias = Sequence[Mapping[str, JSON]]
"""A conversation as providers get it: objects with `role`, `content` and, for calls, `tool_calls`."""
MemoryAction = Literal["add", "replace", "remove"]
AgentContext = Literal["primary", "cron", "subagent", "flush"]


class Rejected(ProviderError):
    """The back end will never take this write, however often it is sent: too long, malformed, not allowed."""

    permanent = True


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What a command of a provider found: in words for people, as JSON for `--json`."""

    text: str
    value: JSON


@dataclass(frozen=True, slots=True)
class ProviderCommand:
    """A command that a provider brings to the command line: `kept providers do NAME [WORDS]…`."""

    name: str
    summary: str
    run: Callable[[Sequence[str]], CommandAnswer]
    """Given the words after its name; called once the provider is initialized."""


class MemoryProvider:
    """An external memory; plugins inherit from this class, so that a hook they lack does nothing.

    Methods are plain and synchronous; the manager calls them from threads of its own, several at
    once. A hook is given only the keyword arguments that its signature names (or all, with `**`).
    A hook that raises is logged, counted and, for writes, tried again; what is queued behind it waits. One
    that raises `Rejected`, or any error with `permanent = True`, says that this write will never be taken:
    it is set aside, and what is behind it goes on.
    """

    @property
    def name(self) -> str:
        """Return the name that the configuration uses."""
        raise NotImplementedError

    def is_available(self) -> bool:
        """Tell whether it could start here: configured and installed. Fast, without the network."""
        raise NotImplementedError

    def initialize(self, session_id: str, **context: Any) -> None:
        """Get ready; `context` holds `kept_home` and everything else that `StartContext` names."""
        raise NotImplementedError

    def get_tool_schemas(self) -> Sequence[Mapping[str, JSON]]:
        """Return the tools that it brings: `name`, `description`, `parameters` (JSON Schema)."""
        raise NotImplementedError

    def handle_tool_call(self, name: str, args: Mapping[str, JSON], **context: Any) -> str:
        """Run one of its tools and return JSON text."""
        raise NotImplementedError

    def system_prompt_block(self) -> str:
        """Return text that stands in the system prompt for the whole session."""
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - the port's signature
        """Return what it recalls for the user's message, as text."""
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Warm the next recall; called after each finished turn."""

    def sync_turn(self, user: str, assistant: str, *, session_id: str = "", messages: Messages = ()) -> None:
        """Keep a finished exchange; a parameter `idempotency_key` is told the key of the delivery."""

    def on_turn_start(self, turn: int, message: str, **context: Any) -> None:
        """Hear that turn number `turn` begins."""

    def on_session_end(self, messages: Messages) -> None:
        """Hear that a session ended, or is committed before its id changes."""

    def on_session_switch(
        self, new_id: str, *, parent_session_id: str = "", reset: bool = False, reason: str = ""
    ) -> None:
        """Hear that the conversation goes on under another id; refresh what was cached for the old one."""

    def on_pre_compress(self, messages: Messages) -> str:  # noqa: ARG002 - the port's signature
        """Save what matters before a compaction, and return text for the summary."""
        return ""

    def on_memory_write(
        self, action: MemoryAction, target: str, content: str, metadata: Mapping[str, JSON] | None = None
    ) -> None:
        """Mirror a write to the built-in pages; `content` is the new entry, or the removed one in full."""

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "") -> None:
        """Hear what a sub-agent did."""

    def shutdown(self) -> None:
        """Flush and close."""

    def get_config_schema(self) -> Sequence[Mapping[str, JSON]]:
        """Return the fields that `kept providers setup` asks for."""
        return ()

    def save_config(self, values: Mapping[str, JSON], home: str) -> None:
        """Keep the answers that are no secrets; by default they go to `<home>/<name>.json`."""
        from kept.providers.config import save_values

        save_values(Path(home), self.name, values)

    def get_status(self) -> Mapping[str, JSON]:
        """Return facts for `kept providers status`; no secrets."""
        return {}

    def get_commands(self) -> Sequence[ProviderCommand]:
        """Return commands of its own, offered while it is in use; asked before `initialize`."""
        return ()

    def backup_paths(self) -> Sequence[str]:
        """Return files and folders outside the home that a backup must include."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """What `initialize` is told beside the session id."""

    kept_home: str
    platform: str = "cli"
    agent_context: AgentContext = "primary"
    """Providers, and the manager for them, write nothing unless this is `primary`."""
    agent_identity: str = "default"
    """The profile."""
    agent_workspace: str = ""
    """The project."""
    parent_session_id: str = ""
    user_id: str = "owner"
    user_name: str = ""
    chat_id: str = ""
    chat_name: str = ""
    chat_type: str = ""
    thread_id: str = ""
    gateway_session_key: str = ""
    session_title: str = ""

    def keywords(self) -> dict[str, JSON]:
        """Return the context as keyword arguments, the home also under the name that older plugins know."""
        own: dict[str, JSON] = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own, "hermes_home": self.kept_home}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One applied step on a page, as the ledger of curated memory keeps it."""

    ledger_id: int
    action: MemoryAction
    target: str
    before: str | None
    after: str | None
    origin: str
    session_id: str | None = None
    user_id: str | None = None
    platform: str = ""
    tool_name: str = "memory"


class LedgerReader(Protocol):
    """Reads the ledger of curated memory; the app hands it in, because tiers are blind to each other."""

    def since(self, ledger_id: int) -> Sequence[LedgerRow]:
        """Return the applied steps after `ledger_id`, oldest first; 0 asks for all."""
        ...
