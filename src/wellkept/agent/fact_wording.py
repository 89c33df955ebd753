"""The wording of facts: German clauses to sentences, bare corrections to statements, pronouns to names."""

import re
from functools import cache
from typing import Final

from msgspec import Struct

from wellkept.core.text import WORD
from wellkept.languages.dates import weekday_patterns
from wellkept.languages.language import Language, join_expressions
from wellkept.sessions.search.corrections import Statement, complete, corrects, list_corrections

_MOST_WORDS: Final = 5
"""A correction with more words is a separate statement."""


class _Clause(Struct, frozen=True):
    """How a language whose subordinate clauses end with the verb builds them, as German does."""

    joins: str
    """The word that joins two clauses with one subject."""
    pronoun: re.Pattern[str]
    subject: re.Pattern[str]
    verb: re.Pattern[str]
    separable: re.Pattern[str]
    """A verb with a particle that leaves it in a main clause."""


@cache
def _read_clause(language: Language) -> _Clause:
    table = language.table["clause"]
    pronoun = re.compile(table["pronoun"], re.IGNORECASE)
    return _Clause(table["joins"], pronoun, *(re.compile(table[key]) for key in ("subject", "verb", "separable")))


def make_main_clause(clause: str, language: Language) -> str:
    """Return a German clause after "dass" as a sentence: "ich keinen Kaffee trinke" is "ich trinke keinen Kaffee".

    A clause whose parts are not recognised is returned as it is.
    """
    rules = _read_clause(language)
    head, comma, tail = clause.partition(",")
    joined = re.split(rf"\s+{rules.joins}\s+", head)
    if len(joined) == 2 and _is_verb(joined[0].split()[-1], rules) and _is_verb(joined[1].split()[-1], rules):
        second = joined[1].split()
        return f"{_move_verb(joined[0], rules)} {rules.joins} {' '.join([second[-1], *second[:-1]])}{comma}{tail}"
    return f"{_move_verb(head, rules)}{comma}{tail}"


def _is_verb(word: str, rules: _Clause) -> bool:
    return word[:1].islower() and rules.verb.fullmatch(word) is not None


def _move_verb(clause: str, rules: _Clause) -> str:
    body, _, verb = clause.strip().rpartition(" ")
    if not body or not _is_verb(verb, rules):
        return clause
    subject = rules.pronoun.match(body) or rules.subject.match(body)
    if subject is None or subject.end() == 0:
        return clause
    end = _shorten_subject(body, subject.end())
    separable = rules.separable.match(verb)
    finite, particle = (separable[2], f" {separable[1]}") if separable else (verb, "")
    return " ".join(f"{body[:end]} {finite} {body[end:].strip()}{particle}".split())


def _shorten_subject(body: str, end: int) -> int:
    """Return where the subject ends: "mein Hund Bello heißt" names the dog, so the last name is not part of it."""
    if end < len(body) or " " not in body:
        return end
    return body.rstrip().rfind(" ")


def correct_value(earlier: str, later: str, spoken: Language) -> str | None:
    """Return the earlier statement with the later value: "I drive a Volvo", "no, a Saab"; None if it has none."""
    earlier, later = earlier.strip().rstrip(_ENDS), later.strip().rstrip(_ENDS)
    value = spoken.pattern("copula").sub("", later).strip()
    number = spoken.pattern("number")
    if number.fullmatch(value):
        return _replace_number(earlier, value, number)
    whole = replace_repeated(earlier, later, spoken)
    # "it lies there" after a statement without that verb tells of something else
    is_other = spoken.pattern("pronoun").match(value) or not value or len(WORD.findall(value)) > _MOST_WORDS
    if whole is not None or is_other or (not spoken.is_spaced and len(value) > 2 * _MOST_WORDS):
        return whole
    places = list(spoken.pattern("determiner").finditer(earlier))
    starts = spoken.pattern("determiner").match(value)
    if starts is not None and spoken.is_spaced and places:
        return f"{earlier[: places[-1].start()]}{value}"
    no = str(spoken.table.get("sentences", {}).get("no", ""))
    whole = complete(earlier, f"{no}{value}")
    if whole != f"{no}{value}":
        return whole
    return f"{earlier[: places[-1].end()]}{value}" if places else None


def strip_correction(text: str) -> str:
    """Return a text without the words that begin a correction: "no," or "actually"."""
    leads = (one.lead.match(text) for one in list_corrections())
    return text[max((lead.end() for lead in leads if lead is not None), default=0) :].strip() or text


def _replace_number(earlier: str, value: str, number: re.Pattern[str]) -> str | None:
    """Return the statement with another number: of several, the last one that is written like it."""
    # "B17" is a name; its digits are no number
    found = [each for each in number.finditer(earlier) if not re.search(r"[A-Za-z]$", earlier[: each.start()])]
    alike = [each for each in found if re.sub(r"\d", "0", each[0]) == re.sub(r"\d", "0", value)]
    if not found:
        return None
    place = (alike or found)[-1]
    return f"{earlier[: place.start()]}{value}{earlier[place.end() :]}"


