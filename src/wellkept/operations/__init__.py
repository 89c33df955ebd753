"""One function for each thing that a person or an agent can do; every surface calls these.

An operation takes a `Caller` and typed arguments. It returns a value with one JSON form (`as_json`), or `Refused`
where the caller can react. Other failures raise a `KeptError`. Progress is reported to the caller's sink.

A module is imported when it is first used (`operations.pages.undo`): building the results of all of them would take
a tenth of a second of every command.
"""

from typing import TYPE_CHECKING

from wellkept.core.text import load_on_use

if TYPE_CHECKING:
    from wellkept.operations import (
        conversations,
        curator,
        demo,
        doctor,
        entries,
        evaluation,
        models,
        news,
        pages,
        plugins,
        profiles,
        proposals,
        providers,
        recall,
        receipts,
        search,
        sessions,
        skill_hub,
        skills,
        storage,
        systemd,
        tools,
        upkeep,
        usage,
        users,
        vectors,
    )

__all__ = [
    "conversations",
    "curator",
    "demo",
    "doctor",
    "entries",
    "evaluation",
    "models",
    "news",
    "pages",
    "plugins",
    "profiles",
    "proposals",
    "providers",
    "recall",
    "receipts",
    "search",
    "sessions",
    "skill_hub",
    "skills",
    "storage",
    "systemd",
    "tools",
    "upkeep",
    "usage",
    "users",
    "vectors",
]

__getattr__ = load_on_use(__name__, __all__)
