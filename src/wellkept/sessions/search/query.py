"""The query parser: from a text to the terms that rank, a condition that must hold, and dates."""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

from msgspec import Struct

from wellkept.core.text import WORD
from wellkept.languages.dates import DATE_NAMES, Span, find_spans
from wellkept.languages.language import (
    STOP_WORDS,
    join_expressions,
    stop_words,
)
from wellkept.languages.questions import (
    BEGINNINGS,
    FRAMES,
    UNSPACED_SHAPING,
    UNSPACED_STOPS,
    is_asking,
)
from wellkept.languages.stems import CANONICAL
from wellkept.sessions.search.analysis import (
    ASKED_FORMS,
    SPEAKER,
    UNSPACED,
    WHOLE,
    base,
    clean,
    compounds,
    pieces,
)

MAX_CHARACTERS, MAX_TERMS, MAX_DEPTH = 12_000, 32, 12
FRAME_WEIGHT, DATE_WORD_WEIGHT, PART_WEIGHT = 0.35, 0.35, 0.6


class Kind(StrEnum):
    """How a term is looked up."""

    WORD = "word"
    PREFIX = "prefix"
    PHRASE = "phrase"


class Term(Struct, frozen=True):
    """One thing to look for, and its weight relative to the others."""

    text: str
    kind: Kind = Kind.WORD
    weight: float = 1.0
    names_date: bool = False
    """Whether it is part of a date in the question: a month, a weekday or a number."""


class All(Struct, frozen=True):
    """Every one of the conditions holds."""

    nodes: tuple["Node", ...]


class Any(Struct, frozen=True):
    """At least one of the conditions holds."""

    nodes: tuple["Node", ...]


class Not(Struct, frozen=True):
    """The condition does not hold."""

    node: "Node"


Node: TypeAlias = Term | All | Any | Not


class Query(Struct, frozen=True):
    """The terms that rank, the condition that must hold (None for plain words), the dates mentioned."""

    terms: tuple[Term, ...]
    condition: Node | None = None
    dates: tuple[Span, ...] = ()

    @property
    def is_phrase(self) -> bool:
        """Whether it is one phrase and nothing else."""
        return isinstance(self.condition, Term) and self.condition.kind is Kind.PHRASE


_Token: TypeAlias = tuple[str | None, str | None, str | None]
"""A phrase, a bracket or a word; the others are None."""
_OPERATORS: Final = frozenset({"AND", "OR", "NOT"})
_TOKEN = re.compile(r'"([^"]*)"|([()])|([^\s()"]+)')
_PREFIX = re.compile(r"[\w.@/-]*\w\*")
_QUOTED = re.compile(r'"[^"]*"')


_EXPLICIT = re.compile(r'"[^"]*\w[^"]*"|\b(?:AND|OR|NOT)\b|\w\*(?!\S)|\w\*(?=\))')


def parse(text: str, now: float = 0.0) -> Query:
    """Parse a query. Nothing raises: broken syntax is read as plain words."""
    text = clean(text[:MAX_CHARACTERS])
    dates = find_spans(text, now=now) if now > 0 else ()
    spans = tuple(span for span, _ in dates)
    date_words = frozenset(word for _, phrase in dates for word in WORD.findall(phrase))
    condition = _condition(text)
    terms = _limit_terms(_list_positive(condition, date_words)) if condition is not None else ()
    if terms:
        return Query(terms, condition, spans)
    return Query(_limit_terms(_plain(text, date_words)), None, spans)


@lru_cache(maxsize=16)  # a search asks several times
def asks(query: str) -> bool:
    """Return whether a query is a question; one phrase in quotes is not, whatever it begins with."""
    return is_asking(query) and not (query.count('"') == 2 and query.strip()[0] == query.strip()[-1] == '"')


def find_role(question: str) -> str:
    """Return whose words a question to an assistant is about, "user" or "assistant"; empty if it is about neither.

    "What did I say" is about the user's words, "what did you tell me" about the assistant's.
    """
    if _compile_questions("of_assistant").search(question):
        return "assistant"
    # "you" in words that ask for an answer says nothing about whose words are meant
    question = _compile_questions("request").sub(" ", question)
    is_of_asker = _compile_questions("of_asker").search(question) is not None
    return "user" if is_of_asker and not _compile_questions("of_other").search(question) else ""


@cache
def _compile_questions(name: str) -> re.Pattern[str]:
    """Return the expression for the words that all languages have under a name in `[questions]`."""
    return re.compile(join_expressions("questions", name), re.IGNORECASE)


