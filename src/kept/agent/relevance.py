"""Relevance of short texts to a question: shared words, regardless of inflection and script."""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from kept.agent.statements import strip_greeting
from kept.core.text import UNSPACED, WORD, split_pairs, stop_words, strip_accents

_SHORT_PART: Final = re.compile(r"\b([^\W_]{1,2})-(?=[^\W_]{2})")
"""The optional hyphen of words such as e-mail and wi-fi."""
_COURTESY, _NAMING = (
    frozenset(words.split())
    for words in (
        "thanks thank please ok okay danke bitte merci gracias",
        "name names called call heisst heissen heisse llama llaman llamo appelle appellent 叫 名字",
    )
)
"""Polite words without content, and words that ask for a name; those weigh half, because it matters whose."""
_PREFIX: Final = 4
_KIN: Final = tuple(
    frozenset(words.split())
    for words in (
        "prefer preference preferred favorite favourite enjoy enjoys",
        "hate dislike avoid dislikes hates",
        "name called call",
        "live lives home address city based reside",
        "work job role profession occupation works employer company",
        "birthday born birth age old",
        "wife husband partner spouse married",
        "editor ide vim emacs vscode neovim",
        "language python rust go typescript java",
        "deploy release ship deployment rollout",
        "timezone zone",
        "eat food diet vegetarian vegan allergic",
        "kid kids child children son daughter",
        "pet dog cat",
        "alt jahre alter",
        "age ans",
        "edad anos",
        "名字 姓名 叫 姓 谁",
        "住 住址 地址 家住",
        "喜欢 爱 偏好",
        "用 使用",
    )
)
_CJK_STOP: Final = frozenset("的了吗呢吧啊我你他她是在和与就都也很什么时候哪里谁怎样几多少么为")
_CJK_WORDS: Final = frozenset("叫姓住爱吃喝养用学谁")
"""One-character content words; bigrams with a stop character would lose them."""
_CJK_ORDER: Final = re.compile("记住|記住|记得|記得")
"""Orders to remember: not content, and their second character also means "to live"."""
_CJK_BETWEEN: Final = re.compile(f"[{''.join(sorted(_CJK_STOP | _CJK_WORDS))}]+")
_WHEN: Final = re.compile(
    r"\b(?:when|wann|cu[aá]ndo|quand|what (?:day|time|date))\b|什么时候|几点|哪天|何时", re.IGNORECASE
)
_TIME: Final = re.compile(
    r"\d{1,2}[:h.]\d{2}|\d{4}|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)s?\b"
    r"|\b(?:lunes|martes|mi[eé]rcoles|jueves|viernes|s[aá]bados?|domingos?)\b|\b(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)s?\b"
    r"|周|星期|月|点|\b(?:daily|weekly|monthly|morning|evening|noon|night|today|tomorrow)\b",
    re.IGNORECASE,
)


def relevances(question: str, texts: Sequence[str]) -> list[float]:
    """Return a score per text: 0 when it shares no content word with the question.

    Words that occur in few texts weigh more than words that occur in many.
    """
    asked = _terms(question)
    if not asked:
        return [0.0] * len(texts)
    terms = [_terms(text) for text in texts]
    weights = {}
    for term in asked:
        holding = sum(1 for found in terms if any(_same(term, other) for other in found))
        weights[term] = (0.5 if term in _NAMING else 1.0) / (1.0 + holding / max(4.0, len(texts) / 2))
    scores = []
    for text, found in zip(texts, terms, strict=True):
        score = sum(weights[term] * max((_likeness(term, other) for other in found), default=0.0) for term in asked)
        timely = 0.25 if score > 0 and _WHEN.search(question) and _TIME.search(text) else 0.0
        scores.append(score / sum(weights.values()) + timely if score > 0 else 0.0)
    return scores


def count_shared_words(question: str, text: str) -> int:
    """Return how many content words of the question occur in the text."""
    found = _terms(text)
    return sum(1 for term in _terms(question) if any(_same(term, other) for other in found))


@lru_cache(maxsize=512)
def _terms(text: str) -> frozenset[str]:
    plain = _SHORT_PART.sub(r"\1", strip_accents(strip_greeting(text).casefold()))
    words = [word for word in WORD.findall(plain) if not UNSPACED.search(word)]
    stop = stop_words(words) | _COURTESY
    found = {word for word in words if word not in stop}
    for run in UNSPACED.findall(_CJK_ORDER.sub(" ", unicodedata.normalize("NFC", plain))):
        found |= {pair for pair in split_pairs(run) if not set(pair) & _CJK_STOP} | (_CJK_WORDS & set(run))
        found |= {piece for piece in _CJK_BETWEEN.split(run) if len(piece) == 1}
    return frozenset(found)


def _same(one: str, other: str) -> bool:
    return _likeness(one, other) > 0


@lru_cache(maxsize=16_384)
def _likeness(one: str, other: str) -> float:
    if one == other:
        return 0.6 if one in _CJK_WORDS else 1.0
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    shorter, longer = sorted((len(one), len(other)))
    if shared >= _PREFIX and shared >= shorter - 2 and shared * 2 >= longer:
        return 0.9
    if shorter >= 3 and shared == shorter and longer - shorter <= 3:
        return 0.8
    return 0.5 if any(one in kin and other in kin for kin in _KIN) else 0.0
