"""The port that a database implements so that sessions can be searched: posting lists and metadata.

Everything else in this package is shared by all databases. A message has an id, and a position in the arrays of the
index: both grow with time, so "newest" means the highest, and messages stored one after the other are neighbours.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Positions: TypeAlias = NDArray[np.int64]
    """Positions in ascending order, each once."""


class Postings(Protocol):
    """The posting lists of all messages, with their statistics and texts; committed messages are always complete.

    Lists and statistics cover every user of the database; `Catalog` decides which messages may be returned.
    """

    documents: int
    """How many messages the lists cover."""
    mean_length: float
    """Mean number of words in a message."""
    mean_session: float
    """Mean number of messages in a session."""
    languages: Sequence[str]
    """The languages in which messages are written, most frequent first."""
    unread: int
    """Older messages that are in no list yet, because the index is being built."""
    size: int
    """Positions are below this number; not every position has a message."""
    lengths: "Array"
    """Number of words of the message at each position."""
    sessions: "Array"
    """Number of the session of the message at each position; 0 where there is no message."""
    session_sizes: "Array"
    """Number of messages of each session, by its number."""

    def read(self, words: Collection[str]) -> "Mapping[str, Positions]":
        """Return the list of each of these words that some message contains."""
        ...

    def words_starting(self, start: str, limit: int) -> list[str]:
        """Return at most `limit` of the words that start with `start`."""
        ...

    def words_containing(self, text: str, limit: int) -> list[str]:
        """Return at most `limit` of the words that contain `text`."""
        ...

    def ids(self, positions: "Array") -> list[int]:
        """Return the messages at these positions."""
        ...

    def positions(self, ids: Collection[int]) -> "Array":
        """Return the positions of these messages in the given order; -1 for a message that has none."""
        ...

    def session_numbers(self, session_ids: Collection[str]) -> list[int]:
        """Return the numbers of those of these sessions that have messages."""
        ...

    def talk_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return id and text of what people and models said, newest first, older than `below` where given."""
        ...

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the text of each message."""
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

    def timeline(
        self, conditions: TimeFilter, limit: int, *, is_oldest_first: bool = False
    ) -> tuple[int, list[tuple[str, int]]]:
        """Return how many sessions have messages of a time, and the newest of them, each with one message.

        The message is the first of a person in that time, or the first one if nobody said anything.
        """
        ...

    def ids_by_session(self, session_ids: Collection[str]) -> dict[str, list[int]]:
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
