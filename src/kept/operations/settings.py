"""Settings: every value with its origin."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kept.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kept.app.caller import Caller
    from kept.core.text import JSON


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The asked-for settings by name: value and origin."""

    rows: Mapping[str, tuple[JSON, str]]

    def as_json(self) -> dict[str, JSON]:
        """Return value and origin by name."""
        return {name: {"value": value, "origin": origin} for name, (value, origin) in self.rows.items()}


def show_settings(caller: Caller, key: str | None = None) -> SettingsView:
    """Return every setting, one section or one setting; raises UsageError for an unknown name."""
    from kept.config.settings import known_keys, nearest

    rows: dict[str, tuple[JSON, str]] = {}
    values = asdict(caller.app.settings)
    for name in known_keys():
        if key in (None, name) or name.startswith(f"{key}."):
            value = values
            for part in name.split("."):
                value = value[part]
            rows[name] = (value, caller.app.origins.get(name, "default"))
    if not rows:
        names = [*known_keys(), *{name.rpartition(".")[0] for name in known_keys()}]
        raise UsageError(f"there is no setting {key!r}{nearest(key or '', names)}", "`kept config show` lists all")
    return SettingsView(rows)
