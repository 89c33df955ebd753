"""The port of external memories: the base class that providers inherit from, and the values it uses."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from wellkept.core.errors import ProviderError
from wellkept.core.text import JSON
from wellkept.core.values import hide

BUILTIN = "builtin"
"""The name of built-in memory; it is not external and does not count as a provider."""
Messages: TypeAlias = Sequence[Mapping[str, JSON]]
"""A conversation as providers get it: objects with `role`, `content` and, for calls, `tool_calls`."""
MemoryAction = Literal["add", "replace", "remove"]
AgentContext = Literal["primary", "cron", "subagent", "flush"]


class Rejected(ProviderError):
    """The back end will never accept this write: it is too long, malformed or not allowed."""

    permanent = True


class CommandAnswer(Struct, frozen=True):
    """The result of a provider's command: text for people, JSON for `--json`."""

    text: str
    value: JSON


class ProviderCommand(Struct, frozen=True):
    """A command that a provider adds to the command line: `kept providers do NAME [WORDS]…`."""

    name: str
    summary: str
    run: Callable[[Sequence[str]], CommandAnswer]
    """Called with the words after its name, once the provider is initialized."""


class ForgetRequest(Struct, frozen=True, kw_only=True):
    """What a provider must delete for the user it was started for; each field selects on its own."""

    texts: tuple[str, ...] = ()
    """Everything that contains one of these texts, ignoring case."""
    session_ids: tuple[str, ...] = ()
    """Everything that came from these sessions."""
    everything: bool = False

    __repr__ = hide("texts")


class Forgotten(Struct, frozen=True):
    """What a provider deleted, with a note if it could not delete exactly what was asked for."""

    removed: int
    note: str = ""
    """What was done instead; contains none of the content."""


class MemoryProvider:
    """An external memory; plugins inherit from this class, so that a hook they lack does nothing.

    Methods are synchronous; the manager calls them from its own threads, several at once. A hook gets only
    the keyword arguments that its signature names (or all, with `**`). If a hook raises, the error is logged
    and counted; a write is retried, and the writes queued behind it wait. `Rejected`, or any error with
    `permanent = True`, means that this write will never be accepted: it is set aside, and the next is delivered.
    """

    @property
    def name(self) -> str:
        """Return the name that the configuration uses."""
        raise NotImplementedError

    def is_available(self) -> bool:
        """Return whether it is configured and installed. Must be fast and not use the network."""
        raise NotImplementedError

    def initialize(self, session_id: str, **context: Any) -> None:
        """Start; `context` holds `kept_home` and the other fields of `StartContext`."""
        raise NotImplementedError

    def wait_until_ready(self, seconds: float) -> None:
        """Wait until a back end that `initialize` started answers; only setup and the test wait, never a turn."""

    def get_tool_schemas(self) -> Sequence[Mapping[str, JSON]]:
        """Return its tools: `name`, `description`, `parameters` (JSON Schema)."""
        raise NotImplementedError

    def handle_tool_call(self, name: str, args: Mapping[str, JSON], **context: Any) -> str:
        """Run one of its tools and return JSON text."""
        raise NotImplementedError

    def system_prompt_block(self) -> str:
        """Return text for the system prompt, used for the whole session."""
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - the port's signature
        """Return text that it recalls for the user's message."""
        return ""

    def recall(self, query: str, *, session_id: str = "") -> str:
        """Return what it knows about an explicit question, also in a mode without `prefetch`."""
        return self.prefetch(query, session_id=session_id)

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Warm the next recall; called after each finished turn."""

    def sync_turn(self, user: str, assistant: str, *, session_id: str = "", messages: Messages = ()) -> None:
        """Store a finished exchange; a parameter `idempotency_key` receives the key of the delivery."""

    def on_turn_start(self, turn: int, message: str, **context: Any) -> None:
        """React to the start of turn number `turn`."""

    def on_session_end(self, messages: Messages) -> None:
        """React to the end of a session; also called before its id changes."""

    def on_session_switch(
        self, new_id: str, *, parent_session_id: str = "", reset: bool = False, reason: str = ""
    ) -> None:
        """Continue under another session id; refresh what was cached for the old one."""

    def on_pre_compress(self, messages: Messages) -> str:  # noqa: ARG002 - the port's signature
        """Save what matters before a compaction, and return text for the summary."""
        return ""

    def on_memory_write(
        self, action: MemoryAction, target: str, content: str, metadata: Mapping[str, JSON] | None = None
    ) -> None:
        """Mirror a write to the built-in pages; `content` is the new entry, or the removed one in full."""

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "") -> None:
        """React to the result of a sub-agent."""

    def forget_content(self, request: ForgetRequest) -> int | Forgotten | None:  # noqa: ARG002 - the port's signature
        """Delete what `request` selects for good, with its bytes; return how many items, or a `Forgotten`.

        A provider that cannot delete returns None; `kept forget` then names it to the user.
        """
        return None

    def holds_content(self, request: ForgetRequest) -> bool | None:  # noqa: ARG002 - the port's signature
        """Return whether anything that `request` selects is still stored; None if it cannot tell."""
        return None

    def shutdown(self) -> None:
        """Flush and close."""

    def get_config_schema(self) -> Sequence[Mapping[str, JSON]]:
        """Return the fields that `kept providers setup` asks for."""
        return ()

    def check_config(self, values: Mapping[str, JSON], variables: Collection[str]) -> None:
        """Raise an error that says what is wrong with the answers; `variables` are those with a value."""

    def save_config(self, values: Mapping[str, JSON], home: str) -> None:
        """Store the answers that are not secrets; by default in `<home>/<name>.json`."""
        from wellkept.providers.config import save_values

        save_values(Path(home), self.name, values)

    def get_status(self) -> Mapping[str, JSON]:
        """Return facts for `kept providers status`; no secrets."""
        return {}

    def get_commands(self) -> Sequence[ProviderCommand]:
        """Return its own commands, offered while it is in use; called before `initialize`."""
        return ()

    def backup_paths(self) -> Sequence[str]:
        """Return files and folders outside the home that a backup must include."""
        return ()


class ChatContext(Struct, frozen=True, kw_only=True):
    """The chat in which a conversation takes place; empty outside of chat platforms."""

    user_name: str = ""
    """The name of the person, as the platform shows it; empty where several people share the conversation."""
    chat_id: str = ""
    chat_name: str = ""
    chat_type: str = ""
    thread_id: str = ""
    gateway_session_key: str = ""


class StartContext(Struct, frozen=True, kw_only=True):
    """The context that `initialize` gets in addition to the session id."""

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
        """Return the context as keyword arguments, the home also under the name that older plugins use."""
        own: dict[str, JSON] = {name: getattr(self, name) for name in self.__struct_fields__}
        return {**own, "hermes_home": self.kept_home}


class LedgerRow(Struct, frozen=True, kw_only=True):
    """One applied edit of a page, as stored in the ledger of curated memory."""

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
    project: str | None = None
    """The folder of the project whose page it is, for the target `project`."""
    source: str | None = None
    """Where the text came from, if it did not come from its author alone."""


class LedgerReader(Protocol):
    """Reads the ledger of curated memory; the app passes it in, because tiers do not import each other."""

    def since(self, ledger_id: int) -> Sequence[LedgerRow]:
        """Return the applied edits after `ledger_id`, oldest first; 0 returns all."""
        ...
