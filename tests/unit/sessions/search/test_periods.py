"""Questions that are only about a time, and the conversations that answer them."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import Period, SearchRequest
from wellkept.sessions.search.discovery import find_conversations
from wellkept.sessions.search.periods import carry_time, names_only_time, read_period
from wellkept.sessions.sqlite.store import SqliteSessionStore

NOW = datetime(2026, 11, 17, 9, 30, tzinfo=UTC)  # a Tuesday
LAST_WEEK = (datetime(2026, 11, 9, tzinfo=UTC), datetime(2026, 11, 16, tzinfo=UTC))
YESTERDAY = (datetime(2026, 11, 16, tzinfo=UTC), datetime(2026, 11, 17, tzinfo=UTC))
WEEK_BEFORE = LAST_WEEK[0] - timedelta(days=7)
BEFORE_YESTERDAY = (datetime(2026, 11, 15, tzinfo=UTC), datetime(2026, 11, 16, tzinfo=UTC))
MARCH = (datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC))
MONDAY = YESTERDAY


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def period(question: str) -> Period | None:
    """Return what a question asked now is about."""
    return read_period(SearchRequest(question), NOW.timestamp())


@pytest.mark.parametrize(
    ("question", "span"),
    [
        ("What did we do last week?", LAST_WEEK),
        ("was haben wir letzte Woche gemacht", LAST_WEEK),
        ("上周我们做了什么", LAST_WEEK),
        ("¿Qué hicimos la semana pasada?", LAST_WEEK),
        ("Qu'avons-nous fait la semaine dernière ?", LAST_WEEK),
        ("what did we talk about yesterday", YESTERDAY),
        ("Worüber haben wir gestern gesprochen?", YESTERDAY),
        ("昨天我们聊了什么?", YESTERDAY),
        ("de qué hablamos ayer", YESTERDAY),
        ("de quoi avons-nous parlé hier", YESTERDAY),
        ("what were we working on in March?", MARCH),
        ("was haben wir im März besprochen", MARCH),
        ("三月我们讨论了什么", MARCH),
        ("what did we do on Monday", MONDAY),
        ("what did we do Monday?", MONDAY),
        ("was war am Montag los", MONDAY),
        ("show me the conversations of 16.11.2026", YESTERDAY),
        ("last week", LAST_WEEK),
        ("Könntest du mir bitte sagen, worüber wir gestern geredet haben?", YESTERDAY),
        ("¿Podrías decirme de qué hablamos ayer?", YESTERDAY),
        ("was habe ich dir am Montag erzählt?", MONDAY),
        ("on a fait quoi lundi", MONDAY),
        ("was haben wir vor 1 Tag gemacht", YESTERDAY),
        ("前天我们聊了什么", BEFORE_YESTERDAY),
        ("de quoi a-t-on parlé avant-hier", BEFORE_YESTERDAY),
        ("¿qué hicimos antes de ayer?", BEFORE_YESTERDAY),
        ("and yesterday?", YESTERDAY),
        ("und gestern?", YESTERDAY),
        ("y ayer?", YESTERDAY),
        ("et hier ?", YESTERDAY),
        ("昨天呢?", YESTERDAY),
        ("what about Monday?", MONDAY),
        ("zwischen Montag und Montag", MONDAY),
        ("what were we up to in March?", MARCH),
    ],
)
def test_a_question_only_about_a_time_is_read_in_five_languages(question: str, span: tuple[datetime, datetime]) -> None:
    """The span is that of the calendar."""
    assert period(question) == Period(span[0].timestamp(), span[1].timestamp())


@pytest.mark.parametrize(
    "question",
    [
        "what did we decide about the garden last week",
        "was haben wir letzte Woche im Garten gemacht",
        "上周我们讨论了数据库吗",
        "when did Caroline go to the support group?",
        '"last week"',
        "yesterday AND budget",
        "what happened in the war last week",
        "march",
        "8 May 2024",
        "what did we do",
        "How are you today?",
        "what did we do with frida?",
        "what did we do about the lost weak?",
        "",
    ],
)
def test_a_question_with_a_topic_or_without_a_time_is_searched(question: str) -> None:
    """A time beside other words only weighs."""
    assert period(question) is None


@pytest.mark.parametrize(
    "question",
    [
        "What was the first thing I said?",
        "was war das Erste, was ich gesagt habe",
        "¿Qué fue lo primero que dije?",
        "Quelle est la première chose que j'ai dite ?",
        "我说的第一句话是什么",
    ],
)
def test_the_first_thing_said_is_one_the_oldest_of_all_time(question: str) -> None:
    """The order is by time from the beginning, and nothing but the first was asked for."""
    assert period(question) == Period(None, None, "oldest", is_one=True)


@pytest.mark.parametrize("question", ["what were the first things we discussed", "我们最早聊了哪几件事"])
def test_the_first_things_are_more_than_one(question: str) -> None:
    """A plural asks for a list."""
    assert period(question) == Period(None, None, "oldest")


def test_since_a_time_lasts_until_now() -> None:
    """The end of the named span does not end what lasts since then."""
    assert period("what did we do since last week?") == Period(LAST_WEEK[0].timestamp(), NOW.timestamp())


@pytest.mark.parametrize(
    ("question", "start", "end"),
    [
        ("what did we do since March", datetime(2026, 3, 1, tzinfo=UTC), NOW),
        ("what did we talk about before last week", None, LAST_WEEK[0]),
        ("was haben wir vor letzter Woche gemacht", None, LAST_WEEK[0]),
        ("¿qué hicimos antes de la semana pasada?", None, LAST_WEEK[0]),
        ("qu'a-t-on fait avant la semaine dernière ?", None, LAST_WEEK[0]),
        ("上周之前我们聊了什么", None, LAST_WEEK[0]),
        ("what did we do after last week", LAST_WEEK[1], NOW),
        ("was haben wir bis gestern gemacht", None, YESTERDAY[1]),
        ("what happened between Sunday and Monday", YESTERDAY[0] - timedelta(days=1), YESTERDAY[1]),
        ("was haben wir von Montag bis Dienstag gemacht", YESTERDAY[0], YESTERDAY[1] + timedelta(days=1)),
        ("¿qué hicimos entre el domingo y el lunes?", YESTERDAY[0] - timedelta(days=1), YESTERDAY[1]),
        ("qu'avons-nous fait entre dimanche et lundi", YESTERDAY[0] - timedelta(days=1), YESTERDAY[1]),
        ("从周日到周一我们做了什么", YESTERDAY[0] - timedelta(days=1), YESTERDAY[1]),
        ("from Monday to Friday, what did we do?", LAST_WEEK[0], LAST_WEEK[1] - timedelta(days=2)),
        ("what did we do yesterday and today", YESTERDAY[0], YESTERDAY[1] + timedelta(days=1)),
        ("zwischen Sonntag und Montag", YESTERDAY[0] - timedelta(days=1), YESTERDAY[1]),
        ("entre dimanche et lundi", YESTERDAY[0] - timedelta(days=1), YESTERDAY[1]),
        ("entre domingo y lunes", YESTERDAY[0] - timedelta(days=1), YESTERDAY[1]),
        ("周日到周一", YESTERDAY[0] - timedelta(days=1), YESTERDAY[1]),
        ("what did we do between Monday and Tuesday of last week", LAST_WEEK[0], LAST_WEEK[0] + timedelta(days=2)),
        ("von Montag bis Dienstag letzter Woche", LAST_WEEK[0], LAST_WEEK[0] + timedelta(days=2)),
        ("what did we do in the past week", datetime(2026, 11, 10, tzinfo=UTC), NOW),
    ],
)
def test_a_date_may_bound_a_time_and_two_may_span_one(
    question: str, start: datetime | None, end: datetime | None
) -> None:
    """What stands beside a date says on which side of it the time is."""
    edges = (None if edge is None else edge.timestamp() for edge in (start, end))

    assert period(question) == Period(*edges)


@pytest.mark.parametrize(
    ("question", "span"),
    [
        ("what did we do yesteday", YESTERDAY),
        ("what did we do lsat week", LAST_WEEK),
        ("was haben wir gestren gemacht", YESTERDAY),
        ("was war letze Woche los?", LAST_WEEK),
        ("¿qué hicimos la semana pasda?", LAST_WEEK),
        ("qu'avons-nous fait la semaien dernière ?", LAST_WEEK),
        ("what did we do on mnoday", MONDAY),
        ("la semaine dernire ?", LAST_WEEK),
        ("what did we do last wek?", LAST_WEEK),
    ],
)
def test_a_misspelt_time_is_read_where_a_question_is_about_nothing_else(
    question: str, span: tuple[datetime, datetime]
) -> None:
    """One letter too few, too many, another one, or two that are swapped."""
    assert period(question) == Period(span[0].timestamp(), span[1].timestamp())


@pytest.mark.parametrize(
    ("question", "start", "end"),
    [
        ("what did we do two weeks ago?", WEEK_BEFORE, LAST_WEEK[0]),
        ("was haben wir vor zwei Wochen gemacht", WEEK_BEFORE, LAST_WEEK[0]),
        ("两周前我们做了什么", WEEK_BEFORE, LAST_WEEK[0]),
        ("what did we do 8 months ago", *MARCH),
        ("what did we do a year ago", datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_weeks_months_and_years_ago_are_those_of_the_calendar(question: str, start: datetime, end: datetime) -> None:
    """Nobody counts the days: two weeks ago is the week before last."""
    assert period(question) == Period(start.timestamp(), end.timestamp())


@pytest.mark.parametrize(
    "text",
    [
        "everything from the past 3 days",
        "alles von gestern",
        "summary of this week please",
        "entre lundi et mercredi",
        "前天",
    ],
)
def test_a_text_may_be_a_time_and_nothing_else(text: str) -> None:
    """A word for all conversations may stand beside it."""
    assert names_only_time(text, NOW.timestamp())


@pytest.mark.parametrize("text", ["went there yesterday", "the lesson is on Monday", "gestern geschlafen", "hello"])
def test_a_text_that_tells_something_of_a_time_is_more_than_one(text: str) -> None:
    """A verb or a thing makes it a statement."""
    assert not names_only_time(text, NOW.timestamp())


@pytest.mark.parametrize(
    ("question", "text", "start", "end"),
    [
        ("what did we do last week?", "before that?", None, LAST_WEEK[0]),
        ("Was haben wir letzte Woche gemacht?", "davor?", None, LAST_WEEK[0]),
        ("¿Qué hicimos la semana pasada?", "antes?", None, LAST_WEEK[0]),
        ("Qu'avons-nous fait la semaine dernière ?", "avant ?", None, LAST_WEEK[0]),
        ("上周我们做了什么", "之前呢？", None, LAST_WEEK[0]),
        ("what did we do last week?", "afterwards?", LAST_WEEK[1], NOW),
        ("what did we do last week?", "the week before?", WEEK_BEFORE, LAST_WEEK[0]),
        ("Was haben wir gestern gemacht?", "am Tag davor?", *BEFORE_YESTERDAY),
        ("Qu'avons-nous fait la semaine dernière ?", "la semaine d'avant ?", WEEK_BEFORE, LAST_WEEK[0]),
        ("¿Qué hicimos la semana pasada?", "la semana anterior?", WEEK_BEFORE, LAST_WEEK[0]),
        ("what did we do last week?", "yesterday?", *YESTERDAY),
        ("what did we do before last week?", "on Monday?", *YESTERDAY),
        ("上周之前我们做了什么", "昨天呢", *YESTERDAY),
        ("what did we do from 2026-11-02 to 2026-11-08?", "yesterday?", *YESTERDAY),
    ],
)
def test_a_time_goes_on_from_the_question_before(
    question: str, text: str, start: datetime | None, end: datetime | None
) -> None:
    """The question stays, and its time is replaced or bounded."""
    carried = carry_time(question, text, NOW.timestamp())

    assert carried is not None
    assert period(carried) == Period(*(None if edge is None else edge.timestamp() for edge in (start, end)))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("what did we do last week?", "the kitchen?"),
        ("where do I live?", "before that?"),
        ("what did we do", "yesterday?"),
    ],
)
def test_what_is_no_time_or_follows_no_question_about_one_is_not_carried(question: str, text: str) -> None:
    """It is another question."""
    assert carry_time(question, text, NOW.timestamp()) is None


def test_two_days_with_others_between_them_are_no_time() -> None:
    """The days between them were not asked for."""
    assert period("what did we do on Friday and on Monday") is None


def test_relative_times_are_read_in_the_zone_of_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 9:30 UTC it is past midnight of the next day in Auckland, so yesterday is another day there."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        late = datetime(2026, 11, 16, 23, 0, tzinfo=UTC).timestamp()
        found = read_period(SearchRequest("what did we do today?"), late)
    finally:
        os.environ["TZ"] = "UTC"
        time.tzset()

    assert found == Period(*(datetime(2026, 11, day, 10, tzinfo=UTC).timestamp() for day in (16, 17)))


def say(store: SqliteSessionStore, name: str, when: datetime, *texts: str, source: str = "cli") -> None:
    """Store a session of a person's messages, a minute apart."""
    store.create(Session(SessionId(name), source, when.timestamp()))
    store.append(
        SessionId(name),
        [
            NewMessage(Message(Role.USER, text), (when + timedelta(minutes=place)).timestamp(), Origin.PERSON)
            for place, text in enumerate(texts)
        ],
    )


