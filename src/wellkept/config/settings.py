"""The settings of an installation: the tree of all sections, their values with origins, and edits of the file.

A value comes from the defaults, the file or the environment; edits keep the comments and the order of the file.
"""

import io
import json
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct, field

from wellkept.agent.settings import Approvals, DisplaySettings, LimitSettings, ReviewSettings
from wellkept.config.home import Home
from wellkept.context.settings import CompressionSettings, ContextSettings
from wellkept.core.agency import find_agent, refuse_decision
from wellkept.core.errors import ConfigError, Unreadable, UsageError
from wellkept.core.settings import (
    Above,
    Between,
    Guarded,
    InvalidSetting,
    Matches,
    Toolset,
    build,
    fields,
    find_guard,
    is_section,
)
from wellkept.core.text import dumps, is_encodable
from wellkept.llm.settings import AuxiliarySettings, ModelSettings, PromptCachingSettings
from wellkept.memory.settings import MemorySettings
from wellkept.providers.settings import ProviderSettings
from wellkept.sessions.settings import SessionSettings
from wellkept.skills.settings import CuratorSettings, SkillSettings
from wellkept.storage.files import make_folder, read_bytes, write_atomically
from wellkept.storage.locks import hold_lock


class ConnectSettings(Struct, frozen=True, kw_only=True):
    """The section `connect:` of the configuration: what other agents are given, and what of theirs is stored."""

    recall: Annotated[Literal["start", "sure", "off"], Guarded(("off", "start", "sure"))] = "sure"
    """What a connected agent is given: `start` the block of a session, `sure` also passages at a prompt, or nothing."""
    capture: Annotated[bool, Guarded((False, True))] = True
    """Whether the conversations of connected agents are stored."""
    exclude: Annotated[list[str], Guarded(forbids=True)] = field(default_factory=list)
    """Projects that are neither stored nor given any memory: folders, or patterns like `*/secret/*`."""
    sessions: Annotated[int, Between(0, 10)] = 3
    """How many past sessions of the project the block of a session names."""
    passages: Annotated[int, Between(1, 3)] = 3
    """How many passages a prompt is given at most."""
    start_seconds: Annotated[float, Above(0)] = 2.0
    """How long an agent waits for the block of a session at most."""
    prompt_seconds: Annotated[float, Above(0)] = 0.8
    """How long an agent waits at a prompt at most."""
    stop_seconds: Annotated[float, Above(0)] = 1.0
    """How long an agent waits at the end of a turn at most; what is not stored by then is stored later."""


class BackupSettings(Struct, frozen=True, kw_only=True):
    """The section `backup:` of the configuration: backups that kept takes by itself."""

    every: Annotated[str, Matches(r"off|[1-9][0-9]{0,3}[hdw]", "`off` or a time such as 12h, 7d or 2w"), Guarded()] = (
        "off"
    )
    """How often a backup is taken, such as `7d`, by the next command that runs when it is due; `off` takes none."""
    keep: Annotated[int, Between(1, 1_000), Guarded()] = 4
    """How many scheduled backups stay, and how many that were taken before an import or a restore."""
    folder: Annotated[str | None, Guarded()] = None
    """Where they go; null is the folder `backups` of the home. Another disk is better."""
    passphrase_env: Annotated[str | None, Guarded()] = None
    """The environment variable with the passphrase that encrypts them; null leaves them unencrypted."""


class ProxySettings(Struct, frozen=True, kw_only=True):
    """The proxy between clients and their own models."""

    enabled: Annotated[bool, Guarded((False, True))] = False
    """Whether `kept serve` forwards requests below `/proxy`, as with `--proxy`."""
    upstreams: Annotated[dict[str, str], Guarded()] = field(default_factory=dict)
    """Endpoints by the name in the path, besides `anthropic` and `openai`, whose addresses can be changed here."""
    recall: Annotated[Literal["start", "sure", "off"], Guarded(("off", "start", "sure"))] = "sure"
    """What is added to requests: `start` the pages, `sure` also passages relevant to a message, `off` nothing."""
    capture: Annotated[bool, Guarded((False, True))] = True
    """Whether conversations are stored."""
    wait_milliseconds: Annotated[int, Between(10, 10_000)] = 200
    """How long a request waits for memory; after that it is forwarded unchanged, within 300 ms in all."""
    max_body_bytes: Annotated[int, Between(1_000), Guarded()] = 40_000_000
    """The largest body of a request; the endpoints have similar limits."""


