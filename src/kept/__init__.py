"""Kept: persistent memory for LLM agents, in four tiers that work alone or together."""

from importlib import import_module
from typing import Any

_HOMES = {
    "Add": "kept.memory.edits:Add",
    "Agent": "kept.agent.agent:Agent",
    "AnthropicMemoryTool": "kept.agent.memory_files:AnthropicMemoryTool",
    "App": "kept.app:App",
    "ContextCompressor": "kept.context.summarising:Compressor",
    "ContextEngine": "kept.context.engine:ContextEngine",
    "DEFAULT_MEMORY_CHAR_LIMIT": "kept.memory.settings:DEFAULT_MEMORY_CHAR_LIMIT",
    "DEFAULT_USER_CHAR_LIMIT": "kept.memory.settings:DEFAULT_USER_CHAR_LIMIT",
    "ENTRY_DELIMITER": "kept.memory.page:ENTRY_DELIMITER",
    "MemoryManager": "kept.providers.manager:ProviderManager",
    "MemoryProvider": "kept.providers.base:MemoryProvider",
    "MemoryStore": "kept.memory.store:MemoryStore",
    "Message": "kept.core.messages:Message",
    "NewMessage": "kept.core.messages:NewMessage",
    "Opening": "kept.agent.agent:Opening",
    "Origin": "kept.core.messages:Origin",
    "Outcome": "kept.memory.store:Outcome",
    "Refused": "kept.core.errors:Refused",
    "Remove": "kept.memory.edits:Remove",
    "Replace": "kept.memory.edits:Replace",
    "Role": "kept.core.messages:Role",
    "SearchRequest": "kept.core.search:SearchRequest",
    "Session": "kept.core.messages:Session",
    "SessionStore": "kept.sessions.sqlite.store:SqliteSessionStore",
    "SkillLibrary": "kept.skills.library:SkillLibrary",
    "SkillTools": "kept.skills.tool:SkillTools",
    "StreamingContextScrubber": "kept.security.fence:StreamingContextScrubber",
    "ToolContext": "kept.core.tools:ToolContext",
    "apply_cache_markers": "kept.prompt.tiers:apply_cache_markers",
    "build_memory_context_block": "kept.security.fence:build_memory_context_block",
    "new_session_id": "kept.core.ids:new_session_id",
    "open_app": "kept.app:open_app",
    "open_providers": "kept.providers.manager:open_providers",
    "sanitize_context": "kept.security.fence:sanitize_context",
}
"""Public name → `module:name`; some have a shorter name inside, where the package gives the context."""

__version__ = "0.1.0"
__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table serves both the names and their lazy homes


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that a command loads only what it needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kept' has no attribute {name!r}")
    module, _, inside = _HOMES[name].partition(":")
    return getattr(import_module(module), inside)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