def _limit_terms(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Return the distinct terms; of too many the heaviest, and of those the longest, which are the rarest."""
    best: dict[tuple[str, Kind], Term] = {}
    for term in terms:
        key = (term.text, term.kind)
        if key not in best or best[key].weight < term.weight:
            best[key] = term
    if len(best) <= MAX_TERMS:
        return tuple(best.values())
    heaviest = sorted(best.values(), key=lambda term: (-term.weight, -len(term.text)))[:MAX_TERMS]
    return tuple(term for term in best.values() if term in heaviest)


@lru_cache(maxsize=16)  # the words of a phrase are needed to rank and as a condition
def _plain(text: str, date_words: frozenset[str], *, may_ask: bool = True) -> tuple[Term, ...]:
    """Return the terms of a question without stop words, unless there are no others."""
    spaced = UNSPACED.sub(" ", text)
    words = [word.lower() for word in WORD.findall(spaced)]
    stops = stop_words(words)
    # in a list of keywords every word counts; only a question has words that merely form it
    is_asked = may_ask and ("?" in text or is_asking(text))
    shaping = FRAMES.union(BEGINNINGS.intersection(words[:1])) if is_asked else frozenset[str]()
    months = date_words & DATE_NAMES  # "in May" is a date, "may I" is not
    chosen = [word for word in words if word not in stops or word in months]
    terms = [_make_term(word, date_words, shaping=shaping) for word in chosen]
    for compound in compounds(spaced):
        if date_words.issuperset(compound.lower().split(WHOLE)) or compound.lower() in stops:
            # messages may write the date "27.12.2023" in another way, and "YouTube" does not ask for "you"
            continue
        weight = 1.0 if WHOLE in compound else PART_WEIGHT
        terms.append(Term(compound.lower(), weight=weight))
    runs: list[str] = UNSPACED.findall(text)
    for run in runs:
        terms += _split_unspaced(run, (*date_words, *(UNSPACED_SHAPING if is_asked else UNSPACED_STOPS)))
    return tuple(terms or [Term(word) for word in (*words, *(piece for run in runs for piece in pieces(run)[0]))])


def _make_term(word: str, date_words: frozenset[str], *, shaping: frozenset[str]) -> Term:
    if word in date_words:
        name = CANONICAL.get(word, word)
        return Term(name, weight=DATE_WORD_WEIGHT, names_date=word.isdigit() or name in DATE_NAMES)
    return Term(ASKED_FORMS.get(word) or base(word), weight=FRAME_WEIGHT if word in shaping else 1.0)


def _split_unspaced(run: str, stops: Iterable[str]) -> list[Term]:
    """Return the character pairs of a run without spaces, split at the stops; a lone character is a term."""
    rest = run
    for stop in stops:
        rest = rest.replace(stop, " ")
    terms: list[Term] = []
    for part in rest.split():
        singles, pairs = pieces(part)
        terms += [Term(piece) for piece in pairs or singles]
    return terms


def _condition(text: str) -> Node | None:
    """Return the condition of an explicit query, or None when there is none or its syntax is broken."""
    if not _EXPLICIT.search(text) or text.count('"') % 2:
        return None
    outside = "" if text.startswith('"') else _QUOTED.sub(" ", text)
    if outside and not _EXPLICIT.search(outside) and ("?" in outside or is_asking(outside)):
        return None  # a question that quotes a title: the answer need not quote it, so closeness only prefers it
    tokens = [(match[1], match[2], match[3]) for match in _TOKEN.finditer(text)]
    return None if text.isupper() and _is_shouted(tokens) else _Reader(tokens).read()


def _is_shouted(tokens: Sequence[_Token]) -> bool:
    """Whether AND, OR and NOT are words of a sentence in capitals, not operators.

    Function words, two words side by side, and "OR NOT" show a sentence. Digits, scripts without case and phrases tell
    nothing: "404 NOT 500" and "AWS NOT GCP" are operators.
    """
    words = [word for _, _, word in tokens]
    if _OPERATORS.isdisjoint(words):
        return False
    if ("OR", "NOT") in pairwise(words):
        return True
    cased = ["" if word is None or word in _OPERATORS or not word.isupper() else word.lower() for _, _, word in tokens]
    has_function_word = bool(stop_words(tuple(filter(None, cased))) & set(cased)) or not BEGINNINGS.isdisjoint(cased)
    return has_function_word or any(first and second for first, second in pairwise(cased))


class _BrokenSyntaxError(Exception):
    """The explicit syntax is broken; never leaves this module."""


class _Reader:
    """One pass over the tokens of an explicit query."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def read(self) -> Node | None:
        """Return the condition, or None when the syntax is broken."""
        try:
            node = self._disjunction()
        except _BrokenSyntaxError:
            return None
        return node if self._position == len(self._tokens) else None

    def _next_is(self, *words: str) -> bool:
        if self._position >= len(self._tokens):
            return False
        phrase, bracket, word = self._tokens[self._position]
        return phrase is None and (bracket or word) in words

    def _disjunction(self) -> Node:
        nodes = [self._conjunction()]
        while self._next_is("OR"):
            self._position += 1
            nodes.append(self._conjunction())
        return nodes[0] if len(nodes) == 1 else Any(tuple(nodes))

    def _conjunction(self) -> Node:
        nodes = [self._operands()]
        while self._next_is("AND"):
            self._position += 1
            nodes.append(self._operands())
        return nodes[0] if len(nodes) == 1 else All(tuple(nodes))

    def _operands(self) -> Node:
        """Read operands without operators: phrases and exclusions must hold, and at least one of the plain words."""
        nodes = [self._operand()]
        while self._position < len(self._tokens) and not self._next_is("AND", "OR", ")"):
            nodes.append(self._operand())
        if len(nodes) == 1:
            return nodes[0]
        firm = [node for node in nodes if not _is_soft(node)]
        soft = [node for node in nodes if _is_soft(node)]
        if soft and not any(isinstance(node, Term) for node in firm):
            firm.append(soft[0] if len(soft) == 1 else Any(tuple(soft)))
        elif soft:
            firm.append(Any((*soft, *firm)))  # words next to a phrase rank, they do not exclude
        return firm[0] if len(firm) == 1 else All(tuple(firm))

    def _operand(self) -> Node:
        if self._position >= len(self._tokens) or self._next_is("AND", "OR", ")"):
            raise _BrokenSyntaxError
        phrase, bracket, word = self._tokens[self._position]
        self._position += 1
        if bracket is not None:
            return self._inside_brackets()
        if phrase is not None:
            if not WORD.search(phrase):
                raise _BrokenSyntaxError
            return Term(" ".join(phrase.split()), Kind.PHRASE)
        if word == "NOT":
            return Not(self._operand())
        return _read_word(word or "")

    def _inside_brackets(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _BrokenSyntaxError
        node = self._disjunction()
        if not self._next_is(")"):
            raise _BrokenSyntaxError
        self._position += 1
        self._depth -= 1
        return node


def _is_soft(node: Node) -> bool:
    return isinstance(node, Any) or (isinstance(node, Term) and node.kind is not Kind.PHRASE)


def _read_word(word: str) -> Node:
    """Return the condition of one bare word, which may hold several terms (a path, a run of Chinese)."""
    if _PREFIX.fullmatch(word):
        return Term(WORD.findall(word)[-1].lower(), Kind.PREFIX)
    if word.isascii() and word.isalpha() and word.islower() and word not in STOP_WORDS and word not in BEGINNINGS:
        return Term(ASKED_FORMS.get(word) or word)  # a shortcut: `_plain` returns the same, slowly
    terms = _plain(word, frozenset())
    if not terms:
        raise _BrokenSyntaxError
    if len(terms) == 1:
        return terms[0]
    return All(tuple(term for term in terms if WHOLE not in term.text and not term.text.startswith(SPEAKER)))


def find_required_words(node: Node) -> frozenset[str]:
    """Return the words that every message contains which fulfils `node`."""
    match node:
        case Term(text, Kind.PHRASE):
            return frozenset(term.text for term in _plain(text, frozenset(), may_ask=False) if WHOLE not in term.text)
        case Term(text, Kind.WORD):
            return frozenset([text])
        case All(nodes):
            return frozenset().union(*map(find_required_words, nodes))
        case _:
            return frozenset()


def _list_positive(node: Node, date_words: frozenset[str]) -> list[Term]:
    """Return the terms of a condition that raise the score of a message; a phrase ranks by its words."""
    match node:
        case Term(text, Kind.PHRASE):
            return [*_plain(text, date_words, may_ask=False), node]
        case Term():
            return [node]
        case All(nodes) | Any(nodes):
            return [term for child in nodes for term in _list_positive(child, date_words)]
        case Not():
            return []
