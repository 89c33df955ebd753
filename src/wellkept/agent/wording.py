"""The wording of facts: German clauses to sentences, bare corrections to statements, pronouns to names."""

import re
from typing import Final

from wellkept.agent.language import Language
from wellkept.core.date_words import weekday_patterns
from wellkept.core.text import WORD
from wellkept.sessions.search.correction_words import list_languages
from wellkept.sessions.search.corrections import Statement, complete, corrects

_MOST_WORDS: Final = 5
"""A correction with more words is a separate statement."""
_PRONOUN: Final = re.compile(
    r"(?:ich|du|er|sie|es|wir|man)\b|(?:ihr|das|dies)\b(?!(?:\s+[a-zäöüß]+e[rsn]?)*\s+(?-i:[A-ZÄÖÜ]))", re.IGNORECASE
)
"""A pronoun; before a noun "das" is an article: "das Treffen um 9"."""
_PHRASE: Final = re.compile(
    r"(?:(?:der|die|das|ein|eine|mein|meine|unser|unsere|sein|seine|ihr|ihre|kein|keine|alle|dein|deine)\s+)?"
    r"(?:[a-zäöüß]+\s+)*?(?-i:[A-ZÄÖÜ][\w-]*)(?:\s+(?!(?:Am|Im|An|Auf|In|Bei|Zum|Zur)\b)(?-i:[A-ZÄÖÜ][\w-]*))*"
    r"(?:\s+(?:von|des|der|meiner|meines|unseres|unserer)\s+(?:[a-zäöüß]+\s+)?(?-i:[A-ZÄÖÜ][\w-]*))*"
)
"""A German subject: article, adjectives, noun or name, and what belongs to it."""
_FINITE: Final = re.compile(
    r"(?:bin|ist|sind|seid|hat|habe?|haben|war\w*|mag|m[oö]gen|muss|kann|will|soll|darf|wei[sß]+|\w{2,}(?:e|t|st|en|n))$"
)
_SEPARABLE: Final = re.compile(
    r"(auf|an|ab|aus|ein|mit|vor|zu|weg|los|zur[uü]ck|fern|teil|statt|um|her|hin)(?!wort|kunft)([a-zäöüß]{4,})$"
)


def make_main_clause(clause: str) -> str:
    """Return a German clause after "dass" as a sentence: "ich keinen Kaffee trinke" is "ich trinke keinen Kaffee".

    A clause whose parts are not recognised is returned as it is.
    """
    head, comma, tail = clause.partition(",")
    joined = re.split(r"\s+und\s+", head)
    if len(joined) == 2 and _is_verb(joined[0].split()[-1]) and _is_verb(joined[1].split()[-1]):
        second = joined[1].split()
        return f"{_move_verb(joined[0])} und {' '.join([second[-1], *second[:-1]])}{comma}{tail}"
    return f"{_move_verb(head)}{comma}{tail}"


def _is_verb(word: str) -> bool:
    return word[:1].islower() and _FINITE.fullmatch(word) is not None


def _move_verb(clause: str) -> str:
    body, _, verb = clause.strip().rpartition(" ")
    if not body or not _is_verb(verb):
        return clause
    subject = _PRONOUN.match(body) or _PHRASE.match(body)
    if subject is None or subject.end() == 0:
        return clause
    end = _shorten_subject(body, subject.end())
    separable = _SEPARABLE.match(verb)
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
    if whole is not None or is_other or (spoken.code == "zh" and len(value) > 2 * _MOST_WORDS):
        return whole
    places = list(spoken.pattern("determiner").finditer(earlier))
    starts = spoken.pattern("determiner").match(value)
    if starts is not None and spoken.code != "zh" and places:
        return f"{earlier[: places[-1].start()]}{value}"
    whole = complete(earlier, f"{_NO[spoken.code]}{value}")
    if whole != f"{_NO[spoken.code]}{value}":
        return whole
    return f"{earlier[: places[-1].end()]}{value}" if places else None


def strip_correction(text: str) -> str:
    """Return a text without the words that begin a correction: "no," or "actually"."""
    leads = (one.lead.match(text) for one in list_languages())
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
        return None if spoken.code != "zh" else _replace_characters(earlier, said, spoken)
    if spoken.code == "zh":
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
_NO: Final = {"en": "no, ", "de": "nein, ", "es": "no, ", "fr": "non, ", "zh": "不对,"}
_SUBJECT: Final = re.compile(
    r"^(?P<subject>.{2,60}?)\s+(?:is|are|was|will|starts?|begins?|ist|sind|war|beginnt|findet|es|son|era|empieza|est|sont"
    r"|[ée]tait|commence)\b|^(?P<chinese>[^\s,\uff0c]{1,12}?)(?:是|在|定)",
    re.IGNORECASE,
)
_IT: Final = re.compile(
    r"^(?:it|that|this|they|es|das|er|sie|ella|[eé]l|eso|se|il|elle|c['’]|[çc]a|它|那|这)(?:\s+|(?=[\u3400-\u9fff]))",
    re.IGNORECASE,
)


def name_subject(earlier: str, later: str) -> str | None:
    """Return a sentence that contradicts the one before it, with its subject: "it moved to 5" by its name."""
    before = earlier.strip().rstrip("?.!。\uff1f\uff01")
    subject = _SUBJECT.match(before)
    if subject is None or _IT.match(later) is None:
        return None
    if not corrects(Statement(before, 0.0, "here", 1), Statement(later, 1.0, "here", 2)):
        return None
    rest = later.strip().rstrip(".!。\uff01")
    return _IT.sub(f"{subject['subject']} " if subject["subject"] else subject["chinese"], rest, count=1)
