"""OpenClaw's configuration: JSON5, its workspaces, model names, credentials, and whether the program runs."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wellkept.core.regular_files import load_bytes, load_text
from wellkept.core.text import JSON, dumps
from wellkept.formats.messages import as_text
from wellkept.formats.port import Asset, Leftover, Secret, Setting
from wellkept.llm.endpoints import KEYED, VENDORS

FOLDERS = (".openclaw", ".clawdbot", ".moltbot")
_NAMES = ("openclaw.json", "clawdbot.json", "moltbot.json")
_PROGRAMS = re.compile(rb"(?:^|[/\0-])(?:openclaw|clawdbot|moltbot)(?:-gateway|\.mjs|\.js)?(?:\0|$|-)")
_PORT = 18_789
"""The port of the gateway, unless the configuration names another."""
_TOKENS = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<mark>[\[\]{}:,])|(?P<word>[^\s\[\]{}:,"'/]+)|(?P<other>.)""",
    re.DOTALL,
)
_ENV = re.compile(
    r"""^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=[^\S\n]*(?:(["'])(.*?)\2\s*(?:#.*)?$|([^\n]*))""", re.MULTILINE
)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_NO_SETTINGS = frozenset(("$schema", "meta", "wizard", "env"))
"""Sections about OpenClaw itself, and the one that holds credentials."""
SECRETS = (
    *(str(vendor.key_variable) for vendor in KEYED),
    "HONCHO_API_KEY", "MEM0_API_KEY", "SUPERMEMORY_API_KEY", "RETAINDB_API_KEY", "HINDSIGHT_API_KEY",
    "OPENVIKING_API_KEY",
)  # fmt: skip
"""The credentials that kept has a use for; no other one is ever taken."""


