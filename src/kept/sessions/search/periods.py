"""Questions about a time ("what did we do last week?"): which time they mean, and the conversations of that time."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from math import exp
from typing import TYPE_CHECKING, Final, NamedTuple

from kept.core.clock import find_spans, from_epoch, parse_span
from kept.core.dates import DAY_SECONDS, Span
from kept.core.ids import MessageId, SessionId
from kept.core.search import Found, FoundMessage, FoundSession, Period, SearchRequest
from kept.core.text import UNSPACED, WORD, resource_text, stop_words, stop_words_by_language
from kept.core.values import replace
from kept.sessions.search.analysis import clean
from kept.sessions.search.filters import HIDDEN_SOURCES
from kept.sessions.search.postings import Catalog, TimeFilter
from kept.sessions.search.query import parse

if TYPE_CHECKING:
    from datetime import date

    from kept.sessions.search.discovery import Match

_MOST_CHARACTERS: Final = 160
"""A longer question is about more than a time."""
_MEASURES: Final = frozenset("次句条個个件段场话几幾")
_EDGES: Final = ("since", "after", "before", "until")
"""How a question bounds a time by a date: "since Monday", "before last week"."""
_BESIDE_DATES: Final = (*_EDGES, "between", "to")
_WEEK: Final = timedelta(days=7)
_CHINESE: Final = "zh"
_DIGITS: Final = re.compile(r"\d")
_DATE_BEFORE_DAYS: Final = 1.0
_DATE_AFTER_DAYS: Final = 5.0
"""Days after which nearness to a date has fallen to 1/e; people report events days later, rarely before."""


def read_period(request: SearchRequest, now: float) -> Period | None:
    """Return the time that a request is only about, or None when it asks for anything else.

    A request without a query is about the time of its filters. The filters narrow the time of a question.
    """
    said = clean(request.query[: _MOST_CHARACTERS + 1]).strip()
    if not said:
        has_time = request.after is not None or request.before is not None
        return Period(request.after, request.before) if has_time else None
    if len(said) > _MOST_CHARACTERS or parse(said).condition is not None:
        return None
    found = _read_question(said.lower(), now)
    if found is None:
        return None
    return Period(
        max((edge for edge in (found.start, request.after) if edge is not None), default=None),
        min((edge for edge in (found.end, request.before) if edge is not None), default=None),
        found.order,
        found.is_one,
    )


@cache
def _words(kind: str) -> Mapping[str, tuple[str, ...]]:
    """Return the words of one kind in `time_words.txt`, by language."""
    found: dict[str, tuple[str, ...]] = {}
    for line in resource_text("kept.sessions", "search/time_words.txt").splitlines():
        name, colon, words = line.partition(": ")
        if colon and name.endswith(f" {kind}") and not name.startswith("#"):
            code = name.split()[0]
            found[code] = (*found.get(code, ()), *words.split())
    return found


@cache
def _read_spaced_words(kind: str) -> frozenset[str]:
    """Return the words of one kind in all languages with spaces between words."""
    return frozenset(word for code, words in _words(kind).items() if code != _CHINESE for word in words)


@cache
def _read_edge_words() -> frozenset[str]:
    """Return the words beside a date that say how it bounds a time, in all languages with spaces between words."""
    phrases = frozenset[str]().union(*map(_read_spaced_words, _BESIDE_DATES))
    return frozenset(word for phrase in phrases for word in phrase.split("_"))


def _read_question(folded: str, now: float) -> Period | None:
    dates = [_shorten(span, said, now) for span, said in find_spans(folded, now=now)]
    rest = folded
    for _, said in dates:
        rest = rest.replace(said, " ", 1)
    words, topics = _find_topics(rest, is_dated=bool(dates))
    names = _find_names(topics, now) if len(words) > 1 else []
    topics = topics.difference(said for _, said in names)
    is_first = bool(topics) and topics <= _read_spaced_words("first")
    if (dates or names) and (is_first or not topics):
        if dates and (_DIGITS.search(rest) or not _may_ask_for_talk(words, dates)):
            return None
        found = _read_dates(folded, sorted((*dates, *names), key=lambda one: folded.index(one[1])), now)
        order = ("oldest", _asks_for_one(words)) if is_first else ()
        return None if found is None else Period(*found, *order)
    if dates or not words:
        return None
    if is_first:
        return Period(None, None, "oldest", _asks_for_one(words))
    is_latest = topics and topics <= _read_spaced_words("latest") and topics != {"time"}
    return Period(None, None) if is_latest else None


def carry_time(question: str, text: str, now: float) -> str | None:
    """Return a question about a time with the time that goes on from it: "and yesterday?", "and before that?".

    None where the question is not about a time, or the text tells more than a time.
    """
    folded, rest = question.lower(), text.lower()
    asked = sorted(_list_dates(folded, now), key=lambda one: folded.index(one[1]))
    if not asked or read_period(SearchRequest(question), now) is None:
        return None
    (first, begin), (last, end), dates = asked[0], asked[-1], _list_dates(rest, now)
    said = folded[folded.index(begin) : folded.index(end) + len(end)]
    folded = _drop_edge(folded, said)
    for _, named in dates:
        rest = rest.replace(named, " ", 1)
    words, topics = _find_topics(rest, is_dated=True)
    if len(dates) == 1:
        return folded.replace(said, dates[0][1], 1) if not topics else None
    unit, topics = _take_unit(words, topics)
    bounded = _bound(said, words, topics)
    if bounded is not None and unit:
        bounded = _name_time_before(min(first.start, last.start), unit)
    return None if bounded is None else folded.replace(said, bounded, 1)


def _take_unit(words: Sequence[str], topics: set[str]) -> tuple[str, set[str]]:
    """Return the unit of time that a text names, such as "week", and its topics without it."""
    for unit in ("day", "week", "month"):
        for code, names in _words(unit).items():
            if code != _CHINESE and not set(names).isdisjoint(words):
                return unit, topics.difference(names, *stop_words_by_language().values())
    return "", topics


def _name_time_before(start: float, unit: str) -> str:
    """Return the day, week or month before a time, as dates."""
    end = from_epoch(start).astimezone().date() - timedelta(days=1)
    days = {"day": 1, "week": 7}.get(unit, end.day)
    return f" from {end - timedelta(days=days - 1)} to {end} "


def _bound(said: str, words: Sequence[str], topics: set[str]) -> str | None:
    """Return a date with the word before or after it that the words of a text call for; None for any other text."""
    for kind, edge in (("earlier", "before"), ("later", "after")):
        for code, known in _words(kind).items():
            spoken = words if code != _CHINESE else [one for one in known if any(one in word for word in words)]
            if topics.issubset(known) and not set(known).isdisjoint(spoken):
                bound = _words(edge)[code][0].replace("_", " ")
                return f"{said}{bound}" if code == _CHINESE else f"{bound} {said}"
    return None


def _drop_edge(folded: str, said: str) -> str:
    """Return a question without the word that bounds its time by a date."""
    for kind in _EDGES:
        ending, following = _edge_pattern(kind)
        head, tail = folded.split(said, 1)
        follows = following.match(tail)
        folded = f"{ending.sub('', head)}{said}{tail[follows.end() :] if follows else tail}"
    return folded


def _list_dates(folded: str, now: float) -> Sequence[tuple[Span, str]]:
    """Return the dates of a question, or the names in it that may mean one."""
    dates = [_shorten(span, said, now) for span, said in find_spans(folded, now=now)]
    return dates or _find_names(WORD.findall(folded), now)


def _shorten(span: Span, said: str, now: float) -> tuple[Span, str]:
    """Return a date without a word that bounds a time by it: of "since March" the month; "vor 3 Tagen" is one day."""
    first, _, rest = said.partition(" ")
    is_edge = first in _read_edge_words() and rest and parse_span(rest, now=now) == span
    return (span, rest) if is_edge else (span, said)


def _find_names(topics: Iterable[str], now: float) -> list[tuple[Span, str]]:
    """Return the words that mean a date only where nothing else is left of a question: "what did we do Monday?"."""
    read = ((parse_span(word, now=now), word) for word in topics if not _DIGITS.search(word))
    return [(span, word) for span, word in read if span is not None]


def _may_ask_for_talk(words: Sequence[str], dates: Sequence[tuple[Span, str]]) -> bool:
    """Return whether words beside dates ask for talk; "how are you today?" does not, nor does a bare date in digits."""
    return _asks_for_talk(words) if words else not any(_DIGITS.search(said) for _, said in dates)


class _Bounds(NamedTuple):
    start: float | None
    end: float | None


def _read_dates(folded: str, dates: Sequence[tuple[Span, str]], now: float) -> _Bounds | None:
    """Return the time that one date bounds ("since Monday"), or that two dates do ("from Monday to Wednesday")."""
    if len(dates) == 1:
        return _read_edge(folded, *dates[0], now)
    if len(dates) > 2:
        return None
    (first, said), (second, said_after) = dates
    is_range = _stands_at("between", folded, said) or _stands_at("to", folded, said_after)
    if second.start < first.start:
        # weekdays: "from Monday to Wednesday", asked on a Wednesday, ends today; "to Friday" ended last week
        later, earlier = _move(second, _WEEK), _move(first, -_WEEK)
        if first.start <= later.start <= now:
            second = later
        elif earlier.start <= second.start:
            first = earlier
    touch = min(first.end, second.end) >= max(first.start, second.start)
    if not is_range and not touch:
        return None  # "on Monday and on Friday" leaves out the days between them
    return _Bounds(min(first.start, second.start), max(first.end, second.end))


def _move(span: Span, days: timedelta) -> Span:
    """Return a span by so many days of the local calendar away, which may have a change of clocks between them."""
    start, end = (from_epoch(edge).astimezone().replace(tzinfo=None) + days for edge in (span.start, span.end))
    return Span(start.timestamp(), end.timestamp())


def _read_edge(folded: str, span: Span, said: str, now: float) -> _Bounds:
    edge = next((kind for kind in _EDGES if _stands_at(kind, folded, said)), "")
    bounds = {
        "since": _Bounds(span.start, now),
        "after": _Bounds(span.end, now),
        "before": _Bounds(None, span.start),
        "until": _Bounds(None, span.end),
    }
    return bounds.get(edge, _Bounds(span.start, span.end))


@cache
def _edge_pattern(kind: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what finds a word of a kind before a date, and a Chinese one after it."""
    spaced = "|".join(
        word.replace("_", " ") for code, words in _words(kind).items() if code != _CHINESE for word in words
    )
    chinese = "|".join(_words(kind)[_CHINESE])
    before = rf"(?:\b(?:{spaced})['’]?(?: (?:the|dem|der|den|die|el|la|los|le|l['’]|les))?|{chinese})\s*$"
    return re.compile(before), re.compile(rf"\s*(?:{chinese})")


