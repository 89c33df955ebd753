"""Dates in German, Spanish, French and Chinese, put into the English words that `dates` reads."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from kept.core.dates import MONTHS, WEEKDAYS

_UNITS: Final = ("minute", "hour", "day", "week", "month", "year")


@dataclass(frozen=True, slots=True)
class _Language:
    """Each word as an expression, in the order of its number; the rules name them N, U, M and W."""

    counts: str
    units: str
    months: str
    weekdays: str
    rules: Sequence[tuple[str, str]]
    """What is said, and how it is said in English."""


_GERMAN: Final = _Language(
    counts="eine?[mnrs]? zwei drei vier fünf sechs sieben acht neun zehn",
    units="minuten? stunden? tage?n? wochen? monate?n? jahre?n?",
    months="januar|jänner februar märz|maerz april mai juni juli august september oktober november dezember",
    weekdays="montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag",
    rules=(
        ("heute", "today"),
        ("gestern", "yesterday"),
        ("vorgestern", "2 days ago"),
        ("vor N U", "N U ago"),
        ("(?:in den |die |der )?letzten N U", "last N U"),
        ("(?:letzte|vorige|vergangene)[mnrs]? U", "last U"),
        ("diese[mnrs]? U", "this U"),
        ("letzte[nr]? W", "last W"),
        ("(?:am )?W", "on W"),
        ("D\\. ?M(?: Y)?", "M D Y"),
        ("(?:im )?M(?: Y)?", "in M Y"),
        ("bis (?:zum |ende )?(?P<rest>.+)", "until"),
        ("(?:seit|ab|vor|nach|von)(?: dem)? (?P<rest>.+)", ""),
    ),
)
_SPANISH: Final = _Language(
    counts="una? dos tres cuatro cinco seis siete ocho nueve diez",
    units="minutos? horas? d[ií]as? semanas? mes(?:es)? años?",
    months="enero febrero marzo abril mayo junio julio agosto sep?tiembre octubre noviembre diciembre",
    weekdays="lunes martes mi[eé]rcoles jueves viernes s[aá]bado domingo",
    rules=(
        ("hoy", "today"),
        ("ayer", "yesterday"),
        ("anteayer|antes de ayer", "2 days ago"),
        ("hace N U", "N U ago"),
        ("(?:en )?(?:los |las )?[uú]ltim[oa]s N U", "last N U"),
        ("(?:la |el )?U pasad[oa]|(?:la |el )?[uú]ltim[oa] U", "last U"),
        ("est[ea] U", "this U"),
        ("(?:el )?W(?: pasado)?|el pasado W", "on W"),
        ("(?:el )?D de M(?: (?:de |del )?Y)?", "M D Y"),
        ("(?:en )?M(?: (?:de |del )?Y)?", "in M Y"),
        ("hasta (?P<rest>.+)", "until"),
        ("(?:desde|antes de|despu[eé]s de) (?P<rest>.+)", ""),
    ),
)
_FRENCH: Final = _Language(
    counts="une? deux trois quatre cinq six sept huit neuf dix",
    units="minutes? heures? jours? semaines? mois ans?|années?",
    months="janvier f[eé]vrier mars avril mai juin juillet ao[uû]t septembre octobre novembre d[eé]cembre",
    weekdays="lundi mardi mercredi jeudi vendredi samedi dimanche",
    rules=(
        ("aujourd['’]hui", "today"),
        ("hier", "yesterday"),
        ("avant-hier", "2 days ago"),
        ("il y a N U", "N U ago"),
        ("(?:les |ces )?N derni[eè]re?s U", "last N U"),
        ("(?:la |le |l['’])?U derni[eè]re?", "last U"),
        ("cet(?:te)? U|ce U", "this U"),
        ("(?:le )?W(?: dernier)?", "on W"),
        ("(?:le )?D(?:er)? M(?: Y)?", "M D Y"),
        ("(?:en )?M(?: Y)?", "in M Y"),
        ("jusqu['’](?:[àa] |au |en )?(?P<rest>.+)", "until"),
        ("(?:depuis|avant|apr[eè]s)(?: le)? (?P<rest>.+)", ""),
    ),
)
_CHINESE: Final = _Language(
    counts="一 [二两兩] 三 四 五 六 七 八 九 十",
    units="分[钟鐘] [个個]?小[时時] [天日] (?:[个個]?(?:星期|[礼禮]拜)|[周週]) [个個]?月 年",
    months=" ".join(
        f"(?:{number}|{each})月"
        for number, each in enumerate(["一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二"], 1)
    ),
    weekdays=" ".join(f"(?:[周週]|星期|[礼禮]拜){each}" for each in ("一", "二", "三", "四", "五", "六", "[日天]")),
    rules=(
        ("今天", "today"),
        ("昨天", "yesterday"),
        ("前天", "2 days ago"),
        ("去年", "last year"),
        ("今年", "this year"),
        ("N ?U(?:之|以)?前", "N U ago"),
        ("(?:最近|[过過]去)N ?U", "last N U"),
        ("上U", "last U"),
        ("(?:[这這]|本)U", "this U"),
        ("W", "on W"),
        ("(?:Y年)?M(?:D[日号號])", "M D Y"),
        ("(?:Y年)?M(?:份)?", "in M Y"),
        ("Y年", "in Y"),
        ("(?:直?到)(?P<rest>.+)|(?P<before>.+)[为為]止", "until"),
        ("(?:[从從]|自)(?P<rest>.+?)(?:起|以[来來])?", ""),
    ),
)
_DEPTH: Final = 2
_SLOT: Final = re.compile("[NUMWDY]")


def in_english(text: str) -> str:
    """Return a date in English words, or `text` as it is when it is in none of these languages."""
    folded = " ".join(text.lower().split())
    return _translated(folded, _DEPTH) or text


def _translated(text: str, depth: int) -> str | None:
    for rule in _rules():
        match = rule.pattern.fullmatch(text)
        if match is None:
            continue
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        rest = groups.get("rest") or groups.get("before")
        if rest is None:
            return rule.english(groups)
        said = _translated(rest, depth - 1) if depth else None
        if said is not None:
            return f"{rule.said} {said}".strip()
    return None


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    said: str
    words: Mapping[str, Sequence[tuple[re.Pattern[str], str]]]

    def english(self, groups: Mapping[str, str]) -> str:
        """Return what a match says; what was left out is left out."""
        slots = {slot: self._word(slot, value) for slot, value in groups.items()}
        return " ".join(
            " ".join(slots.get(word, "" if word in "NUMWDY" else word) for word in self.said.split()).split()
        )

    def _word(self, slot: str, value: str) -> str:
        for pattern, word in self.words.get(slot, ()):
            if pattern.fullmatch(value):
                return word
        return value


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(rule for language in (_GERMAN, _SPANISH, _FRENCH, _CHINESE) for rule in _rules_of(language))


def _rules_of(language: _Language) -> list[_Rule]:
    tables = {
        "N": _table(language.counts, [str(number) for number in range(1, 11)]),
        "U": _table(language.units, _UNITS),
        "M": _table(language.months, MONTHS),
        "W": _table(language.weekdays, WEEKDAYS),
    }
    slots = {slot: "|".join(pattern.pattern for pattern, _ in table) for slot, table in tables.items()}
    slots["N"] += r"|\d{1,4}"
    slots |= {"D": r"[0-3]?\d", "Y": r"(?:19|20)\d\d"}
    return [_Rule(_expression(rule, slots), said, tables) for rule, said in language.rules]


def _table(expressions: str, words: Sequence[str]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(each), word) for each, word in zip(expressions.split(), words, strict=True)]


def _expression(rule: str, slots: Mapping[str, str]) -> re.Pattern[str]:
    seen: set[str] = set()

    def group(match: re.Match[str]) -> str:
        slot = match[0]
        named = f"?P<{slot}>" if slot not in seen else "?:"
        seen.add(slot)
        return f"({named}{slots[slot]})"

    return re.compile(_SLOT.sub(group, rule))
