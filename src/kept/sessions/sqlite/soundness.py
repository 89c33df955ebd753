"""Rows that say themselves whether they are whole: blobs and prompts by their hash."""

import base64
import hashlib

from kept.storage.salvage import Row


def find_fault(table: str, row: Row) -> str:
    """Return what is wrong with a row; empty if nothing contradicts it."""
    if row.damage:
        return row.damage
    match table:
        case "blobs" if not _is_hash_of(row.values.get("hash"), row.values.get("data")):
            return "its content does not match its hash"
        case "prompts" if not _is_hash_of(row.values.get("hash"), row.values.get("text")):
            return "its text does not match its hash"
    return ""


def _is_hash_of(digest: object, content: object) -> bool:
    text = base64.b64encode(content).decode() if isinstance(content, bytes) else str(content)
    return hashlib.sha256(text.encode()).hexdigest() == digest
