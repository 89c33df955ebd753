"""Speech: what a person asserts in a message, apart from what they quote, report, warn about, ask or negate.

Decided by structure: quotation marks and blocks, what precedes a colon, questions, the scope of a negation, and who is
the subject. A passage whose standing is unclear is not asserted.
"""

import re
from collections.abc import Iterator

from kept.core.text import UNSPACED, expression
from kept.core.values import dataclass, field

_MOST_CHARS = 20_000


def _any_word(words: str) -> re.Pattern[str]:
    """Return an expression for words of languages with spaces, and for parts of words of the others after a bar."""
    spaced, _, unspaced = words.partition(" | ")
    return expression(rf"\b(?:{'|'.join(spaced.split())})\b|{'|'.join(unspaced.split())}", re.IGNORECASE)


_NEGATION = _any_word(
    r"not no never none nobody nothing neither nor cannot without avoid stop refuse \w+n['’]t"
    r" nicht kein\w* nie niemals ohne weder nichts niemand vermeide\w*"
    r" ne n['’]\w+ pas jamais sans aucun\w* rien évite\w*"
    r" nunca jamás sin ningun\w* ningún nada tampoco evita\w* | 不 没 无 別 别 勿 未 莫 非 避免 停止"
)
_FIRST_PERSON = _any_word(
    r"i i['’]\w+ my me mine we we['’]\w+ our ours us ich mein\w* mir mich wir unser\w* uns"
    r" je j['’]\w+ mon ma mes moi m['’]\w+ nous notre nos yo mi mis nosotr\w* nuestr\w* | 我 咱"
)
_POSSESSIVE = _any_word(r"my our mein\w* unser\w* mon ma mes notre nos mi mis nuestr\w* | 我的 我们的")
_KEEP_ORDER = _any_word(
    r"remember note save store keep memori[sz]e merk\w* notier\w* speicher\w* behalt\w* retiens retenez souviens"
    r" mémorise\w* note[zr]? enregistre\w* recuerda\w* anota\w* guarda\w* memoriza\w* | 记住 记下 记录 保存 记得"
)
_REPORT = _any_word(
    r"says said claim\w* told tells wrote writes written reads received according allegedly supposedly apparently"
    r" rumou?r\w* phish\w* scam\w* fake\w* fraud\w* spam hoax malicious suspicious attack\w* inject\w* trick\w* wrong"
    r" false untrue incorrect beware careful warning warn\w* ignore disregard believe pretend\w* example"
    r" sagt\w* gesagt behaupt\w* angeblich laut schreib\w* schrieb\w* geschrieben steht lautet betrug\w* gefälscht"
    r" falsch vorsicht achtung glaub\w* ignorier\w* verdächtig\w* erzählt\w* beispiel\w* bekommen erhalten"
    r" dit disait disent prétend\w* selon écri\w* affirme\w* paraît soi-disant hameçonnage arnaque\w* faux fausse"
    r" attention méfi\w* crois croi[rtz]\w* ignore\w* exemple reçu raconte\w*"
    r" dice\w* dijo dijeron afirma\w* según escri\w* supuest\w* fals[oa]s? estafa\w* cuidado ojo crea\w* ignora\w*"
    r" ejemplo recib\w* | 说 称 据 写道 骗 假的 虚假 钓鱼 诈 小心 警惕 当心 相信 错误 忽略 例如 比如 收到"
)
_DEMONSTRATIVE = _any_word(
    r"this that these those it such das dies\w* so ce cela ça cette ceci celle\w* esto eso esta este así | 这 那 此"
)
_ASKING = expression(
    r"(?i)^\W*(?:is it|is this|is that|are these|does (?:it|this|that)|do you|did you|can you|could you|whether"
    r"|ob|stimmt|est-ce|est-il|es (?:cierto|verdad)|是否|是不是)\b|[吗呢嘛][。！!]?$"
)
_BLOCK_QUOTE = expression(r"(?m)^[ \t]*(?:>|\|).*$")
_FENCED = expression(r"(?s)(```+|~~~+).*?(?:\1|\Z)")
_PAIRS = {"“": "”", "„": "“”", "«": "»", "‹": "›", "「": "」", "『": "』", "‘": "’", "»": "«", "《": "》", "<": ">"}
_PLAIN_QUOTE = expression(r"(?<!\w)\"[^\"]*(?:\"|\Z)|(?<!\w)'[^'\n]*'(?!\w)|(?<!\w)'(?=\S)[^'\n]{40,}(?:\Z|\n)")
_LEAST_QUOTED = 18
"""A shorter quotation is a name or a term: `a project called "heron"`."""
_UNSPACED_WIDTH = 2
"""How much more a character counts in scripts without spaces."""
_SENTENCE = expression(r".+?(?:[.!?…]+[\"”»)\]]*(?=\s|$)|[。！？]|\n|$)")
_SENTENCE_START = expression(r"[.!?…][\"”»)\]]*\s+|[。！？\n]+")
_CLAUSE = expression(r"[,;，；、]\s*|\s[–—-]\s|\s(?:but|and|aber|und|mais|et|pero|y)\s|但")
_COLON = expression(r":(?=\s|$|[\"“„«「『])|：")
_MOST_LABEL_WORDS = 5


