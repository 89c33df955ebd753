"""The clients that can be connected: where each keeps its files, and which parts kept writes into them."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from wellkept.connect.written_parts import JsonDefault, JsonItem, JsonMember, OwnFile, Part, TomlCommand, TomlTable
from wellkept.core.agency import mark_environment
from wellkept.core.regular_files import load_text
from wellkept.core.text import JSON, dumps, resource_text

_HOOK_SECONDS = {
    "SessionStart": 5,
    "UserPromptSubmit": 3,
    "PreCompact": 10,
    "Stop": 10,
    "SubagentStop": 10,
    "SessionEnd": 2,
}
"""How long a client waits for a hook; kept ends by itself long before."""
_RESTART = "restart it: it reads its settings when it starts"


class Machine(Struct, frozen=True):
    """Where programs keep their files on this machine."""

    environ: Mapping[str, str]
    platform: str

    @property
    def home(self) -> Path:
        """Return the folder of the person."""
        return Path(self.environ.get("HOME") or self.environ.get("USERPROFILE") or "~").expanduser()

    @property
    def config(self) -> Path:
        """Return the folder of settings by the rules of XDG."""
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")

    @property
    def desktop(self) -> Path:
        """Return the folder in which programs with windows keep their settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        return self.config

    def folder(self, variable: str, name: str) -> Path:
        """Return the folder that `variable` names, else `name` below the person's."""
        return Path(self.environ.get(variable) or self.home / name).expanduser()


class Wiring(Struct, frozen=True):
    """How a client starts kept, and for which project."""

    command: tuple[str, ...]
    """The absolute path of kept and its global options."""
    project: Path | None = None

    def hook(self, client: str) -> tuple[str, ...]:
        """Return the command of a hook; it must never change between versions, because Codex trusts its hash."""
        return (*self.command, "hook", client)

    @property
    def server(self) -> dict[str, JSON]:
        """Return the MCP server as most clients describe it."""
        return {"command": self.command[0], "args": [*self.command[1:], "mcp"]}


class Client(Struct, frozen=True):
    """A program that can be connected."""

    name: str
    programs: tuple[str, ...]
    """The names of its commands."""
    folder: Callable[[Machine], Path]
    """Where it keeps its settings; if it exists, the client counts as installed."""
    parts: Callable[[Machine, Wiring], list[Part]]
    next_step: str
    """What a person does after connecting."""
    has_hooks: bool = True
    """Whether it sends events; without them it has the tools alone, and nothing is captured."""
    has_projects: bool = True

    @property
    def command(self) -> str:
        """Return the command that starts it; its name where it has none."""
        return self.programs[0] if self.programs else self.name


def _claude_folder(machine: Machine) -> Path:
    return machine.folder("CLAUDE_CONFIG_DIR", ".claude")


def _claude_parts(machine: Machine, wiring: Wiring) -> list[Part]:
    root = wiring.project / ".claude" if wiring.project is not None else _claude_folder(machine)
    plugin = root / "skills" / "kept"
    command, *arguments = wiring.hook("claude-code")
    hooks: dict[str, JSON] = {}
    for event, seconds in _HOOK_SECONDS.items():
        handler: JSON = {"type": "command", "command": command, "args": arguments, "timeout": seconds}
        entry: dict[str, JSON] = {"matcher": "startup|resume|clear|compact|fork"} if event == "SessionStart" else {}
        hooks[event] = [{**entry, "hooks": [handler]}]
    about: JSON = {"name": "kept", "version": "1.0.0", "description": "Memory from kept", "author": {"name": "kept"}}
    server: JSON = {"type": "stdio", **wiring.server}
    return [
        OwnFile(plugin / ".claude-plugin" / "plugin.json", _json_text(about)),
        OwnFile(plugin / "hooks" / "hooks.json", _json_text({"description": "kept memory", "hooks": hooks})),
        OwnFile(plugin / ".mcp.json", _json_text({"mcpServers": {"kept": server}})),
        OwnFile(plugin / "skills" / "recall" / "SKILL.md", resource_text(__package__, "texts", "skill.md")),
    ]


def _codex_folder(machine: Machine) -> Path:
    return machine.folder("CODEX_HOME", ".codex")


def _codex_parts(machine: Machine, wiring: Wiring) -> list[Part]:
    root = wiring.project / ".codex" if wiring.project is not None else _codex_folder(machine)
    hook = shlex.join(wiring.hook("codex"))
    parts: list[Part] = []
    for event, seconds in _HOOK_SECONDS.items():
        handler: JSON = {"type": "command", "command": hook, "timeout": seconds}
        parts.append(JsonItem(root / "hooks.json", ("hooks", event), {"hooks": [handler]}, comments=False))
    # not `required`: a kept that cannot start must not keep Codex from starting
    server = {**wiring.server, "startup_timeout_sec": 20}
    parts.append(TomlTable(root / "config.toml", ("mcp_servers", "kept"), server))
    if wiring.project is None:  # `notify` works before the hooks are trusted; a project cannot set it
        parts.append(TomlCommand(root / "config.toml", "notify", wiring.hook("codex-notify")))
    return parts


def _opencode_folder(machine: Machine) -> Path:
    return machine.config / "opencode"


def _opencode_parts(machine: Machine, wiring: Wiring) -> list[Part]:
    root = _opencode_folder(machine) if wiring.project is None else wiring.project
    plugins = root if wiring.project is None else root / ".opencode"
    settings = next((path for name in ("jsonc", "json") if (path := root / f"opencode.{name}").exists()), None)
    server: JSON = {"type": "local", "command": [*wiring.command, "mcp"], "enabled": True}
    script = resource_text(__package__, "texts", "opencode.js").replace("@COMMAND@", dumps(list(wiring.command)))
    return [
        OwnFile(plugins / "plugin" / "kept.js", script),
        JsonMember(settings or root / "opencode.json", ("mcp", "kept"), server),
    ]


