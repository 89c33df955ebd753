"""The names that plugins written for Hermes import from it, answered by kept where nothing else provides them."""

import contextlib
import getpass
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, cast

from wellkept.core.errors import ProviderError
from wellkept.core.ids import OWNER
from wellkept.core.regular_files import load_text
from wellkept.core.text import JSON, dumps
from wellkept.providers.base import MemoryProvider
from wellkept.providers.plugins import install, missing, read_yaml
from wellkept.security.fence import sanitize_context
from wellkept.security.secrets import redact_json
from wellkept.storage.files import make_folder, write_atomically

T = TypeVar("T")
CANCELLED = -1
_SECRET_FILES = re.compile(
    r"(^|/)(\.env(?!\.(example|sample|template)$)[^/]*|\.netrc|\.pgpass|\.npmrc|\.pypirc|\.git-credentials|id_(rsa|dsa|ecdsa|ed25519)"
    r"|wallet\.dat|shadow|auth\.json)$|(^|/)(\.ssh|\.gnupg|\.aws|\.kube|\.docker|\.password-store)/"
)
_SKILL_REQUEST = re.compile(
    r'^The person loaded the skill "[^"\n]+" for this request:\n.*\n\nRequest: (.*)\Z', re.DOTALL
)
_OWN_SECTIONS = "hermes_config"
"""The key of a provider's settings file that holds its sections of what it takes for Hermes' configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HermesHost:
    """What the names answer for one plugin."""

    provider: str
    home: Path
    package: str = ""
    """The module name of its folder; empty for an installed package."""
    names: frozenset[str] = frozenset()
    """The names under which it may import itself from `plugins.memory`."""
    requirements: tuple[str, ...] = ()
    profile: str = "default"
    profiles: tuple[str, ...] = ("default",)
    complete: Callable[[Sequence[Mapping[str, JSON]], int | None], str] | None = None
    """Calls the auxiliary model; None if there is none."""
    choose: Callable[[str], None] | None = None
    """Sets `memory.provider`."""


class FeatureUnavailable(ImportError):
    """A package that a plugin needs is not installed."""


class SingletonSlot(Generic[T]):
    """A value that is built once, by whichever thread comes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: list[T] = []

    def get(self, factory: Callable[[], T]) -> T:
        """Return the value; the first call builds it."""
        with self._lock:
            if not self._values:
                self._values.append(factory())
            return self._values[0]

    def peek(self) -> T | None:
        """Return the value if it was built."""
        return self._values[0] if self._values else None

    def reset(self) -> None:
        """Forget the value, so that the next `get` builds another."""
        with self._lock:
            self._values.clear()


@dataclass(frozen=True, kw_only=False)
class ProviderFieldOption:
    """One choice of a declared field."""

    value: str
    label: str
    description: str = ""


@dataclass(frozen=True)
class ProviderField:
    """One declared field of a provider's settings."""

    key: str
    label: str
    kind: str = "text"
    default: str = ""
    description: str = ""
    placeholder: str = ""
    options: tuple[ProviderFieldOption, ...] = ()
    env_key: str | None = None
    aliases: tuple[str, ...] = ()
    env_fallbacks: tuple[str, ...] = ()
    inline: bool = False
    group: str = ""
    info: str = ""
    scope: str = "host"


@dataclass(frozen=True)
class ProviderConfigSchema:
    """The declared fields of a provider."""

    name: str
    label: str
    storage: str = "flat_json"
    docs_url: str = ""
    fields: tuple[ProviderField, ...] = field(default_factory=tuple)


