"""One function for each thing that a person or an agent can do; every surface calls these.

An operation takes a `Caller` and typed arguments. It returns a dataclass with one JSON form (`as_json`), or `Refused`
where the caller can react. Other failures raise a `KeptError`. Progress is reported to the caller's sink.

A module is imported when it is first used (`operations.pages.undo`): building the results of all of them would take
a tenth of a second of every command.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wellkept.operations import (
        backup,
        capture,
        capture_limits,
        changes,
        claw,
        client_histories,
        connect,
        connect_status,
        conversation_keys,
        conversations,
        curator,
        demo,
        doctor,
        entries,
        evaluation,
        forget,
        forget_confirmation,
        forget_requests,
        hooks,
        import_sources,
        import_undo,
        imports,
        injections,
        models,
        pages,
        pairing,
        platform_messages,
        plugins,
        preview,
        profiles,
        proposals,
        providers,
        proxied_conversations,
        reading,
        recall,
        receipts,
        restore,
        search,
        service,
        sessions,
        skill_hub,
        skills,
        storage,
        tokens,
        tools,
        upkeep,
        usage,
        users,
        vector_setup,
    )

__all__ = [
    "backup",
    "capture",
    "capture_limits",
    "changes",
    "claw",
    "client_histories",
    "connect",
    "connect_status",
    "conversation_keys",
    "conversations",
    "curator",
    "demo",
    "doctor",
    "entries",
    "evaluation",
    "forget",
    "forget_confirmation",
    "forget_requests",
    "hooks",
    "import_sources",
    "import_undo",
    "imports",
    "injections",
    "models",
    "pages",
    "pairing",
    "platform_messages",
    "plugins",
    "preview",
    "profiles",
    "proposals",
    "providers",
    "proxied_conversations",
    "reading",
    "recall",
    "receipts",
    "restore",
    "search",
    "service",
    "sessions",
    "skill_hub",
    "skills",
    "storage",
    "tokens",
    "tools",
    "upkeep",
    "usage",
    "users",
    "vector_setup",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f"wellkept.operations.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
