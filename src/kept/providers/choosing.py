"""The choice of providers: from names in the configuration to a manager that holds them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kept.core.errors import KeptError
from kept.core.events import Warned
from kept.providers.base import MemoryProvider
from kept.providers.discovery import load
from kept.providers.manager import BUILTIN, ProviderManager, Surroundings
from kept.providers.opening import manager_on
from kept.providers.settings import ProviderSettings
from kept.providers.setup import declared_fields
from kept.storage.sqlite import Database


def chosen_names(setting: str | Sequence[str] | None) -> list[str]:
    """Return the external providers that `memory.provider` names; none for null, empty or `builtin`."""
    names = [setting] if isinstance(setting, str) else list(setting or ())
    return list(dict.fromkeys(name.strip() for name in names if name.strip() and name.strip() != BUILTIN))


def lend_variables(provider: MemoryProvider, environ: Mapping[str, str]) -> None:
    """Put the variables that a provider declares into the process where they are missing there."""
    for field in declared_fields(provider):
        if field.env_var and environ.get(field.env_var):
            os.environ.setdefault(field.env_var, environ[field.env_var])


def open_manager(
    setting: str | Sequence[str] | None,
    *,
    plugins: Path,
    database: Database,
    settings: ProviderSettings,
    surroundings: Surroundings,
    environ: Mapping[str, str],
) -> ProviderManager | None:
    """Return a manager over the chosen providers; one that cannot be loaded is said loudly, and None means none.

    Variables that a provider declares and only `environ` knows (from `.env`) are put into the
    process, which is where plugins look for them.
    """
    names = chosen_names(setting)
    if not names:
        return None
    around = replace(surroundings, several=len(names) > 1)
    manager = manager_on(database, surroundings=around, settings=settings)
    for name in names:
        try:
            provider = load(name, plugins)
            lend_variables(provider, environ)
            manager.register(provider)
        except KeptError as error:
            surroundings.sink(Warned(f"the memory provider {name!r} is not in use: {error.message}", error.remedy))
    return manager if manager.providers else None