class ServeSettings(Struct, frozen=True, kw_only=True):
    """The server for other clients."""

    host: Annotated[str, Guarded()] = "127.0.0.1"
    """The address to listen on; one that other machines can reach requires a token."""
    port: Annotated[int, Between(0, 65_535)] = 8642
    """The port; if it is taken, the next free one is used. 0 chooses any."""
    hosts: Annotated[list[str], Guarded()] = field(default_factory=list)
    """Host names of the server, besides those of this machine."""
    require_token: Annotated[bool, Guarded((True, False))] = True
    """Whether requests from this machine need a token; without one, every local user and program is the owner."""
    models: Annotated[list[str], Guarded()] = field(default_factory=list)
    """Models that clients may choose by name, besides `model.default` and `model.fallbacks`; they cost the owner."""
    connections: Annotated[int, Between(8), Guarded()] = 512
    """The most connections at once; the one that has waited longest without a request makes room for a new one."""
    connections_per_address: Annotated[int, Between(4), Guarded()] = 256
    """The most connections from one address, which may be that of a reverse proxy."""
    header_seconds: Annotated[float, Between(0.1), Guarded()] = 10.0
    """How long a connection may take to send the headers of a request."""
    max_body_bytes: Annotated[int, Between(1_000), Guarded()] = 10_000_000
    """The largest body of a request."""
    body_seconds: Annotated[float, Between(1), Guarded()] = 30.0
    """How long the body of a request may take."""
    requests_per_minute: Annotated[int, Between(1), Guarded()] = 600
    """How many requests a user may send in a minute."""
    requests_at_once: Annotated[int, Between(1), Guarded()] = 32
    """How many requests of a user may run at once."""
    drain_seconds: Annotated[float, Between(0)] = 20.0
    """How long running turns may continue when the server stops."""
    idle_minutes: Annotated[float, Between(0.1)] = 30.0
    """How long an idle conversation stays open; the next message opens it again."""
    reset: Literal["none", "idle", "daily", "both"] = "none"
    """When a chat begins a new session: after `reset_idle_minutes`, every day at `reset_hour`, both, or never."""
    reset_idle_minutes: Annotated[int, Between(1)] = 1_440
    """How long a chat may be silent before it begins a new session."""
    reset_hour: Annotated[int, Between(0, 23)] = 4
    """The hour of the day, in the local zone, at which chats begin a new session."""
    platforms: Annotated[dict[str, dict[str, Any]], Guarded()] = field(default_factory=dict)
    """Chat platforms by name: `kind` (`webhook`, `telegram`) and the settings of that kind (docs/gateway.md)."""
    proxy: ProxySettings = field(default_factory=ProxySettings)
    """Requests of clients to their own models, with memory added."""


class StorageSettings(Struct, frozen=True, kw_only=True):
    """Where conversations, pages and all other data are stored."""

    url: Annotated[str, Guarded()] = ""
    """`postgresql://ROLE:PASSWORD@HOST:PORT/DATABASE` of a server for several hosts; empty for files in the home."""
    tenant: Annotated[str, Guarded()] = "default"
    """The name that separates this home in that database; homes with the same tenant share users and memory."""
    connections: Annotated[int, Between(1, 1_000)] = 10
    """The most connections that a process opens."""


