"""An open session file: the database, and what every part of the store writes, reads and tells through."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kept.core.clock import SystemClock
from kept.core.errors import Busy
from kept.core.events import ignore
from kept.core.ports import Clock, EventSink, UnitOfWork
from kept.sessions.settings import SessionSettings
from kept.sessions.sqlite import erasing, index, tidying
from kept.storage.sqlite import Connection, Database
from kept.storage.state import STATE_NAME, open_state

if TYPE_CHECKING:
    from kept.sessions.redaction import Redaction


class SessionFile:
    """Owns the database from its opening, with the index made ready, to its closing, tidied."""

    def __init__(
        self,
        place: Database | Path | str,
        settings: SessionSettings | None = None,
        *,
        clock: Clock | None = None,
        sink: EventSink = ignore,
    ) -> None:
        self.settings = settings or SessionSettings()
        self.clock = clock or SystemClock()
        self.sink = sink
        self.database = _opened(place, self.settings, sink)
        if self.database.is_empty:
            index.create(self.database.connection)  # so that a search finds nothing instead of no index
        elif not self.database.is_read_only:
            index.make_ready(self.database, sink=sink, clock=self.clock)
            erasing.finish(self.database)

    def close(self) -> None:
        """Close the database, tidied; who shares it with others closes it there."""
        self.tidy()
        self.database.close()

    def tidy(self) -> None:
        """Give back the room that writing left unused, where that takes a moment; call it before closing."""
        if self.database.has_written:
            tidying.tidy(self.database)

    def now(self) -> float:
        """Return the present in epoch seconds."""
        return self.clock.now().timestamp()

    @cached_property
    def redaction(self) -> "Redaction":
        """What takes credentials out of everything that is stored; loaded at the first write."""
        from kept.sessions.redaction import Redaction

        return Redaction(is_on=self.settings.redact)

    @contextmanager
    def writing(self, unit: UnitOfWork | None = None) -> Iterator[Connection]:
        """Give the connection inside a transaction: the caller's unit, or one of its own."""
        if unit is not None:
            yield cast(Connection, unit)
            return
        with self.database.writing() as connection:
            yield connection

    def catch_up(self) -> None:
        """Index what other programs wrote; a busy file leaves it for the next search."""
        if self.database.is_read_only:
            return
        try:
            index.drain(self.database)
        except Busy:
            return

    def mended(self) -> bool:
        """Make anew what is derived and damaged; False when the damage lies elsewhere, or nothing can be written."""
        from kept.sessions.sqlite import healing  # its tools are loaded with the first damage

        return not self.database.is_read_only and bool(healing.heal(self.database, sink=self.sink, clock=self.clock))


def _opened(place: Database | Path | str, settings: SessionSettings, sink: EventSink) -> Database:
    if isinstance(place, Database):
        return place
    path = Path(place)
    return open_state(path / STATE_NAME if path.is_dir() else path, settings.durability, sink=sink)
