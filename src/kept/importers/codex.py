"""Codex: where it keeps its rollouts, and how each generation of them is opened."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kept.core.regular_files import load_bytes
from kept.importers.codex_rollout import RolloutParser
from kept.importers.jsonl import MOST_LINE_BYTES, UNEXPECTED, JsonlReading, open_own
from kept.importers.port import START, Item, Left, Option, Position, Reading, Request, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kept.importers.assets import Asset

_TITLES_BYTES = 2_000_000
_ENDINGS = (".jsonl", ".jsonl.zst", ".json")
"""Of rollouts: JSONL, the same after a week without use, and one JSON object as the first versions wrote it."""


class Codex:
    """Finds and reads the rollouts of Codex."""

    client = "codex"
    options: tuple[Option, ...] = ()

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folder of Codex."""
        chosen = environ.get("CODEX_HOME")
        return [Path(chosen) if chosen else Path(environ.get("HOME") or "~").expanduser() / ".codex"]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return every rollout below a folder, the oldest first by their names, then the database of items."""
        if root.is_file():
            return [root]
        folders = [root / name for name in ("sessions", "archived_sessions")]
        bases = [folder for folder in folders if folder.is_dir()] or [root]
        found = [path for base in bases for path in base.rglob("rollout-*") if path.name.endswith(_ENDINGS)]
        return [*sorted(found, key=lambda path: path.name), *sorted(root.glob("thread_history_*.sqlite"))]

    def list_related(self, path: Path) -> list[Path]:
        """Return nothing: threads of sub-agents are rollouts like all others."""
        del path
        return []

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield AGENTS.md and memories of the person and of each project, and the skills."""
        from kept.importers.agent_files import list_codex_assets

        del request
        return list_codex_assets(root) if root.is_dir() else iter(())

    def open(self, path: Path, position: Position) -> Reading:
        """Open a rollout of any generation; a compressed one is unpacked into a temporary file."""
        if path.suffix == ".sqlite":
            from kept.importers.codex_history import CodexHistoryReading

            return CodexHistoryReading(path, position)
        titles = _read_titles(path)
        if path.suffix == ".json":
            return _WholeRollout(path, position, RolloutParser({}, titles))
        return JsonlReading(path, position, lambda state: RolloutParser(state, titles))


class _WholeRollout:
    """Implements `port.Reading` on a rollout of early 2025: one object with session and items, written whole."""

    def __init__(self, path: Path, position: Position, parser: RolloutParser) -> None:
        with open_own(path) as file:
            self._data = file.read(MOST_LINE_BYTES)
        check = hashlib.blake2b(self._data, digest_size=8).hexdigest()
        self._position = Position(len(self._data), check)
        self._is_read = position.check == check
        self.was_rewritten = position.offset > 0 and not self._is_read
        self._parser = parser

    def __iter__(self) -> Iterator[Item]:
        """Yield the items of the session, each with the time at which the session began."""
        if self._is_read:
            return
        try:
            value = json.loads(self._data)
            rows = [value["session"], *value["items"]]
        except UNEXPECTED:
            yield Left("broken line")  # it may be written at this moment
            self._position = START
            return
        for row in rows:
            try:
                yield from self._parser.take(row, 0)
            except UNEXPECTED:
                yield unknown(row)

    def position(self) -> Position:
        """Return the end of the file with its hash: it is rewritten as a whole."""
        return self._position

    def waiting_bytes(self) -> int:
        """Return 0: the file is read at once."""
        return 0

    def close(self) -> None:
        """Release the content."""
        self._data = b""


def _read_titles(path: Path) -> dict[str, str]:
    """Return the names of threads, which rollouts do not hold; the last line of a thread wins."""
    titles: dict[str, str] = {}
    folder = next((one for one in path.parents if one.name in {"sessions", "archived_sessions"}), None)
    if folder is None:
        return titles
    try:
        data = load_bytes(folder.parent / "session_index.jsonl")[-_TITLES_BYTES:]
    except OSError:
        return titles
    for line in data.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("thread_name"), str) and row["thread_name"]:
            titles[str(row.get("id"))] = row["thread_name"]
    return titles
