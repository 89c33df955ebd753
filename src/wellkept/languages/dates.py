"""Dates as people write them ("last week", "in March", "vor 3 Tagen"), and the time spans that they mean."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Final

from msgspec import Struct

from wellkept.core.text import WORD
from wellkept.languages.language import Language, join_words, list_languages

_MONTH_NAMES: Final = "january february march april may june july august september october november december"
MONTHS: Final = _MONTH_NAMES.split()
WEEKDAYS: Final = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_UNITS: Final = ("minute", "hour", "day", "week", "month", "year")


_DEPTH: Final = 2
_SLOT: Final = "[NUMWDY]"


@cache
def list_dated_languages() -> tuple[Language, ...]:
    """Return the languages that have dates of their own, which is all but English."""
    return tuple(filter(attrgetter("dates"), list_languages()))


@cache
def weekday_patterns() -> tuple[re.Pattern[str], ...]:
    """Return an expression for each day of the week in all languages, plurals ("mittwochs") included."""
    languages = [(language.is_spaced, _split(language, "weekdays")) for language in list_dated_languages()]
    patterns = []
    for day, english in enumerate(WEEKDAYS):
        spaced = [english, *(names[day] for is_spaced, names in languages if is_spaced and names)]
        unspaced = [names[day] for is_spaced, names in languages if names and not is_spaced]
        patterns.append(re.compile("|".join((rf"\b(?:{'|'.join(spaced)})s?\b", *unspaced))))
    return tuple(patterns)


def translate_date(text: str) -> str:
    """Translate a date to English; return `text` unchanged if it is in none of the known languages."""
    folded = " ".join(text.lower().split())
    return _translate(folded, _DEPTH) or text


def find_phrases(folded: str, languages: Iterable[Language]) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and English translation of every date phrase of these languages in a lower-case text."""
    for language in languages:
        for rule in _rules(language, is_inside=True):
            yield from ((*match.span(), rule.english(_groups(match))) for match in rule.pattern.finditer(folded))


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in match.groupdict().items() if value is not None}


def _translate(text: str, depth: int) -> str | None:
    for rule in (rule for language in list_dated_languages() for rule in _rules(language, is_inside=False)):
        match = rule.pattern.fullmatch(text)
        if match is None:
            continue
        groups = _groups(match)
        rest = groups.get("rest") or groups.get("before")
        if rest is None:
            return rule.english(groups)
        english = _translate(rest, depth - 1) if depth else None
        if english is not None:
            return f"{rule.said} {english}".strip()
    return None


class _Rule(Struct, frozen=True):
    pattern: re.Pattern[str]
    said: str
    words: Mapping[str, Sequence[tuple[str, str]]]

    def english(self, groups: Mapping[str, str]) -> str:
        """Return the English phrase for a match; missing optional parts are omitted."""
        slots = {name[0]: self._word(name[0], value) for name, value in groups.items()}
        return " ".join(
            " ".join(slots.get(word, "" if word in "NUMWDY" else word) for word in self.said.split()).split()
        )

    def _word(self, slot: str, value: str) -> str:
        for pattern, word in self.words.get(slot, ()):
            if re.fullmatch(pattern, value):
                return word
        return value


@cache
def _rules(language: Language, *, is_inside: bool) -> tuple[_Rule, ...]:
    """Return the rules that find a date inside a sentence, or those for a text that is only a date.

    Compiling one language takes some milliseconds, so a language is compiled only for a text that may need it.
    """
    names = {"N": ("counts", list(map(str, range(1, 11)))), "U": ("units", _UNITS)}
    names |= {"M": ("months", MONTHS), "W": ("weekdays", WEEKDAYS)}
    tables = {slot: list(zip(_split(language, name), words, strict=False)) for slot, (name, words) in names.items()}
    # an empty list of words would be an expression that matches everywhere
    slots = {slot: "|".join(pattern for pattern, _ in table) or "(?!)" for slot, table in tables.items()}
    slots["N"] += r"|\d{1,4}"
    slots |= {"D": r"[0-3]?\d", "Y": r"(?:19|20)\d\d"}
    lines = (*language.dates.get("inside", ()), *(() if is_inside else language.dates.get("alone", ())))
    around = r"(?<!\w)(?:{})(?!\w)" if is_inside and language.is_spaced else "{}"
    return tuple(
        _Rule(re.compile(around.replace("{}", _expression(phrase, slots))), english.strip(), tables)
        for phrase, _, english in (line.rpartition(" =") for line in lines)
    )


