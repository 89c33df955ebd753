"""Kept: persistent memory for LLM agents, in four tiers that work alone or together."""

from importlib import import_module
from typing import Any

_HOMES = {
    "Add": "kept.memory.edits",
    "DEFAULT_MEMORY_CHAR_LIMIT": "kept.memory.settings",
    "DEFAULT_USER_CHAR_LIMIT": "kept.memory.settings",
    "ENTRY_DELIMITER": "kept.memory.page",
    "MemoryStore": "kept.memory.store",
    "Outcome": "kept.memory.store",
    "Refused": "kept.core.refusal",
    "Remove": "kept.memory.edits",
    "Replace": "kept.memory.edits",
}

__version__ = "0.1.0"
__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table serves both the names and their lazy homes


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that a command loads only what it needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kept' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
