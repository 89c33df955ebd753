"""A provider's own file of settings, `<home>/<provider>.json`."""

import json
from collections.abc import Mapping
from pathlib import Path

from kept.core.errors import ConfigError
from kept.core.jsontypes import JSON, dumps
from kept.storage.files import make_folder, read_bytes, write_atomically

_REMEDY = "correct it, or run `kept providers setup`"


def config_path(home: Path, provider: str) -> Path:
    """Return where the settings of `provider` stand."""
    return home / f"{provider}.json"


def load_values(home: Path, provider: str) -> dict[str, JSON]:
    """Return the settings of `provider`; no file is no settings."""
    path = config_path(home, provider)
    raw = read_bytes(path)
    if raw is None or not raw.strip():
        return {}
    try:
        values = json.loads(raw)
    except ValueError as error:
        raise ConfigError(f"{str(path)!r} is not JSON: {error}", _REMEDY) from error
    if not isinstance(values, dict):
        raise ConfigError(f"{str(path)!r} does not hold an object", _REMEDY)
    return values


def save_values(home: Path, provider: str, values: Mapping[str, JSON]) -> None:
    """Set `values` in the settings of `provider`; what else stands there stays."""
    make_folder(home)
    text = dumps({**load_values(home, provider), **values}, indent=2)
    write_atomically(config_path(home, provider), f"{text}\n".encode())