def _stands_at(kind: str, folded: str, said: str) -> bool:
    """Return whether a word of a kind stands before a date, or follows it, as in Chinese."""
    ending, following = _edge_pattern(kind)
    head, tail = folded.split(said, 1)
    return ending.search(head) is not None or following.match(tail) is not None


def _find_topics(rest: str, *, is_dated: bool) -> tuple[list[str], set[str]]:
    """Return the words of a question without its dates, and those among them that name a topic or an order."""
    spaced = [word for word in WORD.findall(UNSPACED.sub(" ", rest)) if word]
    stops = set(stop_words(spaced))
    for code, table in stop_words_by_language().items():
        asking = set(_words("talk").get(code, ()))
        # a single word of a language proves nothing in a short question, unless a word that asks is there, too
        if asking.intersection(spaced) or (is_dated and sum(word in table for word in spaced) * 2 > len(spaced)):
            stops |= table | asking
    topics = {word for word in spaced if word not in stops | _read_edge_words()}
    runs: list[str] = UNSPACED.findall(rest)
    for run in runs:
        topics |= _chinese_topics(run)
    return [*spaced, *runs], topics


def _asks_for_talk(words: Sequence[str]) -> bool:
    """Return whether a question has a word for doing or talking, in any language."""
    talk = _read_spaced_words("talk") | _read_spaced_words("first")
    return any(word in talk or UNSPACED.search(word) for word in words)


