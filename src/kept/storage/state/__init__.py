"""The database file that sessions, outbox and usage share, with one ordered list of migrations."""

import logging
from pathlib import Path

from kept.core.errors import ForeignDatabase
from kept.core.events import Warned
from kept.core.ports import EventSink
from kept.storage.connections import Migration, sql_migrations
from kept.storage.files import APPLICATION_ID
from kept.storage.sqlite import Database, Durability

__all__ = ["APPLICATION_ID", "FALLBACK_NAME", "STATE_NAME", "open_state", "state_migrations"]

log = logging.getLogger(__name__)

STATE_NAME = "state.db"
FALLBACK_NAME = "kept.db"
"""The file to use where `state.db` belongs to another program."""


def state_migrations() -> tuple[Migration, ...]:
    """Return every migration of the shared file, in order; a tier adds its own as the next number."""
    return sql_migrations("kept.storage.state")


def open_state(
    path: Path, durability: Durability = "normal", *, read_only: bool = False, sink: EventSink | None = None
) -> Database:
    """Open the shared database, or `kept.db` beside it where `path` belongs to another program.

    Never writes the foreign file. Warns once, when `kept.db` is created.
    """
    fallback = path.with_name(FALLBACK_NAME)
    is_first = not fallback.exists()
    try:
        database = _open(path, durability, read_only=read_only)
    except ForeignDatabase:
        if path == fallback:
            raise
        database = _open(fallback, durability, read_only=read_only)
    theirs = fallback.with_name(STATE_NAME) if path == fallback else path
    if is_first and database.path == fallback and theirs.exists():
        _announce(theirs, fallback, sink)
    return database


def _open(path: Path, durability: Durability, *, read_only: bool) -> Database:
    return Database(
        path,
        application_id=APPLICATION_ID,
        migrations=state_migrations(),
        durability=durability,
        read_only=read_only,
        empty_if_refused=not read_only,
    )


def _announce(foreign: Path, ours: Path, sink: EventSink | None) -> None:
    message = f"{str(foreign)!r} belongs to another program and is left as it is; sessions go to {ours.name!r}"
    remedy = f"bring its conversations over with `kept import hermes --source {foreign.parent}`"
    if sink is None:
        log.warning("%s; %s", message, remedy)
    else:
        sink(Warned(message, remedy))