def parse_json5(text: str) -> Any:
    """Return a JSON5 value: comments, trailing commas, single quotes and bare keys; raise ValueError otherwise."""
    parts: list[str] = []
    for token in _TOKENS.finditer(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")):
        match token.lastgroup:
            case "space":
                continue
            case "text":
                parts.append(_quote(token[0]))
            case "word" if _IDENTIFIER.fullmatch(token[0]) and token[0] not in {"true", "false", "null"}:
                parts.append(json.dumps(token[0]))
            case "mark" if token[0] in "]}" and parts[-1:] == [","]:
                parts[-1] = token[0]
            case _:
                parts.append(token[0])
    return json.loads("".join(parts))


def _quote(text: str) -> str:
    if text.startswith("'"):
        inner = text[1:-1].replace("\\'", "'")
        text = '"' + re.sub(r'(?<!\\)"', '\\\\"', inner) + '"'
    return text.replace("\\\n", "").replace("\n", "\\n")


def load_config(root: Path) -> dict[str, Any]:
    """Return the configuration; empty if there is none. Raise ValueError or OSError if it cannot be read."""
    path = next((root / name for name in _NAMES if (root / name).is_file()), None)
    if path is None:
        return {}
    value = parse_json5(load_text(path, encoding="utf-8", errors="replace"))
    return value if isinstance(value, dict) else {}


def dig(value: Any, *keys: str) -> Any:
    """Return a nested value, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def find_workspaces(root: Path, config: Mapping[str, Any], home: str) -> list[tuple[str, Path]]:
    """Return the workspaces that exist, each with its agent; that of the default agent first."""
    chosen = [("main", dig(config, "agents", "defaults", "workspace") or dig(config, "agent", "workspace"))]
    listed = dig(config, "agents", "list")
    entries = dig(config, "agents", "entries")
    agents = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    named = [(str(one.get("id") or ""), one.get("workspace")) for one in agents]
    named += [(name, dig(one, "workspace")) for name, one in entries.items()] if isinstance(entries, dict) else []
    usual = [("main", root / name) for name in ("workspace", "workspace.default", "workspace-main")]
    usual += [(path.name.removeprefix("workspace-"), path) for path in sorted(root.glob("workspace-*"))]
    usual += [("main", root.parent / name) for name in ("clawd", "openclaw") if root.name in FOLDERS]
    found: dict[Path, str] = {}
    for agent, place in [*chosen, *((agent, place) for agent, place in named), *usual]:
        path = _expand(place, home) if isinstance(place, str) else place
        if isinstance(path, Path) and path.is_dir():
            found.setdefault(path.resolve(), agent)
    return [(agent, path) for path, agent in found.items()]


def _expand(place: str, home: str) -> Path:
    return Path(f"{home}{place[1:]}" if place == "~" or place.startswith("~/") else place)


# settings


def list_settings(config: Mapping[str, Any]) -> Iterator[Asset]:
    """Yield model names as settings, and every section that has no counterpart for the archive, without credentials."""
    from wellkept.security.secrets import redact_json

    model = dig(config, "agents", "defaults", "model") or dig(config, "agent", "model")
    catalogue = dig(config, "agents", "defaults", "models") or dig(config, "agent", "models")
    aliases = {str(alias).casefold(): name for name, one in _items(catalogue) if (alias := dig(one, "alias"))}
    primary = _resolve(model if isinstance(model, str) else dig(model, "primary"), aliases)
    fallbacks = dig(model, "fallbacks")
    names = [primary, *(_resolve(name, aliases) for name in (fallbacks if isinstance(fallbacks, list) else []))]
    known = [name for name in names if isinstance(name, str) and name.partition("/")[0] in VENDORS]
    if known and known[0] == primary:
        yield Setting("model.default", known[0], "openclaw.json")
    if len(known) > 1:
        yield Setting("model.fallbacks", json.dumps(known[1:]), "openclaw.json")
    for section, value in config.items():
        if section not in _NO_SETTINGS:
            cleaned: JSON = redact_json(_drop_secrets(value))
            data = f"{dumps(cleaned, indent=2)}\n".encode()
            yield Leftover(f"config/{_as_name(section)}.json", data, explain_section(section))


def _resolve(name: Any, aliases: Mapping[str, str]) -> Any:
    return aliases.get(name.casefold(), name) if isinstance(name, str) else name


def explain_section(section: str) -> str:
    """Return why a section of the configuration is kept in the archive only."""
    match section:
        case "channels":
            return "settings of channels, without credentials: for a gateway that serves them"
        case "memory":
            return "settings of a memory backend"
        case "agents" | "agent" | "models":
            return "model names that kept knows became settings; the rest has no counterpart"
        case _:
            return "has no counterpart here"


def _drop_secrets(value: Any) -> Any:
    """Return a value without what names of keys mark as credentials, whatever it looks like."""
    if isinstance(value, dict):
        return {
            key: "[left out]" if _is_secret(key) and not isinstance(item, bool) else _drop_secrets(item)
            for key, item in value.items()
        }
    return [_drop_secrets(item) for item in value] if isinstance(value, list) else value


def _is_secret(key: str) -> bool:
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", key).lower()
    return bool(
        re.search(r"(?:^|_)(?:token|secret|password|passwd|key|credentials?|cookie|authorization|auth)$", words)
    )


def _as_name(section: str) -> str:
    return re.sub(r"[^\w.-]", "_", section)[:80]


# credentials


def list_secrets(root: Path, config: Mapping[str, Any]) -> Iterator[Secret]:
    """Yield the credentials of the allow-list: from `.env`, the configuration, and the keys of model providers."""
    taken: set[str] = set()
    for name, value, origin in _list_candidates(root, config):
        # a reference such as ${NAME} or a command is not a value
        is_value = isinstance(value, str) and value.strip() and not value.startswith(("$", "!"))
        if name in SECRETS and is_value and name not in taken:
            taken.add(name)
            yield Secret(name, value.strip(), origin)


def _list_candidates(root: Path, config: Mapping[str, Any]) -> Iterator[tuple[str | None, Any, str]]:
    yield from ((name, value, ".env") for name, value in read_env(root / ".env").items())
    for section in (config.get("env"), dig(config, "env", "vars")):
        yield from ((name, value, "openclaw.json") for name, value in _items(section))
    for provider, settings in _items(dig(config, "models", "providers")):
        yield _find_variable(provider), dig(settings, "apiKey"), "openclaw.json"
    for path in sorted(root.glob("agents/*/agent/auth-profiles.json")):
        for profile in _load_profiles(path):
            yield _find_variable(profile.get("provider")), profile.get("key"), "auth-profiles.json"


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _find_variable(provider: Any) -> str | None:
    vendor = VENDORS.get(provider) if isinstance(provider, str) else None
    return None if vendor is None else vendor.key_variable


def read_env(path: Path) -> dict[str, str]:
    """Return the assignments of an `.env` file; nothing if it cannot be read."""
    try:
        text = load_text(path, encoding="utf-8-sig", errors="replace")
    except OSError:
        return {}
    return {found[1]: found[3] if found[2] else found[4].partition(" #")[0].strip() for found in _ENV.finditer(text)}


def _load_profiles(path: Path) -> list[dict[str, Any]]:
    try:
        value = json.loads(load_bytes(path).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return []
    profiles = dig(value, "profiles")
    return [profile for profile in profiles.values() if isinstance(profile, dict)] if isinstance(profiles, dict) else []


# the running program


def find_running(config: Mapping[str, Any]) -> str | None:
    """Return which part of OpenClaw runs on this machine, or None."""
    port = dig(config, "gateway", "port")
    port = port if isinstance(port, int) and 0 < port < 65_536 else _PORT
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
    except OSError:
        pass
    else:
        return f"a gateway answers on port {port}"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = load_bytes(path)
        except OSError:
            continue
        if int(path.parent.name) != os.getpid() and is_openclaw(command):
            return f"OpenClaw runs as process {path.parent.name}"
    return None


def is_openclaw(command: bytes) -> bool:
    """Whether a command line (words separated by NUL) is one of OpenClaw, and not one that only mentions it."""
    words = command.rstrip(b"\0").split(b"\0")
    script = words[1:2] if words[0].rpartition(b"/")[2] in {b"node", b"bun"} else words[:1]
    return bool(script) and _PROGRAMS.search(script[0].split(b" ")[0]) is not None


def name_home(environ: Mapping[str, str]) -> str:
    """Return the person's home folder."""
    return as_text(environ.get("HOME")) or str(Path("~").expanduser())
