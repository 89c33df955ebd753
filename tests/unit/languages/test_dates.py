"""Dates as people write them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.languages import dates
from wellkept.languages.dates import find_dates, find_impossible_date, parse_date

NOW = datetime(2024, 2, 15, 12, tzinfo=UTC).timestamp()


def day(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("last week", "2024-02-05", "2024-02-12"),
        ("in March", "2023-03-01", "2023-04-01"),
        ("3 days ago", "2024-02-12", "2024-02-13"),
        ("a few weeks ago", "2024-01-25", "2024-02-01"),
        ("yesterday", "2024-02-14", "2024-02-15"),
        ("last month", "2024-01-01", "2024-02-01"),
        ("last year", "2023-01-01", "2024-01-01"),
        ("last friday", "2024-02-09", "2024-02-10"),
        ("2024-05-01", "2024-05-01", "2024-05-02"),
        ("2024-05", "2024-05-01", "2024-06-01"),
        ("2023", "2023-01-01", "2024-01-01"),
        ("May 3, 2023", "2023-05-03", "2023-05-04"),
        ("3rd of May 2023", "2023-05-03", "2023-05-04"),
        ("16 November, 2023", "2023-11-16", "2023-11-17"),
        ("december 2023", "2023-12-01", "2024-01-01"),
        ("in March 2023", "2023-03-01", "2023-04-01"),
        ("since May 3, 2023", "2023-05-03", "2023-05-04"),
        ("on 2023-05-03", "2023-05-03", "2023-05-04"),
        ("27.12.2023", "2023-12-27", "2023-12-28"),
        ("12/27/2023", "2023-12-27", "2023-12-28"),
        ("27/12/2023", "2023-12-27", "2023-12-28"),
        ("27.12.", "2023-12-27", "2023-12-28"),
        ("am 3.1.", "2024-01-03", "2024-01-04"),
        ("the week before last", "2024-01-29", "2024-02-05"),
        ("Tuesday of last week", "2024-02-06", "2024-02-07"),
        ("yesterday evening", "2024-02-14", "2024-02-15"),
    ],
)
def test_a_date_is_a_stretch_of_time(text: str, start: str, end: str) -> None:
    """Each way of writing a date means these days."""
    span = parse_date(text, NOW)

    assert span is not None
    assert (span.start, span.end) == (day(start), day(end))


@pytest.mark.parametrize("text", ["", "soon", "31 February 2023", "9999-99", "99999 years ago", "13/27/2023", "32.1."])
def test_what_is_no_date_is_none(text: str) -> None:
    """Impossible days and other words are not dates."""
    assert parse_date(text, NOW) is None


def test_a_question_may_mention_dates() -> None:
    """The words that say the date come with it; "may" alone is not a month."""
    found = find_dates("What did Tim finish on 8th December, 2023, and may I know why?", NOW)

    assert [said for _, said in found] == ["8th december, 2023"]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("what did we buy on 27.12.2023?", ["27.12.2023"]),
        ("was war am 27.12.?", ["am 27.12."]),
        ("what did we buy on 12/27/2023?", ["12/27/2023"]),
        ("did we upgrade to 3.11.? and to 1.2.3?", []),
    ],
)
def test_a_question_names_days_by_numbers(question: str, words: list[str]) -> None:
    """A day and a month without a year need a preposition, because versions look the same."""
    assert [said for _, said in find_dates(question, NOW)] == words


def test_distance_is_zero_inside_and_grows_outside() -> None:
    """A moment inside a span is at no distance."""
    span = parse_date("2024-01-10", NOW)

    assert span is not None
    assert span.distance(day("2024-01-10")) == 0.0
    assert span.distance(day("2024-01-09")) == 86_400.0


@given(st.text(max_size=60), st.floats(0, 4e9))
def test_no_text_raises(text: str, now: float) -> None:
    """Whatever is written, it is a date or none."""
    parse_date(text, now)
    find_dates(text, now)


WORDS = [
    "in",
    "on",
    "the",
    "last",
    "past",
    "this",
    "previous",
    "of",
    "3",
    "3rd",
    "2024",
    "2024-05-01",
    "05.06.2024",
    "ago",
    "a",
    "few",
    "couple",
    "several",
    "march",
    "mar.",
    "sept",
    "may",
    "monday",
    "weekend",
    "today",
    "yesterday",
    "spring",
    "days",
    "week",
    "month's",
    "years_",
    "early",
    "mid",
    "ten",
    "x",
]


@given(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join))
def test_no_date_is_without_an_anchor(text: str) -> None:
    """A text in which an expression matches is one that the expressions are tried on."""
    found = any(pattern.search(text) for pattern, _ in dates._readers(is_whole=False))

    assert not found or (dates._may_hold_english_date(text) and dates.may_hold_date(text))


@pytest.mark.parametrize(
    ("question", "start"),
    [
        ("was war vorletzte Woche", "2024-01-29"),
        ("la semaine avant-dernière", "2024-01-29"),
        ("la semana antepasada", "2024-01-29"),
        ("上上周", "2024-01-29"),
        ("上个星期一", "2024-02-05"),
        ("本周一", "2024-02-12"),
        ("am Montag letzter Woche", "2024-02-05"),
        ("lundi de la semaine dernière", "2024-02-05"),
        ("el lunes de la semana pasada", "2024-02-05"),
        ("大前天", "2024-02-12"),
        ("昨晚", "2024-02-14"),
        ("anoche", "2024-02-14"),
        ("heut morgen", "2024-02-15"),
        ("ce matin", "2024-02-15"),
        ("esta mañana", "2024-02-15"),
        ("ce week-end", "2024-02-10"),
    ],
)
def test_a_question_names_times_in_other_languages(question: str, start: str) -> None:
    """Each is one date, and is looked for at all."""
    assert [span.start for span, _ in find_dates(question, NOW)] == [day(start)]
    assert dates.may_hold_date(question)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("what did we do on 31 February?", "31 february"),
        ("was haben wir am 35.13. gemacht", "am 35.13."),
        ("what did we do on 3 March?", None),
        ("version 3.11. is out", None),
    ],
)
def test_what_is_shaped_like_a_date_and_names_none_is_found(question: str, said: str | None) -> None:
    """A search that finds nothing can say so."""
    assert find_impossible_date(question, NOW) == said


OTHER_WORDS = [
    "letzte",
    "vorige",
    "Woche",
    "vor",
    "zwei",
    "Tagen",
    "im",
    "März",
    "vorgestern",
    "am",
    "Montag",
    "la",
    "semana",
    "pasada",
    "hace",
    "tres",
    "días",
    "anteayer",
    "en",
    "enero",
    "el",
    "miércoles",
    "dernière",
    "semaine",
    "il",
    "y",
    "a",
    "deux",
    "mois",
    "avant-hier",
    "août",
    "aujourd'hui",
    "上周",
    "昨天",
    "三月",
    "星期一",
    "两天前",
    "去年",
]


@given(st.lists(st.sampled_from(OTHER_WORDS), max_size=5).map(" ".join))
def test_no_date_of_another_language_is_without_an_anchor(text: str) -> None:
    """What is read as a date is looked for at all."""
    assert not find_dates(text, NOW) or dates.may_hold_date(text)
