"""Codex's database of thread items: read for threads whose rollout is gone."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from wellkept.core.errors import StorageError
from wellkept.core.messages import Message, Origin, Role, ToolCall
from wellkept.importers.jsonl import UNEXPECTED, open_own
from wellkept.importers.port import Conversation, Item, Kind, Left, Position, Said, Unusable, unknown
from wellkept.importers.typed_text import (
    MOST_CHARS,
    PrivateSpans,
    as_blocks,
    as_text,
    clean_answer,
    clean_arguments,
    clean_result,
    describe_block,
    join_texts,
    remove_machine_blocks,
    shorten,
)
from wellkept.storage.foreign import open_copy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from wellkept.storage.foreign import ForeignTables

_THREAD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FACTS_FILE = "state_5.sqlite"
_ITEMS = """SELECT rowid, thread_id, turn_id, item_id, created_at_ms, item_json FROM thread_items
    WHERE rowid > :after ORDER BY thread_id, rollout_ordinal"""


class CodexHistoryReading:
    """Implements `port.Reading`; the position is the number of the newest row that was read."""

    was_rewritten = False

    def __init__(self, path: Path, position: Position) -> None:
        open_own(path).close()
        self._path = path
        self._after = self._newest = position.offset
        names = (
            one.name
            for folder in ("sessions", "archived_sessions")
            for one in path.parent.glob(f"{folder}/**/rollout-*")
        )
        self._with_rollout = {thread for name in names for thread in _THREAD.findall(name)}
        self._private = PrivateSpans()

    def __iter__(self) -> Iterator[Item]:
        """Yield the items of every thread that has no rollout any more."""
        try:
            with open_copy(self._path) as tables:
                yield from self._read(tables)
        except StorageError as error:
            raise Unusable(error.message, error.remedy) from error

    def _read(self, tables: ForeignTables) -> Iterator[Item]:
        if not {"thread_id", "turn_id", "item_json"} <= tables.columns("thread_items"):
            raise Unusable(f"{str(self._path)!r} has no items that can be read", "give the folder of Codex")
        facts = self._read_facts()
        newest, current = self._after, None
        for number, thread, turn, name, created, text in tables.rows(_ITEMS, {"after": self._after}):
            newest = max(newest, number)
            if thread in self._with_rollout:
                continue
            if thread != current:
                current = thread
                self._private = PrivateSpans()
                yield facts.get(thread) or Conversation(thread)
            try:
                yield from self._take(json.loads(text), thread, f"{turn}:{name}", created / 1_000)
            except UNEXPECTED:
                yield unknown()
        self._newest = newest

    def _take(self, item: dict[str, Any], thread: str, name: str, moment: float) -> Iterator[Item]:
        match item.get("type"):
            case "userMessage":
                whole = join_texts(describe_block(block) for block in as_blocks(item.get("content")))
                text = shorten(self._private.remove(remove_machine_blocks(whole)).strip(), MOST_CHARS)
                said, origin = Message(Role.USER, text), Origin.PERSON
            case "agentMessage":
                said, origin = Message(Role.ASSISTANT, clean_answer(str(item.get("text") or ""))), Origin.MODEL
            case "commandExecution":
                call = ToolCall(name, "exec_command", clean_arguments({"cmd": item.get("command")}))
                yield Said(thread, name, Message(Role.ASSISTANT, "", (call,)), moment, Origin.MODEL)
                output = clean_result(as_text(item.get("aggregatedOutput")) or "")
                said, origin = Message(Role.TOOL, output, tool_call_id=name, tool_name=call.name), Origin.TOOL
                name = f"{name}:output"
            case _:
                yield Left("no message")
                return
        is_private = self._private.is_open and origin is not Origin.PERSON
        if said.text and not is_private:
            yield Said(thread, name, said, moment, origin)
        else:
            yield Left("private" if is_private or origin is Origin.PERSON else "empty")

    def _read_facts(self) -> dict[str, Conversation]:
        """Return folder and model of each thread, from the database beside this one."""
        place = self._path.with_name(_FACTS_FILE)
        try:
            open_own(place).close()
            with open_copy(place) as tables:
                rows = list(tables.rows("SELECT id, cwd, model, source FROM threads"))
        except (Unusable, StorageError):
            return {}
        return {
            thread: Conversation(
                thread,
                Kind.HEADLESS if source == "exec" else Kind.SUBAGENT if str(source).startswith("{") else Kind.PERSON,
                folder=as_text(folder),
                model=as_text(model),
            )
            for thread, folder, model, source in rows
        }

    def position(self) -> Position:
        """Return the newest row that was read whole."""
        return Position(self._newest)

    def waiting_bytes(self) -> int:
        """Return 0: rows are written whole."""
        return 0

    def close(self) -> None:
        """Do nothing: the copy is removed when it has been read."""