@pytest.fixture(name="store")
def store_of_three_weeks(store: SqliteSessionStore) -> SqliteSessionStore:
    """A store with conversations of three weeks."""
    sessions = store
    now = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    monday = now - timedelta(days=now.weekday() + 7)
    say(sessions, "before", monday - timedelta(days=3), "the budget for the roof")
    say(sessions, "monday", monday, "we planted tomatoes", "and beans")
    say(sessions, "friday", monday + timedelta(days=4), "we painted the fence")
    say(sessions, "hidden", monday + timedelta(days=4), "internal", source="review")
    say(sessions, "long", monday - timedelta(days=20), "the tax return")
    sessions.append(
        SessionId("long"),
        [NewMessage(Message(Role.USER, "more about the tax"), (monday + timedelta(days=2)).timestamp(), Origin.PERSON)],
    )
    return sessions


def test_the_conversations_of_the_time_are_listed_newest_first_and_no_others(store: SqliteSessionStore) -> None:
    """A conversation that went on in that time belongs to it, shown by what was said then."""
    found = find_conversations(store, SearchRequest("what did we do last week?"))

    assert [match.session.id for match in found.matches] == ["friday", "long", "monday"]
    assert [match.message.message.text for match in found.matches][1] == "more about the tax"
    assert not found.found.abstained


