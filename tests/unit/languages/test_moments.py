"""Moments as people write them, in five languages."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.languages.dates import parse_moment

NOW = datetime(2026, 1, 2, 20, tzinfo=UTC).timestamp()
"""A Friday; the third of January, a Saturday, in Shanghai."""


@pytest.mark.usefixtures("in_shanghai")
@pytest.mark.parametrize(
    ("day", "texts"),
    [
        ("2026-01-03", ["today", "heute", "hoy", "aujourd'hui", "今天"]),
        (
            "2026-01-02",
            ["yesterday", "gestern", "ayer", "hier", "昨天", "am Freitag", "el viernes", "vendredi dernier"],
        ),
        (
            "2026-01-01",
            ["vorgestern", "anteayer", "avant-hier", "前天", "this month", "diesen Monat", "今年", "01.01.2026"],
        ),
        ("2025-12-31", ["3 days ago", "vor 3 Tagen", "hace tres días", "il y a trois jours", "三天前", "3天前"]),
        ("2025-12-22", ["last week", "letzte Woche", "la semana pasada", "la semaine dernière", "上周", "上星期"]),
        ("2025-12-01", ["last month", "letzten Monat", "el mes pasado", "le mois dernier", "上个月", "in December"]),
        ("2025-03-01", ["in March", "im März", "en marzo", "en mars", "三月", "3月", "since March", "seit März"]),
        ("2025-04-01", ["until March", "bis März", "hasta marzo", "jusqu'en mars", "到三月"]),
        ("2025-11-09", ["9 November", "9. November", "el 9 de noviembre", "le 9 novembre", "11月9日"]),
        ("2024-05-01", ["1. Mai 2024", "1 de mayo de 2024", "le 1er mai 2024", "2024年5月1日", "1.5.2024"]),
        ("2024-02-29", ["29 February", "Feb 29", "29. Februar", "2月29日"]),
        ("2025-01-01", ["last year", "letztes Jahr", "el año pasado", "l'année dernière", "去年"]),
        (
            "2025-12-27",
            ["the last 7 days", "die letzten 7 Tage", "los últimos siete días", "les 7 derniers jours", "最近7天"],
        ),
    ],
)
def test_a_date_in_any_of_five_languages_is_that_day_here(day, texts):
    """Days begin at the midnight of who writes, also over the turn of a year."""
    wanted = datetime.fromisoformat(f"{day}T00:00+08:00").timestamp()

    assert {text: parse_moment(text, now=NOW) for text in texts} == dict.fromkeys(texts, wanted)


def test_hours_are_counted_back_from_now():
    """What happened this morning can be named."""
    assert [parse_moment(text, now=NOW) for text in ("2 hours ago", "vor 2 Stunden", "2小时前")] == [NOW - 7200.0] * 3


@pytest.mark.parametrize("text", ["", "soon", "bald", "bis bis bis", "31. Februar 2025", "昨", "\0", "1_000", "nan"])
def test_what_is_no_date_is_none(text):
    """Nothing is guessed."""
    assert parse_moment(text, now=NOW) is None


@given(st.text(max_size=40), st.floats(0, 4e9))
def test_no_text_raises(text, now):
    """Whatever a person types is a moment or nothing."""
    assert isinstance(parse_moment(text, now=now), float | None)
