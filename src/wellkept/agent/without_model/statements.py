"""Statements in a message: requests to remember ("orders"), facts in plain sentences, and the wording to save.

The patterns of each language are in its `assistant.toml`; the saved words are the user's own, without the request.
"""

import re
from enum import StrEnum
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.text import WORD
from wellkept.facts.chronology import Statement as Said
from wellkept.facts.chronology import replaces
from wellkept.facts.replies import complete, find_lead
from wellkept.languages.dates import weekday_patterns
from wellkept.languages.language import (
    READ_CHARS,
    Language,
    detect,
    find_language,
    join_expressions,
    list_codes,
    list_languages,
    split,
)
from wellkept.memory.page import Target

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
    return text[find_lead(text) :].strip() or text


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
    if not replaces(Said(before, 0.0, "here", 1), Said(later, 1.0, "here", 2)):
        return None
    rest = later.strip().rstrip(".!。\uff01")
    return pronouns.sub(f"{subject['subject']} " if subject["subject"] else subject["unspaced"], rest, count=1)


_FLAGS = re.IGNORECASE | re.DOTALL
MOST_CHARACTERS: Final = 2_000
"""A longer text is a paste, not a plain fact; only an explicit order saves it."""


_LEAST_WORDS: Final = 3
"""A sentence with fewer words cannot be understood later."""


class Kind(StrEnum):
    """How certain it is that the user wants this saved."""

    ORDER = "order"
    """ "Remember that …": saved at once."""
    INFERRED = "inferred"
    """A preference, a name, a correction: staged until confirmed."""


class Statement(Struct, frozen=True):
    """A text to save, and its page."""

    kind: Kind
    text: str
    target: Target
    is_open: bool = False
    """Whether more of the message belongs to the order: it ended with a colon."""
    instead: str = ""
    """What the person just took back: the statement that this one takes the place of."""


_QUESTION: Final = re.compile(r"[?\uff1f¿]\s*$|^\s*[¿]")
_CODE: Final = re.compile(
    r"```|^\s*(?:def|class|import|from|function|const|let|var|SELECT|#include|public|package)\b.*[\w)\]};:]|[{};]\s*$|=>|</\w+>|^\s*[$>]\s",
    re.MULTILINE,
)

_ORDINAL: Final = re.compile(r"\b\d{1,2}\.$")
_SENTENCES: Final = {
    # words before an order
    "polite": r"(?:(?:{})[\s,:]+)*",
    # an order that refers to the previous sentence
    "backward": r"^\s*(?:{})[.!。\uff01]*$",
    # a question whether something is remembered; not an order to remember it
    "memory_question": "{}",
    # a sentence about what the sentence before it named
    "continues": "{}",
    # an abbreviation; its full stop does not end the sentence
    "abbreviation": r"\b(?:{})\.$",
    # what follows an ordinal such as "3." within a sentence: a month, or a lower-case word
    "month": r"(?:{})\w*\b|(?-i:[a-zà-ÿ])",
    # approval of something just shown, which means nothing later
    "momentary": "{}",
    "question_ending": r"(?:{})?\s*[?\uff1f]*\s*$",
}
"""Expressions in which the words of all languages stand for {}."""


@cache
def _compile_sentence(name: str) -> re.Pattern[str]:
    words = join_expressions("sentences", name, file="assistant")
    return re.compile(_SENTENCES[name].replace("{}", words), _FLAGS)


def continues(sentence: str) -> bool:
    """Whether a sentence begins with a pronoun for what the sentence before it named."""
    return _compile_sentence("continues").match(sentence) is not None


def is_momentary(sentence: str) -> bool:
    """Whether a sentence approves of something just shown, which means nothing later."""
    return _compile_sentence("momentary").search(sentence) is not None


class _Order(Struct, frozen=True):
    language: Language
    pattern: re.Pattern[str]
    asks: bool
    """Whether the order may be phrased as a question."""


class _Table(Struct, frozen=True):
    """The patterns of one language; compiled only when the language is used, because that is slow."""

    orders: tuple[_Order, ...]
    inferred: tuple[re.Pattern[str], ...]
    corrections: tuple[re.Pattern[str], ...]
    forgets: tuple[re.Pattern[str], ...]


def _compile(pattern: str) -> re.Pattern[str]:
    """Return the expression of an order; by default the text follows the order."""
    text = "" if "(?P<text>" in pattern else r"\s*(?P<text>\S.*)$"
    polite = _compile_sentence("polite").pattern
    return re.compile(rf"^\s*{polite}(?:{pattern}){text}", _FLAGS)


