"""The home of a Hermes profile besides its conversations: pages, skills with their use, persona, shared settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wellkept.importers.agent_files import read_text
from wellkept.importers.assets import Caution, Document, Leftover, MemoryFile, Problem, Secret, Setting, SkillFolder
from wellkept.importers.openclaw_config import SECRETS, dig, read_env
from wellkept.llm.endpoints import VENDORS
from wellkept.memory.page import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wellkept.importers.assets import Asset
    from wellkept.importers.port import Request

_SEPARATOR = "§"
"""A line that separates the entries of a page."""
_PAGES = (("MEMORY.md", Target.MEMORY), ("USER.md", Target.USER))
_FIRST_SOUL = "You are Hermes Agent, an intelligent AI assistant created by Nous Research."
"""The beginning of the persona that every new home gets."""
_SHARED = (
    "memory.memory_enabled", "memory.user_profile_enabled", "memory.memory_char_limit", "memory.user_char_limit",
    "memory.nudge_interval", "skills.creation_nudge_interval", "compression.enabled", "compression.threshold",
    "compression.target_ratio", "compression.protect_last_n", "prompt_caching.cache_ttl",
)  # fmt: skip
"""Settings that both programs have under the same name and with the same meaning."""


def list_hermes(home: Path, request: Request, profile: str) -> Iterator[Asset]:
    """Yield what a profile has besides conversations; persona and settings of the default profile only."""
    prefix = f"profiles/{profile}/" if profile else ""
    for name, target in _PAGES:
        yield from _read_page(home / "memories" / name, f"{prefix}memories/{name}", target)
    yield from _list_skills(home / "skills")
    yield from _list_persona(home, request, prefix)
    if not profile:
        yield from _list_settings(home / "config.yaml")
        if _is_running(home):
            yield Caution("Hermes is running: what it writes meanwhile is left out")
        if request.options.get("migrate-secrets"):
            yield from _list_secrets(home / ".env")


def _read_page(path: Path, name: str, target: Target) -> Iterator[Asset]:
    text = read_text(path)
    if isinstance(text, Problem):
        yield text
    elif text is not None and text.strip():
        yield MemoryFile(name, target, entries=split_entries(text))


def split_entries(text: str) -> tuple[str, ...]:
    """Return the entries of a page."""
    entries: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip() == _SEPARATOR:
            entries.append([])
        else:
            entries[-1].append(line)
    joined = ("\n".join(lines).strip() for lines in entries)
    return tuple(entry for entry in joined if entry)


def _list_skills(folder: Path) -> Iterator[Asset]:
    """Yield skills of people and agents; those that came with Hermes belong to it."""
    use = _load_object(folder / ".usage.json")
    bundled = read_text(folder / ".bundled_manifest")
    shipped = {line.partition(":")[0].strip() for line in bundled.splitlines()} if isinstance(bundled, str) else set()
    for main in sorted(folder.rglob("SKILL.md")):
        parts = main.parent.relative_to(folder).parts
        if not parts or any(part.startswith(".") for part in parts) or parts[-1] in shipped:
            continue
        counters = use.get(parts[-1])
        yield SkillFolder(parts[-1], main.parent, "/".join(parts[:-1]), counters if isinstance(counters, dict) else {})


def _list_persona(home: Path, request: Request, prefix: str) -> Iterator[Asset]:
    target = request.options.get("workspace-target")
    places = {
        "SOUL.md": request.home / "SOUL.md",
        "AGENTS.md": Path(target).expanduser() / "AGENTS.md" if target else None,
    }
    for name, place in places.items():
        text = read_text(home / name)
        if isinstance(text, Problem):
            yield text
        if not isinstance(text, str) or not text.strip() or text.strip().startswith(_FIRST_SOUL):
            continue
        if prefix:
            yield Leftover(f"{prefix}{name}", text.encode(), "of another profile; there is one per home")
        elif place is None:
            yield Leftover(name, text.encode(), "--workspace-target FOLDER copies it into a folder of yours")
        else:
            yield Document(name, text, place)


def _list_settings(path: Path) -> Iterator[Asset]:
    """Yield the settings that have the same name and meaning here, and the model."""
    text = read_text(path)
    if not isinstance(text, str):
        return
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        config: Any = YAML(typ="safe").load(text)
    except (YAMLError, RecursionError, ValueError):
        yield Problem("config.yaml", "is not YAML, so its settings are left out")
        return
    model, provider = dig(config, "model", "default"), dig(config, "model", "provider")
    if isinstance(model, str) and provider in VENDORS:
        yield Setting("model.default", f"{provider}/{model.removeprefix(f'{provider}/')}", "config.yaml")
    for key in _SHARED:
        value = dig(config, *key.split("."))
        if isinstance(value, bool | int | float | str):
            yield Setting(key, json.dumps(value), "config.yaml")


def _list_secrets(path: Path) -> Iterator[Asset]:
    found = [Secret(name, value, ".env") for name, value in read_env(path).items() if name in SECRETS and value]
    taken = ", ".join(f"{one.name} from {one.origin}" for one in found) or "none was found"
    yield Caution(f"credentials that are copied: {taken}; only these names are searched for: {', '.join(SECRETS)}")
    yield from found


def _is_running(home: Path) -> bool:
    """Whether the gateway of this home runs, by the process that its pid file names."""
    text = read_text(home / "gateway.pid")
    value = _parse(text) if isinstance(text, str) else None
    pid = value.get("pid") if isinstance(value, dict) else value
    return isinstance(pid, int) and Path(f"/proc/{pid}").is_dir()


def _load_object(path: Path) -> Mapping[str, Any]:
    text = read_text(path)
    value = _parse(text) if isinstance(text, str) else None
    return value if isinstance(value, dict) else {}


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