def _split(language: Language, name: str) -> list[str]:
    return " ".join(language.dates.get(name, ())).split()


def _expression(rule: str, slots: Mapping[str, str]) -> str:
    """Return the expression of a rule; a slot that occurs again has a name of its own, "M2"."""
    seen: dict[str, int] = {}

    def group(match: re.Match[str]) -> str:
        slot = match[0]
        seen[slot] = seen.get(slot, 0) + 1
        name = slot if seen[slot] == 1 else f"{slot}{seen[slot]}"
        return f"(?P<{name}>{slots[slot]})"

    return re.sub(_SLOT, group, rule)


DAY_SECONDS = 86_400.0
_END = ("until ", "by ")

_MONTH_NUMBERS = {name: number for number, name in enumerate(MONTHS, 1)}
_MONTH_NUMBERS |= {name[:3]: number for name, number in _MONTH_NUMBERS.items()} | {"sept": 9}
DATE_NAMES = frozenset({*MONTHS, *WEEKDAYS})
_COUNTED = "one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {word: number for number, word in enumerate(_COUNTED.split(), 1)} | {
    "a": 1,
    "an": 1,
    "couple of": 2,
    "a couple of": 2,
    "few": 3,
    "a few": 3,
    "several": 5,
}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}

_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_DAY_AND_MONTH = r"(?P<day>[0-3]?\d)\.(?P<month>[01]?\d)\.(?P<year>(?!))?"
_BEFORE_DAY = "on since until by from after before"
_WEEKDAY = rf"(?P<weekday>{'|'.join(WEEKDAYS)})"
_COUNT = (
    r"(?P<count>\d{1,4}|a couple of|couple of|a few|few|several|an?|"
    r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
)
_UNIT = r"(?P<unit>day|week|month|year)s?"
_NAMED_DAYS = {
    "the day before yesterday": 2,
    "yesterday": 1,
    "last night": 1,
    "today": 0,
    "tonight": 0,
    "this morning": 0,
    "this afternoon": 0,
    "this evening": 0,
}
"""Days by their distance; a part of a day stands for the whole, because nobody remembers the hour."""
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}


class Span(Struct, frozen=True):
    """A time span from `start` up to but not including `end`, in epoch seconds."""

    start: float
    end: float

    def distance(self, moment: float) -> float:
        """Return the seconds between `moment` and the nearest end of the span; 0 inside."""
        return max(self.start - moment, moment - self.end, 0.0)


def _days(start: datetime, days: int) -> Span:
    return Span(start.timestamp(), (start + timedelta(days=days)).timestamp())


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _month_span(year: int, month: int) -> Span:
    start = datetime(year, month, 1, tzinfo=UTC)
    following = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return Span(start.timestamp(), following.timestamp())


def _iso(match: re.Match[str], _now: datetime) -> Span | None:
    year, month, day = int(match["year"]), int(match["m"]), match["d"]
    if day is None:
        return _month_span(year, month)
    start = datetime(year, month, int(day), tzinfo=UTC)
    if match["hour"] is None:
        return _days(start, 1)
    start = start.replace(hour=int(match["hour"]), minute=int(match["minute"]))
    return Span(start.timestamp(), start.timestamp() + 60.0)


def _read_slashes(match: re.Match[str], _now: datetime) -> Span | None:
    """Read "12/27/2023", month first as in English, unless only the other order is a date."""
    first, second, year = int(match["first"]), int(match["second"]), int(match["year"])
    month, day = (first, second) if first <= 12 else (second, first)
    return _days(datetime(year, month, day, tzinfo=UTC), 1)


def _full(match: re.Match[str], now: datetime) -> Span | None:
    month = _MONTH_NUMBERS.get(match["month"]) or int(match["month"])
    day = int(match["day"])
    if match["year"] is not None:
        return _days(datetime(int(match["year"]), month, day, tzinfo=UTC), 1)
    year = now.year if (month, day) <= (now.month, now.day) else now.year - 1
    if (month, day) == (2, 29):
        year = next(leap for leap in range(year, year - 9, -1) if leap % 4 == 0 and (leap % 100 or leap % 400 == 0))
    return _days(datetime(year, month, day, tzinfo=UTC), 1)


def _read_month(match: re.Match[str], now: datetime) -> Span | None:
    month, year = _MONTH_NUMBERS[match["month"]], match.groupdict().get("year")
    if year is not None:
        return _month_span(int(year), month)
    return _month_span(now.year if month <= now.month else now.year - 1, month)


