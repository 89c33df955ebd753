"""Reads the settings (defaults, file, environment) with the origin of each value, and the secrets file `.env`."""

import json
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from wellkept.config.home import Home
from wellkept.config.settings import Settings, find_default, find_guard_of, known_keys, nearest
from wellkept.core.agency import find_agent
from wellkept.core.errors import ConfigError, Unreadable, UsageError
from wellkept.core.settings import InvalidSetting, build, fields, is_section
from wellkept.storage.files import make_folder, read_bytes, write_atomically
from wellkept.storage.locks import hold_lock

ENV_PREFIX = "KEPT_"
_WORDS = {"null": None, "none": None, "true": True, "false": False, "yes": True, "no": False}
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_LINE = r"(?s)\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)"
_QUOTED = r"""(?s)(?:"((?:[^"\\]|\\.)*)"|'([^']*)')(?:\s+#.*)?"""
_SHARED_KEYS = ("memory_enabled", "user_profile_enabled", "memory_char_limit", "user_char_limit")
"""Settings of curated memory with the same meaning in another agent whose home we share."""


class Loaded(Struct, frozen=True):
    """The effective settings, the origin of each, and warnings."""

    settings: Settings
    origins: Mapping[str, str]
    """Dotted key → `config.yaml:12` or `KEPT_MEMORY__OVERFLOW`; absent keys have their defaults."""
    warnings: tuple[str, ...]


class _Collected(Struct, frozen=True):
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def load(home: Home, environ: Mapping[str, str]) -> Loaded:
    """Return the settings of `home`, or raise ConfigError with the file, line and accepted values."""
    collected = _Collected()
    if home.foreign_config_file is not None:
        _take_foreign(home.foreign_config_file, collected)
    document = read_document(home.config_file)
    if document is not None:
        _take_section(home.config_file, document, Settings, collected=collected, into=collected.values)
    _take_environment(environ, collected, own=home.env_file)
    try:
        settings = build(Settings, collected.values)
    except InvalidSetting as invalid:
        origin = _nearest_origin(invalid.key, collected.origins)
        where = str(home.path / origin) if ":" in origin else origin or str(home.config_file)
        raise ConfigError(f"{where}: {invalid}", f"accepted: {invalid.accepted}") from None
    return Loaded(settings, collected.origins, tuple(collected.warnings))


