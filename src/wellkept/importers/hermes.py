"""Hermes Agent: profiles with conversations, pages, skills and their use, persona, and settings that kept shares."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wellkept.core.errors import StorageError
from wellkept.importers.hermes_database import HermesDatabase, read_moment, speak
from wellkept.importers.hermes_history import MACHINE_SOURCES, from_local, name_rows, read_json
from wellkept.importers.jsonl import UNEXPECTED, open_own
from wellkept.importers.port import Conversation, Item, Kind, Left, Option, Position, Reading, unknown
from wellkept.importers.typed_text import PrivateTurns, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wellkept.importers.assets import Asset
    from wellkept.importers.port import Request

_STATE = "state.db"


class Hermes:
    """Finds and reads everything of Hermes Agent."""

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

    def list_related(self, path: Path) -> list[Path]:
        """Return nothing: sub-agents are sessions of the same database."""
        del path
        return []

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
        from wellkept.importers.hermes_home import list_hermes

        if root.is_dir():
            for home in list_profiles(root):
                yield from list_hermes(home, request, name_profile(home))


def list_profiles(root: Path) -> list[Path]:
    """Return the homes below a root: its own, then those of the profiles."""
    return [root, *sorted(path for path in (root / "profiles").glob("*") if path.is_dir())]


def name_profile(home: Path) -> str:
    """Return the name of the profile whose home this is; empty for the default one."""
    return home.name if home.parent.name == "profiles" else ""


class _JsonReading:
    """Implements `port.Reading` on a JSON file of an older version: one session, rewritten at each turn."""

    was_rewritten = False

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

    def waiting_bytes(self) -> int:
        """Return 0: the file is read at once."""
        return 0

    def close(self) -> None:
        """Do nothing: the file is closed already."""
