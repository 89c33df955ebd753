"""The health of stored conversations: examined, repaired, or tried out in an empty folder."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kept.core.errors import KeptError
from kept.sessions.reports import Finding, Repaired

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kept.app.root import App
    from kept.sessions.ports import Sessions

_MEND = "run `kept sessions repair`: the file is put aside, and what can be read is brought over"


def examine(app: App) -> list[Finding] | None:
    """Return what is wrong with the conversations of this home, None where none was ever stored."""
    from kept.sessions.sqlite.upkeep import log_tail

    path = app.home.database
    if not path.exists():
        return None
    tail = log_tail(path)  # before anything opens the file
    try:
        found = app.owner.sessions.upkeep.check()
        if not found and app.database.is_read_only:
            with app.database.writing():  # raises why it cannot be written
                pass
    except KeptError as error:
        sent_here = not error.remedy or "kept doctor" in error.remedy
        found = [Finding(error.message, _MEND if sent_here else error.remedy)]
    return found if tail is None else [tail, *found]


def repair(app: App) -> Repaired | None:
    """Check the conversations of this home and mend them; None where none was ever stored."""
    from kept.sessions.sqlite.repair import Repair

    path = app.home.database
    if not path.exists():
        return None
    return Repair(path, app.settings.sessions, clock=app.clock, sink=app.sink).run()


@contextmanager
def trial(folder: Path) -> Iterator[Sessions]:
    """Open a store in an empty folder, of the kind that a home has."""
    from kept.sessions.sqlite.store import SqliteSessionStore

    store = SqliteSessionStore(folder)
    try:
        yield store
    finally:
        store.close()
