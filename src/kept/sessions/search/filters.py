"""What may be found: filters of the request, hidden sources, and the conversation that asks."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kept.core.search import SearchRequest
from kept.sessions.search.ranking import WEIGHTS
from kept.sessions.sqlite.postings import SQL, numbers
from kept.storage.sqlite import Connection

HIDDEN_SOURCES = frozenset({"subagent", "tool", "review"})
_FEW_SESSIONS = 400
LONG_SESSION = 2_000
"""Messages from which on a session is not read whole."""
_ONE_BY_ONE = 50_000
"""Messages up to which those of one session are read; of a longer one it is enough to know where they stand."""
_WINDOW = 200
_WINDOWS = 20


class Head(NamedTuple):
    """A message without its text; a tuple, because a search reads hundreds."""

    session_id: str
    role: str
    timestamp: float
    external_id: str | None


class SessionHead(NamedTuple):
    """What the filters must know of a session."""

    source: str
    user_id: str | None
    project: str | None
    trashed: bool
    started: float
    last_active: float
    message_count: int


class Filters:
    """The filters of one search; remembers the rows it read and counts what each filter took away."""

    def __init__(self, request: SearchRequest, connection: Connection, *, user: str | None) -> None:
        self.request = request
        self._user = user
        self._connection = connection
        self.heads: dict[int, Head] = {}
        self.sessions: dict[str, SessionHead] = {}
        self.excluded: Counter[str] = Counter()
        self._counted: set[int] = set()
        self._reasons: dict[str, str | None] = {}
        self._looks_at_messages = bool(request.exclude_messages or request.roles) or self._has_dates()
        self.are_wide = False
        """Whether there are filters that many sessions pass, so that more messages must be looked at."""

    def messages(self) -> frozenset[int] | range | None:
        """Return the ids that the filters leave when they leave few sessions, or None; of a very long one its range."""
        request = self.request
        if request.session_id is not None:
            return self._ids_inside(request.session_id)
        if not (self._user or request.project or request.sources or self._has_dates()):
            self.are_wide = bool(request.roles)
            return None
        bindings = {
            "user": self._user,
            "project": request.project,
            "sources": json.dumps(request.sources) if request.sources else None,
            "after": request.after,
            "before": request.before,
            "limit": _FEW_SESSIONS + 1,
        }
        names = [str(row[0]) for row in self._connection.execute(SQL.filtered_sessions, bindings)]
        if len(names) > _FEW_SESSIONS:
            self.are_wide = True
            return None
        return self._ids_of(names)

    def _ids_inside(self, name: str) -> frozenset[int] | range:
        row = self._connection.execute(SQL.session_range, (name, self._user)).fetchone()
        first, last, count = row or (None, None, 0)
        if not isinstance(first, int) or not isinstance(last, int):
            return frozenset()
        if last - first < _ONE_BY_ONE:
            return self._ids_of([name])
        inside = range(first, last + 1)
        self.are_wide = not isinstance(count, int) or 2 * count < len(inside)  # many in between are of others
        return inside

    def _has_dates(self) -> bool:
        return self.request.after is not None or self.request.before is not None

    def _ids_of(self, names: Sequence[str]) -> frozenset[int]:
        return frozenset(numbers(self._connection.execute(SQL.ids_of_sessions, (json.dumps(names),)).fetchall()))

    def passing(self, ids: Sequence[int]) -> dict[int, Head]:
        """Return the rows of `ids` that may be found, in no particular order."""
        unknown = sorted(number for number in ids if number not in self.heads)
        for number, *rest in self._connection.execute(SQL.heads, (json.dumps(unknown),)):
            self.heads[number] = Head._make(rest)
        self._load_sessions({self.heads[number].session_id for number in ids if number in self.heads})
        found = {}
        for number in ids:
            head = self.heads.get(number)
            if head is None:
                continue
            reason = self._session_reason(head.session_id)
            if reason is None and self._looks_at_messages:
                reason = self._message_reason(number, head)
            if reason is None:
                found[number] = head
            elif reason and number not in self._counted:
                self._counted.add(number)
                self.excluded[reason] += 1
        return found

    def _load_sessions(self, names: set[str]) -> None:
        unknown = [name for name in names if name not in self.sessions]
        if not unknown:
            return
        for row in self._connection.execute(SQL.sessions, (json.dumps(unknown),)):
            name, source, user_id, project, trashed, started, last_active, count = row
            self.sessions[name] = SessionHead(
                source, user_id, project, trashed is not None, started or 0.0, last_active or 0.0, count or 0
            )

    def _session_reason(self, session_id: str) -> str | None:
        """Return the name of the filter that excludes the session, empty where it must not be told, or None."""
        if session_id not in self._reasons:
            self._reasons[session_id] = self._judged(session_id)
        return self._reasons[session_id]

    def _judged(self, session_id: str) -> str | None:
        session = self.sessions.get(session_id)
        request = self.request
        if session is None or session.trashed:
            return ""
        if self._user is not None and session.user_id != self._user:
            return ""  # another user's hits are not even counted
        checks = (
            ("session", session_id in request.exclude_sessions),
            ("session", request.session_id is not None and session_id != request.session_id),
            ("source", bool(request.sources) and session.source not in request.sources),
            ("hidden source", not request.sources and session.source in HIDDEN_SOURCES),
            ("project", request.project is not None and session.project != request.project),
        )
        return next((name for name, excluded in checks if excluded), None)

    def _message_reason(self, number: int, head: Head) -> str | None:
        request = self.request
        checks = (
            ("current conversation", number in request.exclude_messages),
            ("role", bool(request.roles) and head.role not in request.roles),
            ("after", request.after is not None and head.timestamp < request.after),
            ("before", request.before is not None and head.timestamp >= request.before),
        )
        return next((name for name, excluded in checks if excluded), None)

    def ids_by_session(self, chosen: Sequence[tuple[str, Sequence[int]]]) -> dict[str, list[int]]:
        """Return the messages of each session in order; of a very long session those around its hits."""
        short = [name for name, _ in chosen if self.sessions[name].message_count <= LONG_SESSION]
        found: dict[str, list[int]] = {name: [] for name, _ in chosen}
        for name, joined in self._connection.execute(SQL.ids_by_session, (json.dumps(short),)):
            found[str(name)] = numbers([(joined,)])
        for name, hits in chosen:
            known = found[name]
            if self.sessions[name].message_count > LONG_SESSION:
                for hit in sorted(hits)[-_WINDOWS:]:
                    rows = self._connection.execute(SQL.session_ids_near, (name, hit - _WINDOW, hit + _WINDOW))
                    known += [number for (number,) in rows if isinstance(number, int)]
            found[name] = sorted({*known, *hits})
        return found

    def factor(self, session_id: str) -> float:
        """Return the share that the source of a session leaves of its scores."""
        return WEIGHTS.cron if self.sessions[session_id].source == "cron" else 1.0

    def role_factor(self, role: str) -> float:
        """Return the share that a role leaves of a message's score."""
        return WEIGHTS.tool if role == "tool" else 1.0
