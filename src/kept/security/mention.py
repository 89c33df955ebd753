"""Whether an attack is only talked about: quoted or reported in a sentence that describes it."""

import re
from collections.abc import Callable

_QUOTED = re.compile(r"\"[^\"\n]{3,300}\"|(?<![a-z0-9])'[^'\n]{3,300}'(?![a-z0-9])|`[^`\n]{3,300}`")
_QUOTATION = " quotation "
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_REPORT = re.compile(
    r"\b(?:papers?|articles?|blog|posts?|study|studies|talk|chapter|lecture|book|course|thesis|reports?|docs|documentation|"
    r"tests?|testers?|testeurs?|probador|suite|corpus|fixtures?|dataset|benchmark|examples?|scanner|filter|regex|rules?|detector|guard|classifier|"
    r"attacks?|attackers?|injections?|jailbreaks?|phrases?|strings?|payloads?|wording|technique|researchers?|spam|phishing|"
    r"aufsatz|artikel|angriffe?|beispiele?|angreifer|articulo|ataques?|ejemplos?|attaques?|exemples?)\b",
)
_DIRECTIVE = re.compile(
    r"\b(?:you|your|yours|must|always|never|please|from now|henceforth|follow|obey|execute|run|apply|perform|comply|"
    r"remember|repeat|act|respond|reply|answer|do|treat|set|override|send|print|ensure|make sure|enable|become|"
    r"adopt|believe|proceed|begin|start|continue|instead|assistant|du|dein|deine|befolge|immer|tu|debes|siempre|vous|dois)\b",
)
_TOLD = re.compile(
    r"^\W{0,3}(?:the|a|an|our|this|these|some|many|most|one|in|der|die|das|ein|eine|el|la|los|un|una|le|les|une)\b"
    r"[^:;\n]{0,60}?\b(?:shows?|explains?|describes?|detects?|blocks?|catch(?:es)?|flags?|covers?|contains?|uses?|"
    r"demonstrates?|embeds?|tells?|told|says?|said|warns?|lists?|tries|attempts?|mentions?|discuss(?:es)?|checks?|"
    r"beschreibt|zeigt|erklart|explica|muestra|describe|montre|explique|decrit)\b",
)
_NO_WORD = re.compile(r"\S*[/.@_=]\w\S*")
_MACHINE = re.compile(r"[{}<>$|\\]")
"""Signs of a command or of data, which nobody quotes from."""
_LONGEST = 700


def is_mention(folded: str, is_attack: Callable[[str], bool]) -> bool:
    """Tell whether `folded`, which holds an attack, describes it rather than makes it.

    A quotation must be the smaller part of its text; nothing around it may give an order.
    """
    if len(folded) > _LONGEST:
        return False
    around = _QUOTED.sub(_QUOTATION, folded)
    if around != folded and not is_attack(around):
        quoted = len(folded.split()) - len(around.split()) + around.count("quotation")
        return len(around.split()) >= quoted and _describes(around)
    attacking = [sentence for sentence in _SENTENCE.findall(around) if is_attack(sentence)]
    return bool(attacking) and all(map(_reported, attacking)) and not _DIRECTIVE.search(_rest(around, attacking))


def _describes(text: str) -> bool:
    words = _NO_WORD.sub(" ", text)
    return _MACHINE.search(text) is None and _REPORT.search(words) is not None and _DIRECTIVE.search(words) is None


def _reported(sentence: str) -> bool:
    told = _TOLD.match(sentence.strip())
    return told is not None and _describes(told[0])


def _rest(text: str, sentences: list[str]) -> str:
    for sentence in sentences:
        text = text.replace(sentence, " ")
    return text
