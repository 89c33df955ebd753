"""Rows that say themselves whether they are whole: messages by their checksum, blobs and prompts by their hash."""

import base64
import hashlib
from collections.abc import Iterable

from kept.sessions.damage import checksum, is_damaged
from kept.sessions.records import MessageRow
from kept.storage.row_checksums import contradicts
from kept.storage.salvage import Row

_COLUMNS = ("id", *MessageRow._fields, "checksum")


def find_fault(table: str, row: Row) -> str:
    """Return what is wrong with a row; empty if nothing contradicts it."""
    if row.damage:
        return row.damage
    match table:
        case "messages" if is_damaged(tuple(row.values.get(name) for name in _COLUMNS)):
            return "it does not match its checksum"
        case "blobs" if not _is_hash_of(row.values.get("hash"), row.values.get("data")):
            return "its content does not match its hash"
        case "prompts" if not _is_hash_of(row.values.get("hash"), row.values.get("text")):
            return "its text does not match its hash"
    return "it does not match its checksum" if contradicts(table, row.values) else ""


def is_recognised(table: str, row: Row) -> bool:
    """Whether a row proves by its hash or checksum that it belongs to a table."""
    has_proof = table in {"blobs", "prompts"} or row.values.get("checksum") is not None
    return has_proof and not find_fault(table, row)


def _is_hash_of(digest: object, content: object) -> bool:
    text = base64.b64encode(content).decode() if isinstance(content, bytes) else str(content)
    return hashlib.sha256(text.encode()).hexdigest() == digest


def find_number(table: str, row: Row, missing: Iterable[int]) -> int | None:
    """Return the number of a row whose own number was damaged: the one with which its checksum is right."""
    if table != "messages" or row.values.get("checksum") is None:
        return None
    rest = tuple(row.values.get(name) for name in _COLUMNS[1:])
    return next((number for number in missing if checksum((number, *rest)) == row.values["checksum"]), None)
