"""Plugins of all kinds: providers, context engines and packages of skills."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from msgspec import Struct

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import NotFound, Reason, Refused
from wellkept.core.plugins import folders, is_package, newer_port, read_name, read_source
from wellkept.core.text import JSON, dumps
from wellkept.core.values import JsonStruct

PluginKind = Literal["provider", "context engine", "skills"]
State = Literal["in use", "available", "disabled", "hidden", "broken"]

ENGINE_FOLDER = "context_engine"
_MOST_PARSED_BYTES = 5_000_000
"""A module that was cut would have a syntax error, or hide what it may do."""
_ABILITIES = {
    "prefetch": "adds recalled text to requests",
    "system_prompt_block": "adds text to the system prompt",
    "sync_turn": "receives every finished turn",
    "on_turn_start": "sees every message",
    "on_session_end": "receives whole conversations",
    "on_pre_compress": "receives conversations before they are compacted",
    "on_memory_write": "receives every change of the pages",
    "on_delegation": "receives the results of sub-agents",
    "handle_tool_call": "offers tools to the agent",
    "forget_content": "can delete what it stored",
    "get_commands": "adds commands",
    "post_setup": "has its own set-up dialogue",
    "compress": "decides what leaves the context",
    "write": "writes summaries of conversations",
}
"""What a plugin may do, by the methods that its source defines."""


class Plugin(JsonStruct, frozen=True):
    """One plugin, found without an import."""

    name: str
    kind: PluginKind
    origin: str
    """`bundled`, `folder` or `entry point`."""
    path: str
    """Its folder, or the object that its entry point names."""
    state: State
    note: str = ""
    """Why it is hidden or broken."""
    description: str = ""
    version: str = ""
    own_name: str = ""
    """The name that it gives itself, if different."""

    def as_json(self) -> dict[str, JSON]:
        """Return the plugin."""
        return {**super().as_json(), "own_name": self.own_name or self.name}


class PluginList(Struct, frozen=True):
    """All plugins."""

    plugins: tuple[Plugin, ...]

    def as_json(self) -> list[JSON]:
        """Return one object per plugin."""
        return [plugin.as_json() for plugin in self.plugins]


class PluginView(Struct, frozen=True):
    """One plugin with what it may do and what it needs."""

    plugin: Plugin
    runs: str
    """Where its code runs."""
    abilities: tuple[str, ...]
    missing: tuple[str, ...]
    """Packages that it needs and that are not installed."""
    variables: tuple[str, ...]
    hints: tuple[str, ...]

    def as_json(self) -> dict[str, JSON]:
        """Return the plugin with its abilities and needs."""
        return {
            **self.plugin.as_json(),
            "runs": self.runs,
            "may": list(self.abilities),
            "missing_packages": list(self.missing),
            "variables": list(self.variables),
            "needs": list(self.hints),
        }


class PluginSwitch(JsonStruct, frozen=True):
    """A plugin was disabled or enabled."""

    name: str
    enabled: bool
    changed: bool


def list_plugins(caller: Caller) -> PluginList:
    """Return every plugin of this home and this environment; none is imported."""
    found = [*_list_providers(caller), *_list_engines(caller), *_list_skills(caller)]
    return PluginList(tuple(sorted(found, key=lambda each: (each.kind, each.origin != "folder", each.name))))


def show_plugin(caller: Caller, name: str) -> PluginView:
    """Return one plugin with what it may do; raises NotFound for an unknown name."""
    from wellkept.providers.plugins import missing, read_manifest

    plugin = _find(caller, name)
    folder = Path(plugin.path) if plugin.path and Path(plugin.path).is_dir() else None
    manifest = read_manifest(folder)
    return PluginView(
        plugin,
        _describe_process(caller, plugin),
        tuple(_list_abilities(folder)),
        tuple(missing(manifest.requirements)),
        manifest.variables,
        manifest.hints,
    )


def disable_plugin(caller: Caller, name: str) -> PluginSwitch | Refused:
    """Never load a plugin again until it is enabled; its data stays."""
    caller.require(Scope.ADMIN)
    plugin = _find(caller, name)
    if plugin.kind == "context engine" and plugin.origin == "bundled":
        return Refused(Reason.INVALID, f"{name} is built in", "choose another engine with `kept context use NAME`")
    return _switch(caller, plugin.name, enabled=False)


def enable_plugin(caller: Caller, name: str) -> PluginSwitch:
    """Allow a disabled plugin again; raises NotFound for a name that is neither disabled nor installed."""
    caller.require(Scope.ADMIN)
    is_known = name in caller.app.settings.disabled_plugins  # also one that was deleted meanwhile
    return _switch(caller, name if is_known else _find(caller, name).name, enabled=True)


def _switch(caller: Caller, name: str, *, enabled: bool) -> PluginSwitch:
    from wellkept.config.settings import set_value

    before = list(caller.app.settings.disabled_plugins)
    after = [each for each in before if each != name] + ([] if enabled else [name])
    if after != before:
        set_value(caller.app.home, "disabled_plugins", dumps(after), why_no_person=caller.why_no_person)
    return PluginSwitch(name, enabled, after != before)


def _find(caller: Caller, name: str) -> Plugin:
    plugins = list_plugins(caller).plugins
    fitting = [plugin for plugin in plugins if plugin.name == name] or [
        each for each in plugins if each.own_name == name
    ]
    if fitting:
        return fitting[0]
    near = get_close_matches(name, [each.name for each in plugins], 1)
    hint = f"did you mean {near[0]!r}?" if near else "`kept plugins list` shows the names"
    raise NotFound(f"there is no plugin {name!r}", hint)


def _list_providers(caller: Caller) -> Iterator[Plugin]:
    from wellkept.providers.manager import chosen_names
    from wellkept.providers.plugins import discover, manifest_of

    app = caller.app
    used = set(chosen_names(app.settings.memory.provider, app.home.plugins))
    found = discover(app.home.plugins)
    for each in found.values():
        manifest = manifest_of(each)
        place = str(each.folder or each.place)
        state, note = _judge(caller, each.name, each.folder, used)
        about = (manifest.description, manifest.version, each.alias)
        yield Plugin(each.name, "provider", each.kind, place, state, note, *about)
    for folder in folders(app.home.plugins):
        other = found.get(folder.name)
        if folder.name != ENGINE_FOLDER and (other is None or other.kind != "folder"):
            note = f"the {other.kind} provider has the same name" if other else _explain_folder(folder)
            yield Plugin(folder.name, "provider", "folder", str(folder), "hidden" if other else "broken", note)


def _explain_folder(folder: Path) -> str:
    if not is_package(folder):
        return "it has no __init__.py"
    return "its __init__.py mentions neither MemoryProvider nor register_memory_provider"


def _list_engines(caller: Caller) -> Iterator[Plugin]:
    from wellkept.context.plugins import list_engines

    app = caller.app
    parent = app.home.plugins / ENGINE_FOLDER
    used = {app.settings.context.engine}
    for engine in list_engines(app.home.path):
        origin = {"built-in": "bundled", "plugin": "folder"}.get(engine.source, engine.source)
        folder = parent / engine.name if origin == "folder" else None
        own = (read_name(folder) or "") if folder is not None else ""
        state, note = _judge(caller, engine.name, folder, used, own)
        about = "" if origin == "folder" else engine.description
        yield Plugin(engine.name, "context engine", origin, str(folder or ""), state, note, about, own_name=own)
    for folder in folders(parent):
        if not is_package(folder):
            yield Plugin(folder.name, "context engine", "folder", str(folder), "broken", "it has no __init__.py")


def _list_skills(caller: Caller) -> Iterator[Plugin]:
    from wellkept.skills.roots import plugin_roots

    for root in plugin_roots():
        name = str(root.plugin)
        is_off = name in caller.app.settings.disabled_plugins
        count = sum(1 for path in folders(root.path) if (path / "SKILL.md").is_file())
        about = f"{count} {'skill' if count == 1 else 'skills'}"
        yield Plugin(name, "skills", "entry point", str(root.path), "disabled" if is_off else "in use", "", about)


def _judge(caller: Caller, name: str, folder: Path | None, used: set[str], own: str = "") -> tuple[State, str]:
    if name in caller.app.settings.disabled_plugins:
        return "disabled", ""
    if folder is not None and (port := newer_port(folder)) is not None:
        return "broken", f"it is written for version {port} of the port, newer than this kept's"
    if folder is not None and (fault := _find_syntax_error(folder)):
        return "broken", fault
    return ("in use" if {name, own or name} & used else "available"), ""


def _find_syntax_error(folder: Path) -> str:
    try:
        ast.parse(read_source(folder / "__init__.py", _MOST_PARSED_BYTES))
    except (SyntaxError, ValueError) as error:
        return f"__init__.py: {getattr(error, 'msg', error)} (line {getattr(error, 'lineno', '?')})"
    return ""


def _list_abilities(folder: Path | None) -> Iterator[str]:
    """Yield what the methods in the source of a plugin allow it to do."""
    if folder is None:
        return
    defined: set[str] = set()
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(read_source(path, _MOST_PARSED_BYTES))
        except (SyntaxError, ValueError):
            continue
        defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    yield from (words for hook, words in _ABILITIES.items() if hook in defined)


def _describe_process(caller: Caller, plugin: Plugin) -> str:
    from wellkept.providers.plugins import discover

    if plugin.kind == "skills":
        return "nowhere: skills are text; the agent runs their scripts only with your approval"
    found = discover(caller.app.home.plugins).get(plugin.name)
    if plugin.kind == "provider" and found is not None and caller.app.plugin_source().policy.isolates(found):
        return "in a separate process, with the rights of your account"
    return "inside kept, with the rights of your account"
