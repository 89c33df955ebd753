"""Large binary stretches of a message, kept once by content hash and outside the indexed text."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LEAST_CHARS = 2_048
"""Shorter stretches stay in the text: a hash and a row would take as much room."""

_RUN = re.compile(rf"[A-Za-z0-9+/_-]{{{LEAST_CHARS},}}={{0,2}}")


@dataclass(frozen=True, slots=True)
class Blob:
    """A stretch of base64, by the hash of its text; `data` is the decoded bytes where that loses nothing."""

    hash: str
    data: bytes | str


def blob_of(text: str) -> Blob:
    """Return `text` as a blob."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return Blob(digest, text)
    return Blob(digest, data if base64.b64encode(data).decode() == text else text)


def blob_text(data: bytes | str) -> str:
    """Return the text that a blob was made of."""
    return data if isinstance(data, str) else base64.b64encode(data).decode()


def cut(text: str) -> tuple[str, list[Blob]]:
    """Return `text` with every long base64 run replaced by a mark that names its hash."""
    if len(text) < LEAST_CHARS:
        return text, []
    blobs: list[Blob] = []

    def swap(match: re.Match[str]) -> str:
        run = match.group()
        if not _is_binary(run):
            return run
        blob = blob_of(run)
        blobs.append(blob)
        return _mark(blob.hash)

    return _RUN.sub(swap, text), blobs


def joined(text: str, hashes: Sequence[str], load: Callable[[str], str | None]) -> str:
    """Return `text` with its marks replaced by what they stand for; an unknown blob stays a mark."""
    for digest in hashes:
        whole = load(digest)
        if whole is not None:
            text = text.replace(_mark(digest), whole, 1)
    return text


def _mark(digest: str) -> str:
    return f"[blob:{digest}]"


def _is_binary(run: str) -> bool:
    # encoded bytes mix cases and digits everywhere; a long word, path or row of dashes does not
    sample = run[:256]
    return (
        any(character.islower() for character in sample)
        and any(character.isupper() for character in sample)
        and any(character.isdigit() for character in sample)
    )
