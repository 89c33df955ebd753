"""ChatGPT's data export: conversations as trees of messages, in one file or many, and what it remembered of a person.

The export has no list of memories. They are in hidden messages of the conversations: the newest one that shows all
of them to the model counts, and so does each call of the tool that saves one.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.text import JSON
from wellkept.formats.exports import (
    DAMAGE,
    Branch,
    ExportFiles,
    ExportReading,
    Node,
    find_conversations,
    hash_file,
    list_exports,
    open_conversations,
    open_export,
    repeat_joint,
    split_branches,
)
from wellkept.formats.json_files import UNEXPECTED, JsonStream
from wellkept.formats.messages import Speech, as_text, join_texts
from wellkept.formats.port import (
    Asset,
    Conversation,
    Item,
    Left,
    MemoryFile,
    Position,
    Request,
    Source,
    Unusable,
    unknown,
)
from wellkept.memory.page import Target

CONVERSATIONS = r"conversations(-\d+)?\.json"
_ASSET_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_MARKS = re.compile(
    "\ue200[^\ue201]*\ue201|[\ue200-\ue2ff]|\u3010[^\u3010\u3011]{0,200}\u2020[^\u3010\u3011]{0,200}\u3011"
)
"""Citations: private characters around a reference, and brackets with a dagger."""
_CONTEXT = frozenset(("user_editable_context", "model_editable_context"))
"""Custom instructions and saved memories, repeated in every conversation; taken once, as memory."""
_CONTENTS = frozenset(
    (
        "code", "execution_output", "multimodal_text", "reasoning_recap", "system_error", "text", "thoughts",
        "tether_browsing_display", "tether_quote", None,
    )
)  # fmt: skip
"""Kinds of content, some of which may be empty."""
_SOUNDS = frozenset(("audio_asset_pointer", "real_time_user_audio_video_asset_pointer"))
"""Audio parts; their words are in a transcription beside them."""
_NO_TITLES = frozenset(("New chat", "New Chat"))


class ChatGpt(Source):
    """Reads data exports of ChatGPT."""

    client = "chatgpt"

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the export, or the archives in a folder."""
        return list_exports(root, CONVERSATIONS)

    def open(self, path: Path, position: Position) -> ExportReading:
        """Open an export; raise Unusable if it cannot be trusted or read."""
        return open_conversations(path, position, CONVERSATIONS, lambda files: _Conversations(files).read)

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield the custom instructions and the saved memories that the conversations mention."""
        del request
        for path in self.list_transcripts(root):
            yield from list_memory(path)


class _Conversations:
    """Turns the records of one export into items."""

    def __init__(self, files: ExportFiles) -> None:
        self._files = files
        self._assets: dict[str, str] | None = None

    def read(self, record: Mapping[str, Any]) -> Iterator[Item]:
        """Yield a conversation: its current branch, then the other branches in which the person said something."""
        external = as_text(record.get("conversation_id")) or as_text(record.get("id"))
        mapping = record.get("mapping")
        if external is None or not isinstance(mapping, dict):
            yield unknown(record)
            return
        nodes = {name: node for name, value in mapping.items() if (node := _read_node(name, value)) is not None}
        if len(nodes) < len(mapping):
            yield unknown()
        facts = _describe(record, external)
        for place, branch in enumerate(split_branches(nodes, as_text(record.get("current_node")))):
            if place == 0:
                yield from self._read_branch(branch, facts, nodes)
            elif any(_role(node) == "user" and not _is_hidden(node) for node in branch.own):
                own = f"{external}/{branch.own[0].id}"
                yield from self._read_branch(branch, replace(facts, external_id=own, parent=external), nodes)
            elif any(node.message for node in branch.own):
                yield Left("regenerated answer")

    def _read_branch(self, branch: Branch, facts: Conversation, nodes: Mapping[str, Node]) -> Iterator[Item]:
        yield facts
        speech = Speech(facts.external_id)
        speech.at(branch.joint.moment if branch.joint else from_program(facts.metadata.get("created")))
        yield from repeat_joint(branch, nodes, lambda node: self._read_message(node, speech))
        for node in branch.own:
            if node.message is None:
                continue
            metadata = node.message.get("metadata")
            model = as_text(metadata.get("model_slug")) if isinstance(metadata, dict) else None
            if model is not None and model != facts.model:
                facts = replace(facts, model=model)
                yield facts
            yield from self._read_message(node, speech)

    def _read_message(self, node: Node, speech: Speech) -> Iterator[Item]:
        message, role, content = node.message, _role(node), _content(node)
        kind = content.get("content_type")
        if message is None or kind in _CONTEXT:
            return
        moment = node.moment or None
        yield from self._name_unknown(content)
        if role == "system" or _is_hidden(node):
            yield Left("hidden")
        elif role == "user":
            yield from speech.prompt(node.id, join_texts((self._text(content), self._attachments(message))), moment)
        elif role == "assistant" and kind == "thoughts":
            speech.think(_thoughts(content))
        elif role == "assistant" and kind == "reasoning_recap":
            yield Left("no message")
        elif role == "assistant":
            yield from self._read_answer(node, speech)
        elif role == "tool":
            author = message.get("author") or {}
            yield from speech.result(node.id, _MARKS.sub("", self._text(content)), moment, name=author.get("name"))
        else:
            yield unknown(message)

    def _name_unknown(self, content: Mapping[str, Any]) -> Iterator[Item]:
        """Yield a content without text of a kind that no known version has."""
        kind = content.get("content_type")
        if kind not in _CONTENTS and not self._text(content):
            yield unknown({"type": kind}, "content")

    def _read_answer(self, node: Node, speech: Speech) -> Iterator[Item]:
        recipient = as_text((node.message or {}).get("recipient")) or "all"
        text = self._text(_content(node))
        if recipient == "all":
            yield from speech.answer(node.id, _MARKS.sub("", text), node.moment or None)
        else:
            yield from speech.answer(node.id, "", node.moment or None, calls=[(node.id, recipient, text)])

    # contents

    def _text(self, content: Mapping[str, Any]) -> str:
        """Return the text of a content of any kind; anything but text becomes a placeholder."""
        parts = content.get("parts")
        if isinstance(parts, list):
            return join_texts(part if isinstance(part, str) else self._describe_part(part) for part in parts)
        named = (content.get(name) for name in ("title", "name", "url", "text", "result"))
        return join_texts(text for text in named if isinstance(text, str))

    def _describe_part(self, part: Any) -> str:
        if not isinstance(part, dict):
            return ""
        kind = part.get("content_type")
        if kind == "image_asset_pointer":
            return self._describe_asset("image", part.get("asset_pointer"), part.get("size_bytes"))
        if kind in _SOUNDS:
            return ""
        return as_text(part.get("text")) or f"[{kind or 'part'}]"

    def _attachments(self, message: Mapping[str, Any]) -> str:
        """Return a line for each file that was sent along; images that the text shows already are left out."""
        metadata = message.get("metadata")
        listed = metadata.get("attachments") if isinstance(metadata, dict) else None
        shown = str(message.get("content"))
        found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        return join_texts(
            self._describe_asset(f"file {one.get('name') or ''}".strip(), one.get("id"), one.get("size"))
            for one in found
            if not (one.get("id") and str(one["id"]) in shown)
        )

    def _describe_asset(self, what: str, pointer: Any, size: Any) -> str:
        """Return a placeholder with type, size and, if the file is in the export, its hash."""
        match = _ASSET_ID.search(str(pointer or ""))
        name = self._find_asset(match.group()) if match else None
        if name is None:
            detail = f"{size:,} bytes" if isinstance(size, int) else ""
            return f"[{what} {detail}]".replace(" ]", "]")
        media = mimetypes.guess_type(name)[0] or ""
        whole = f"[{what} {media} {self._files.size(name):,} bytes, sha256 {hash_file(self._files, name)}]"
        return whole.replace("  ", " ")

    def _find_asset(self, asset_id: str) -> str | None:
        if self._assets is None:
            listed = ((_ASSET_ID.match(name.rpartition("/")[2]), name) for name in self._files.names())
            self._assets = {found.group(): name for found, name in listed if found is not None}
        return self._assets.get(asset_id)


def _describe(record: Mapping[str, Any], external: str) -> Conversation:
    title = as_text(record.get("title"))
    facts: dict[str, JSON] = {
        "created": from_program(record.get("create_time")),
        "gizmo": as_text(record.get("gizmo_id")),
        "archived": record.get("is_archived") is True or None,
        "starred": record.get("is_starred") is True or None,
    }
    return Conversation(
        external,
        model=as_text(record.get("default_model_slug")),
        title=None if title in _NO_TITLES else title,
        is_tree=True,
        metadata={key: value for key, value in facts.items() if value},
    )


def _read_node(name: str, value: Any) -> Node | None:
    """Return a node of the mapping, None for one of another shape."""
    if not isinstance(value, dict):
        return None
    message = value.get("message")
    if message is not None and not isinstance(message, dict):
        return None
    parent = value.get("parent")
    moment = from_program(message.get("create_time")) if message else None
    return Node(name, parent if isinstance(parent, str) else None, moment or 0.0, message)


def _role(node: Node) -> str | None:
    author = (node.message or {}).get("author")
    return as_text(author.get("role")) if isinstance(author, dict) else None


def _content(node: Node) -> dict[str, Any]:
    content = (node.message or {}).get("content")
    return content if isinstance(content, dict) else {}


def _is_hidden(node: Node) -> bool:
    message = node.message or {}
    metadata = message.get("metadata")
    is_marked = isinstance(metadata, dict) and (
        metadata.get("is_visually_hidden_from_conversation") is True or metadata.get("is_user_system_message") is True
    )
    return is_marked or message.get("weight") == 0 or _content(node).get("content_type") in _CONTEXT


def _thoughts(content: Mapping[str, Any]) -> str:
    listed = content.get("thoughts")
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return join_texts(f"{one.get('summary') or ''}\n{one.get('content') or ''}".strip() for one in found)


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
                parts = content.get("parts")
                texts = parts if isinstance(parts, list) else [content.get("text")]
                for text in texts:
                    if isinstance(text, str) and text.strip():
                        self.written[text.strip()[:_MOST_CHARS]] = None
            elif content.get("content_type") == "model_editable_context":
                listed = _SAVED.findall(str(content.get("model_set_context") or ""))
                self.saved = max(self.saved, (moment, tuple(listed)))
            elif instructions := _instructions(message, content):
                self.instructions = max(self.instructions, (moment, instructions))


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
