"""Questions about a time ("what did we do last week?"): which time they mean, and the conversations of that time."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from math import exp
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from wellkept.core.clock import from_epoch
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.search import Found, FoundMessage, FoundSession, Period, SearchRequest
from wellkept.core.text import UNSPACED, WORD
from wellkept.languages.dates import DAY_SECONDS, Span, find_spans, may_hold_date, parse_span, weekday_patterns
from wellkept.languages.language import list_languages, stop_words, stop_words_by_language
from wellkept.sessions.search.analysis import clean
from wellkept.sessions.search.postings import Catalog, TimeFilter
from wellkept.sessions.search.query import Query, parse

if TYPE_CHECKING:
    from wellkept.sessions.search.discovery import Match

_MOST_CHARACTERS: Final = 160
"""A longer question is about more than a time."""
_EDGES: Final = ("since", "after", "before", "until")
"""How a question bounds a time by a date: "since Monday", "before last week"."""
_BESIDE_DATES: Final = (*_EDGES, "between", "to")
_MOST_CORRECTED: Final = 3
"""A question with more words that are no time is about something else."""
_LEAST_CORRECTED: Final = 3
"""Shorter words are not corrected: nearly every change of a letter makes another word of them."""
_WEEK: Final = timedelta(days=7)
_YEAR_DAYS: Final = 365
_UNITS: Final = (_WEEK.days, 30, _YEAR_DAYS)
"""The lengths in days of a week, a month and a year."""
_PAST: Final = re.compile(r"\bpast (day|week|month|year)\b")
_UP_TO: Final = re.compile(r"\b((?:were|was|been)(?: (?:we|i|you))?) up to\b")
""""Up to" that does not bound a time: "what were we up to last week?"."""
_DIGITS: Final = re.compile(r"\d")
_DATE_BEFORE_DAYS: Final = 1.0
_DATE_AFTER_DAYS: Final = 5.0
"""Days after which nearness to a date has fallen to 1/e; people report events days later, rarely before."""


def read_period(request: SearchRequest, now: float, query: Query | None = None) -> Period | None:
    """Return the time that a request is only about, or None when it asks for anything else.

    A request without a query is about the time of its filters. The filters narrow the time of a question. `query` is
    the parsed query, where the caller has it already.
    """
    text = clean(request.query[: _MOST_CHARACTERS + 1]).strip()
    if not text:
        has_time = request.after is not None or request.before is not None
        return Period(request.after, request.before) if has_time else None
    if len(text) > _MOST_CHARACTERS or (query or parse(text)).condition is not None:
        return None
    # "the past week" is the last seven days, while "last week" is a week of the calendar
    folded = _UP_TO.sub(r"\1 doing", _PAST.sub(r"last 1 \1", text.lower()))
    period = _read_question(folded, now)
    if period is None and (corrected := correct_spelling(folded, now)) is not None:
        period = _read_question(corrected, now)
    if period is None:
        return None
    return Period(
        max((edge for edge in (period.start, request.after) if edge is not None), default=None),
        min((edge for edge in (period.end, request.before) if edge is not None), default=None),
        period.order,
        period.is_one,
    )


@cache
def _read_spaced_words(kind: str) -> frozenset[str]:
    """Return the words of one kind in all languages with spaces between words."""
    return frozenset(word for language in list_languages() if language.is_spaced for word in language.list_words(kind))


@cache
def _list_unspaced_words(kind: str) -> tuple[str, ...]:
    """Return the words of one kind in all languages without spaces between words, in their order."""
    return tuple(word for language in list_languages() if not language.is_spaced for word in language.list_words(kind))


RANGE_STARTS: Final = _read_spaced_words("between")
"""Words that begin a range of days; in a query without them, bare names of days are words to find."""


@cache
def _read_edge_words() -> frozenset[str]:
    """Return the words beside a date that say how it bounds a time, in all languages with spaces between words."""
    phrases = frozenset[str]().union(*map(_read_spaced_words, _BESIDE_DATES))
    return frozenset(word for phrase in phrases for word in phrase.split("_"))


@cache
def _list_leads() -> frozenset[str]:
    """Return the words that may come before a time in a follow-up: "and yesterday?", "what about Monday?"."""
    return frozenset(phrase.replace("_", " ") for phrase in _read_spaced_words("leads"))


def correct_spelling(question: str, now: float) -> str | None:
    """Return a question with its misspelt date words corrected; None where there are none.

    A corrected word must be part of a whole date, as in "on fridy": in "with frida" it is the name of a person.
    """
    folded = corrected = question.lower()
    topics = _find_topics(folded, is_dated=True)[1].difference(_read_spaced_words("dates"))
    if len(topics) > _MOST_CORRECTED:
        return None
    for word in topics:
        trials = (re.sub(rf"\b{re.escape(word)}\b", meant, corrected) for meant in _list_near_dates(word))
        dated = (trial for trial in trials if any(word not in phrase for _, phrase in find_spans(trial, now=now)))
        corrected = next(dated, corrected)
    return corrected if corrected != folded else None


def _list_near_dates(word: str) -> list[str]:
    """Return the words of dates that differ from a word by one letter, or by two swapped letters."""
    from wellkept.sessions.search.terms import edit_distance  # most questions are spelled as they should be

    if len(word) < _LEAST_CORRECTED or UNSPACED.search(word):
        return []
    # people rarely mistype the first letter; one that is changed, missing or added differs in two letters at most
    candidates = (
        name
        for name in _read_spaced_words("dates")
        if (name[0] == word[0] or name[:2] == word[1::-1])
        and abs(len(name) - len(word)) <= 1
        and len(set(name) ^ set(word)) <= 2
    )
    return sorted(name for name in candidates if edit_distance(name, word) == 1)


def _read_question(folded: str, now: float) -> Period | None:
    """Return the time that a question in lower case is only about."""
    dates = _find_dates(folded, now)
    rest = _remove_dates(folded, dates)
    words, topics = _find_topics(rest, is_dated=bool(dates) or may_hold_date(rest))
    names = _find_names(topics, now) if len(words) > 1 else []
    named = {phrase for _, phrase in names}
    topics -= named
    is_first = bool(topics) and topics <= _read_spaced_words("first")
    if (dates or names) and (is_first or not topics):
        if dates and not _asks_only_for_talk(rest, words, [word for word in words if word not in named], dates):
            return None
        bounds = _read_dates(folded, sorted((*dates, *names), key=lambda date: folded.index(date[1])), now)
        order = ("oldest", _asks_for_one(words)) if is_first else ()
        return None if bounds is None else Period(*bounds, *order)
    if dates or not words:
        return None
    if is_first:
        return Period(None, None, "oldest", _asks_for_one(words))
    is_latest = topics and topics <= _read_spaced_words("latest") and topics != {"time"}
    return Period(None, None) if is_latest else None


def _asks_only_for_talk(
    rest: str, words: Sequence[str], unnamed: Sequence[str], dates: Sequence[tuple[Span, str]]
) -> bool:
    """Return whether the words beside dates ask for talk; "how are you today?" does not, nor a bare date in digits.

    `rest` is the question without its dates, `unnamed` its words without names that mean a date.
    """
    if _DIGITS.search(rest):
        return False
    bare = [word for word in unnamed if word not in _read_edge_words()]
    if " ".join(bare) in _list_leads() or _asks_for_talk(words):
        return True
    return not bare and not any(_DIGITS.search(phrase) for _, phrase in dates)


def _remove_dates(text: str, dates: Iterable[tuple[Span, str]]) -> str:
    for _, phrase in dates:
        text = text.replace(phrase, " ", 1)
    return text


def names_only_time(text: str, now: float) -> bool:
    """Return whether a text is a time and at most a word for conversations: "all of last week"."""
    folded = text[: _MOST_CHARACTERS + 1].lower()
    period = read_period(SearchRequest(text), now) if may_hold_date(folded) else None
    if period is None or not period.is_bounded:
        return False
    rest = _remove_dates(folded, _list_dates(folded, now))
    words = {word for word in WORD.findall(UNSPACED.sub(" ", rest)) if not word.isdigit()}
    allowed = _read_edge_words() | _list_leads() | {phrase for _, phrase in _find_names(words, now)}
    allowed |= _read_spaced_words("several") | _read_spaced_words("nouns")
    return words <= allowed.union(*stop_words_by_language().values())


def carry_time(question: str, text: str, now: float) -> str | None:
    """Return a question about a time with the time of a follow-up: "and yesterday?", "and before that?".

    None where the question is not about a time, or the text is about more than a time.
    """
    folded, rest = question.lower(), text.lower()
    asked = sorted(_list_dates(folded, now), key=lambda date: folded.index(date[1]))
    if not asked or read_period(SearchRequest(question), now) is None:
        return None
    (first, begin), (last, end), dates = asked[0], asked[-1], _list_dates(rest, now)
    phrase = folded[folded.index(begin) : folded.index(end) + len(end)]
    for kind in _EDGES:  # the new time brings its own word for how it bounds
        before, after = _edge_pattern(kind)
        head, tail = folded.split(phrase, 1)
        match = after.match(tail)
        folded = f"{before.sub('', head)}{phrase}{tail[match.end() :] if match else tail}"
    words, topics = _find_topics(_remove_dates(rest, dates), is_dated=True)
    if len(dates) == 1:
        return folded.replace(phrase, dates[0][1], 1) if not topics else None
    unit, topics = _take_unit(words, topics)
    bounded = _bound(phrase, words, topics)
    if bounded is not None and unit:
        # the day, week or month before the time of the question, as dates
        until = from_epoch(min(first.start, last.start)).astimezone().date() - timedelta(days=1)
        days = {"day": 1, "week": 7}.get(unit, until.day)
        bounded = f" from {until - timedelta(days=days - 1)} to {until} "
    return None if bounded is None else folded.replace(phrase, bounded, 1)


def _take_unit(words: Sequence[str], topics: set[str]) -> tuple[str, set[str]]:
    """Return the unit of time that a text names, such as "week", and its topics without it."""
    for unit in ("day", "week", "month"):
        for names in (language.list_words(unit) for language in list_languages() if language.is_spaced):
            if not set(names).isdisjoint(words):
                return unit, topics.difference(names, *stop_words_by_language().values())
    return "", topics


def _bound(phrase: str, words: Sequence[str], topics: set[str]) -> str | None:
    """Return a date with the word before or after it that the words of a text call for; None for any other text."""
    for kind, edge in (("earlier", "before"), ("later", "after")):
        for language in list_languages():
            names, is_spaced = language.list_words(kind), language.is_spaced
            spoken = words if is_spaced else [name for name in names if any(name in word for word in words)]
            edges = language.list_words(edge)
            if edges and topics.issubset(names) and not set(names).isdisjoint(spoken):
                bound = edges[0].replace("_", " ")
                return f"{bound} {phrase}" if is_spaced else f"{phrase}{bound}"
    return None


def _list_dates(folded: str, now: float) -> Sequence[tuple[Span, str]]:
    """Return the dates of a question, or the names in it that may mean one."""
    dates = _find_dates(folded, now)
    return dates or _find_names(WORD.findall(folded), now)


def _find_dates(folded: str, now: float) -> list[tuple[Span, str]]:
    spans = (_shorten(span, phrase, now) for span, phrase in find_spans(folded, now=now))
    return [(_align(span, now), phrase) for span, phrase in spans]


def _align(span: Span, now: float) -> Span:
    """Return the week, month or year of the calendar that "two weeks ago" means; any other span as it is."""
    start, end, today = (from_epoch(edge).astimezone() for edge in (span.start, span.end, now))
    days, back = (end.date() - start.date()).days, (today.date() - start.date()).days
    if days not in _UNITS or back <= 0 or back % days or end.hour or end.minute:
        return span
    count = back // days
    if days == _WEEK.days:
        first = start.date() - timedelta(days=start.weekday())
        return _make_span(first, first + _WEEK)
    if days == _YEAR_DAYS:
        return _make_span(date(today.year - count, 1, 1), date(today.year - count + 1, 1, 1))
    month = today.year * 12 + today.month - 1 - count
    return _make_span(*(date(count // 12, count % 12 + 1, 1) for count in (month, month + 1)))


def _make_span(first: date, end: date) -> Span:
    return Span(*(datetime.combine(day, datetime.min.time()).timestamp() for day in (first, end)))


def _shorten(span: Span, phrase: str, now: float) -> tuple[Span, str]:
    """Return a date without a leading word such as "since" in "since March", which bounds a time by it."""
    first, _, rest = phrase.partition(" ")
    is_edge = first in _read_edge_words() and rest and parse_span(rest, now=now) == span
    return (span, rest) if is_edge else (span, phrase)


def _find_names(topics: Iterable[str], now: float) -> list[tuple[Span, str]]:
    """Return the words that mean a date only where nothing else is left of a question: "what did we do Monday?"."""
    named = (word for word in topics if not _DIGITS.search(word) and may_hold_date(word))
    read = ((parse_span(word, now=now), word) for word in named)
    return [(span, word) for span, word in read if span is not None]


class _Bounds(NamedTuple):
    start: float | None
    end: float | None


def _read_dates(folded: str, dates: Sequence[tuple[Span, str]], now: float) -> _Bounds | None:
    """Return the time that one date bounds ("since Monday"), or that two dates do ("from Monday to Wednesday")."""
    if len(dates) == 1:
        return _read_edge(folded, *dates[0], now)
    if len(dates) > 2:
        return None
    (first, phrase), (second, second_phrase) = dates
    is_range = _stands_at("between", folded, phrase) or _stands_at("to", folded, second_phrase)
    if second.start < first.start and not _names_weekday(second_phrase):
        # "between Monday and Wednesday of last week": both days are of that week
        first = _move(first, -_WEEK) if _names_weekday(phrase) else first
    elif second.start < first.start:
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


def _names_weekday(phrase: str) -> bool:
    """Return whether a date is a day of the week alone, with or without a preposition: "on Monday"."""
    rest = phrase
    for names in weekday_patterns():
        rest = names.sub(" ", rest)
    words = rest.split()
    return rest != phrase and (not words or (len(words) == 1 and len(words[0]) < len("last") and words[0].isascii()))


def _move(span: Span, days: timedelta) -> Span:
    """Return a span moved by days of the local calendar, also across a change of clocks."""
    start, end = (from_epoch(edge).astimezone().replace(tzinfo=None) + days for edge in (span.start, span.end))
    return Span(start.timestamp(), end.timestamp())


def _read_edge(folded: str, span: Span, phrase: str, now: float) -> _Bounds:
    edge = next((kind for kind in _EDGES if _stands_at(kind, folded, phrase)), "")
    bounds = {
        "since": _Bounds(span.start, now),
        "after": _Bounds(span.end, now),
        "before": _Bounds(None, span.start),
        "until": _Bounds(None, span.end),
    }
    return bounds.get(edge, _Bounds(span.start, span.end))


@cache
def _edge_pattern(kind: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the expressions for a word of a kind before a date, and for one after it in scripts without spaces."""
    spaced = "|".join(word.replace("_", " ") for word in _read_spaced_words(kind))
    unspaced = "|".join(_list_unspaced_words(kind))
    articles = "|".join(_read_spaced_words("articles")).replace("'", "['’]")
    before = rf"(?:\b(?:{spaced})['’]?(?: (?:{articles}))?|{unspaced})\s*$"
    return re.compile(before), re.compile(rf"\s*(?:{unspaced})")


