"""The search port in memory: plain dictionaries and sets, the reference for implementations on a database."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from wellkept.core.ids import OWNER, UserId
from wellkept.sessions.search.analysis import Prepared, indexed_text, prepare
from wellkept.sessions.search.postings import (
    AllOf,
    Analyzer,
    AnyOf,
    Lookup,
    MessageHead,
    Prefix,
    SessionFilter,
    SessionHead,
    TimeFilter,
    Without,
    Word,
)
from wellkept.sessions.search.terms import recognise_languages

_TALK = ("user", "assistant")
_LEAST_PART = 3


class MemoryMessage(Struct, frozen=True):
    """One stored message."""

    id: int
    session_id: str
    role: str
    text: str
    timestamp: float
    external_id: str | None = None


class MemorySession(Struct, frozen=True):
    """One stored session."""

    id: str
    head: SessionHead
    user: UserId = OWNER
    is_trashed: bool = False


class MemoryPostings:
    """Implements `sessions.search.postings.Postings`."""

    def __init__(self, messages: Sequence[MemoryMessage], sessions: int, *, analyzer: Analyzer) -> None:
        self.tokens = analyzer.tokens
        self.stem = analyzer.stem
        self.stop_tokens = analyzer.stop_tokens
        self._messages = {message.id: message for message in messages}
        self._prepared = {message.id: _prepare(message) for message in messages}
        self._lengths = {number: len(self.tokens(row.words)) for number, row in self._prepared.items()}
        self._lists: dict[str, set[int]] = {}
        for number, row in self._prepared.items():
            for token in self.tokens(f"{row.words} {row.marks}"):
                self._lists.setdefault(token, set()).add(number)
        self._sessions = max(1, sessions)
        self.documents = len(messages)
        self.mean_length = sum(self._lengths.values()) / self.documents if messages else 1.0

    @property
    def languages(self) -> Sequence[str]:
        return recognise_languages(self, lambda words: {word: self.frequency(word) for word in words})

    def mean_session(self) -> float:
        return self.documents / self._sessions

    def expect(self, words: Sequence[str]) -> None:
        """Do nothing: every list is near."""

    def frequency(self, word: str) -> int:
        """Return how many messages contain the word."""
        return len(self._lists.get(self.stem(word), ()))

    def vocabulary(self, start: str) -> list[tuple[str, int]]:
        return [(token, len(ids)) for token, ids in sorted(self._lists.items()) if token.startswith(start)]

    def ids(self, lookup: Lookup) -> list[int]:
        return sorted(self._match(lookup))

    def ids_between(self, lookup: Lookup, first: int, last: int) -> list[int]:
        """Return the matching messages from `first` to `last` in ascending order."""
        return [number for number in self.ids(lookup) if first <= number <= last]

    def newest_ids(self, lookup: Lookup, limit: int, *, below: int | None = None) -> list[int]:
        older = [number for number in self.ids(lookup) if below is None or number < below]
        return older[max(0, len(older) - limit) :]

    def newest_containing(self, text: str, limit: int) -> list[int]:
        """Return the newest messages that contain `text`, newest first."""
        if len(text) < _LEAST_PART:
            return []
        found = [number for number, row in self._prepared.items() if text in row.spelled.lower()]
        return sorted(found, reverse=True)[:limit]

    def talk_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return id and text of what people and models said, newest first."""
        talk = [message for message in self._messages.values() if message.role in _TALK]
        older = sorted((one.id, one.text) for one in talk if below is None or one.id < below)
        return older[::-1][:limit]

    def lengths(self, ids: Iterable[int]) -> Mapping[int, int]:
        """Return the number of words of each message."""
        return {number: self._lengths[number] for number in ids if number in self._lengths}

    def texts(self, ids: Sequence[int], *, holding: str = "") -> dict[int, str]:
        """Return the text of each message."""
        del holding  # nothing is left out
        return {number: self._messages[number].text for number in sorted(set(ids)) if number in self._messages}

    def _match(self, lookup: Lookup) -> set[int]:
        match lookup:
            case Word(text):
                return self._lists.get(self.stem(text), set())
            case Prefix(text):
                start = self.stem(text)
                return set().union(*(ids for token, ids in self._lists.items() if token.startswith(start)))
            case AllOf(parts):
                return set.intersection(*(self._match(part) for part in parts))
            case AnyOf(parts):
                return set().union(*(self._match(part) for part in parts))
            case Without(wanted, unwanted):
                return self._match(wanted) - self._match(unwanted)


