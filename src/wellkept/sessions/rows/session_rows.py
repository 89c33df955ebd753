"""Rows of sessions: creation, titles, prompts, notes, leases."""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from wellkept.core.errors import NotFound, UsageError
from wellkept.core.ids import SessionId, UserId, sha256
from wellkept.core.messages import Link, Session
from wellkept.core.text import JSON, dumps
from wellkept.sessions.records import parse, session_from, session_row, storable
from wellkept.sessions.rows.database import Connection, find_index
from wellkept.storage.connections import statements
from wellkept.storage.leases import is_held

SQL = statements("wellkept.sessions.rows", "sessions.sql")
NOBODY = UserId("")
"""Owns the sessions in quarantine, whose user a repair could not determine. No user can have this id."""


def recount(connection: Connection, session_ids: Iterable[str]) -> None:
    """Set the message count and the last activity of sessions from their rows."""
    connection.executemany(SQL.recount, [(session_id,) for session_id in session_ids])


def no_session(session_id: str) -> NotFound:
    """Return the error for an id that no session has."""
    return NotFound(f"there is no session {session_id!r}", "list them with `kept sessions list`")


def create(connection: Connection, session: Session) -> None:
    """Insert the row of a new session; its title is made unique."""
    if connection.execute(SQL.exists, (session.id,)).fetchone() is not None:
        raise UsageError(f"there is a session {session.id!r} already", "choose another id, or append to it")
    if session.title is not None:
        title = make_title_unique(connection, session.title, user_id=session.user_id, session_id=session.id)
        session = replace(session, title=title or None)
    connection.execute(SQL.insert, {"user": session.user_id, **session_row(session)._asdict()})
    find_index(connection).note_session()


def continue_as(connection: Connection, parent: Session, child: SessionId, *, started: float) -> None:
    """Begin the child session that a compaction continues `parent` in, and end the parent."""
    title = None if parent.title is None else number_title(connection, parent.title, user_id=parent.user_id)
    heir = replace(
        parent, id=child, started=started, last_active=started, title=title, parent_session_id=parent.id,
        link=Link.COMPRESSION, ended=None, end_reason=None,
    )  # fmt: skip
    create(connection, heir)
    connection.execute(SQL.end, (started, "compression", parent.id))


def find(connection: Connection, session_id: str, *, user: UserId) -> Session | None:
    """Return a session of that user that is not in the trash, or None."""
    row = connection.execute(SQL.one, (storable(session_id), user)).fetchone()
    return None if row is None else session_from(row)


def require(connection: Connection, session_id: str, *, user: UserId) -> Session:
    """Return the session, or raise NotFound."""
    session = find(connection, session_id, user=user)
    if session is None:
        raise no_session(session_id)
    return session


def resolve(connection: Connection, name: str, *, user: UserId) -> SessionId:
    """Return the session with that id or title, or the only one whose id begins with `name`."""
    text = storable(name.strip())
    exact = find(connection, text, user=user)
    if exact is not None:
        return exact.id
    found = [SessionId(row[0]) for row in connection.execute(SQL.by_title, (user, text))]
    if not found and text:
        bindings = (text, f"{text}\U0010ffff", user)
        found = [SessionId(row[0]) for row in connection.execute(SQL.by_prefix, bindings)]
    if len(found) > 1:
        raise UsageError(f"{name!r} could be {', '.join(found[:5])}", "give the whole id")
    if not found:
        raise no_session(name)
    return found[0]


def read_recent(  # noqa: PLR0913 - the conditions of the query
    connection: Connection,
    *,
    user: UserId,
    limit: int,
    source: str | None,
    project: str | None,
    archived: bool,
    offset: int = 0,
    between: tuple[float, float] | None = None,
) -> list[Session]:
    """Return sessions by last activity, newest first; hidden sources only where `source` names them."""
    since, until = between or (None, None)
    bindings: dict[str, object] = {"limit": limit, "source": source, "project": project, "archived": int(archived)}
    bindings |= {"user": user, "offset": offset, "since": since, "until": until}
    return [session_from(row) for row in connection.execute(SQL.recent, bindings)]


def find_due(connection: Connection, *, user: UserId, until: float) -> list[SessionId]:
    """Return the user's sessions that were moved to the trash up to that moment."""
    return [SessionId(one) for (one,) in connection.execute(SQL.due, (until, user))]