def read_document(path: Path) -> Any:
    """Return the YAML document at `path` with comments and line numbers, or None if it is empty or missing."""
    raw = read_bytes(path)
    if raw is None or not raw.strip():
        return None
    try:
        return parse_yaml(raw.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        raise Unreadable(f"{str(path)!r} is not UTF-8 text", "save it as UTF-8") from error


def parse_yaml(text: str, path: Path = Path("config.yaml")) -> Any:
    """Parse a YAML text; errors name `path` and the line."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yaml = YAML()
        yaml.preserve_quotes = True
        document = yaml.load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}", "correct that line") from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}", "correct the file") from None
    if document is not None and not isinstance(document, dict):
        raise ConfigError(f"{path}:1: the file must contain `section:` blocks", "see docs/configuration.md")
    return document


def _take_section(
    path: Path, node: Any, section: type, *, collected: _Collected, into: dict[str, Any], prefix: str = ""
) -> None:
    for name, value in node.items():
        key, line = f"{prefix}{name}", _line(node, name)
        annotation = fields(section).get(str(name))
        if annotation is None:
            hint = nearest(str(name), fields(section))
            collected.warnings.append(f"{path}:{line}: unknown setting {key!r} is ignored{hint}")
            continue
        collected.origins[key] = f"{path.name}:{line}"
        if is_section(annotation) and isinstance(value, dict):
            inner = into.setdefault(str(name), {})
            _take_section(path, value, annotation, collected=collected, into=inner, prefix=f"{key}.")
        elif not (is_section(annotation) and value is None):
            into[str(name)] = _plain(value)


def _line(node: Any, name: Any) -> int:
    try:
        return int(node.lc.key(name)[0]) + 1
    except (KeyError, TypeError):  # the key comes from a YAML merge (`<<`), which has no line
        return int(node.lc.line) + 1


def _take_foreign(path: Path, collected: _Collected) -> None:
    """Take the shared keys from another agent's file; ignore values that are invalid here."""
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
        put(collected.values, f"memory.{name}", memory[name])
        collected.origins[f"memory.{name}"] = f"{path.name}:{_line(memory, name)}"


def _take_environment(environ: Mapping[str, str], collected: _Collected, *, own: Path) -> None:
    """Add the settings of the environment; in a process of an agent, none protects less than the files of the home."""
    given = {name: text for name, text in environ.items() if name.startswith(ENV_PREFIX) and "__" in name}
    if not given:
        return
    keys = {key.upper().replace(".", "__"): key for key in known_keys()}
    for variable, text in sorted(given.items()):
        key = keys.get(variable.removeprefix(ENV_PREFIX))
        if key is None:
            hint = nearest(variable, [ENV_PREFIX + name for name in keys])
            collected.warnings.append(f"unknown variable {variable} is ignored{hint}")
            continue
        value = from_text(key, text)
        is_own = read_secrets(own).get(variable) == text
        if _is_loosened(collected.values, key, value) and not is_own and find_agent(environ):
            collected.warnings.append(f"{variable} is ignored: only a person can make {key} protect less")
            continue
        put(collected.values, key, value)
        collected.origins[key] = variable


def _is_loosened(values: Any, key: str, value: Any) -> bool:
    """Whether a value protects less than the present one; a setting without an order of values has no such value."""
    guard, node = find_guard_of(key), values
    for name in key.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return (
        guard is not None
        and bool(guard.values or guard.forbids)
        and guard.loosens(find_default(key) if node is None else node, value)
    )


def put(values: Any, key: str, value: Any) -> None:
    """Set a dotted key in nested dictionaries."""
    *sections, name = key.split(".")
    for section in sections:
        if not isinstance(values.get(section), dict):
            values[section] = {}
        values = values[section]
    values[name] = value


def from_text(key: str, text: str) -> Any:
    """Parse a value as a user types it: JSON, a YAML list or block, a word, or comma-separated words."""
    readings: list[Any] = [_WORDS.get(text.strip().lower(), text), text]
    readings.append([word.strip() for word in text.split(",")])
    if text.lstrip().startswith(("[", "{")):
        with suppress(ConfigError):
            readings.insert(0, _plain(parse_yaml(f"value: {text}")["value"]))
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
    """Convert YAML's annotated containers to plain ones."""
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


def read_secrets(path: Path) -> dict[str, str]:
    """Return the variables in `path`; lines that are not assignments are ignored."""
    return {match[1]: _unquote(match[2].rstrip()) for line in _lines(path) if (match := re.fullmatch(_LINE, line))}


def with_secrets(environ: Mapping[str, str], path: Path) -> dict[str, str]:
    """Return the secrets of `path` overlaid by the environment, which takes precedence."""
    return {**read_secrets(path), **environ}


def set_secret(path: Path, name: str, value: str) -> None:
    """Set one variable, keep every other line, and set the mode to 0600."""
    if not re.fullmatch(_NAME, name):
        raise UsageError(f"{name!r} cannot name a variable", "use letters, digits and _, like OPENAI_API_KEY")
    if any(character in value for character in "\n\r\0"):
        raise UsageError(f"the value of {name} is more than one line of text", "give it as one line")
    make_folder(path.parent)
    with hold_lock(path.with_name(f"{path.name}.lock")):
        others = [line for line in _lines(path) if not ((match := re.fullmatch(_LINE, line)) and match[1] == name)]
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        with suppress(FileNotFoundError):
            path.chmod(0o600)  # before the write, because the new file takes the mode of the old one
        text = "\n".join([*others, f'{name}="{quoted}"', ""])
        write_atomically(path, text.encode("utf-8", "surrogateescape"))


def unset_secret(path: Path, name: str) -> bool:
    """Remove one variable and keep every other line; return whether it was set."""
    if not path.exists():
        return False
    with hold_lock(path.with_name(f"{path.name}.lock")):
        lines = _lines(path)
        others = [line for line in lines if not ((match := re.fullmatch(_LINE, line)) and match[1] == name)]
        if len(others) < len(lines):
            write_atomically(path, "\n".join([*others, ""]).encode("utf-8", "surrogateescape"))
        return len(others) < len(lines)


def find_value(path: Path, key: str) -> Any:
    """Return a value as a settings file has it, None if it does not set the key."""
    node = read_document(path) if path.exists() else None
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node


def is_exposed(path: Path) -> bool:
    """Whether users other than the owner can read the file."""
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


def _lines(path: Path) -> list[str]:
    """Return the lines of the file; invalid UTF-8 survives a rewrite unchanged."""
    text = (read_bytes(path) or b"").decode("utf-8-sig", "surrogateescape")
    return text.removesuffix("\n").split("\n") if text else []


def _unquote(text: str) -> str:
    if quoted := re.fullmatch(_QUOTED, text):
        return quoted[2] if quoted[1] is None else re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL)
    return "" if text.startswith("#") else text.partition(" #")[0].rstrip()
