"""Reading the settings: defaults, then the file, then the environment, each value with its origin."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kept.config.home import Home
from kept.config.settings import Settings
from kept.config.shape import known_keys, nearest
from kept.core.errors import ConfigError, Unreadable
from kept.core.settings import InvalidSetting, build, fields, is_section
from kept.storage.files import read_bytes

ENV_PREFIX = "KEPT_"
_WORDS = {"null": None, "none": None, "true": True, "false": False, "yes": True, "no": False}
_SHARED_KEYS = ("memory_enabled", "user_profile_enabled", "memory_char_limit", "user_char_limit")
"""Settings of curated memory that mean the same to another agent whose home we share."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, where each one came from, and what was odd on the way."""

    settings: Settings
    origins: Mapping[str, str]
    """Dotted key → `config.yaml:12`, `KEPT_MEMORY__OVERFLOW`; a key that is absent has its default."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Gathered:
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def load(home: Home, environ: Mapping[str, str]) -> Loaded:
    """Return the settings of `home`, or raise ConfigError with the file, the line and what is accepted."""
    gathered = _Gathered()
    if home.foreign_config_file is not None:
        _take_foreign(home.foreign_config_file, gathered)
    document = read_document(home.config_file)
    if document is not None:
        _take_section(home.config_file, document, Settings, gathered=gathered, into=gathered.values)
    _take_environment(environ, gathered)
    try:
        settings = build(Settings, gathered.values)
    except InvalidSetting as unfit:
        origin = _nearest_origin(unfit.key, gathered.origins)
        where = str(home.path / origin) if ":" in origin else origin or str(home.config_file)
        raise ConfigError(f"{where}: {unfit}", f"accepted: {unfit.accepted}") from None
    return Loaded(settings, gathered.origins, tuple(gathered.warnings))


def read_document(path: Path) -> Any:
    """Return the YAML document at `path` with comments and line numbers, None when there is no text."""
    raw = read_bytes(path)
    if raw is None or not raw.strip():
        return None
    try:
        return parsed(raw.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        raise Unreadable(f"{str(path)!r} is not UTF-8 text", "save it as UTF-8") from error


def parsed(text: str, path: Path = Path("config.yaml")) -> Any:
    """Return the document in a YAML text; errors name `path` and the line."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yaml = YAML()
        yaml.preserve_quotes = True
        document = yaml.load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}", "mend that line") from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}", "mend the file") from None
    if document is not None and not isinstance(document, dict):
        raise ConfigError(f"{path}:1: the file must hold `section:` blocks", "see docs/configuration.md")
    return document


def _take_section(
    path: Path, node: Any, section: type, *, gathered: _Gathered, into: dict[str, Any], prefix: str = ""
) -> None:
    for name, value in node.items():
        key, line = f"{prefix}{name}", _line(node, name)
        annotation = fields(section).get(str(name))
        if annotation is None:
            hint = nearest(str(name), fields(section))
            gathered.warnings.append(f"{path}:{line}: unknown setting {key!r} is ignored{hint}")
            continue
        gathered.origins[key] = f"{path.name}:{line}"
        if is_section(annotation) and isinstance(value, dict):
            inner = into.setdefault(str(name), {})
            _take_section(path, value, annotation, gathered=gathered, into=inner, prefix=f"{key}.")
        elif not (is_section(annotation) and value is None):
            into[str(name)] = _plain(value)


def _line(node: Any, name: Any) -> int:
    try:
        return int(node.lc.key(name)[0]) + 1
    except (KeyError, TypeError):  # the key came by a YAML merge (`<<`), which has no line of its own
        return int(node.lc.line) + 1


def _take_foreign(path: Path, gathered: _Gathered) -> None:
    """Take from another agent's file the keys that mean the same; whatever does not fit is theirs."""
    try:
        memory: Any = (read_document(path) or {}).get("memory")
    except (ConfigError, Unreadable):
        return
    for name in _SHARED_KEYS:
        if not isinstance(memory, dict) or name not in memory:
            continue
        try:
            build(Settings, {"memory": {name: memory[name]}})
        except InvalidSetting:
            continue
        put(gathered.values, f"memory.{name}", memory[name])
        gathered.origins[f"memory.{name}"] = f"{path.name}:{_line(memory, name)}"


def _take_environment(environ: Mapping[str, str], gathered: _Gathered) -> None:
    given = {name: text for name, text in environ.items() if name.startswith(ENV_PREFIX) and "__" in name}
    if not given:
        return
    keys = {key.upper().replace(".", "__"): key for key in known_keys()}
    for variable, text in sorted(given.items()):
        key = keys.get(variable.removeprefix(ENV_PREFIX))
        if key is None:
            hint = nearest(variable, [ENV_PREFIX + name for name in keys])
            gathered.warnings.append(f"unknown variable {variable} is ignored{hint}")
            continue
        put(gathered.values, key, from_text(key, text))
        gathered.origins[key] = variable


def put(values: Any, key: str, value: Any) -> None:
    """Set a dotted key in nested dictionaries."""
    *sections, name = key.split(".")
    for section in sections:
        if not isinstance(values.get(section), dict):
            values[section] = {}
        values = values[section]
    values[name] = value


def from_text(key: str, text: str) -> Any:
    """Read a value as a person types it: JSON, a YAML list or block, words, or words with commas between."""
    readings: list[Any] = [_WORDS.get(text.strip().lower(), text), text]
    readings.append([word.strip() for word in text.split(",")])
    if text.lstrip().startswith(("[", "{")):
        with suppress(ConfigError):
            readings.insert(0, _plain(parsed(f"value: {text}")["value"]))
    with suppress(ValueError, RecursionError):
        readings.insert(0, json.loads(text))
    for value in readings:
        values: dict[str, Any] = {}
        put(values, key, value)
        with suppress(InvalidSetting):
            build(Settings, values)
            return value
    return readings[0]


def _plain(value: Any) -> Any:
    """Return YAML's annotated containers as plain ones."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case str():
            return str(value)
        case _:
            return value


def _nearest_origin(key: str, origins: Mapping[str, str]) -> str:
    while key and key not in origins:
        key = key.rpartition(".")[0]
    return origins.get(key, "")