def find_due_of_others(connection: Connection, *, user: UserId, until: float) -> list[SessionId]:
    """Return the sessions of all other users that were moved to the trash up to that moment."""
    return [SessionId(one) for (one,) in connection.execute(SQL.due_of_others, (until, user))]


def make_title_unique(connection: Connection, title: str, *, user_id: str, session_id: str) -> str:
    """Return `title`, or its next ` #N` when another session of that person has it."""
    wanted = clean_title(storable(title))
    holder = connection.execute(SQL.title_taken, (user_id, wanted)).fetchone()
    if not wanted or holder is None or holder[0] == session_id:
        return wanted
    return number_title(connection, wanted, user_id=user_id)


def number_title(connection: Connection, title: str, *, user_id: str) -> str:
    """Return the first free ` #N` after every number that `title` has been given."""
    base = base_title(title)
    prefix = numbered_title(base, 1)[:-1]
    bindings = {"user": user_id, "from": prefix, "to": f"{prefix}:", "cut": len(prefix) + 1}
    (highest,) = connection.execute(SQL.highest_number, bindings).fetchone() or (None,)
    return numbered_title(base, max(int(highest or 1), 1) + 1)


def rename(connection: Connection, session_id: SessionId, title: str, *, user: UserId) -> str:
    """Set the title, made unique, and return it; an empty one removes the title."""
    session = require(connection, session_id, user=user)
    unique = make_title_unique(connection, title, user_id=session.user_id, session_id=session.id)
    connection.execute(SQL.set_title, (unique or None, session.id))
    return unique


def set_prompt(connection: Connection, session_id: SessionId, prompt: str) -> None:
    """Store `prompt` once under its hash, and refer to it from the session."""
    text = storable(prompt)
    digest = sha256(text.encode()).hexdigest()
    before = connection.execute(SQL.prompt_hash, (session_id,)).fetchone()
    if before is None:
        raise no_session(session_id)
    connection.execute(SQL.insert_prompt, (digest, text))
    connection.execute(SQL.set_prompt, (digest, session_id))
    if before[0] is not None:
        connection.execute(SQL.drop_unused_prompt, (before[0],))


def read_prompt(connection: Connection, session_id: SessionId) -> str | None:
    """Return the stored prompt of a session, or None."""
    row = connection.execute(SQL.prompt, (session_id,)).fetchone()
    return None if row is None else str(row[0])


_NUMBERED = re.compile(r"^(?P<base>.*\S) #(?P<number>[1-9]\d{0,8})$", re.DOTALL)
MOST_CHARS = 200


def clean_title(title: str) -> str:
    """Return `title` on one line, trimmed, at most `MOST_CHARS` long."""
    return " ".join(title.split())[:MOST_CHARS].rstrip()


def base_title(title: str) -> str:
    """Return `title` without its ` #N`."""
    match = _NUMBERED.match(title)
    return match["base"] if match else title


def numbered_title(base: str, number: int) -> str:
    """Return the title of the `number`-th session that is called `base`."""
    return f"{base} #{number}"


def write_note(connection: Connection, session_id: SessionId, key: str, value: JSON) -> None:
    """Store `value` under `key`; None removes it."""
    if value is None:
        connection.execute(SQL.forget_note, (session_id, key))
    else:
        connection.execute(SQL.note, (session_id, key, storable(dumps(value))))


def read_note(connection: Connection, session_id: SessionId, key: str) -> JSON:
    """Return the value under `key`, or None."""
    row = connection.execute(SQL.noted, (session_id, key)).fetchone()
    value: JSON = None if row is None else parse(row[0])
    return value


def take_lease(connection: Connection, name: str, *, holder: str, now: float, seconds: float) -> bool:
    """Take or renew a lease in the open write transaction; False when another holder has it."""
    for other, until in connection.execute(SQL.held_lease, (name,)).fetchall():
        if other != holder and is_held(str(other), float(str(until)), now=now, seconds=seconds):
            return False
    connection.execute(SQL.lease, (name, holder, now + seconds))
    return True


def release_lease(connection: Connection, name: str, *, holder: str) -> None:
    """Release a lease, unless another holder has it."""
    connection.execute(SQL.release, (name, holder))
