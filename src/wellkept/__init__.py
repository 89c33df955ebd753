"""Wellkept (command `kept`): persistent memory for LLM agents, in four tiers that work alone or together."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # for type checkers and editors; at run time a name is imported when it is first used
    from wellkept.agent.agent import Agent as Agent
    from wellkept.agent.agent import Opening as Opening
    from wellkept.app import App as App
    from wellkept.app import open_app as open_app
    from wellkept.context.engine import ContextEngine as ContextEngine
    from wellkept.context.summarising import Compressor
    from wellkept.core.errors import Refused as Refused
    from wellkept.core.ids import new_session_id as new_session_id
    from wellkept.core.messages import Message as Message
    from wellkept.core.messages import NewMessage as NewMessage
    from wellkept.core.messages import Origin as Origin
    from wellkept.core.messages import Role as Role
    from wellkept.core.messages import Session as Session
    from wellkept.core.search import SearchRequest as SearchRequest
    from wellkept.core.tools import ToolContext as ToolContext
    from wellkept.llm.prompt_caching import apply_cache_markers as apply_cache_markers
    from wellkept.memory.anthropic_files import AnthropicMemoryTool as AnthropicMemoryTool
    from wellkept.memory.page import ENTRY_DELIMITER as ENTRY_DELIMITER
    from wellkept.memory.page import Add as Add
    from wellkept.memory.page import Remove as Remove
    from wellkept.memory.page import Replace as Replace
    from wellkept.memory.settings import DEFAULT_MEMORY_CHAR_LIMIT as DEFAULT_MEMORY_CHAR_LIMIT
    from wellkept.memory.settings import DEFAULT_USER_CHAR_LIMIT as DEFAULT_USER_CHAR_LIMIT
    from wellkept.memory.store import MemoryStore as MemoryStore
    from wellkept.memory.store import Outcome as Outcome
    from wellkept.providers.base import MemoryProvider as MemoryProvider
    from wellkept.providers.manager import ProviderManager
    from wellkept.providers.manager import open_providers as open_providers
    from wellkept.security.fence import StreamingContextScrubber as StreamingContextScrubber
    from wellkept.security.fence import build_memory_context_block as build_memory_context_block
    from wellkept.security.fence import sanitize_context as sanitize_context
    from wellkept.sessions.sqlite.store import SqliteSessionStore
    from wellkept.skills.library import SkillLibrary as SkillLibrary
    from wellkept.skills.tool import SkillTools as SkillTools

    ContextCompressor: TypeAlias = Compressor
    MemoryManager: TypeAlias = ProviderManager
    SessionStore: TypeAlias = SqliteSessionStore

_HOMES = {
    "Add": "wellkept.memory.page:Add",
    "Agent": "wellkept.agent.agent:Agent",
    "AnthropicMemoryTool": "wellkept.memory.anthropic_files:AnthropicMemoryTool",
    "App": "wellkept.app:App",
    "ContextCompressor": "wellkept.context.summarising:Compressor",
    "ContextEngine": "wellkept.context.engine:ContextEngine",
    "DEFAULT_MEMORY_CHAR_LIMIT": "wellkept.memory.settings:DEFAULT_MEMORY_CHAR_LIMIT",
    "DEFAULT_USER_CHAR_LIMIT": "wellkept.memory.settings:DEFAULT_USER_CHAR_LIMIT",
    "ENTRY_DELIMITER": "wellkept.memory.page:ENTRY_DELIMITER",
    "MemoryManager": "wellkept.providers.manager:ProviderManager",
    "MemoryProvider": "wellkept.providers.base:MemoryProvider",
    "MemoryStore": "wellkept.memory.store:MemoryStore",
    "Message": "wellkept.core.messages:Message",
    "NewMessage": "wellkept.core.messages:NewMessage",
    "Opening": "wellkept.agent.agent:Opening",
    "Origin": "wellkept.core.messages:Origin",
    "Outcome": "wellkept.memory.store:Outcome",
    "Refused": "wellkept.core.errors:Refused",
    "Remove": "wellkept.memory.page:Remove",
    "Replace": "wellkept.memory.page:Replace",
    "Role": "wellkept.core.messages:Role",
    "SearchRequest": "wellkept.core.search:SearchRequest",
    "Session": "wellkept.core.messages:Session",
    "SessionStore": "wellkept.sessions.sqlite.store:SqliteSessionStore",
    "SkillLibrary": "wellkept.skills.library:SkillLibrary",
    "SkillTools": "wellkept.skills.tool:SkillTools",
    "StreamingContextScrubber": "wellkept.security.fence:StreamingContextScrubber",
    "ToolContext": "wellkept.core.tools:ToolContext",
    "apply_cache_markers": "wellkept.llm.prompt_caching:apply_cache_markers",
    "build_memory_context_block": "wellkept.security.fence:build_memory_context_block",
    "new_session_id": "wellkept.core.ids:new_session_id",
    "open_app": "wellkept.app:open_app",
    "open_providers": "wellkept.providers.manager:open_providers",
    "sanitize_context": "wellkept.security.fence:sanitize_context",
}
"""Public name → `module:name`; some have a shorter name inside, where the package gives the context."""

__version__ = "0.1.0"
__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table serves both the names and their lazy homes


if not TYPE_CHECKING:  # else a checker takes every name for known

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, so that a command loads only what it needs."""
        if name not in _HOMES:
            raise AttributeError(f"module 'wellkept' has no attribute {name!r}")
        module, _, inside = _HOMES[name].partition(":")
        return getattr(import_module(module), inside)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