def _stands_at(kind: str, folded: str, phrase: str) -> bool:
    """Return whether a word of a kind stands before a date, or follows it, as in Chinese."""
    ending, following = _edge_pattern(kind)
    head, tail = folded.split(phrase, 1)
    return ending.search(head) is not None or following.match(tail) is not None


def _find_topics(rest: str, *, is_dated: bool) -> tuple[list[str], set[str]]:
    """Return the words of a question without its dates, and those among them that name a topic or an order."""
    spaced = [word for word in WORD.findall(UNSPACED.sub(" ", rest)) if word]
    stops = set(stop_words(spaced))
    talk = {language.code: language.list_words("talk") for language in list_languages()}
    for code, table in stop_words_by_language().items():
        asking = set(talk.get(code, ()))
        # a single word of a language proves nothing in a short question, unless a word that asks is there, too
        if asking.intersection(spaced) or (is_dated and sum(word in table for word in spaced) * 2 > len(spaced)):
            stops |= table | asking
    stops |= _read_edge_words() | (_list_leads() if is_dated else frozenset())
    topics = {word for word in spaced if word not in stops}
    runs: list[str] = UNSPACED.findall(rest)
    for run in runs:
        topics |= _find_unspaced_topics(run)
    return [*spaced, *runs], topics


def _asks_for_talk(words: Sequence[str]) -> bool:
    """Return whether a question has a word for doing or talking, in any language."""
    talk = _read_spaced_words("talk") | _read_spaced_words("first")
    return any(word in talk or UNSPACED.search(word) for word in words)


