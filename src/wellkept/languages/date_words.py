"""Dates in languages other than English: the English phrases that they stand for, by the rules of `dates.txt`.

`counts`, `units`, `months` and `weekdays` list expressions in the order of what they number, `days` the words for
days that are named by their distance, such as today. `inside` and `alone` are rules, `phrase = English phrase`: the
first are found inside a sentence, too, the second mean a date only where they are the whole text ("Mai", "bis
gestern"). In rules, N stands for a count, U for a unit, M for a month, W for a weekday, D for a day and Y for a year.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from msgspec import Struct

from wellkept.languages.language import Language, list_languages

_MONTH_NAMES: Final = "january february march april may june july august september october november december"
MONTHS: Final = _MONTH_NAMES.split()
WEEKDAYS: Final = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_UNITS: Final = ("minute", "hour", "day", "week", "month", "year")


_DEPTH: Final = 2
_SLOT: Final = "[NUMWDY]"


@cache
def list_dated_languages() -> tuple[Language, ...]:
    """Return the languages that have dates of their own, which is all but English."""
    return tuple(language for language in list_languages() if language.dates)


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
