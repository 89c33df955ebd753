"""Sessions written out as JSONL, one line for the session, then one per message, and taken in again."""

import json
from collections.abc import Iterable, Iterator

from kept.core.ids import SessionId, UserId
from kept.core.messages import State
from kept.core.text import JSON
from kept.sessions.lines import DEFAULT_SOURCE, SessionLine, message_line, session_line
from kept.sessions.records import session_from
from kept.sessions.sqlite import life, rows
from kept.sessions.sqlite.file import SessionFile
from kept.sessions.sqlite.importing import Importing
from kept.sessions.transfer import ImportReport
from kept.storage.sql import statements
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "transfer.sql")
_PAGE = 1_000


class SqliteTransfer:
    """Implements `sessions.ports.Transfer` on one file."""

    def __init__(self, file: SessionFile, *, user: UserId) -> None:
        self._file = file
        self._user = user

    def exported(self, *, session_id: SessionId | None = None, raw: bool = False) -> Iterator[dict[str, JSON]]:
        """Yield the lines of one session, or of all; `raw` adds what was sent to the model."""
        with self._file.database.reading() as connection:
            found = list(connection.execute(SQL.sessions, {"user": self._user, "session": session_id}))
        for row in found:
            session = session_from(row[:-1])
            with self._file.database.reading() as connection:
                yield session_line(_line(connection, row, raw=raw))
            yield from self._messages(session.id, raw=raw)

    def _messages(self, session_id: SessionId, *, raw: bool) -> Iterator[dict[str, JSON]]:
        last = 0
        while True:
            with self._file.database.reading() as connection:
                page = rows.of_session(
                    connection, session_id, states=(State.ACTIVE, State.COMPACTED), after=last, limit=_PAGE
                )
            yield from (message_line(message, raw=raw) for message in page)
            if len(page) < _PAGE:
                return
            last = page[-1].id

    def imported(
        self, lines: Iterable[bytes], *, source: str = DEFAULT_SOURCE, total: int | None = None
    ) -> ImportReport:
        """Take every line in once; bad ones are reported with their number and skipped."""
        return Importing(self._file, user=self._user, source=source).run(lines, total=total)


def _line(connection: Connection, row: tuple[object, ...], *, raw: bool) -> SessionLine:
    session = session_from(row[:-1])
    return SessionLine(
        session,
        system_prompt=life.prompt(connection, session.id) if raw else None,
        carried=tuple(number for (number,) in connection.execute(SQL.carried, (session.id,))),
        context_from=int(str(row[-1])),
        notes={key: json.loads(value) for key, value in connection.execute(SQL.notes, (session.id,))},
    )
