"""What bounds a search: the filters of the request, hidden sources, the caller's context, and how much is read."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec import Struct

from wellkept.core.search import SearchRequest
from wellkept.sessions.search.postings import Catalog, Lookup, MessageHead, SessionFilter, SessionHead
from wellkept.sessions.search.ranking import WEIGHTS

HIDDEN_SOURCES = frozenset({"subagent", "tool", "review"})
"""Sources that are searched only when the request names them."""
_FEW_SESSIONS = 400
"""Sessions up to which the ids of all their messages are read first, so that lists can be narrowed to them."""
_MANY_SESSIONS = 50
"""Sessions from which on their span is read instead of the ids of all their messages, if most of it belongs to them."""
_DENSE = 1.5
"""Ids in a span for each message of the wanted sessions up to which the span stands for them; the rest is tested."""
LONG_SESSION = 2_000
"""Messages from which on only the surroundings of hits are read of a session."""
_LISTED = 50_000
"""Span of ids up to which the messages of one session are listed; of a longer one only the span is used."""
_WINDOW = 200
_WINDOWS = 20
ALL_MATCHING = 6_000
"""Messages that fulfil an explicit condition up to which all of them are candidates."""
_UNKNOWN = ""
"""The reason for a session that the user must not even learn of; such hits are not counted."""


class Scope(Struct, frozen=True):
    """Where to look."""

    messages: frozenset[int] | range | None = None
    """The messages that the filters leave; None when they may be anywhere."""
    matching: AbstractSet[int] | None = None
    """The messages that fulfil the explicit condition; None without one."""
    lookup: Lookup | None = None
    """Matches at least the messages that fulfil the condition."""
    required: frozenset[str] = frozenset()
    """Words that all of them contain."""
    is_filtered: bool = False
    """Whether there are further filters, which may exclude all of the newest messages."""
    needs_term: bool = False
    """Whether a message without a term cannot be found, though it is beside one that has some."""

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last of the messages that the filters leave."""
        if isinstance(self.messages, range):
            return self.messages.start, self.messages.stop - 1  # without going through it
        return min(self.messages or (), default=0), max(self.messages or (), default=0)

    @property
    def is_small(self) -> bool:
        """Whether so few messages fulfil an explicit condition that all of them are candidates."""
        return self.matching is not None and len(self.matching) <= ALL_MATCHING


