"""The search port in memory: plain dictionaries and sets, the reference for implementations on a database."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kept.core.ids import OWNER, UserId
from kept.sessions.search.analysis import IndexedText, choose_languages, cut, guess_language, indexed_text
from kept.sessions.search.postings import MessageHead, SessionFilter, SessionHead, TimeFilter

if TYPE_CHECKING:
    from kept.sessions.search.postings import Array, Positions

_TALK = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class MemoryMessage:
    """One stored message."""

    id: int
    session_id: str
    role: str
    text: str
    timestamp: float
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemorySession:
    """One stored session."""

    id: str
    head: SessionHead
    user: UserId = OWNER
    is_trashed: bool = False


class MemoryPostings:
    """Implements `sessions.search.postings.Postings`; a message's position is its place among all ids."""

    def __init__(self, messages: Sequence[MemoryMessage]) -> None:
        self._messages = {message.id: message for message in sorted(messages, key=lambda one: one.id)}
        self._ids = list(self._messages)
        self._places = {number: place for place, number in enumerate(self._ids)}
        names = sorted({one.session_id for one in messages})
        self._numbers = {name: number for number, name in enumerate(names, start=1)}
        lists: dict[str, list[int]] = {}
        lengths: list[int] = []
        languages: Counter[str] = Counter()
        for place, message in enumerate(self._messages.values()):
            words, length = cut(_indexed_text(message))
            lengths.append(length)
            languages.update(filter(None, [guess_language(words)]))
            for word in words:
                lists.setdefault(word, []).append(place)
        self._lists = {word: np.array(places, np.int64) for word, places in lists.items()}
        self.size = self.documents = len(messages)
        self.mean_length = sum(lengths) / len(lengths) if lengths else 1.0
        self.mean_session = len(messages) / max(1, len(names))
        self.languages = choose_languages(languages)
        self.unread = 0
        self.lengths = np.array(lengths, np.int64)
        self.sessions = np.array([self._numbers[one.session_id] for one in self._messages.values()], np.int64)
        self.session_sizes = np.bincount(self.sessions, minlength=len(names) + 1)

    def read(self, words: Collection[str]) -> "dict[str, Positions]":
        """Return the list of each of these words that some message contains."""
        return {word: self._lists[word] for word in words if word in self._lists}

    def words_starting(self, start: str, limit: int) -> list[str]:
        """Return at most `limit` of the words that start with `start`."""
        return [word for word in sorted(self._lists) if word.startswith(start)][:limit]

    def words_containing(self, text: str, limit: int) -> list[str]:
        """Return at most `limit` of the words that contain `text`."""
        return [word for word in sorted(self._lists) if text in word][:limit]

    def ids(self, positions: "Array") -> list[int]:
        """Return the messages at these positions."""
        return [self._ids[place] for place in positions.tolist()]

    def positions(self, ids: Collection[int]) -> "Array":
        """Return the positions of these messages in the given order; -1 for a message that has none."""
        return np.array([self._places.get(number, -1) for number in ids], np.int64)

    def session_numbers(self, session_ids: Collection[str]) -> list[int]:
        """Return the numbers of those of these sessions that have messages."""
        return [self._numbers[name] for name in session_ids if name in self._numbers]

    def talk_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return id and text of what people and models said, newest first."""
        talk = [message for message in self._messages.values() if message.role in _TALK]
        older = sorted((one.id, one.text) for one in talk if below is None or one.id < below)
        return older[::-1][:limit]

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the text of each message."""
        return {number: self._messages[number].text for number in sorted(set(ids)) if number in self._messages}


class MemoryCatalog:
    """Implements `sessions.search.postings.Catalog`."""

    def __init__(
        self, messages: Sequence[MemoryMessage], sessions: Sequence[MemorySession], *, user: UserId = OWNER
    ) -> None:
        self._messages = {message.id: message for message in messages}
        self._sessions = {one.id: one.head for one in sessions if one.user == user and not one.is_trashed}
        self.has_other_users = any(one.user != user for one in sessions)

    def messages(self, ids: Collection[int]) -> dict[int, MessageHead]:
        """Return the messages that exist."""
        found = (self._messages[number] for number in ids if number in self._messages)
        return {one.id: MessageHead(one.session_id, one.role, one.timestamp, one.external_id) for one in found}

    def sessions(self, session_ids: Collection[str]) -> dict[str, SessionHead]:
        """Return the user's sessions among these."""
        return {name: self._sessions[name] for name in session_ids if name in self._sessions}

    def session_ids(self, conditions: SessionFilter, limit: int) -> list[str]:
        """Return at most `limit` of the user's sessions that match."""
        return [name for name, head in self._sessions.items() if _passes(head, conditions)][:limit]

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

    def ids_by_session(self, session_ids: Collection[str]) -> dict[str, list[int]]:
        """Return the messages of each session in ascending order."""
        found: dict[str, list[int]] = {}
        for number, message in sorted(self._messages.items()):
            if message.session_id in session_ids:
                found.setdefault(message.session_id, []).append(number)
        return found

    def ids_near(self, session_id: str, first: int, last: int) -> list[int]:
        """Return the messages of one session from `first` to `last` in ascending order."""
        return [number for number in self.ids_by_session([session_id]).get(session_id, []) if first <= number <= last]


def _indexed_text(message: MemoryMessage) -> IndexedText:
    return indexed_text(message.id, message.role, content=message.text, origin=None, tool_name=None, tool_calls=None)


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