@cache
def _table(code: str) -> _Table:
    language = find_language(code)
    rows = language.table
    inferred = [(re.compile(row["pattern"], _FLAGS), row.get("corrects")) for row in rows.get("inferred", ())]
    return _Table(
        tuple(_Order(language, _compile(row["pattern"]), asks=bool(row.get("asks"))) for row in rows.get("order", ())),
        tuple(pattern for pattern, corrects in inferred if not corrects),
        tuple(pattern for pattern, corrects in inferred if corrects),
        tuple(_compile(row["pattern"]) for row in rows.get("forget", ())),
    )


@cache
def _lead() -> re.Pattern[str]:
    leads = "|".join(row["pattern"] for language in list_languages() for row in language.table.get("lead", ()))
    return re.compile(rf"^\s*(?:¡?(?:{leads})(?:[\s,.:;!…\uff0c。\uff01\uff1a、]|[–-]\s)*)+", _FLAGS)


@cache
def _persons() -> tuple[tuple[str | None, re.Pattern[str]], ...]:
    """Return the expressions of facts about the speaker, each with the only language it applies to, or None for all."""
    rows = [(language.code, row) for language in list_languages() for row in language.table.get("person", ())]
    return tuple((code if row.get("only_own") else None, re.compile(row["pattern"], _FLAGS)) for code, row in rows)


def _list_tables(text: str, *classes: str) -> list[_Table]:
    """Return the tables of the languages in which a text begins or ends with an order of these classes."""
    return [_table(code) for code in _find_orders(f"{text[:_ORDER_CHARS]} {text[-_ORDER_CHARS:]}", classes)]


@lru_cache(maxsize=256)
def _find_orders(text: str, classes: tuple[str, ...]) -> tuple[str, ...]:
    words, spoken = frozenset(split(text)), detect(text)
    return tuple(
        language.code
        for language in list_languages()
        if language.code == spoken or any(words & language.list_class(name) for name in classes)
    )


_ORDER_CHARS: Final = 80
"""An order begins or ends a message within this many characters."""


def statements(text: str, code: str | None = None) -> list[Statement]:
    """Return what a message orders to remember and the facts that it states, one statement for each.

    If two parts contradict each other, the later one counts.
    """
    if len(text) > MOST_CHARACTERS or _CODE.search(text):
        order = parse_order(text)
        return [order] if order is not None else []
    known = code or detect(text)
    # the language of a short sentence may be undecidable; then the first one that matches counts
    return next(filter(None, (_find_statements(text, one) for one in ((known,) if known else list_codes()))), [])


def _find_statements(text: str, code: str) -> list[Statement]:
    found: list[Statement] = []
    before = ""
    for said in _split_facts(text, code):
        sentence = strip_greeting(said)
        statement = _read_sentence(sentence, before, code)
        if before and (whole := name_subject(before, sentence)) is not None:
            statement = _take_back(found, before, whole)
        elif statement is None and found and continues(sentence) and not _QUESTION.search(sentence):
            found[-1] = replace(found[-1], text=f"{found[-1].text}. {tidy(sentence)}")
        elif statement is None and found and found[-1].is_open and not _QUESTION.search(sentence):
            statement = replace(found[-1], text=tidy(sentence))
        if statement is not None and found and found[-1].text == statement.text:
            found.pop()  # "We ship on Mondays. Remember that." is one order
        before = sentence
        if statement is not None:
            found.append(statement)
    return found


def _take_back(found: list[Statement], before: str, whole: str) -> Statement:
    """Remove the statement that `whole` contradicts, and return its replacement."""
    if found and found[-1].text in before:
        return replace(found.pop(), text=whole)
    return Statement(Kind.INFERRED, whole, Target.USER if _is_about_person(whole, "") else Target.MEMORY)


def _read_sentence(sentence: str, before: str, code: str) -> Statement | None:
    is_backward = _compile_sentence("backward").match(sentence) is not None
    order = parse_order(sentence) or (parse_order(f"remember that {before}") if is_backward else None)
    if order is not None:
        return order
    if _QUESTION.search(sentence) or continues(sentence) or not is_fact(sentence, code):
        return None  # "he starts in September" means nothing without its conversation
    return Statement(Kind.INFERRED, tidy(sentence), choose_page(sentence, code))


def choose_page(sentence: str, code: str) -> Target:
    """Return the page of an inferred fact: `user` for facts about the person, `memory` for others."""
    spoken = find_language(code)
    is_third = spoken.pattern("third").search(sentence) is not None and not _is_about_person(sentence, code)
    return Target.MEMORY if is_third and not spoken.pattern("standing").search(sentence) else Target.USER