def adapt_context(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context of `initialize` as Hermes passes it at a terminal, so that a plugin finds the same memory.

    Hermes leaves out what is empty, names no user for the person at the terminal, and calls every workspace `hermes`.
    """
    given = {key: value for key, value in keywords.items() if value not in {"", None}}
    if given.get("user_id") == OWNER:
        del given["user_id"]
    return {**given, "agent_workspace": "hermes"}


def flatten_message_text(content: object, *, sep: str = "\n") -> str:
    """Return the visible text of a message: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else []
    texts = (part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else "" for part in parts)
    return sep.join(text for text in texts if isinstance(text, str) and text)


def find_skill_request(content: object) -> str | None:
    """Return what the person typed: all of a plain message, the request after `/skill`; None for anything but text."""
    if not isinstance(content, str):
        return None
    match = _SKILL_REQUEST.match(content)
    return match[1].strip() if match is not None else content


def raise_if_read_blocked(path: object) -> None:
    """Raise ValueError for a file that usually holds credentials."""
    for text in (str(path), os.path.realpath(Path(str(path)).expanduser())):
        if _SECRET_FILES.search(text.replace("\\", "/")):
            raise ValueError(f"{text!r} usually holds credentials and is not read")


def schedule(
    coro: Any, loop: Any, *, logger: Any = None, log_message: str = "not scheduled", log_level: int = logging.DEBUG
) -> Any:
    """Run a coroutine on the loop of another thread; None, and the coroutine closed, if the loop cannot take it."""
    import asyncio

    if loop is not None and not loop.is_closed():
        with contextlib.suppress(RuntimeError):  # the loop may be closed in between
            return asyncio.run_coroutine_threadsafe(coro, loop)
    coro.close()
    (logger or logging.getLogger(__name__)).log(log_level, log_message)
    return None


def tool_error(message: object, **extra: JSON) -> str:
    """Return a tool answer that reports an error."""
    return dumps({"error": str(message), **extra})


def cfg_get(cfg: object, *keys: str, default: Any = None) -> Any:
    """Return a nested value, or the default where a key is missing."""
    for key in keys:
        if not isinstance(cfg, Mapping) or key not in cfg:
            return default
        cfg = cfg[key]
    return cfg


def apply_wal(conn: Any, *, db_label: str = "state.db") -> str:
    """Switch a SQLite connection to WAL, or to DELETE where the file system has no shared memory."""
    for mode in ("wal", "delete"):
        with contextlib.suppress(Exception):  # the driver of the plugin decides what it raises
            row = conn.execute(f"PRAGMA journal_mode={mode}").fetchone()
            if row and str(row[0]).lower() == mode:
                return mode
    logging.getLogger(__name__).warning("the journal mode of %s stays as it is", db_label)
    return "unknown"


def write_json(path: str | Path, data: Any, *, indent: int = 2, mode: int | None = None, **dump: Any) -> None:
    """Write JSON to a file at once or not at all."""
    target = Path(path)
    make_folder(target.parent, mode=0o777)
    write_atomically(target, json.dumps(data, indent=indent, **dump).encode())
    if mode is not None:
        target.chmod(mode)


def is_variable_on(name: str, default: str = "") -> bool:
    """Whether an environment variable says yes."""
    return os.environ.get(name, default).strip().lower() in {"1", "true", "yes", "on"}


def prompt(label: str, default: str | None = None, secret: bool = False) -> str:
    """Ask for one line on the terminal; the default for an empty one."""
    shown = f"{label} [{default}]: " if default and not secret else f"{label}: "
    try:
        answer = getpass.getpass(shown) if secret else input(shown)
    except EOFError:
        answer = ""
    return answer.strip() or (default or "")


def ask_secret(label: str, *, mask: str = "*") -> str:
    """Ask for a line that is not shown."""
    del mask
    return prompt(label, secret=True)


def select(
    title: str, items: Sequence[Any], default: int = 0, *, cancel_returns: int | None = None, **_shown: Any
) -> int:
    """Let the person choose from a numbered list; return the index, or `cancel_returns` for none."""
    sys.stderr.write(f"{title}\n")
    for number, item in enumerate(items, 1):
        words = [item] if isinstance(item, str) else [str(word) for word in item]
        sys.stderr.write(f"  {number}. {' - '.join(word for word in words if word)}\n")
    answer = prompt("Number", str(default + 1))
    if answer.isdigit() and 1 <= int(answer) <= len(items):
        return int(answer) - 1
    return default if cancel_returns is None else cancel_returns


def write_variables(env_path: str | Path, values: Mapping[str, str]) -> None:
    """Set variables in a secrets file (0600); other lines stay."""
    path = Path(env_path)
    lines = load_text(path).splitlines() if path.exists() else []
    kept = [line for line in lines if line.partition("=")[0].strip().removeprefix("export ") not in values]
    text = "\n".join([*kept, *(f"{name}={value}" for name, value in values.items())])
    write_atomically(path, f"{text}\n".encode())
    path.chmod(0o600)
    os.environ.update(values)


class _Answers:
    """The names whose answer depends on the plugin that asks."""

    def __init__(self, find_host: Callable[[], HermesHost]) -> None:
        self._host = find_host

    def home(self) -> Path:
        return self._host().home

    def shown_home(self) -> str:
        return str(self._host().home)

    def load_config(self) -> dict[str, Any]:
        """Return our settings file as a dict, with the sections that the plugin saved itself."""
        from wellkept.providers.config import (
            load_values,  # it calls hooks, and hooks run inside what offers these names
        )

        host = self._host()
        own = load_values(host.home, host.provider).get(_OWN_SECTIONS)
        ours = cast("Mapping[str, JSON]", redact_json(read_yaml(host.home / "config.yaml")))
        return {**ours, **(own if isinstance(own, Mapping) else {})}

    def save_config(self, config: Mapping[str, Any], **_how: Any) -> None:
        """Save the choice of the provider, and what is neither ours nor unchanged in the provider's own file."""
        from wellkept.providers.config import save_values

        host, before = self._host(), self.load_config()
        chosen = cfg_get(config, "memory", "provider")
        if chosen and chosen != cfg_get(before, "memory", "provider") and host.choose is not None:
            host.choose(host.provider if chosen in host.names else str(chosen))
        ours = read_yaml(host.home / "config.yaml")
        own = {key: value for key, value in config.items() if key not in ours and key != "memory"}
        if own:
            save_values(host.home, host.provider, {_OWN_SECTIONS: own})

    def call_llm(self, task: str | None = None, *, messages: Any, max_tokens: int | None = None, **_how: Any) -> Any:
        """Call the auxiliary model; the answer has the shape of a chat completion."""
        complete = self._host().complete
        if complete is None:
            raise ProviderError(f"there is no model for {task or 'this'}", "choose one with `kept model set NAME`")
        message = SimpleNamespace(role="assistant", content=complete(messages, max_tokens), tool_calls=None)
        return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")], usage=None)

    def ensure(self, feature: str, *, prompt: bool = True) -> None:
        """Raise, with the command that helps, if packages of the plugin are missing."""
        del prompt
        wanted = missing(self._host().requirements)
        if wanted:
            words = " ".join(f"'{each}'" for each in wanted)
            raise FeatureUnavailable(f"{feature} needs {', '.join(wanted)}; run: pip install {words}")

    def pip_install(self, args: Sequence[str], **_how: Any) -> Any:
        """Install packages after asking; return an object with `returncode`."""
        names = [arg for arg in args if not arg.startswith("-") and arg != "install"]
        agreed = prompt(f"Install {', '.join(names)}? [y/N]").lower() in {"y", "yes"}
        done = agreed and bool(names) and install(missing(names))
        return SimpleNamespace(returncode=0 if done else 1, stdout="", stderr="" if agreed else "not installed")

    def profile(self) -> str:
        return self._host().profile

    def list_profiles(self) -> list[Any]:
        return [SimpleNamespace(name=name, is_default=name == "default") for name in self._host().profiles]

    def find_folder(self, name: str) -> Path | None:
        host = self._host()
        module = sys.modules.get(host.package)
        return Path(module.__path__[0]) if name in host.names and module is not None else None


def list_names(find_host: Callable[[], HermesHost]) -> dict[str, dict[str, object]]:
    """Return what can be imported: module → name → value."""
    own = _Answers(find_host)
    setup: dict[str, object] = {
        "_prompt": prompt,
        "_curses_select": select,
        "_print_cancelled_setup": lambda *_: sys.stderr.write("Cancelled.\n"),
        "_write_env_vars": write_variables,
        "_CANCELLED": CANCELLED,
        "cmd_setup_provider": lambda *_: sys.stderr.write("Run: kept providers setup\n"),
    }
    schema: dict[str, object] = {
        each.__name__: each for each in (ProviderConfigSchema, ProviderField, ProviderFieldOption)
    }
    kinds = {f"KIND_{kind.upper()}": kind for kind in ("text", "secret", "select", "bool", "number", "json")}
    return {
        "agent.memory_provider": {"MemoryProvider": MemoryProvider},
        "agent.memory_manager": {"sanitize_context": sanitize_context},
        "agent.message_content": {"flatten_message_text": flatten_message_text},
        "agent.skill_commands": {"extract_user_instruction_from_skill_message": find_skill_request},
        "agent.file_safety": {"raise_if_read_blocked": raise_if_read_blocked},
        "agent.async_utils": {"safe_schedule_threadsafe": schedule},
        "agent.auxiliary_client": {"call_llm": own.call_llm},
        "tools.registry": {"tool_error": tool_error},
        "tools.lazy_deps": {"ensure": own.ensure, "FeatureUnavailable": FeatureUnavailable},
        "hermes_constants": {"get_hermes_home": own.home, "display_hermes_home": own.shown_home},
        "hermes_cli.config": {
            "cfg_get": cfg_get,
            "load_config": own.load_config,
            "load_config_readonly": own.load_config,
            "save_config": own.save_config,
        },
        "hermes_cli.memory_setup": setup,
        "hermes_cli.curses_ui": {"curses_radiolist": select},
        "hermes_cli.secret_prompt": {"masked_secret_prompt": ask_secret},
        "hermes_cli.profiles": {
            "get_active_profile_name": own.profile,
            "list_profiles": own.list_profiles,
            "_get_default_hermes_home": own.home,
        },
        "hermes_cli.tools_config": {"_pip_install": own.pip_install},
        "hermes_state": {"apply_wal_with_fallback": apply_wal},
        "gateway.config": {"load_gateway_config": lambda: SimpleNamespace(platforms={})},
        "plugins.memory": {"find_provider_dir": own.find_folder},
        "plugins.memory.config_schema": {
            **schema,
            **kinds,
            "STORAGE_FLAT_JSON": "flat_json",
            "STORAGE_HONCHO_HOST_BLOCK": "honcho_host_block",
        },
        "plugins.memory.query_rewrite": {"rewrite_memory_query": lambda _message: ""},
        "plugins.plugin_utils": {"SingletonSlot": SingletonSlot},
        "utils": {"atomic_json_write": write_json, "env_var_enabled": is_variable_on},
    }