def test_the_first_thing_said_is_the_first_message_of_the_earliest_conversation_alone(
    store: SqliteSessionStore,
) -> None:
    """Later conversations are neither listed nor counted as left out."""
    found = find_conversations(store, SearchRequest("what was the first thing I said?"))

    assert [match.message.message.text for match in found.matches] == ["the tax return"]
    assert found.more == 0


def test_what_the_limit_leaves_out_is_counted(store: SqliteSessionStore) -> None:
    """Nothing is hidden silently."""
    found = find_conversations(store, SearchRequest("what did we do last week?", limit=1))

    assert ([match.session.id for match in found.matches], found.more) == (["friday"], 2)


def test_a_time_without_a_query_lists_its_conversations(store: SqliteSessionStore) -> None:
    """The filters alone are a question about a time."""
    newest = store.recent(limit=1)[0]

    found = find_conversations(store, SearchRequest("", after=newest.started - 1))

    assert [match.session.id for match in found.matches] == [newest.id]


def test_words_that_nothing_of_the_time_contains_show_the_conversations_of_that_time(
    store: SqliteSessionStore,
) -> None:
    """The time is not lost with the words."""
    found = find_conversations(store, SearchRequest("what did we do with zebras last week?"))

    assert not found.matches
    assert [session.id for session in found.nearest] == ["friday", "long", "monday"]


def test_an_empty_time_says_which_days_were_meant(store: SqliteSessionStore) -> None:
    """The person sees how the question was read."""
    found = find_conversations(store, SearchRequest("what did we do in 1999?"))

    assert found.reason == "there is no conversation of that time (1999-01-01 to 1999-12-31)"
