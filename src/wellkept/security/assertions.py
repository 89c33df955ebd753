"""Speech: what a person asserts in a message, apart from what they quote, report, warn about, ask or negate.

Decided by structure: quotation marks and blocks, what precedes a colon, questions, the scope of a negation, and who is
the subject. A passage whose standing is unclear is not asserted.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct, field

from wellkept.core.ids import SourceName
from wellkept.core.provenance import Kind, Source
from wellkept.core.text import UNSPACED, expression, split_pairs

_MOST_CHARS = 20_000
_MOST_REMEMBERED = 10_000
"""Words; about a megabyte."""


class _Words:
    """Finds any of some words in a text: whole words, beginnings (`warn*`), and after a bar parts of unspaced text."""

    def __init__(self, *lists: str) -> None:
        spaced = [word for words in lists for word in words.partition(" | ")[0].split()]
        self._whole = frozenset(word for word in spaced if not word.endswith("*"))
        self._beginnings = tuple(word[:-1] for word in spaced if word.endswith("*"))
        self._parts = tuple(part for words in lists for part in words.partition(" | ")[2].split())
        self._others = set[str]()
        """Words of earlier texts that are none of them: most words of a text were in others, and need no new look."""

    def search(self, text: str) -> bool:
        """Whether a text contains one of the words."""
        words = _split(text)
        if not self._whole.isdisjoint(words):
            return True
        if unseen := words - self._others:
            if any(word.startswith(self._beginnings) for word in unseen):
                return True
            if len(self._others) > _MOST_REMEMBERED:
                self._others.clear()
            self._others |= unseen
        return not text.isascii() and any(part in text for part in self._parts)


_WORD = expression(r"[\w'’]+")


@lru_cache(maxsize=64)  # a sentence is compared with each list of words; a long one takes some kilobytes
def _split(text: str) -> frozenset[str]:
    """Return the words of a text in lower case; `don't` is also `not`."""
    words = _WORD.findall(text.lower().replace("’", "'"))
    if "'" not in text and "’" not in text:
        return frozenset(words)
    return frozenset(["not" if word.endswith("n't") else word.strip("'") for word in words])


_NEGATION = _Words(
    r"not no never none nobody nothing neither nor cannot without avoid stop refuse"
    r" nicht kein* nie niemals ohne weder nichts niemand vermeide*"
    r" ne n'* pas jamais sans aucun* rien évite*"
    r" nunca jamás sin ningun* ningún nada tampoco evita* | 不 没 无 別 别 勿 未 莫 非 避免 停止"
)
_FIRST_PERSON = _Words(
    r"i i'* my me mine we we'* our ours us ich mein* mir mich wir unser* uns"
    r" je j'* mon ma mes moi m'* nous notre nos yo mi mis nosotr* nuestr* | 我 咱"
)
_POSSESSIVE = _Words(r"my our mein* unser* mon ma mes notre nos mi mis nuestr* | 我的 我们的")
_KEEP_ORDER = _Words(
    r"remember note save store keep memorize memorise merk* notier* speicher* behalt* retiens retenez souviens"
    r" mémorise* notez noter enregistre* recuerda* anota* guarda* memoriza* | 记住 记下 记录 保存 记得"
)
_REPORT_WORDS = (
    r"says said claim* told tells wrote writes written reads received according allegedly supposedly apparently"
    r" rumor* rumour* phish* scam* fake* fraud* spam hoax malicious suspicious attack* inject* trick* wrong"
    r" false untrue incorrect beware careful warning warn* ignore disregard believe pretend*"
    r" sagt* gesagt behaupt* angeblich laut schreib* schrieb* geschrieben steht lautet betrug* gefälscht"
    r" falsch vorsicht achtung glaub* ignorier* verdächtig* erzählt* bekommen erhalten"
    r" dit disait disent prétend* selon écri* affirme* paraît disant hameçonnage arnaque* faux fausse"
    r" attention méfi* crois croire croit croyez ignore* reçu raconte*"
    r" dice* dijo dijeron afirma* según escri* supuest* falso falsa falsos falsas estafa* cuidado ojo crea* ignora*"
    r" recib* maybe perhaps possibly vielleicht möglicherweise quizá quizás"
    r" | 也许 或许 据说 据称 所说 声称 宣称 写道 骗 是假的 虚假 钓鱼 诈 小心 警惕 当心 相信 错误 忽略 收到"
)
_REPORT = _Words(_REPORT_WORDS)
_OTHERS_WORDS = (
    "they he she someone somebody people everyone man jemand sie er leute ils elle elles il on quelqu'un gens"
    " alguien ellos ellas él ella gente | 有人 他们 人家"
)
_OTHERS = _Words(_OTHERS_WORDS)
_MAY_REPORT = _Words(_REPORT_WORDS, _OTHERS_WORDS)
"""Most texts have none of both, which one look tells."""
_THAT = _Words("that dass daß que qu'* | 有人 他们 人家")
_OPEN_QUESTION = expression(
    r"(?i)^\W*(?:and |und |et |y )?(?:who|what|when|where|why|how|which|wer|was|wann|wo|warum|wieso|wie|welche\w*"
    r"|qui|que|quoi|quand|où|pourquoi|comment|quel\w*|combien|quién|qué|cuándo|dónde|por qué|cómo|cuál\w*|cuánt\w*"
    r"|can you|could you|would you|will you|kannst du|könntest du|peux-tu|pouvez|puedes|podrías)\b"
    r"|谁|什么|何时|哪|为什么|怎么|如何|多少|几|能不能|可以帮"
)
"""Asks for something that it does not state, or for a service."""
_DEMONSTRATIVE = _Words(
    r"this that these those it such das dies\w* so ce cela ça cette ceci celle\w* esto eso esta este así | 这 那 此"
)
_ASKING = expression(
    r"(?i)^\W*(?:(?:is|are|am|was|were|does|did|can|could|would|should|shall|might|must|has|had)(?:n['’]t)?\b"
    r"|(?:do|have|will|may) (?:i|you|we|he|she|it|they|the|this|that|these|those)\b|whether\b"
    r"|(?:ob|stimmt|ist|sind|war|waren|kann|können|könnten?|soll(?:te)?n?|muss|müssen|darf|dürfen|dürfte|wird|werden"
    r"|würden?|hat|hatten?|haben|hätten?)\b"
    r"|est-ce\b|(?:se |n['’]|s['’])?\w{1,30}-(?:t-)?(?:il|elle|on|ce|ils|elles|je)\b"
    r"|(?:es (?:cierto|verdad)|(?:puede|podría|será|acaso|es posible) (?:ser )?que)\b)"
)
_ASKING_UNSPACED = expression(r"(\w)[不没]\1|是否|难道|[吗呢嘛][。！!]?$")
"""A verb before its subject, which asks in the five languages; a wrong guess only leaves an entry unverified."""
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


class Speech(Struct, frozen=True):
    """The parts of a person's message."""

    affirmed: str
    """What they assert, without what they negate."""
    asserted: str
    """What they assert, negated or not."""
    others: str
    """What they quote or report, or what follows a colon that does not announce their own words."""
    negated: str
    """What they negate."""
    open: str
    """What they ask, and what stands beside questions and reports without being about themselves."""
    is_closed_question: bool
    """Whether they ask if something is so."""


