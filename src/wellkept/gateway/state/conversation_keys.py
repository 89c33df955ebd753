"""Keys of conversations: which session continues the chat of a platform or the conversation of a client.

A key names a conversation outside of kept: a chat on a messaging platform, or the id that a client sends.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from wellkept.app.caller import Scope
from wellkept.core.ids import SessionId
from wellkept.storage.connections import statements

if TYPE_CHECKING:
    from datetime import datetime

    from wellkept.app.caller import Caller
    from wellkept.config.settings import ServeSettings
    from wellkept.storage.leases import Lease

SQL = statements("wellkept.gateway.state", "conversation_keys.sql")
_MOST_CHARACTERS = 200


class Chat(Struct, frozen=True):
    """Where a message on a platform was said."""

    platform: str
    chat_type: str
    """`dm` for a private chat, otherwise for example `group`, `channel` or `api`."""
    chat: str = ""
    thread: str = ""
    user: str = ""
    is_shared: bool = False
    """Whether the people of a group share one conversation."""
    first: str = ""
    """The id that the chat had before it moved; empty if it never did."""

    @property
    def origin(self) -> str:
        """Return the id that stays the same when a chat moves."""
        return self.first or self.chat


def build_key(chat: Chat) -> str:
    """Return the key of a chat: one per person in a group, unless the group shares one; threads are always shared."""
    if chat.chat_type == "dm":
        return _join("agent:main", chat.platform, "dm", chat.origin or chat.user, chat.thread)
    person = "" if chat.thread or chat.is_shared else chat.user
    return _join("agent:main", chat.platform, chat.chat_type, chat.origin, chat.thread, person)


def _join(*parts: str) -> str:
    key = ":".join(part for part in parts if part)
    if len(key) <= _MOST_CHARACTERS:
        return key
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{key[:_MOST_CHARACTERS]}:{digest}"


class Continued(Struct, frozen=True):
    """The session of a key."""

    session_id: SessionId
    last_used: float


def find_session(caller: Caller, key: str) -> Continued | None:
    """Return the session that a key continues; None for a new key, or if the session was removed."""
    with caller.database.reading() as unit:
        rows = list(unit.execute(SQL.session, {"user": caller.user, "key": key}))
    if not rows:
        return None
    session_id = SessionId(str(rows[0][0]))
    if caller.space.sessions.session(session_id) is None:
        return None
    return Continued(session_id, float(str(rows[0][1])))


def find_key(caller: Caller, session_id: SessionId) -> str | None:
    """Return the key that continues a session, the last used one."""
    with caller.database.reading() as unit:
        rows = unit.execute(SQL.key, {"user": caller.user, "session": session_id})
        return next((str(key) for (key,) in rows), None)


def set_session(caller: Caller, key: str, session_id: SessionId) -> None:
    """Make a key continue this session from now on."""
    caller.require(Scope.WRITE)
    now = caller.app.clock.now().timestamp()
    with caller.database.writing() as unit:
        unit.execute(SQL.put, {"user": caller.user, "key": key, "session": session_id, "now": now})


TurnLease: TypeAlias = "Lease"


def open_turn(caller: Caller, key: str, holder_name: str) -> TurnLease:
    """Return the lease of a conversation among the servers that share the home."""
    return caller.space.open_lease(f"turn:{key}", holder_name)


def move_chat(caller: Caller, platform: str, before: str, after: str) -> None:
    """Keep the conversations and memory of a chat that got another id on its platform."""
    caller.require(Scope.ADMIN)
    origin = find_origin(caller, platform, before) or before
    if origin == after:
        return
    with caller.app.database.writing() as unit:
        unit.execute(SQL.move_chat, (platform, after, origin))


def find_origin(caller: Caller, platform: str, chat: str) -> str:
    """Return the first id of a chat that moved; empty if it never did."""
    caller.require(Scope.ADMIN)
    with caller.app.database.reading() as unit:
        rows = list(unit.execute(SQL.origin, (platform, chat)))
    return str(rows[0][0]) if rows else ""


def is_due_for_reset(settings: ServeSettings, last_used: float, now: datetime) -> bool:
    """Whether a chat that was last used then begins a new session now; `now` is in the local zone."""
    if settings.reset in {"idle", "both"} and now.timestamp() - last_used > settings.reset_idle_minutes * 60:
        return True
    if settings.reset not in {"daily", "both"}:
        return False
    boundary = now.replace(hour=settings.reset_hour, minute=0, second=0, microsecond=0)
    if boundary > now:
        boundary -= timedelta(days=1)
    return last_used < boundary.timestamp()
