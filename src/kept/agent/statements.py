"""Statements in a message: orders to remember, and facts stated in plain sentences.

The rules per language are in `statements.toml`; the saved words are the user's own.
"""

import re
import tomllib
from enum import StrEnum
from functools import cache
from typing import Final

from kept.core.text import resource_text
from kept.core.values import dataclass
from kept.memory.edits import Target

_FLAGS = re.IGNORECASE | re.DOTALL


class Kind(StrEnum):
    """How certain it is that the user wants this saved."""

    ORDER = "order"
    """ "Remember that …": saved at once."""
    INFERRED = "inferred"
    """A preference, a name, a correction: staged until confirmed."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A text to save, and its page."""

    kind: Kind
    text: str
    target: Target


_POLITE: Final = (
    r"(?:(?:please|pls|hey|ok(?:ay)?|so|and|also|bitte|und|also|por favor|oye|y|s['’]il te pla[iî]t|et|stp)[\s,:]+)*"
)
_BACKWARD: Final = re.compile(
    r"^\s*(?:please |bitte |por favor )?(?:remember|merk dir|recuerda|souviens-toi de|retiens|记住)"
    r"(?: that| this| it| das| eso| esto| ça| cela|这个|这一点)?[.!。\uff01]*$",
    re.IGNORECASE,
)
"""An order that refers to the previous sentence."""
_QUESTION: Final = re.compile(r"[?\uff1f¿]\s*$|^\s*[¿]")
_QUESTION_ENDING: Final = re.compile(r"[吗么]?\s*[?\uff1f]*\s*$")
_QUESTION_WORD: Final = re.compile(
    r"^\s*(?:who|what|when|where|why|how|which|whose|do|does|did|is|are|was|were|can|could|have|has|tell me|show me"
    r"|find|wer|was|wann|wo|warum|wie|welche\w*|qui[eé]n|qu[eé]|cu[aá]ndo|d[oó]nde|c[oó]mo|por qu[eé]|cu[aá]l|qui|que"
    r"|quoi|quand|o[uù]|comment|pourquoi|quel\w*|sing)\b|[谁吗呢]|什么|哪|怎|为何|几",
    re.IGNORECASE,
)
_MEMORY_QUESTION: Final = re.compile(
    r"^\s*(?:do|did) (?:you|u) (?:still )?remember\b"
    r"|^\s*(?:(?:can|could|would|will) you )?remember (?:when|how|what|where|who|which|why|if)\b"
    r"|(?:记得|记不记得).*(?:吗|么|[?\uff1f])\s*$|^\s*(?:erinnerst du dich|te acuerdas|tu te souviens)\b",
    _FLAGS,
)
"""A question whether something is remembered; not an order to remember it."""


_ABBREVIATION: Final = re.compile(
    r"\b(?:dr|mr|mrs|ms|prof|st|jr|sr|sra|hr|nr|no|z\. ?b|d\. ?h|bzw|ca|e\.g|i\.e|vs|approx|mme|mlle|av|tel|inkl)\.$",
    re.IGNORECASE,
)
"""An abbreviation; its full stop does not end the sentence."""
_ORDINAL: Final = re.compile(r"\b\d{1,2}\.$")
_MONTH: Final = re.compile(
    r"(?:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[kc]t|nov|de[zc])\w*\b|(?-i:[a-zà-ÿ])", re.IGNORECASE
)
"""What follows an ordinal such as "3." within a sentence: a month, or a lower-case word."""


@dataclass(frozen=True, slots=True)
class _Order:
    language: str
    pattern: re.Pattern[str]
    asks: bool
    """Whether the order may be phrased as a question."""


@dataclass(frozen=True, slots=True)
class _Table:
    orders: tuple[_Order, ...]
    persons: tuple[tuple[str | None, re.Pattern[str]], ...]
    """Each with the only language it applies to, or None for all."""
    inferred: tuple[re.Pattern[str], ...]
    corrections: tuple[re.Pattern[str], ...]
    lead: re.Pattern[str]
    forget: re.Pattern[str]
    everything: re.Pattern[str]


