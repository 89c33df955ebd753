"""The port that a database implements so that sessions can be searched: posting lists and metadata.

Everything else in this package is shared by all databases. A message is known by its id; ids grow with time, so
"newest" means the highest ids, and the messages stored next to one have the ids next to its own.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from wellkept.core.search import SearchRequest

HIDDEN_SOURCES = frozenset({"subagent", "tool", "review"})
"""Sources that are searched only when the request names them."""
_NOT_ALPHANUMERIC = re.compile(r"[\W_]")


class Word(Struct, frozen=True):
    """Messages that contain the token of this word."""

    text: str


class Prefix(Struct, frozen=True):
    """Messages that contain a token which starts with the token of this text."""

    text: str


class AllOf(Struct, frozen=True):
    """Messages that every part matches."""

    parts: tuple["Lookup", ...]


class AnyOf(Struct, frozen=True):
    """Messages that at least one part matches."""

    parts: tuple["Lookup", ...]


class Without(Struct, frozen=True):
    """Messages that `wanted` matches and `unwanted` does not."""

    wanted: "Lookup"
    unwanted: "Lookup"


Lookup: TypeAlias = Word | Prefix | AllOf | AnyOf | Without
"""Which messages to list. A database may answer from its own query language, or combine lists by term itself."""


class Analyzer(Protocol):
    """Turns text into the tokens of the index. Stored text and queries go through the same one."""

    def tokens(self, text: str) -> Sequence[str]:
        """Return the tokens of `text` in order."""
        ...

    def stem(self, word: str) -> str:
        """Return the token of one word; empty when it has none."""
        ...

    @property
    def stop_tokens(self) -> frozenset[str]:
        """The tokens of the English stop words."""
        ...


class Postings(Analyzer, Protocol):
    """The posting lists of all indexed messages, with their statistics and texts.

    Lists and statistics cover every user of the database; `Catalog` decides which messages may be returned.
    """

    @property
    def documents(self) -> int:
        """How many messages are indexed."""
        ...

    @property
    def mean_length(self) -> float:
        """Mean number of words in a message."""
        ...

    @property
    def languages(self) -> Sequence[str]:
        """The languages other than English in which a part of the messages is written."""
        ...

    def mean_session(self) -> float:
        """Return the mean number of messages in a session."""
        ...

    def expect(self, words: Sequence[str]) -> None:
        """Prepare for questions about these words; a database on another machine reads their lists at once."""
        ...

    def frequency(self, word: str) -> int:
        """Return how many messages contain the word; the count may lag behind the index by a small share."""
        ...

    def vocabulary(self, start: str) -> list[tuple[str, int]]:
        """Return the tokens that start with `start`, each with its frequency."""
        ...

    def ids(self, lookup: Lookup) -> list[int]:
        """Return the matching messages in ascending order."""
        ...

    def ids_between(self, lookup: Lookup, first: int, last: int) -> list[int]:
        """Return the matching messages from `first` to `last`, both included, in ascending order."""
        ...

    def newest_ids(self, lookup: Lookup, limit: int, *, below: int | None = None) -> list[int]:
        """Return the newest matching messages, older than `below` where given, in ascending order."""
        ...

    def newest_containing(self, text: str, limit: int) -> list[int]:
        """Return the newest messages with a word that may contain `text`, a part of a word in lower case; newest first.

        False positives are allowed, misses are not, except that text of fewer than three characters finds nothing.
        """
        ...

    def talk_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return id and text of what people and models said, newest first, older than `below` where given."""
        ...

    def lengths(self, ids: Iterable[int]) -> Mapping[int, int]:
        """Return the number of words of each message; the mapping may contain other messages as well."""
        ...

    def texts(self, ids: Sequence[int], *, holding: str = "") -> dict[int, str]:
        """Return the text of each message; those that certainly do not hold a phrase, case ignored, may be left out."""
        ...


class MessageHead(NamedTuple):
    """A message without its text. A tuple, because a search reads hundreds."""

    session_id: str
    role: str
    timestamp: float
    external_id: str | None


class SessionHead(NamedTuple):
    """What filters and ranking need to know of a session."""

    source: str
    project: str | None
    started: float
    last_active: float
    message_count: int
    is_headless: bool = False
    """Whether a program led the conversation instead of a person."""
    has_parent: bool = False
    """Whether it continues or branches off another session."""