def replace_repeated(earlier: str, later: str, spoken: Language) -> str | None:
    """Return the earlier statement with the later end: both say the same verb or preposition before it.

    After "the spare key is with Ann", "it is with Bob" and "with Bob" tell where the key is; None for any other text.
    """
    earlier, later = earlier.strip().rstrip(_ENDS), later.strip().rstrip(_ENDS)
    said = spoken.pattern("pronoun").sub("", later, count=1)
    if len(WORD.findall(said)) > _MOST_REPEATED or spoken.pattern("determiner").match(f"{said} "):
        return None if spoken.is_spaced else _replace_characters(earlier, said, spoken)
    if not spoken.is_spaced:
        return _replace_characters(earlier, said, spoken)
    value = spoken.pattern("copula").sub("", later)
    day = _replace_weekday(earlier, value, spoken) or _replace_around_number(earlier, value)
    first = WORD.match(said)
    if day is not None or first is None or first.end() == len(said):
        return day
    places = [
        found.start() for found in re.finditer(rf"(?<![\w-]){re.escape(first[0])}(?![\w-])", earlier, re.IGNORECASE)
    ]
    # a verb that its subject leads is the first one; of prepositions the last one leads the value
    place = (places[0] if said != later else places[-1]) if places else 0
    return f"{earlier[:place]}{said}" if place else None


def _replace_characters(earlier: str, said: str, spoken: Language) -> str | None:
    """Do the same where words are not separated: two characters are a verb, or one that leads a value."""
    place = earlier.rfind(said[:2]) if len(said) > 2 else -1
    if place < 1 and len(said) > 1 and spoken.pattern("determiner").match(said):
        place = earlier.rfind(said[0])
    return f"{earlier[:place]}{said}" if place > 0 else None


def _replace_around_number(earlier: str, value: str) -> str | None:
    """Return the statement with another number where it has the same words around one: "at 7 pm", "at 8 pm"."""
    pieces = re.split(r"\d+(?:[.,:]\d+)*", value)
    if len(pieces) == 1 or not WORD.search("".join(pieces)):
        return None
    span = re.search(r"(?<!\w)" + r"\d+(?:[.,:]\d+)*".join(map(re.escape, pieces)) + r"(?!\w)", earlier, re.IGNORECASE)
    return None if span is None else f"{earlier[: span.start()]}{value}{earlier[span.end() :]}"


def _replace_weekday(earlier: str, value: str, spoken: Language) -> str | None:
    """Return the statement with another day of the week, if the value is one and the statement names one."""
    days = [
        [found for names in weekday_patterns() for found in names.finditer(text.lower())] for text in (earlier, value)
    ]
    if len(days[0]) != 1 or len(days[1]) != 1:
        return None
    old, new = days[0][0], days[1][0]
    around = spoken.read(f"{value[: new.start()]} {value[new.end() :]}")
    if any("function" not in token.classes for token in around):
        return None
    return f"{earlier[: old.start()]}{value[new.start() : new.end()]}{earlier[old.end() :]}"


_ENDS: Final = ".!?。\uff01\uff1f"
_MOST_REPEATED: Final = 12
"""A longer text tells more than another value."""


@cache
def _compile_subject() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what finds the subject of a sentence, and the pronoun that another begins with."""
    spaced, unspaced = (
        join_expressions("sentences", "links", file="assistant", is_spaced=is_spaced) for is_spaced in (True, False)
    )
    subject = rf"^(?P<subject>.{{2,60}}?)\s+(?:{spaced})\b|^(?P<unspaced>[^\s,\uff0c]{{1,12}}?)(?:{unspaced})"
    pronouns = join_expressions("sentences", "refers", file="assistant")
    return (
        re.compile(subject, re.IGNORECASE),
        re.compile(rf"^(?:{pronouns})(?:\s+|(?=[\u3400-\u9fff]))", re.IGNORECASE),
    )


def name_subject(earlier: str, later: str) -> str | None:
    """Return a sentence that contradicts the one before it, with its subject: "it moved to 5" by its name."""
    before = earlier.strip().rstrip("?.!。\uff1f\uff01")
    subjects, pronouns = _compile_subject()
    subject = subjects.match(before)
    if subject is None or pronouns.match(later) is None:
        return None
    if not corrects(Statement(before, 0.0, "here", 1), Statement(later, 1.0, "here", 2)):
        return None
    rest = later.strip().rstrip(".!。\uff01")
    return pronouns.sub(f"{subject['subject']} " if subject["subject"] else subject["unspaced"], rest, count=1)
