"""Our own JSONL, as `kept export` and `kept sessions export` write it: conversations, and the entries of pages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from wellkept.core.messages import ImagePart, Message, Session, TextPart
from wellkept.core.text import JSON
from wellkept.formats.json_files import JsonlReading, RowParser, describe_binary, open_own
from wellkept.formats.messages import MOST_CHARS, shorten
from wellkept.formats.port import (
    Asset,
    Conversation,
    Item,
    Left,
    MemoryFile,
    Position,
    Reading,
    Request,
    Said,
    Source,
    Unusable,
    unknown,
)
from wellkept.memory.page import Target
from wellkept.sessions.lines import BadLine, MessageLine, NoConversation, SessionLine, expand, read_line

_PAGE = b'"page"'
_MOST_PAGE_BYTES = 4_000_000


class KeptLines(Source):
    """Reads files in our own format."""

    client = "jsonl"

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the file, or all such files in a folder."""
        return sorted(root.glob("*.jsonl")) if root.is_dir() else [root]

    def open(self, path: Path, position: Position) -> Reading:
        """Open a file."""
        return JsonlReading(path, position, _Parser)

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield the entries of the pages that an export of a user holds."""
        del request
        for path in self.list_transcripts(root):
            try:
                with open_own(path) as file:
                    lines = [line for line in file if _PAGE in line[:200] and len(line) <= _MOST_PAGE_BYTES]
            except (Unusable, OSError):
                continue  # reported where the file is opened
            for line in lines:
                yield from _read_page(line)


def _read_page(line: bytes) -> Iterator[Asset]:
    try:
        value = json.loads(line)
        target, entries = Target(value["target"]), value["entries"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    if value.get("type") != "page" or not isinstance(entries, list):
        return
    texts = tuple(text for text in entries if isinstance(text, str) and text.strip())
    folder = value.get("project")
    if texts and (target is not Target.PROJECT or isinstance(folder, str)):
        name = f"page/{target.value}" if target is not Target.PROJECT else f"page/{folder}"
        yield MemoryFile(name, target, entries=texts, folder=folder if isinstance(folder, str) else None)


class _Parser(RowParser):
    """Parses the lines of an export."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        del state
        self._told: dict[str, Conversation] = {}

    def state(self) -> Mapping[str, JSON]:
        """Return nothing: every line is independent."""
        return {}

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield the messages of a line; a message without a time is stored with the time of the import."""
        del start
        for value in expand(row, now=0.0):
            try:
                yield from self._read(read_line(value))
            except NoConversation:
                yield Left("no message")
            except BadLine:
                yield unknown(value)

    def _read(self, line: SessionLine | MessageLine) -> Iterator[Item]:
        session = line.session
        facts = _describe(session)
        known = self._told.get(session.id)
        if known is None or isinstance(line, SessionLine):
            self._told[session.id] = facts
            yield facts
        if isinstance(line, MessageLine):
            new = line.new
            external = new.external_id or _name_message(line)
            message = _without_images(new.message)
            yield Said(
                session.id, external, message, new.timestamp, new.origin, token_count=new.token_count,
                provenance=new.source,
            )  # fmt: skip


def _describe(session: Session) -> Conversation:
    return Conversation(
        session.id,
        folder=session.project,
        model=session.model,
        title=session.title,
        parent=session.parent_session_id,
        link=session.link,
        source=session.source,
        session_id=session.id,
        metadata=session.metadata,
    )


def _name_message(line: MessageLine) -> str:
    """Return an id for a message that has none: the same for each copy of the line."""
    message = line.new.message
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    whole = f"{line.session.id}\0{line.new.timestamp}\0{message.role.value}\0{message.text}\0{calls}"
    return hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _without_images(message: Message) -> Message:
    """Return a message whose images are placeholders with type, size and hash, as in every import."""
    if isinstance(message.content, str):
        return replace(message, content=shorten(message.content, MOST_CHARS))
    texts = [part.text if isinstance(part, TextPart) else _describe_image(part) for part in message.content]
    return replace(message, content=shorten("\n".join(texts), MOST_CHARS))


def _describe_image(image: ImagePart) -> str:
    # a long line reaches the parser with its images already replaced
    data = image.data if image.data.startswith("[binary") else describe_binary(image.data.encode("utf-8", "replace"))
    return f"[image {image.media_type} {data}]"
