"""The record of imports: when each one ran, and what it created besides conversations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wellkept.core.clock import iso_moment
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Usage
from wellkept.core.text import dumps
from wellkept.storage.connections import statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from wellkept.core.ids import UserId
    from wellkept.core.ports import UnitOfWork
    from wellkept.core.text import JSON
    from wellkept.sessions.reports import UsageRow

SQL = statements("wellkept.importers", "import_record.sql")


class ImportRun(Struct, frozen=True):
    """One import of one source."""

    number: int
    id: str
    source: str
    started: float
    finished: float | None
    undone: float | None
    counts: Mapping[str, JSON]
    folder: str | None

    def as_json(self) -> dict[str, JSON]:
        """Return it as `kept import list --json` prints it."""
        return {
            "import_id": self.id,
            "source": self.source,
            "started": iso_moment(self.started),
            "finished": iso_moment(self.finished),
            "undone": iso_moment(self.undone),
            **self.counts,
            "folder": self.folder,
        }


class Part(Struct, frozen=True):
    """One thing that an import brought: an entry of a memory file, or a whole skill, setting or document."""

    kind: str
    name: str
    part: int
    mark: str
    """A short hash of the content as it was imported."""
    state: str
    place: str = ""
    import_number: int = 0


class Journal:
    """The imports of one user; every call takes the open unit of work."""

    def __init__(self, user: UserId) -> None:
        self._user = user

    def begin(self, unit: UnitOfWork, import_id: str, source: str, *, now: float) -> int:
        """Record that an import begins; return its number."""
        bindings = {"id": import_id, "user": self._user, "source": source, "now": now}
        return next(int(row[0]) for row in _rows(unit.execute(SQL.begin, bindings)))

    def finish(
        self, unit: UnitOfWork, number: int, *, counts: Mapping[str, JSON], folder: str | None, now: float
    ) -> None:
        """Record what an import did."""
        unit.execute(SQL.finish, {"number": number, "counts": dumps(counts), "folder": folder, "now": now})

    def discard(self, unit: UnitOfWork, number: int) -> None:
        """Remove an import that stored nothing."""
        unit.execute(SQL.discard, {"number": number})

    def runs(self, unit: UnitOfWork) -> list[ImportRun]:
        """Return all imports, the newest first."""
        found = _rows(unit.execute(SQL.imports, {"user": self._user}))
        return [
            ImportRun(number, key, source, started, finished, undone, json.loads(counts), folder)
            for number, key, source, started, finished, undone, counts, folder in found
        ]

    def set_undone(self, unit: UnitOfWork, number: int, *, now: float) -> None:
        """Record that an import was undone."""
        unit.execute(SQL.set_undone, {"number": number, "now": now})

    # everything besides conversations

    def parts(self, unit: UnitOfWork, source: str) -> list[Part]:
        """Return what the imports of a source brought, in the order of the files."""
        return [Part(*row) for row in _rows(unit.execute(SQL.items, {"user": self._user, "source": source}))]

    def put(self, unit: UnitOfWork, source: str, kind: str, name: str, parts: Sequence[Part]) -> None:
        """Replace what is known of one file or item."""
        key = {"user": self._user, "source": source, "kind": kind, "name": name}
        unit.execute(SQL.drop_parts, key)
        for number, part in enumerate(parts):
            unit.execute(
                SQL.put,
                {**key, "part": number, "mark": part.mark, "state": part.state, "place": part.place,
                 "number": part.import_number},
            )  # fmt: skip

    def drop_parts(self, unit: UnitOfWork, number: int) -> None:
        """Forget what an import brought, so that another one brings it again."""
        unit.execute(SQL.drop_items, {"user": self._user, "number": number})

    # conversations

    def count_messages(self, unit: UnitOfWork, number: int) -> int:
        """Return how many messages of an import are still stored."""
        return next(int(row[0]) for row in _rows(unit.execute(SQL.count_messages, {"number": number})))

    def sessions(self, unit: UnitOfWork, number: int) -> list[SessionId]:
        """Return the sessions that an import created."""
        found = _rows(unit.execute(SQL.sessions, {"user": self._user, "number": number}))
        return [SessionId(row[0]) for row in found]

    def take_messages(
        self, unit: UnitOfWork, number: int, *, after: bytes, limit: int
    ) -> tuple[list[MessageId], bytes]:
        """Return some messages of an import and the last key, and forget the keys, so that they can come again."""
        found = list(_rows(unit.execute(SQL.some_messages, {"number": number, "after": after, "limit": limit})))
        unit.execute(SQL.drop_keys, (dumps([row[0].hex() for row in found]),))
        return [MessageId(row[1]) for row in found], found[-1][0] if found else after

    def take_usage(self, unit: UnitOfWork, number: int) -> list[UsageRow]:
        """Return the model calls that an import counted and forget them."""
        from wellkept.sessions.reports import UsageRow

        found = _rows(unit.execute(SQL.usage, {"number": number}))
        rows = [
            UsageRow(day, model, task, session_id, calls, Usage(*tokens), None)
            for day, model, task, session_id, calls, *tokens in found
        ]
        unit.execute(SQL.drop_usage, {"number": number})
        unit.execute(SQL.drop_usage_keys, {"number": number})
        return rows

    def release(self, unit: UnitOfWork, source: str, sessions: Sequence[SessionId]) -> None:
        """Forget which conversations some sessions stood for, and read all transcripts from their beginning again."""
        scope = {"user": self._user, "source": source, "listed": dumps(list(sessions))}
        unit.execute(SQL.drop_turns, scope)
        unit.execute(SQL.drop_sessions, {"user": self._user, "listed": scope["listed"]})
        unit.execute(SQL.reset_positions, {"user": self._user, "source": source})


def _rows(rows: Iterable[tuple[object, ...]]) -> Iterable[tuple[Any, ...]]:
    return rows
