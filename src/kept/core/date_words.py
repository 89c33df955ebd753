"""Words for dates in German, Spanish, French and Chinese, with the English phrases that they stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Language:
    """The date words of one language; each field lists regular expressions in the order of what they number.

    In `rules`, N stands for a count, U for a unit, M for a month, W for a weekday, D for a day and Y for a year.
    """

    counts: str
    units: str
    months: str
    weekdays: str
    rules: Sequence[tuple[str, str]]
    """Pairs of a phrase in this language and the same phrase in English."""


GERMAN: Final = Language(
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
SPANISH: Final = Language(
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
FRENCH: Final = Language(
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
CHINESE: Final = Language(
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
LANGUAGES: Final = (GERMAN, SPANISH, FRENCH, CHINESE)
