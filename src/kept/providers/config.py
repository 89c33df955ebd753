"""A provider's own settings: a dataclass, its file `<home>/<provider>.json`, and what setup asks for it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar, get_args, get_origin

from kept.core.errors import ConfigError
from kept.core.settings import InvalidSetting, build, fields
from kept.core.text import JSON, dumps
from kept.storage.files import make_folder, read_bytes, write_atomically

T = TypeVar("T")
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


def load_settings(kind: type[T], home: Path, provider: str) -> T:
    """Return the settings of `provider` as the dataclass `kind`; keys of other programs are passed over."""
    section: type = kind
    own = {key: value for key, value in load_values(home, provider).items() if key in fields(section)}
    try:
        settings: T = build(section, own)
    except InvalidSetting as unfit:
        raise ConfigError(f"{provider}.json: {unfit}", f"accepted: {unfit.accepted}") from None
    return settings


def questions(kind: type, texts: Mapping[str, str]) -> list[Mapping[str, JSON]]:
    """Return what setup asks for the dataclass `kind`: a question per text, with its default and choices."""
    defaults, annotations = kind(), fields(kind)
    return [
        {"key": key, "description": text, "default": getattr(defaults, key), "choices": _choices(annotations[key])}
        for key, text in texts.items()
    ]


def _choices(annotation: object) -> list[JSON]:
    if annotation is bool:
        return [False, True]
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


def save_values(home: Path, provider: str, values: Mapping[str, JSON]) -> None:
    """Set `values` in the settings of `provider`; what else stands there stays."""
    make_folder(home)
    text = dumps({**load_values(home, provider), **values}, indent=2)
    write_atomically(config_path(home, provider), f"{text}\n".encode())
