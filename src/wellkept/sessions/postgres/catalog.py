"""The metadata of a search on PostgreSQL: messages and sessions of one user."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from wellkept.sessions.postgres.postings import SQL
from wellkept.sessions.search.postings import MessageHead, SessionFilter, SessionHead, TimeFilter
from wellkept.storage.postgres.statements import unescape
from wellkept.storage.postgres.unit import Unit

_SHORT_BYTES = 2_000
"""Texts up to this size are read with their messages, because most of them are compared with the question."""


class PostgresCatalog:
    """Messages and sessions that one user may find; implements `search.postings.Catalog`."""

    has_other_users = False
    """Lists hold messages of this user only."""

    def __init__(self, unit: Unit, user: str, *, texts: dict[int, str]) -> None:
        self._unit = unit
        self._user = user
        self._texts = texts
        """Receives the texts that are read with their messages."""
        self._known: dict[str, SessionHead | None] = {}
        """Sessions that were read with their messages; None for one in the trash."""

    def messages(self, ids: Collection[int]) -> dict[int, MessageHead]:
        """Return the messages that exist and were not rewound."""
        found: dict[int, MessageHead] = {}
        bindings = {"user": self._user, "ids": list(ids), "most_bytes": _SHORT_BYTES}
        rows: Iterable[Any] = self._unit.execute(SQL.messages, bindings).fetchall()
        for number, name, kind, moment, detail, text, *rest in rows:
            if number is None:
                self._known[name] = SessionHead(unescape(kind), detail, moment, *rest)
                continue
            found[number] = MessageHead(name, kind, moment, detail)
            self._known.setdefault(name)
            if text is not None:
                self._texts[number] = text
        return found

    def sessions(self, session_ids: Collection[str]) -> dict[str, SessionHead]:
        """Return the user's sessions among these."""
        unknown = [name for name in session_ids if name not in self._known]
        if unknown:
            self._known |= dict.fromkeys(unknown)
            rows: Iterable[Any] = self._unit.execute(SQL.sessions, {"user": self._user, "ids": unknown}).fetchall()
            self._known |= {name: SessionHead._make(rest) for name, *rest in rows}
        return {name: head for name in session_ids if (head := self._known[name]) is not None}

    def session_ids(self, conditions: SessionFilter, limit: int) -> list[str]:
        """Return at most `limit` of the user's sessions that match."""
        named = conditions._asdict() | {"user": self._user, "limit": limit}
        return [str(name) for (name,) in self._unit.execute(SQL.filtered_sessions, _as_lists(named))]

    def titled(self, title: str) -> list[str]:
        """Return the user's sessions with this title; upper and lower case do not matter."""
        return [str(name) for (name,) in self._unit.execute(SQL.titled, {"user": self._user, "title": title})]

    def titles(self) -> Iterable[tuple[str, str]]:
        """Yield id and title of every session of the user that has one, the newest first."""
        rows = self._unit.execute(SQL.titles, {"user": self._user})
        return ((str(name), str(title)) for name, title in rows)

    def timeline(
        self, conditions: TimeFilter, limit: int, *, is_oldest_first: bool = False
    ) -> tuple[int, list[tuple[str, int]]]:
        """Return how many sessions have messages of a time, and the newest of them, each with one message."""
        named = conditions._asdict() | {"user": self._user, "limit": limit, "sign": 1 if is_oldest_first else -1}
        rows = self._unit.execute(SQL.timeline, _as_lists(named)).fetchall()
        found = [(str(name), int(str(number))) for _, name, number in rows if number is not None]
        return int(str(rows[0][0])) if rows else 0, found

    def span(self, session_ids: Collection[str]) -> tuple[int, int, int] | None:
        """Return the first and last message and the number of messages of sessions; None without messages."""
        row = self._unit.execute(SQL.session_span, {"user": self._user, "ids": list(session_ids)}).fetchone()
        if row is None or row[0] is None:
            return None
        first, last, count = (int(str(value)) for value in row)
        return first, last, count

    def ids_by_session(self, session_ids: Collection[str]) -> Mapping[str, Sequence[int]]:
        """Return the messages of each session in ascending order."""
        rows = self._unit.execute(SQL.ids_by_session, {"ids": list(session_ids)})
        return {str(name): ids for name, ids in rows if isinstance(ids, list)}

    def ids_near(self, session_id: str, first: int, last: int) -> list[int]:
        """Return the messages of one session from `first` to `last` in ascending order."""
        named = {"user": self._user, "session": session_id, "first": first, "last": last}
        return [int(str(number)) for (number,) in self._unit.execute(SQL.ids_near, named)]


def _as_lists(named: Mapping[str, object]) -> dict[str, object]:
    """Return bindings with lists for the driver, and None for conditions that match everything."""
    return {
        name: (sorted(value) or None) if isinstance(value, (tuple, frozenset)) else value
        for name, value in named.items()
    }
