"""What ChatGPT remembered of a person: custom instructions and saved memories, as far as its export mentions them.

The export has no list of memories. They are in hidden messages of the conversations: the newest one that shows all
of them to the model counts, and so does each call of the tool that saves one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from wellkept.core.clock import from_program
from wellkept.importers.archives import DAMAGE, open_export
from wellkept.importers.assets import MemoryFile
from wellkept.importers.exports import find_conversations
from wellkept.importers.json_stream import JsonStream
from wellkept.importers.jsonl import UNEXPECTED
from wellkept.importers.port import Unusable
from wellkept.memory.page import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_SAVED = re.compile(r"^\s*\d+\.\s*(?:\[[^\]]{1,40}\]\.?\s*)?(.+?)\s*$", re.MULTILINE)
"""A line of the list that the model is shown: number, date, text."""
_FENCED = re.compile(r"```\w*\n?(.*?)```", re.DOTALL)
"""What the person typed, within a sentence that explains it to the model."""
_MOST_CHARS = 4_000


class _Memory(Struct):
    instructions: tuple[float, tuple[str, ...]] = (-1.0, ())
    saved: tuple[float, tuple[str, ...]] = (-1.0, ())
    written: dict[str, None] = field(default_factory=dict)

    def take(self, record: Mapping[str, Any]) -> None:
        """Take what the messages of a conversation mention."""
        changed = from_program(record.get("update_time")) or from_program(record.get("create_time")) or 0.0
        for node in (record.get("mapping") or {}).values():
            message = node.get("message") if isinstance(node, dict) else None
            if not isinstance(message, dict):
                continue
            content = message.get("content")
            content = content if isinstance(content, dict) else {}
            moment = from_program(message.get("create_time")) or changed
            if message.get("recipient") == "bio":
                self._take_written(content)
            elif content.get("content_type") == "model_editable_context":
                listed = _SAVED.findall(str(content.get("model_set_context") or ""))
                self.saved = max(self.saved, (moment, tuple(listed)))
            elif instructions := _instructions(message, content):
                self.instructions = max(self.instructions, (moment, instructions))

    def _take_written(self, content: Mapping[str, Any]) -> None:
        parts = content.get("parts")
        texts = parts if isinstance(parts, list) else [content.get("text")]
        for text in texts:
            if isinstance(text, str) and text.strip():
                self.written[text.strip()[:_MOST_CHARS]] = None


def _instructions(message: Mapping[str, Any], content: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the custom instructions that a message repeats, in the form of today or that of 2023."""
    found = [content.get("user_profile"), content.get("user_instructions")]
    metadata = message.get("metadata")
    old = metadata.get("user_context_message_data") if isinstance(metadata, dict) else None
    if isinstance(old, dict):
        found += [old.get("about_user_message"), old.get("about_model_message")]
    typed = (_take_out_of_fence(text) for text in found if isinstance(text, str))
    return tuple(text for text in typed if text)


def _take_out_of_fence(text: str) -> str:
    fenced = _FENCED.search(text)
    return (fenced[1] if fenced else text).strip()[:_MOST_CHARS]


def list_memory(path: Path) -> Iterator[MemoryFile]:
    """Yield the memory of an export; nothing if the export cannot be read, which opening it reports."""
    try:
        files = open_export(path)
        stamp = files.stamp
        files.close()
        memory = _collect(path, stamp)
    except (Unusable, *DAMAGE):
        return
    if memory.instructions[1]:
        yield MemoryFile("custom instructions", Target.USER, entries=memory.instructions[1])
    saved = tuple(dict.fromkeys((*memory.saved[1], *memory.written)))
    if saved:
        yield MemoryFile("saved memories", Target.MEMORY, entries=saved)


@lru_cache(maxsize=4)
def _collect(path: Path, stamp: str) -> _Memory:
    """Read all conversations once: preview and import ask for the same export."""
    from wellkept.importers.chatgpt import CONVERSATIONS

    del stamp  # part of the key: a changed export is read again
    memory = _Memory()
    files = open_export(path)
    try:
        for name in find_conversations(files, CONVERSATIONS, path):
            with files.open(name) as file:
                for piece in JsonStream(file, key="conversations"):
                    try:
                        memory.take(piece.value or {})
                    except UNEXPECTED:
                        continue
    finally:
        files.close()
    return memory