def _asks_for_one(words: Sequence[str]) -> bool:
    """Return whether a question for what came first has no word in the plural: "first thing", not "first things"."""
    several = _words("several")
    return not any(
        word in several.get(code, ()) if code != _CHINESE else any(each in word for each in several[code])
        for word in words
        for code in several
    )


def _chinese_topics(run: str) -> set[str]:
    found = set()
    for order in ("first", "latest"):
        for name in _words(order)[_CHINESE]:
            if name in run:
                run = run.replace(name, " ")
                found.add(order)
    for word in (*_words("talk")[_CHINESE], *(word for kind in _BESIDE_DATES for word in _words(kind)[_CHINESE])):
        run = run.replace(word, " ")
    left = {piece for piece in run.split() if not (found and set(piece) <= _MEASURES)}
    return found | left


def list_conversations(catalog: Catalog, request: SearchRequest, period: Period) -> Found:
    """Return the sessions of a time in its order, each with what the person first said then."""
    conditions = TimeFilter(
        after=period.start,
        before=period.end,
        project=request.project,
        sources=request.sources,
        hidden_sources=() if request.sources else tuple(sorted(HIDDEN_SOURCES)),
        roles=request.roles,
        session_id=request.session_id,
        exclude_sessions=request.exclude_sessions,
        exclude_messages=request.exclude_messages,
    )
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
