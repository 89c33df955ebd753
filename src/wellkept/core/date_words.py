"""Dates in German, Spanish, French and Chinese: their words, and the English phrases that they stand for."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from msgspec import Struct

_MONTH_NAMES: Final = "january february march april may june july august september october november december"
MONTHS: Final = _MONTH_NAMES.split()
WEEKDAYS: Final = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_UNITS: Final = ("minute", "hour", "day", "week", "month", "year")


class Language(Struct, frozen=True):
    """The date words of one language; each field lists regular expressions in the order of what they number.

    In rules, N stands for a count, U for a unit, M for a month, W for a weekday, D for a day and Y for a year.
    """

    code: str
    counts: str
    units: str
    months: str
    weekdays: str
    days: str
    """Words for days that are named by their distance, such as today."""
    rules: Sequence[tuple[str, str]]
    """Pairs of a phrase in this language and the same phrase in English; found inside a sentence, too."""
    alone: Sequence[tuple[str, str]] = ()
    """The same for phrases that mean a date only where they are the whole text: "Mai", "bis gestern"."""


GERMAN: Final = Language(
    code="de",
    counts="eine?[mnrs]? zwei drei vier fünf sechs sieben acht neun zehn",
    units="minuten? stunden? tage?n? wochen? monate?n? jahre?n?",
    months="januar|jänner februar märz|maerz april mai juni juli august september oktober november dezember",
    weekdays="montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag",
    days="heute? (?:vor){0,2}gestern wochenende",
    rules=(
        ("heute?(?: (?:morgen|früh|vormittag|mittag|nachmittag|abend|nacht))?", "today"),
        ("gestern(?: (?:morgen|früh|vormittag|mittag|nachmittag|abend|nacht))?", "yesterday"),
        ("vorgestern", "2 days ago"),
        ("vorvorgestern", "3 days ago"),
        ("vor N U", "N U ago"),
        ("(?:in den |die |der )?letzten N U", "last N U"),
        ("(?:in der |im |der |die |das )?(?:letzte|vorige|vergangene)[mnrs]? U", "last U"),
        ("(?:in der |im |der |die |das )?vorletzte[mnrs]? U", "U before last"),
        ("(?:in )?diese[mnrs]? U", "this U"),
        ("(?:am )?(?:letzte[nrs]? |vorigen |vergangenen )W", "last W"),
        (
            "(?:am )?W (?:in |von )?(?:der )?(?:letzten|letzter|voriger|vorigen|vergangener|vergangenen) woche",
            "W of last week",
        ),
        ("(?:am )?(?:letzte[ns]? |vorigen |vergangenen )wochenende", "last weekend"),
        ("(?:am|dieses) wochenende", "this weekend"),
        ("am W", "on W"),
        ("(?:am )?D\\. ?M(?: Y)?", "M D Y"),
        ("im M(?: Y)?|M Y", "in M Y"),
    ),
    alone=(
        ("W", "on W"),
        ("M", "in M"),
        ("bis (?:zum |ende )?(?P<rest>.+)", "until"),
        ("(?:seit|ab|vor|nach|von)(?: dem)? (?P<rest>.+)", ""),
    ),
)
SPANISH: Final = Language(
    code="es",
    counts="una? dos tres cuatro cinco seis siete ocho nueve diez",
    units="minutos? horas? d[ií]as? semanas? mes(?:es)? años?",
    months="enero febrero marzo abril mayo junio julio agosto sep?tiembre octubre noviembre diciembre",
    weekdays="lunes martes mi[eé]rcoles jueves viernes s[aá]bado domingo",
    days="hoy (?:(?:tras)?ante)?ayer (?:ante)?anoche mañana tarde noche fin",
    rules=(
        ("hoy(?: por la (?:mañana|tarde|noche))?|esta (?:mañana|tarde|noche)", "today"),
        ("ayer(?: por la (?:mañana|tarde|noche))?|anoche", "yesterday"),
        ("anteayer|antes de ayer|anteanoche", "2 days ago"),
        ("trasanteayer", "3 days ago"),
        ("hace N U", "N U ago"),
        ("(?:en )?(?:los |las )?[uú]ltim[oa]s N U", "last N U"),
        ("(?:la |el )?U pasad[oa]|(?:la |el )?[uú]ltim[oa] U", "last U"),
        ("(?:la |el )?(?:U antepasad[oa]|pen[uú]ltim[oa] U)", "U before last"),
        ("est[ea] U", "this U"),
        ("(?:el )?(?:[uú]ltimo )?fin de semana(?: pasado)?", "last weekend"),
        ("(?:el )?W de la semana pasada", "W of last week"),
        ("el W(?: pasado)?|el pasado W|W pasado", "on W"),
        ("(?:el )?D de M(?: (?:de |del )?Y)?", "M D Y"),
        ("en M(?: (?:de |del )?Y)?|M (?:de |del )?Y", "in M Y"),
    ),
    alone=(
        ("W", "on W"),
        ("M", "in M"),
        ("hasta (?P<rest>.+)", "until"),
        ("(?:desde|antes de|despu[eé]s de) (?P<rest>.+)", ""),
    ),
)
FRENCH: Final = Language(
    code="fr",
    counts="une? deux trois quatre cinq six sept huit neuf dix",
    units="minutes? heures? jours? semaines? mois ans?|années?",
    months="janvier f[eé]vrier mars avril mai juin juillet ao[uû]t septembre octobre novembre d[eé]cembre",
    weekdays="lundi mardi mercredi jeudi vendredi samedi dimanche",
    days="aujourd['’]hui (?:avant-)?hier matin soir après-midi nuit week-?end",
    rules=(
        ("aujourd['’]hui|ce (?:matin|soir)|cet après-midi|cette nuit", "today"),
        ("hier(?: (?:matin|soir|après-midi))?", "yesterday"),
        ("avant-hier", "2 days ago"),
        ("il y a N U", "N U ago"),
        ("(?:les |ces )?N derni[eè]re?s U", "last N U"),
        ("(?:la |le |l['’])?U (?:derni[eè]re?|pass[eé]e?)", "last U"),
        ("(?:la |le |l['’])?(?:U avant-derni[eè]re?|avant-derni[eè]re? U)", "U before last"),
        ("(?:cet(?:te)?|ce) U(?:-ci)?", "this U"),
        ("(?:le )?week-?end (?:dernier|passé)", "last weekend"),
        ("(?:ce|le) week-?end", "this weekend"),
        ("(?:le )?W de la semaine (?:derni[eè]re|passée)", "W of last week"),
        ("le W(?: dernier)?|W dernier", "on W"),
        ("(?:le )?D(?:er)? M(?: Y)?", "M D Y"),
        ("en M(?: Y)?|M Y", "in M Y"),
    ),
    alone=(
        ("W", "on W"),
        ("M", "in M"),
        ("jusqu['’](?:[àa] |au |en )?(?P<rest>.+)", "until"),
        ("(?:depuis|avant|apr[eè]s)(?: le)? (?P<rest>.+)", ""),
    ),
)
CHINESE: Final = Language(
    code="zh",
    counts="一 [二两兩] 三 四 五 六 七 八 九 十",
    units="分[钟鐘] [个個]?小[时時] [天日] (?:[个個]?(?:星期|[礼禮]拜)|[周週]) [个個]?月 年",
    months=" ".join(
        f"(?:{number}|{each})月"
        for number, each in enumerate(["一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二"], 1)
    ),
    weekdays=" ".join(f"(?:[周週]|星期|[礼禮]拜){each}" for each in ("一", "二", "三", "四", "五", "六", "[日天]")),
    days="[今昨前]天 今[早晚] 昨[晚夜] [今去前]年 [周週]末",
    rules=(
        ("今天(?:早上|上午|中午|下午|晚上)?|今[早晚]", "today"),
        ("昨天(?:早上|上午|中午|下午|晚上)?|昨[晚夜]", "yesterday"),
        ("前天", "2 days ago"),
        ("大前天", "3 days ago"),
        ("去年", "last year"),
        ("前年", "year before last"),
        ("今年", "this year"),
        ("N ?U(?:之|以)?前", "N U ago"),
        ("(?:最近|[过過]去)N ?U", "last N U"),
        ("上(?:[个個]|一)?[周週]末", "last weekend"),
        ("(?:[这這本](?:[个個])?)?[周週]末", "this weekend"),
        ("上[个個]?W", "W of last week"),
        ("上上[个個]?W", "W of week before last"),
        ("[这這本][个個]?W", "W of this week"),
        ("上上一?U", "U before last"),
        ("上一?U", "last U"),
        ("(?:[这這]|本)U", "this U"),
        ("W", "on W"),
        ("(?:Y年)?M(?:D[日号號])", "M D Y"),
        ("(?:Y年)?M(?:份)?", "in M Y"),
        ("Y年", "in Y"),
    ),
    alone=(
        ("(?:直?到)(?P<rest>.+)|(?P<before>.+)[为為]止", "until"),
        ("(?:[从從]|自)(?P<rest>.+?)(?:起|以[来來])?", ""),
    ),
)
LANGUAGES: Final = (GERMAN, SPANISH, FRENCH, CHINESE)
_DEPTH: Final = 2
_SLOT: Final = "[NUMWDY]"


@cache
def weekday_patterns() -> tuple[re.Pattern[str], ...]:
    """Return an expression for each day of the week in five languages, plurals ("mittwochs") included."""
    names = zip(WEEKDAYS, *(language.weekdays.split() for language in LANGUAGES), strict=True)
    return tuple(
        re.compile(rf"\b(?:{'|'.join((english, *spaced))})s?\b|{chinese}") for english, *spaced, chinese in names
    )


def translate_date(text: str) -> str:
    """Translate a date to English; return `text` unchanged if it is in none of the known languages."""
    folded = " ".join(text.lower().split())
    return _translate(folded, _DEPTH) or text


def find_phrases(folded: str, codes: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and English translation of every date phrase of these languages in a lower-case text."""
    for code in codes:
        for rule in _rules(code, is_inside=True):
            yield from ((*match.span(), rule.english(_groups(match))) for match in rule.pattern.finditer(folded))


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in match.groupdict().items() if value is not None}