class Settings(Struct, frozen=True, kw_only=True):
    """The contents of `config.yaml`."""

    memory: MemorySettings = field(default_factory=MemorySettings)
    """Curated memory: the two pages."""
    sessions: SessionSettings = field(default_factory=SessionSettings)
    """Past conversations: how they are stored and shown."""
    skills: SkillSettings = field(default_factory=SkillSettings)
    """Procedures: where they are found and how they are shown."""
    curator: CuratorSettings = field(default_factory=CuratorSettings)
    """Archiving of unused skills."""
    providers: ProviderSettings = field(default_factory=ProviderSettings)
    """External memories: time-outs, budgets, the outbox."""
    model: ModelSettings = field(default_factory=ModelSettings)
    """The model to talk with."""
    auxiliary: AuxiliarySettings = field(default_factory=AuxiliarySettings)
    """Cheaper models for auxiliary tasks."""
    prompt_caching: PromptCachingSettings = field(default_factory=PromptCachingSettings)
    """Cache markers for endpoints that use them."""
    context: ContextSettings = field(default_factory=ContextSettings)
    """The engine that keeps a conversation within the window."""
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    """When and how a conversation is compacted."""
    connect: ConnectSettings = field(default_factory=ConnectSettings)
    """Connected agents: recall and capture."""
    backup: BackupSettings = field(default_factory=BackupSettings)
    """Automatic backups."""
    serve: ServeSettings = field(default_factory=ServeSettings)
    """The server for other clients: address, limits, sessions of chats."""
    storage: StorageSettings = field(default_factory=StorageSettings)
    """The database: files in the home, or a PostgreSQL server."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """Limits that end a turn."""
    review: ReviewSettings = field(default_factory=ReviewSettings)
    """The background review."""
    display: DisplaySettings = field(default_factory=DisplaySettings)
    """What a chat shows."""
    approvals: Annotated[Approvals, Guarded(("deny", "ask", "auto"))] = "ask"
    """Whether commands and writes ask first, run immediately, or are refused; dangerous ones always ask."""
    decisions: Annotated[Literal["person", "scripts"], Guarded(("person", "scripts"))] = "scripts"
    """Who may approve, forget and loosen settings on the command line: a `person` at a terminal only, or also `scripts`
    that no agent started."""
    toolsets: Annotated[list[Toolset] | None, Guarded()] = None
    """The toolsets to load; null loads all."""
    platforms: Annotated[dict[str, dict[str, list[Toolset] | None]], Guarded()] = field(default_factory=dict)
    """Per platform: `toolsets` in place of the general ones."""
    disabled_plugins: Annotated[list[str], Guarded(forbids=True)] = field(default_factory=list)
    """Plugins that are never loaded: providers, context engines and packages with skills, by name."""
    mcp_servers: Annotated[dict[str, dict[str, Any]], Guarded()] = field(default_factory=dict)
    """MCP servers whose tools the agent gets: `command` and `args`, or `url`."""


def known_keys(section: type = Settings, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of the configuration, in order."""
    for name, annotation in fields(section).items():
        if is_section(annotation):
            yield from known_keys(annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def find_guard_of(key: str) -> Guarded | None:
    """Return the guard of a setting, or of the mapping that an entry belongs to."""
    annotation: Any = Settings
    for name in key.split("."):
        if not is_section(annotation):
            break
        annotation = fields(annotation)[name]
    return find_guard(annotation)


def find_default(key: str) -> Any:
    """Return the default of a setting; None for an entry of a mapping."""
    value: Any = Settings()
    for name in key.split("."):
        value = getattr(value, name, None)
    return value


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return a "did you mean" hint with the most similar candidate, or an empty string."""
    import difflib  # lazy: only needed for a misspelt key

    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


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
        key = invalid.key
        while key and key not in collected.origins:
            key = key.rpartition(".")[0]
        origin = collected.origins.get(key, "")
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


def set_value(home: Home, key: str, text: str, *, why_no_person: str) -> Any:
    """Write `key` to the settings file and return its value; an invalid value changes nothing.

    Raises NotAllowed for a value that protects the person less than the present one, unless `why_no_person` is empty.
    """
    _check_key(key)
    value = from_text(key, text)
    values: dict[str, Any] = {}
    put(values, key, value)
    try:
        build(Settings, values)
    except InvalidSetting as invalid:
        raise ConfigError(str(invalid), f"accepted: {invalid.accepted}") from None
    if not is_encodable(dumps(value)):
        raise ConfigError(f"{key} cannot contain a lone surrogate", "accepted: text in UTF-8")
    with _lock_document(home) as (path, document):
        _check_guard(document, key, value, why_no_person)
        put(document, key, value)
        _write(path, document)
    return value


def unset_value(home: Home, key: str, *, why_no_person: str) -> bool:
    """Remove `key` from the settings file; return whether it was set. `why_no_person` is as in `set_value`."""
    _check_key(key)
    with _lock_document(home) as (path, document):
        *sections, name = key.split(".")
        node: Any = document
        for section in sections:
            node = node.get(section) if isinstance(node, dict) else None
        if not isinstance(node, dict) or name not in node:
            return False
        _check_guard(document, key, find_default(key), why_no_person)
        lines: Any = node.lc  # type: ignore[attr-defined] # of ruamel.yaml
        place = lines.key(name) if name in (lines.data or {}) else None  # None: it comes from a YAML merge
        del node[name]
        text = (read_bytes(path) or b"").decode("utf-8-sig")
        shorter = _without(text, *place) if place is not None else text
        if _same(shorter, document):
            write_atomically(path, shorter.encode())
        else:
            _write(path, document)
    return True


def _without(text: str, line: int, column: int) -> str:
    """Return the text without the lines of one setting; comments around it stay, because they may belong to others."""
    lines = text.splitlines(keepends=True)
    end = line + 1
    while end < len(lines) and (_is_comment(lines[end]) or _is_below(lines[end], column)):
        end += 1
    while end - 1 > line and _is_comment(lines[end - 1]):
        end -= 1
    return "".join(lines[:line] + lines[end:])


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _is_below(line: str, column: int) -> bool:
    """Whether a line continues a setting that begins at `column`; a list may be indented like its key."""
    indent = len(line) - len(line.lstrip())
    return indent > column or (indent == column and line.lstrip().startswith("- "))


def _same(text: str, document: Any) -> bool:
    """Whether the text has the same contents as the document, apart from empty sections."""
    try:
        return bool(_without_empty(parse_yaml(text)) == _without_empty(document))
    except ConfigError:
        return False


def _without_empty(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {name: inner for name, value in node.items() if (inner := _without_empty(value)) not in ({}, None)}


def _check_guard(document: Any, key: str, value: Any, why_no_person: str) -> None:
    """Raise NotAllowed if the change protects the person less, and no person asks for it."""
    guard = find_guard_of(key) if why_no_person else None
    if guard is None:
        return
    node = document
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    if guard.loosens(find_default(key) if node is None else node, value):
        raise refuse_decision(f"{key} protects you, and {why_no_person}", f"`kept config set {key} VALUE`")


def _check_key(key: str) -> None:
    keys = list(known_keys())
    inside = next((known for known in keys if known.startswith(f"{key}.")), None)
    if inside is not None:
        raise UsageError(
            f"{key!r} is a section", f"name a setting in it, like {inside}; `kept config show {key}` lists them"
        )
    if key not in keys and not any(key.startswith(f"{known}.") and _is_mapping(known) for known in keys):
        raise UsageError(f"there is no setting {key!r}{nearest(key, keys)}", "`kept config show` lists all settings")


def _is_mapping(key: str) -> bool:
    """Whether a setting is a mapping with arbitrary keys."""
    annotation: Any = Settings
    for part in key.split("."):
        annotation = fields(annotation)[part]
    return "dict[" in str(annotation).lower()


@contextmanager
def _lock_document(home: Home) -> Iterator[tuple[Path, Any]]:
    path = home.config_file
    make_folder(home.path)
    with hold_lock(path.with_name(f"{path.name}.lock")):
        document = read_document(path)
        if document is None:
            from ruamel.yaml.comments import CommentedMap

            document = CommentedMap()
        yield path, document


def _write(path: Path, document: Any) -> None:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    stream = io.StringIO()
    if document:
        yaml.dump(document, stream)
    # a file with only comments has no node that could carry them
    text = (_text_without_keys(path) + stream.getvalue()).replace("\r\n", "\n")
    if b"\r\n" in (read_bytes(path) or b""):  # a file keeps its line ends
        text = text.replace("\n", "\r\n")
    write_atomically(path, text.encode())


def _text_without_keys(path: Path) -> str:
    """Return the text of the file if it has only comments, else an empty string."""
    lines = (read_bytes(path) or b"").decode("utf-8-sig").splitlines(keepends=True)
    return "".join(lines) if all(_is_comment(line) for line in lines) else ""