class Filters:
    """The filters of one search; caches the metadata it reads and counts what each filter excludes."""

    def __init__(self, request: SearchRequest, catalog: Catalog) -> None:
        self._request = request
        self._catalog = catalog
        self.heads: dict[int, MessageHead] = {}
        self.sessions: dict[str, SessionHead] = {}
        self.excluded: Counter[str] = Counter()
        self._counted: set[int] = set()
        self._reasons: dict[str, str | None] = {}
        self._has_dates = request.after is not None or request.before is not None
        self._tests_messages = bool(request.exclude_messages or request.roles) or self._has_dates
        self._tests_sessions = bool(
            request.exclude_sessions or request.session_id is not None or request.sources or request.project is not None
        )
        self.are_wide = False
        """Whether there are filters that many sessions pass, so that more candidates must be tested."""

    def messages(self) -> frozenset[int] | range | None:
        """Return the messages of the sessions that pass, if those are few; of one very long session its span."""
        request = self._request
        if request.session_id is not None:
            return self._inside(request.session_id)
        if not (self._catalog.has_other_users or request.project or request.sources or self._has_dates):
            self.are_wide = bool(request.roles)
            return None
        conditions = SessionFilter(request.project, request.sources, request.after, request.before)
        names = self._catalog.session_ids(conditions, _FEW_SESSIONS + 1)
        if len(names) > _FEW_SESSIONS:
            self.are_wide = True
            return None
        return self._span_of(names) or self._ids_of(names)

    def _span_of(self, names: Sequence[str]) -> range | None:
        """Return the span of many messages if most of those in it belong to these sessions, as in a period of time."""
        if len(names) < _MANY_SESSIONS or self._catalog.has_other_users:
            return None
        first, last, count = self._catalog.span(names) or (0, 0, 0)
        return range(first, last + 1) if last - first < _DENSE * count else None

    def _inside(self, name: str) -> frozenset[int] | range:
        span = self._catalog.span([name])
        if span is None:
            return frozenset()
        first, last, count = span
        if last - first < _LISTED:
            return self._ids_of([name])
        inside = range(first, last + 1)
        self.are_wide = 2 * count < len(inside)  # most messages in between belong to other sessions
        return inside

    def _ids_of(self, names: Sequence[str]) -> frozenset[int]:
        return frozenset().union(*self._catalog.ids_by_session(names).values())

    def load(self, ids: Iterable[int]) -> None:
        """Read the metadata of messages that are not known yet."""
        unknown = [number for number in ids if number not in self.heads]
        if unknown:
            self.heads |= self._catalog.messages(unknown)

    def passing(self, ids: Collection[int]) -> dict[int, MessageHead]:
        """Return the messages among `ids` that may be returned, in no particular order."""
        unknown = [number for number in ids if number not in self.heads]
        if unknown:
            self.heads |= self._catalog.messages(unknown)
        self._load_sessions({self.heads[number].session_id for number in ids if number in self.heads})
        found = {}
        for number in ids:
            head = self.heads.get(number)
            if head is None:
                continue
            reason = self._reasons[head.session_id]
            if reason is None and self._tests_messages:
                reason = self._message_reason(number, head)
            if reason is None:
                found[number] = head
            elif reason and number not in self._counted:
                self._counted.add(number)
                self.excluded[reason] += 1
        return found

    def group(self, numbers: Iterable[int], heads: Collection[int]) -> dict[str, list[int]]:
        """Return those of the messages that are in `heads` by their sessions, in the given order."""
        found: dict[str, list[int]] = {}
        for number in numbers:
            if number in heads:
                found.setdefault(self.heads[number].session_id, []).append(number)
        return found

    def reason(self, number: int) -> str | None:
        """Return the name of the filter that excludes a message, None if it passes, "" if it does not exist here."""
        if self.passing([number]):
            return None
        head = self.heads.get(number)
        if head is None:
            return _UNKNOWN
        reason = self._reasons[head.session_id]
        return self._message_reason(number, head) if reason is None else reason

    def _load_sessions(self, names: set[str]) -> None:
        unknown = [name for name in names if name not in self._reasons]
        if unknown:
            self.sessions |= self._catalog.sessions(unknown)
            for name in unknown:
                self._reasons[name] = self._test_session(name)

    def _test_session(self, session_id: str) -> str | None:
        """Return the name of the filter that excludes the session, `_UNKNOWN`, or None when it passes."""
        session = self.sessions.get(session_id)
        request = self._request
        if session is None:
            return _UNKNOWN
        if not self._tests_sessions:
            return "hidden source" if session.source in HIDDEN_SOURCES else None
        checks = (
            ("session", session_id in request.exclude_sessions),
            ("session", request.session_id is not None and session_id != request.session_id),
            ("source", bool(request.sources) and session.source not in request.sources),
            ("hidden source", not request.sources and session.source in HIDDEN_SOURCES),
            ("project", request.project is not None and session.project != request.project),
        )
        return next((name for name, excluded in checks if excluded), None)

    def _message_reason(self, number: int, head: MessageHead) -> str | None:
        request = self._request
        if number in request.exclude_messages:
            return "current conversation"
        if request.roles and head.role not in request.roles:
            return "role"
        if request.after is not None and head.timestamp < request.after:
            return "after"
        if request.before is not None and head.timestamp >= request.before:
            return "before"
        return None

    def ids_by_session(self, chosen: Sequence[tuple[str, Sequence[int]]]) -> Mapping[str, Sequence[int]]:
        """Return the messages of each session in order; of a very long session those around its hits."""
        short = [name for name, _ in chosen if self.sessions[name].message_count <= LONG_SESSION]
        found = dict(self._catalog.ids_by_session(short))
        for name, hits in chosen:
            known = found.get(name, ())
            if self.sessions[name].message_count > LONG_SESSION:
                near = [self._catalog.ids_near(name, hit - _WINDOW, hit + _WINDOW) for hit in sorted(hits)[-_WINDOWS:]]
                found[name] = sorted({*hits}.union(*near))
            elif not all(map(known.__contains__, hits)):
                found[name] = sorted({*known, *hits})
        return found

    def source_factor(self, session_id: str) -> float:
        """Return the factor of a session's scores that its source sets."""
        session = self.sessions[session_id]
        if session.source == "cron":
            return WEIGHTS.cron
        return WEIGHTS.headless if session.is_headless else 1.0