def _year_alone(match: re.Match[str], _now: datetime) -> Span | None:
    year = int(match["year"])
    return Span(datetime(year, 1, 1, tzinfo=UTC).timestamp(), datetime(year + 1, 1, 1, tzinfo=UTC).timestamp())


def _read_count(match: re.Match[str]) -> int:
    word = match["count"]
    return int(word) if word.isdigit() else _NUMBERS[word]


def _ago(match: re.Match[str], now: datetime) -> Span | None:
    count, unit = _read_count(match), match["unit"]
    if unit in {"hour", "minute"}:
        start = now - timedelta(minutes=count * (60 if unit == "hour" else 1))
        return Span(start.timestamp(), start.timestamp() + 60.0)
    return _days(_midnight(now) - timedelta(days=count * _UNIT_DAYS[unit]), _UNIT_DAYS[unit])


def _relative_unit(match: re.Match[str], now: datetime) -> Span | None:
    shift = {"this": 0, "before last": 2}.get(match["which"], 1)
    today = _midnight(now)
    match match["unit"]:
        case "day":
            return _days(today - timedelta(days=shift), 1)
        case "week":
            return _days(today - timedelta(days=today.weekday() + 7 * shift), 7)
        case "month":
            month_index = now.year * 12 + now.month - 1 - shift
            return _month_span(month_index // 12, month_index % 12 + 1)
        case _:
            return Span(
                datetime(now.year - shift, 1, 1, tzinfo=UTC).timestamp(),
                datetime(now.year - shift + 1, 1, 1, tzinfo=UTC).timestamp(),
            )


def _last_many(match: re.Match[str], now: datetime) -> Span | None:
    start = _midnight(now) - timedelta(days=_read_count(match) * _UNIT_DAYS[match["unit"]])
    return Span(start.timestamp(), now.timestamp())


def _weekday(match: re.Match[str], now: datetime) -> Span | None:
    back = (now.weekday() - WEEKDAYS.index(match["weekday"])) % 7 or 7
    return _days(_midnight(now) - timedelta(days=back), 1)


def _weekday_of_week(match: re.Match[str], now: datetime) -> Span | None:
    week = _relative_unit(match, now)
    day = WEEKDAYS.index(match["weekday"]) * DAY_SECONDS
    return None if week is None else Span(week.start + day, week.start + day + DAY_SECONDS)


def _weekend(match: re.Match[str], now: datetime) -> Span | None:
    shift = 7 if match["which"] == "last" and now.weekday() >= 5 else 0
    saturday = _midnight(now) - timedelta(days=(now.weekday() - 5) % 7 + shift)
    return _days(saturday, 2)


def _named_day(match: re.Match[str], now: datetime) -> Span | None:
    back = _NAMED_DAYS[match["name"]]
    return _days(_midnight(now) - timedelta(days=back), 1)


def _season(match: re.Match[str], now: datetime) -> Span | None:
    month = _SEASONS[match["season"]]
    year = int(match["year"]) if match["year"] else now.year
    start = datetime(year, month, 1, tzinfo=UTC)
    if not match["year"] and (start > now or match["which"] == "last"):
        start = start.replace(year=year - 1)
    return _days(start, 91)


_Reader = Callable[[re.Match[str], datetime], Span | None]
# the order decides between readers of equally long phrases: the more specific ones come first
_ALWAYS: tuple[tuple[str, _Reader], ...] = (
    (
        rf"{_YEAR}[-/](?P<m>\d\d?)(?:[-/](?P<d>\d\d?)(?:[t ](?P<hour>\d\d):(?P<minute>\d\d)(?::\d\d(?:\.\d+)?)?z?)?)?",
        _iso,
    ),
    (rf"(?P<d>\d\d?)\.(?P<m>\d\d?)\.{_YEAR}(?P<hour>(?!))?", _iso),
    (rf"(?P<first>\d\d?)/(?P<second>\d\d?)/{_YEAR}", _read_slashes),
    # without a year only after a preposition: "3.11." at the end of a sentence is more often a version
    (rf"(?:BEFORE) {_DAY_AND_MONTH}", _full),
    (rf"{_DAY}(?: of)? {_MONTH},? {_YEAR}", _full),
    (rf"{_MONTH} {_DAY}(?:,? {_YEAR})?", _full),
    (rf"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?(?: of)? {_MONTH}(?P<year>(?!))?", _full),
    (rf"{_MONTH},? (?:of )?{_YEAR}", _read_month),
    (rf"{_COUNT} {_UNIT} ago", _ago),
    (rf"(?:in |over |during )?(?:the )?(?:last|past) {_COUNT} {_UNIT}", _last_many),
    (r"(?P<which>last|this|previous) (?P<unit>day|week|month|year)", _relative_unit),
    (r"(?:in )?(?:the )?(?P<unit>week|month|year) (?P<which>before last)", _relative_unit),
    (rf"(?:on )?{_WEEKDAY} (?:of |in )?(?P<which>last|this) (?P<unit>week)", _weekday_of_week),
    (rf"(?:on )?{_WEEKDAY} (?:of |in )?(?:the )?(?P<unit>week) (?P<which>before last)", _weekday_of_week),
    (rf"(?:last|this|on) {_WEEKDAY}", _weekday),
    (r"(?P<which>last|this|(?:on|over|at) the) weekend", _weekend),
    (rf"(?P<name>{'|'.join(_NAMED_DAYS)})(?: (?:morning|noon|afternoon|evening|night))?", _named_day),
    (rf"(?:(?P<which>last|this|in(?: the)?) (?P<season>{'|'.join(_SEASONS)})(?: of)?(?: {_YEAR})?)", _season),
    (rf"(?:in|during|since|until|last|this|early|late|mid|by) {_MONTH}", _read_month),
    (rf"(?:in|during|since|of|until|by) {_YEAR}", _year_alone),
)
_ALONE: tuple[tuple[str, _Reader], ...] = (
    (_DAY_AND_MONTH, _full),
    (_MONTH, _read_month),
    (_YEAR, _year_alone),
    (_WEEKDAY, _weekday),
    (r"now", lambda _match, now: _days(_midnight(now), 1)),
    (rf"{_COUNT} (?P<unit>hour|minute)s? ago", _ago),
)
_PREPOSITION = r"^(?:in|on|at|during|since|from|until|by|after|before) (?:the )?"
_ANCHORS = frozenset(
    {*_MONTH_NUMBERS, *WEEKDAYS, *_SEASONS, *_UNIT_DAYS, *(f"{unit}s" for unit in _UNIT_DAYS)}
    | {name.split()[-1] for name in _NAMED_DAYS}
    | {"weekend"}
)
"""Every date in a question has one of these words, or a digit."""


@cache
def _readers(*, is_whole: bool) -> tuple[tuple[re.Pattern[str], _Reader], ...]:
    """Return the expressions for a text that is only a date, or for dates inside a text; compiled at first need."""
    # BEFORE stands for the words before a day, in any of the languages
    before = "|".join((*_BEFORE_DAY.split(), *join_words("before_day")))
    rows = _ALWAYS + _ALONE if is_whole else _ALWAYS
    frame = "{}" if is_whole else r"(?<!\w){}(?!\w)"
    return tuple(
        (re.compile(frame.replace("{}", pattern.replace("BEFORE", before))), reader) for pattern, reader in rows
    )


def _read(match: re.Match[str], reader: _Reader, now: datetime) -> Span | None:
    try:
        return reader(match, now)
    except (ValueError, OverflowError):  # 31 February, month 13, a million years ago: not dates
        return None


def _at(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC)


def parse_date(text: str, now: float) -> Span | None:
    """Parse the whole of `text` ("last week", "in March", "2024-05-01"), or return None.

    Filters use the start of the span; only "until X" means the end.
    """
    folded = " ".join(text.lower().split())
    for words in (folded, re.sub(_PREPOSITION, "", folded)):
        for pattern, reader in _readers(is_whole=True):
            match = pattern.fullmatch(words)
            span = _read(match, reader, _at(now)) if match is not None else None
            if span is not None:
                return span
    return None


def _may_hold_english_date(folded: str) -> bool:
    return any(word in _ANCHORS or any(map(str.isdigit, word)) for word in WORD.findall(folded))


@cache
def _anchor(language: Language) -> re.Pattern[str]:
    """Return an expression for the anchor words of a language: every date phrase in it contains one."""
    lines = [line for kind in ("units", "months", "weekdays", "days") for line in language.dates.get(kind, ())]
    words = "|".join(" ".join(lines).split()) or "(?!)"
    return re.compile(rf"\b(?:{words})\b" if language.is_spaced else words)


@cache
def _any_anchor() -> re.Pattern[str]:
    """Return an expression for a digit or an anchor word of any language that separates words by spaces."""
    words = [*_ANCHORS, *(_anchor(language).pattern for language in list_dated_languages() if language.is_spaced)]
    return re.compile(rf"\d|\b(?:{'|'.join(words)})\b")


def may_hold_date(text: str) -> bool:
    """Return whether a text may name a date in any of the known languages; False is certain."""
    folded = text.lower()
    return _any_anchor().search(folded) is not None or (
        not folded.isascii()
        and any(_anchor(language).search(folded) for language in list_dated_languages() if not language.is_spaced)
    )


def find_dates(text: str, now: float) -> tuple[tuple[Span, str], ...]:
    """Return the dates mentioned in a question in any of the known languages, each with its words."""
    folded = text.lower()
    phrases = _read_phrases(folded, now)
    # the longest wins: "3. April 2024" is a day, though "April 2024" is a month; then the first reader
    phrases.sort(key=lambda phrase: phrase[0] - phrase[1])
    chosen: list[tuple[int, int, Span]] = []
    for start, end, span in phrases:
        if span is not None and all(end <= other or start >= last for other, last, _ in chosen):
            chosen.append((start, end, span))
    return tuple((span, folded[start:end]) for start, end, span in chosen)


def find_impossible_date(text: str, now: float) -> str | None:
    """Return words that look like a date but name no existing day, such as "31 February", or None."""
    folded = text.lower()
    dates = [phrase for _, phrase in find_dates(text, now)]
    missing = [folded[start:end] for start, end, span in _read_phrases(folded, now) if span is None]
    return next((phrase for phrase in missing if not any(date in phrase or phrase in date for date in dates)), None)


def _read_phrases(folded: str, now: float) -> list[tuple[int, int, Span | None]]:
    """Return start, end and span of every phrase that looks like a date; the span is None if no such day exists."""
    languages = [language for language in list_dated_languages() if _anchor(language).search(folded)]
    phrases = [(start, end, parse_date(english, now)) for start, end, english in find_phrases(folded, languages)]
    if _may_hold_english_date(folded):
        for pattern, reader in _readers(is_whole=False):
            phrases += [
                (match.start(), match.end(), _read(match, reader, _at(now))) for match in pattern.finditer(folded)
            ]
    return phrases


def parse_moment(text: str, *, now: float) -> float | None:
    """Return the epoch seconds that `text` means, or None if it is not a date.

    Accepts epoch seconds, ISO dates and phrases like "last week", which means its start; "until last week" means
    its end. Dates without a time zone are local, because all dates are shown in local time.
    """
    number = _parse_number(text)
    if number is not None:
        return number
    if text.strip().lower() == "now":
        return now
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        pass
    english = translate_date(text)
    span = parse_span(english, now=now)
    if span is None:
        return None
    return span.end if english.strip().lower().startswith(_END) else span.start


def _parse_number(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    is_year = len(text.strip()) == 4 and text.strip().isdigit()
    return seconds if math.isfinite(seconds) and "_" not in text and not is_year else None


def parse_span(text: str, *, now: float) -> Span | None:
    """Return the time that `text` names as a whole ("last week", "im März"), in the local zone, or None."""
    try:
        span = parse_date(translate_date(text), _wall_clock(now))
        return None if span is None else _localize(span)
    except (ValueError, OverflowError, OSError):
        return None


def find_spans(text: str, *, now: float) -> tuple[tuple[Span, str], ...]:
    """Return the times that a question names, in the local zone, each with its words."""
    if not may_hold_date(text):
        return ()  # most queries name no time, and reading the local time zone is slow
    try:
        return tuple((_localize(span), phrase) for span, phrase in find_dates(text, _wall_clock(now)))
    except (ValueError, OverflowError, OSError):
        return ()


def _wall_clock(epoch: float) -> float:
    """Return the local wall-clock time at `epoch`, as if it were UTC."""
    return datetime.fromtimestamp(epoch, UTC).astimezone().replace(tzinfo=UTC).timestamp()


def _localize(span: Span) -> Span:
    """Convert a span of wall-clock times to epoch seconds; the inverse of `_wall_clock`."""
    return Span(_from_wall_clock(span.start), _from_wall_clock(span.end))


def _from_wall_clock(moment: float) -> float:
    return datetime.fromtimestamp(moment, UTC).replace(tzinfo=None).timestamp()