def is_fact(sentence: str, code: str) -> bool:
    """Whether a sentence states a lasting fact: about the speaker, their work, or how to answer them."""
    table, spoken = _table(code), find_language(code)
    if is_correction(sentence, code) or spoken.pattern("standing").search(sentence):
        return True
    classes = frozenset[str]().union(*(token.classes for token in spoken.read(sentence)))
    if classes & {"moment", "addressee"}:  # temporary, or about the assistant itself
        return False
    if any(pattern.search(sentence) for pattern in table.inferred):
        return True
    if "passing" in classes or (len(WORD.findall(sentence)) < _LEAST_WORDS and spoken.is_spaced):
        return False
    lasting = spoken.pattern("first").search(sentence) and not spoken.pattern("past").search(sentence)
    return bool(lasting) or spoken.pattern("third").search(sentence) is not None


def strip_greeting(text: str) -> str:
    """Return the text after a greeting or a "by the way"."""
    return _lead().sub("", text[:READ_CHARS]) + text[READ_CHARS:]


def forget_request(text: str) -> str | None:
    """Return what the user wants forgotten, or None."""
    bare = strip_greeting(text)
    matches = (pattern.match(bare) for table in _list_tables(bare, "forget") for pattern in table.forgets)
    found = next((match for match in matches if match is not None), None)
    if found is None or (_QUESTION.search(text) and found.end("text") == len(bare)):
        return None  # "can you forget my address?" has its verb at the end
    return tidy(found["text"])


def is_correction(text: str, code: str | None = None) -> bool:
    """Whether a message corrects what was said or done before."""
    tables = [_table(one) for one in list_codes() if code in {None, one}]
    return any(pattern.search(text.strip()) for table in tables for pattern in table.corrections)


def parse_order(text: str) -> Statement | None:
    """Return what the user orders to remember, in their own words, or None."""
    beginning = text[:MOST_CHARACTERS]
    if _compile_sentence("memory_question").search(beginning) or _compile_sentence("backward").match(beginning):
        return None
    bare, asks = strip_greeting(text), _QUESTION.search(text[-_ORDER_CHARS:]) is not None
    for order in (order for table in _list_tables(bare, "save", "forget") for order in table.orders):
        match = order.pattern.match(bare[:MOST_CHARACTERS])
        if match is None or (asks and not order.asks):
            continue
        said = match["text"] + (bare[MOST_CHARACTERS:] if match.end() == MOST_CHARACTERS else "")
        fact = tidy(_compile_sentence("question_ending").sub("", said) if order.asks else said)
        if re.search(r"\w", fact):
            return _make_order(order, fact, bare[: match.start("text")])
    return None


def _make_order(order: _Order, fact: str, words: str) -> Statement:
    """Return the statement of an order that was given in these words."""
    clause = order.language.table.get("clause")
    if clause is not None and clause["after"] in words.lower():
        fact = make_main_clause(fact, order.language)
    target = Target.USER if _is_about_person(fact, order.language.code) else Target.MEMORY
    return Statement(Kind.ORDER, fact, target, is_open=words.rstrip().endswith((":", "\uff1a")))


def _is_about_person(text: str, code: str) -> bool:
    """Whether a fact is about the speaker; some languages mark this only in the verb."""
    return any(pattern.search(text) for only, pattern in _persons() if only in {None, code})


def _split_facts(text: str, code: str) -> list[str]:
    """Return the sentences, each fact of an order as one: "remember that … and that …" are two orders."""
    spoken, found = find_language(code), []
    for sentence in _sentences(text):
        parts = spoken.pattern("split").split(sentence) if parse_order(sentence) is not None else [sentence]
        head = _order_words(parts[0])
        for place, part in enumerate(parts):
            pieces = spoken.pattern("retract").split(part, maxsplit=1)
            whole = correct_value(pieces[0], pieces[1], spoken) if len(pieces) == 2 else None
            found.append((head if place else "") + (whole or part))
    return found


def _order_words(sentence: str) -> str:
    """Return the order before a fact; empty for a sentence without one."""
    bare = strip_greeting(sentence)
    matches = (order.pattern.match(bare) for table in _list_tables(bare, "save", "forget") for order in table.orders)
    return next((bare[: match.start("text")] for match in matches if match is not None), "")


def _sentences(text: str) -> list[str]:
    pieces = re.split(r"(?<=[.!?。\uff01\uff1f])\s+|(?<=[。\uff01\uff1f])|\n+", text.strip())
    sentences: list[str] = []
    for piece in filter(None, (piece.strip() for piece in pieces)):
        before = sentences[-1] if sentences else ""
        is_ordinal = _ORDINAL.search(before) and _compile_sentence("month").match(piece)
        if is_ordinal or _compile_sentence("abbreviation").search(before):
            sentences[-1] = f"{before} {piece}"
        else:
            sentences.append(piece)
    return sentences


def tidy(text: str) -> str:
    """Return the text without enclosing quotation marks and final punctuation."""
    bare = text.strip().strip('"“”„«»「」').strip()
    return re.sub(r"(?<![.])[.。!?\uff01\uff1f]+$", "", bare).strip() or bare