def _gemini_folder(machine: Machine) -> Path:
    return machine.home / ".gemini"


_GEMINI_EVENTS = {"SessionStart": 5, "BeforeAgent": 3, "AfterAgent": 10, "PreCompress": 10, "SessionEnd": 2}


def _gemini_parts(machine: Machine, wiring: Wiring) -> list[Part]:
    hook = shlex.join(wiring.hook("gemini"))
    handlers: dict[str, JSON] = {
        event: {"hooks": [{"type": "command", "name": "kept", "command": hook, "timeout": seconds * 1_000}]}
        for event, seconds in _GEMINI_EVENTS.items()
    }
    if wiring.project is not None:
        settings = wiring.project / ".gemini" / "settings.json"
        items: list[Part] = [JsonItem(settings, ("hooks", event), value) for event, value in handlers.items()]
        return [*items, JsonMember(settings, ("mcpServers", "kept"), wiring.server)]
    extension = _gemini_folder(machine) / "extensions" / "kept"
    about: JSON = {"name": "kept", "version": "1.0.0", "mcpServers": {"kept": wiring.server}}
    hooks: JSON = {"hooks": {event: [value] for event, value in handlers.items()}}
    return [
        OwnFile(extension / "gemini-extension.json", _json_text(about)),
        OwnFile(extension / "hooks" / "hooks.json", _json_text(hooks)),
    ]


def _cursor_folder(machine: Machine) -> Path:
    return machine.home / ".cursor"


_CURSOR_EVENTS = ("sessionStart", "beforeSubmitPrompt", "afterAgentResponse", "stop", "sessionEnd")


def _cursor_parts(machine: Machine, wiring: Wiring) -> list[Part]:
    root = wiring.project / ".cursor" if wiring.project is not None else _cursor_folder(machine)
    hooks = root / "hooks.json"
    handler: JSON = {"command": shlex.join(wiring.hook("cursor"))}
    events: list[Part] = [JsonItem(hooks, ("hooks", event), handler) for event in _CURSOR_EVENTS]
    return [
        JsonDefault(hooks, ("version",), 1),
        *events,
        JsonMember(root / "mcp.json", ("mcpServers", "kept"), wiring.server),
    ]


def _desktop_folder(machine: Machine) -> Path:
    return machine.desktop / "Claude"


def _desktop_parts(machine: Machine, wiring: Wiring) -> list[Part]:
    settings = _desktop_folder(machine) / "claude_desktop_config.json"
    return [JsonMember(settings, ("mcpServers", "kept"), wiring.server, comments=False)]


def _vscode_folder(machine: Machine) -> Path:
    return machine.desktop / "Code" / "User"


def _vscode_parts(machine: Machine, wiring: Wiring) -> list[Part]:
    root = wiring.project / ".vscode" if wiring.project is not None else _vscode_folder(machine)
    return [JsonMember(root / "mcp.json", ("servers", "kept"), {"type": "stdio", **wiring.server})]


_TRUST = (
    "start Codex and trust the hooks when it asks (or type /hooks); until then turns are stored, nothing is recalled"
)

CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client("claude-code", ("claude",), _claude_folder, _claude_parts, _RESTART),
        Client("codex", ("codex",), _codex_folder, _codex_parts, _TRUST),
        Client("opencode", ("opencode",), _opencode_folder, _opencode_parts, _RESTART),
        Client("gemini", ("gemini",), _gemini_folder, _gemini_parts, _RESTART),
        Client("cursor", ("cursor", "cursor-agent"), _cursor_folder, _cursor_parts, _RESTART),
        Client("claude-desktop", (), _desktop_folder, _desktop_parts, _RESTART, has_hooks=False, has_projects=False),
        Client("vscode", ("code",), _vscode_folder, _vscode_parts, _RESTART, has_hooks=False),
    )
}
"""Every client by name, in the order in which they are shown."""


class Presence(Struct, frozen=True):
    """Whether a client was found on this machine, and where it was searched for."""

    client: Client
    program: str | None
    """The path of its command."""
    folder: Path | None
    """Its folder of settings, where it exists."""
    looked: tuple[str, ...]

    @property
    def is_installed(self) -> bool:
        """Whether a command or a folder of settings was found."""
        return self.program is not None or self.folder is not None


def find_client(client: Client, machine: Machine) -> Presence:
    """Look for the commands and the settings of a client."""
    import shutil

    path = machine.environ.get("PATH", "")
    program = next((found for name in client.programs if (found := shutil.which(name, path=path))), None)
    folder = client.folder(machine)
    looked = (*(f"the command {name!r}" for name in client.programs), str(folder))
    return Presence(client, program, folder if folder.is_dir() else None, looked)


def read_version(presence: Presence) -> str | None:
    """Return the version of an installed client: from its package, else from the command itself."""
    if presence.program is None:
        return None
    for folder in Path(presence.program).resolve().parents[:4]:
        package = folder / "package.json"
        if package.is_file():
            try:
                version = json.loads(load_text(package)).get("version")
            except (OSError, ValueError, AttributeError):
                break
            return str(version) if version else None
    return _ask_version(presence.program)


def _ask_version(program: str) -> str | None:
    import subprocess

    try:
        environ = mark_environment(os.environ)
        done = subprocess.run(
            [program, "--version"], env=environ, capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    match = re.search(r"\d+\.\d+[\w.+-]*", done.stdout)
    return match[0] if match else None


def _json_text(value: JSON) -> str:
    return f"{dumps(value, indent=2)}\n"
