"""Identifiers and their generation."""

import os
from datetime import UTC, datetime
from typing import NewType

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