def _translate(text: str, depth: int) -> str | None:
    for rule in (rule for language in LANGUAGES for rule in _rules(language.code, is_inside=False)):
        match = rule.pattern.fullmatch(text)
        if match is None:
            continue
        groups = _groups(match)
        rest = groups.get("rest") or groups.get("before")
        if rest is None:
            return rule.english(groups)
        said = _translate(rest, depth - 1) if depth else None
        if said is not None:
            return f"{rule.said} {said}".strip()
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


def _language(code: str) -> Language:
    return next(language for language in LANGUAGES if language.code == code)


@cache
def _rules(code: str, *, is_inside: bool) -> tuple[_Rule, ...]:
    """Return the rules that find a date inside a sentence, or those for a text that is only a date.

    Compiling one language takes some milliseconds, so a language is compiled only for a text that may need it.
    """
    language = _language(code)
    tables = {
        "N": _table(language.counts, [str(number) for number in range(1, 11)]),
        "U": _table(language.units, _UNITS),
        "M": _table(language.months, MONTHS),
        "W": _table(language.weekdays, WEEKDAYS),
    }
    slots = {slot: "|".join(pattern for pattern, _ in table) for slot, table in tables.items()}
    slots["N"] += r"|\d{1,4}"
    slots |= {"D": r"[0-3]?\d", "Y": r"(?:19|20)\d\d"}
    chosen = language.rules if is_inside else (*language.rules, *language.alone)
    around = r"(?<!\w)(?:{})(?!\w)" if is_inside and language is not CHINESE else "{}"
    return tuple(
        _Rule(re.compile(around.replace("{}", _expression(rule, slots))), said, tables) for rule, said in chosen
    )


def _table(expressions: str, words: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(expressions.split(), words, strict=True))


def _expression(rule: str, slots: Mapping[str, str]) -> str:
    """Return the expression of a rule; a slot that occurs again has a name of its own, "M2"."""
    seen: dict[str, int] = {}

    def group(match: re.Match[str]) -> str:
        slot = match[0]
        seen[slot] = seen.get(slot, 0) + 1
        name = slot if seen[slot] == 1 else f"{slot}{seen[slot]}"
        return f"(?P<{name}>{slots[slot]})"

    return re.sub(_SLOT, group, rule)