class Budget(NamedTuple):
    """How much one search may read."""

    per_list: int
    """Entries of one list, or of one combination of lists, that are considered."""
    blocks: int
    """Blocks with the highest scores, whose hits all become candidates."""
    common: int
    """Length of a list beyond which it does not help to tell blocks apart."""
    looked: int
    """Messages whose length is looked up."""
    pool: int
    """Messages whose rows are read."""
    sessions: int
    """Sessions that are ranked line by line."""
    texts: int
    """Messages whose text is read for proximity."""
    postings: int = 70_000
    """Entries of posting lists that are read in full, rarest term first."""
    matching: int = 30_000
    """Messages that may fulfil an explicit condition and are tested, newest first."""

    def most_lines(self, limit: int) -> int:
        """Return how many lines are scored with their rows, to find `limit` of them."""
        return max(self.texts * 2, limit * 4, _LEAST_LINES)


_LEAST_LINES = 48
"""Lines below which the second best of a session, which counts for its score, are often missing."""
EXHAUSTIVE = Budget(*[10**9] * 9)
"""Reads and ranks everything that matches: the reference for measurements."""
LARGE = 1_000_000
"""Messages from which on the budget grows no more."""
_RARE = 400
"""Frequency up to which one term alone needs no larger budget than several."""
_SMALL = (10_000, Budget(per_list=1_500, blocks=150, common=15_000, looked=500, pool=140, sessions=16, texts=100))
"""Where lists are short, nearly everything that matches is ranked."""
_PLAIN = (
    _SMALL,
    (20_000, Budget(per_list=100, blocks=40, common=300, looked=250, pool=60, sessions=12, texts=48)),
    (100_000, Budget(per_list=300, blocks=150, common=3_000, looked=600, pool=60, sessions=18, texts=50)),
    (LARGE, Budget(per_list=300, blocks=150, common=15_000, looked=1_500, pool=60, sessions=20, texts=54)),
)
_EXPLICIT = (
    _SMALL,
    (20_000, Budget(per_list=100, blocks=15, common=300, looked=100, pool=30, sessions=12, texts=14)),
    (100_000, Budget(per_list=150, blocks=60, common=1_000, looked=250, pool=36, sessions=16, texts=16)),
    (LARGE, Budget(per_list=200, blocks=70, common=4_000, looked=800, pool=36, sessions=22, texts=16)),
)
"""Only messages with a word of the query are found, none by what stands beside them."""
_ONE_COMMON = (
    _SMALL,
    (20_000, Budget(per_list=150, blocks=0, common=0, looked=500, pool=60, sessions=16, texts=48)),
    (100_000, Budget(per_list=800, blocks=0, common=0, looked=900, pool=60, sessions=18, texts=50)),
    (LARGE, Budget(per_list=1_500, blocks=0, common=0, looked=900, pool=40, sessions=18, texts=40)),
)
"""Messages with one common term differ little, so more of them are looked at."""
_ONE_PREFIX = (
    *_ONE_COMMON[:-1],
    (LARGE, Budget(per_list=300, blocks=0, common=0, looked=300, pool=40, sessions=18, texts=16)),
)


def choose_budget(limit: int, documents: int, frequencies: Sequence[int] = (), *, is_explicit: bool = False) -> Budget:
    """Return a budget that fills a result of `limit` entries from a store of `documents` messages.

    `frequencies` are those of the terms. Between two sizes that were measured (`benchmarks/scale.py`), the budget
    changes evenly.
    """
    sizes = _EXPLICIT if is_explicit else _PLAIN
    if len(frequencies) == 1 and frequencies[0] > _RARE:
        sizes = _ONE_PREFIX if is_explicit else _ONE_COMMON
    small, least = sizes[0]
    for large, most in sizes[1:]:
        if documents <= large:
            break
        small, least = large, most
    share = min(1.0, max(0, documents - small) / (large - small)) if large > small else 1.0
    budget = Budget(*[round(one + share * (other - one)) for one, other in zip(least, most, strict=True)])
    return budget._replace(
        pool=max(budget.pool, 4 * limit), sessions=max(budget.sessions, limit), texts=max(budget.texts, limit)
    )
