"""One function for each thing that a person or an agent can do; every surface calls these.

An operation takes a `Caller` and typed arguments. It returns a value with one JSON form (`as_json`), or `Refused`
where the caller can react. Other failures raise a `KeptError`. Progress is reported to the caller's sink.

A module is imported when it is first used (`operations.memory.undo`): building the results of all of them would take
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
        evaluation,
        memory,
        models,
        news,
        plugins,
        profiles,
        projectfacts,
        proposals,
        providers,
        recall,
        receipts,
        search,
        sessions,
        skills,
        storage,
        systemd,
        tools,
        upkeep,
        users,
        vectors,
    )
    from wellkept.operations import memory as pages  # noqa: F401 - its former name, in programs of users

__all__ = [
    "conversations",
    "curator",
    "demo",
    "doctor",
    "evaluation",
    "memory",
    "models",
    "news",
    "plugins",
    "profiles",
    "projectfacts",
    "proposals",
    "providers",
    "recall",
    "receipts",
    "search",
    "sessions",
    "skills",
    "storage",
    "systemd",
    "tools",
    "upkeep",
    "users",
    "vectors",
]

__getattr__ = load_on_use(__name__, __all__, former={"pages": "memory"})