def is_negated(text: str) -> bool:
    """Whether a text contains a negation."""
    return _NEGATION.search(text)


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
    parts.others += filter(None, [text[_MOST_CHARS:]])
    is_asked = any(_is_question(one) and not _OPEN_QUESTION.search(one) for one in sentences)
    lists = (parts.affirmed, parts.asserted, parts.others, parts.negated, parts.open)
    affirmed, asserted, others, negated, unclear = map("\n".join, lists)
    return Speech(affirmed, asserted, others, negated, unclear, is_closed_question=is_asked)


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
    if is_negated(lead) or _REPORT.search(lead) or _OTHERS.search(lead) or "?" in lead:
        return False
    if _KEEP_ORDER.search(lead):
        return True
    words = UNSPACED.sub(lambda run: " ".join(split_pairs(run[0])), lead).split()
    # `in our wiki:` says where a text of others stands, `my setup:` what the person describes
    return bool(words) and _POSSESSIVE.search(words[0]) and len(words) <= _MOST_LABEL_WORDS


def _casts_doubt(sentence: str) -> bool:
    """Whether a sentence makes it unclear what the person thinks of those beside it."""
    if _is_question(sentence) or _is_report(sentence):
        return True
    return is_negated(sentence) and _DEMONSTRATIVE.search(sentence) and not _FIRST_PERSON.search(sentence)


def _is_report(sentence: str) -> bool:
    """Whether a sentence reports or doubts something, or tells what others think or want."""
    return _MAY_REPORT.search(sentence) and (
        _REPORT.search(sentence) or (_OTHERS.search(sentence) and _THAT.search(sentence))
    )


def _is_question(sentence: str) -> bool:
    return "?" in sentence or "？" in sentence or "¿" in sentence or _asks(sentence)


def _asks(sentence: str) -> bool:
    """Whether the words of a sentence ask, whatever its signs."""
    # the second expression looks at every character, and finds none of its own in ASCII
    return _ASKING.match(sentence) is not None or (
        not sentence.isascii() and _ASKING_UNSPACED.search(sentence) is not None
    )


_LEAST_STATED = 12
"""A shorter quotation or question states nothing that could be taken for a fact."""
_OTHERS_SIGN = expression(r"[\"“„«‹「『‘»《>|?？¿:：`~]")
QUOTATION = Source(Kind.MESSAGE, "quotation")
QUESTION = Source(Kind.MESSAGE, "question")
NEGATION = Source(Kind.MESSAGE, "negation")


def find_unasserted(text: str) -> SourceName | None:
    """Return the source of a message of the person that quotes, reports or asks what could be taken for a fact."""
    if not (_OTHERS_SIGN.search(text) or _is_report(text) or _asks(text)):
        return None
    speech = read_speech(text)
    if len(speech.others.strip()) >= _LEAST_STATED:
        return QUOTATION.stored
    return QUESTION.stored if speech.is_closed_question and len(speech.open) >= _LEAST_STATED else None


class _Parts(Struct):
    """The sentences of a message, sorted while it is read."""

    affirmed: list[str] = field(default_factory=list)
    asserted: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    negated: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    is_clear: bool = True
    """Whether nothing in the message makes it unclear what the person thinks of the rest."""

    def take(self, sentence: str) -> None:
        """Sort a sentence into its part."""
        if _is_question(sentence):
            self.open.append(sentence)
        elif _is_report(sentence):
            self.others.append(sentence)
        elif not (self.is_clear or _FIRST_PERSON.search(sentence)):
            self.open.append(sentence)
        else:
            self.asserted.append(sentence)
            if is_negated(sentence):
                self.affirmed += _affirmed_clauses(sentence)
                self.negated.append(sentence)
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