class MemoryCatalog:
    """Implements `sessions.search.postings.Catalog`."""

    def __init__(
        self, messages: Sequence[MemoryMessage], sessions: Sequence[MemorySession], *, user: UserId = OWNER
    ) -> None:
        self._messages = {message.id: message for message in messages}
        self._sessions = {
            session.id: session.head for session in sessions if session.user == user and not session.is_trashed
        }
        self.has_other_users = any(one.user != user for one in sessions)

    def messages(self, ids: Collection[int]) -> dict[int, MessageHead]:
        """Return the messages that exist."""
        found = (self._messages[number] for number in ids if number in self._messages)
        return {one.id: MessageHead(one.session_id, one.role, one.timestamp, one.external_id) for one in found}

    def sessions(self, session_ids: Collection[str]) -> dict[str, SessionHead]:
        return {name: self._sessions[name] for name in session_ids if name in self._sessions}

    def session_ids(self, conditions: SessionFilter, limit: int) -> list[str]:
        return [name for name, head in self._sessions.items() if _passes(head, conditions)][:limit]

    def titled(self, title: str) -> list[str]:
        """Return no session: these have no titles."""
        del title
        return []

    def titles(self) -> Iterable[tuple[str, str]]:
        """Return no session: these have no titles."""
        return ()

    def timeline(
        self, conditions: TimeFilter, limit: int, *, is_oldest_first: bool = False
    ) -> tuple[int, list[tuple[str, int]]]:
        """Return how many sessions have messages of a time, and the newest of them, each with one message."""
        found: dict[str, list[MemoryMessage]] = {}
        for message in sorted(self._messages.values(), key=lambda one: one.id):
            head = self._sessions.get(message.session_id)
            if head is not None and _is_listed(message, head, conditions):
                found.setdefault(message.session_id, []).append(message)
        rows = [(name, next((one for one in said if one.role == "user"), said[0])) for name, said in found.items()]
        rows.sort(key=lambda row: row[1].timestamp, reverse=not is_oldest_first)
        return len(rows), [(name, one.id) for name, one in rows[:limit]]

    def span(self, session_ids: Collection[str]) -> tuple[int, int, int] | None:
        """Return the first and last message and the number of messages of the user's sessions among these."""
        own = [name for name in session_ids if name in self._sessions]
        ids = [number for some in self.ids_by_session(own).values() for number in some]
        return (min(ids), max(ids), sum(self._sessions[name].message_count for name in own)) if ids else None

    def ids_by_session(self, session_ids: Collection[str]) -> Mapping[str, Sequence[int]]:
        found: dict[str, list[int]] = {}
        for number, message in sorted(self._messages.items()):
            if message.session_id in session_ids:
                found.setdefault(message.session_id, []).append(number)
        return found

    def ids_near(self, session_id: str, first: int, last: int) -> list[int]:
        """Return the messages of one session from `first` to `last` in ascending order."""
        return [number for number in self.ids_by_session([session_id]).get(session_id, []) if first <= number <= last]


def _prepare(message: MemoryMessage) -> Prepared:
    text = indexed_text(message.id, message.role, content=message.text, origin=None, tool_name=None, tool_calls=None)
    return prepare(text)


def _is_listed(message: MemoryMessage, head: SessionHead, conditions: TimeFilter) -> bool:
    return (
        _passes(head, SessionFilter(conditions.project, conditions.sources))
        and head.source not in conditions.hidden_sources
        and (conditions.session_id is None or message.session_id == conditions.session_id)
        and message.session_id not in conditions.exclude_sessions
        and message.id not in conditions.exclude_messages
        and (not conditions.roles or message.role in conditions.roles)
        and (conditions.after is None or message.timestamp >= conditions.after)
        and (conditions.before is None or message.timestamp < conditions.before)
    )


def _passes(head: SessionHead, conditions: SessionFilter) -> bool:
    return (
        (conditions.project is None or head.project == conditions.project)
        and (not conditions.sources or head.source in conditions.sources)
        and (conditions.after is None or head.last_active >= conditions.after)
        and (conditions.before is None or head.started < conditions.before)
    )
