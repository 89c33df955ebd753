"""A capture that only counts what it would store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept.core.ids import SessionId
from kept.importers.capture import Capture
from kept.importers.port import Item, Left, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kept.core.ports import Clock, Database, UnitOfWork
    from kept.importers.captures import Known
    from kept.importers.port import Reading
    from kept.sessions.ports import Sessions


class Preview(Capture):
    """Counts what a capture would store, and stores nothing."""

    def __init__(
        self,
        store: Sessions,
        database: Database,
        client: str,
        *,
        clock: Clock,
        is_excluded: Callable[[str | None], bool],
    ) -> None:
        super().__init__(store, database, client, clock=clock, is_excluded=is_excluded)
        self._seen: set[bytes] = set()

    def _store_batch(self, batch: Sequence[Item], reading: Reading, path: str) -> None:
        del reading, path
        with self._database.reading() as unit:
            known = self.captures.find_known(unit, [key for item in batch for key in self.keys_of(item)])
            for item in batch:
                if isinstance(item, Left):
                    self.tally.leave(item.why)
                elif isinstance(item, Said):
                    self._weigh(unit, item, known)

    def _weigh(self, unit: UnitOfWork, item: Said, known: Known) -> None:
        key = self.captures.key(item.external_id)
        session = self.captures.session(unit, item.conversation)
        session_id = SessionId(item.conversation) if session is None else session.session_id
        if key in known or key in self._seen:
            self.tally.known += 1
            if session is not None:
                self.tally.sessions[session_id] = None
            return
        self._seen.add(key)
        self.tally.sessions[session_id] = None
        self.tally.count(item)
        self.tally.grown.add(session_id)
        if session is None:
            self.tally.created.add(session_id)
