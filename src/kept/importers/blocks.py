"""Content blocks as model APIs write them: their text, and placeholders for images and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kept.core.text import dumps
from kept.importers.jsonl import describe_binary

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMAGES = frozenset(("image", "input_image", "image_url", "localImage", "local_image"))
_FILES = frozenset(("document", "file", "input_file"))


def as_text(value: Any) -> str | None:
    """Return a text that is not empty, None for anything else."""
    return value if isinstance(value, str) and value else None


def as_blocks(content: Any) -> list[dict[str, Any]]:
    """Return content as blocks: a text is one block, what is no block is left out."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def describe_block(block: Mapping[str, Any]) -> str:
    """Return the text of a block, or a placeholder with type, size and hash for an image or a file."""
    kind = block.get("type")
    if isinstance(block.get("text"), str) and kind not in _IMAGES | _FILES:
        return str(block["text"])
    if kind in _IMAGES:
        return f"[image {_describe_source(block)}]"
    if kind in _FILES:
        name = block.get("title") or block.get("filename") or block.get("name")
        return f"[file {name if isinstance(name, str) else ''} {_describe_source(block)}]".replace("  ", " ")
    return ""


def _describe_source(block: Mapping[str, Any]) -> str:
    source = block.get("source") or block.get("image_url") or block.get("url") or block.get("path") or {}
    if isinstance(source, dict):
        media = str(source.get("media_type") or source.get("detail") or "")
        data = source.get("data") or source.get("url") or ""
    else:
        media, data = "", source
    text = str(data)
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        media = media or head[5:].partition(";")[0]
    if not text.startswith("[binary"):
        is_place = "/" in text[:64] and len(text) < 500 and not media
        text = text if is_place else describe_binary(text.encode("utf-8", "replace"))
    return f"{media} {text}".strip()


def result_text(content: Any) -> str:
    """Return a tool's result as text: a string, blocks, or JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [describe_block(block) if isinstance(block, dict) else str(block) for block in content]
        return "\n".join(text for text in texts if text)
    return "" if content is None else dumps(content)
