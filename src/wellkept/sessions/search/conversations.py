"""Conversations that are found by their time or their title, and not by the words in them."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from math import exp
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from wellkept.core.clock import from_epoch
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.search import Found, FoundMessage, FoundSession, Period, SearchRequest
from wellkept.languages.dates import DAY_SECONDS, Span
from wellkept.sessions.records import storable
from wellkept.sessions.search.candidates import HIDDEN_SOURCES
from wellkept.sessions.search.postings import Catalog, TimeFilter
from wellkept.sessions.search.query import parse

if TYPE_CHECKING:
    from datetime import date

    from wellkept.sessions.search.discovery import Match


_DATE_BEFORE_DAYS: Final = 1.0
_DATE_AFTER_DAYS: Final = 5.0
"""Days after which nearness to a date has fallen to 1/e; people report events days later, rarely before."""


def list_conversations(catalog: Catalog, request: SearchRequest, period: Period) -> Found:
    """Return the sessions of a time in its order, each with what the person first said then."""
    conditions = _filter(request)._replace(after=period.start, before=period.end)
    limit = 1 if period.is_one else request.limit
    total, rows = catalog.timeline(conditions, limit, is_oldest_first=period.order == "oldest")
    heads = catalog.messages([number for _, number in rows])
    known = [(name, number) for name, number in rows if number in heads]
    known.sort(key=lambda row: heads[row[1]].timestamp, reverse=period.order == "newest")
    excluded = _count_excluded(catalog, conditions) if not known else {}
    return Found(
        sessions=tuple(FoundSession(SessionId(name), 0.0, MessageId(number)) for name, number in known),
        messages=tuple(
            FoundMessage(MessageId(number), SessionId(name), heads[number].external_id, 0.0) for name, number in known
        ),
        excluded=excluded,
        candidates=len(known) if period.is_one else total,
        period=period,
    )


def add_time(found: Found, catalog: Catalog, request: SearchRequest, dates: Sequence[Span]) -> Found:
    """Return `found` with the sessions of the time that the question names, where nothing matched well enough."""
    near = Period(min(span.start for span in dates), max(span.end for span in dates))
    return replace(found, of_time=list_conversations(catalog, request, near).sessions)


def _count_excluded(catalog: Catalog, conditions: TimeFilter) -> dict[str, int]:
    """Return how many sessions of an empty time only the caller's own context hides."""
    if not conditions.exclude_messages and not conditions.exclude_sessions:
        return {}
    total, _ = catalog.timeline(conditions._replace(exclude_sessions=(), exclude_messages=frozenset()), 1)
    return {"current conversation": total} if total else {}


def by_day(matches: Iterable["Match"]) -> Iterator[tuple["date", Sequence["Match"]]]:
    """Yield the matches of a time by the days of the local calendar, in their order."""
    days: dict[date, list[Match]] = {}
    for match in matches:
        days.setdefault(from_epoch(match.message.timestamp).astimezone().date(), []).append(match)
    yield from days.items()


def describe(period: Period) -> str:
    """Return the days of a period in words, such as "2026-11-09 to 2026-11-15"."""
    first = _day(period.start)
    last = _day(None if period.end is None else period.end - 1.0)
    if first and last:
        return first if first == last else f"{first} to {last}"
    if first or last:
        return f"since {first}" if first else f"until {last}"
    return "all time"


def _day(epoch: float | None) -> str:
    if epoch is None:
        return ""
    try:
        return f"{from_epoch(epoch).astimezone():%Y-%m-%d}"
    except (OverflowError, ValueError, OSError):
        return str(epoch)


def session_nearness(spans: Iterable[Span], started: float, last_active: float) -> float:
    """Return how near a session is to the nearest of several times, 0 to 1."""
    wide = (Span(min(span.start, last_active), max(span.end, started)) for span in spans)
    return max((nearness(span, started) for span in wide), default=0.0)


def nearness(span: Span, moment: float) -> float:
    """Return 1 inside `span`, less with every day before or after it."""
    days = span.distance(moment) / DAY_SECONDS
    if days == 0.0:
        return 1.0
    return exp(-days / (_DATE_BEFORE_DAYS if moment < span.start else _DATE_AFTER_DAYS))


_MOST_CHARACTERS: Final = 160
"""No title is longer; a longer query is a text."""
_LEAST_CHARACTERS: Final = 4
"""Shorter words differ by one letter from too many others."""
_ALIKE: Final = 0.85
"""The share of characters in common from which two spellings are one."""
_MOST_FOUND: Final = 5
_SCORE: Final = 1.0


def add_titled(found: Found, catalog: Catalog, request: SearchRequest) -> Found:
    """Return `found` led by the conversations with the title that the query is.

    A question is no title: what was asked before in the same words answers nothing.
    """
    title = storable(request.query.strip())
    if not title or len(title) > _MOST_CHARACTERS or request.session_id is not None:
        return found
    named = catalog.titled(title)
    if not named and (found.abstained or not found.sessions) and len(title) >= _LEAST_CHARACTERS:
        named = _find_similar(catalog, title)
    first = [hit for name in named[:_MOST_FOUND] for hit in _list_first(catalog, request, name)]
    heads = catalog.messages([number for _, number in first]) if first else {}
    hits = [(name, number) for name, number in first if number in heads]
    if not hits:
        return found
    score = max((hit.score for hit in found.sessions[:1]), default=_SCORE) if not found.abstained else _SCORE
    parts = {"title": score}
    sessions = [FoundSession(SessionId(name), score, MessageId(number), parts) for name, number in hits]
    messages = [
        FoundMessage(MessageId(number), SessionId(name), heads[number].external_id, score, parts)
        for name, number in hits
    ]
    known, shown = {hit.session_id for hit in sessions}, {hit.message_id for hit in messages}
    others = [] if found.abstained else [hit for hit in found.sessions if hit.session_id not in known]
    rest = [] if found.abstained else [hit for hit in found.messages if hit.message_id not in shown]
    return replace(found, sessions=(*sessions, *others), messages=(*messages, *rest), abstained=False, of_time=())


def _find_similar(catalog: Catalog, query: str) -> list[str]:
    """Return the sessions whose title has all words of the query, or is spelled nearly as it is; the likest first."""
    wanted, folded = {term.text for term in parse(query).terms}, query.casefold()
    if not wanted:
        return []
    alike: list[tuple[float, str]] = []
    for name, title in catalog.titles():
        matcher = SequenceMatcher(None, folded, title.casefold(), autojunk=False)
        share = matcher.ratio() if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE else 0.0
        if share < _ALIKE and wanted <= {term.text for term in parse(title).terms}:
            share = _ALIKE
        if share >= _ALIKE:
            alike.append((share, name))
    return [name for _, name in sorted(alike, key=lambda each: -each[0])]


def _list_first(catalog: Catalog, request: SearchRequest, session_id: str) -> list[tuple[str, int]]:
    """Return the session with the first thing that a person said in it; nothing where a filter excludes it."""
    conditions = _filter(request)._replace(session_id=session_id)
    return catalog.timeline(conditions, 1)[1]


def _filter(request: SearchRequest) -> TimeFilter:
    return TimeFilter(
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
