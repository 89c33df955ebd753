"""Identifiers and their generation; digests of texts, and checksums of rows."""

import marshal
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NewType
from zlib import crc32

# Without OpenSSL, which `hashlib` loads: 5 ms and 4 MB of every process. For large files `hashlib` is faster.
if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:
    try:
        from _blake2 import blake2b

        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:  # another interpreter than CPython
        from hashlib import blake2b, sha256

__all__ = [
    "OWNER", "LedgerId", "MessageId", "SessionId", "SourceName", "UserId", "blake2b", "checksum", "new_group_id",
    "new_session_id", "random_hex", "sha256",
]  # fmt: skip

SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", int)
LedgerId = NewType("LedgerId", int)
UserId = NewType("UserId", str)
SourceName = NewType("SourceName", str)
"""Where a text came from, as it is stored: `web:https://…`, `tool:terminal`; `core/provenance.py` reads it."""

OWNER = UserId("owner")
"""The user who owns the home."""


def random_hex(count: int) -> str:
    """Return `count` random bytes in hexadecimal; importing `secrets` would load OpenSSL, 5 ms of each start."""
    return os.urandom(count).hex()


def new_session_id(now: datetime, *, hex_digits: int = 6) -> SessionId:
    """Return `YYYYMMDD_HHMMSS_<hex>`; the gateway uses 8 digits because it starts more sessions per second."""
    return SessionId(f"{now.astimezone(UTC):%Y%m%d_%H%M%S}_{random_hex((hex_digits + 1) // 2)[:hex_digits]}")


def new_group_id() -> str:
    """Return an id for a group of edits: one batch, one review, one import."""
    return random_hex(6)


def checksum(values: tuple[Any, ...]) -> int:
    """Return the checksum of a row of a database, with which damage on the disk is recognised.

    The bytes are those of marshal's second format, which has not changed since Python 2.5 and is three times as fast
    as joining texts; a test compares it with recorded numbers.
    """
    try:
        return crc32(marshal.dumps(values, 2))
    except ValueError:  # marshal takes no subclasses of str
        return crc32(marshal.dumps(tuple(str(one) if isinstance(one, str) else one for one in values), 2))