def _asks_for_one(words: Sequence[str]) -> bool:
    """Return whether a question for what came first has no word in the plural: "first thing", not "first things"."""
    spaced, unspaced = _read_spaced_words("several"), _list_unspaced_words("several")
    return not any(word in spaced or any(name in word for name in unspaced) for word in words)


def _find_unspaced_topics(run: str) -> set[str]:
    orders = set()
    for order in ("first", "latest"):
        for name in _list_unspaced_words(order):
            if name in run:
                run = run.replace(name, " ")
                orders.add(order)
    for word in (word for kind in ("talk", *_BESIDE_DATES) for word in _list_unspaced_words(kind)):
        run = run.replace(word, " ")
    measures = "".join(_list_unspaced_words("measures"))
    return orders | {piece for piece in run.split() if not (orders and set(piece) <= set(measures))}


def list_conversations(catalog: Catalog, request: SearchRequest, period: Period) -> Found:
    """Return the sessions of a time in its order, each with what the person first said then."""
    conditions = TimeFilter.of(request)._replace(after=period.start, before=period.end)
    limit = 1 if period.is_one else request.limit
    total, rows = catalog.timeline(conditions, limit, is_oldest_first=period.order == "oldest")
    heads = catalog.messages([message_id for _, message_id in rows])
    rows = [(session_id, message_id) for session_id, message_id in rows if message_id in heads]
    rows.sort(key=lambda row: heads[row[1]].timestamp, reverse=period.order == "newest")
    excluded = {}
    if not rows and (conditions.exclude_messages or conditions.exclude_sessions):
        # sessions that only the caller's own context hides
        count, _ = catalog.timeline(conditions._replace(exclude_sessions=(), exclude_messages=frozenset()), 1)
        excluded = {"current conversation": count} if count else {}
    hits = [(SessionId(session_id), MessageId(message_id)) for session_id, message_id in rows]
    return Found(
        sessions=tuple(FoundSession(session_id, 0.0, message_id) for session_id, message_id in hits),
        messages=tuple(
            FoundMessage(message_id, session_id, heads[message_id].external_id, 0.0) for session_id, message_id in hits
        ),
        excluded=excluded,
        candidates=len(rows) if period.is_one else total,
        period=period,
    )


def add_time(result: Found, catalog: Catalog, request: SearchRequest, dates: Sequence[Span]) -> Found:
    """Return `result` with the sessions of the time that the question names, where nothing matched well enough."""
    near = Period(min(span.start for span in dates), max(span.end for span in dates))
    return replace(result, of_time=list_conversations(catalog, request, near).sessions)


def by_day(matches: "Iterable[Match]") -> "Iterator[tuple[date, Sequence[Match]]]":
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