class SessionFilter(NamedTuple):
    """Conditions on a session; None and empty match every session."""

    project: str | None = None
    sources: tuple[str, ...] = ()
    after: float | None = None
    """Sessions that were active at this moment or later."""
    before: float | None = None
    """Sessions that started before this moment."""


class TimeFilter(NamedTuple):
    """Which sessions of a time are listed; None and empty match every session."""

    after: float | None = None
    before: float | None = None
    project: str | None = None
    sources: tuple[str, ...] = ()
    hidden_sources: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    session_id: str | None = None
    exclude_sessions: tuple[str, ...] = ()
    exclude_messages: frozenset[int] = frozenset()

    @classmethod
    def of(cls, request: SearchRequest) -> "TimeFilter":
        """Return the filters of a request."""
        return cls(
            after=request.after,
            before=request.before,
            project=request.project,
            sources=request.sources,
            hidden_sources=() if request.sources else tuple(sorted(HIDDEN_SOURCES)),
            roles=request.roles,
            session_id=request.session_id,
            exclude_sessions=request.exclude_sessions,
            exclude_messages=request.exclude_messages,
        )


class Catalog(Protocol):
    """Metadata of the messages and sessions that one user may find. It is built for that user.

    Sessions of other users and sessions in the trash do not exist here.
    """

    @property
    def has_other_users(self) -> bool:
        """Whether the database may contain sessions of other users, so that lists must be narrowed first."""
        ...

    def messages(self, ids: Collection[int]) -> dict[int, MessageHead]:
        """Return the messages that exist and were not taken back."""
        ...

    def sessions(self, session_ids: Collection[str]) -> dict[str, SessionHead]:
        """Return the user's sessions among these."""
        ...

    def session_ids(self, conditions: SessionFilter, limit: int) -> list[str]:
        """Return at most `limit` of the user's sessions that match."""
        ...

    def titled(self, title: str) -> list[str]:
        """Return the user's sessions with this title; upper and lower case do not matter."""
        ...

    def titles(self) -> Iterable[tuple[str, str]]:
        """Yield id and title of every session of the user that has one, the newest first."""
        ...

    def timeline(
        self, conditions: TimeFilter, limit: int, *, is_oldest_first: bool = False
    ) -> tuple[int, list[tuple[str, int]]]:
        """Return how many sessions have messages of a time, and the newest of them, each with one message.

        The message is the first of a person in that time, or the first one if nobody said anything.
        """
        ...

    def span(self, session_ids: Collection[str]) -> tuple[int, int, int] | None:
        """Return the first and last message and the number of messages of the user's sessions among these.

        None without messages.
        """
        ...

    def ids_by_session(self, session_ids: Collection[str]) -> Mapping[str, Sequence[int]]:
        """Return the messages of each session in ascending order."""
        ...

    def ids_near(self, session_id: str, first: int, last: int) -> list[int]:
        """Return the messages of one session from `first` to `last`, both included, in ascending order."""
        ...


class Similarity(Protocol):
    """The vector of one question, compared with the vectors of messages."""

    def nearest(self, allowed: Collection[int] | None) -> Mapping[int, float]:
        """Return the messages most similar to the question, among `allowed` where that is given."""
        ...

    def of(self, ids: Iterable[int]) -> Mapping[int, float]:
        """Return the cosine similarity of each of these messages that has a vector."""
        ...


def phrase_pattern(phrase: str) -> str:
    """Return a LIKE pattern that every ASCII text matches which holds a folded phrase; "%" if there is none."""
    return f"%{_NOT_ALPHANUMERIC.sub('%', phrase)}%" if phrase else "%"


def substring_pattern(text: str) -> str:
    """Return a LIKE pattern that every text matches which contains `text`, case ignored, and few others.

    LIKE knows the cases of ASCII only, and two other letters have ASCII ones as their lower case: those of i and k. So
    only ASCII letters and digits, and characters without case, are compared as they are.
    """

    def is_safe(character: str) -> bool:
        has_case = character in "ik" if character.isascii() else character.lower() != character.upper()
        return character.isalnum() and not has_case

    return f"%{''.join(character if is_safe(character) else '_' for character in text)}%"
