"""The choice of providers: from names in the configuration to a manager that holds them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kept.core.errors import KeptError
from kept.core.events import Warned
from kept.providers.base import BUILTIN
from kept.providers.loading import load
from kept.providers.manager import ProviderManager
from kept.providers.opening import manager_on
from kept.providers.settings import ProviderSettings
from kept.providers.surroundings import Surroundings
from kept.storage.sqlite import Database


def chosen_names(setting: str | Sequence[str] | None) -> list[str]:
    """Return the external providers that `memory.provider` names; none for null, empty or `builtin`."""
    names = [setting] if isinstance(setting, str) else list(setting or ())
    return list(dict.fromkeys(name.strip() for name in names if name.strip() and name.strip() != BUILTIN))


def open_manager(
    setting: str | Sequence[str] | None,
    *,
    plugins: Path,
    database: Database,
    settings: ProviderSettings,
    surroundings: Surroundings,
    environ: Mapping[str, str],
) -> ProviderManager | None:
    """Return a manager over the chosen providers; one that cannot be loaded is said loudly, and None means none."""
    names = chosen_names(setting)
    if not names:
        return None
    around = replace(surroundings, several=len(names) > 1)
    manager = manager_on(database, surroundings=around, settings=settings)
    for name in names:
        try:
            manager.register(load(name, plugins, environ))
        except KeptError as error:
            surroundings.sink(Warned(f"the memory provider {name!r} is not in use: {error.message}", error.remedy))
    return manager if manager.providers else None