@dataclass(frozen=True, slots=True)
class Speech:
    """The parts of a person's message."""

    affirmed: str
    """What they assert, without what they negate."""
    asserted: str
    """What they assert, negated or not."""
    others: str
    """What they quote or report, or what follows a colon that does not announce their own words."""
    open: str
    """What they ask, and what stands beside questions and reports without being about themselves."""


def is_negated(text: str) -> bool:
    """Whether a text contains a negation."""
    return _NEGATION.search(text) is not None


def read_speech(text: str) -> Speech:
    """Return what a person asserts in a message, and what not."""
    parts = _Parts()
    own, lead, rest = _split_at_colon(text[:_MOST_CHARS])
    if lead and _announces_own_words(lead):
        parts.asserted.append(rest)
        parts.affirmed += [found[0] for found in _SENTENCE.finditer(rest) if not is_negated(found[0])]
    elif lead:
        own += lead
        parts.others.append(rest)
    own = _take_quotations(own, parts.others)
    sentences = [found[0].strip() for found in _SENTENCE.finditer(own) if found[0].strip()]
    parts.is_clear = not parts.others and not any(map(_casts_doubt, sentences))
    for sentence in sentences:
        parts.take(sentence)
    parts.others.append(text[_MOST_CHARS:])
    return Speech(*map("\n".join, (parts.affirmed, parts.asserted, parts.others, parts.open)))


def _split_at_colon(text: str) -> tuple[str, str, str]:
    """Return what precedes the sentence with the first colon, that sentence up to the colon, and all that follows."""
    colon = _COLON.search(text)
    if colon is None:
        return text, "", ""
    head = text[: colon.start()]
    start = max((found.end() for found in _SENTENCE_START.finditer(head)), default=0)
    return head[:start], head[start:], text[colon.end() :]


def _announces_own_words(lead: str) -> bool:
    """Whether what precedes a colon announces the person's own words: an order to remember, or `my setup:`."""
    if is_negated(lead) or _REPORT.search(lead) or "?" in lead:
        return False
    if _KEEP_ORDER.search(lead):
        return True
    return _POSSESSIVE.search(lead) is not None and len(lead.split()) <= _MOST_LABEL_WORDS


def _casts_doubt(sentence: str) -> bool:
    """Whether a sentence makes it unclear what the person thinks of those beside it."""
    if _is_question(sentence) or _REPORT.search(sentence):
        return True
    return is_negated(sentence) and _DEMONSTRATIVE.search(sentence) is not None and not _FIRST_PERSON.search(sentence)


def _is_question(sentence: str) -> bool:
    return "?" in sentence or "？" in sentence or "¿" in sentence or _ASKING.search(sentence) is not None


@dataclass(slots=True)
class _Parts:
    """The sentences of a message, sorted while it is read."""

    affirmed: list[str] = field(default_factory=list)
    asserted: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    is_clear: bool = True
    """Whether nothing in the message makes it unclear what the person thinks of the rest."""

    def take(self, sentence: str) -> None:
        """Sort a sentence into its part."""
        if _is_question(sentence):
            self.open.append(sentence)
        elif _REPORT.search(sentence):
            self.others.append(sentence)
        elif not (self.is_clear or _FIRST_PERSON.search(sentence)):
            self.open.append(sentence)
        else:
            self.asserted.append(sentence)
            if is_negated(sentence):
                self.affirmed += _affirmed_clauses(sentence)
                self.open.append(sentence)
            else:
                self.affirmed.append(sentence)


def _affirmed_clauses(sentence: str) -> Iterator[str]:
    """Yield the clauses of a sentence with a negation that stand outside its scope: the person's own."""
    for clause in _CLAUSE.split(sentence):
        if _FIRST_PERSON.search(clause) and not is_negated(clause):
            yield clause


def _take_quotations(text: str, quoted: list[str]) -> str:
    """Return a text without its quotations, which are appended to `quoted`; names in quotation marks stay."""

    def take(found: re.Match[str]) -> str:
        width = len(found[0]) + _UNSPACED_WIDTH * len("".join(UNSPACED.findall(found[0])))
        if width < _LEAST_QUOTED and "\n" not in found[0]:
            return found[0]
        quoted.append(found[0])
        return " "

    def take_block(found: re.Match[str]) -> str:
        quoted.append(found[0])
        return " "

    text = _BLOCK_QUOTE.sub(take_block, _FENCED.sub(take_block, text))
    for opening, closings in _PAIRS.items():
        if opening in text:
            inside = re.escape(closings)
            text = re.sub(rf"{re.escape(opening)}(?=\S)[^{inside}]*(?:[{inside}]|\Z)", take, text)
    return _PLAIN_QUOTE.sub(take, text)
