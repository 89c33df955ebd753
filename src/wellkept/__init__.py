"""Kept: persistent memory for LLM agents, in four tiers that work alone or together."""

from importlib import import_module
from typing import Any

_HOMES = {
    "Add": "wellkept.memory.page:Add",
    "Agent": "wellkept.agent.agent:Agent",
    "AnthropicMemoryTool": "wellkept.agent.memory_files:AnthropicMemoryTool",
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
    "apply_cache_markers": "wellkept.prompt.tiers:apply_cache_markers",
    "build_memory_context_block": "wellkept.security.fence:build_memory_context_block",
    "new_session_id": "wellkept.core.ids:new_session_id",
    "open_app": "wellkept.app:open_app",
    "open_providers": "wellkept.providers.manager:open_providers",
    "sanitize_context": "wellkept.security.fence:sanitize_context",
}
"""Public name → `module:name`; some have a shorter name inside, where the package gives the context."""

__version__ = "0.1.0"
__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table serves both the names and their lazy homes


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that a command loads only what it needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'wellkept' has no attribute {name!r}")
    module, _, inside = _HOMES[name].partition(":")
    return getattr(import_module(module), inside)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
