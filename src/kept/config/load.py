"""Reading the settings: defaults, then the file, then the environment, each value with its origin."""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from kept.config.home import Home
from kept.config.settings import Settings
from kept.core.errors import ConfigError, Unreadable
from kept.storage.files import read_bytes

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

ENV_PREFIX = "KEPT_"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, where each one came from, and what was odd on the way."""

    settings: Settings
    origins: Mapping[str, str]
    """Dotted key → `config.yaml:12`, `KEPT_MEMORY__OVERFLOW`; a key that is absent has its default."""
    warnings: tuple[str, ...]


def load(home: Home, environ: Mapping[str, str]) -> Loaded:
    """Return the settings of `home`, or raise ConfigError with the file, the line and what is accepted."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    warnings: list[str] = []
    if home.foreign_config_file is not None:
        _take_foreign(home.foreign_config_file, values, origins)
    document = read_document(home.config_file)
    if document is not None:
        _take_file(home.config_file, document, values=values, origins=origins, warnings=warnings)
    _take_environment(environ, values=values, origins=origins, warnings=warnings)
    try:
        return Loaded(Settings.model_validate(values), origins, tuple(warnings))
    except ValidationError as error:
        raise _explained(error, origins, home.config_file) from None


def read_document(path: Path) -> Any:
    """Return the YAML document at `path` with comments and line numbers, None when there is no text."""
    raw = read_bytes(path)
    if raw is None or not raw.strip():
        return None
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        document = YAML().load(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Unreadable(f"{str(path)!r} is not UTF-8 text", "save it as UTF-8") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}", "mend that line") from None
    except YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}", "mend the file") from None
    if document is not None and not isinstance(document, dict):
        raise ConfigError(f"{path}:1: the file must hold `section:` blocks", "see docs/configuration.md")
    return document


def known_keys(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key that the configuration accepts, in order."""
    for name, field in model.model_fields.items():
        inner = section_model(field.annotation)
        if inner is not None:
            yield from known_keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def section_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a nested section, None for a plain value."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def nearest(key: str, candidates: Iterator[str] | list[str]) -> str:
    """Return a hint that names the most similar key, or nothing."""
    close = difflib.get_close_matches(key, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _take_file(
    path: Path, document: Any, *, values: dict[str, Any], origins: dict[str, str], warnings: list[str]
) -> None:
    def walk(node: Any, model: type[BaseModel], into: dict[str, Any], prefix: str) -> None:
        for key, value in node.items():
            line = node.lc.key(key)[0] + 1
            field = model.model_fields.get(str(key))
            if field is None:
                hint = nearest(str(key), list(model.model_fields))
                warnings.append(f"{path}:{line}: unknown setting {prefix + str(key)!r} is ignored{hint}")
                continue
            inner = section_model(field.annotation)
            origins[f"{prefix}{key}"] = f"{path.name}:{line}"
            if inner is not None and isinstance(value, dict):
                walk(value, inner, into.setdefault(str(key), {}), f"{prefix}{key}.")
            elif inner is None or value is not None:
                into[str(key)] = _plain(value)

    walk(document, Settings, values, "")


def _take_foreign(path: Path, values: dict[str, Any], origins: dict[str, str]) -> None:
    """Take from another agent's file the keys that mean the same; whatever does not fit is theirs."""
    try:
        document = read_document(path)
    except (ConfigError, Unreadable):
        return
    memory = (document or {}).get("memory")
    for key in ("memory_enabled", "user_profile_enabled", "memory_char_limit", "user_char_limit"):
        if isinstance(memory, dict) and key in memory:
            candidate = {"memory": {key: memory[key]}}
            try:
                Settings.model_validate(candidate)
            except ValidationError:
                continue
            values.setdefault("memory", {})[key] = memory[key]
            origins[f"memory.{key}"] = f"{path.name}:{memory.lc.key(key)[0] + 1}"


def _take_environment(
    environ: Mapping[str, str], *, values: dict[str, Any], origins: dict[str, str], warnings: list[str]
) -> None:
    keys = {key.upper().replace(".", "__"): key for key in known_keys()}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX) or "__" not in variable:
            continue
        key = keys.get(variable.removeprefix(ENV_PREFIX))
        if key is None:
            hint = nearest(variable, [ENV_PREFIX + name for name in keys])
            warnings.append(f"unknown variable {variable} is ignored{hint}")
            continue
        place(values, key, from_text(text))
        origins[key] = variable


def place(values: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested dictionaries."""
    *sections, name = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
    values[name] = value


def from_text(text: str) -> Any:
    """Read a value as a person types it: JSON where it is JSON, else the words themselves."""
    try:
        return json.loads(text)
    except ValueError:
        return {"null": None, "none": None}.get(text.lower(), text)


def _plain(value: Any) -> Any:
    """Return YAML's annotated containers as plain ones."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


def _explained(error: ValidationError, origins: Mapping[str, str], path: Path) -> ConfigError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    while key and key not in origins and "." in key:
        key = key.rpartition(".")[0]
    origin = origins.get(key, path.name)
    where = f"{path.parent / origin}" if ":" in origin else origin
    message = f"{where}: {key} is {first['input']!r}: {first['msg'].lower()}"
    return ConfigError(message, _accepted(key, first))


def _accepted(key: str, error: "ErrorDetails") -> str:
    if "expected" in error.get("ctx", {}):
        return f"accepted: {error['ctx']['expected']}"
    model: type[BaseModel] = Settings
    for part in key.split("."):
        field = model.model_fields.get(part)
        if field is None:
            break
        inner = section_model(field.annotation)
        if inner is None:
            limits = ", ".join(str(limit) for limit in field.metadata)
            kind = " | ".join(str(arg) for arg in get_args(field.annotation)) or getattr(
                field.annotation, "__name__", str(field.annotation)
            )
            return f"accepted: {kind}{f' ({limits})' if limits else ''}; the default is {field.default!r}"
        model = inner
    return "see docs/configuration.md"