@cache
def _table() -> _Table:
    rows = tomllib.loads(resource_text("kept.agent", "statements.toml"))
    of = {kind: "|".join(row["pattern"] for row in rows[kind]) for kind in ("lead", "forget", "everything")}
    return _Table(
        tuple(
            _Order(
                row["lang"],
                re.compile(rf"^\s*{_POLITE}(?:{row['pattern']})\s*(?P<text>\S.*)$", _FLAGS),
                asks=row.get("asks", False),
            )
            for row in rows["order"]
        ),
        tuple(
            (row["lang"] if row.get("only_own") else None, re.compile(row["pattern"], _FLAGS)) for row in rows["person"]
        ),
        tuple(re.compile(row["pattern"], _FLAGS) for row in rows["inferred"]),
        tuple(re.compile(row["pattern"], _FLAGS) for row in rows["inferred"] if row.get("corrects")),
        re.compile(rf"^\s*(?:¡?(?:{of['lead']})(?:[\s,.:;!…\uff0c。\uff01\uff1a、]|[–-]\s)*)+", _FLAGS),
        re.compile(rf"^\s*{_POLITE}(?:{of['forget']})\s*(?P<text>\S.*)$", _FLAGS),
        re.compile(rf"\s*¿?\s*(?:{of['everything']})[\s?\uff1f.!]*", _FLAGS),
    )


def statements(text: str) -> list[Statement]:
    """Return the statements of a message: an order as one statement, or each sentence that states a fact."""
    order = parse_order(text)
    if order is not None:
        return [order]
    if _QUESTION.search(text) and len(_sentences(text)) == 1:
        return []
    found = []
    before = ""
    for said in _sentences(text):
        sentence = strip_greeting(said)
        order = parse_order(sentence) or (parse_order(f"remember that {before}") if _BACKWARD.match(sentence) else None)
        before = sentence
        if order is not None:
            found.append(order)
        elif not _QUESTION.search(sentence) and any(pattern.search(sentence) for pattern in _table().inferred):
            found.append(Statement(Kind.INFERRED, _tidy(sentence), Target.USER))
    return found


def strip_greeting(text: str) -> str:
    """Return the text after a greeting or a "by the way"."""
    return _table().lead.sub("", text)


def asks_everything(text: str) -> bool:
    """Whether a message asks for everything that is known."""
    return _table().everything.fullmatch(text) is not None


def forget_request(text: str) -> str | None:
    """Return what the user wants forgotten, or None."""
    match = _table().forget.match(strip_greeting(text))
    return _tidy(match["text"]) if match is not None and not _QUESTION.search(text) else None


def is_question(text: str) -> bool:
    """Whether a message is a question."""
    return bool(_QUESTION.search(text) or _QUESTION_WORD.match(text))


def is_correction(text: str) -> bool:
    """Whether a message corrects what was said or done before."""
    return any(pattern.search(text.strip()) for pattern in _table().corrections)


def parse_order(text: str) -> Statement | None:
    """Return what the user orders to remember, in their own words, or None."""
    if _MEMORY_QUESTION.search(text) or _BACKWARD.match(text):
        return None
    bare = strip_greeting(text)
    for order in _table().orders:
        match = order.pattern.match(bare)
        if match is None or (_QUESTION.search(text) and not order.asks):
            continue
        fact = _tidy(_QUESTION_ENDING.sub("", match["text"]) if order.asks else match["text"])
        if re.search(r"\w", fact):
            target = Target.USER if _is_about_person(fact, order.language) else Target.MEMORY
            return Statement(Kind.ORDER, fact, target)
    return None


def _is_about_person(text: str, language: str) -> bool:
    """Whether a fact is about the speaker; some languages mark this only in the verb."""
    return any(pattern.search(text) for only, pattern in _table().persons if only in {None, language})


def _sentences(text: str) -> list[str]:
    pieces = re.split(r"(?<=[.!?。\uff01\uff1f])\s+|(?<=[。\uff01\uff1f])|\n+", text.strip())
    sentences: list[str] = []
    for piece in filter(None, (piece.strip() for piece in pieces)):
        before = sentences[-1] if sentences else ""
        if _ABBREVIATION.search(before) or (_ORDINAL.search(before) and _MONTH.match(piece)):
            sentences[-1] = f"{before} {piece}"
        else:
            sentences.append(piece)
    return sentences


def _tidy(text: str) -> str:
    """Return the text without enclosing quotation marks and final punctuation."""
    bare = text.strip().strip('"“”„«»「」').strip()
    return re.sub(r"(?<![.])[.。!?\uff01\uff1f]+$", "", bare).strip() or bare
