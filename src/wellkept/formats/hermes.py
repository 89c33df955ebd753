"""Hermes Agent: profiles with conversations, pages, skills and their use, persona, and settings that kept shares."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wellkept.core.errors import StorageError
from wellkept.formats.agent_files import read_text
from wellkept.formats.hermes_history import (
    MACHINE_SOURCES,
    HermesDatabase,
    from_local,
    name_rows,
    read_json,
    read_moment,
    speak,
)
from wellkept.formats.json_files import UNEXPECTED, open_own
from wellkept.formats.messages import PrivateTurns, as_text
from wellkept.formats.openclaw_config import SECRETS, dig, read_env
from wellkept.formats.port import (
    Asset,
    Caution,
    Conversation,
    Document,
    Item,
    Kind,
    Left,
    Leftover,
    MemoryFile,
    Option,
    Position,
    Problem,
    Reading,
    Request,
    Secret,
    Setting,
    SkillFolder,
    Source,
    unknown,
)
from wellkept.llm.endpoints import VENDORS
from wellkept.memory.page import Target

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
        text = read_text(home / "memories" / name)
        if isinstance(text, Problem):
            yield text
        elif text is not None and text.strip():
            yield MemoryFile(f"{prefix}memories/{name}", target, entries=split_entries(text))
    yield from _list_skills(home / "skills")
    yield from _list_persona(home, request, prefix)
    if not profile:
        yield from _list_settings(home / "config.yaml")
        if _is_running(home):
            yield Caution("Hermes is running: what it writes meanwhile is left out")
        if request.options.get("migrate-secrets"):
            yield from _list_secrets(home / ".env")


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
    text = read_text(folder / ".usage.json")
    value = _parse(text) if isinstance(text, str) else None
    use = value if isinstance(value, dict) else {}
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


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


_STATE = "state.db"


class Hermes(Source):
    """Finds and reads everything of Hermes Agent; sub-agents are sessions of the same database."""

    client = "hermes"
    options: tuple[Option, ...] = (Option("workspace-target"), Option("migrate-secrets", ("yes",)))

    def __init__(self) -> None:
        self._stored: dict[Path, frozenset[str]] = {}
        """The sessions of each database; older JSON files repeat them."""

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the home of Hermes."""
        chosen = environ.get("HERMES_HOME")
        if chosen:
            return [Path(chosen).expanduser()]
        local = environ.get("LOCALAPPDATA")
        home = Path(environ.get("HOME") or "~").expanduser() / ".hermes"
        return [home, Path(local) / "hermes"] if local else [home]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the database of each profile, then the older files, the oldest first."""
        if root.is_file():
            return [root]
        homes = list_profiles(root)
        databases = [home / _STATE for home in homes if (home / _STATE).is_file()]
        # their names begin with the time of the session
        return databases + [path for home in homes for path in sorted((home / "sessions").glob("session_*.json"))]

    def open(self, path: Path, position: Position) -> Reading:
        """Open a database or an older file."""
        open_own(path).close()
        if path.suffix == ".json":
            home = path.parent.parent
            return _JsonReading(path, position, name_profile(home), known=self._find_stored(home / _STATE))
        return HermesDatabase(path, position, name_profile(path.parent))

    def _find_stored(self, database: Path) -> frozenset[str]:
        """Return the sessions that a database holds messages of."""
        if database not in self._stored:
            from wellkept.storage.foreign import open_copy

            try:
                with open_copy(database, rescue=("messages",)) as tables:
                    rows = tables.rows("SELECT DISTINCT session_id FROM messages")
                    self._stored[database] = frozenset(str(name) for (name,) in rows)
            except StorageError:
                self._stored[database] = frozenset()
        return self._stored[database]

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield pages, skills with their use, persona and shared settings of every profile."""
        if root.is_dir():
            for home in list_profiles(root):
                yield from list_hermes(home, request, name_profile(home))


def list_profiles(root: Path) -> list[Path]:
    """Return the homes below a root: its own, then those of the profiles."""
    return [root, *sorted(path for path in (root / "profiles").glob("*") if path.is_dir())]


def name_profile(home: Path) -> str:
    """Return the name of the profile whose home this is; empty for the default one."""
    return home.name if home.parent.name == "profiles" else ""


class _JsonReading(Reading):
    """Reads a JSON file of an older version: one session, rewritten at each turn."""

    def __init__(self, path: Path, position: Position, profile: str, *, known: frozenset[str]) -> None:
        with open_own(path) as file:
            data = file.read()
        self._check = hashlib.blake2b(data, digest_size=8).hexdigest()
        self._size = len(data)
        self._is_read = position.check == self._check
        self._value: dict[str, Any] = {} if self._is_read else read_json(path, data)
        self._name = as_text(self._value.get("session_id")) or path.stem.removeprefix("session_")
        self._profile = profile
        self._known = known

    def __iter__(self) -> Iterator[Item]:
        """Yield the messages, unless the database has the session."""
        if self._is_read:
            return
        if self._name in self._known:
            yield Left("stored in the database")
            return
        platform = str(self._value.get("platform") or "")
        facts = Conversation(
            f"{self._profile}/{self._name}" if self._profile else self._name,
            Kind.HEADLESS if platform in MACHINE_SOURCES else Kind.PERSON,
            folder=as_text(self._value.get("cwd")),
            model=as_text(self._value.get("model")),
            title=as_text(self._value.get("title")),
            metadata={"platform": platform} if platform else {},
        )
        yield facts
        start = from_local(self._value.get("session_start")) or 0.0
        private = PrivateTurns()
        for row, external in name_rows(facts.external_id, self._value["messages"]):
            try:
                yield from speak({**row, "timestamp": read_moment(row) or start}, external, facts, private)
            except UNEXPECTED:
                yield unknown(row)

    def position(self) -> Position:
        """Return the position: the whole file."""
        return Position(self._size, self._check)

    def close(self) -> None:
        """Do nothing: the file is closed already."""
